/*
 * Control records from a hostile peer process. First byte 0: fo_unpack() and fo_pack() alone. Else two instances of the
 * plugin on the in-process fabric with a connection between them, brought into a state (set-up, open, failed over,
 * returning, closing), and a program of records to either of them, mixed with traffic, faults, time and close. A record
 * begins as a right one for the state that its receiver is in; then some of its fields, or bytes, are others. Beside
 * the sanitizers the numbers of every connection are checked after each step: that nothing from a peer became an index
 * or a bound.
 */
#include "fuzz_rig.h"

#include "plugin/r2_log.h"
#include "plugin/r2_pair.h"

#define MEM      16384
#define TIME_MAX (150 * RIG_S) /* of a program: a second costs milliseconds */
#define SAID_MIN 20000         /* records that may be said at once, and per ms */
#define SAID_MS  20

struct run {
    struct fuzz_in in;
    struct rig *rig;
    uint8_t *mem[2];
    struct ib_mr *mr[2];
    uint8_t msg[16384]; /* records gathered for @to */
    size_t len;
    int to;
    uint32_t drop[2]; /* bit per type: records that process 0, 1 says in vain */
    uint64_t said;    /* records, by both */
};

static struct run *running;

/* --- the bytes alone --- */

/* What was understood can be said, and is then understood alike. */
static void unpack_run(struct fuzz_in *in)
{
    static union fo_body a, b;
    static uint8_t one[FO_MAX_RECORD], two[FO_MAX_RECORD];
    struct r2_reader r = {.p = in->p, .end = in->end};
    const char *why = NULL;
    int type;

    while ((memset(&a, 0, sizeof(a)), type = fo_unpack(&r, &a, &why)) > 0) {
        size_t n = fo_pack((enum fo_type)type, &a, one, sizeof(one));
        struct r2_reader again = {.p = one, .end = one + n};

        FUZZ_CHECK(n > 0);
        memset(&b, 0, sizeof(b));
        FUZZ_CHECK(fo_unpack(&again, &b, &why) == type && again.p == again.end);
        FUZZ_CHECK(fo_pack((enum fo_type)type, &b, two, sizeof(two)) == n && memcmp(one, two, n) == 0);
    }
    FUZZ_CHECK(type == 0 || why != NULL);
}

/* --- what holds in every state --- */

static void check_send(const struct r2_comm *c)
{
    const struct ib_send *tx = c->tx;

    FUZZ_CHECK(tx->sack <= tx->unmatched && tx->group <= tx->unmatched && tx->group <= tx->cts_seen);
    FUZZ_CHECK(tx->cts_seen - tx->group <= R2_LEDGER_WINDOW && tx->sposted <= tx->cts_seen);
    FUZZ_CHECK(tx->ring_hot < c->link.npaths);
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        const struct ib_smsg *m = &tx->msg[i];
        unsigned out = 0;

        if (!m->busy)
            continue;
        FUZZ_CHECK(m->nparts >= 1 && m->nparts <= R2_MAX_PARTS && !((m->unposted | m->ledger) >> m->nparts));
        for (unsigned k = 0; k < m->nparts; k++) {
            FUZZ_CHECK(m->part[k].path < c->link.npaths);
            out += m->part[k].wr_out;
        }
        FUZZ_CHECK(out == m->wrs_out);
    }
}

static void check_recv(const struct r2_comm *c)
{
    const struct r2_ledger *g = &c->rx->ledger;

    FUZZ_CHECK(g->rdone <= g->acked && g->acked <= g->rpost && g->rpost - g->rdone <= R2_LEDGER_WINDOW);
    FUZZ_CHECK(c->rx->ctl_path < c->link.npaths || c->rx->ctl_path == IB_MAX_PATHS);
}

