/*
 * A communicator of the user's at one rank: which NCCL communicator its next operation uses
 * (place_member.h), what shadows it has (place_held.h), and what its hub is to know.
 *
 * Threads: the application's begin operations and end it; the control thread takes and sends notes;
 * a thread for each shadow that is made, broken off or freed. One lock around all of it, never held
 * while anybody waits or NCCL is called. What says "may block" does so for a decision of the hub's.
 */
#ifndef COLL_COMM_H
#define COLL_COMM_H

#include <pthread.h>
#include <stdbool.h>

#include "place/place_held.h"

struct coll_shadow {
    void *comm; /* ncclComm_t; set in PLACE_HELD_READY */
    /* ... as NCCL's init writes it, by a plain store, before it meets the other ranks
     * (ncclCommInitRankDev of src/init.cc, 2.28 to 2.30): what an init can be broken off by. Read
     * by coll_comm_break(), acquire, which waits for NCCL's stores before that. */
    _Atomic(void *) early;
    bool made;     /* NCCL's init has returned, and whatever the thread that makes it has added */
    bool unwanted; /* it is to be broken off: tried once */
    bool breaks;   /* a thread does so, or looks whether it can */
    bool broken;   /* that thread has the communicator now; const once it is made, like early */
    int rank;
    uint8_t id[PLACE_ID_BYTES];
};

struct coll_comm {
    void *user; /* ncclComm_t of the user's; const, like all up to the lock */
    struct place_meet meet;
    int rank, ranks;
    bool only_advises;  /* this process makes no shadow, whatever its hub asks for */
    void (*kick)(void); /* there is something for the control thread; any thread */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* of all that follows, with lock */
    struct place_member member;
    struct place_held held;
    struct coll_shadow shadow[PLACE_HELD]; /* by slot of held */
    struct place_facts facts;
    uint32_t heard; /* seq of the facts that the hub has confirmed */
    bool hub_lost, aborted;
};

/* @c is the caller's, zero; NICs are not known. */
void coll_comm_init(struct coll_comm *c, void *user, const struct place_meet *meet, int rank,
                    int ranks, uint64_t host, void (*kick)(void));
/* Nobody uses it any more; every slot of it is free, or its thread hangs and @c is leaked. */
void coll_comm_close(struct coll_comm *c);

/* --- the application's threads --- */

/*
 * Begins an operation of a kind that may switch; may block. *@comm: the NCCL communicator for it;
 * *@slot: for coll_comm_return(). False: it cannot begin, for the hub is lost at a time when only
 * it knew what the other ranks use, or the communicator has been ended.
 */
bool coll_comm_begin(struct coll_comm *c, void **comm, int *slot);
/* NCCL's call for it has returned. */
void coll_comm_return(struct coll_comm *c, int slot);
/* The last @n operations have not happened (place_member_take_back()). False: that cannot be made
 * good, and no operation begins any more. */
bool coll_comm_take_back(struct coll_comm *c, unsigned n);

/* An operation is captured into a graph: no more switches from now on. */
void coll_comm_never(struct coll_comm *c);

/* Shadows that have been used, up to PLACE_HELD, which are not freed until coll_comm_return() has
 * been called for each slot. How many. */
int coll_comm_hold(struct coll_comm *c, void *comm[PLACE_HELD], int slot[PLACE_HELD]);

/* The user ends it: no operation begins any more, shadows are freed; @abort: whatever runs on them.
 * Then waits, up to @limit_ns, until they are, and nothing can be asked of this rank any more.
 * False: that took longer. */
bool coll_comm_end(struct coll_comm *c, bool abort, uint64_t limit_ns);

/* --- the control thread --- */

/* A note of the hub's. True: @reply is to be sent. */
bool coll_comm_take(struct coll_comm *c, const struct place_note *note, struct place_note *reply);
/* True: @note are facts to be sent, now and again until they are confirmed. */
bool coll_comm_facts(struct coll_comm *c, struct place_note *note);
/* NICs of this process. */
void coll_comm_nics(struct coll_comm *c, unsigned nics, unsigned usable, unsigned used,
                    unsigned mbps);
/* The hub's process is gone. */
void coll_comm_lost(struct coll_comm *c);

/* An operation may be waiting for a decision. Any thread. */
bool coll_comm_is_prepared(struct coll_comm *c);
/* The user has aborted it. Any thread. */
bool coll_comm_is_aborted(struct coll_comm *c);

enum coll_work { COLL_WORK_NONE, COLL_WORK_MAKE, COLL_WORK_BREAK, COLL_WORK_FREE };
/* What a thread is to do with *@slot, once each: make a communicator by shadow[] of it; break off
 * that, since nobody wants it any more; free shadow[].comm, or abort it; abort shadow[].early of
 * one that has failed. */
enum coll_work coll_comm_work(struct coll_comm *c, int *slot);
/* It has made or freed it. @comm: what was made; NULL: that has failed, or it is freed. Any
 * thread. */
void coll_comm_done(struct coll_comm *c, int slot, void *comm);

/* --- between the thread that makes a shadow and the one that breaks it off --- */

/* The one that makes it: NCCL has returned. Blocks while the other one is at work. False: the
 * communicator is gone. */
bool coll_comm_made(struct coll_comm *c, int slot);
/* The one that breaks it off: the communicator, whose abort frees the other one from NCCL, and
 * which is not to be freed before coll_comm_break_wait() has returned; NULL: it is made, or has
 * failed. Blocks until NCCL's init has come so far. */
void *coll_comm_break(struct coll_comm *c, int slot);
/* Blocks until NCCL's init has returned. */
void coll_comm_break_wait(struct coll_comm *c, int slot);
/* It is through, in either case; @c may be gone behind this. Any thread. */
void coll_comm_broken(struct coll_comm *c, int slot);

#endif
