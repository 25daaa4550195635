#include "fuzz_word.h"
#include "core/r2_registry.h"

static const struct rig_sent *last_sent(const struct rig *rig, int from, int type)
{
    for (unsigned i = rig->sent_count; i-- > 0;) {
        if (rig->sent[i].from == from && rig->sent[i].type == type) {
            return &rig->sent[i];
        }
    }
    return NULL;
}

static struct r2_comm *pick_comm(struct rig *rig, int side, unsigned n)
{
    struct r2_comm *c = rig->side[side].comm;

    if (c && n == 0) {
        return c;
    }
    for (c = r2_comm_first(rig->side[side].inst); c && n > 1 && c->list.all_next; n--) {
        c = c->list.all_next;
    }
    return c;
}

/* Whom and what incarnation it is about. */
struct about {
    uint32_t dst, src, inc;
    uint8_t path;
};

static void fill_addr(const struct rig *rig, int from, struct ib_path_addr *a)
{
    if (a->port.mtu == 0) {
        ib_nic_addr_get(&rig->side[from].inst->nics, 0, &a->port);
        a->qpn = 77;
        a->psn = 1;
    }
}

/* What the sender at the other end would say of that incarnation now. */
static void fill_live(const struct rig *rig, int to, const struct about *w, struct r2_parts *live)
{
    const struct r2_comm *s =
        rig->side[!to].inst ? r2_comm_find(rig->side[!to].inst, w->src) : NULL;

    live->n = 0;
    if (s && s->is_send && s->tx && w->path < s->conn.npaths) {
        ib_send_live(s->tx, w->path, w->inc, live);
    }
}

static void fill_incarnation(struct fuzz_in *in, struct rig *rig, int to, int type,
                             const struct r2_comm *c, const struct about *w, union fo_body *b)
{
    switch (type) {
    case FO_MSG_DOWN:
        b->down = (struct fo_down){
            .dst = w->dst, .src = w->src, .inc = w->inc, .path = w->path, .reason = IB_FAULT_PORT};
        b->down.flags = fuzz_u8(in);
        fill_live(rig, to, w, &b->down.live);
        break;
    case FO_MSG_FENCED:
    case FO_MSG_BYE:
        b->fenced = (struct fo_fenced){
            .dst = w->dst, .src = w->src, .inc = w->inc, .path = w->path, .flags = fuzz_u8(in)};
        b->fenced.acked = b->fenced.base = c && c->is_send && c->tx ? c->tx->sack : fuzz_u8(in);
        b->fenced.n = (uint16_t)fuzz_pick(in, 7);
        b->fenced.n = b->fenced.n == 6 ? R2_LEDGER_WINDOW : b->fenced.n;
        for (int i = 0; i < b->fenced.n && i < 6; i++) {
            b->fenced.mask[i] = (uint16_t)fuzz_get(in, 2);
        }
        break;
    case FO_MSG_SETTLED:
        b->settled =
            (struct fo_settled){.dst = w->dst, .src = w->src, .inc = w->inc, .path = w->path};
        b->settled.flags = fuzz_u8(in) & FO_FLAG_SOFT;
        fill_live(rig, to, w, &b->settled.live);
        break;
    case FO_MSG_DELIVERY_QUERY:
        b->delivery_query = (struct fo_delivery_query){
            .dst = w->dst, .src = w->src, .inc = w->inc, .path = w->path, .mask = 1};
        b->delivery_query.seq =
            c && !c->is_send && c->rx ? c->rx->ledger.acked + (fuzz_u8(in) & 3) : 0;
        break;
    case FO_MSG_CTS_REQUEST:
        b->cts_request = (struct fo_cts_request){.dst = w->dst, .src = w->src};
        b->cts_request.seq =
            c && !c->is_send && c->rx ? c->rx->ledger.rdone + (fuzz_u8(in) & 7) : 0;
        break;
    case FO_MSG_FAILBACK:
    case FO_MSG_FAILBACK_OK:
        b->failback =
            (struct fo_failback){.dst = w->dst, .src = w->src, .inc = w->inc, .path = w->path};
        break;
    default: /* OPEN, OPEN_OK, OPEN_UP */
        b->open.dst = w->dst;
        b->open.src = w->src;
        b->open.inc = w->inc;
        b->open.path = w->path;
        fill_addr(rig, !to, &b->open.addr);
    }
}

/* Of one of the NICs of process @from, of a path between two, or of a process. */
static void fill_word(const struct rig *rig, int from, unsigned how, struct probe_report *w)
{
    const struct ib_nic *nic = rig->side[from].inst->nics.nic;

    memset(w, 0, sizeof(*w));
    w->subject = how & 1 ? (struct probe_subject){.a = nic[0].guid, .pa = nic[0].port}
                 : how & 2
                     ? (struct probe_subject){1, UINT64_MAX, 1, 1}
                     : (struct probe_subject){1, 2, PROBE_GOSSIP_PROCESS, PROBE_GOSSIP_PROCESS};
    w->version = 1 + (how >> 2 & 7);
    w->origin = how >> 5;
    w->blame = how >> 6 ? PROBE_BLAME_LOCAL_NIC : PROBE_BLAME_NONE;
    snprintf(w->nic, sizeof(w->nic), "%.*s", (int)sizeof(w->nic) - 1, nic[0].name);
}

