/* The rig of the directed protocol tests (tests/support), made fit for a hundred runs a second. */
#ifndef FUZZ_RIG_H
#define FUZZ_RIG_H

#include "fuzz.h"

#include "tests/support/proto_rig.h"

/*
 * ns by which every turn of the rig is longer. A turn of its own is at most 50 us, so that NCCL
 * seems to call without a pause; a second of that is 20,000 turns.
 */
extern uint64_t fuzz_rig_hurry;

/* rig_run() in about a hundred turns. */
void fuzz_rig_run(struct rig *r, uint64_t ns);
/* rig_destroy(), in a hurry. */
void fuzz_rig_destroy(struct rig *r);
/* What holds in every state: numbers of every connection and NIC pair; @said records by both
 * processes are not more than there is a reason for. */
void fuzz_rig_check(struct rig *r, uint64_t said);

#endif
