#include "ib_path.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "base/r2_pages.h"
#include "ib_fence_proof.h"
#include "ib_rc.h"
#include "ib_transport/verbs/ib_gid.h"

/* Slots kept beyond what data may use: one marker in either queue (P16.3). */
#define MARK_SLOTS 1
#define TAIL_SLOTS 1 /* S: beyond those of data, which may be full as its last packet is lost */
/* Control writes of a receiver: one per group of a window, a repetition after a failure, acks. */
#define RECV_SQ_DEPTH 128
#define INLINE_WANT   64

static const char *const fault_names[IB_FAULT_COUNT] = {
    [IB_FAULT_NONE] = "none",
    [IB_FAULT_WC] = "completion error",
    [IB_FAULT_CALL] = "failed call",
    [IB_FAULT_PORT] = "port down",
    [IB_FAULT_DEVICE] = "device fatal",
    [IB_FAULT_QP] = "queue pair error",
    [IB_FAULT_PEER] = "announced by peer",
    [IB_FAULT_PEER_NIC] = "peer's NIC",
    [IB_FAULT_DATA] = "impossible arrival",
    [IB_FAULT_SETUP] = "set-up",
    [IB_FAULT_CLOSE] = "closing",
    [IB_FAULT_ADMIN] = "administrator",
    [IB_FAULT_SILENT] = "no answer",
    [IB_FAULT_UNDELIVERED] = "acknowledged and not delivered",
    [IB_FAULT_STALL] = "stalled queue pair",
    [IB_FAULT_TAIL] = "last packet lost",
    [IB_FAULT_REHEARSAL] = "rehearsal",
    [IB_FAULT_WAY] = "silent way",
};

const char *ib_fault_name(enum ib_fault f)
{
    return (unsigned)f < IB_FAULT_COUNT ? fault_names[f] : "?";
}

__attribute__((noinline, cold)) void ib_conn_wc_fault(struct ib_conn *l, int p,
                                                      const struct ibv_wc *wc)
{
    struct ib_fault_info info = {
        .fault = IB_FAULT_WC, .wc_status = wc->status, .vendor_err = (int)wc->vendor_err};

    l->sink.path_fault(l->sink.arg, p, &info);
}

__attribute__((noinline, cold)) void ib_conn_call_fault(struct ib_conn *l, int p, int err)
{
    struct ib_fault_info info = {.fault = IB_FAULT_CALL, .err = err};

    l->sink.path_fault(l->sink.arg, p, &info);
}

static struct ib_nic *path_nic(struct ib_conn *l, const struct ib_path *p)
{
    return &l->nics->nic[p->nic];
}

/* Receives that R keeps in the queue; S has none. */
static uint32_t recvs(const struct ib_path *p)
{
    return p->cap.rq_depth ? p->cap.rq_depth + IB_RECV_BATCH : 0;
}

static int create_qp(struct ib_conn *l, struct ib_path *p)
{
    struct ibv_qp_init_attr attr = {
        .qp_context = (void *)(uintptr_t)ib_conn_context(l->conn_id, p->index, p->inc),
        .send_cq = p->cq,
        .recv_cq = p->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = p->cap.sq_depth + TAIL_SLOTS + MARK_SLOTS +
                               p->ar, /* the second of two that found one slot free (P32) */
                .max_recv_wr = recvs(p) + MARK_SLOTS,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = INLINE_WANT},
    };

    p->qp = l->nics->v->create_qp(path_nic(l, p)->pd, &attr);
    if (p->qp ==
        NULL) { /* a device without inline data: CTS entries go through registered memory */
        attr.cap.max_inline_data = 0;
        p->qp = l->nics->v->create_qp(path_nic(l, p)->pd, &attr);
    }
    if (p->qp == NULL) {
        return errno ? errno : ENOMEM;
    }
    p->cap.max_inline = attr.cap.max_inline_data;
    return 0;
}

/* On the worker, not through the cache of registrations: that one is called by threads which no
 * driver may keep. */
