/* Shared by fo_engine.c (state, faults), fo_settle.c (settlement), fo_on.c (the peer's records) and
 * fo_live.c (what a dead incarnation may still bring), fo_vain.c (those that carry nothing). Gate
 * held, as in fo_engine.h. */
#ifndef FO_INTERNAL_H
#define FO_INTERNAL_H

#include "base/r2_time.h"
#include "fo_engine.h"

static inline const struct r2_config *fo_cfg(const struct fo_conn *fc)
{
    return fc->conn->cfg;
}

/* The only writer of an incarnation's state: moves it if that is legal, keeps conn->up in step,
 * logs. 1 when it moved. */
int fo_move(struct fo_conn *fc, int p, enum fo_state to, const char *why);

/* The peer is known to post nothing on path @p any more. */
void fo_peer_stopped(struct fo_conn *fc, int p, uint64_t now);

/*
 * S, who alone knows what is under way: ends drained incarnations on which nothing is. R's control
 * writes may be, as after any fault: they are written again over another path. Returns the next
 * deadline. Gate held.
 */
uint64_t fo_step_drained(struct fo_conn *fc, uint64_t now);

/* --- fo_settle.c --- */

/* S: posts again what R's ledger lacks of the incarnation of (p) (P21), once it is here and our
 * fence has ended; before that nothing, after that nothing again. */
void fo_apply_snapshot(struct fo_conn *fc, int p);
/* Sends the record about (p) as its state is now, whether it is due or not. Service thread. */
void fo_send_down(struct fo_conn *fc, int p);
void fo_send_settled(struct fo_conn *fc, int p);

/* R: whether nothing of path @p lands later than T_packet after S has stopped. Not over a device of
 * last resort: its fence is soft because a copy to memory of a GPU does not end. */
static inline bool fo_stop_bounds(const struct fo_conn *fc, int p)
{
    return !fc->conn->nics->nic[fc->conn->path[p].nic].last;
}

/*
 * R, softly fenced: S has sent BYE, and will not send SETTLED any more. An orderly one had nothing
 * under way but what is in the fabric. An aborting one sends BYE before its queue pairs are in ERR
 * (P27): that counts as a soft fence, whose quarantine T_dead ends (P18 c).
 */
void fo_sender_gone(struct fo_conn *fc, int p, uint64_t now);

/* --- fo_live.c --- */

/* S: *@out is its report on the dead incarnation of (p) (P35). */
void fo_live_report(struct fo_conn *fc, int p, struct r2_parts *out);
/* R: takes that report, which is the same in every record: the first one counts. S: nothing. */
void fo_live_take(struct fo_conn *fc, int p, const struct r2_parts *live);
/* R, as the incarnation of (p) is closed: sets the quarantines. Returns how many messages a hard
 * fence quarantines (P17). */
int fo_live_quarantine(struct fo_conn *fc, int p);

/* --- fo_vain.c --- */

/* Path @p has gone DOWN at @now (ns), for path[p].why. Returns whether its incarnation had work and
 * has carried nothing. */
bool fo_vain_on_lost(struct fo_conn *fc, int p, uint64_t now);

#endif
