/*
 * What the processes have counted, from one look to the next, so that a process that ends takes
 * nothing away from the host's counters. Text, a record a line:
 *
 *     r2.prom/5
 *     ended SUM...                        of all that have ended: 13 numbers, of version 1 the
 *                                         first 8, of version 2 the first 11
 *     process UID UNIQUE SUM...           one that lived at the last look
 *     stalls WHICH SUM N...               stalls of the record above, where there are any: enum
 *                                         r2_stat_stall, ns, PROM_TIMES counts; since version 5
 *     nic DEVICE PORT SUM...              over a NIC, of the record above: 5 numbers, of versions 1
 *                                         and 2 the first 4
 *     sends DEVICE PORT SIZE SUM N...     times of sends over it, where there are any: enum
 *                                         r2_send_size, ns, PROM_TIMES counts; since version 4
 *     end
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/r2_stat/prom.h"

/* The newest one first. */
static const struct version {
    const char *head;
    int sums, nic_sums, sends, stalls;
} versions[] = {
    {"r2.prom/5", PROM_SUMS, PROM_NIC_SUMS, 1, 1},
    {"r2.prom/4", PROM_SUMS, PROM_NIC_SUMS, 1, 0},
    {"r2.prom/3", PROM_SUMS, PROM_NIC_SUMS, 0, 0},
    {"r2.prom/2", PROM_STALLS, PROM_NIC_STALLS, 0, 0},
    {"r2.prom/1", PROM_STRANGERS, PROM_NIC_STALLS, 0, 0},
};
_Static_assert(PROM_STRANGERS == 8 && PROM_STALLS == 11 && PROM_NIC_STALLS == 4,
               "what older versions have comes first");

static struct prom_nic *nic_at(struct prom_count *c, const char *device, unsigned port)
{
    int i = 0;

    while (i < c->nics && (c->nic[i].port != port || strcmp(c->nic[i].device, device) != 0)) {
        i++;
    }
    if (i == R2_STAT_NICS) {
        return NULL;
    }
    if (i == c->nics) {
        snprintf(c->nic[i].device, sizeof(c->nic[i].device), "%.23s", device);
        for (char *p = strchr(c->nic[i].device, ' '); p; p = strchr(p, ' ')) {
            *p = '_'; /* a word of the book's lines */
        }
        c->nic[i].port = port;
        c->nics++;
    }
    return &c->nic[i];
}

uint64_t prom_times_count(const struct prom_times *t)
{
    uint64_t n = 0;

    for (int i = 0; i < PROM_TIMES; i++) {
        n += t->n[i];
    }
    return n;
}

static void times_add(struct prom_times *to, const struct prom_times *from)
{
    to->sum_ns += from->sum_ns;
    for (int i = 0; i < PROM_TIMES; i++) {
        to->n[i] += from->n[i];
    }
}

static void times_take(struct prom_times *to, const struct r2_hist *h)
{
    to->sum_ns += h->sum_ns;
    for (unsigned i = 0; i < R2_HIST_BUCKETS; i++) {
        to->n[i == 0 ? 0 : 1 + (i - 1) / R2_HIST_EACH] += h->n[i];
    }
}

void prom_count_add(struct prom_count *to, const struct prom_count *from)
{
    for (int s = 0; s < PROM_SUMS; s++) {
        to->sum[s] += from->sum[s];
    }
    for (int k = 0; k < R2_STAT_STALLS; k++) {
        times_add(&to->stalls[k], &from->stalls[k]);
    }
    for (int i = 0; i < from->nics; i++) {
        struct prom_nic *n = nic_at(to, from->nic[i].device, from->nic[i].port);

        for (int s = 0; n && s < PROM_NIC_SUMS; s++) {
            n->sum[s] += from->nic[i].sum[s];
        }
        for (int s = 0; n && s < R2_SEND_SIZES; s++) {
            times_add(&n->sends[s], &from->nic[i].sends[s]);
        }
    }
}

void prom_count_take(struct prom_count *out, const struct stat_proc *p)
{
    const struct r2_stat_who *w = &p->v.who;

    *out = (struct prom_count){.uid = p->uid,
                               .unique = p->unique,
                               .sum = {w->faults, w->switches, w->failbacks, w->drains, w->giveups,
                                       w->verdicts, w->replayed_bytes, w->events_lost,
                                       w->oob_strangers, w->oob_bad_frames, w->oob_bad_messages,
                                       w->stalls, w->kept}};
    for (int k = 0; k < R2_STAT_STALLS; k++) {
        times_take(&out->stalls[k], &w->stall_times[k]);
    }
    for (uint32_t i = 0; i < w->nics; i++) {
        const struct r2_stat_nic *k = &p->v.nic[i];
        struct prom_nic *n = k->device[0] ? nic_at(out, k->device, k->port) : NULL;

        if (n) {
            n->sum[PROM_SENT] += k->sent;
            n->sum[PROM_RECEIVED] += k->received;
            n->sum[PROM_WORK] += k->work_requests;
            n->sum[PROM_LOST] += k->lost;
            n->sum[PROM_NIC_STALLS] += k->stalls;
            for (int s = 0; s < R2_SEND_SIZES; s++) {
                times_take(&n->sends[s], &k->sends[s]);
            }
        }
    }
}

