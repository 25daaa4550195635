/*
 * Control messages over NICs (docs/control.md) from a hostile peer process. Two instances of
 * the plugin with a connection between them, whose channel stands, is cut, or stands still one way
 * or both; a program of messages over the queue pairs of their NIC pairs: bytes of any length, with
 * any word, none, as a write or a read; records, right ones changed; what was said before, again;
 * what the plugin itself sends, cut, changed, twice. Mixed with traffic, time, faults, loss and
 * return of the channel, queue pairs that break or are made anew with messages under way, processes
 * that stand still.
 *
 * First byte: the state to begin in, and whether anything is said but what the rules drop (garbage,
 * other versions, pieces, records of connections that do not exist) or know (facts that are heard
 * again, late or twice). If not, the connection must not notice: all messages come, whole and once,
 * no call fails, and a NIC to which nothing was done keeps its path. In any case numbers are
 * checked after each step, and at the end every buffer is back.
 */
#include "fuzz_flow.h"
#include "fuzz_foe.h"
#include "fuzz_word.h"

#include "plugin/probe/health/r2_pair_int.h"

#define TIME_MAX (60 * RIG_S) /* of a program */
#define LAST_NIC(r)                                                                                \
    ((r)->nics - 1) /* nothing is done to it where the connection must not notice                  \
                     */

struct run {
    struct fuzz_in in;
    struct rig *rig;
    struct fuzz_flow flow;
    struct fuzz_foe foe;
    unsigned state; /* first byte of the input */
    int nics, strict;
    uint8_t msg[FUZZ_FOE_ROOM]; /* records gathered for @to */
    size_t len;
    int to;
    int silent[2]; /* what the process says by the channel is lost, and nobody is told */
    uint64_t said; /* records, by both by the channel; messages over NICs */
};

static struct run *running;

static int filter(struct rig *rig, int from, int type, union fo_body *body)
{
    running->said++;
    return !running->silent[from];
}

static void check(struct run *r)
{
    fuzz_rig_check(r->rig, r->said + r->foe.sent);
    fuzz_foe_check(&r->foe);
    fuzz_flow_step(&r->flow);
    for (int i = 0; r->strict && i < 2; i++) {
        FUZZ_CHECK(ib_conn_up(&r->rig->side[i].comm->conn, LAST_NIC(r)));
    }
}

/* --- messages --- */

/* @len bytes from process @from, unless they mean something where they must not. */
static void say(struct run *r, int from, const uint8_t *msg, struct fuzz_foe_post p)
{
    unsigned pair = fuzz_u8(&r->in);

    if (r->strict && p.opcode != IBV_WR_RDMA_WRITE && fuzz_foe_means(msg, p.len)) {
        return;
    }
    memcpy(fuzz_foe_mem(&r->foe, from), msg, p.len);
    (void)fuzz_foe_go(&r->foe, from, pair, &p);
}

static uint32_t word(struct fuzz_in *in)
{
    unsigned how = fuzz_u8(in);

    return how < 96    ? 0
           : how < 192 ? 1 /* it hears nothing by the channel */
                       : (uint32_t)fuzz_number(in);
}

/* Bytes of the input, or few of them as often as it takes. */
static void op_raw(struct run *r)
{
    static const uint16_t hard[] = {0,    1,    3,    4,    5,    1020, 1023, 1024,
                                    1025, 1026, 1500, 2047, 2048, 16,   64,   512};
    static const enum ibv_wr_opcode opcode[] = {IBV_WR_SEND_WITH_IMM,       IBV_WR_SEND_WITH_IMM,
                                                IBV_WR_SEND_WITH_IMM,       IBV_WR_SEND,
                                                IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE,
                                                IBV_WR_RDMA_READ,           IBV_WR_SEND_WITH_IMM};
    unsigned how = fuzz_u8(&r->in), what = fuzz_u8(&r->in);
    struct fuzz_foe_post p = {
        .word = word(&r->in), .opcode = opcode[what & 7], .len = hard[what >> 4]};
    const struct ib_inband_pool *pool = &r->rig->side[!(how & 1)].inst->inband.pool[0];
    uint8_t msg[FUZZ_FOE_ROOM] = {0};
    const uint8_t *b;
    size_t n = fuzz_bytes(&r->in, how & 2 ? how >> 2 : 4, &b);

    for (size_t i = 0; n && i < sizeof(msg); i++) {
        msg[i] = b[i % n];
    }
    p.len = how & 2 ? n : p.len;
    if (p.opcode == IBV_WR_RDMA_WRITE || p.opcode == IBV_WR_RDMA_READ ||
        p.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        p.at = (uintptr_t)pool->mem;
        p.rkey = pool->mr ? pool->mr->rkey : 0;
    }
    say(r, how & 1, msg, p);
}

