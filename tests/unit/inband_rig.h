/* Races over NIC pairs that carry records: for test_inband*.c. */
#ifndef INBAND_RIG_H
#define INBAND_RIG_H

#include "tests/unit/race_rig.h"

#include "core/r2_registry.h"
#include "plugin/probe/health/r2_inband.h"
#include "plugin/probe/health/r2_pair.h"

static inline struct r2_inst *inst(int side)
{
    return rig->side[side].inst;
}

static inline struct r2_pair *pair(int side, int nic)
{
    for (struct r2_pair *p = inst(side)->index.pairs; p; p = p->next) {
        if (p->nic == nic && p->peer_nic == nic) {
            return p;
        }
    }
    ck_abort_msg("no pair over NIC %d", nic);
    return NULL;
}

static inline int all_pairs_up(struct rig *r)
{
    int n = 0;

    for (int s = 0; s < 2; s++) {
        for (struct r2_pair *p = r->side[s].inst->index.pairs; p; p = p->next) {
            if (p->build.plain) {
                continue; /* of two rails, which do not reach each other */
            }
            if (!r2_pair_ready(p) || !p->inband.up) {
                return 0;
            }
            n++;
        }
    }
    return n == 2 * r->side[0].inst->nics.count;
}

static inline void begin(int nics, const char *const *options)
{
    start(nics, options);
    messages(4, 1000);
    ck_assert(rig_until(rig, all_pairs_up, RIG_S));
}

#endif
