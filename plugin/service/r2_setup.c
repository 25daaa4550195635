/*
 * Connection set-up over the OOB channel (docs/architecture.md):
 *
 *   S  connect() .......... REQ (my NICs) ------------------------->
 *   R                                     create queue pairs, fill RQs
 *      <------------------------------- REP (paths, my queue pairs)
 *   S  create queue pairs and rings, RTR, RTS
 *      CONF (my queue pairs, rings) -------------------------------->
 *   R                                     RTR, RTS; accept() has it
 *      <------------------------------------------- READY (paths up)
 *   S  connect() returns the comm
 *
 * S repeats REQ and CONF until the next step; R answers repetitions. A path that cannot be built on
 * either side never stands; one path is enough. Everything that may block runs on the workers.
 */
#include "r2_setup.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/r2_drain.h"
#include "balance/r2_balance.h"
#include "base/r2_log.h"
#include "base/r2_pages.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_ways.h"
#include "r2_close.h"
#include "r2_conn.h"
#include "r2_peer.h"

static const char *const setup_names[R2_SETUP_COUNT] = {
    "new",     "requested",  "building", "confirmed", "building",
    "offered", "connecting", "done",     "failed",
};

const char *r2_setup_name(enum r2_setup s)
{
    return (unsigned)s < R2_SETUP_COUNT ? setup_names[s] : "?";
}

static enum r2_setup setup_of(const struct r2_comm *c)
{
    return (enum r2_setup)atomic_load_explicit(&c->state.setup, memory_order_relaxed);
}

/* The only writer of the set-up state. Row: from. FAILED may follow every state before DONE. */
static void setup_move(struct r2_comm *c, enum r2_setup to)
{
    static const unsigned char legal[R2_SETUP_COUNT][R2_SETUP_COUNT] = {
        [R2_SETUP_NEW] = {[R2_SETUP_S_REQ] = 1, [R2_SETUP_R_BUILD] = 1, [R2_SETUP_FAILED] = 1},
        [R2_SETUP_S_REQ] = {[R2_SETUP_S_BUILD] = 1, [R2_SETUP_FAILED] = 1},
        [R2_SETUP_S_BUILD] = {[R2_SETUP_S_CONF] = 1, [R2_SETUP_FAILED] = 1},
        [R2_SETUP_S_CONF] = {[R2_SETUP_DONE] = 1, [R2_SETUP_FAILED] = 1},
        [R2_SETUP_R_BUILD] = {[R2_SETUP_R_REP] = 1, [R2_SETUP_FAILED] = 1},
        [R2_SETUP_R_REP] = {[R2_SETUP_R_MOVE] = 1, [R2_SETUP_FAILED] = 1},
        [R2_SETUP_R_MOVE] = {[R2_SETUP_DONE] = 1, [R2_SETUP_FAILED] = 1},
    };
    enum r2_setup from = setup_of(c);

    if (!legal[from][to]) {
        R2_WARN("%s set-up cannot go from %s to %s", c->label, r2_setup_name(from),
                r2_setup_name(to));
        return;
    }
    R2_TRACE("%s set-up %s -> %s", c->label, r2_setup_name(from), r2_setup_name(to));
    c->repeat.at = 0;
    c->repeat.interval = R2_MS(c->inst->cfg.t_repeat_ms);
    c->start->over_at = to >= R2_SETUP_DONE ? r2_now(c->inst) : 0;
    atomic_store_explicit(&c->state.setup, to,
                          memory_order_release); /* pairs with the acquire in connect */
}

static void refuse(struct r2_inst *inst, struct r2_peer *peer, uint32_t dst, uint32_t src,
                   uint32_t listen, const char *why)
{
    union fo_body b = {.refuse = {.dst = dst, .src = src, .listen = listen}};

    snprintf(b.refuse.why, sizeof(b.refuse.why), "%s", why);
    r2_peer_emit(inst, peer, FO_MSG_REFUSE, &b);
}

static void notify_listener(const struct r2_comm *c)
{
    struct r2_inst *inst = c->inst;
    struct r2_listen *l;

    pthread_mutex_lock(&inst->lock);
    l = r2_listen_find(inst, c->start->listen_id);
    if (l) {
        snprintf(l->error, sizeof(l->error), "%s", c->fo.why);
    }
    pthread_mutex_unlock(&inst->lock);
}

