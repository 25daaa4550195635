#include "fo_proto.h"

#include "fo_proto_int.h"

#define QPN_MAX 0xffffffu /* of PSN, too */

static const char *const names[] = {
    [FO_MSG_REQ] = "REQ",
    [FO_MSG_REP] = "REP",
    [FO_MSG_CONF] = "CONF",
    [FO_MSG_READY] = "READY",
    [FO_MSG_REFUSE] = "REFUSE",
    [FO_MSG_NIC_DOWN] = "NIC_DOWN",
    [FO_MSG_NIC_DOWN_OK] = "NIC_DOWN_OK",
    [FO_MSG_DOWN] = "DOWN",
    [FO_MSG_FENCED] = "FENCED",
    [FO_MSG_SETTLED] = "SETTLED",
    [FO_MSG_BYE] = "BYE",
    [FO_MSG_BYE_OK] = "BYE_OK",
    [FO_MSG_GONE] = "GONE",
    [FO_MSG_PROBE] = "PROBE",
    [FO_MSG_SUSPECT] = "SUSPECT",
    [FO_MSG_OPEN] = "OPEN",
    [FO_MSG_OPEN_OK] = "OPEN_OK",
    [FO_MSG_OPEN_UP] = "OPEN_UP",
    [FO_MSG_DRAIN] = "DRAIN",
    [FO_MSG_DRAIN_OK] = "DRAIN_OK",
    [FO_MSG_WANT] = "WANT",
    [FO_MSG_LOAD] = "LOAD",
    [FO_MSG_NEWS] = "NEWS",
    [FO_MSG_NEWS_OK] = "NEWS_OK",
    [FO_MSG_LOCATE] = "LOCATE",
    [FO_MSG_FAILBACK] = "FAILBACK",
    [FO_MSG_FAILBACK_OK] = "FAILBACK_OK",
    [FO_MSG_RATES] = "RATES",
};

const char *fo_type_name(enum fo_type t)
{
    return (unsigned)t < sizeof(names) / sizeof(names[0]) && names[t] ? names[t] : "?";
}

/* --- pieces --- */

static void put_addr(struct r2_writer *w, const struct ib_path_addr *a)
{
    r2_put(w, a->qpn, 4);
    r2_put(w, a->psn, 4);
    r2_put(w, a->nic_gen, 4);
    r2_put(w, a->ring_addr, 8);
    r2_put(w, a->ring_key, 4);
    r2_put(w, a->port.link_layer, 1);
    r2_put(w, a->port.mtu, 1);
    r2_put(w, a->port.lid, 2);
    r2_put_bytes(w, a->port.gid, 16);
    r2_put(w, a->ece.vendor, 4);
    r2_put(w, a->ece.options, 4);
}

static void get_addr(struct r2_reader *r, struct ib_path_addr *a)
{
    memset(a, 0, sizeof(*a));
    a->qpn = (uint32_t)r2_get(r, 4);
    a->psn = (uint32_t)r2_get(r, 4);
    a->nic_gen = (uint32_t)r2_get(r, 4);
    a->ring_addr = r2_get(r, 8);
    a->ring_key = (uint32_t)r2_get(r, 4);
    a->port.link_layer = (uint8_t)r2_get(r, 1);
    a->port.mtu = (uint8_t)r2_get(r, 1);
    a->port.lid = (uint16_t)r2_get(r, 2);
    r2_get_bytes(r, a->port.gid, 16);
    a->ece.vendor = (uint32_t)r2_get(r, 4);
    a->ece.options = (uint32_t)r2_get(r, 4);
    if (a->qpn > QPN_MAX || a->psn > QPN_MAX || a->port.mtu < IBV_MTU_256 ||
        a->port.mtu > IBV_MTU_4096) {
        r->bad = r->bad || a->qpn != 0 || a->psn != 0;
    }
}

static void put_path(struct r2_writer *w, const struct fo_path_ent *e)
{
    r2_put(w, e->s_nic, 1);
    r2_put(w, e->r_nic, 1);
    r2_put(w, e->ok, 1);
    put_addr(w, &e->addr);
}

