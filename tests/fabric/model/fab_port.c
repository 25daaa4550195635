/* What a device says of itself, and what faults do to it. */
#include "fab_nic.h"

#include "fab_desc.h"
#include "fab_qp.h"

#include <errno.h>
#include <string.h>

_Static_assert(FAB_GIDS == FAB_GID_TABLE, "the description and the port have the same GID table");

int fab_query_device(struct fab_ctx *ctx, struct ibv_device_attr *a)
{
    if (ctx->dead) {
        return EIO;
    }
    memset(a, 0, sizeof *a);
    strcpy(a->fw_ver, "1.0.0");
    a->node_guid = a->sys_image_guid = fab_nic_guid(ctx->nic->host, ctx->nic->nic);
    a->max_mr_size = UINT64_MAX;
    a->page_size_cap = ~(uint64_t)4095;
    a->vendor_id = 0xfab;
    a->vendor_part_id = 1;
    a->max_qp = FAB_MAX_QP;
    a->max_qp_wr = FAB_MAX_QP_WR;
    a->max_sge = a->max_sge_rd = a->max_srq_sge = FAB_MAX_SGE;
    a->max_cq = FAB_MAX_CQ;
    a->max_cqe = FAB_MAX_CQE;
    a->max_mr = FAB_MAX_MR;
    a->max_pd = FAB_MAX_PD;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = FAB_MAX_RD_ATOM;
    a->max_res_rd_atom = FAB_MAX_RD_ATOM * FAB_MAX_QP;
    a->atomic_cap = IBV_ATOMIC_NONE;
    a->max_srq = FAB_MAX_SRQ;
    a->max_srq_wr = FAB_MAX_QP_WR;
    a->max_pkeys = 1;
    a->phys_port_cnt = 1;
    return 0;
}

/* Speed and width that come nearest to the link's rate without exceeding it; at least one lane
 * at 2.5 Gb/s. */
static void speed_width(uint64_t rate, uint8_t *speed, uint8_t *width)
{
    static const struct {
        uint64_t mbit;
        uint8_t speed, width;
    } table[] = {{400000, 128, 2}, {200000, 64, 2},
                 {100000, 32, 2},  {50000, 32, 1 /* two lanes are not in all headers */},
                 {40000, 4, 2},    {25000, 32, 1},
                 {10000, 4, 1},    {5000, 2, 1},
                 {2500, 1, 1}};
    size_t i = 0, last = sizeof table / sizeof *table - 1;

    if (!rate) {
        i = 2;
    }
    while (i < last && rate && rate * 8 / 1000000 < table[i].mbit) {
        i++;
    }
    *speed = table[i].speed;
    *width = table[i].width;
}

int fab_query_port(struct fab_ctx *ctx, uint8_t port, struct ibv_port_attr *a)
{
    if (ctx->dead) {
        return EIO;
    }
    if (ctx->unplugged) {
        return ENODEV;
    }
    if (port != 1) {
        return EINVAL;
    }
    memset(a, 0, sizeof *a);
    a->state = ctx->nic->link.down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    a->phys_state = ctx->nic->link.down ? 3 : 5;
    a->max_mtu = a->active_mtu = IBV_MTU_4096;
    a->gid_tbl_len = FAB_GIDS;
    a->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a->max_msg_sz = FAB_MAX_MSG;
    a->pkey_tbl_len = 1;
    a->max_vl_num = 1;
    a->link_layer = ctx->nic->cfg.ib.lid ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    a->lid = ctx->nic->cfg.ib.lid;
    a->lmc = ctx->nic->cfg.ib.lmc;
    a->flags = ctx->nic->cfg.ib.grh_required ? IBV_QPF_GRH_REQUIRED : 0;
    speed_width(ctx->nic->cfg.base_rate, &a->active_speed, &a->active_width);
    return 0;
}

int fab_query_gid(struct fab_ctx *ctx, uint8_t port, uint32_t index, union ibv_gid *gid)
{
    if (ctx->dead) {
        return EIO;
    }
    if (port != 1 || index >= FAB_GIDS) {
        return EINVAL;
    }
    if (ctx->unplugged) {
        memset(gid, 0, sizeof *gid);
        return 0;
    }
    fab_gid_make(ctx->nic->host, ctx->nic->nic, ctx->nic->gid_epoch, (int)index, gid);
    if (ctx->nic->cfg.ib.lid) {
        fab_gid_ib(&ctx->nic->cfg.ib, (int)index, gid);
    }
    return 0;
}

/* ---- faults of the device ---- */

static void all_ctx(struct fab_nic *nic, enum ibv_event_type type)
{
    for (struct fab_ctx *c = nic->ctxs; c; c = c->next) {
        fab_ctx_event(c, type, NULL);
    }
}

