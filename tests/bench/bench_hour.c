/*
 * What a NIC that is dead costs in probes, by the hour, and what NICs that are well cost: two processes, one connection without traffic, virtual
 * time. Messages of the out-of-band channel, packets on the fabric, queue pairs made.
 */
#include <stdio.h>
#include <string.h>

#include "plugin/r2_pair.h"
#include "tests/bench/bench.h"

#define NICS   2
#define HOUR   (3600 * 1000 * DUO_MS)
#define SETTLE (20 * 1000 * DUO_MS)

struct cost {
    uint64_t messages, bytes, packets, qps, answers;
};

static void read_cost(struct duo *d, struct cost *c)
{
    memset(c, 0, sizeof(*c));
    for (int h = 0; h < 2; h++) {
        c->messages += d->end[h].sent;
        c->bytes += d->end[h].sent_bytes;
        c->qps += bench_counts[h].qp_made;
        for (int n = 0; n < NICS; n++) {
            c->packets += fab_inproc_nic(d->f, h, n)->cnt.tx_packets;
        }
        for (struct r2_pair *p = d->end[h].inst->pairs; p; p = p->next) {
            c->answers += p->answers;
        }
    }
}

static void hour(const char *fault, int paths, struct cost *out)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct cost from;
    struct duo d;

    bench_config(&cfg, "NCCL_R2_BACKUP_SCOPE", "rail", (char *)NULL);
    duo_create(&d, NICS, 12500000000ull, &cfg);
    bench_watch_start(&d);
    bench_flow_open(&f, &d, 0, 32768);
    bench_flow_run(&f, 64);
    if (fault) {
        duo_fault(&d, fault);
        bench_flow_run(&f, 128); /* found, moved, settled */
    }
    duo_run(&d, SETTLE);
    if (__builtin_popcount(f.tx->link.up) != paths) {
        bench_die("%s: %d paths are up, not %d", fault ? fault : "nothing", __builtin_popcount(f.tx->link.up), paths);
    }
    read_cost(&d, &from);
    duo_run(&d, HOUR);
    read_cost(&d, out);
    out->messages -= from.messages;
    out->bytes -= from.bytes;
    out->packets -= from.packets;
    out->qps -= from.qps;
    out->answers -= from.answers;
    bench_flow_close(&f);
    duo_destroy(&d);
}

int bench_hour_run(void)
{
    static const struct {
        const char *name, *fault;
        int paths;
    } row[] = {{"all well", NULL, 2}, {"one cable silent", "h1:n0 blackhole", 1}, {"one port down", "h1:n0 down", 1}, {"one NIC hangs", "h1:n0 hang", 1}};
    const char *sep = "";

    printf("{\"connections\": 1, \"nics\": %d, \"rows\": [", NICS);
    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct cost c;

        hour(row[i].fault, row[i].paths, &c);
        printf("%s\n  {\"what\": \"%s\", \"messages\": %llu, \"bytes\": %llu, \"packets\": %llu, \"queue_pairs\": %llu, \"answers\": %llu}", sep,
               row[i].name, (unsigned long long)c.messages, (unsigned long long)c.bytes, (unsigned long long)c.packets, (unsigned long long)c.qps,
               (unsigned long long)c.answers);
        sep = ",";
    }
    printf("\n]}\n");
    return 0;
}