void prom_book_turn(struct prom_book *now, const struct prom_book *old, bool unread)
{
    int living = now->procs;

    now->ended = old->ended;
    for (int i = 0; i < old->procs; i++) {
        const struct prom_count *c = &old->proc[i];
        int k = 0;

        while (k < living && (now->proc[k].uid != c->uid || now->proc[k].unique != c->unique)) {
            k++;
        }
        if (k < living) {
            continue;
        }
        if (unread && now->procs < STAT_PROCS) {
            now->proc[now->procs++] = *c;
        } else {
            prom_count_add(&now->ended, c);
        }
    }
}

/* --- text --- */

/* @n numbers, each behind a space, and nothing else. */
static int numbers_read(const char *p, uint64_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        char *end;

        if (p[0] != ' ' || p[1] < '0' || p[1] > '9') {
            return -1;
        }
        errno = 0;
        out[i] = strtoull(p + 1, &end, 10);
        if (errno) {
            return -1;
        }
        p = end;
    }
    return *p == '\0' ? 0 : -1;
}

static int nic_read(const char *line, struct prom_count *c, int sums)
{
    char device[24];
    uint64_t sum[PROM_NIC_SUMS] = {0};
    unsigned port;
    int at = 0;
    struct prom_nic *n;

    if (c == NULL || sscanf(line, "nic %23s %3u%n", device, &port, &at) != 2 ||
        numbers_read(line + at, sum, sums) != 0) {
        return -1;
    }
    n = nic_at(c, device, port);
    if (n) {
        memcpy(n->sum, sum, sizeof(sum));
    }
    return n ? 0 : -1;
}

/* The sum, then the counts. */
static int times_read(const char *p, struct prom_times *t)
{
    uint64_t row[1 + PROM_TIMES];

    if (numbers_read(p, row, 1 + PROM_TIMES) != 0) {
        return -1;
    }
    t->sum_ns = row[0];
    memcpy(t->n, row + 1, sizeof(t->n));
    return 0;
}

static int stalls_read(const char *line, struct prom_count *c)
{
    unsigned which;
    int at = 0;

    if (c == NULL || sscanf(line, "stalls %1u%n", &which, &at) != 1 || which >= R2_STAT_STALLS) {
        return -1;
    }
    return times_read(line + at, &c->stalls[which]);
}

static int sends_read(const char *line, struct prom_count *c)
{
    char device[24];
    struct prom_times times;
    unsigned port, size;
    int at = 0;
    struct prom_nic *n;

    if (c == NULL || sscanf(line, "sends %23s %3u %1u%n", device, &port, &size, &at) != 3 ||
        size >= R2_SEND_SIZES || times_read(line + at, &times) != 0 ||
        (n = nic_at(c, device, port)) == NULL) {
        return -1;
    }
    n->sends[size] = times;
    return 0;
}

static int line_read(const char *line, struct prom_book *b, struct prom_count **of,
                     const struct version *v)
{
    unsigned uid;
    int at = 0;

    if (strncmp(line, "nic ", 4) == 0) {
        return nic_read(line, *of, v->nic_sums);
    }
    if (v->sends && strncmp(line, "sends ", 6) == 0) {
        return sends_read(line, *of);
    }
    if (v->stalls && strncmp(line, "stalls ", 7) == 0) {
        return stalls_read(line, *of);
    }
    if (strncmp(line, "ended ", 6) == 0) {
        *of = &b->ended;
        return numbers_read(line + 5, b->ended.sum, v->sums);
    }
    if (b->procs == STAT_PROCS) {
        return -1;
    }
    *of = &b->proc[b->procs];
    **of = (struct prom_count){0};
    if (sscanf(line, "process %10u %16" SCNx64 "%n", &uid, &(*of)->unique, &at) != 2 ||
        numbers_read(line + at, (*of)->sum, v->sums) != 0) {
        return -1;
    }
    (*of)->uid = uid;
    b->procs++;
    return 0;
}

