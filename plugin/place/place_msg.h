/*
 * What leader and members of a communicator send each other to switch together from one NCCL
 * communicator to another (docs/collectives.md, "Switching together"). In the process's own form;
 * how it travels is the sender's business, which may lose, repeat and reorder it.
 */
#ifndef PLACE_MSG_H
#define PLACE_MSG_H

#include <stdint.h>

enum place_kind {
    PLACE_PREPARE, /* leader: use communicator `to` from operation `at` on, if all can? */
    PLACE_ANSWER,  /* member: `answer`; it has begun `at` operations */
    PLACE_COMMIT,  /* leader: all said yes */
    PLACE_ABORT,   /* leader: it is given up; operations go on as before */
    PLACE_DONE,    /* member: the decision has come */
    PLACE_KINDS
};
const char *place_kind_name(enum place_kind k); /* "?" when it is none */

enum place_answer {
    PLACE_NONE,      /* so far */
    PLACE_YES,       /* operation `at` waits for the decision */
    PLACE_LATE,      /* operation `at` has begun */
    PLACE_NOT_READY, /* `to` cannot be used here (yet) */
    PLACE_BEHIND,    /* an older attempt is not decided, or its operation has not begun */
    PLACE_NEVER,     /* this member switches no more: a captured graph calls nothing */
    PLACE_ANSWERS
};
const char *place_answer_name(enum place_answer a); /* "?" when it is none */

struct place_msg {
    uint8_t kind, answer;
    uint32_t attempt; /* numbered by the leader from 1 */
    uint32_t to;      /* communicator: 0 is the user's own; no number is used twice */
    uint64_t at;
};

#endif