static void get_path(struct r2_reader *r, struct fo_path_ent *e)
{
    e->s_nic = (uint8_t)r2_get(r, 1);
    e->r_nic = (uint8_t)r2_get(r, 1);
    e->ok = (uint8_t)r2_get(r, 1);
    get_addr(r, &e->addr);
    if (e->s_nic >= FO_MAX_NICS || e->r_nic >= FO_MAX_NICS) {
        r->bad = 1;
    }
}

static void get_text(struct r2_reader *r, char *dst, size_t n)
{
    r2_get_bytes(r, dst, n);
    dst[n - 1] = 0;
    for (size_t i = 0; dst[i]; i++) { /* it is going to be printed */
        if ((unsigned char)dst[i] < 0x20 || (unsigned char)dst[i] > 0x7e) {
            dst[i] = '?';
        }
    }
}

/* --- records --- */

static void put_req(struct r2_writer *w, const struct fo_req *m)
{
    r2_put(w, m->src, 4);
    r2_put(w, m->listen, 4);
    r2_put(w, m->dev, 1);
    r2_put(w, m->nnics, 1);
    r2_put(w, m->qps, 1);
    r2_put(w, m->digest, 4);
    r2_put_bytes(w, m->host, FO_HOST_NAME);
    for (int i = 0; i < m->nnics && i < FO_MAX_NICS; i++) {
        r2_put_bytes(w, m->nic[i].name, FO_NIC_NAME);
        r2_put(w, (uint16_t)m->nic[i].rail, 2);
        r2_put(w, m->nic[i].usable, 1);
        r2_put(w, m->nic[i].gen, 4);
    }
    if (m->traffic_class) {
        r2_put(w, m->traffic_class, 1);
    }
}

static void get_req(struct r2_reader *r, struct fo_req *m)
{
    m->src = (uint32_t)r2_get(r, 4);
    m->listen = (uint32_t)r2_get(r, 4);
    m->dev = (uint8_t)r2_get(r, 1);
    m->nnics = (uint8_t)r2_get(r, 1);
    m->qps = (uint8_t)r2_get(r, 1);
    m->digest = (uint32_t)r2_get(r, 4);
    get_text(r, m->host, FO_HOST_NAME);
    if (m->nnics > FO_MAX_NICS || m->dev >= m->nnics || m->qps == 0 || m->qps > FO_MAX_QPS) {
        r->bad = 1;
    }
    for (int i = 0; !r->bad && i < m->nnics; i++) {
        get_text(r, m->nic[i].name, FO_NIC_NAME);
        m->nic[i].rail = (int16_t)r2_get(r, 2);
        m->nic[i].usable = (uint8_t)r2_get(r, 1);
        m->nic[i].gen = (uint32_t)r2_get(r, 4);
    }
    m->traffic_class = r->p < r->end ? (uint8_t)r2_get(r, 1) : 0;
}

static void put_rep(struct r2_writer *w, const struct fo_rep *m)
{
    r2_put(w, m->dst, 4);
    r2_put(w, m->src, 4);
    r2_put(w, m->dev, 1);
    r2_put(w, m->npaths, 1);
    r2_put(w, m->rq_depth, 2);
    r2_put(w, m->digest, 4);
    r2_put_bytes(w, m->host, FO_HOST_NAME);
    for (int i = 0; i < m->npaths && i < IB_MAX_PATHS; i++) {
        r2_put_bytes(w, m->nic_name[i], FO_NIC_NAME);
        put_path(w, &m->path[i]);
    }
}

static void get_rep(struct r2_reader *r, struct fo_rep *m)
{
    m->dst = (uint32_t)r2_get(r, 4);
    m->src = (uint32_t)r2_get(r, 4);
    m->dev = (uint8_t)r2_get(r, 1);
    m->npaths = (uint8_t)r2_get(r, 1);
    m->rq_depth = (uint16_t)r2_get(r, 2);
    m->digest = (uint32_t)r2_get(r, 4);
    get_text(r, m->host, FO_HOST_NAME);
    if (m->npaths == 0 || m->npaths > IB_MAX_PATHS || m->rq_depth < 32 || m->rq_depth > 256) {
        r->bad = 1;
    }
    for (int i = 0; !r->bad && i < m->npaths; i++) {
        get_text(r, m->nic_name[i], FO_NIC_NAME);
        get_path(r, &m->path[i]);
    }
}