static const struct version *version_of(const char *head)
{
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        if (strcmp(head, versions[i].head) == 0) {
            return &versions[i];
        }
    }
    return NULL;
}

static int lines_read(FILE *f, struct prom_book *b)
{
    const struct version *v = NULL;
    struct prom_count *of = NULL;
    char line[1024];
    int n = 0;

    while (fgets(line, sizeof(line), f)) {
        size_t len = strlen(line);

        if (len == 0 || line[len - 1] != '\n') {
            return -1;
        }
        line[len - 1] = '\0';
        if (n > 0 && strcmp(line, "end") == 0) {
            return fgetc(f) == EOF ? 0 : -1;
        }
        if (n == 0 ? (v = version_of(line)) == NULL : line_read(line, b, &of, v) != 0) {
            return -1;
        }
        n++;
    }
    return -1;
}

int prom_book_read(const char *file, struct prom_book *b, char *why, size_t why_len)
{
    FILE *f = fopen(file, "re");
    int rc;

    memset(b, 0, sizeof(*b));
    if (f == NULL) {
        snprintf(why, why_len, "%s: %s", file, strerror(errno));
        return errno == ENOENT ? 0 : -1;
    }
    rc = lines_read(f, b);
    fclose(f);
    if (rc != 0) {
        snprintf(
            why, why_len,
            "%s is not what this version of r2_stat wrote: counters begin anew once it is gone",
            file);
    }
    return rc;
}

static void times_print(FILE *f, const struct prom_times *t)
{
    fprintf(f, " %" PRIu64, t->sum_ns);
    for (int i = 0; i < PROM_TIMES; i++) {
        fprintf(f, " %" PRIu64, t->n[i]);
    }
    putc('\n', f);
}

static void sends_print(FILE *f, const struct prom_nic *n)
{
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        if (prom_times_count(&n->sends[s]) > 0) {
            fprintf(f, "sends %s %u %d", n->device, n->port, s);
            times_print(f, &n->sends[s]);
        }
    }
}

static void count_print(FILE *f, const struct prom_count *c)
{
    for (int s = 0; s < PROM_SUMS; s++) {
        fprintf(f, " %" PRIu64, c->sum[s]);
    }
    putc('\n', f);
    for (int k = 0; k < R2_STAT_STALLS; k++) {
        if (prom_times_count(&c->stalls[k]) > 0) {
            fprintf(f, "stalls %d", k);
            times_print(f, &c->stalls[k]);
        }
    }
    for (int i = 0; i < c->nics; i++) {
        fprintf(f, "nic %s %u", c->nic[i].device, c->nic[i].port);
        for (int s = 0; s < PROM_NIC_SUMS; s++) {
            fprintf(f, " %" PRIu64, c->nic[i].sum[s]);
        }
        putc('\n', f);
        sends_print(f, &c->nic[i]);
    }
}

int prom_book_write(const char *file, const struct prom_book *b, char *why, size_t why_len)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int rc;

    if (f == NULL) {
        snprintf(why, why_len, "out of memory");
        return -1;
    }
    fprintf(f, "%s\nended", versions[0].head);
    count_print(f, &b->ended);
    for (int i = 0; i < b->procs; i++) {
        fprintf(f, "process %u %" PRIx64, (unsigned)b->proc[i].uid, b->proc[i].unique);
        count_print(f, &b->proc[i]);
    }
    fputs("end\n", f);
    rc = fclose(f) == 0 ? prom_file_put(file, text, len, 0600, why, why_len) : -1;
    free(text);
    return rc;
}

int prom_file_put(const char *file, const char *text, size_t len, mode_t mode, char *why,
                  size_t why_len)
{
    char tmp[4200];
    int fd, rc;

    if (snprintf(tmp, sizeof(tmp), "%s.%ld", file, (long)getpid()) >= (int)sizeof(tmp)) {
        snprintf(why, why_len, "the name is too long");
        return -1;
    }
    unlink(tmp); /* of a process that had the same number */
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    rc = fd < 0 ? -1 : 0;
    for (size_t done = 0; rc == 0 && done < len;) {
        ssize_t n = write(fd, text + done, len - done);

        rc = n > 0 || (n < 0 && errno == EINTR) ? 0 : -1;
        done += n > 0 ? (size_t)n : 0;
    }
    rc = rc == 0 && (fchmod(fd, mode) != 0 || fsync(fd) != 0) ? -1 : rc;
    rc = rc == 0 && rename(tmp, file) != 0 ? -1 : rc;
    if (rc != 0) {
        snprintf(why, why_len, "%s: %s", file, strerror(errno));
        unlink(tmp);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}
