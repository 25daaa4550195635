/*
 * Who holds the job up (docs/diagnosis.md): what each connection waits for, by counters that it
 * keeps anyway; requests and reports of probe_hang.h; the line R2-H01. Nothing is ended or moved.
 * Service thread; nothing blocks but for the visit of a gate.
 */
#ifndef R2_HANG_H
#define R2_HANG_H

#include "core/r2_notify.h"

/* What one connection waits for, as of the latest round. */
struct r2_hang_conn {
    uint64_t moved;  /* counters that change with what it waits for */
    uint64_t posted; /* ... with what NCCL has started on it */
    uint64_t misses, cts;
    uint64_t since;  /* clock of struct r2_hang; 0: it waits for nothing */
    uint64_t flight; /* ... since when what is posted has not got through; 0: it has */
    uint8_t state;   /* enum r2_hang_state */
};

enum r2_hang_state {
    R2_HANG_RESTS,    /* nothing is wanted of it, or it moves */
    R2_HANG_NO_CTS,   /* S: NCCL wants to send, and no receive is posted */
    R2_HANG_NO_ACK,   /* S: the NICs have done all, R's process has not acknowledged it */
    R2_HANG_NO_DATA,  /* R: receives are posted, and nothing comes */
    R2_HANG_IN_FLIGHT /* work requests have no completion, or no path is up */
};

/* Allocates, at init. -1: out of memory. Freed with the instance. */
int r2_hang_open(struct r2_inst *inst);
/* Our name is known: requests may be sent. @rank: of this process; -1: not known. */
void r2_hang_begin(struct r2_inst *inst, int rank);

/* From a peer, unpacked. */
void r2_hang_on_record(struct r2_inst *inst, struct r2_peer *peer, const struct fo_hang *m);
/* @peer is going. */
void r2_hang_leave(struct r2_inst *inst, struct r2_peer *peer);

extern const struct r2_subscriber r2_hang_subscriber;

#endif
