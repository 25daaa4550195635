/*
 * Fail-back: a path returns as a new incarnation (P23, P24; docs/recovery.md). Service thread, gate
 * held, unless said otherwise; nothing blocks.
 */
#ifndef R2_RECONNECT_H
#define R2_RECONNECT_H

#include "core/r2_inst.h"

/* The return of a path as a new incarnation; r2_reconnect.c */
enum r2_ret_state {
    R2_RET_NONE,
    R2_RET_R_BUILD, /* R: job: the queue pair is made and filled */
    R2_RET_R_SENT,  /* R: OPEN is out, repeated until OPEN_OK */
    R2_RET_R_JOIN,  /* R: job: connected to S's */
    R2_RET_S_BUILD, /* S: job: made and connected */
    R2_RET_S_SENT,  /* S: OPEN_OK is out, repeated until OPEN_UP */
    R2_RET_COUNT
};

struct r2_ret {
    struct ib_job job; /* first: destroys the old incarnation's objects */
    struct r2_comm *comm;
    struct ib_path old;
    uint8_t has_old;
    uint64_t old_until; /* ns */
    enum r2_ret_state state;
    uint64_t since, send_at, interval;
    uint64_t not_before, pause; /* the next attempt, after one that failed */
    uint64_t failed_at; /* R: the latest attempt failed, ns; the pair has to answer after that */
    unsigned misses;    /* ... probation.misses of its pair by then */
    uint32_t lost;      /* R: the incarnation whose way is noted to have lost its tail; 0 */
    uint32_t refused;   /* S: the last incarnation that R opened and S has refused; 0: none since an
                           incarnation began. It stays refused (P23) */
};

struct r2_reconnect_conn {
    struct r2_ret path[IB_MAX_PATHS];
    uint8_t waits;  /* R: bit per path: could return, but too many do already */
    uint8_t urgent; /* ... and no path is left */
};

/* Begins what can begin, repeats what is unanswered, puts old incarnations away. Returns the next
 * deadline (ns). */
uint64_t r2_reconnect_step(struct r2_comm *c, uint64_t now);

/* Records of the exchange. */
void r2_reconnect_on_open(struct r2_comm *c, const struct fo_open *m);
void r2_reconnect_on_open_ok(struct r2_comm *c, const struct fo_open *m);
void r2_reconnect_on_open_up(struct r2_comm *c, const struct fo_open *m);
/* DOWN or FENCED of (@p, @inc) has come; called before the engine. 1 when that incarnation was
 * still being opened. */
int r2_reconnect_on_over(struct r2_comm *c, int p, uint32_t inc);

/*
 * So many new incarnations of one NIC are built at a time: a thousand builds in the queue of its
 * worker would keep the fences behind them. admit: wakes who waits.
 */
#define R2_RECONNECT_AT_ONCE 16
void r2_reconnect_admit(struct r2_inst *inst);

/* Close has begun: what is being opened is not waited for. */
void r2_reconnect_stop(struct r2_comm *c);
/* Close: submits the destruction of old incarnations; returns how many are left. */
int r2_reconnect_close(struct r2_comm *c);

#endif