static void put_conf(struct r2_writer *w, const struct fo_conf *m)
{
    r2_put(w, m->dst, 4);
    r2_put(w, m->src, 4);
    r2_put(w, m->npaths, 1);
    for (int i = 0; i < m->npaths && i < IB_MAX_PATHS; i++) {
        put_path(w, &m->path[i]);
    }
}

static void get_conf(struct r2_reader *r, struct fo_conf *m)
{
    m->dst = (uint32_t)r2_get(r, 4);
    m->src = (uint32_t)r2_get(r, 4);
    m->npaths = (uint8_t)r2_get(r, 1);
    if (m->npaths == 0 || m->npaths > IB_MAX_PATHS) {
        r->bad = 1;
    }
    for (int i = 0; !r->bad && i < m->npaths; i++) {
        get_path(r, &m->path[i]);
    }
}

static void put_fenced(struct r2_writer *w, const struct fo_fenced *m)
{
    r2_put(w, m->dst, 4);
    r2_put(w, m->src, 4);
    r2_put(w, m->life, 4);
    r2_put(w, m->path, 1);
    r2_put(w, m->flags, 1);
    r2_put(w, m->n, 2);
    r2_put(w, m->acked, 8);
    r2_put(w, m->base, 8);
    for (int i = 0; i < m->n && i < R2_LEDGER_WINDOW; i++) {
        r2_put(w, m->mask[i], 2);
    }
}

static void get_fenced(struct r2_reader *r, struct fo_fenced *m)
{
    m->dst = (uint32_t)r2_get(r, 4);
    m->src = (uint32_t)r2_get(r, 4);
    m->life = (uint32_t)r2_get(r, 4);
    m->path = (uint8_t)r2_get(r, 1);
    m->flags = (uint8_t)r2_get(r, 1);
    m->n = (uint16_t)r2_get(r, 2);
    m->acked = r2_get(r, 8);
    m->base = r2_get(r, 8);
    if (m->n > R2_LEDGER_WINDOW || m->path >= IB_MAX_PATHS) {
        r->bad = 1;
    }
    for (int i = 0; !r->bad && i < m->n; i++) {
        m->mask[i] = (uint16_t)r2_get(r, 2);
    }
}

static void put_live(struct r2_writer *w, const struct r2_parts *s)
{
    r2_put(w, s->n, 2);
    r2_put(w, s->base, 8);
    for (int i = 0; i < s->n && i < R2_LEDGER_WINDOW; i++) {
        r2_put(w, s->mask[i], 2);
    }
}

static void get_live(struct r2_reader *r, struct r2_parts *s)
{
    s->n = (uint16_t)r2_get(r, 2);
    s->base = r2_get(r, 8);
    if (s->n > R2_LEDGER_WINDOW || s->base > UINT64_MAX - R2_LEDGER_WINDOW) {
        r->bad = 1;
    }
    for (int i = 0; !r->bad && i < s->n; i++) {
        s->mask[i] = (uint16_t)r2_get(r, 2);
    }
}

static void put_probe(struct r2_writer *w, const struct fo_probe *m)
{
    r2_put(w, m->nic, 1);
    r2_put(w, m->peer_nic, 1);
    r2_put(w, m->flags, 1);
    r2_put(w, m->inc, 4);
    r2_put(w, m->for_inc, 4);
    put_addr(w, &m->addr);
    r2_put(w, m->guid, 8);
    r2_put(w, m->port, 1);
    r2_put_bytes(w, m->name, FO_NIC_NAME);
    r2_put(w, m->inband_qpn, 4);
    r2_put(w, m->inband_psn, 4);
}

static void get_probe(struct r2_reader *r, struct fo_probe *m)
{
    m->nic = (uint8_t)r2_get(r, 1);
    m->peer_nic = (uint8_t)r2_get(r, 1);
    m->flags = (uint8_t)r2_get(r, 1);
    m->inc = (uint32_t)r2_get(r, 4);
    m->for_inc = (uint32_t)r2_get(r, 4);
    get_addr(r, &m->addr);
    m->guid = r2_get(r, 8);
    m->port = (uint8_t)r2_get(r, 1);
    get_text(r, m->name, FO_NIC_NAME);
    m->inband_qpn = (uint32_t)r2_get(r, 4);
    m->inband_psn = (uint32_t)r2_get(r, 4);
    if (m->nic >= FO_MAX_NICS || m->peer_nic >= FO_MAX_NICS || m->inc == 0 ||
        m->port == PROBE_NEWS_PROCESS || m->inband_qpn > QPN_MAX || m->inband_psn > QPN_MAX ||
        m->addr.port.mtu < IBV_MTU_256 || m->addr.port.mtu > IBV_MTU_4096) {
        r->bad = 1;
    }
}