/* A right record, by a process that is not to be believed; where nothing may be meant: of a
 * connection that does not exist. */
static void op_say(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    uint8_t rec[FO_MAX_RECORD];
    int to;
    size_t n = fuzz_word_say(&r->in, r->rig, &to, rec);

    if (r->strict) {
        int type = rec[0];

        if (n < FO_RECORD_HEAD + 8 || type == FO_MSG_REQ ||
            (type != FO_MSG_REP && type < FO_MSG_CONF) ||
            (type > FO_MSG_READY && type < FO_MSG_DOWN) || type == FO_MSG_PROBE ||
            (type >= FO_MSG_DRAIN && type <= FO_MSG_DRAIN_OK) ||
            (type >= FO_MSG_REPORT && type <= FO_MSG_LOAD)) {
            return;
        }
        memset(rec + FO_RECORD_HEAD, 0xf1, 8); /* dst, src */
    }
    if (to != r->to || r->len + n > sizeof(r->msg)) {
        r->len = 0; /* half a list is lost */
    }
    r->to = to;
    memcpy(r->msg + r->len, rec, n);
    r->len += n;
    if (how & 1) {
        struct fuzz_foe_post p = {
            .len = r->len, .word = word(&r->in), .opcode = IBV_WR_SEND_WITH_IMM};

        memcpy(fuzz_foe_mem(&r->foe, !to), r->msg, r->len);
        (void)fuzz_foe_go(&r->foe, !to, how >> 1, &p);
        r->len = 0;
    }
}

/* What was said before, by the channel or over a NIC, once more: facts, all of them. */
static void op_again(struct run *r)
{
    unsigned how = fuzz_u8(&r->in), which = (unsigned)fuzz_get(&r->in, 2);
    struct fuzz_foe_post p = {.word = word(&r->in), .opcode = IBV_WR_SEND_WITH_IMM};
    uint8_t rec[FO_MAX_RECORD];
    int from;

    if (how & 1 && r->foe.sent) {
        unsigned i = which % (r->foe.sent < FUZZ_FOE_KEPT ? (unsigned)r->foe.sent : FUZZ_FOE_KEPT);

        from = r->foe.kept[i].from;
        p.len = r->foe.kept[i].len;
        memcpy(rec, r->foe.kept[i].msg, p.len);
    } else {
        const struct rig_sent *s = &r->rig->sent[which % r->rig->sent_count];

        from = s->from;
        p.len = fo_pack((enum fo_type)s->type, &s->body, rec, sizeof(rec));
    }
    if (!r->strict && how & 2) {
        fuzz_edit(&r->in, rec, p.len);
    }
    if (!r->strict && how & 4) {
        from = !from;
    }
    p.len = how & 8 ? p.len - p.len * (how >> 4) / 16 : p.len; /* half of it */
    memcpy(fuzz_foe_mem(&r->foe, from), rec, p.len);
    (void)fuzz_foe_go(&r->foe, from, how >> 4, &p);
}

