#include "r2_policy.h"

int r2_failback_may(enum r2_failback policy, int commanded, int any)
{
    switch (policy) {
    case R2_FAILBACK_AUTO:
        return 1;
    case R2_FAILBACK_MANUAL:
        return commanded || !any; /* a connection without any path takes what comes back */
    default:
        return 0;
    }
}

int r2_failback_is_commanded(const struct r2_comm *c, int p)
{
    enum ib_fault why = c->fo.path[p].why.fault;

    return c->permit.inc[p] == c->conn.path[p].inc || why == IB_FAULT_ADMIN ||
           why == IB_FAULT_REHEARSAL;
}

int r2_failback_allows(const struct r2_comm *c, int p)
{
    uint32_t pair = ib_conn_pair(&c->conn, p), up = ib_conn_rdma(&c->conn) & ~(1u << p);

    /* queue pairs of one NIC pair go together: where one stands, the others may */
    return r2_failback_may((enum r2_failback)c->inst->cfg.failback, r2_failback_is_commanded(c, p),
                           (up & ~pair) != 0 && (up & pair) == 0);
}

int r2_drain_has(const struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];

    return (c->inst->drain.nics >> path->nic | c->peer->drain.nics >> path->peer_nic) & 1;
}

const char *r2_drain_why(const struct r2_inst *inst, int nic)
{
    if (inst->drain.rehearsed >> nic & 1) {
        return "rehearsal";
    }
    for (int i = 0; i < 2; i++) {
        if (inst->drain.file[i].nics >> nic & 1 && inst->drain.file[i].why[nic][0]) {
            return inst->drain.file[i].why[nic];
        }
    }
    return ((inst->drain.file[0].nics | inst->drain.file[1].nics) >> nic & 1) == 0
               ? "as NCCL_R2_DRAIN says"
               : "";
}