/* A record of @type that the peer of process @to could say now: what it said last, brought up to
 * date. */
static void truth(struct fuzz_in *in, struct rig *rig, int to, int type, unsigned how,
                  union fo_body *b)
{
    const struct rig_sent *s = last_sent(rig, !to, type);
    struct r2_comm *c = pick_comm(rig, to, how & 3);
    struct about w = {.path = (uint8_t)(how >> 2 & 1)};
    struct probe_report word;

    memset(b, 0, sizeof(*b));
    if (s) {
        *b = s->body;
    }
    if (c) {
        w.dst = c->id;
        w.src = c->fo.peer;
        w.inc = c->conn.path[w.path].inc + (how >> 3 & 1);
    }
    switch (type) {
    case FO_MSG_REQ:
        b->req.src += how >> 4;
        break;
    case FO_MSG_NIC_DOWN:
    case FO_MSG_NIC_DOWN_OK:
        b->nic_down = (struct fo_nic_down){
            .nic = w.path, .reason = 3, .gen = rig->side[!to].inst->nics.nic[0].generation + 1};
        break;
    case FO_MSG_DRAIN:
    case FO_MSG_DRAIN_OK:
        b->drain = (struct fo_drain){.nics = how >> 3 & 3,
                                     .gen = rig->side[to].inst->drain.gen + (how >> 5)};
        break;
    case FO_MSG_PROBE:
        fill_addr(rig, !to, &b->probe.addr);
        b->probe.inc += !b->probe.inc + (how >> 3 & 1);
        break;
    case FO_MSG_REPORT:
        fill_word(rig, !to, how, &b->report);
        break;
    case FO_MSG_REPORT_OK:
        fill_word(rig, !to, how, &word);
        b->report_ok = (struct fo_report_ok){word.subject, word.version, word.origin};
        break;
    case FO_MSG_LOCATE:
        b->locate = (struct fo_locate){
            .nic = w.path, .peer_nic = w.path, .flags = how >> 3 & 3, .id = 1, .for_id = how >> 5};
        b->locate.end = (struct probe_end){PROBE_PORT_DOWN, PROBE_OK, PROBE_TIMEOUT, 1};
        b->locate.n_aux = 1;
        b->locate.aux[0] = (struct fo_locate_aux){1, 1, PROBE_TIMEOUT};
        break;
    case FO_MSG_LOAD:
        b->load.flags = how >> 2 & 63; /* those of slow ways, too */
        b->load.moved += how;
        b->load.at += how;
        break;
    case FO_MSG_RATES:
        b->rates.dst = w.dst;
        b->rates.src = w.src;
        b->rates.npaths = c ? (uint8_t)c->conn.npaths : 1;
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
        fill_incarnation(in, rig, to, type, c, &w, b);
    }
}

