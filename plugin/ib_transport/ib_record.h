/*
 * Parts whose bytes and immediate are two work requests: adaptive routing (protocol P32, P33).
 *
 * Both functions are called with the connection's gate held, on the data path: no lock, allocation,
 * system call or log; they never block.
 */
#ifndef IB_RECORD_H
#define IB_RECORD_H

#include "ib_path.h"

/*
 * S: posts on @p, in one call, a write of the data of @wr, which has one scatter entry, and behind
 * it the part's size record with the immediate @imm and the number of @wr. 0 or a positive errno;
 * after an error the first of the two may be with the NIC all the same, so that the part counts as
 * posted.
 */
int ib_record_post(struct ib_path *p, const struct ibv_send_wr *wr, uint32_t imm);

/*
 * R: the bytes of the part that @wc, a good completion with the immediate @imm on an open
 * incarnation, announces, into *@bytes. 0, or -1: what came is not its record (P33). Either way the
 * next one is expected in the next slot.
 */
int ib_record_take(struct ib_path *p, const struct ibv_wc *wc, uint32_t imm, uint32_t *bytes);

#endif
