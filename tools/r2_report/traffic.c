/* Twice over the files: the first time for when they are of, so that no row has to be kept. */
#include "tools/r2_report/traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A row that no clock of a host has made. */
static bool is_odd(const struct r2_traffic_row *r)
{
    return r->from < STORY_RATES_NS || r->to >= UINT64_MAX / 2 || r->to <= r->from;
}

int traffic_add(struct traffic *t, const char *path, const char *job)
{
    static struct r2_traffic_view v;
    char why[4600], **p;

    if (r2_traffic_read(path, &v, why, sizeof(why)) != 1) {
        fprintf(stderr, "r2_report: %s\n", why);
        return 1;
    }
    if (v.rows == 0 || (job && strcmp(job, v.head.job) != 0)) {
        return 0;
    }
    for (int i = 0; i < v.rows; i++) {
        if (!is_odd(&v.row[i])) {
            t->from = t->to == 0 || v.row[i].from < t->from ? v.row[i].from : t->from;
            t->to = v.row[i].to > t->to ? v.row[i].to : t->to;
        }
    }
    p = realloc(t->path, (size_t)(t->paths + 1) * sizeof(*p));
    if (p == NULL) {
        return -1;
    }
    t->path = p;
    p[t->paths] = strdup(path);
    return p[t->paths] == NULL ? -1 : (t->paths++, 0);
}

/* Statistics of a process have newer sums than its last row, and are added by whoever reads them.
 */
static bool has_statistics(const char *path)
{
    char stat[4400];

    return snprintf(stat, sizeof(stat), "%.*s.stat", (int)(strlen(path) - strlen(".traffic")),
                    path) < (int)sizeof(stat) &&
           access(stat, F_OK) == 0;
}

/* What NIC @k carried in row @i: nobody knows of the first one, if that is not the process' first.
 */
static struct r2_traffic_cell row_more(const struct r2_traffic_view *v, int i, uint32_t k)
{
    const struct r2_traffic_row *r = &v->row[i];
    struct r2_traffic_cell out = {.state = r->cell[k].state}, was = {0};
    bool known = r->no == 1 || (i > 0 && v->row[i - 1].no + 1 == r->no);

    if (i > 0) {
        was = v->row[i - 1].cell[k];
    }
    if (known) {
        out.sent = r->cell[k].sent > was.sent ? r->cell[k].sent - was.sent : 0;
        out.received = r->cell[k].received > was.received ? r->cell[k].received - was.received : 0;
    }
    return out;
}

static int file_tell(const char *path, struct story *s)
{
    static struct r2_traffic_view v;
    const struct r2_traffic_cell *last;
    bool counted = has_statistics(path);
    char why[4600];
    int rc = 0;

    if (r2_traffic_read(path, &v, why, sizeof(why)) != 1 || v.rows == 0) {
        return 0; /* gone meanwhile */
    }
    last = v.row[v.rows - 1].cell;
    for (uint32_t k = 0; k < v.head.nics && rc == 0; k++) {
        if (v.head.nic[k][0] == '\0' ||
            (strcmp(v.head.nic[k], "tcp0") == 0 && last[k].sent == 0 && last[k].received == 0)) {
            continue; /* the last resort, which nothing went over */
        }
        rc = counted
                 ? 0
                 : story_bytes_add(s, v.head.host, v.head.nic[k], last[k].sent, last[k].received);
        for (int i = 0; i < v.rows && rc == 0; i++) {
            struct r2_traffic_cell more = row_more(&v, i, k);

            rc = is_odd(&v.row[i]) ? 0
                                   : story_rate_add(s, v.head.host, v.head.nic[k], v.row[i].from,
                                                    v.row[i].to, &more);
        }
    }
    return rc;
}

int traffic_tell(const struct traffic *t, struct story *s)
{
    if (t->to == 0) {
        return 0;
    }
    story_rates_begin(s, t->from, t->to);
    for (int i = 0; i < t->paths; i++) {
        if (file_tell(t->path[i], s) != 0) {
            return -1;
        }
    }
    return 0;
}

void traffic_free(struct traffic *t)
{
    for (int i = 0; i < t->paths; i++) {
        free(t->path[i]);
    }
    free(t->path);
    *t = (struct traffic){0};
}