void r2_setup_fail(struct r2_comm *c, const char *fmt, ...)
{
    va_list ap;

    if (setup_of(c) >= R2_SETUP_DONE) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(c->fo.why, sizeof(c->fo.why), fmt, ap);
    va_end(ap);
    c->fo.error = R2_ERR_COMM;
    R2_WARN("%s: connection set-up failed while %s: %s", c->label, r2_setup_name(setup_of(c)),
            c->fo.why);
    if (c->peer && c->fo.peer) {
        refuse(c->inst, c->peer, c->fo.peer, c->id, 0, c->fo.why);
    }
    setup_move(c, R2_SETUP_FAILED);
    if (!c->is_send) { /* accept tells the reason; the comm itself nobody will ever see */
        notify_listener(c);
        r2_close_move(c, R2_CLOSE_DESTROY);
    }
    r2_comm_kick(c); /* S's: it is there until connect has told the reason, or NCCL asks no more */
}

/* --- the comm's halves --- */

static void emit(void *arg, enum fo_type type, const union fo_body *body)
{
    struct r2_comm *c = arg;

    r2_peer_emit(c->inst, c->peer, type, body);
}

static void make_label(struct r2_comm *c, const char *peer_host)
{
    snprintf(c->far.host, sizeof(c->far.host), "%s", peer_host);
    r2_gossip_join(c->inst, c->peer, peer_host);
    snprintf(c->label, sizeof(c->label), "%s %u %s/%.24s %s %.40s", c->is_send ? "send" : "recv",
             c->id, c->inst->self.host, c->inst->nics.nic[c->dev].name, c->is_send ? "->" : "<-",
             peer_host);
}

static int make_ctl_src(struct r2_comm *c)
{
    c->start->ctl_src_mem = r2_pages_get(sizeof(struct ib_ctl_src));
    return c->start->ctl_src_mem ? 0 : -1;
}

static int make_flush(struct r2_comm *c)
{
    if (!ib_flush_wanted(&c->conn)) {
        return 0;
    }
    c->flush.lane = ib_flush_create(&c->conn, c->inst->jobs.workers, r2_comm_kick, c);
    c->flush.req = calloc(IB_FLUSH_OPS, sizeof(*c->flush.req));
    c->rx->flush = c->flush.lane;
    return c->flush.lane && c->flush.req ? 0 : -1;
}

/* Memory of the data path, before any queue pair exists. */
static int make_halves(struct r2_comm *c)
{
    if (c->is_send) {
        c->tx = malloc(sizeof(*c->tx));
    } else {
        c->rx = calloc(1, sizeof(*c->rx));
    }
    if ((!c->tx && !c->rx) || (c->rx && make_ctl_src(c) != 0)) {
        return -1;
    }
    if (c->is_send) {
        ib_send_init(c->tx, &c->conn);
    } else {
        ib_recv_init(c->rx, &c->conn, c->start->ctl_src_mem);
        if (make_flush(c) != 0) {
            return -1;
        }
    }
    c->fo.conn = &c->conn;
    c->fo.tx = c->tx;
    c->fo.rx = c->rx;
    c->fo.workers = c->inst->jobs.workers;
    c->fo.worker_alive = c->inst->jobs.alive;
    c->fo.ops = (struct fo_ops){.arg = c, .emit = emit, .kick = r2_comm_kick};
    c->fo.self = c->id;
    c->fo.label = c->label;
    return fo_conn_init(&c->fo);
}

/* Paths of @up stand, the others never will; a NIC that failed meanwhile takes its path down at
 * once. */
static void open_paths(struct r2_comm *c, unsigned up)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        if (up & (1u << p)) {
            fo_path_up(&c->fo, p);
            r2_setup_check_path(c, p);
        } else {
            fo_path_setup_failed(&c->fo, p);
        }
    }
    R2_INFO_MANY(R2_LOG_CONNECTED, "%s connected: %d paths of %d up", c->label,
                 __builtin_popcount(c->conn.up), c->conn.npaths);
    if (c->conn.up == 0 && c->fo.nopath_since == 0) {
        c->fo.nopath_since = r2_now(c->inst);
    }
    fo_check_paths(&c->fo);
    r2_pairs_want(c);
    r2_drain_announce(c->inst, c->peer);
    r2_drain_comm(c);
}

/* Of the first host that differs: where one does, mostly many do. */
static void check_digest(struct r2_comm *c, uint32_t digest)
{
    if (digest != c->inst->self.digest && !c->inst->logged.policy) {
        c->inst->logged.policy = 1;
        R2_WARN(
            "%s: the policy at the other end differs from this host's (digest %08x, here %08x), and perhaps that of other hosts; r2_config --diff on both shows where%s",
            c->label, digest, c->inst->self.digest,
            c->inst->ways.rules ? ", unless it is the file of NCCL_R2_WAYS" : "");
    }
}

