/* Shared by ib_recv.c (arrivals) and ib_recv_ctl.c (what R writes). Gate held. */
#ifndef IB_RECV_INT_H
#define IB_RECV_INT_H

#include "ib_recv.h"

#define IB_RECV_SLOT(rx, s) (&(rx)->msg[(s) % R2_LEDGER_WINDOW])

/* An acknowledgement alone, over @p. 0, or -1: there is no room, or the path is down. */
int ib_recv_write_ack(struct ib_recv *rx, struct ib_path *p);
/* Writes again the CTS of every open seq whose last one went out on an incarnation that is over
 * (P11). What finds no room stays pending. */
void ib_recv_write_pending_cts(struct ib_recv *rx);

#endif
