/*
 * How ranks find each other and agree: a TCP star around rank 0 with two collective calls, and a
 * message that ends the run of all ranks when one of them fails. Nothing of it is on a measured
 * path, except the barrier that starts a timed stretch, which goes through shared memory where all
 * ranks are on one machine.
 */
#ifndef R2_PERF_BOOT_H
#define R2_PERF_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/r2_perf/board.h"

#define BOOT_RANKS_MAX 64

/* Who this process is, and how rank 0 is found. */
struct boot_place {
    int rank, nranks;
    int host, local; /* index of the host (forked runs; -1 under mpirun) and of the rank on it */
    int listen_fd;   /* rank 0 of a forked run: a listening socket; else -1 */
    int board_fd;    /* forked runs; else -1 */
    int port;        /* forked runs: rank 0's port on 127.0.0.1; else 0 */
    char root[256];  /* HOST:PORT of rank 0, or empty */
    char rendezvous[1024]; /* file in which rank 0 leaves its address, or empty */
    uint64_t key;          /* same on all ranks; a connection without it is dropped */
};

struct boot;

/*
 * Connect all ranks. Blocks until all are there or @timeout_ns has passed.
 * 0, or -1 with the reason in @error. Thread: main. Caller closes.
 */
int boot_open(struct boot **out, const struct boot_place *place, uint64_t timeout_ns, char *error,
              size_t error_bytes);
/* Say good-bye and free. After it, other ranks may still be running: their loss is no longer
 * noticed. Blocks until rank 0 has ended, or all others have. PERF_OK, or the code of the failure
 * that was known by then: also of one that came after this rank had ended well.
 */
int boot_close(struct boot *b);

/*
 * Rank r's @each bytes lie at all + r * each on entry; on return all ranks have all. Blocks. One
 * caller at a time, the same order of calls on all ranks. 0, or -1 once the run has failed.
 */
int boot_allgather(struct boot *b, void *all, size_t each);
/* All ranks have arrived. Blocks (spinning with sched_yield when in shared memory). 0, or -1 once
 * the run has failed.
 */
int boot_barrier(struct boot *b);
/*
 * Time zero of the run, of util_now_ns(): behind a barrier, the moment at which the first rank of
 * this machine was there, so that times of its ranks can be compared. Between machines they differ
 * by as much as the barrier lets their first ranks go at different times. Blocks. 0, or -1 once the
 * run has failed.
 */
int boot_clock_agree(struct boot *b, uint64_t *t0_ns);
/* Use this zeroed page, mapped by all ranks, for barriers from now on. Same moment on all ranks.
 * Page outlives @b. */
void boot_barrier_share(struct boot *b, void *page);

/* End the run of all ranks with @code (enum perf_exit) and @text; the first one counts. Any thread;
 * does not block long. */
void boot_fail(struct boot *b, int code, const char *text);
/*
 * After a failure: wait until all ranks know of it, at most 2 s. A rank that closes its connections
 * before shows the others a dead peer, which is another error. True when all know. Main thread.
 */
bool boot_fail_settle(struct boot *b);
/* True once any rank has failed. Any thread; one load. */
bool boot_failed(const struct boot *b);
/* The first error: code and text, valid once boot_failed() is true. Until the process ends. */
const struct board *boot_error(const struct boot *b);

#endif