/* --- S --- */

static void send_req(struct r2_comm *c)
{
    union fo_body b;

    memset(&b.req, 0, sizeof(b.req));
    b.req.src = c->id;
    b.req.listen = c->start->listen_id;
    b.req.dev = (uint8_t)c->dev;
    b.req.qps = (uint8_t)c->inst->cfg.ib_qps;
    b.req.digest = c->inst->self.digest;
    b.req.nnics = (uint8_t)r2_setup_nics(c->inst, c->dev, b.req.nic);
    b.req.traffic_class = c->conn.traffic_class;
    snprintf(b.req.host, sizeof(b.req.host), "%s", c->inst->self.host);
    r2_peer_emit(c->inst, c->peer, FO_MSG_REQ, &b);
}

static void path_init(struct r2_comm *c, int p, int mine, int theirs, const char *name)
{
    snprintf(c->far.nic[p], sizeof(c->far.nic[p]), "%s", name);
    c->conn.path[p].index = (uint8_t)p;
    c->conn.path[p].nic = (uint8_t)mine;
    c->conn.path[p].peer_nic = (uint8_t)theirs;
    c->conn.path[p].inc = 1;
    c->conn.last |= (uint32_t)r2_setup_is_last(c->inst, c->dev, mine) << p;
}

void r2_setup_on_rep(struct r2_comm *c, const struct fo_rep *m)
{
    if (setup_of(c) != R2_SETUP_S_REQ) {
        return;
    }
    for (int p = 0; p < m->npaths; p++) {
        if (m->path[p].s_nic >= c->inst->nics.count) {
            r2_setup_fail(c, "the peer offers a path over a NIC that is not here");
            return;
        }
        path_init(c, p, m->path[p].s_nic, m->path[p].r_nic, m->nic_name[p]);
        c->conn.path[p].way = m->path[p].addr.way;
    }
    c->start->rep = *m;
    c->fo.peer = m->src;
    c->conn.npaths = m->npaths;
    c->conn.rq_depth = m->rq_depth;
    make_label(c, m->host);
    check_digest(c, m->digest);
    r2_setup_check_qps(c, (int)c->inst->cfg.ib_qps);
    if (make_halves(c) != 0) {
        r2_setup_fail(c, "out of memory");
        return;
    }
    setup_move(c, R2_SETUP_S_BUILD);
    c->start->build_since = r2_now(c->inst);
    for (int p = 0; p < m->npaths; p++) {
        if (!m->path[p].ok) {
            c->start->build[p].late = 1;
            continue;
        }
        c->start->build[p].peer = m->path[p].addr;
        r2_build_submit(c, p, 0);
    }
    r2_comm_kick(c);
}

static void make_conf(struct r2_comm *c)
{
    struct fo_conf *m = &c->start->conf;

    memset(m, 0, sizeof(*m));
    m->dst = c->fo.peer;
    m->src = c->id;
    m->npaths = (uint8_t)c->conn.npaths;
    for (int p = 0; p < c->conn.npaths; p++) {
        m->path[p].s_nic = c->conn.path[p].nic;
        m->path[p].r_nic = c->conn.path[p].peer_nic;
        m->path[p].ok = (uint8_t)r2_build_stands(c, p);
        m->path[p].addr.port.mtu = IBV_MTU_1024;
        if (m->path[p].ok) {
            ib_path_addr_get(&c->conn, &c->conn.path[p], &m->path[p].addr);
        }
    }
}

void r2_setup_on_ready(struct r2_comm *c, const struct fo_ready *m)
{
    unsigned up = m->up;

    if (setup_of(c) != R2_SETUP_S_CONF) {
        return;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        if (!r2_build_stands(c, p)) {
            up &= ~(1u << p);
        }
    }
    r2_balance_begin(c);
    open_paths(c, up & ((1u << c->conn.npaths) - 1));
    ib_send_replan(c->tx);
    setup_move(c, R2_SETUP_DONE);
    r2_comm_kick(c);
}

/* --- R --- */

static int listener_dev(struct r2_inst *inst, uint32_t id)
{
    struct r2_listen *l;
    int dev;

    pthread_mutex_lock(&inst->lock);
    l = r2_listen_find(inst, id);
    dev = l ? l->dev : -1;
    pthread_mutex_unlock(&inst->lock);
    return dev;
}

static void send_rep(struct r2_comm *c)
{
    union fo_body b = {.rep = c->start->rep};

    r2_peer_emit(c->inst, c->peer, FO_MSG_REP, &b);
}

