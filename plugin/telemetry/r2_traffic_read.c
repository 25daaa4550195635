/* The reader (r2_traffic.h). It reads with pread(): another user's file is never mapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "r2_stat.h"
#include "r2_traffic_file.h"

int r2_traffic_name(const char *name, uid_t *uid, uint64_t *unique)
{
    static const char end[] = ".traffic";
    size_t n = strlen(name), k = sizeof(end) - 1;
    char text[64];

    if (n <= k || n - k > sizeof(text) - sizeof(".stat") || strcmp(name + n - k, end) != 0) {
        return 0;
    }
    snprintf(text, sizeof(text), "%.*s.stat", (int)(n - k), name);
    return r2_stat_name(text, uid, unique);
}

static void text_mend(char *text, size_t room)
{
    text[room - 1] = '\0';
    for (size_t i = 0; text[i]; i++) {
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e) {
            text[i] = '?';
        }
    }
}

static void head_mend(struct r2_traffic_head *h)
{
    text_mend(h->host, sizeof(h->host));
    text_mend(h->command, sizeof(h->command));
    text_mend(h->scheduler, sizeof(h->scheduler));
    text_mend(h->job, sizeof(h->job));
    text_mend(h->step, sizeof(h->step));
    for (int i = 0; i < R2_TRAFFIC_NICS; i++) {
        text_mend(h->nic[i], sizeof(h->nic[i]));
    }
}

static int by_number(const void *a, const void *b)
{
    const struct r2_traffic_row *x = a, *y = b;

    return (x->no > y->no) - (x->no < y->no);
}

/* The row in place @i of the ring. 0: there is none, or it changes. */
static int row_get(int fd, uint32_t nics, uint64_t i, struct r2_traffic_row *out)
{
    uint64_t row[R2_TRAFFIC_WORDS(R2_TRAFFIC_NICS)];
    size_t words = R2_TRAFFIC_WORDS(nics), len = words * sizeof(row[0]);

    if (pread(fd, row, len, (off_t)R2_TRAFFIC_AT(i + 1, nics)) != (ssize_t)len || row[0] == 0 ||
        row[0] != row[words - 1] || (row[0] - 1) % R2_TRAFFIC_ROWS != i || row[2] < row[1]) {
        return 0;
    }
    memset(out, 0, sizeof(*out));
    out->no = row[0];
    out->from = row[1];
    out->to = row[2];
    for (uint32_t k = 0; k < nics; k++) {
        unsigned state = row[3 + k / 16] >> (4 * (k % 16)) & 15;

        out->cell[k].state = (uint8_t)(state < R2_TRAFFIC_STATES ? state : R2_TRAFFIC_UP);
        out->cell[k].sent = row[R2_TRAFFIC_CELLS_AT + 2 * k];
        out->cell[k].received = row[R2_TRAFFIC_CELLS_AT + 2 * k + 1];
    }
    return 1;
}

int r2_traffic_read_fd(int fd, const char *path, struct r2_traffic_view *v, char *why,
                       size_t why_len)
{
    v->rows = 0;
    if (pread(fd, &v->head, sizeof(v->head), 0) != sizeof(v->head) ||
        v->head.magic != R2_TRAFFIC_MAGIC) {
        snprintf(why, why_len, "%s is no file of traffic", path);
        return -1;
    }
    if (v->head.shape != r2_traffic_shape() || v->head.nics > R2_TRAFFIC_NICS) {
        snprintf(why, why_len, "%s holds no traffic of this version", path);
        return -1;
    }
    head_mend(&v->head);
    for (uint64_t i = 0; i < R2_TRAFFIC_ROWS; i++) {
        v->rows += row_get(fd, v->head.nics, i, &v->row[v->rows]);
    }
    qsort(v->row, (size_t)v->rows, sizeof(v->row[0]), by_number);
    return 1;
}

int r2_traffic_read(const char *path, struct r2_traffic_view *v, char *why, size_t why_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = -1;
    struct stat st;

    v->rows = 0;
    if (fd < 0) {
        snprintf(why, why_len, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        snprintf(why, why_len, "%s: no regular file", path);
    } else {
        rc = r2_traffic_read_fd(fd, path, v, why, why_len);
    }
    close(fd);
    return rc;
}
