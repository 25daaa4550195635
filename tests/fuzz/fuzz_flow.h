/*
 * Numbered messages over the connection of a rig, whose bytes are a function of their number alone:
 * that each comes once, whole and in order shows in the receiver's memory. It is poisoned before a
 * receive and when the message was looked at, so that what lands later shows, too.
 */
#ifndef FUZZ_FLOW_H
#define FUZZ_FLOW_H

#include "fuzz_rig.h"

#define FUZZ_FLOW_SLOTS 16
#define FUZZ_FLOW_ROOM  2048

struct fuzz_flow {
    struct rig *rig;
    int strict;      /* what comes is looked at; no call may have failed */
    uint8_t *mem[2]; /* FUZZ_FLOW_SLOTS times FUZZ_FLOW_ROOM */
    struct ib_mr *mr[2];
    struct {
        size_t size;
        int s_op, r_op;           /* -1: to be sent; taken */
    } slot[FUZZ_FLOW_SLOTS];      /* of message number n: n modulo FUZZ_FLOW_SLOTS */
    uint64_t posted, sent, taken; /* messages: receives, sends, looked at */
};

/* The connection stands. */
void fuzz_flow_init(struct fuzz_flow *f, struct rig *rig, int strict);
/* One message of 0 to FUZZ_FLOW_ROOM bytes; nothing when as many are under way as fit. */
void fuzz_flow_post(struct fuzz_flow *f, size_t size);
/* Sends what has a CTS, looks at what has come and at all memory that nobody may write. */
void fuzz_flow_step(struct fuzz_flow *f);
/* fuzz_rig_run(), with steps in between. */
void fuzz_flow_run(struct fuzz_flow *f, uint64_t ns);
/* Every message that was posted has come. */
int fuzz_flow_done(const struct fuzz_flow *f);
/* Before fuzz_rig_destroy(): the registrations. */
void fuzz_flow_end(struct fuzz_flow *f);
/* Behind it: the memory. */
void fuzz_flow_free(struct fuzz_flow *f);

#endif
