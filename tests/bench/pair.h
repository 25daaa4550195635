/*
 * Two processes on two hosts of the software fabric, through the plugin's table: what takes real
 * time. Side 0 connects and sends, side 1 listens, receives, breaks NICs and prints.
 */
#ifndef PAIR_H
#define PAIR_H

#include <stdbool.h>

#include "plugin/base/r2_time.h"
#include "tests/abi/drv.h"

#define PAIR_NS_MS R2_NS_PER_MS

uint64_t pair_now(void); /* CLOCK_MONOTONIC ns: the same clock in both processes */
/* A stretch of time in which nothing can be waited for: what the plugin does behind NCCL's back has
 * no event here. */
void pair_rest(uint64_t ns);
double pair_cpu_ms(void); /* of this process so far */

/* @n connections from side 0 to side 1, over devices @dev, @dev + 1, ...; the time from listen
 * until the last one stands at both ends. Each side gets its comms. */
uint64_t pair_connect(int n, int dev, void **comm);
void pair_close(int n, void **comm);

/* Both sides call these; side 1 prints one JSON object. */
void pair_setup_run(void);
void pair_stall_run(int runs);
void pair_load_run(int connections);
void pair_idle_run(int connections);
void pair_stream_run(int messages); /* in all, for each row */
void pair_crowd_run(int connections);
void pair_calls_run(const char *what, int n);
void pair_last_run(int number, bool silent); /* @number of the run: which host loses its NICs */

/* One connection at this end: side 0 sends, side 1 receives, messages of @size in order, up to
 * @window at a time, each with its number in front. */
#define PAIR_WINDOW_MAX 32
struct pair_lane {
    void *comm, *mr, *req[PAIR_WINDOW_MAX];
    char *buf; /* @window messages */
    int size, window;
    uint64_t posted, done;
};
/* Begins a message, unless @closing, and tests the oldest. Whether that is done. */
bool pair_lane_turn(struct pair_lane *s, bool closing);

/* One call each: where a profiler starts and stops counting. */
void *pair_call_isend(struct pair_lane *s);
void *pair_call_irecv(struct pair_lane *s);
int pair_call_test(void *req);

/* Maps the fabric, to break it. Before the plugin is loaded: closing a descriptor of the fabric's
 * files, as this does within, would take the record locks away by which the plugin's devices are
 * known to live. */
void pair_fabric_open(void);
/* Applies the fault @text to it. */
void pair_fault_do(const char *text);
/* Bytes of payload that came to NIC @nic of host @host. */
uint64_t pair_nic_received(int host, int nic);

struct pair_spread {
    double p25, median, p99, most;
};
struct pair_spread pair_spread_get(uint64_t *v, int n);

#endif
