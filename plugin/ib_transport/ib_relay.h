/* A bounce ring in use by one incarnation of a path, with the lane of the copy engine that fills
 * it (docs/balance.md), and where the sender gets one. */
#ifndef IB_RELAY_H
#define IB_RELAY_H

#include "ib_copy.h"
#include "ib_bounce.h"
#include "ib_transport/verbs/ib_mr.h"

/*
 * Of the pool until it is lent, then of the gate holder. @mem, @mr, @ops, @arg, @copies never
 * change; slot n of @copies is entry n of @ring.
 */
struct ib_bounce_lane {
    struct ib_bounce ring;
    uint8_t *mem;     /* ring.size bytes */
    struct ib_mr *mr; /* registers them */
    const struct ib_copy_ops *ops;
    void *arg, *copies;
    uint32_t inc;    /* of the path */
    uint8_t leaving; /* others wait for one: nothing new is begun */
    uint8_t closing; /* that incarnation is over, and its quarantine: what is left are copies that
                        run */
    uint8_t soft;    /* ... but for its quarantine (P19) */
    uint8_t broken;  /* the engine has refused a copy: nothing more is begun */
    uint8_t lost;    /* ... and it is not known any more what it reads and writes */
};

/* Which paths of a connection are bounced, and where their lanes come from. The gate guards it; the
 * calls are made with it held, and wait for nobody. */
struct ib_relay {
    void *arg;
    uint32_t paths; /* IB_RLX: bit per path; the service thread reads it, too */
    uint32_t ring;  /* bytes of a lane's ring: a longer part does not go that way */
    /* A lane for path @p, its ring empty; NULL: there is none left now. */
    struct ib_bounce_lane *(*lane_get)(void *arg, int p);
    /* Whether somebody waits for a lane like that of path @p. */
    int (*lane_wanted)(void *arg, int p);
    /* Nothing reads or writes its ring any more, unless it is lost. */
    void (*lane_put)(void *arg, int p, struct ib_bounce_lane *lane);
};

#endif