static void put_open(struct r2_writer *w, enum fo_type type, const struct fo_open *m)
{
    r2_put(w, m->dst, 4);
    r2_put(w, m->src, 4);
    r2_put(w, m->life, 4);
    r2_put(w, m->path, 1);
    if (type != FO_MSG_OPEN_UP) {
        put_addr(w, &m->addr);
    }
}

static void get_open(struct r2_reader *r, enum fo_type type, struct fo_open *m)
{
    m->dst = (uint32_t)r2_get(r, 4);
    m->src = (uint32_t)r2_get(r, 4);
    m->life = (uint32_t)r2_get(r, 4);
    m->path = (uint8_t)r2_get(r, 1);
    if (type != FO_MSG_OPEN_UP) {
        get_addr(r, &m->addr);
        r->bad |= m->addr.port.mtu < IBV_MTU_256 || m->addr.port.mtu > IBV_MTU_4096;
    }
    r->bad |= m->path >= IB_MAX_PATHS || m->life < 2;
}

static void put_word(struct r2_writer *w, enum fo_type type, const union fo_body *b)
{
    switch (type) {
    case FO_MSG_SUSPECT:
        r2_put(w, b->suspect.dst, 4);
        r2_put(w, b->suspect.src, 4);
        r2_put(w, b->suspect.life, 4);
        r2_put(w, b->suspect.path, 1);
        r2_put(w, b->suspect.mask, 2);
        r2_put(w, b->suspect.seq, 8);
        break;
    case FO_MSG_WANT:
        r2_put(w, b->want.dst, 4);
        r2_put(w, b->want.src, 4);
        r2_put(w, b->want.seq, 8);
        break;
    case FO_MSG_FAILBACK:
    case FO_MSG_FAILBACK_OK:
        r2_put(w, b->failback.dst, 4);
        r2_put(w, b->failback.src, 4);
        r2_put(w, b->failback.life, 4);
        r2_put(w, b->failback.path, 1);
        break;
    case FO_MSG_DRAIN:
    case FO_MSG_DRAIN_OK:
        r2_put(w, b->drain.nics, 4);
        r2_put(w, b->drain.gen, 4);
        break;
    default:
        w->bad = 1;
    }
}

static void put_small(struct r2_writer *w, enum fo_type type, const union fo_body *b)
{
    switch (type) {
    case FO_MSG_READY:
        r2_put(w, b->ready.dst, 4);
        r2_put(w, b->ready.src, 4);
        r2_put(w, b->ready.up, 1);
        break;
    case FO_MSG_REFUSE:
        r2_put(w, b->refuse.dst, 4);
        r2_put(w, b->refuse.src, 4);
        r2_put(w, b->refuse.listen, 4);
        r2_put_bytes(w, b->refuse.why, sizeof(b->refuse.why));
        break;
    case FO_MSG_NIC_DOWN:
    case FO_MSG_NIC_DOWN_OK:
        r2_put(w, b->nic_down.nic, 1);
        r2_put(w, b->nic_down.reason, 1);
        r2_put(w, b->nic_down.gen, 4);
        break;
    case FO_MSG_DOWN:
        r2_put(w, b->down.dst, 4);
        r2_put(w, b->down.src, 4);
        r2_put(w, b->down.life, 4);
        r2_put(w, b->down.path, 1);
        r2_put(w, b->down.reason, 1);
        r2_put(w, b->down.flags, 1);
        r2_put(w, b->down.wc_status, 1);
        put_live(w, &b->down.live);
        break;
    case FO_MSG_SETTLED:
        r2_put(w, b->settled.dst, 4);
        r2_put(w, b->settled.src, 4);
        r2_put(w, b->settled.life, 4);
        r2_put(w, b->settled.path, 1);
        r2_put(w, b->settled.flags, 1);
        put_live(w, &b->settled.live);
        break;
    case FO_MSG_BYE_OK:
    case FO_MSG_GONE:
        r2_put(w, b->bye_ok.dst, 4);
        r2_put(w, b->bye_ok.src, 4);
        break;
    default:
        put_word(w, type, b);
    }
}

