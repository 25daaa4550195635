/*
 * The hub of a communicator: learns what its ranks have, has them make another communicator where
 * that is worth it, has all of them switch to it (place_leader.h), and has what is not used any
 * more freed. Pure: the clock is an argument, memory is the caller's; no function blocks. One
 * thread, the control thread of its process. docs/collectives.md, "Switching together".
 */
#ifndef PLACE_JOB_H
#define PLACE_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "place_leader.h"
#include "place_note.h"
#include "place_plan.h"

enum place_job_state {
    PLACE_JOB_GATHERING, /* not all ranks have spoken */
    PLACE_JOB_RESTING,   /* one communicator, in use by all or soon */
    PLACE_JOB_ASKING,    /* all promise to make `to` */
    PLACE_JOB_MAKING,    /* ... and do */
    PLACE_JOB_SWITCHING, /* ... and is agreed on; 0: the user's own */
    PLACE_JOB_DROPPING,  /* ... and is given up; all free it */
    PLACE_JOB_OVER,      /* nothing is made or agreed on any more; what was, stands */
    PLACE_JOB_STATES
};
const char *place_job_state_name(enum place_job_state s); /* "?" when it is none */

struct place_job_conf {
    bool only_advises;  /* plans, and switches nothing */
    bool no_ring;       /* place_plan.h */
    uint64_t settle_ns; /* for so long nothing has changed before there is a plan */
    uint64_t make_ns;   /* a communicator that is not complete by then is given up */
    uint64_t wait_ns;   /* a rank's answer to an attempt */
    uint64_t pause_ns;  /* after something was given up; doubles each time, up to 64 times this, or
                           4096 where an init failed */
    uint64_t repeat_ns; /* what is not answered */
};

#define PLACE_JOB_ATTEMPTS 16 /* to agree on one communicator */

struct place_job;

/* Bytes of a job of @n ranks, 1 to PLACE_RANKS_MAX, aligned as malloc() does. */
size_t place_job_size(int n);
/* In @memory, which the caller frees when it is over. */
struct place_job *place_job_init(void *memory, int n, const struct place_job_conf *conf,
                                 uint64_t now);

/*
 * Takes a note of @rank, PLACE_NOTE_FACTS or _MSG. NULL, or what is wrong with it, and nothing has
 * changed.
 */
const char *place_job_take(struct place_job *j, int rank, const struct place_note *note,
                           uint64_t now);

/* Rank @rank is gone, or seems to be. */
void place_job_lost(struct place_job *j, int rank);

/* The user has ended the communicator at @rank, which holds no shadow: it waits for nothing. */
bool place_job_has_left(const struct place_job *j, int rank);

/* Does what is due by @now; the caller calls it behind each of the above, and every repeat_ns. */
void place_job_tick(struct place_job *j, uint64_t now);

/* All have promised to make a communicator that has no id yet: the caller gives one made by
 * ncclGetUniqueId, as soon as it has it; NULL: that has failed. */
bool place_job_wants_id(const struct place_job *j);
void place_job_id(struct place_job *j, const uint8_t *id, uint64_t now);

/* What is to be sent to @rank by @now; again until it says false. note->key is left alone. */
bool place_job_due(struct place_job *j, int rank, uint64_t now, struct place_note *note);

enum place_job_state place_job_state_get(const struct place_job *j);
/* The communicator that the last decision was for; what is planned, made, or switched to. */
uint32_t place_job_now(const struct place_job *j);
uint32_t place_job_to(const struct place_job *j);
/* The latest plan, for the log; NULL: none so far. */
const struct place_plan *place_job_plan(const struct place_job *j);
/* Why there is nothing any more, or the last communicator was given up; "" if it was not. */
const char *place_job_why(const struct place_job *j);

#endif