static void op_change(struct run *r)
{
    unsigned how = fuzz_u8(&r->in), from = how & 1;

    r->foe.change[from].how = (enum fuzz_foe_how)((how >> 1) % FOE_HOWS);
    r->foe.change[from].left = how >> 4;
    r->foe.change[from].at = (uint16_t)fuzz_get(&r->in, 2);
    if (r->foe.change[from].how != FOE_EDIT) {
        return;
    }
    if (r->strict) {
        r->foe.change[from].how = FOE_AS_IS;
    }
    for (unsigned i = 0; i < sizeof(r->foe.change[from].edit); i++) {
        r->foe.change[from].edit[i] = fuzz_u8(&r->in);
    }
}

/* --- the rest of the world --- */

static void op_run(struct run *r)
{
    static const uint64_t steps[] = {RIG_US,       10 * RIG_US, 100 * RIG_US, RIG_MS,
                                     3 * RIG_MS,   10 * RIG_MS, 40 * RIG_MS,  6 * RIG_MS,
                                     100 * RIG_MS, 10 * RIG_MS, 200 * RIG_MS, RIG_S,
                                     20 * RIG_MS,  2 * RIG_S,   400 * RIG_MS, 5 * RIG_S};
    uint64_t step = steps[fuzz_u8(&r->in) & 15];

    if (rig_now(r->rig) + step > TIME_MAX) {
        step = RIG_US;
    }
    fuzz_flow_run(&r->flow, step);
}

static void op_traffic(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);

    for (unsigned i = 0; i <= (how & 3); i++) {
        fuzz_flow_post(&r->flow, how & 4 ? FUZZ_FLOW_ROOM : (size_t)how * i);
    }
    r->rig->side[1].asleep = how >> 7;
    fuzz_flow_run(&r->flow, how & 8 ? 100 * RIG_US : 4 * RIG_US);
}

static void op_fault(struct run *r)
{
    static const char *const faults[] = {
        "h0:n0 down",      "h0:n0 up",     "h1:n0 down",      "h1:n0 up",
        "h0:n0 blackhole", "h0:n0 clear",  "h1:n0 qp-error",  "h0:n0 qp-error",
        "*:n0 ack-lost",   "*:n0 restore", "h1:n0 blackhole", "h1:n0 restore",
        "h1:n1 down",      "*:* restore",  "h0:n1 qp-error",  "h1:n1 blackhole"};
    unsigned n = fuzz_u8(&r->in) & (r->strict ? 7 : 15);

    rig_fault(r->rig, faults[n]);
}

static void op_channel(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);

    if ((how & 3) == 3) {
        rig_oob_cut(r->rig, how >> 2 & 1);
    } else {
        r->silent[how & 1] = how >> 2 & 1;
    }
}

/* A process stands still, or goes on; a pair is made anew with what is under way on its queue pair.
 */
static void op_incarnation(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    struct rig_side *s = &r->rig->side[how & 1];

    if (how & 2) {
        s->still = how >> 2 & 1;
        rig_kick(s);
        return;
    }
    for (struct r2_pair *p = s->inst->index.pairs; p; p = p->next) {
        if (p->nic == (how >> 2) % (unsigned)r->nics && r2_pair_ready(p)) {
            rig_enter(s);
            r2_pair_rebuild(p);
            rig_kick(s);
        }
    }
}

/* --- begin and end --- */

static int pairs_up(struct rig *rig)
{
    int n = 0;

    for (int i = 0; i < 2; i++) {
        for (struct r2_pair *p = rig->side[i].inst->index.pairs; p; p = p->next) {
            if (p->build.plain) {
                continue;
            }
            if (!r2_pair_ready(p) || !p->inband.up) {
                return 0;
            }
            n++;
        }
    }
    return n == 2 * rig->side[0].inst->nics.count;
}

