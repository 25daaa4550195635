/*
 * One rank's part in switching a communicator: which NCCL communicator its next operation uses. It
 * answers attempts of the leader (docs/collectives.md, "Switching together"). An operation for
 * which a decision is open waits; nothing else does. Pure: no clock, no allocation; no function
 * blocks. The caller holds one lock around all calls for a member: its application thread begins
 * operations, its control thread takes messages and never waits for that one.
 */
#ifndef PLACE_MEMBER_H
#define PLACE_MEMBER_H

#include <stdbool.h>

#include "place_msg.h"

enum place_member_state {
    PLACE_FREE,      /* operations use `now` */
    PLACE_PREPARED,  /* ... those below `at`; from there on they wait */
    PLACE_COMMITTED, /* ... those below `at`; from there on they use `to` */
    PLACE_LOST,      /* ... those below `at`; from there on they fail: the leader is lost and only
                        it knows what the others do */
    PLACE_ENDED,     /* the user ends the communicator, or its count is lost: all fail */
    PLACE_MEMBER_STATES
};
const char *place_member_state_name(enum place_member_state s); /* "?" when it is none */

/* All zero: a new one, on the user's own communicator. */
struct place_member {
    uint8_t state;          /* enum place_member_state */
    uint8_t answer;         /* enum place_answer, to `attempt` */
    bool never;             /* no attempt is answered with yes any more */
    bool kept;              /* ... and a graph may still use communicator `left` */
    uint32_t attempt;       /* the latest that was answered or given up; 0: none */
    uint32_t now, to, left; /* communicators */
    uint64_t at;            /* the operation of the last yes */
    uint64_t begun;         /* operations */
    uint64_t since;         /* the first operation on `now` */
};

/* The only writer of the state; false: that is no legal move, and nothing changes. */
bool place_member_move(struct place_member *m, enum place_member_state to);

enum place_use {
    PLACE_USE,  /* the operation has begun, on the communicator in `use` */
    PLACE_WAIT, /* not yet: a message or place_member_lost() or _end() changes that */
    PLACE_FAIL  /* it cannot begin */
};
/* The next operation of the communicator, of a kind that may switch, which is decided by what NCCL
 * wants to be equal on all ranks: function, count, type, operator, order. Each of them goes through
 * here exactly once, others never. */
enum place_use place_member_begin(struct place_member *m, uint32_t *use);

/*
 * The last @n operations have not happened: NCCL has refused them, or the group that they were in.
 * Before any other one begins. False: one of them was for the communicator before `now`, and the
 * member is PLACE_ENDED: which one the next operation uses cannot be told any more.
 */
bool place_member_take_back(struct place_member *m, unsigned n);

/*
 * Takes a message of the leader's. @ready: communicator @msg->to of a PLACE_PREPARE is complete at
 * this rank (ncclCommGetAsyncError says ncclSuccess, not ncclInProgress). True: @reply is to be
 * sent; what is repeated is answered again. False: it is stale, or nothing that a leader sends to
 * a member in this state.
 */
bool place_member_take(struct place_member *m, const struct place_msg *msg, bool ready,
                       struct place_msg *reply);

/*
 * No more switches: from now on operations may happen without a call (a captured graph is replayed)
 * or are bound to a communicator. True: one is open, since a yes that was given stands; what is
 * bound has to hold on m->to, too, or to wait until its operation has begun or it is given up.
 */
bool place_member_never(struct place_member *m);

/* The leader's process is gone, or nothing has come of it for so long that the caller gives up. */
void place_member_lost(struct place_member *m);

/* The user aborts the communicator: who waits in the caller for a decision is to ask again. */
void place_member_end(struct place_member *m);

/* A communicator that no operation uses that begins from now on, and no graph that was captured
 * before. The caller counts those that have begun, until NCCL's call, or the end of its group, has
 * returned. */
bool place_member_is_idle(const struct place_member *m, uint32_t comm);

#endif
