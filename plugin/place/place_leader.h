/*
 * The leader of a communicator: has all ranks use another NCCL communicator from one operation on,
 * or none of them (docs/collectives.md, "Switching together"). It is one rank's, rank 0's, beside
 * that rank's own part (place_member.h). Pure: the clock is an argument; no allocation; no function
 * blocks. One thread, the control thread of its process.
 *
 * An attempt is decided once: commit when every rank has said yes, else abort. The decision is
 * repeated until every rank has confirmed it, and only then another attempt begins.
 */
#ifndef PLACE_LEADER_H
#define PLACE_LEADER_H

#include <stdbool.h>

#include "place_msg.h"

/* Operations between the furthest rank, as far as is known, and the switch: at first, and at most.
 * Doubled with each attempt that came too late, halved with each commit. */
#define PLACE_MARGIN     4u
#define PLACE_MARGIN_MAX (1u << 20)

enum place_leader_state {
    PLACE_IDLE,
    PLACE_PREPARING,  /* answers come in */
    PLACE_COMMITTING, /* decided */
    PLACE_ABORTING,   /* decided */
    PLACE_LEADER_STATES
};
const char *place_leader_state_name(enum place_leader_state s); /* "?" when it is none */

struct place_rank {
    uint8_t answer; /* enum place_answer, to the attempt */
    bool done;      /* has confirmed its decision */
    bool gone;      /* nothing waits for it */
    uint64_t begun; /* operations, when it spoke last */
};

struct place_leader {
    uint8_t state; /* enum place_leader_state */
    uint8_t why;   /* enum place_answer: of the last attempt that was given up; PLACE_NONE: time */
    uint8_t told;  /* enum place_kind: the last decision */
    bool never;    /* no other attempt is made */
    int n;         /* ranks */
    struct place_rank *rank;
    uint32_t attempt, now, to; /* communicators: in use by all that is decided; of the attempt */
    uint64_t at;
    uint32_t margin;
    uint64_t began, wait_ns; /* ns: of the attempt; how long answers are waited for */
};

/* Once in a communicator's life, since members know attempts by number. @rank: @n places of the
 * caller's, 1 at least, who frees them after the leader. @wait_ns: 1 at least. */
void place_leader_init(struct place_leader *l, struct place_rank *rank, int n, uint64_t wait_ns);

/* The only writer of the state; false: that is no legal move, and nothing changes. */
bool place_leader_move(struct place_leader *l, enum place_leader_state to);

/*
 * Begins an attempt to have all use @to, which every rank is said to have; one that has not answers
 * so. @begun: operations that this process's own rank has begun. False: one is under way, @to is in
 * use, or place_leader.never. While the state is PLACE_IDLE, nothing that was sent makes a rank
 * come to use another communicator than `now`; one that has not reached the operation of the last
 * commit still uses the one before: what may be freed is what each rank's place_member_is_idle()
 * says.
 */
bool place_leader_begin(struct place_leader *l, uint32_t to, uint64_t begun, uint64_t now);

/* Takes a message of @rank; what is stale, wrong or of no such rank changes nothing. */
void place_leader_take(struct place_leader *l, int rank, const struct place_msg *msg);

/* Gives up an attempt whose answers have not come in time. */
void place_leader_tick(struct place_leader *l, uint64_t now);

/* What is to be sent to @rank, now and again until it changes; false: nothing. */
bool place_leader_due(const struct place_leader *l, int rank, struct place_msg *msg);

/* Rank @rank is gone, or seems to be: its confirmation is not waited for, and there are no other
 * attempts. It is sent the last decision all the same: it may wait for that. */
void place_leader_lost(struct place_leader *l, int rank);

#endif
