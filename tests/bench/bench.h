/*
 * What the plugin costs and how long a failure lasts, counted on the in-process fabric: exact, the
 * same in every run.
 *
 * bench_watch counts what an instance asks of its devices; bench_flow is one connection under
 * traffic as NCCL's proxy makes it; each section prints one JSON object. Single-threaded, times are
 * virtual nanoseconds. Whatever goes wrong ends the program with a message.
 */
#ifndef BENCH_H
#define BENCH_H

#include "tests/support/duo.h"

#define BENCH_HOSTS 2

__attribute__((noreturn, format(printf, 1, 2))) void bench_die(const char *fmt, ...);
/* Options of the plugin: defaults, then NAME, VALUE pairs up to NULL. */
void bench_config(struct r2_config *cfg, ...) __attribute__((sentinel));

/* ---- bench_watch.c ---- */

struct bench_counts {
    uint64_t data_wrs, cts_wrs, ack_wrs, other_wrs; /* send work requests by what they carry */
    uint64_t cts_entries;
    uint64_t signaled; /* of all of them */
    uint64_t recv_wrs; /* work requests, whatever the number of calls */
    uint64_t send_calls, recv_calls, polls, cqes;
    uint64_t cq_made, cq_entries, qp_made, qp_send_wrs, qp_recv_wrs, mr_made,
        mr_bytes;                  /* asked for at set-up */
    uint64_t data_at[IB_MAX_NICS]; /* when a NIC was last given data to send */
};

extern struct bench_counts bench_counts[BENCH_HOSTS];

/* From now on the device calls of both instances are counted. One duo at a time, until it is
 * destroyed. */
void bench_watch_start(struct duo *d);
void bench_counts_clear(void);

/* ---- bench_alloc.c: the plugin's heap, which is linked in with its allocation calls renamed ----
 */

/* Bytes that the plugin holds on behalf of host 0 and 1. */
extern int64_t bench_heap[BENCH_HOSTS];
/* Host whose calls are being made by the bench; duo.running goes before. */
extern int bench_host;
void bench_heap_start(struct duo *d);

/* ---- bench_flow.c ---- */

#define BENCH_WINDOW 8

struct bench_flow {
    struct duo *d;
    struct r2_comm *tx, *rx;
    struct ib_mr *tx_mr, *rx_mr;
    uint8_t *out, *in;
    size_t size, stride;
    struct r2_req *s_req[BENCH_WINDOW], *r_req[BENCH_WINDOW];
    uint64_t s_posted, s_done, r_posted, r_done;
    uint64_t limit;   /* messages to make in all */
    uint64_t step_ns; /* from one turn of both ends to the next */
    uint64_t r_done_at, longest_pause;
    uint64_t s_tests, r_tests;
};

/* A connection over device @dev from host 0 to host 1, for messages of @size bytes. */
void bench_flow_open(struct bench_flow *f, struct duo *d, int dev, size_t size);
void bench_flow_close(struct bench_flow *f);
/* One turn of both ends: post if the window and the limit allow it, test the oldest, let step_ns
 * pass. */
void bench_flow_turn(struct bench_flow *f);
/* Turns until @messages are done at both ends in all. */
void bench_flow_run(struct bench_flow *f, uint64_t messages);
/* Turns for @ns. */
void bench_flow_pass(struct bench_flow *f, uint64_t ns);
/* The calls into the plugin one by one: separate functions, so that a profiler can tell them apart.
 */
void bench_call_send(struct bench_flow *f);
void bench_call_recv(struct bench_flow *f);

/* ---- sections ---- */

int bench_cost_run(void);
int bench_stall_run(unsigned failures);
int bench_hour_run(void);
int bench_memory_run(void);
/* How gossip goes through jobs of up to 4096 processes; @seeds 1 to 1000. */
int bench_gossip_run(unsigned seeds);
/* A NIC dies under @conns connections, of which @active have work. */
int bench_many_run(unsigned conns, unsigned active);
#define BENCH_RINGS_SEEDS 64
/* Rings of 16 hosts over 8 uplinks, of which one is lost; @seeds 1 to BENCH_RINGS_SEEDS. */
int bench_rings_run(unsigned seeds);
/* Profiled from outside: @what is traffic, idle-send, idle-recv or no-receive; @n messages, tests
 * or sends. */
int bench_calls_run(const char *what, unsigned n, int nics);
/* Latency of small messages before and after a failover. */
int bench_small_run(void);
/* The same of messages that are cut, and that are not. */
int bench_cut_run(void);
/* The weights of 256 connections. */
int bench_fill_run(void);

/* ---- bench_filling.c ---- */

struct bench_filling {
    unsigned worlds;
    /* What the flow that gets least has by balance_fill() and by progressive filling alone: the
     * part that is missing to the proved bound, in the mean and at most. */
    double lp_mean, lp_worst, filling_mean, filling_worst;
};

/* The same random worlds for both, by seed. */
void bench_filling_run(struct bench_filling *out);

#endif
