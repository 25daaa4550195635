/* r2_stat --prom: transfer times by peer host. Gauges of now: nothing of them is remembered. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/r2_stat/prom.h"

#define PEERS 256          /* hosts */
#define FRESH 60000000000u /* ns: what is older says nothing of now */

/* A host, as the process sees it to which transfers of this size take longest. */
struct peer {
    const char *host;
    const struct r2_stat_transfer *t[R2_BAND_SIZES];
};

static struct peer *peer_at(struct peer *peers, int *n, const char *host)
{
    for (int i = 0; i < *n; i++) {
        if (strcmp(peers[i].host, host) == 0) {
            return &peers[i];
        }
    }
    if (*n == PEERS) {
        return NULL;
    }
    peers[*n].host = host;
    return &peers[(*n)++];
}

static int is_fresh(const struct r2_stat_transfer *t)
{
    return t->at != 0 && t->at + FRESH >= r2_clock_ns(CLOCK_REALTIME);
}

static int peers_take(const struct stat_found *found, struct peer *peers)
{
    int n = 0;

    for (int i = 0; i < found->procs; i++) {
        const struct r2_stat_view *v = &found->proc[i]->v;

        for (uint32_t k = 0; k < v->who.peers; k++) {
            struct peer *p = v->peer[k].host[0] ? peer_at(peers, &n, v->peer[k].host) : NULL;

            for (int s = 0; p && s < R2_BAND_SIZES; s++) {
                const struct r2_stat_transfer *t = &v->peer[k].transfer[s];

                if (is_fresh(t) && (p->t[s] == NULL || t->p50_ns > p->t[s]->p50_ns)) {
                    p->t[s] = t;
                }
            }
        }
    }
    return n;
}

/* "NAME{peer="..",size=".."" */
static void of_peer(FILE *f, const char *name, const char *host, unsigned size)
{
    fputs(name, f);
    prom_label(f, "{", "peer", host);
    prom_label(f, ",", "size", r2_band_size_name(size));
}

static void seconds(FILE *f, const char *level, uint64_t ns)
{
    fprintf(f, ",level=\"%s\"} %" PRIu64 ".%09u\n", level, ns / 1000000000,
            (unsigned)(ns % 1000000000));
}

/* @outside: whether they have left their band; else how long they take. */
static void metric(FILE *f, const struct peer *peers, int n, int outside)
{
    const char *name = outside ? "r2_peer_transfer_outside" : "r2_peer_transfer_seconds";
    int shown = 0;

    for (int i = 0; i < n; i++) {
        for (unsigned s = 0; s < R2_BAND_SIZES; s++) {
            const struct r2_stat_transfer *t = peers[i].t[s];

            if (t == NULL) {
                continue;
            }
            if (shown++ == 0) {
                prom_head(f, name, "gauge",
                          outside ? "1: transfers to the host take longer, or shorter, than usual."
                                  : "Times of transfers to the host of late, of some.");
            }
            of_peer(f, name, peers[i].host, s);
            if (outside) {
                fprintf(f, "} %d\n", t->state == R2_BAND_ABOVE || t->state == R2_BAND_BELOW);
                continue;
            }
            seconds(f, "0.5", t->p50_ns);
            of_peer(f, name, peers[i].host, s);
            seconds(f, "0.99", t->p99_ns);
        }
    }
}

void prom_peers(FILE *f, const struct stat_found *found)
{
    struct peer *peers = calloc(PEERS, sizeof(*peers));
    int n = peers ? peers_take(found, peers) : 0;

    metric(f, peers, n, 0);
    metric(f, peers, n, 1);
    free(peers);
}
