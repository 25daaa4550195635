#include "tools/r2_diag/figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PERCENT 90 /* of its bytes: a connection is one of that path */

const char *figures_size_name(enum figures_by by, unsigned size)
{
    static const char *const of_sends[R2_SEND_SIZES] = {"small", "large"};

    if (by == FIGURES_NIC) {
        return size < R2_SEND_SIZES ? of_sends[size] : NULL;
    }
    return size < R2_BAND_SIZES ? r2_band_size_name(size) : NULL;
}
_Static_assert(R2_BAND_SIZES <= FIGURES_SIZES && R2_SEND_SIZES <= FIGURES_SIZES, "sizes");

static void name_copy(char out[FIGURES_NAME], const char *name)
{
    /* peers are known by so many bytes of their name (struct r2_stat_peer) */
    snprintf(out, FIGURES_NAME, "%.39s", name);
    for (char *c = out; *c; c++) {
        *c = (unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e ? '?' : *c;
    }
}

/* -1: there is no room. */
static int place_at(struct figures *f, enum figures_by by, const char *name)
{
    struct figures_set *set = &f->by[by];

    if (set->place == NULL) {
        set->place = calloc(FIGURES_PLACES, sizeof(*set->place));
    }
    for (int i = 0; set->place && i < set->places; i++) {
        if (strcmp(set->place[i].name, name) == 0) {
            return i;
        }
    }
    if (set->place == NULL || set->places == FIGURES_PLACES) {
        f->full = 1;
        return -1;
    }
    snprintf(set->place[set->places].name, FIGURES_NAME, "%s", name);
    set->place[set->places].rail = -1;
    return set->places++;
}

static int host_at(struct figures *f, const char *host)
{
    char name[FIGURES_NAME];

    name_copy(name, host);
    return place_at(f, FIGURES_HOST, name);
}

static int nic_at(struct figures *f, const char *host, const char *nic)
{
    char name[FIGURES_NAME], of[FIGURES_NAME], full[2 * FIGURES_NAME];

    name_copy(of, host);
    name_copy(name, nic);
    snprintf(full, sizeof(full), "%.39s/%.23s", of, name);
    return place_at(f, FIGURES_NIC, full);
}

static void one_add(struct figures *f, enum figures_by by, struct figures_one one)
{
    struct figures_set *set = &f->by[by];

    if (one.source < 0 || one.destination < 0 || one.source == one.destination || one.p50 <= 0) {
        return;
    }
    if (set->ones == set->room) {
        size_t room = set->room ? 2 * set->room : 1024;
        struct figures_one *more = realloc(set->one, room * sizeof(*more));

        if (more == NULL) {
            f->full = 1;
            return;
        }
        set->one = more;
        set->room = room;
    }
    set->one[set->ones++] = one;
}

int figures_begin(struct figures *f, const char *host, const char *job, uint64_t updated)
{
    char id[sizeof(f->job)];

    snprintf(id, sizeof(id), "%.100s", job);
    if (f->wanted && strcmp(f->wanted, id) != 0) {
        return 0;
    }
    if (f->jobs == 0) {
        snprintf(f->job, sizeof(f->job), "%s", id);
        f->jobs = 1;
    }
    f->jobs = strcmp(f->job, id) != 0 ? 2 : f->jobs;
    f->processes++;
    f->now.updated = updated;
    f->now.host = host_at(f, host);
    if (f->now.host >= 0) {
        f->by[FIGURES_HOST].place[f->now.host].is_read = 1;
    }
    return 1;
}

static const char *now_host(const struct figures *f)
{
    return f->now.host >= 0 ? f->by[FIGURES_HOST].place[f->now.host].name : "?";
}

void figures_nic(struct figures *f, const char *name, int rail)
{
    int at = nic_at(f, now_host(f), name);

    if (at >= 0) {
        f->by[FIGURES_NIC].place[at].rail = rail;
        f->by[FIGURES_NIC].place[at].is_read = 1;
    }
}

void figures_transfer(struct figures *f, const char *peer, unsigned size,
                      const struct r2_stat_transfer *t)
{
    int to = host_at(f, peer); /* one that no figure is of is named, too */

    if (t->at == 0 || size >= R2_BAND_SIZES) {
        return;
    }
    if (t->at + FIGURES_FRESH < f->now.updated) {
        f->stale++;
        return;
    }
    one_add(f, FIGURES_HOST,
            (struct figures_one){.source = f->now.host,
                                 .destination = to,
                                 .times = t->n,
                                 .p50 = (double)t->p50_ns,
                                 .p99 = (double)t->p99_ns,
                                 .size = (uint8_t)size});
}

void figures_connection(struct figures *f, const struct figures_conn *c)
{
    uint64_t all = 0;
    int most = 0, from, to;

    for (int p = 0; p < c->paths; p++) {
        all += c->path[p].bytes >> 8; /* no sum of them overflows */
        most = c->path[p].bytes > c->path[most].bytes ? p : most;
    }
    if (!c->is_send || all == 0 || c->path[most].peer_nic[0] == '\0') {
        return;
    }
    if ((c->path[most].bytes >> 8) < all / 100 * MOST_PERCENT) {
        f->spread++;
        return;
    }
    from = nic_at(f, now_host(f), c->path[most].nic);
    to = nic_at(f, c->peer_host, c->path[most].peer_nic);
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        uint64_t n = c->sends[s].samples;

        one_add(f, FIGURES_NIC,
                (struct figures_one){.source = from,
                                     .destination = to,
                                     .times = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX,
                                     .p50 = n ? (double)c->sends[s].p50 : 0,
                                     .p99 = (double)c->sends[s].p99,
                                     .size = (uint8_t)s});
    }
}

