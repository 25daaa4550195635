/*
 * How long the weights of a process take: 256 connections, each over 8 NICs, with what they share inside the host and each remote end's own ports. Connections to
 * one host have the same paths: they are one flow with a share; and for comparison each is a flow of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "balance/balance_fill.h"
#include "tests/bench/bench.h"

#define CONNS  256
#define HOSTS  32
#define NICS   8
#define RUNS   200
#define REMOTE (NICS * 2 + 3) /* resources before the remote ports: local ports, paths, a switch uplink per half, the sockets */

static struct balance_path path[CONNS * NICS];
static struct balance_flow flow[CONNS];
static uint32_t mbps[REMOTE + CONNS * NICS], weight[CONNS * NICS];

/* Capacities a little apart, as measured ones are; equal ones would be found at once. */
static void net_make(struct balance_net *net, int flows)
{
    uint32_t seed = 1;

    for (uint32_t r = 0; r < sizeof(mbps) / sizeof(mbps[0]); r++) {
        seed = seed * 1664525 + 1013904223;
        mbps[r] = 100000 + (seed >> 8) % 300000;
    }
    for (int f = 0; f < flows; f++) {
        flow[f] = (struct balance_flow){.share = (uint16_t)(CONNS / flows), .n = NICS, .first = (uint32_t)f * NICS};
        for (int n = 0; n < NICS; n++) {
            struct balance_path *p = &path[f * NICS + n];

            p->n = 0;
            p->res[p->n++] = (uint16_t)n;
            p->res[p->n++] = (uint16_t)(NICS + n);
            p->res[p->n++] = (uint16_t)(2 * NICS + n / 4);
            if (n >= 4)
                p->res[p->n++] = 2 * NICS + 2;
            p->res[p->n++] = (uint16_t)(REMOTE + f % HOSTS * NICS + n);
        }
    }
    *net = (struct balance_net){mbps, path, flow, REMOTE + HOSTS * NICS, (uint32_t)(flows * NICS), (uint32_t)flows};
}

/* CPU time of one filling in us: others use this machine, too. */
static double one_run(int flows, double *of_bound)
{
    struct balance_result result;
    struct timespec a, b;
    struct balance_net net;
    void *work;

    net_make(&net, flows);
    work = malloc(balance_fill_size(&net));
    if (balance_fill_size(&net) == 0 || work == NULL)
        bench_die("the net of the weights is refused");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int i = 0; i < RUNS; i++)
        balance_fill(&net, work, NULL, weight, &result);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    free(work);
    *of_bound = result.least / result.bound;
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e3 / RUNS;
}

int bench_fill_run(void)
{
    double by_host_bound, single_bound, by_host = one_run(HOSTS, &by_host_bound), single = one_run(CONNS, &single_bound);

    printf("{\"connections\": %d, \"nics\": %d, \"hosts\": %d, \"us\": %.1f, \"of_bound\": %.4f, \"single_us\": %.1f, \"single_of_bound\": %.4f}\n", CONNS,
           NICS, HOSTS, by_host, by_host_bound, single, single_bound);
    return 0;
}
