/*
 * Stalls without a fault: work requests of a path that had no completion for long, and then had
 * one, on an incarnation that did not end. RC repeats what a fabric loses, by default after 4.3 s,
 * and a pair that answers probes meanwhile is no reason to end anything (docs/health.md). What only
 * waits for the other process is none: a message without a receive, or an acknowledgement that the
 * peer has not sent, when every work request has its completion. Service thread; nothing blocks.
 */
#ifndef R2_STALL_H
#define R2_STALL_H

#include <stdint.h>

#include "ib_transport/ib_path.h"

#define R2_STALL_MIN_NS 500000000ull /* shorter ones are congestion's, and are not counted */

struct r2_comm;

/* Of one connection. */
struct r2_stall_conn {
    uint32_t paths; /* bit per path: it stands still */
    struct {
        uint64_t since, cqes; /* watch's clock; completions then */
        uint32_t inc;
    } path[IB_MAX_PATHS];
};

/* The watchdog has found work requests of path @p without completion for @silent ns. */
void r2_stall_see(struct r2_comm *c, int p, uint64_t silent);
/* Which of them are over, and how long the others are. Each tick. */
void r2_stall_tick(struct r2_comm *c);
/* A failure has ended the incarnation: what it costs is counted as the failure's. */
void r2_stall_drop(struct r2_comm *c, int p);

#endif
