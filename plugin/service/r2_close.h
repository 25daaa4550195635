/* Close and abort of a connection (P25 to P27). Service thread, gate held, unless said otherwise;
 * nothing blocks. */
#ifndef R2_CLOSE_H
#define R2_CLOSE_H

#include "core/r2_inst.h"

/* The end of one connection. */
struct r2_close_conn {
    int abort;         /* BYE is an aborting one */
    int bye_ok;        /* the peer has answered BYE, or does not know the connection */
    uint64_t ended_at; /* when it was found to have ended, not closed by NCCL: the peer is notified;
                          ns; 0 */
    uint64_t closed_at;
};

/* ns: how long a close or a release waits for a driver, or for copies of a GPU, that may not come
 * back: T_dead, at most 5 s. */
static inline uint64_t r2_close_patience(const struct r2_config *cfg)
{
    uint64_t most = 5000000000ull, dead = r2_config_dead_ns(cfg);

    return dead < most ? dead : most;
}

/* The only writer of the close state. Gate held, or nobody else has @c. NCCL's thread moves it out
 * of OPEN, or the service thread where NCCL never had the connection; the rest is the service
 * thread's. What is no legal move is logged, and refused. */
void r2_close_move(struct r2_comm *c, enum r2_close to);
const char *r2_close_name(enum r2_close state);

/* Goes on with the close. Returns the next deadline (ns); 0 when the connection was freed, the gate
 * with it. */
uint64_t r2_close_step(struct r2_comm *c, uint64_t now);
void r2_close_send_bye(struct r2_comm *c);
/*
 * Of an abort that NCCL has begun, and not closed yet, BYE(abort): else its queue pairs fail at the
 * peer before that knows why. Returns the next deadline.
 */
uint64_t r2_close_send_abort(struct r2_comm *c, uint64_t now);
/* Notifies the peer of one that has ended and that NCCL has not closed. Returns the next deadline.
 */
uint64_t r2_close_notify(struct r2_comm *c, uint64_t now);
void r2_close_send_nothing_left(struct r2_comm *c); /* BYE(abort) without any ledger, for a thread
                                                       that could not enter the gate */
void r2_close_log_incarnation(const struct r2_comm *c, int p); /* its present incarnation is over */
void r2_close_log_flush(
    const struct r2_comm *c); /* how a receiver was flushed; nothing if it never was. Gate */

#endif