static int register_ctl_src(struct ib_conn *l, struct ib_path *p)
{
    p->mem.ring_mr = l->nics->v->reg_mr(path_nic(l, p)->pd, l->ctl_src, sizeof(*l->ctl_src),
                                        IBV_ACCESS_LOCAL_WRITE);
    return p->mem.ring_mr ? 0 : (errno ? errno : ENOMEM);
}

/*
 * The ring and its registration: separate for every path, so that taking it away fences late
 * writes of that path alone.
 */
static size_t ring_len(const struct ib_path *p)
{
    return sizeof(*p->mem.ring) + (p->ar ? sizeof(struct ib_records) : 0);
}

static int make_ring(struct ib_conn *l, struct ib_path *p)
{
    size_t len = ring_len(p);

    p->mem.ring = r2_pages_get(len);
    if (p->mem.ring == NULL) {
        return ENOMEM;
    }
    p->mem.ring_mr = l->nics->v->reg_mr(path_nic(l, p)->pd, p->mem.ring, len,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return p->mem.ring_mr ? 0 : (errno ? errno : ENOMEM);
}

/* R's memory for size records: of one incarnation, as the ring is. */
static int make_records(struct ib_conn *l, struct ib_path *p)
{
    p->mem.records = r2_pages_get(sizeof(*p->mem.records));
    if (p->mem.records == NULL) {
        return ENOMEM;
    }
    p->mem.records_mr =
        l->nics->v->reg_mr(path_nic(l, p)->pd, p->mem.records, sizeof(*p->mem.records),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return p->mem.records_mr ? 0 : (errno ? errno : ENOMEM);
}

/* As NCCL's own transport: where nothing is said, on InfiniBand alone. */
static int adaptive_routing(struct ib_conn *l, const struct ib_path *p)
{
    struct ib_addr addr;

    ib_nic_addr_get(l->nics, p->nic, &addr);
    return l->cfg->ib_ar < 0 ? addr.link_layer == IBV_LINK_LAYER_INFINIBAND : l->cfg->ib_ar != 0;
}

/*
 * Enhanced connection establishment, as NCCL does it. R, whose queue pair is made first, says what
 * it can do; S uses of that what it can as well, since its provider reduces it on the way to RTR,
 * and says so; R uses that. A provider refuses what it is told later than in INIT. Nothing of it is
 * worth a path: where a call is missing or fails, or the vendors differ, both do without.
 */
static void ece_read(struct ib_conn *l, struct ib_path *p)
{
    const struct ib_verbs *v = l->nics->v;
    struct ibv_ece ece = {0};

    p->ece = (struct ib_ece){0};
    if (l->cfg->ib_ece && v->query_ece && v->set_ece &&
        ib_verbs_err(v->query_ece(p->qp, &ece)) == 0 && ece.comp_mask == 0) {
        p->ece = (struct ib_ece){ece.vendor_id, ece.options};
    }
}

static void ece_use(struct ib_conn *l, struct ib_path *p, const struct ib_ece *peer)
{
    struct ibv_ece ece = {.vendor_id = peer->vendor, .options = peer->options};

    if (p->ece.vendor == 0 || p->ece.vendor != peer->vendor ||
        ib_verbs_err(l->nics->v->set_ece(p->qp, &ece)) != 0) {
        p->ece = (struct ib_ece){0};
    }
}

int ib_path_create(struct ib_conn *l, struct ib_path *p, int sender, uint32_t psn)
{
    const struct ib_verbs *v = l->nics->v;
    enum ib_nic_state state = ib_nic_state_get(path_nic(l, p));
    int rc;

    if (state == IB_NIC_FATAL || state == IB_NIC_GONE) {
        return EIO;
    }
    p->psn = psn & 0xffffff;
    p->ar = (uint8_t)adaptive_routing(l, p);
    p->part.one_max = p->part.pair_min = UINT32_MAX;
    p->plain = !sender && l->cfg->ack == R2_ACK_FLUSH ? IB_IMM_NONE : IB_IMM_DATA;
    p->cap.sq_depth = sender ? l->rq_depth << p->ar : RECV_SQ_DEPTH;
    p->cap.rq_depth = sender ? 0 : l->rq_depth;
    p->ack.room = p->ar ? 0 : (uint16_t)p->cap.sq_depth;
    p->gen.ours = atomic_load_explicit(&path_nic(l, p)->generation, memory_order_relaxed);
    /* every work request, signaled or not, may come out with a CQE when it is flushed (P16.3) */
    p->cq = v->create_cq(path_nic(l, p)->ctx,
                         (int)(p->cap.sq_depth + recvs(p) + TAIL_SLOTS + 2 * MARK_SLOTS + p->ar),
                         (void *)(uintptr_t)ib_conn_context(l->conn_id, p->index, p->inc), NULL, 0);
    if (p->cq == NULL) {
        return errno ? errno : ENOMEM;
    }
    if ((rc = sender ? make_ring(l, p) : register_ctl_src(l, p)) != 0) {
        return rc;
    }
    if (!sender && p->ar && (rc = make_records(l, p)) != 0) {
        return rc;
    }
    if ((rc = create_qp(l, p)) != 0) {
        return rc;
    }
    if ((rc = ib_rc_init(l->nics, p->nic, p->qp,
                         IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE)) == 0) {
        ece_read(l, p);
    }
    return rc;
}

/* Once per process: what follows is silence, of which the log would not know the reason. */
static void check_subnets(const struct ib_nic *nic, const struct ib_addr *local,
                          const struct ib_addr *peer)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;

    if (local->link_layer == IBV_LINK_LAYER_INFINIBAND &&
        ib_gid_subnet(local->gid) != ib_gid_subnet(peer->gid) && ib_gid_flid(peer->gid) == 0 &&
        !atomic_flag_test_and_set(&logged)) {
        R2_WARN(
            "NIC %s is in InfiniBand subnet %04x, its peer in %04x, and no router has announced the peer's: its GID has no "
            "FLID (NCCL_IB_ROUTABLE_FLID_GID_INDEX)",
            nic->name, ib_gid_subnet(local->gid), ib_gid_subnet(peer->gid));
    }
}

/* As its packets have it, and as this end counts. */
static void way_settle(const struct ib_conn *l, struct ib_path *p, const struct ib_addr *local,
                       const struct ib_addr *peer)
{
    const struct ib_ways *ways = l->nics->ways;

    p->udp_port = p->dlid = 0;
    if (l->nics->nic[p->nic].last) {
        p->way = 0; /* TCP has its own ports */
        return;
    }
    p->way = (uint8_t)ib_port_way_fold(ways, p->way, local, peer);
    if (local->link_layer == IBV_LINK_LAYER_ETHERNET) {
        p->udp_port = ib_way_udp_port(ib_port_way_label(ways, p->way, local, peer));
    } else if (p->way) {
        p->dlid = ib_port_way_lid(p->way, peer, local);
    }
}

int ib_path_connect(struct ib_conn *l, struct ib_path *p, const struct ib_path_addr *peer)
{
    struct ib_rc rc_attr = {.psn = p->psn,
                            .reads = 1,
                            .rnr_timer = IB_RC_RNR_TIMER,
                            .rnr_retry = IB_RC_RNR_RETRY,
                            .timeout = (uint8_t)l->cfg->ib_timeout,
                            .retry_cnt = (uint8_t)l->cfg->ib_retry_cnt,
                            .traffic_class = l->traffic_class,
                            .way = p->way};
    struct ib_rc_peer remote = {.port = &peer->port, .qpn = peer->qpn, .psn = peer->psn};
    struct ib_addr local;
    int rc;

    ece_use(l, p, &peer->ece);
    ib_nic_addr_get(l->nics, p->nic, &local);
    check_subnets(path_nic(l, p), &local, &peer->port);
    rc = ib_rc_connect(l->nics, p->nic, p->qp, &rc_attr, &remote);
    if (rc == 0 && p->ece.vendor) {
        ece_read(l, p); /* what of it is in use */
    }
    if (rc == 0) {
        way_settle(l, p, &local, &peer->port);
        p->mem.peer_ring = peer->ring_addr;
        p->mem.peer_ring_key = peer->ring_key;
        p->gen.peer = peer->nic_gen;
        p->ack.rotate =
            p->mem.ring && peer->ring_key; /* R has size records: adaptive routing is on there */
        if (p->ar && p->mem.ring && peer->ring_key) {
            p->part.one_max = p->part.pair_min = (uint32_t)l->cfg->ib_ar_threshold;
        }
    }
    return rc;
}

int ib_path_post_recvs(struct ib_path *p, int n)
{
    struct ibv_recv_wr wr[16], *bad;

    while (n > 0) {
        int m = n < 16 ? n : 16;
        int rc;

        for (int i = 0; i < m; i++) {
            wr[i] = (struct ibv_recv_wr){.wr_id = ib_wr_id(IB_WR_RECV, 0, 0),
                                         .next = i + 1 < m ? &wr[i + 1] : NULL};
        }
        rc = ib_verbs_err(ibv_post_recv(p->qp, wr, &bad));
        if (rc != 0) {
            return rc;
        }
        n -= m;
    }
    return 0;
}

int ib_path_fill_rq(struct ib_conn *l, struct ib_path *p)
{
    return ib_path_post_recvs(p, (int)recvs(p));
}

void ib_path_addr_get(struct ib_conn *l, const struct ib_path *p, struct ib_path_addr *out)
{
    memset(out, 0, sizeof(*out));
    out->qpn = p->qp ? p->qp->qp_num : 0;
    out->psn = p->psn;
    out->nic_gen = p->gen.ours;
    out->way = p->way;
    out->ece = p->ece;
    ib_nic_addr_get(l->nics, p->nic, &out->port);
    if (p->mem.ring) {
        out->ring_addr = (uintptr_t)p->mem.ring;
        out->ring_key = p->mem.ring_mr->rkey;
    } else if (p->mem.records) {
        out->ring_addr = (uintptr_t)p->mem.records;
        out->ring_key = p->mem.records_mr->rkey;
    }
}

void ib_path_destroy(struct ib_conn *l, struct ib_path *p)
{
    int ended = ib_nic_qp_destroy(l->nics, p->nic, p->qp), ring_free;

    p->goes_on |= !ended;
    p->qp = NULL;
    if (p->cq && ended) {
        l->nics->v->destroy_cq(p->cq);
    }
    p->cq = NULL;
    ring_free = ib_nic_mr_release(l->nics, p->nic, p->mem.ring_mr, ended);
    p->mem.ring_mr = NULL;
    if (ring_free) {
        r2_pages_put(p->mem.ring, ring_len(p));
    } else if (p->mem.ring == NULL) {
        atomic_store_explicit(&l->ctl_src_kept, 1,
                              memory_order_relaxed); /* looked at when the job is back */
    }
    p->mem.ring = NULL;
    if (ib_nic_mr_release(l->nics, p->nic, p->mem.records_mr, ended)) {
        r2_pages_put(p->mem.records, sizeof(*p->mem.records));
    }
    p->mem.records_mr = NULL;
    p->mem.records = NULL;
}

int ib_path_error(struct ib_conn *l, struct ib_path *p)
{
    return ib_rc_error(l->nics, p->qp);
}

static int mark_recv(struct ib_path *p)
{
    struct ibv_recv_wr wr = {.wr_id = ib_wr_id(IB_WR_MARK_RECV, 0, 0)}, *bad;

    return ib_verbs_err(ibv_post_recv(p->qp, &wr, &bad));
}

static int mark_send(struct ib_path *p)
{
    struct ibv_send_wr wr = {.wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, 0),
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    return ib_verbs_err(ibv_post_send(p->qp, &wr, &bad));
}

int ib_path_mark(struct ib_path *p)
{
    int rc_recv = p->marker.posted & IB_MARK_RECV ? 0 : mark_recv(p);
    int rc_send = p->marker.posted & IB_MARK_SEND ? 0 : mark_send(p);

    p->marker.posted |= rc_recv == 0 ? IB_MARK_RECV : 0;
    p->marker.posted |= rc_send == 0 ? IB_MARK_SEND : 0;
    return rc_recv != 0 && rc_recv != ENOMEM ? rc_recv : rc_send ? rc_send : rc_recv;
}

int ib_path_refuses(struct ib_path *p)
{
    int rc = mark_send(p);

    return rc != 0 && rc != ENOMEM; /* a full queue says nothing */
}