static void check_comm(const struct r2_comm *c)
{
    int setup = atomic_load(&c->setup);

    FUZZ_CHECK(c->link.npaths >= 0 && c->link.npaths <= IB_MAX_PATHS && setup >= 0 && setup < R2_SETUP_COUNT);
    FUZZ_CHECK(!(c->link.up >> c->link.npaths));
    for (int p = 0; p < c->link.npaths; p++) {
        const struct ib_path *path = &c->link.path[p];

        FUZZ_CHECK(path->index == p && path->nic < c->inst->nics.count && path->peer_nic < IB_MAX_NICS);
        FUZZ_CHECK(c->ret[p].state < R2_RET_COUNT && path->sq_used <= path->sq_depth);
        FUZZ_CHECK(!ib_link_up(&c->link, p) || c->fo.path[p].state == FO_UP);
        FUZZ_CHECK(!ib_link_up(&c->link, p) || (path->qp && path->cq && path->open));
    }
    if (setup == R2_SETUP_DONE && c->is_send)
        check_send(c);
    else if (setup == R2_SETUP_DONE)
        check_recv(c);
}

static void check(struct run *r)
{
    for (int i = 0; i < 2; i++) {
        struct r2_inst *inst = r->rig->side[i].inst;

        for (struct r2_comm *c = r2_comm_first(inst); c; c = c->all_next)
            check_comm(c);
        for (struct r2_pair *p = inst->pairs; p; p = p->next)
            FUZZ_CHECK(p->nic < inst->nics.count && p->peer_nic < IB_MAX_NICS && p->state < R2_PAIR_STATES);
    }
    /* whatever was said to them, two processes must not answer each other for ever */
    FUZZ_CHECK(r->said <= SAID_MIN + SAID_MS * (rig_now(r->rig) / RIG_MS));
}

/* --- records --- */

static const struct rig_sent *last_sent(const struct run *r, int from, int type)
{
    for (unsigned i = r->rig->sent_count; i-- > 0;) {
        if (r->rig->sent[i].from == from && r->rig->sent[i].type == type)
            return &r->rig->sent[i];
    }
    return NULL;
}

static struct r2_comm *pick_comm(struct run *r, int side, unsigned n)
{
    struct r2_comm *c = r->rig->side[side].comm;

    if (c && n == 0)
        return c;
    for (c = r2_comm_first(r->rig->side[side].inst); c && n > 1 && c->all_next; n--)
        c = c->all_next;
    return c;
}

/* Whom and what life it is about. */
struct about {
    uint32_t dst, src, life;
    uint8_t path;
};

static void fill_addr(const struct run *r, int from, struct ib_path_addr *a)
{
    if (a->port.mtu == 0) {
        ib_nic_addr_get(&r->rig->side[from].inst->nics, 0, &a->port);
        a->qpn = 77;
        a->psn = 1;
    }
}

static void fill_life(struct run *r, int to, int type, const struct r2_comm *c, const struct about *w, union fo_body *b)
{
    struct fuzz_in *in = &r->in;

    switch (type) {
    case FO_MSG_DOWN:
        b->down = (struct fo_down){w->dst, w->src, w->life, w->path, IB_FAULT_PORT, fuzz_u8(in), 0};
        break;
    case FO_MSG_FENCED:
    case FO_MSG_BYE:
        b->fenced =
            (struct fo_fenced){.dst = w->dst, .src = w->src, .life = w->life, .path = w->path, .flags = fuzz_u8(in)};
        b->fenced.acked = b->fenced.base = c && c->is_send && c->tx ? c->tx->sack : fuzz_u8(in);
        b->fenced.n = (uint16_t)fuzz_pick(in, 7);
        b->fenced.n = b->fenced.n == 6 ? R2_LEDGER_WINDOW : b->fenced.n;
        for (int i = 0; i < b->fenced.n && i < 6; i++)
            b->fenced.mask[i] = (uint16_t)fuzz_get(in, 2);
        break;
    case FO_MSG_SETTLED:
        b->settled = (struct fo_settled){w->dst, w->src, w->life, w->path, fuzz_u8(in) & FO_FLAG_SOFT};
        break;
    case FO_MSG_SUSPECT:
        b->suspect = (struct fo_suspect){.dst = w->dst, .src = w->src, .life = w->life, .path = w->path, .mask = 1};
        b->suspect.seq = c && !c->is_send && c->rx ? c->rx->ledger.acked + (fuzz_u8(in) & 3) : 0;
        break;
    case FO_MSG_WANT:
        b->want = (struct fo_want){.dst = w->dst, .src = w->src};
        b->want.seq = c && !c->is_send && c->rx ? c->rx->ledger.rdone + (fuzz_u8(in) & 7) : 0;
        break;
    case FO_MSG_FAILBACK:
    case FO_MSG_FAILBACK_OK:
        b->failback = (struct fo_failback){.dst = w->dst, .src = w->src, .life = w->life, .path = w->path};
        break;
    default: /* OPEN, OPEN_OK, OPEN_UP */
        b->open.dst = w->dst;
        b->open.src = w->src;
        b->open.life = w->life;
        b->open.path = w->path;
        fill_addr(r, !to, &b->open.addr);
    }
}

