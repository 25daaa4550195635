#include "fuzz_foe.h"

#include <endian.h>

#include "plugin/probe/health/r2_pair.h"
#include "tests/fabric/verbs/fab_ibv_priv.h"
#include "core/r2_registry.h"

static struct fuzz_foe *foe_of;

static struct r2_inst *inst_of(const struct fuzz_foe *foe, int side)
{
    return foe->rig->side[side].inst;
}

static int dead(const struct r2_inst *inst, int nic)
{
    enum ib_nic_state s = ib_nic_state_get(&inst->nics.nic[nic]);

    return s == IB_NIC_FATAL || s == IB_NIC_GONE;
}

/* --- what the plugins send --- */

static int side_of(const struct fuzz_foe *foe, const struct ibv_context *ctx, int *nic)
{
    for (int i = 0; i < 2; i++) {
        for (*nic = 0; *nic < inst_of(foe, i)->nics.count; ++*nic) {
            if (inst_of(foe, i)->nics.nic[*nic].ctx == ctx) {
                return i;
            }
        }
    }
    return -1;
}

static void keep(struct fuzz_foe *foe, int from, const struct ibv_send_wr *wr)
{
    unsigned i = foe->sent++ % FUZZ_FOE_KEPT;

    FUZZ_CHECK(wr->next == NULL && wr->num_sge == 1 && wr->opcode == IBV_WR_SEND_WITH_IMM);
    FUZZ_CHECK(wr->sg_list->length >= FO_RECORD_HEAD && wr->sg_list->length <= IB_INBAND_MESSAGE);
    foe->kept[i].from = from;
    foe->kept[i].len = wr->sg_list->length;
    memcpy(foe->kept[i].msg, (const void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
}

/* In place of the driver's, for all queue pairs. Those for messages are the ones with a shared
 * receive queue. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fuzz_foe *foe = foe_of;
    struct fuzz_in edit;
    uint8_t *msg;
    int nic, from = qp->srq ? side_of(foe, qp->context, &nic) : -1;

    if (from < 0) {
        return foe->true_post_send(qp, wr, bad);
    }
    keep(foe, from, wr);
    if (foe->change[from].left == 0) {
        return foe->true_post_send(qp, wr, bad);
    }
    foe->change[from].left--;
    msg = (uint8_t *)(uintptr_t)wr->sg_list->addr;
    switch (foe->change[from].how) {
    case FOE_CUT:
        wr->sg_list->length = foe->change[from].at % (wr->sg_list->length + 1);
        wr->num_sge = wr->sg_list->length > 0;
        break;
    case FOE_WORD:
        wr->imm_data = htobe32(foe->change[from].at);
        break;
    case FOE_NO_WORD:
        wr->opcode = IBV_WR_SEND;
        break;
    case FOE_TWICE:
        memcpy(fuzz_foe_mem(foe, from), msg, wr->sg_list->length);
        (void)fuzz_foe_go(foe, from, foe->change[from].at,
                          &(struct fuzz_foe_post){wr->sg_list->length, be32toh(wr->imm_data),
                                                  IBV_WR_SEND_WITH_IMM});
        break;
    case FOE_LONGER:
        wr->sg_list->length = IB_INBAND_MESSAGE + 1 + foe->change[from].at % IB_INBAND_MESSAGE;
        break;
    case FOE_VERSION:
        msg[1] ^= (uint8_t)(foe->change[from].at | 1);
        break;
    case FOE_EDIT:
        edit = (struct fuzz_in){foe->change[from].edit,
                                foe->change[from].edit + sizeof(foe->change[from].edit)};
        fuzz_edit(&edit, msg, wr->sg_list->length);
        break;
    default:
        break;
    }
    return foe->true_post_send(qp, wr, bad);
}

/* --- what it sends itself --- */

void fuzz_foe_init(struct fuzz_foe *foe, struct rig *rig, int nics)
{
    memset(foe, 0, sizeof(*foe));
    foe->rig = rig;
    foe_of = foe;
    for (int i = 0; i < 2; i++) {
        struct r2_inst *inst = inst_of(foe, i);

        FUZZ_CHECK(inst->nics.count == nics && nics <= FUZZ_FOE_NICS);
        foe->mem[i] = calloc(FUZZ_FOE_SLOTS, FUZZ_FOE_ROOM);
        FUZZ_CHECK(foe->mem[i] != NULL);
        for (int n = 0; n < nics; n++) {
            foe->mr[i][n] = inst->v.reg_mr(inst->nics.nic[n].pd, foe->mem[i],
                                           FUZZ_FOE_SLOTS * FUZZ_FOE_ROOM, 0);
            FUZZ_CHECK(foe->mr[i][n] != NULL);
            foe->true_post_send =
                inst->nics.nic[n].ctx->ops.post_send; /* one driver: the same for all */
        }
        for (int n = 0; n < nics; n++) {
            inst->nics.nic[n].ctx->ops.post_send = post_send;
        }
    }
}

uint8_t *fuzz_foe_mem(struct fuzz_foe *foe, int from)
{
    return foe->mem[from] + foe->turn % FUZZ_FOE_SLOTS * FUZZ_FOE_ROOM;
}

static struct r2_pair *pair_of(const struct fuzz_foe *foe, int side, unsigned n)
{
    struct r2_pair *first = inst_of(foe, side)->index.pairs, *pair = first;

    for (n %= 8; pair && n > 0; n--) {
        pair = pair->next ? pair->next : first;
    }
    return pair;
}

int fuzz_foe_go(struct fuzz_foe *foe, int from, unsigned n, const struct fuzz_foe_post *p)
{
    struct r2_pair *pair = pair_of(foe, from, n);
    struct ibv_sge sge = {.addr = (uintptr_t)fuzz_foe_mem(foe, from), .length = (uint32_t)p->len};
    /* no completion of it is the plugin's: no use of a buffer has this number */
    struct ibv_send_wr wr = {.wr_id = IB_INBAND_RECVS | 0xffffffffull << 32,
                             .opcode = p->opcode,
                             .imm_data = htobe32(p->word),
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = p->len > 0},
                       *bad;

    if (pair == NULL || pair->inband.qp == NULL || dead(pair->inst, pair->nic)) {
        return 0;
    }
    sge.lkey = foe->mr[from][pair->nic]->lkey;
    wr.wr.rdma.remote_addr = p->at;
    wr.wr.rdma.rkey = p->rkey;
    foe->turn++;
    if (foe->true_post_send(pair->inband.qp, &wr, &bad) != 0) {
        return 0;
    }
    foe->foreign++;
    return 1;
}

int fuzz_foe_means(const uint8_t *msg, size_t len)
{
    static union fo_body b;
    struct r2_reader r = {.p = msg, .end = msg + len};
    const char *why;

    return fo_unpack(&r, &b, &why) > 0;
}

/* --- what holds --- */

static unsigned owned(const struct ib_inband_pool *pool, uint32_t qpn)
{
    unsigned n = 0;

    for (int i = 0; i < IB_INBAND_SENDS; i++) {
        n += pool->owner[i] == qpn;
    }
    return n;
}

static void check_pair(const struct r2_inst *inst, const struct r2_pair *pair)
{
    const struct ib_inband_pool *pool = &inst->inband.pool[pair->nic];

    FUZZ_CHECK(pair->inband.out <= IB_INBAND_QP_SENDS);
    FUZZ_CHECK(pair->peer == NULL ||
               r2_peer_find((struct r2_inst *)inst, pair->peer->oob) == pair->peer);
    if (!(inst->inband.open >> pair->nic & 1)) {
        return;
    }
    FUZZ_CHECK(pair->job.busy || !pair->inband.up ||
               pair->inband.out == owned(pool, pair->inband.qpn));
    for (const struct r2_pair *other = pair->next; other; other = other->next) {
        FUZZ_CHECK(other->nic != pair->nic || other->carried.qpn == 0 ||
                   other->carried.qpn != pair->carried.qpn);
    }
}

void fuzz_foe_check(const struct fuzz_foe *foe)
{
    for (int i = 0; i < 2; i++) {
        const struct r2_inst *inst = inst_of(foe, i);

        for (const struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
            check_pair(inst, pair);
        }
        for (const struct r2_peer *peer = inst->index.peers; peer; peer = peer->next) {
            FUZZ_CHECK(peer->channel.deaf_until <=
                       rig_now(foe->rig) + 40 * RIG_MS * inst->cfg.t_repeat_ms);
        }
        for (int n = 0; n < inst->nics.count; n++) {
            FUZZ_CHECK(!inst->inband.pool[n].sick || dead(inst, n));
        }
    }
}

void fuzz_foe_check_idle(const struct fuzz_foe *foe)
{
    fuzz_foe_check(foe);
    for (int i = 0; i < 2; i++) {
        const struct r2_inst *inst = inst_of(foe, i);

        for (int n = 0; n < inst->nics.count; n++) {
            const struct ib_inband_pool *pool = &inst->inband.pool[n];

            if (!(inst->inband.open >> n & 1) || dead(inst, n)) {
                continue;
            }
            FUZZ_CHECK(((const struct fab_ibv_srq *)pool->srq)->m.rq.used == IB_INBAND_RECVS);
            FUZZ_CHECK(owned(pool, 0) == IB_INBAND_SENDS);
        }
    }
}

void fuzz_foe_end(struct fuzz_foe *foe)
{
    for (int i = 0; i < 2; i++) {
        struct r2_inst *inst = inst_of(foe, i);

        for (int n = 0; n < inst->nics.count; n++) {
            inst->nics.nic[n].ctx->ops.post_send = foe->true_post_send;
            if (!dead(inst, n)) {
                inst->v.dereg_mr(foe->mr[i][n]);
            }
        }
    }
}

void fuzz_foe_free(struct fuzz_foe *foe)
{
    free(foe->mem[0]);
    free(foe->mem[1]);
}
