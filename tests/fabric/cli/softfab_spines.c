/* The spines in softfab status. */
#include "tests/fabric/cli/softfab.h"

#include <inttypes.h>
#include <stdio.h>

struct spine_view {
    int rail, spine;
    uint64_t rate;
    struct fab_spine_count count;
    const char *state;
    char fault[3][48]; /* "": none */
};

static void view(struct seg *seg, int rail, int k, struct spine_view *v)
{
    struct fab_rail r;
    size_t n = 0;

    seg_rail_read(&seg->rail[rail], &r);
    *v = (struct spine_view){
        .rail = rail, .spine = k, .rate = r.rate[k], .state = r.down >> k & 1 ? "DOWN" : "UP"};
    seg_spine_count_read(&seg->rail[rail].spine[k], &v->count);
    if (r.blackhole >> k & 1) {
        snprintf(v->fault[n++], sizeof(v->fault[0]), "blackhole");
    }
    if (r.loss_ppm[k] != 0) {
        snprintf(v->fault[n++], sizeof(v->fault[0]), "loss %.4g%%", r.loss_ppm[k] / 1e4);
    }
    if (v->rate != 0) {
        char rate[32];

        softfab_rate_text(v->rate, rate, sizeof(rate));
        snprintf(v->fault[n], sizeof(v->fault[0]), "rate %s", rate);
    }
}

static void text_line(const struct spine_view *v)
{
    char place[32];

    snprintf(place, sizeof(place), "rail %d spine %d", v->rail, v->spine);
    printf("%-16s %-5s %12" PRIu64 " %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " ", place,
           v->state, v->count.bytes, v->count.packets, v->count.dropped, v->count.queued,
           v->count.moved);
    for (int i = 0; i < 3 && v->fault[i][0] != '\0'; i++) {
        printf("%s %s", i > 0 ? "," : "", v->fault[i]);
    }
    printf("%s\n", v->fault[0][0] == '\0' ? " -" : "");
}

void softfab_spines_text(struct seg *seg)
{
    const struct fab_desc *d = &seg->head.desc;
    struct spine_view v;

    if (fab_spines(d) == 1) {
        return;
    }
    printf("\n%d spines per rail, chosen by %s\n%-16s %-5s %12s %10s %8s %8s %8s  %s\n",
           fab_spines(d),
           d->hash == FAB_HASH_QP ? "addresses, ports and queue pair" : "addresses and ports",
           "spine", "state", "bytes", "packets", "dropped", "queued", "moved", "faults");
    for (int i = 0; i < d->nics; i++) {
        for (int k = 0; k < fab_spines(d); k++) {
            view(seg, i, k, &v);
            text_line(&v);
        }
    }
}

static void json_spine(struct r2_json *j, const struct spine_view *v)
{
    r2_json_open(j, NULL, '{');
    r2_json_int(j, "rail", v->rail);
    r2_json_int(j, "spine", v->spine);
    r2_json_text(j, "state", v->state);
    r2_json_open(j, "faults", '[');
    for (int i = 0; i < 3 && v->fault[i][0] != '\0'; i++) {
        r2_json_text(j, NULL, v->fault[i]);
    }
    r2_json_close(j, ']');
    r2_json_uint(j, "rate_Bps", v->rate);
    r2_json_uint(j, "packets", v->count.packets);
    r2_json_uint(j, "bytes", v->count.bytes);
    r2_json_uint(j, "dropped", v->count.dropped);
    r2_json_uint(j, "queued", v->count.queued);
    r2_json_uint(j, "moved", v->count.moved);
    r2_json_close(j, '}');
}

void softfab_spines_json(struct r2_json *j, struct seg *seg)
{
    const struct fab_desc *d = &seg->head.desc;
    struct spine_view v;

    r2_json_int(j, "spines", fab_spines(d));
    r2_json_text(j, "hash", fab_hash_name(d->hash));
    r2_json_open(j, "spine", '[');
    for (int i = 0; fab_spines(d) > 1 && i < d->nics; i++) {
        for (int k = 0; k < fab_spines(d); k++) {
            view(seg, i, k, &v);
            json_spine(j, &v);
        }
    }
    r2_json_close(j, ']');
}
