/* Messages from peers, record by record, to who takes them. Service thread; nothing blocks but a
 * visit of a gate. */
#ifndef R2_DISPATCH_H
#define R2_DISPATCH_H

#include "core/r2_inst.h"

/* @msg of the peer at @oob came by the channel; it is read during the call only. A message that is
 * malformed is dropped from its first bad record on, counted; the first is logged. */
void r2_dispatch_message(void *inst, struct r2_oob_peer *oob, const void *msg, size_t len);
/* The same of a message that came over a NIC. The caller holds a reference of @peer. */
void r2_dispatch(struct r2_inst *inst, struct r2_peer *peer, const void *msg, size_t len);

#endif