/* Of one of the NICs of process @from, of a path between two, or of a process. */
static void fill_word(const struct run *r, int from, unsigned how, struct probe_word *w)
{
    const struct ib_nic *nic = r->rig->side[from].inst->nics.nic;

    memset(w, 0, sizeof(*w));
    w->subject = how & 1   ? (struct probe_subject){.a = nic[0].guid, .pa = nic[0].port}
                 : how & 2 ? (struct probe_subject){1, UINT64_MAX, 1, 1}
                           : (struct probe_subject){1, 2, PROBE_NEWS_PROCESS, PROBE_NEWS_PROCESS};
    w->version = 1 + (how >> 2 & 7);
    w->origin = how >> 5;
    w->blame = how >> 6 ? PROBE_BLAME_LOCAL_NIC : PROBE_BLAME_NONE;
    snprintf(w->nic, sizeof(w->nic), "%.*s", (int)sizeof(w->nic) - 1, nic[0].name);
}

/* A record of @type that the peer of process @to could say now: what it said last, brought up to date. */
static void truth(struct run *r, int to, int type, unsigned how, union fo_body *b)
{
    const struct rig_sent *s = last_sent(r, !to, type);
    struct r2_comm *c = pick_comm(r, to, how & 3);
    struct about w = {.path = (uint8_t)(how >> 2 & 1)};
    struct probe_word word;

    memset(b, 0, sizeof(*b));
    if (s)
        *b = s->body;
    if (c) {
        w.dst = c->id;
        w.src = c->fo.peer;
        w.life = c->link.path[w.path].life + (how >> 3 & 1);
    }
    switch (type) {
    case FO_MSG_REQ:
        b->req.src += how >> 4;
        break;
    case FO_MSG_NIC_DOWN:
    case FO_MSG_NIC_DOWN_OK:
        b->nic_down =
            (struct fo_nic_down){.nic = w.path, .reason = 3, .gen = r->rig->side[!to].inst->nics.nic[0].generation + 1};
        break;
    case FO_MSG_DRAIN:
    case FO_MSG_DRAIN_OK:
        b->drain = (struct fo_drain){.nics = how >> 3 & 3, .gen = r->rig->side[to].inst->drain_gen + (how >> 5)};
        break;
    case FO_MSG_PROBE:
        fill_addr(r, !to, &b->probe.addr);
        b->probe.inc += !b->probe.inc + (how >> 3 & 1);
        break;
    case FO_MSG_NEWS:
        fill_word(r, !to, how, &b->news);
        break;
    case FO_MSG_NEWS_OK:
        fill_word(r, !to, how, &word);
        b->news_ok = (struct fo_news_ok){word.subject, word.version, word.origin};
        break;
    case FO_MSG_LOCATE:
        b->locate =
            (struct fo_locate){.nic = w.path, .peer_nic = w.path, .flags = how >> 3 & 3, .id = 1, .for_id = how >> 5};
        b->locate.end = (struct probe_end){PROBE_PORT_DOWN, PROBE_OK, PROBE_TIMEOUT, 1};
        b->locate.n_aux = 1;
        b->locate.aux[0] = (struct fo_locate_aux){1, 1, PROBE_TIMEOUT};
        break;
    case FO_MSG_LOAD:
        b->load.flags = how >> 3 & FO_LOAD_ASK;
        b->load.moved += how;
        b->load.at += how;
        break;
    case FO_MSG_RATES:
        b->rates.dst = w.dst;
        b->rates.src = w.src;
        b->rates.npaths = c ? (uint8_t)c->link.npaths : 1;
        for (int i = 0; i < b->rates.npaths; i++) {
            b->rates.port[i] ^= 1u << (how & 31);
        }
        break;
    case FO_MSG_REP:
    case FO_MSG_CONF:
    case FO_MSG_READY:
    case FO_MSG_REFUSE:
    case FO_MSG_BYE_OK:
    case FO_MSG_GONE: /* all begin with these two */
        b->ready.dst = w.dst;
        b->ready.src = w.src ? w.src : b->ready.src;
        break;
    default:
        fill_life(r, to, type, c, &w, b);
    }
}

