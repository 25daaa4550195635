/* Shared by ib_send.c (data path) and ib_replay.c (after a failure). Gate held. */
#ifndef IB_SEND_INT_H
#define IB_SEND_INT_H

#include "ib_transport/ib_send.h"

#define IB_SEND_SLOT(tx, seq) (&(tx)->msg[(seq) % R2_LEDGER_WINDOW])

/* Takes all completions of @p and accounts for them. 0, or -1 when polling failed and the path was reported. */
int ib_send_poll_path(struct ib_send *tx, struct ib_path *p);

#endif