static void begin(struct run *r)
{
    static const char *const options[] = {"NCCL_R2_INBAND=on", "NCCL_R2_GIVE_UP=1000000",
                                          "NCCL_R2_T_RETURN=2", "NCCL_R2_T_PACKET=20", NULL};

    unsigned state = r->state = fuzz_u8(&r->in);

    r->strict = state & 1;
    r->nics = state & 2 ? 3 : 2;
    r->rig = rig_create(r->nics, 0, options);
    r->rig->hostile = 1;
    r->rig->filter = filter;
    fuzz_foe_init(&r->foe, r->rig, r->nics);
    rig_connect(r->rig, 0, 0);
    fuzz_flow_init(&r->flow, r->rig, r->strict);
    fuzz_flow_post(&r->flow, 64);
    FUZZ_CHECK(rig_until(r->rig, pairs_up, RIG_S));
    fuzz_flow_step(&r->flow);
    switch (state >> 2 & 3) {
    case 1:
        rig_oob_cut(r->rig, 1);
        break;
    case 2:
        r->silent[0] = r->silent[1] = 1;
        break;
    case 3:
        r->silent[state >> 4 & 1] = 1;
        break;
    default:
        break;
    }
    if (state & 32) { /* a failure that is settled over NICs while the messages come, unless the
                         channel stands */
        r->rig->side[1].asleep = 1;
        for (int i = 0; i < 4; i++) {
            fuzz_flow_post(&r->flow, 500);
        }
        fuzz_flow_run(&r->flow, 20 * RIG_US);
        rig_fault(r->rig, "h0:n0 down");
        r->rig->side[1].asleep = 0;
    }
}

static void heal(struct run *r)
{
    memset(r->silent, 0, sizeof(r->silent));
    memset(r->foe.change, 0, sizeof(r->foe.change));
    rig_oob_cut(r->rig, 0);
    rig_fault(r->rig, "*:* restore");
    rig_fault(r->rig, "*:* clear");
    for (int i = 0; i < 2; i++) {
        r->rig->side[i].asleep = r->rig->side[i].still = 0;
        rig_kick(&r->rig->side[i]);
    }
}

/* One end closes while the other one's messages are under way: they arrive when nobody is there any
 * more whom they could come from. */
static void close_under_messages(struct run *r)
{
    struct fuzz_foe_post p = {.word = 1, .opcode = IBV_WR_SEND_WITH_IMM};
    int side = r->state >> 6 & 1;

    rig_close(r->rig, side);
    for (unsigned i = 0; i < 160; i++) {
        p.len = r->state & 128 && i == 40 ? FUZZ_FOE_ROOM : i;
        memset(fuzz_foe_mem(&r->foe, !side), 0xff, p.len);
        (void)fuzz_foe_go(&r->foe, !side, i, &p);
        rig_turn(r->rig, RIG_US / 8);
        fuzz_foe_check(&r->foe);
    }
    rig_close(r->rig, !side);
}

static void finish(struct run *r)
{
    heal(r);
    for (int i = 0; i < 40 && r->strict && !fuzz_flow_done(&r->flow); i++) {
        fuzz_flow_run(&r->flow, i < 20 ? 10 * RIG_MS : 500 * RIG_MS);
    }
    FUZZ_CHECK(!r->strict || fuzz_flow_done(&r->flow));
    check(r);
    fuzz_flow_run(&r->flow, 8 * RIG_S); /* messages into the void end: three times RC's time-out,
                                           and those behind them */
    check(r);
    fuzz_foe_check_idle(&r->foe);
    fuzz_flow_end(&r->flow);
    close_under_messages(r);
    fuzz_rig_run(r->rig, 8 * RIG_S);
    fuzz_foe_check_idle(&r->foe);
    fuzz_foe_end(&r->foe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ops[])(struct run *) = {
        op_raw, op_run,   op_say,     op_again, op_raw,         op_traffic, op_run, op_change,
        op_say, op_fault, op_channel, op_again, op_incarnation, op_run,     op_raw, op_traffic};
    struct run *r = calloc(1, sizeof(*r));

    FUZZ_CHECK(r != NULL);
    running = r;
    r->in = (struct fuzz_in){data, data + size};
    begin(r);
    while (fuzz_more(&r->in)) {
        ops[fuzz_pick(&r->in, sizeof(ops) / sizeof(ops[0]))](r);
        check(r);
    }
    finish(r);
    r->rig->filter = NULL;
    fuzz_rig_destroy(r->rig);
    fuzz_flow_free(&r->flow);
    fuzz_foe_free(&r->foe);
    free(r);
    return 0;
}