/* The fields that become an index, a bound, a number of an incarnation or an address somewhere. */
#define FIELD(type, member)                                                                        \
    {                                                                                              \
        type, offsetof(union fo_body, member), sizeof(((union fo_body *)0)->member)                \
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
    FIELD(FO_MSG_DOWN, down.inc),
    FIELD(FO_MSG_DOWN, down.live.n),
    FIELD(FO_MSG_DOWN, down.live.base),
    FIELD(FO_MSG_DOWN, down.live.mask[0]),
    FIELD(FO_MSG_FENCED, fenced.path),
    FIELD(FO_MSG_FENCED, fenced.n),
    FIELD(FO_MSG_FENCED, fenced.acked),
    FIELD(FO_MSG_FENCED, fenced.base),
    FIELD(FO_MSG_BYE, fenced.n),
    FIELD(FO_MSG_BYE, fenced.acked),
    FIELD(FO_MSG_BYE, fenced.base),
    FIELD(FO_MSG_SETTLED, settled.path),
    FIELD(FO_MSG_SETTLED, settled.inc),
    FIELD(FO_MSG_SETTLED, settled.live.n),
    FIELD(FO_MSG_SETTLED, settled.live.base),
    FIELD(FO_MSG_PROBE, probe.nic),
    FIELD(FO_MSG_PROBE, probe.peer_nic),
    FIELD(FO_MSG_PROBE, probe.inc),
    FIELD(FO_MSG_PROBE, probe.for_inc),
    FIELD(FO_MSG_PROBE, probe.flags),
    FIELD(FO_MSG_PROBE, probe.inband_qpn),
    FIELD(FO_MSG_PROBE, probe.inband_psn),
    FIELD(FO_MSG_OPEN, open.path),
    FIELD(FO_MSG_OPEN, open.inc),
    FIELD(FO_MSG_OPEN, open.addr.qpn),
    FIELD(FO_MSG_OPEN_OK, open.path),
    FIELD(FO_MSG_OPEN_OK, open.inc),
    FIELD(FO_MSG_OPEN_OK, open.addr.ring_addr),
    FIELD(FO_MSG_OPEN_UP, open.path),
    FIELD(FO_MSG_OPEN_UP, open.inc),
    FIELD(FO_MSG_DELIVERY_QUERY, delivery_query.path),
    FIELD(FO_MSG_DELIVERY_QUERY, delivery_query.mask),
    FIELD(FO_MSG_DELIVERY_QUERY, delivery_query.seq),
    FIELD(FO_MSG_DRAIN, drain.nics),
    FIELD(FO_MSG_DRAIN, drain.gen),
    FIELD(FO_MSG_DRAIN_OK, drain.gen),
    FIELD(FO_MSG_CTS_REQUEST, cts_request.seq),
    FIELD(FO_MSG_REPORT, report.origin),
    FIELD(FO_MSG_REPORT_OK, report_ok.origin),
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
    FIELD(FO_MSG_FAILBACK, failback.inc),
    FIELD(FO_MSG_FAILBACK_OK, failback.path),
    FIELD(FO_MSG_FAILBACK_OK, failback.inc),
    FIELD(FO_MSG_RATES, rates.npaths),
    FIELD(FO_MSG_RATES, rates.port[1]),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void twist(struct fuzz_in *in, int type, union fo_body *b)
{
    unsigned n = 0, want = fuzz_u8(in);
    uint64_t v = fuzz_number(in); /* little endian: its first bytes */

    for (unsigned i = 0; i < FIELDS; i++) {
        n += fields[i].type == type;
    }
    for (unsigned i = 0; n && i < FIELDS; i++) {
        if (fields[i].type == type && want-- % n == 0) {
            memcpy((uint8_t *)b + fields[i].at, &v, fields[i].len);
            return;
        }
    }
}

/* Kept inputs mean what they did when the last type was CTS_REQUEST: later ones have the places in
 * which the first ones came again. */
static const uint8_t say_types[32] = {
    FO_MSG_REQ,         FO_MSG_REP,         FO_MSG_CONF,           FO_MSG_READY,  FO_MSG_REFUSE,
    FO_MSG_NIC_DOWN,    FO_MSG_NIC_DOWN_OK, FO_MSG_DOWN,           FO_MSG_FENCED, FO_MSG_SETTLED,
    FO_MSG_BYE,         FO_MSG_BYE_OK,      FO_MSG_GONE,           FO_MSG_PROBE,  FO_MSG_OPEN,
    FO_MSG_OPEN_OK,     FO_MSG_OPEN_UP,     FO_MSG_DELIVERY_QUERY, FO_MSG_DRAIN,  FO_MSG_DRAIN_OK,
    FO_MSG_CTS_REQUEST, FO_MSG_REPORT,      FO_MSG_REPORT_OK,      FO_MSG_LOCATE, FO_MSG_LOAD,
    FO_MSG_FAILBACK,    FO_MSG_FAILBACK_OK, FO_MSG_RATES,          FO_MSG_DOWN,   FO_MSG_FENCED,
    FO_MSG_SETTLED,     FO_MSG_BYE,
};

size_t fuzz_word_say(struct fuzz_in *in, struct rig *rig, int *to, uint8_t *rec)
{
    static union fo_body b;
    unsigned what = fuzz_u8(in), how = fuzz_u8(in), edits = what >> 6;
    int type = say_types[what & 31];
    size_t n;

    *to = what >> 5 & 1;
    truth(in, rig, *to, type, how, &b);
    if (edits == 1 || edits == 2) {
        twist(in, type, &b);
    }
    n = fo_pack((enum fo_type)type, &b, rec, FO_MAX_RECORD);
    FUZZ_CHECK(n > 4);
    for (unsigned i = 1; i < edits; i++) {
        fuzz_edit(in, rec + 4, n - 4);
    }
    return n;
}

/* What was said before, changed or not. */
size_t fuzz_word_again(struct fuzz_in *in, struct rig *rig, int *to, uint8_t *rec)
{
    unsigned how = fuzz_u8(in);
    const struct rig_sent *s;
    size_t n;

    if (rig->sent_count == 0) {
        return 0;
    }
    s = &rig->sent[fuzz_get(in, 2) % rig->sent_count];
    n = fo_pack((enum fo_type)s->type, &s->body, rec, FO_MAX_RECORD);
    for (unsigned i = 0; i < (how >> 1 & 3); i++) {
        fuzz_edit(in, rec + 4, n - 4);
    }
    *to = how & 1 ? s->from : !s->from;
    return n;
}
