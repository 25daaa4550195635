/*
 * Runs a rank's part of a schedule (tools/schedule) over connections: sends what has what it waits
 * for, adds or keeps what comes, in the places that the schedule names.
 * How connections share a NIC is left to that.
 * Thread: the progress thread; nothing blocks.
 */
#ifndef R2_PERF_PLAYER_H
#define R2_PERF_PLAYER_H

#include "tools/r2_perf/trace.h"
#include "tools/r2_perf/type.h"
#include "tools/r2_perf/wire.h"
#include "tools/schedule/spread.h"

struct player;

/* @spread and @wire stay until player_close(). Channel c of the schedule over NIC k is channel
 * c x NICs + k of @wire. */
struct player *player_open(const struct spread *spread, struct wire *wire);
void player_close(struct player *p);

struct player_data {
    enum type_id type;
    enum type_redop redop;
    const char *send; /* may be recv */
    char *recv;       /* place 0 */
};

void player_start(struct player *p, const struct player_data *data);
/* True when something moved. */
bool player_step(struct player *p, struct trace *trace);
/* All is sent, has come, and stands in recv. */
bool player_is_done(const struct player *p);

struct player_count {
    uint64_t sent[SPREAD_NICS], received[SPREAD_NICS]; /* bytes, by NIC */
    uint64_t mismatches;                               /* messages that were not of their size */
    char mismatch[160];                                /* the first */
};

/* Adds what was counted since player_open() or the last call. */
void player_count_take(struct player *p, struct player_count *sum);

#endif