static void get_word(struct r2_reader *r, enum fo_type type, union fo_body *b)
{
    switch (type) {
    case FO_MSG_SUSPECT:
        b->suspect.dst = (uint32_t)r2_get(r, 4);
        b->suspect.src = (uint32_t)r2_get(r, 4);
        b->suspect.life = (uint32_t)r2_get(r, 4);
        b->suspect.path = (uint8_t)r2_get(r, 1);
        b->suspect.mask = (uint16_t)r2_get(r, 2);
        b->suspect.seq = r2_get(r, 8);
        r->bad |= b->suspect.path >= IB_MAX_PATHS;
        break;
    case FO_MSG_WANT:
        b->want.dst = (uint32_t)r2_get(r, 4);
        b->want.src = (uint32_t)r2_get(r, 4);
        b->want.seq = r2_get(r, 8);
        break;
    case FO_MSG_FAILBACK:
    case FO_MSG_FAILBACK_OK:
        b->failback.dst = (uint32_t)r2_get(r, 4);
        b->failback.src = (uint32_t)r2_get(r, 4);
        b->failback.life = (uint32_t)r2_get(r, 4);
        b->failback.path = (uint8_t)r2_get(r, 1);
        r->bad |= b->failback.path >= IB_MAX_PATHS || b->failback.life == 0;
        break;
    case FO_MSG_DRAIN:
    case FO_MSG_DRAIN_OK:
        b->drain.nics = (uint32_t)r2_get(r, 4);
        b->drain.gen = (uint32_t)r2_get(r, 4);
        break;
    default:
        r->bad = 1;
    }
}

static void get_small(struct r2_reader *r, enum fo_type type, union fo_body *b)
{
    switch (type) {
    case FO_MSG_READY:
        b->ready.dst = (uint32_t)r2_get(r, 4);
        b->ready.src = (uint32_t)r2_get(r, 4);
        b->ready.up = (uint8_t)r2_get(r, 1);
        break;
    case FO_MSG_REFUSE:
        b->refuse.dst = (uint32_t)r2_get(r, 4);
        b->refuse.src = (uint32_t)r2_get(r, 4);
        b->refuse.listen = (uint32_t)r2_get(r, 4);
        get_text(r, b->refuse.why, sizeof(b->refuse.why));
        break;
    case FO_MSG_NIC_DOWN:
    case FO_MSG_NIC_DOWN_OK:
        b->nic_down.nic = (uint8_t)r2_get(r, 1);
        b->nic_down.reason = (uint8_t)r2_get(r, 1);
        b->nic_down.gen = (uint32_t)r2_get(r, 4);
        r->bad |= b->nic_down.nic >= FO_MAX_NICS;
        break;
    case FO_MSG_DOWN:
        b->down.dst = (uint32_t)r2_get(r, 4);
        b->down.src = (uint32_t)r2_get(r, 4);
        b->down.life = (uint32_t)r2_get(r, 4);
        b->down.path = (uint8_t)r2_get(r, 1);
        b->down.reason = (uint8_t)r2_get(r, 1);
        b->down.flags = (uint8_t)r2_get(r, 1);
        b->down.wc_status = (uint8_t)r2_get(r, 1);
        r->bad |= b->down.path >= IB_MAX_PATHS;
        get_live(r, &b->down.live);
        break;
    case FO_MSG_SETTLED:
        b->settled.dst = (uint32_t)r2_get(r, 4);
        b->settled.src = (uint32_t)r2_get(r, 4);
        b->settled.life = (uint32_t)r2_get(r, 4);
        b->settled.path = (uint8_t)r2_get(r, 1);
        b->settled.flags = (uint8_t)r2_get(r, 1);
        r->bad |= b->settled.path >= IB_MAX_PATHS;
        get_live(r, &b->settled.live);
        break;
    case FO_MSG_BYE_OK:
    case FO_MSG_GONE:
        b->bye_ok.dst = (uint32_t)r2_get(r, 4);
        b->bye_ok.src = (uint32_t)r2_get(r, 4);
        break;
    default:
        get_word(r, type, b);
        break;
    }
}

