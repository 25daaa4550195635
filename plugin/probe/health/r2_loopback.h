/*
 * Does a NIC of ours answer itself? A queue pair connected to itself, one per NIC
 * (docs/diagnosis.md): what it writes goes through the NIC and its driver, and over no cable.
 * Service thread; nothing blocks. Building runs on the device's worker.
 */
#ifndef R2_LOOPBACK_H
#define R2_LOOPBACK_H

#include "ib_transport/verbs/ib_worker.h"
#include "probe/probe_qp.h"
#include "probe/probe_verdict.h"

struct r2_inst;

enum r2_loopback_state {
    R2_LOOPBACK_NONE,
    R2_LOOPBACK_BUILD, /* job: made and connected to itself, the one before it destroyed */
    R2_LOOPBACK_READY,
    R2_LOOPBACK_BROKEN, /* could not be made */
    R2_LOOPBACK_STATES
};

struct r2_loopback {
    struct ib_job job; /* first */
    struct r2_inst *inst;
    int nic;
    enum r2_loopback_state state;
    struct probe_qp qp;
    uint32_t psn;
    int rc; /* of the job */
    uint8_t asking;
    uint8_t fresh;      /* made for the present probe */
    uint8_t works;      /* it has answered: this NIC can talk to itself, which not every NIC does */
    uint8_t outcome;    /* enum probe_outcome of the latest probe that ended */
    uint64_t deadline;  /* watch's clock */
    unsigned questions; /* that ended */
};

/* Allocates one for each NIC. -1: out of memory. Freed with the instance. */
int r2_loopbacks_open(struct r2_inst *inst);
/* A connection over NIC @nic stands: made and probed once, if it is not, to learn whether this NIC
 * can do that at all. */
void r2_loopback_want(struct r2_inst *inst, int nic);
/* Posts a probe, unless one is out. Its end raises `questions`; a NIC that is dead, or has never
 * answered itself, is not probed: not available. @limit: ns. */
void r2_loopback_probe(struct r2_inst *inst, int nic, uint64_t clock, uint64_t limit);
/* Takes answers; returns whether one is waited for. */
int r2_loopbacks_watch(struct r2_inst *inst, uint64_t clock);
/* The workers have stopped, but for those of the devices in @still_running: ib_workers_destroy().
 * These are not touched. */
void r2_loopbacks_free(struct r2_inst *inst, uint64_t still_running);

#endif
