/* Shared by fo_engine.c (state, faults) and fo_settle.c (settlement). Gate held, as in fo_engine.h. */
#ifndef FO_INTERNAL_H
#define FO_INTERNAL_H

#include "failover/fo_engine.h"

#define FO_MS(x) ((uint64_t)(x) * 1000000)

static inline const struct r2_config *fo_cfg(const struct fo_conn *fc)
{
    return fc->link->cfg;
}

static inline uint64_t fo_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The only writer of a life's state: moves it if that is legal, keeps link->up in step, logs. 1 when it moved. */
int fo_move(struct fo_conn *fc, int p, enum fo_state to, const char *why);

/* The peer is known to post nothing on path @p any more. */
void fo_peer_stopped(struct fo_conn *fc, int p, uint64_t now);

#endif
