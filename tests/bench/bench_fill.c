/*
 * How long the weights of a process take: 256 connections, each over 8 NICs, with what they share
 * inside the host and each remote end's own ports. Connections to one host have the same paths:
 * they are one flow with a share; and for comparison each is a flow of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "balance/balance_fill.h"
#include "balance/balance_plan.h"
#include "tests/bench/bench.h"

#define CONNS 256
#define HOSTS 32
#define NICS  8
#define RUNS  200
#define REMOTE                                                                                     \
    (NICS * 2 + 3) /* resources before the remote ports: local ports, paths, a switch uplink per   \
                      half, the sockets */

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
        flow[f] = (struct balance_flow){
            .share = (uint16_t)(CONNS / flows), .n = NICS, .first = (uint32_t)f * NICS};
        for (int n = 0; n < NICS; n++) {
            struct balance_path *p = &path[f * NICS + n];

            p->n = 0;
            p->res[p->n++] = (uint16_t)n;
            p->res[p->n++] = (uint16_t)(NICS + n);
            p->res[p->n++] = (uint16_t)(2 * NICS + n / 4);
            if (n >= 4) {
                p->res[p->n++] = 2 * NICS + 2;
            }
            p->res[p->n++] = (uint16_t)(REMOTE + f % HOSTS * NICS + n);
        }
    }
    *net = (struct balance_net){
        mbps, path, flow, REMOTE + HOSTS * NICS, (uint32_t)(flows * NICS), (uint32_t)flows};
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
    if (balance_fill_size(&net) == 0 || work == NULL) {
        bench_die("the net of the weights is refused");
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int i = 0; i < RUNS; i++) {
        balance_fill(&net, work, NULL, weight, &result);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    free(work);
    *of_bound = result.least / result.bound;
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e3 / RUNS;
}

static struct balance_conn conn[CONNS];
static uint64_t demand[CONNS];

/* From the facts of all connections to their weights, @hosts different ones; three other processes
 * send, too. CPU time in us. */
static double plan_run(int hosts)
{
    static uint32_t out[CONNS][BALANCE_PLAN_PATHS];
    struct balance_other other[3 * NICS];
    struct balance_facts f = {.nics = NICS,
                              .links = REMOTE,
                              .link = mbps,
                              .conns = CONNS,
                              .conn = conn,
                              .demand = demand,
                              .others = 3 * NICS,
                              .other = other};
    struct timespec a, b;
    void *work;

    memset(conn, 0, sizeof(conn));
    for (int c = 0; c < CONNS; c++) {
        conn[c].host = (uint32_t)(c % hosts);
        demand[c] = 1000;
        for (int n = 1; n < NICS; n++) { /* the first NIC has failed */
            struct balance_pair *p = &conn[c].pair[conn[c].n++];

            p->nic = p->there = (uint8_t)n;
            p->ways = 2;
            p->way[0] = (uint16_t)(NICS + n);
            p->way[1] = (uint16_t)(2 * NICS + n / 4);
            p->port_there = mbps[REMOTE + c % hosts * NICS + n];
        }
    }
    for (int i = 0; i < 3 * NICS; i++) {
        other[i] = (struct balance_other){
            .nics = i % NICS ? 1u << i % NICS : 0xfe, .conns = 32, .demand = 32000};
    }
    memcpy(f.port, mbps, NICS * sizeof(mbps[0]));
    work = malloc(balance_plan_size(&f));
    if (work == NULL) {
        bench_die("the facts of the weights are refused");
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int i = 0; i < RUNS; i++) {
        if (balance_plan(&f, work, out) != 0) {
            bench_die("no weights");
        }
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    free(work);
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e3 / RUNS;
}

int bench_fill_run(void)
{
    double by_host_bound, single_bound, by_host = one_run(HOSTS, &by_host_bound),
                                        single = one_run(CONNS, &single_bound);
    double plan = plan_run(HOSTS), kinds = plan_run(CONNS);
    struct bench_filling both;

    bench_filling_run(&both);

    printf(
        "{\"connections\": %d, \"nics\": %d, \"hosts\": %d, \"us\": %.1f, \"of_bound\": %.4f, \"single_us\": %.1f, \"single_of_bound\": %.4f, "
        "\"plan_us\": %.1f, \"plan_single_us\": %.1f, \"worlds\": %u, \"lp_loss\": %.4f, \"lp_loss_worst\": %.4f, "
        "\"filling_loss\": %.4f, \"filling_loss_worst\": %.4f}\n",
        CONNS, NICS, HOSTS, by_host, by_host_bound, single, single_bound, plan, kinds, both.worlds,
        both.lp_mean, both.lp_worst, both.filling_mean, both.filling_worst);
    return 0;
}