static void port_event(struct fab_nic *nic, bool was_down)
{
    if (was_down != (nic->link.down != 0) && !nic->gone) {
        all_ctx(nic, was_down ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    }
}

/* The contexts of now are dead for ever. Their queue pairs neither send nor take packets, nor
 * report anything. */
static void die(struct fab_nic *nic, enum fab_life how, bool event)
{
    if (nic->gone) {
        return;
    }
    if (event) {
        all_ctx(nic, IBV_EVENT_DEVICE_FATAL);
    }
    nic->gone = how;
    for (struct fab_ctx *c = nic->ctxs; c; c = c->next) {
        if (c->dead) {
            continue;
        }
        c->dead = how;
        c->silent = nic->silent_death;
        c->dead_at = fab_now(nic->eng) + (how == FAB_REMOVED ? nic->cfg.removing_ns : 0);
    }
    for (struct fab_qp *qp = nic->qps; qp; qp = qp->nic_next) {
        nic->eng->ops->timer_cancel(nic->eng, &qp->timer);
        fab_nic_tx_remove(nic, qp);
    }
}

/* What the device had in hand takes its own time, which has stood still. */
static void time_shift(struct fab_nic *nic)
{
    uint64_t ns = fab_now(nic->eng) - nic->hung_at;

    for (struct fab_qp *qp = nic->qps; qp; qp = qp->nic_next) {
        qp->linger_until += qp->linger_until > nic->hung_at ? ns : 0;
        fab_pipe_shift(qp->rpipe, nic->hung_at, ns);
        fab_pipe_shift(qp->spipe, nic->hung_at, ns);
    }
    for (struct fab_pipe *p = nic->orphans; p; p = p->next) {
        fab_pipe_shift(p, nic->hung_at, ns);
    }
}

static void unhang(struct fab_nic *nic)
{
    struct fab_pipe *p, *next;

    if (!nic->hung) {
        return;
    }
    nic->hung = false;
    time_shift(nic);
    for (struct fab_qp *qp = nic->qps; qp; qp = qp->nic_next) {
        fab_pipe_unpark(qp->rpipe);
        fab_pipe_unpark(qp->spipe);
        if (!qp->ctx->dead) {
            fab_qp_req_resume(qp);
        }
    }
    for (p = nic->orphans; p; p = next) {
        next = p->next;
        fab_pipe_unpark(p);
    }
    fab_nic_resume(nic);
    if (nic->tx_head) {
        nic->eng->ops->tx_kick(nic->eng, nic);
    }
}

static void qp_error_all(struct fab_nic *nic)
{
    for (struct fab_qp *qp = nic->qps; qp; qp = qp->nic_next) {
        if (!qp->ctx->dead && qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR) {
            fab_qp_fatal(qp, IBV_EVENT_QP_FATAL);
        }
    }
}

/* What is open stays usable but for its link, as the kernel keeps a software device whose network
 * device has left. */
static void unplug(struct fab_nic *nic)
{
    if (nic->gone) {
        return;
    }
    nic->gone = FAB_UNPLUGGED;
    all_ctx(nic, IBV_EVENT_GID_CHANGE);
    for (struct fab_ctx *c = nic->ctxs; c; c = c->next) {
        c->unplugged = true;
    }
}

static void send_stuck_all(struct fab_nic *nic)
{
    for (struct fab_qp *qp = nic->qps; qp; qp = qp->nic_next) {
        if (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) {
            qp->send_stuck = true;
            nic->eng->ops->timer_cancel(nic->eng, &qp->timer);
        }
    }
}

static void restore(struct fab_nic *nic)
{
    nic->gone = FAB_ALIVE;
    nic->mr_fail = nic->call_error = 0;
    unhang(nic);
}

void fab_nic_fault(struct fab_nic *nic, const struct fab_fault *fault, bool remove_event)
{
    bool was_down = nic->link.down;

    nic->cnt.faults[fault->kind]++;
    fab_link_fault(&nic->link, fault, nic->cfg.base_rate);
    switch (fault->kind) {
    case FAB_FAULT_HANG:
        nic->hung_at = nic->hung ? nic->hung_at : fab_now(nic->eng);
        nic->hung = true;
        break;
    case FAB_FAULT_UNHANG:
        unhang(nic);
        break;
    case FAB_FAULT_FATAL:
        die(nic, FAB_FATAL, true);
        break;
    case FAB_FAULT_REMOVE:
        die(nic, FAB_REMOVED, remove_event);
        break;
    case FAB_FAULT_UNPLUG:
        unplug(nic);
        break;
    case FAB_FAULT_SEND_STUCK:
        send_stuck_all(nic);
        break;
    case FAB_FAULT_RETRY7_FOREVER:
        nic->retry7_forever = true;
        break;
    case FAB_FAULT_SILENT_DEATH:
        nic->silent_death = true;
        break;
    case FAB_FAULT_RECV_KEPT:
        nic->recv_kept = true;
        break;
    case FAB_FAULT_PROVIDER:
        nic->provider = (enum fab_provider)fault->value;
        break;
    case FAB_FAULT_MR_HANG:
        nic->mr_hang = true;
        break;
    case FAB_FAULT_QP_ERROR:
        qp_error_all(nic);
        break;
    case FAB_FAULT_MR_FAIL:
        nic->mr_fail = (uint32_t)fault->value;
        break;
    case FAB_FAULT_GPU_DMA_FAIL:
        nic->gpu_dma_fail = true;
        break;
    case FAB_FAULT_CALL_ERROR:
        nic->call_error = (uint32_t)fault->value;
        break;
    case FAB_FAULT_GID_CHANGE:
        nic->gid_epoch = (nic->gid_epoch + 1) & 127;
        all_ctx(nic, IBV_EVENT_GID_CHANGE);
        break;
    case FAB_FAULT_RESTORE:
        nic->retry7_forever = nic->cfg.retry7_forever;
        nic->recv_kept = nic->silent_death = nic->gpu_dma_fail = nic->mr_hang = false;
        restore(nic);
        break;
    case FAB_FAULT_UP:
        if (nic->gone && nic->gone != FAB_UNPLUGGED) { /* "up" brings a device back as well */
            restore(nic);
        }
        break;
    default:
        break;
    }
    port_event(nic, was_down);
}
