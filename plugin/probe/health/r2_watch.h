/* The watchdog: finds paths that fail without an error completion (docs/health.md).
 * Service thread; nothing blocks but for the visit of a gate. */
#ifndef R2_WATCH_H
#define R2_WATCH_H

#include <stdbool.h>

#include "core/r2_inst.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_stall.h"

/* What is known of the silence of one connection's paths. Times on the watch's clock. */
struct r2_watch_conn {
    struct probe_watch path[IB_MAX_PATHS];
    uint64_t lost[IB_MAX_PATHS]; /* what the clock had lost when that path moved last */
    struct {
        struct probe_watch watch;
        uint64_t confirms; /* a signaled write behind those that stand still: 1 + watch.moved; 0 */
    } ctl[IB_MAX_PATHS];   /* R: its control writes alone */
    struct {
        uint64_t through; /* what had got through as the path's incarnation ended for its tail */
        uint8_t ends;     /* ... such ends in a row; 0: none */
    } tail[IB_MAX_PATHS];
    uint64_t witness[IB_MAX_PATHS]; /* path->count.wrs behind the write that asks it;
                                       r2_witness.c. 0: it is not asked */
    uint8_t way[IB_MAX_PATHS];      /* R: that it has chosen last; r2_ways.c. 0: none */
    uint8_t quiet[IB_MAX_PATHS];    /* ticks without work */
    uint8_t rests;                  /* ... and without anything else to check, on any path */
    struct {
        uint64_t seq,
            since; /* R: what S has in DELIVERY_QUERY and we lack, since when; since 0: nothing */
    } delivery_claim[IB_MAX_PATHS];
    struct {
        uint64_t moved, since;   /* completions and acknowledgements, so many since then */
        uint64_t alive, poll_at; /* when a path answered last, as far as is known; the next check */
    } still;                     /* work is under way, and nothing moves on any path */
    struct {
        uint64_t misses, seen, since, wait; /* S: starts without a CTS; CTS taken; waiting since,
                                               for so long */
    } cts_request;
    struct r2_stall_conn stall;
    struct r2_load_conn load;
    struct {
        uint64_t moved, cqes; /* S: as of the last look; r2_slowness.c */
    } slow;
};

/* How long path @p has not moved, as far as is known, in real time: what the watch's clock stood
 * still for is in it. ns; 0: it has nothing under way. Service thread. */
uint64_t r2_watch_silence(const struct r2_comm *c, int p);

/*
 * Moves the watch's clock (ns) to @now, by T_suspect / 2 at most: it stands while this process
 * does. First in every step of the service thread: times of what the step finds count from here.
 */
void r2_watch_clock(struct r2_inst *inst, uint64_t now);

/* Checks the connections that are awake every NCCL_R2_T_SUSPECT / 4, polls probes that are out
 * every millisecond; where there is nothing of either, it runs every 100 ms, and when a connection
 * wakes. Returns the next time (ns). No gate held; visits gates. */
uint64_t r2_watch_step(struct r2_inst *inst, uint64_t now);

/* Whether @c stands and is not being closed. Any thread. */
bool r2_watch_is_watched(const struct r2_comm *c);

struct r2_pair;
/* Probes @pair, with a verdict, whether any path over it is silent or not. */
void r2_watch_probe(struct r2_pair *pair);

/* DELIVERY_QUERY: our NIC has acknowledged parts that S has no acknowledgement of ours for. Gate
 * held. */
void r2_watch_on_delivery_query(struct r2_comm *c, const struct fo_delivery_query *m);

/* CTS_REQUEST: S waits for a CTS that we may have written long ago. Gate held. */
void r2_watch_on_cts_request(struct r2_comm *c, const struct fo_cts_request *m);

/* Paths that are up beside @paths, to one of which the connection could go: one of last resort
 * counts once its NIC pair has answered, since TCP may be kept from it. Service thread. */
uint32_t r2_watch_others(const struct r2_comm *c, uint32_t paths);

#endif
