/* Memory of a connection and of a path that sleeps: the plugin's heap, and what it asks of the
 * devices. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <string.h>

#define CONNS 8

struct usage {
    double heap[BENCH_HOSTS];
    struct bench_counts asked[BENCH_HOSTS];
};

/* As duo_connect, with each end's calls told apart. */
static void connect_both(struct duo *d, struct r2_comm **tx, struct r2_comm **rx)
{
    uint8_t handle[R2_NET_HANDLE_SIZE];
    struct r2_listen *listen;
    int bad;

    *tx = *rx = NULL;
    bench_host = 1;
    bad = r2_net_listen(d->end[1].inst, 0, handle, &listen) != R2_OK;
    for (int i = 0; i < 1000000 && !bad && !(*tx && *rx); i++) {
        bench_host = 0;
        bad = !*tx && r2_net_connect(d->end[0].inst, 0, handle, tx) != R2_OK;
        bench_host = 1;
        bad = bad || (!*rx && r2_net_accept(listen, rx) != R2_OK);
        duo_run(d, 500);
    }
    r2_net_close_listen(listen);
    if (!*tx || !*rx) {
        bench_die("no connection");
    }
}

/* Of one more connection between processes that have some already, at each end. */
static void usage_get(int nics, struct usage *u)
{
    struct r2_comm *tx[CONNS + 1], *rx[CONNS + 1];
    int64_t before[BENCH_HOSTS];
    struct r2_config cfg;
    struct duo d;

    bench_config(&cfg, NULL);
    duo_create(&d, nics, 0, &cfg);
    bench_watch_start(&d);
    bench_heap_start(&d);
    for (int i = 0; i <= CONNS; i++) {
        if (i == 1) {
            duo_run(&d, 10 * DUO_MS); /* what a process has once for each NIC is made behind its
                                         first connection */
            bench_counts_clear();
            memcpy(before, bench_heap, sizeof(before));
        }
        connect_both(&d, &tx[i], &rx[i]);
    }
    duo_run(&d, 10 * DUO_MS);
    for (int h = 0; h < BENCH_HOSTS; h++) {
        u->heap[h] = (double)(bench_heap[h] - before[h]) / CONNS;
    }
    memcpy(u->asked, bench_counts, sizeof(u->asked));
    for (int i = 0; i <= CONNS; i++) {
        r2_net_close(tx[i]);
        r2_net_close(rx[i]);
    }
    duo_run(&d, 100 * DUO_MS);
    duo_destroy(&d);
    bench_heap_start(NULL);
}

static void end_print(const char *name, int h, const struct usage *one, const struct usage *eight,
                      const char *end)
{
    const struct bench_counts *a = &one->asked[h], *b = &eight->asked[h];
    double path = CONNS * 7.0;

    printf(
        "\n    \"%s\": {\"heap_1_path\": %.0f, \"heap_8_paths\": %.0f, \"heap_per_sleeping_path\": %.0f,\n"
        "      \"1_path\": {\"qps\": %.1f, \"send_slots\": %.1f, \"recv_slots\": %.1f, \"cq_entries\": %.1f, "
        "\"mrs\": %.1f},\n"
        "      \"per_sleeping_path\": {\"qps\": %.1f, \"send_slots\": %.1f, \"recv_slots\": %.1f, \"cq_entries\": "
        "%.1f, "
        "\"mrs\": %.1f}}%s",
        name, one->heap[h], eight->heap[h], (eight->heap[h] - one->heap[h]) / 7,
        (double)a->qp_made / CONNS, (double)a->qp_send_wrs / CONNS, (double)a->qp_recv_wrs / CONNS,
        (double)a->cq_entries / CONNS, (double)a->mr_made / CONNS,
        (double)(b->qp_made - a->qp_made) / path, (double)(b->qp_send_wrs - a->qp_send_wrs) / path,
        (double)(b->qp_recv_wrs - a->qp_recv_wrs) / path,
        (double)(b->cq_entries - a->cq_entries) / path, (double)(b->mr_made - a->mr_made) / path,
        end);
}

int bench_memory_run(void)
{
    struct usage one, eight;

    usage_get(1, &one);
    usage_get(8, &eight);
    printf("{\"connections\": %d,", CONNS);
    end_print("sender", 0, &one, &eight, ",");
    end_print("receiver", 1, &one, &eight, "\n  }\n");
    return 0;
}