void r2_setup_on_req(struct r2_inst *inst, struct r2_peer *peer, const struct fo_req *m)
{
    struct r2_comm *c = r2_comm_from(inst, peer, m->src);
    struct fo_nic nics[IB_MAX_NICS];
    uint8_t s_nic[IB_MAX_PATHS], r_nic[IB_MAX_PATHS];
    int dev, qps;

    if (c) { /* a repetition */
        if (setup_of(c) == R2_SETUP_R_REP) {
            send_rep(c);
        }
        return;
    }
    dev = listener_dev(inst, m->listen);
    if (dev < 0) {
        refuse(inst, peer, m->src, 0, m->listen, "nobody listens under this handle any more");
        return;
    }
    c = r2_comm_alloc(inst, 0, dev);
    if (c == NULL) {
        return; /* S repeats */
    }
    c->start->listen_id = m->listen;
    c->fo.peer = m->src;
    r2_comm_join(c, r2_peer_get(inst, peer->oob)); /* who holds it over the message has it */
    c->start->since = c->start->build_since = r2_now(inst);
    c->conn.traffic_class = m->traffic_class;
    c->conn.npaths = r2_setup_paths(m->nic, m->nnics, m->dev, nics, r2_setup_nics(inst, dev, nics),
                                    dev, inst->cfg.backup_scope == R2_BACKUP_ANY, s_nic, r_nic);
    if (!inst->cfg.failover && c->conn.npaths > 1) {
        c->conn.npaths = 1;
    }
    qps = m->qps > inst->cfg.ib_qps ? m->qps : (int)inst->cfg.ib_qps;
    c->conn.npaths = r2_setup_more(s_nic, r_nic, c->conn.npaths, qps);
    for (int p = 0; p < c->conn.npaths; p++) {
        path_init(c, p, r_nic[p], s_nic[p], m->nic[s_nic[p]].name);
        c->conn.path[p].gen.peer = m->nic[s_nic[p]].gen;
        c->conn.path[p].way = (uint8_t)r2_ways_pick(c, p);
    }
    inst->probing.connections++;
    make_label(c, m->host);
    check_digest(c, m->digest);
    setup_move(c, R2_SETUP_R_BUILD);
    if (c->conn.npaths == 0) {
        r2_setup_fail(c, "a host has no RDMA NIC, and no path of last resort leads to the other");
        return;
    }
    r2_setup_check_qps(c, qps);
    if (make_halves(c) != 0) {
        r2_setup_fail(c, "out of memory");
        return;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        r2_build_submit(c, p, 0);
    }
    r2_comm_kick(c);
}

static void make_rep(struct r2_comm *c)
{
    struct fo_rep *m = &c->start->rep;

    memset(m, 0, sizeof(*m));
    m->dst = c->fo.peer;
    m->src = c->id;
    m->dev = (uint8_t)c->dev;
    m->npaths = (uint8_t)c->conn.npaths;
    m->rq_depth = (uint16_t)c->conn.rq_depth;
    m->digest = c->inst->self.digest;
    snprintf(m->host, sizeof(m->host), "%s", c->inst->self.host);
    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];

        snprintf(m->nic_name[p], FO_NIC_NAME, "%.*s", FO_NIC_NAME - 1,
                 c->inst->nics.nic[path->nic].name);
        m->path[p].s_nic = path->peer_nic;
        m->path[p].r_nic = path->nic;
        m->path[p].ok = (uint8_t)r2_build_stands(c, p);
        m->path[p].addr.port.mtu = IBV_MTU_1024;
        if (m->path[p].ok) {
            ib_path_addr_get(&c->conn, path, &m->path[p].addr);
        }
    }
}

static void send_ready(struct r2_comm *c)
{
    union fo_body b = {.ready = {.dst = c->fo.peer, .src = c->id, .up = c->start->ready}};

    r2_balance_send(c);
    r2_peer_emit(c->inst, c->peer, FO_MSG_READY, &b);
}

void r2_setup_on_channel(struct r2_comm *c)
{
    r2_balance_on_channel(c);
    if (!c->is_send && setup_of(c) == R2_SETUP_DONE && IB_RLX_GET(c->rx->count.messages) == 0 &&
        atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN) {
        send_ready(c);
    }
}

