/*
 * What a NIC that is dead costs in probes, by the hour, and what NICs that are well cost: two
 * processes, one connection, virtual time. Messages of the out-of-band channel, packets on the
 * fabric, queue pairs made; and what fleet monitors count against a NIC: time-outs of the
 * transport, receivers that were not ready. Ends with a message when NICs that are well are asked
 * anything, or when a monitor would count anything.
 */
#include <stdio.h>
#include <string.h>

#include "plugin/probe/health/r2_pair.h"
#include "tests/bench/bench.h"

#define NICS           2
#define HOUR           (3600 * 1000 * DUO_MS)
#define SETTLE         (20 * 1000 * DUO_MS)
#define FIRST_TIMEOUTS 2 /* of one question, under way when its answer was not needed any more */
#define BURST          8 /* messages, ... */
#define PACE                                                                                       \
    (200 * DUO_MS) /* ... and the time from one burst to the next, of a row with traffic           \
                    */

struct row {
    const char *name, *fault;
    int paths; /* that are up then */
    int traffic;
};

struct cost {
    uint64_t messages, bytes, packets, qps, answers;
    uint64_t questions; /* work requests that carry no data, no CTS and no acknowledgement: probes,
                           and messages beside them */
    uint64_t timeouts, rnr, carried;
    uint64_t timeouts_first; /* before the hour, while questions follow each other closely */
};

static void read_cost(struct duo *d, struct cost *c)
{
    memset(c, 0, sizeof(*c));
    for (int h = 0; h < 2; h++) {
        c->messages += d->end[h].sent;
        c->bytes += d->end[h].sent_bytes;
        c->qps += bench_counts[h].qp_made;
        c->questions += bench_counts[h].other_wrs;
        for (int n = 0; n < NICS; n++) {
            const struct fab_counters *cnt = &fab_inproc_nic(d->f, h, n)->cnt;

            c->packets += cnt->tx_packets;
            c->timeouts += cnt->timeouts;
            c->rnr += cnt->rnr_naks;
        }
        for (struct r2_pair *p = d->end[h].inst->index.pairs; p; p = p->next) {
            c->answers += p->probe.answers;
        }
    }
}

static void hour_pass(struct bench_flow *f, int traffic)
{
    uint64_t end = duo_now(f->d) + HOUR;

    while (traffic && duo_now(f->d) < end) {
        f->limit = f->r_done + BURST;
        bench_flow_run(f, f->limit);
        duo_run(f->d, PACE);
    }
    if (!traffic) {
        duo_run(f->d, HOUR);
    }
}

static void check(const struct row *r, const struct cost *c)
{
    if (r->fault == NULL && (c->questions || c->answers || c->messages || c->qps)) {
        bench_die(
            "%s: %llu questions were asked, %llu answered, %llu messages sent, %llu queue pairs made",
            r->name, (unsigned long long)c->questions, (unsigned long long)c->answers,
            (unsigned long long)c->messages, (unsigned long long)c->qps);
    }
    if (r->traffic && c->carried < HOUR / PACE) {
        bench_die("%s: only %llu messages were carried", r->name, (unsigned long long)c->carried);
    }
    if (c->timeouts || c->timeouts_first > FIRST_TIMEOUTS || c->rnr) {
        bench_die(
            "%s: a monitor counts %llu time-outs, %llu before the hour, %llu receivers that were not ready",
            r->name, (unsigned long long)c->timeouts, (unsigned long long)c->timeouts_first,
            (unsigned long long)c->rnr);
    }
}

static void hour(const struct row *r, struct cost *out)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct cost from, moved;
    struct duo d;

    bench_config(&cfg, "NCCL_R2_BACKUP_SCOPE", "rail", "NCCL_R2_HANG_AFTER", "0", (char *)NULL);
    duo_create(&d, NICS, 12500000000ull, &cfg);
    bench_watch_start(&d);
    bench_flow_open(&f, &d, 0, 32768);
    bench_flow_run(&f, 64);
    if (r->fault) {
        duo_fault(&d, r->fault);
        bench_flow_run(&f, 128); /* found, moved, settled */
    }
    read_cost(&d, &moved);
    duo_run(&d, SETTLE);
    if (__builtin_popcount(f.tx->conn.up) != r->paths) {
        bench_die("%s: %d paths are up, not %d", r->name, __builtin_popcount(f.tx->conn.up),
                  r->paths);
    }
    read_cost(&d, &from);
    from.carried = f.r_done;
    hour_pass(&f, r->traffic);
    read_cost(&d, out);
    out->carried = f.r_done - from.carried;
    out->messages -= from.messages;
    out->bytes -= from.bytes;
    out->packets -= from.packets;
    out->qps -= from.qps;
    out->answers -= from.answers;
    out->questions -= from.questions;
    out->timeouts -= from.timeouts;
    out->rnr -= from.rnr;
    out->timeouts_first = from.timeouts - moved.timeouts;
    bench_flow_close(&f);
    duo_destroy(&d);
}

int bench_hour_run(void)
{
    static const struct row row[] = {{"all well", NULL, 2, 0},
                                     {"all well, with traffic", NULL, 2, 1},
                                     {"one cable silent", "h1:n0 blackhole", 1, 0},
                                     {"one port down", "h1:n0 down", 1, 0},
                                     {"one NIC hangs", "h1:n0 hang", 1, 0}};
    const char *sep = "";

    printf("{\"connections\": 1, \"nics\": %d, \"rows\": [", NICS);
    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct cost c;

        hour(&row[i], &c);
        printf(
            "%s\n  {\"what\": \"%s\", \"messages\": %llu, \"bytes\": %llu, \"packets\": %llu, \"queue_pairs\": %llu, \"questions\": %llu, "
            "\"answers\": %llu, \"timeouts\": %llu, \"timeouts_first\": %llu, \"rnr_naks\": %llu, \"carried\": %llu}",
            sep, row[i].name, (unsigned long long)c.messages, (unsigned long long)c.bytes,
            (unsigned long long)c.packets, (unsigned long long)c.qps,
            (unsigned long long)c.questions, (unsigned long long)c.answers,
            (unsigned long long)c.timeouts, (unsigned long long)c.timeouts_first,
            (unsigned long long)c.rnr, (unsigned long long)c.carried);
        check(&row[i], &c);
        sep = ",";
    }
    printf("\n]}\n");
    return 0;
}