static void flush(struct run *r)
{
    if (r->len)
        rig_inject_bytes(r->rig, r->to, r->msg, r->len);
    r->len = 0;
}

static void gather(struct run *r, int to, const uint8_t *b, size_t n)
{
    if (to != r->to || r->len + n > sizeof(r->msg))
        flush(r);
    r->to = to;
    memcpy(r->msg + r->len, b, n);
    r->len += n;
}

/* The fields that become an index, a bound, a number of a life or an address somewhere. */
#define FIELD(type, member)                                                                                            \
    {                                                                                                                  \
        type, offsetof(union fo_body, member), sizeof(((union fo_body *)0)->member)                                    \
    }
static const struct {
    int type;
    size_t at, len;
} fields[] = {
    FIELD(FO_MSG_REQ, req.dev),
    FIELD(FO_MSG_REQ, req.nnics),
    FIELD(FO_MSG_REQ, req.listen),
    FIELD(FO_MSG_REQ, req.nic[1].rail),
    FIELD(FO_MSG_REQ, req.nic[1].usable),
    FIELD(FO_MSG_REQ, req.traffic_class),
    FIELD(FO_MSG_REP, rep.npaths),
    FIELD(FO_MSG_REP, rep.rq_depth),
    FIELD(FO_MSG_REP, rep.path[0].s_nic),
    FIELD(FO_MSG_REP, rep.path[1].s_nic),
    FIELD(FO_MSG_REP, rep.path[1].r_nic),
    FIELD(FO_MSG_REP, rep.path[1].ok),
    FIELD(FO_MSG_REP, rep.src),
    FIELD(FO_MSG_CONF, conf.npaths),
    FIELD(FO_MSG_CONF, conf.path[0].ok),
    FIELD(FO_MSG_CONF, conf.path[1].addr.port.mtu),
    FIELD(FO_MSG_CONF, conf.path[0].addr.ring_addr),
    FIELD(FO_MSG_READY, ready.up),
    FIELD(FO_MSG_NIC_DOWN, nic_down.nic),
    FIELD(FO_MSG_NIC_DOWN, nic_down.gen),
    FIELD(FO_MSG_NIC_DOWN_OK, nic_down.nic),
    FIELD(FO_MSG_DOWN, down.path),
    FIELD(FO_MSG_DOWN, down.life),
    FIELD(FO_MSG_FENCED, fenced.path),
    FIELD(FO_MSG_FENCED, fenced.n),
    FIELD(FO_MSG_FENCED, fenced.acked),
    FIELD(FO_MSG_FENCED, fenced.base),
    FIELD(FO_MSG_BYE, fenced.n),
    FIELD(FO_MSG_BYE, fenced.acked),
    FIELD(FO_MSG_BYE, fenced.base),
    FIELD(FO_MSG_SETTLED, settled.path),
    FIELD(FO_MSG_SETTLED, settled.life),
    FIELD(FO_MSG_PROBE, probe.nic),
    FIELD(FO_MSG_PROBE, probe.peer_nic),
    FIELD(FO_MSG_PROBE, probe.inc),
    FIELD(FO_MSG_PROBE, probe.for_inc),
    FIELD(FO_MSG_PROBE, probe.flags),
    FIELD(FO_MSG_OPEN, open.path),
    FIELD(FO_MSG_OPEN, open.life),
    FIELD(FO_MSG_OPEN, open.addr.qpn),
    FIELD(FO_MSG_OPEN_OK, open.path),
    FIELD(FO_MSG_OPEN_OK, open.life),
    FIELD(FO_MSG_OPEN_OK, open.addr.ring_addr),
    FIELD(FO_MSG_OPEN_UP, open.path),
    FIELD(FO_MSG_OPEN_UP, open.life),
    FIELD(FO_MSG_SUSPECT, suspect.path),
    FIELD(FO_MSG_SUSPECT, suspect.mask),
    FIELD(FO_MSG_SUSPECT, suspect.seq),
    FIELD(FO_MSG_DRAIN, drain.nics),
    FIELD(FO_MSG_DRAIN, drain.gen),
    FIELD(FO_MSG_DRAIN_OK, drain.gen),
    FIELD(FO_MSG_WANT, want.seq),
    FIELD(FO_MSG_NEWS, news.origin),
    FIELD(FO_MSG_NEWS_OK, news_ok.origin),
    FIELD(FO_MSG_LOCATE, locate.flags),
    FIELD(FO_MSG_LOCATE, locate.id),
    FIELD(FO_MSG_LOCATE, locate.for_id),
    FIELD(FO_MSG_LOCATE, locate.end.aux_n),
    FIELD(FO_MSG_LOAD, load.nic),
    FIELD(FO_MSG_LOAD, load.peer_nic),
    FIELD(FO_MSG_LOAD, load.flags),
    FIELD(FO_MSG_LOAD, load.moved),
    FIELD(FO_MSG_LOAD, load.queued),
    FIELD(FO_MSG_LOAD, load.age),
    FIELD(FO_MSG_LOAD, load.rate),
    FIELD(FO_MSG_LOAD, load.at),
    FIELD(FO_MSG_FAILBACK, failback.path),
    FIELD(FO_MSG_FAILBACK, failback.life),
    FIELD(FO_MSG_FAILBACK_OK, failback.path),
    FIELD(FO_MSG_FAILBACK_OK, failback.life),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void twist(struct fuzz_in *in, int type, union fo_body *b)
{
    unsigned n = 0, want = fuzz_u8(in);
    uint64_t v = fuzz_number(in); /* little endian: its first bytes */

    for (unsigned i = 0; i < FIELDS; i++)
        n += fields[i].type == type;
    for (unsigned i = 0; n && i < FIELDS; i++) {
        if (fields[i].type == type && want-- % n == 0) {
            memcpy((uint8_t *)b + fields[i].at, &v, fields[i].len);
            return;
        }
    }
}

/* Kept inputs mean what they did when the last type was WANT: later ones have the places in which the first ones came
 * again. */
static const uint8_t say_types[32] = {
    FO_MSG_REQ,  FO_MSG_REP,     FO_MSG_CONF,    FO_MSG_READY,   FO_MSG_REFUSE, FO_MSG_NIC_DOWN, FO_MSG_NIC_DOWN_OK,
    FO_MSG_DOWN, FO_MSG_FENCED,  FO_MSG_SETTLED, FO_MSG_BYE,     FO_MSG_BYE_OK, FO_MSG_GONE,     FO_MSG_PROBE,
    FO_MSG_OPEN, FO_MSG_OPEN_OK, FO_MSG_OPEN_UP, FO_MSG_SUSPECT, FO_MSG_DRAIN,  FO_MSG_DRAIN_OK, FO_MSG_WANT,
    FO_MSG_NEWS, FO_MSG_NEWS_OK, FO_MSG_LOCATE,  FO_MSG_LOAD,    FO_MSG_FAILBACK, FO_MSG_FAILBACK_OK, FO_MSG_NIC_DOWN_OK,
    FO_MSG_DOWN, FO_MSG_FENCED,  FO_MSG_SETTLED, FO_MSG_BYE,
};

static void op_say(struct run *r)
{
    static union fo_body b;
    uint8_t rec[FO_MAX_RECORD];
    unsigned what = fuzz_u8(&r->in), how = fuzz_u8(&r->in), edits = what >> 6;
    int type = say_types[what & 31], to = what >> 5 & 1;
    size_t n;

    truth(r, to, type, how, &b);
    if (edits == 1 || edits == 2)
        twist(&r->in, type, &b);
    n = fo_pack((enum fo_type)type, &b, rec, sizeof(rec));
    FUZZ_CHECK(n > 4);
    for (unsigned i = 1; i < edits; i++)
        fuzz_edit(&r->in, rec + 4, n - 4);
    gather(r, to, rec, n);
}

/* What was said before, changed or not. */
static void op_again(struct run *r)
{
    uint8_t rec[FO_MAX_RECORD];
    unsigned how = fuzz_u8(&r->in);
    const struct rig_sent *s;
    size_t n;

    if (r->rig->sent_count == 0)
        return;
    s = &r->rig->sent[fuzz_get(&r->in, 2) % r->rig->sent_count];
    n = fo_pack((enum fo_type)s->type, &s->body, rec, sizeof(rec));
    for (unsigned i = 0; i < (how >> 1 & 3); i++)
        fuzz_edit(&r->in, rec + 4, n - 4);
    gather(r, how & 1 ? s->from : !s->from, rec, n);
}

static void op_raw(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    const uint8_t *b;
    size_t n = fuzz_bytes(&r->in, how >> 1, &b);

    flush(r);
    rig_inject_bytes(r->rig, how & 1, n ? b : (const uint8_t *)"", n);
}

/* --- the rest of the world --- */

static int filter(struct rig *rig, int from, int type, union fo_body *body)
{
    running->said++;
    return !(running->drop[from] >> type & 1);
}

static void op_run(struct run *r)
{
    static const uint64_t steps[] = {RIG_US,      10 * RIG_US, 100 * RIG_US, RIG_MS,       3 * RIG_MS,  10 * RIG_MS,
                                     40 * RIG_MS, 10 * RIG_US, RIG_MS,       200 * RIG_MS, 10 * RIG_MS, RIG_S,
                                     RIG_US,      40 * RIG_MS, 6 * RIG_S,    100 * RIG_S};
    uint64_t step;
    int done;

    flush(r);
    if (r->rig->side[0].comm == NULL && r->rig->listen && r->rig->handle[0])
        (void)rig_connect_turn(r->rig, 0, &done);
    step = steps[fuzz_u8(&r->in) & 15];
    if (rig_now(r->rig) + step > TIME_MAX)
        step = RIG_US;
    fuzz_rig_run(r->rig, step);
}

static void op_fault(struct run *r)
{
    static const char *const faults[] = {"h0:n0 down",      "h0:n0 up",         "h1:n1 down",     "h1:n1 up",
                                         "h0:n1 blackhole", "h0:n1 up",         "h0:n0 hang",     "h0:n0 restore",
                                         "h1:n0 fatal",     "h1:n1 qp-error",   "h1:n0 ack-lost", "*:* restore",
                                         "h0:n0 down",      "h0:n0 gid-change", "h0:n1 down",     "h1:n0 blackhole"};

    flush(r);
    rig_fault(r->rig, faults[fuzz_u8(&r->in) & 15]);
}

static void reg(struct run *r, int side)
{
    if (r->rig->side[side].comm && r->mr[side] == NULL)
        r->mr[side] = rig_reg(r->rig, side, r->mem[side], MEM);
}

static void op_traffic(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    size_t size = how & 4 ? MEM : 64;

    reg(r, 0);
    reg(r, 1);
    for (unsigned i = 0; i <= how >> 6; i++) {
        if (how & 1 && r->mr[1] && r->rig->side[1].tail - r->rig->side[1].head < 64)
            rig_irecv1(r->rig, r->mem[1], size, 0, r->mr[1]);
        if (how & 2 && r->mr[0] && r->rig->side[0].tail - r->rig->side[0].head < 64)
            rig_isend(r->rig, r->mem[0], size, 0, r->mr[0]);
        rig_run(r->rig, how & 8 ? 20 * RIG_US : RIG_US);
    }
    r->rig->side[1].asleep = how >> 4 & 1;
}

static void end(struct run *r, int side)
{
    if (r->rig->side[side].comm == NULL)
        return;
    if (r->mr[side])
        rig_dereg(r->rig, side, r->mr[side]);
    r->mr[side] = NULL;
    rig_close(r->rig, side);
}

static void op_end(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    struct r2_comm *c = NULL;

    flush(r);
    if (how < 32) {
        end(r, how & 1);
    } else if (how < 64) {
        rig_oob_cut(r->rig, how & 1);
    } else if (how < 128) {
        r->drop[how & 1] ^= 1u << (how >> 1 & 31);
    } else if (r->rig->listen) { /* what a REQ out of nowhere has made */
        rig_enter(&r->rig->side[1]);
        (void)r2_net_accept(r->rig->listen, &c);
        r2_net_close(c);
    }
}

/* --- states to begin in --- */

static int settled(struct rig *rig)
{
    return rig_count(rig, 0, FO_MSG_SETTLED) > 0;
}

static int opened(struct rig *rig)
{
    return rig_count(rig, 1, FO_MSG_OPEN) > 0;
}

static int opened_both(struct rig *rig)
{
    return rig_count(rig, 0, FO_MSG_OPEN_OK) > 0;
}

static void message(struct run *r)
{
    reg(r, 0);
    reg(r, 1);
    rig_irecv1(r->rig, r->mem[1], 64, 0, r->mr[1]);
    rig_send_wait(r->rig, r->mem[0], 64, 0, r->mr[0]);
}

static void fail_over(struct run *r)
{
    r->rig->side[1].asleep = 1;
    message(r);
    rig_fault(r->rig, "h0:n0 down");
    FUZZ_CHECK(rig_until(r->rig, settled, 3 * RIG_S));
    r->rig->side[1].asleep = 0;
}

static void begin(struct run *r, unsigned state)
{
    static const uint32_t step[] = {0, 1u << FO_MSG_REP, 1u << FO_MSG_CONF, 1u << FO_MSG_READY};

    if (state == 0) {
        r->drop[0] = r->drop[1] = step[fuzz_u8(&r->in) & 3]; /* set-up stops there */
        rig_connect_begin(r->rig, 0, 0);
        if (r->drop[0])
            fuzz_rig_run(r->rig, 100 * RIG_US);
        return;
    }
    rig_connect(r->rig, 0, 0);
    message(r);
    FUZZ_CHECK(rig_until(r->rig, rig_all_done, RIG_S));
    if (state == 2 || state == 3 || state == 4)
        fail_over(r);
    if (state == 3 || state == 4) { /* the exchange stops where R, or S, has spoken */
        r->drop[state == 4] = 1u << (state == 3 ? FO_MSG_OPEN_OK : FO_MSG_OPEN_UP);
        rig_fault(r->rig, "h0:n0 up");
        FUZZ_CHECK(rig_until(r->rig, state == 3 ? opened : opened_both, 5 * RIG_S));
    } else if (state >= 5) {
        r->drop[0] = r->drop[1] = 1u << FO_MSG_BYE_OK;
        message(r);
        end(r, state == 6);
    }
}

static void instance_run(struct fuzz_in *in, unsigned state)
{
    static void (*const ops[])(struct run *) = {op_say, op_run,   op_say, op_again, op_say, op_traffic, op_run, op_raw,
                                                op_say, op_fault, op_say, op_again, op_say, op_end,     op_run, op_say};
    static const char *const options[] = {"NCCL_R2_T_RETURN=2", "NCCL_R2_T_PACKET=20", NULL};
    struct run *r = calloc(1, sizeof(*r));

    FUZZ_CHECK(r != NULL);
    running = r;
    r->in = *in;
    r->mem[0] = aligned_alloc(4096, MEM);
    r->mem[1] = aligned_alloc(4096, MEM);
    FUZZ_CHECK(r->mem[0] && r->mem[1]);
    memset(r->mem[0], 1, MEM);
    r->rig = rig_create(2, 0, options);
    r->rig->hostile = 1;
    r->rig->filter = filter;
    begin(r, state);
    while (fuzz_more(&r->in)) {
        ops[fuzz_pick(&r->in, sizeof(ops) / sizeof(ops[0]))](r);
        check(r);
    }
    flush(r);
    rig_run(r->rig, RIG_MS);
    check(r);
    for (int i = 0; i < 2; i++)
        end(r, i);
    r->rig->filter = NULL;
    fuzz_rig_destroy(r->rig);
    free(r->mem[0]);
    free(r->mem[1]);
    free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};
    unsigned state = fuzz_pick(&in, 8);

    if (state == 0)
        unpack_run(&in);
    else
        instance_run(&in, state - 1);
    return 0;
}