void r2_setup_on_conf(struct r2_comm *c, const struct fo_conf *m)
{
    if (setup_of(c) == R2_SETUP_DONE) { /* READY was lost */
        send_ready(c);
        return;
    }
    if (setup_of(c) != R2_SETUP_R_REP || m->npaths != c->conn.npaths) {
        return;
    }
    c->start->conf = *m;
    setup_move(c, R2_SETUP_R_MOVE);
    c->start->build_since = r2_now(c->inst);
    for (int p = 0; p < c->conn.npaths; p++) {
        if (!r2_build_stands(c, p)) {
            continue;
        }
        if (!m->path[p].ok) {
            c->start->build[p].late = 1;
            continue;
        }
        c->start->build[p].peer = m->path[p].addr;
        r2_build_submit(c, p, 1);
    }
    r2_comm_kick(c);
}

static void hand_over(struct r2_comm *c)
{
    struct r2_inst *inst = c->inst;
    struct r2_listen *l;

    pthread_mutex_lock(&inst->lock);
    l = r2_listen_find(inst, c->start->listen_id);
    if (l) {
        c->list.accept_next = NULL;
        if (l->ready_tail) {
            l->ready_tail->list.accept_next = c;
        } else {
            l->ready_head = c;
        }
        l->ready_tail = c;
    }
    pthread_mutex_unlock(&inst->lock);
    if (l == NULL) { /* the listener was closed meanwhile */
        c->end->abort = 1;
        c->end->closed_at = r2_now(inst);
        r2_close_move(c, R2_CLOSE_BYE);
        r2_comm_kick(c);
    }
}

/* --- step --- */

static uint64_t step_build(struct r2_comm *c, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    unsigned up = 0;

    if (!r2_build_over(c, now, &next)) {
        return next;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        up |= (unsigned)r2_build_stands(c, p) << p;
    }
    if (up == 0) {
        r2_setup_fail(c, "no path could be built (first error: %s)",
                      strerror(c->start->build[0].rc));
        return UINT64_MAX;
    }
    if (setup_of(c) == R2_SETUP_S_BUILD) {
        make_conf(c);
        setup_move(c, R2_SETUP_S_CONF);
        return r2_setup_step(c, now);
    }
    if (setup_of(c) == R2_SETUP_R_BUILD) {
        make_rep(c);
        setup_move(c, R2_SETUP_R_REP);
        send_rep(c);
        return c->start->since + R2_MS(c->inst->cfg.t_connect_ms);
    }
    if (c->flush.lane) {
        ib_flush_open(c->flush.lane, up);
    }
    c->start->ready = (uint8_t)up;
    open_paths(c, up);
    setup_move(c, R2_SETUP_DONE);
    send_ready(c);
    hand_over(c);
    return 0;
}

static uint64_t step_send(struct r2_comm *c, uint64_t now)
{
    if (setup_of(c) == R2_SETUP_NEW) {
        struct r2_oob_peer *oob = c->inst->oob->ops->peer_get(c->inst->oob, &c->start->peer_name);
        struct r2_peer *peer = oob ? r2_peer_get(c->inst, oob) : NULL;

        if (oob) {
            c->inst->oob->ops->peer_put(oob);
        }
        if (peer == NULL) {
            r2_setup_fail(c, "the address in the handle cannot be dialled");
            return UINT64_MAX;
        }
        r2_comm_join(c, peer);
        setup_move(c, R2_SETUP_S_REQ);
    }
    if (now >= c->repeat.at) {
        if (setup_of(c) == R2_SETUP_S_REQ) {
            send_req(c);
        } else {
            union fo_body b = {.conf = c->start->conf};

            r2_peer_emit(c->inst, c->peer, FO_MSG_CONF, &b);
        }
        c->repeat.at = now + c->repeat.interval;
        c->repeat.interval =
            c->repeat.interval < R2_MS(40) ? c->repeat.interval * 2 : c->repeat.interval;
    }
    return c->repeat.at;
}

uint64_t r2_setup_step(struct r2_comm *c, uint64_t now)
{
    uint64_t limit = c->start->since + R2_MS(c->inst->cfg.t_connect_ms);

    if (now >= limit) {
        r2_setup_fail(c, "not done within NCCL_R2_CONNECT=%lld ms, peer %s",
                      (long long)c->inst->cfg.t_connect_ms,
                      c->peer ? c->inst->oob->ops->peer_str(c->peer->oob) : "?");
        return UINT64_MAX;
    }
    switch (setup_of(c)) {
    case R2_SETUP_NEW:
    case R2_SETUP_S_REQ:
    case R2_SETUP_S_CONF:
        return r2_earlier(limit, step_send(c, now));
    case R2_SETUP_S_BUILD:
    case R2_SETUP_R_BUILD:
    case R2_SETUP_R_MOVE:
        return r2_earlier(limit, step_build(c, now));
    default:
        return limit;
    }
}