size_t fo_pack(enum fo_type type, const union fo_body *body, uint8_t *out, size_t room)
{
    struct r2_writer w = {.p = out, .end = out + room};
    size_t len;

    r2_put(&w, type, 1);
    r2_put(&w, FO_PROTO_VERSION, 1);
    r2_put(&w, 0, 2);
    switch (type) {
    case FO_MSG_REQ:
        put_req(&w, &body->req);
        break;
    case FO_MSG_REP:
        put_rep(&w, &body->rep);
        break;
    case FO_MSG_CONF:
        put_conf(&w, &body->conf);
        break;
    case FO_MSG_FENCED:
    case FO_MSG_BYE:
        put_fenced(&w, &body->fenced);
        break;
    case FO_MSG_PROBE:
        put_probe(&w, &body->probe);
        break;
    case FO_MSG_LOAD:
        fo_put_load(&w, &body->load);
        break;
    case FO_MSG_RATES:
        fo_put_rates(&w, &body->rates);
        break;
    case FO_MSG_OPEN:
    case FO_MSG_OPEN_OK:
    case FO_MSG_OPEN_UP:
        put_open(&w, type, &body->open);
        break;
    case FO_MSG_NEWS:
        fo_put_news(&w, &body->news);
        break;
    case FO_MSG_NEWS_OK:
        fo_put_news_ok(&w, &body->news_ok);
        break;
    case FO_MSG_LOCATE:
        fo_put_locate(&w, &body->locate);
        break;
    default:
        put_small(&w, type, body);
        break;
    }
    if (w.bad) {
        return 0;
    }
    len = (size_t)(w.p - out);
    out[2] = (uint8_t)(len - 4);
    out[3] = (uint8_t)((len - 4) >> 8);
    return len;
}

unsigned fo_foreign_version(const void *msg, size_t len)
{
    struct r2_reader r = {.p = msg, .end = (const uint8_t *)msg + len};

    while (r.p < r.end) {
        unsigned version, body;

        r2_get(&r, 1);
        version = (unsigned)r2_get(&r, 1);
        body = (unsigned)r2_get(&r, 2);
        if (r.bad) {
            return 0;
        }
        if (version != FO_PROTO_VERSION) {
            return version;
        }
        if ((size_t)(r.end - r.p) < body) {
            return 0;
        }
        r.p += body;
    }
    return 0;
}

int fo_unpack(struct r2_reader *r, union fo_body *body, const char **why)
{
    while (r->p < r->end) {
        unsigned type = (unsigned)r2_get(r, 1), version = (unsigned)r2_get(r, 1),
                 len = (unsigned)r2_get(r, 2);
        struct r2_reader b = {.p = r->p, .end = r->p + len};

        if (r->bad || (size_t)(r->end - r->p) < len) {
            *why = "truncated record";
            return -1;
        }
        r->p += len;
        if (type < FO_MSG_REQ || type >= FO_MSG_END || version != FO_PROTO_VERSION) {
            continue;
        }
        switch (type) {
        case FO_MSG_REQ:
            get_req(&b, &body->req);
            break;
        case FO_MSG_REP:
            get_rep(&b, &body->rep);
            break;
        case FO_MSG_CONF:
            get_conf(&b, &body->conf);
            break;
        case FO_MSG_FENCED:
        case FO_MSG_BYE:
            get_fenced(&b, &body->fenced);
            break;
        case FO_MSG_PROBE:
            get_probe(&b, &body->probe);
            break;
        case FO_MSG_LOAD:
            fo_get_load(&b, &body->load);
            break;
        case FO_MSG_RATES:
            fo_get_rates(&b, &body->rates);
            break;
        case FO_MSG_OPEN:
        case FO_MSG_OPEN_OK:
        case FO_MSG_OPEN_UP:
            get_open(&b, (enum fo_type)type, &body->open);
            break;
        case FO_MSG_NEWS:
            fo_get_news(&b, &body->news);
            break;
        case FO_MSG_NEWS_OK:
            fo_get_news_ok(&b, &body->news_ok);
            break;
        case FO_MSG_LOCATE:
            fo_get_locate(&b, &body->locate);
            break;
        default:
            get_small(&b, (enum fo_type)type, body);
            break;
        }
        if (b.bad || b.p != b.end) {
            *why = fo_type_name((enum fo_type)type);
            return -1;
        }
        return (int)type;
    }
    return 0;
}
