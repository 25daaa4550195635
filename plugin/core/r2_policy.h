/*
 * What the administrator allows of a path: NICs that are to be free (r2_drain.h), and who may
 * return after a failure (r2_failback.h). Service thread; nothing blocks.
 */
#ifndef R2_POLICY_H
#define R2_POLICY_H

#include "r2_inst.h"

/* Whether an incarnation that is over may be followed: @commanded, the administrator has allowed
 * it;
 * @any, another path is up. Pure. */
int r2_failback_may(enum r2_failback policy, int commanded, int any);
/* Gate held. Whether the administrator has allowed it for path @p. One that ended because its NIC
 * was drained, or for a rehearsal, has not failed: it is followed when that is over. */
int r2_failback_is_commanded(const struct r2_comm *c, int p);
/* Gate held. Whether path @p of @c, which is not up, may return. */
int r2_failback_allows(const struct r2_comm *c, int p);

/* Whether an administrator of either end wants path @p of @c free. */
int r2_drain_has(const struct r2_comm *c, int p);
/* Why our NIC @nic is drained, in the administrator's words; empty: none were given. Valid until
 * the next check of the drain files. */
const char *r2_drain_why(const struct r2_inst *inst, int nic);

#endif