static void view_connection(struct figures *f, const struct r2_stat_view *v,
                            const struct r2_stat_conn *c)
{
    struct figures_conn out = {.is_send = c->is_send, .paths = c->npaths};

    snprintf(out.peer_host, sizeof(out.peer_host), "%s", c->peer_host);
    for (int p = 0; p < c->npaths; p++) {
        snprintf(out.path[p].nic, sizeof(out.path[p].nic), "%s", v->nic[c->path[p].nic].name);
        snprintf(out.path[p].peer_nic, sizeof(out.path[p].peer_nic), "%s", c->path[p].peer_name);
        out.path[p].bytes = c->path[p].bytes;
    }
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        out.sends[s].samples = c->sends[s].samples;
        out.sends[s].p50 = c->sends[s].p50_ns;
        out.sends[s].p99 = c->sends[s].p99_ns;
    }
    figures_connection(f, &out);
}

void figures_view(struct figures *f, const struct r2_stat_view *v)
{
    if (!figures_begin(f, v->who.host, v->who.job, v->who.updated)) {
        return;
    }
    for (uint32_t i = 0; i < v->who.nics; i++) {
        if (v->nic[i].name[0] && !v->nic[i].last_resort) {
            figures_nic(f, v->nic[i].name, v->nic[i].rail);
        }
    }
    for (uint32_t i = 0; i < v->who.peers; i++) {
        for (unsigned s = 0; v->peer[i].host[0] && s < R2_BAND_SIZES; s++) {
            figures_transfer(f, v->peer[i].host, s, &v->peer[i].transfer[s]);
        }
    }
    for (int i = 0; i < v->conns; i++) {
        view_connection(f, v, &v->conn[i]);
    }
    f->hidden += v->who.peers_all > v->who.peers ? v->who.peers_all - v->who.peers : 0;
}

/* --- into matrices --- */

static const struct figures_place *sorted; /* one thread */

static int by_name(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b, d = strverscmp(sorted[x].name, sorted[y].name);

    return d ? d : x - y;
}

static int by_cell(const void *a, const void *b)
{
    const struct figures_one *x = a, *y = b;

    return x->size != y->size                 ? x->size - y->size
           : x->source != y->source           ? x->source - y->source
           : x->destination != y->destination ? x->destination - y->destination
                                              : (x->p50 > y->p50) - (x->p50 < y->p50);
}

static void set_sort(struct figures *f, struct figures_set *set)
{
    size_t n = (size_t)set->places;
    int *order = calloc(n + 1, sizeof(int)), *number = calloc(n + 1, sizeof(int));
    struct figures_place *place = calloc(n + 1, sizeof(*place));

    if (order == NULL || number == NULL || place == NULL) {
        f->full = 1;
    } else if (n > 0) {
        sorted = set->place;
        for (int i = 0; i < set->places; i++) {
            order[i] = i;
        }
        qsort(order, n, sizeof(order[0]), by_name);
        for (int i = 0; i < set->places; i++) {
            number[order[i]] = i;
            place[i] = set->place[order[i]];
        }
        memcpy(set->place, place, n * sizeof(*place));
        for (size_t i = 0; i < set->ones; i++) {
            set->one[i].source = number[set->one[i].source];
            set->one[i].destination = number[set->one[i].destination];
        }
    }
    if (set->ones > 0) {
        qsort(set->one, set->ones, sizeof(set->one[0]), by_cell);
    }
    free(order);
    free(number);
    free(place);
}

void figures_sort(struct figures *f)
{
    for (int by = 0; by < FIGURES_BYS; by++) {
        set_sort(f, &f->by[by]);
    }
}

/* Which links are compared. Where a rail is not known, as of a NIC whose host was not read, devices
 * of one name are on one. */
static enum diag_link link_of(const struct figures_set *set, enum figures_by by, int s, int d)
{
    const char *from = set->place[s].name, *to = set->place[d].name;
    const char *a = strchr(from, '/'), *b = strchr(to, '/');

    if (by == FIGURES_HOST || a == NULL || b == NULL) {
        return DIAG_LINK_RAIL;
    }
    if (a - from == b - to && memcmp(from, to, (size_t)(a - from)) == 0) {
        return DIAG_LINK_HOST;
    }
    if (set->place[s].rail >= 0 && set->place[d].rail >= 0) {
        return set->place[s].rail == set->place[d].rail ? DIAG_LINK_RAIL : DIAG_LINK_CROSS;
    }
    return strcmp(a, b) == 0 ? DIAG_LINK_RAIL : DIAG_LINK_CROSS;
}

struct diag_matrix *figures_matrix(const struct figures *f, enum figures_by by, unsigned size)
{
    const struct figures_set *set = &f->by[by];
    struct diag_matrix *m = diag_matrix_new(set->places);
    size_t n;

    for (size_t i = 0; m && i < set->ones; i += n) {
        const struct figures_one *one = &set->one[i];
        struct diag_cell *c = &m->cell[one->source * m->n + one->destination];
        uint64_t times = 0;

        for (n = 0; i + n < set->ones && one[n].size == one->size && one[n].source == one->source &&
                    one[n].destination == one->destination;
             n++) {
            times += one[n].times;
        }
        if (one->size != size) {
            continue;
        }
        c->ns = one[(n - 1) / 2].p50;
        c->ns_p99 = one[(n - 1) / 2].p99;
        c->times = times < UINT32_MAX ? (uint32_t)times : UINT32_MAX;
        c->link = (uint8_t)link_of(set, by, one->source, one->destination);
    }
    return m;
}

void figures_free(struct figures *f)
{
    for (int by = 0; by < FIGURES_BYS; by++) {
        free(f->by[by].place);
        free(f->by[by].one);
    }
}
