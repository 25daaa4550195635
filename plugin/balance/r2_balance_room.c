/*
 * Making room (docs/balance.md): connections at home on a NIC that others stand in on use their
 * other NIC pairs, too. S decides for itself by what this process sends; R, which alone sees what
 * comes together at its NICs, announces what is left of them. Nothing is looked at while every
 * connection can use its home NIC.
 */
#include <string.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "r2_balance_int.h"

#define REPEATS 3 /* of what is announced: a channel that is lost takes what was queued with it */
#define RESTS   8 /* looks between two announcements to a connection, but for the last one */
#define STALE   5000000000ull /* ns: what a process says holds for so long, and four looks */
#define IDLES   8 /* looks in a row: of one that stands in; without a reason to make room */

static uint8_t home_of(const struct r2_comm *c)
{
    return c->conn.path[0].nic;
}

static uint32_t nics_of(const struct r2_comm *c, uint32_t paths)
{
    uint32_t nics = 0;

    for (uint32_t m = paths; m; m &= m - 1) {
        nics |= 1u << c->conn.path[__builtin_ctz(m)].nic;
    }
    return nics;
}

/* --- who stands in --- */

static bool stands_in(const struct r2_comm *c)
{
    return c->flow->stands >= R2_FLOW_STANDS;
}

/*
 * It stands in when it is displaced and moved something in R2_FLOW_STANDS looks in a row: who puts
 * its work elsewhere by itself does not. From then on until it is displaced no more, or others of
 * its direction moved something in IDLES looks in a row and it did not: on a slow link a message
 * may take as long as some looks. @moves: some connection of that direction is fresh. Where none
 * is, it may rest as the job does.
 */
static void stands_follow(struct r2_comm *c, bool moves)
{
    uint8_t stands = c->flow->stands;

    if (!c->flow->is_displaced) {
        stands = 0;
    } else if (c->flow->is_fresh) {
        stands = stands + 1 < R2_FLOW_STANDS ? stands + 1 : R2_FLOW_STANDS + IDLES - 1;
    } else if (moves) {
        stands = stands > R2_FLOW_STANDS ? stands - 1 : 0;
    }
    r2_flow_stands(c, stands);
}

/* Those that send, or that receive. */
static void all_stand_follow(struct r2_inst *inst, int is_send)
{
    bool moves = false, *some = &inst->balance->making.mine.stands[is_send];

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        moves |= c->is_send == is_send && c->flow->is_fresh;
    }
    *some = false;
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->is_send == is_send) {
            stands_follow(c, moves);
            *some |= stands_in(c);
        }
    }
}

/* --- S: what this host sends --- */

struct out {
    uint64_t all[IB_MAX_NICS], bound[IB_MAX_NICS]; /* bytes per second lately */
};

static uint64_t weight_sum(const struct r2_comm *c)
{
    uint64_t sum = 0;

    for (uint32_t m = c->flow->plan; m; m &= m - 1) {
        sum += c->conn.weight[__builtin_ctz(m)];
    }
    return sum;
}

/* What its plan sends over each NIC, by its demand. */
static void out_add(const struct r2_comm *c, struct out *out)
{
    uint64_t sum = weight_sum(c);
    int n = __builtin_popcount(c->flow->plan);

    for (uint32_t m = c->flow->plan; m; m &= m - 1) {
        int p = __builtin_ctz(m);
        double part = sum ? (double)c->conn.weight[p] / (double)sum : 1.0 / n;
        uint64_t bytes = (uint64_t)((double)c->flow->demand * part);

        out->all[c->conn.path[p].nic] += bytes;
        out->bound[c->conn.path[p].nic] += stands_in(c) ? bytes : 0;
    }
}

/* Of this process for the others, and with theirs. */
static void out_tell(struct r2_balance *b, struct out *out)
{
    for (uint32_t n = 0; n < b->ways.nics; n++) {
        struct r2_host_registry_room_nic *mine = &b->making.mine.nic[n];

        mine->rows = 0;
        for (uint32_t k = 0; k < b->ways.nics; k++) {
            mine->rows |= b->stood[n].over[k] ? 1u << k : 0;
        }
        mine->demand = b->stood[n].demand;
        mine->out = out->all[n];
        mine->out_bound = out->bound[n];
        out->all[n] += b->theirs.out[n];
        out->bound[n] += b->theirs.out_bound[n];
    }
}

/* The paths beside its home's over which it may make room: those of NICs, here and there, that are
 * not crowded themselves. */
static uint32_t room_of(const struct r2_comm *c, const struct out *out)
{
    uint32_t room = 0;

    for (uint32_t m = c->flow->usable & ~ib_conn_pair(&c->conn, 0); m; m &= m - 1) {
        int p = __builtin_ctz(m), nic = c->conn.path[p].nic;

        if (!r2_room_is_told(c, p) &&
            !balance_room_is_bound(out->all[nic], out->bound[nic], c->flow->room >> p & 1)) {
            room |= 1u << p;
        }
    }
    return room;
}

static bool some_stand_in(const struct r2_balance *b)
{
    return b->making.mine.stands[1] || b->theirs.stands[1];
}

/* Whether there is a reason to use @room. */
static bool is_wanted(const struct r2_comm *c, const struct out *out, uint32_t room)
{
    struct balance_room_facts f = {.some_stand_in = some_stand_in(c->inst->balance),
                                   .home = out->all[home_of(c)],
                                   .bound = out->bound[home_of(c)],
                                   .elsewhere = UINT64_MAX,
                                   .first = c->flow->port_first[0],
                                   .now = c->flow->port_there[0],
                                   .is_making = c->flow->room != 0};

    for (uint32_t m = nics_of(c, room); m; m &= m - 1) {
        uint64_t all = out->all[__builtin_ctz(m)];

        f.elsewhere = all < f.elsewhere ? all : f.elsewhere;
    }
    return balance_room_wants(&f);
}

/* The same, 0 where it stays at home. While some stand in, it goes on until there was no reason in
 * IDLES looks in a row: operations come in bursts, and what each connection has moved lately goes
 * up and down with them. */
static uint32_t room_next(struct r2_comm *c, const struct out *out)
{
    uint32_t room = c->flow->plan && !c->flow->is_displaced ? room_of(c, out) : 0;
    bool wanted = room != 0 && is_wanted(c, out, room);

    if (wanted || room == 0 || c->flow->room == 0 || !some_stand_in(c->inst->balance)) {
        c->flow->leaves = 0;
        return wanted ? room : 0;
    }
    c->flow->leaves = (uint8_t)((c->flow->leaves + 1) % IDLES);
    return c->flow->leaves != 0 ? room : 0;
}

static void log_changes(struct r2_inst *inst, uint32_t makes)
{
    struct r2_balance_room *room = &inst->balance->making;

    for (uint32_t m = makes ^ room->nics; m; m &= m - 1) {
        R2_INFO("NIC %s: its connections %s", inst->nics.nic[__builtin_ctz(m)].name,
                makes >> __builtin_ctz(m) & 1
                    ? "make room for those that stand in there, and use other NICs, too"
                    : "are by themselves again");
    }
    room->nics = makes;
}

static void make_room(struct r2_inst *inst, const struct out *out)
{
    uint32_t makes = 0;
    bool told = false;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->is_send && c->flow->is_open) {
            uint32_t room = room_next(c, out);

            r2_balance_make_room(c, room);
            makes |= (uint32_t)(room != 0) << home_of(c);
            told |= r2_room_is_told(c, 0);
        }
    }
    inst->balance->making.told = told;
    log_changes(inst, makes);
}

static void sending(struct r2_inst *inst)
{
    struct out out;

    all_stand_follow(inst, 1);
    memset(&out, 0, sizeof(out));
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->is_send && c->flow->plan) {
            out_add(c, &out);
        }
    }
    out_tell(inst->balance, &out);
    if (!inst->cfg.spread) { /* then all use all NICs as it is */
        make_room(inst, &out);
    }
}

/* --- R: what comes in --- */

/* What came over each path: half of it since the last look, as with what is sent. Of the first look
 * of a series nothing is known. */
static void came_follow(struct r2_comm *c, uint32_t series)
{
    bool first = c->flow->came.series != series;

    c->flow->told.rest = first ? 0 : c->flow->told.rest;
    c->flow->is_fresh = false;
    for (int p = 0; p < c->conn.npaths; p++) {
        uint64_t bytes = IB_RLX_GET(c->conn.path[p].count.bytes), before = c->flow->came.bytes[p];

        c->flow->came.bytes[p] = bytes;
        bytes -= bytes >= before ? before : 0; /* less: a new incarnation */
        c->flow->is_fresh |= !first && bytes != 0;
        c->flow->came.sum[p] = first ? 0 : c->flow->came.sum[p] / 2 + bytes;
    }
    c->flow->came.series = series;
}

/* A host from which some connection stands in, to whatever process of ours, divides what it sends
 * by what it has left: it is told of nothing that it brings about. */
static uint64_t host_bit(const struct r2_comm *c)
{
    return 1ull << c->flow->host % 64;
}

static bool is_bound(const struct r2_balance *b, const struct r2_comm *c)
{
    return ((b->making.mine.hosts | b->theirs.hosts) & host_bit(c)) != 0;
}

struct incoming {
    struct balance_in in[IB_MAX_NICS];
    uint64_t all, move;
    uint32_t reach; /* bit per NIC that a sender that is not bound can use */
    uint32_t nics;  /* ... of those that can move */
};

static void hosts_find(struct r2_inst *inst)
{
    uint64_t *hosts = &inst->balance->making.mine.hosts;

    *hosts = 0;
    for (const struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        *hosts |= !c->is_send && stands_in(c) ? host_bit(c) : 0;
    }
}

static void in_count(struct r2_inst *inst, struct incoming *i)
{
    struct r2_balance *b = inst->balance;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (!c->is_send) {
            came_follow(c, b->making.series);
        }
    }
    all_stand_follow(inst, 0);
    hosts_find(inst);
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        bool bound = is_bound(b, c);

        if (c->is_send) {
            continue;
        }
        i->reach |= bound ? 0 : nics_of(c, c->flow->usable);
        for (int p = 0; p < c->conn.npaths; p++) {
            struct balance_in *in = &i->in[c->conn.path[p].nic];

            in->all += c->flow->came.sum[p];
            in->bound += bound ? c->flow->came.sum[p] : 0;
        }
    }
}

/* Of this process for the others, and with theirs. */
static void in_tell(struct r2_balance *b, struct incoming *i)
{
    for (uint32_t n = 0; n < b->ways.nics; n++) {
        struct r2_host_registry_room_nic *mine = &b->making.mine.nic[n];

        mine->in = i->in[n].all;
        mine->in_bound = i->in[n].bound;
        i->in[n].all += b->theirs.in[n];
        i->in[n].bound += b->theirs.in_bound[n];
        i->all += i->in[n].all;
    }
}

static bool can_move(const struct r2_comm *c, uint32_t crowded)
{
    return crowded >> home_of(c) & 1;
}

/* Of all that comes from @peer, what can move; the rest into @fixed, by NIC. */
static uint64_t peer_count(const struct r2_balance *b, const struct r2_peer *peer,
                           uint64_t fixed[IB_MAX_NICS])
{
    uint64_t move = 0;

    for (const struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        for (int p = 0; !c->is_send && p < c->conn.npaths; p++) {
            if (!is_bound(b, c) && can_move(c, b->making.crowded)) {
                move += c->flow->came.sum[p];
            } else {
                fixed[c->conn.path[p].nic] += c->flow->came.sum[p];
            }
        }
    }
    return move;
}

static void move_count(struct r2_inst *inst, struct incoming *i)
{
    struct r2_balance *b = inst->balance;
    struct r2_host_registry_room *mine = &b->making.mine;
    uint64_t fixed[IB_MAX_NICS] = {0};

    mine->move = mine->move_rows = 0;
    for (struct r2_peer *peer = inst->index.peers; peer; peer = peer->next) {
        uint64_t move = peer_count(b, peer, fixed);

        mine->move += move;
        for (const struct r2_comm *c = move ? peer->comms : NULL; c; c = c->list.peer_next) {
            mine->move_rows |=
                !c->is_send && can_move(c, b->making.crowded) ? nics_of(c, c->flow->usable) : 0;
        }
    }
    i->move = mine->move + b->theirs.move;
    i->nics = mine->move_rows | b->theirs.nics;
    for (int n = 0; n < inst->nics.count; n++) {
        mine->nic[n].in_fixed = fixed[n];
        i->in[n].fixed = fixed[n] + b->theirs.in_fixed[n];
    }
}

static bool has_news(const struct r2_comm *c, const uint32_t *left)
{
    bool news = false, full = true;

    for (int p = 0; p < c->conn.npaths; p++) {
        uint8_t nic = c->conn.path[p].nic;
        uint32_t port = c->inst->balance->ways.port[nic];

        news |= balance_room_is_news(r2_room_left(c, p), left[nic], port);
        full &= left[nic] == port;
    }
    return news && (full || c->flow->told.rest == 0);
}

/* Announces @left to the sender of @c, or again what was; whether there is more to come. */
static bool tell(struct r2_comm *c, const uint32_t *left)
{
    bool some = false;

    c->flow->told.rest -= c->flow->told.rest > 0;
    if (has_news(c, left)) {
        for (int p = 0; p < c->conn.npaths; p++) {
            uint8_t nic = c->conn.path[p].nic;

            c->flow->came.left[p] = left[nic] == c->inst->balance->ways.port[nic] ? 0 : left[nic];
        }
        c->flow->told.ever = true;
        c->flow->told.rest = RESTS;
        c->flow->told.repeat = REPEATS;
    }
    if (c->flow->told.repeat > 0) {
        c->flow->told.repeat--;
        r2_balance_send(c);
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        some |= c->flow->came.left[p] != 0;
    }
    return some || c->flow->told.repeat > 0;
}

/* What its host sends to other processes of ours and cannot move: nobody knows how much. As great a
 * part as of what can move. */
static void own_add(const struct r2_balance *b, struct balance_room_sender *s)
{
    for (uint32_t n = 0; n < b->ways.nics; n++) {
        uint64_t fixed = b->theirs.in_fixed[n], bound = b->theirs.in_bound[n];

        s->own[n] += fixed > bound ? (uint64_t)(s->part * (double)(fixed - bound)) : 0;
    }
}

static void all_tell(struct r2_inst *inst, const struct incoming *i)
{
    const struct r2_balance *b = inst->balance;
    struct r2_balance_room *room = &inst->balance->making;
    int n = inst->nics.count;
    double level = balance_room_level(i->in, i->nics, i->move);

    room->announced = 0;
    for (struct r2_peer *peer = inst->index.peers; peer; peer = peer->next) {
        struct balance_room_sender s = {.part = 0};
        uint32_t left[IB_MAX_NICS];

        if (i->move) {
            s.part = (double)peer_count(b, peer, s.own) / (double)i->move;
            own_add(b, &s);
        }
        balance_room_left(i->in, n, i->nics, room->crowded, level, &s, left);
        for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
            if (!c->is_send && c->flow->is_open) {
                room->announced += tell(c, left);
            }
        }
    }
}

static void receiving(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;
    struct r2_balance_room *room = &b->making;
    struct incoming i = {.all = 0};
    bool some;

    if (!room->looks) {
        room->looks = true;
        room->series++;
        room->crowded = 0;
    }
    for (int n = 0; n < inst->nics.count; n++) {
        i.in[n].mbps = b->ways.port[n];
    }
    some = room->displaced[0] != 0 || b->theirs.stands[0];
    in_count(inst, &i);
    in_tell(b, &i);
    if (some && i.all < BALANCE_ROOM_LEAST) {
        return; /* a job that rests: it stays as it was */
    }
    room->crowded = some ? balance_room_crowded(i.in, inst->nics.count, i.reach, room->crowded) : 0;
    move_count(inst, &i);
    all_tell(inst, &i);
}

/* To the other processes of this host, while it concerns any of them or us. */
static void say(struct r2_inst *inst, bool is_due)
{
    struct r2_balance_room *room = &inst->balance->making;
    const bool *stands = room->mine.stands;

    if (inst->share.registry == NULL || (!is_due && !room->is_said)) {
        return;
    }
    room->mine.until = r2_now(inst) + STALE + 4 * R2_MS(inst->cfg.t_port_poll_ms);
    r2_host_registry_room_set(inst->share.registry, is_due ? &room->mine : NULL);
    room->is_said = is_due;
    if (stands[0] != room->said[0] || stands[1] != room->said[1]) {
        memcpy(room->said, stands, sizeof(room->said));
        r2_host_registry_ring(inst->share.registry); /* who rests begins to look */
    }
}

void r2_room_gone(struct r2_inst *inst)
{
    struct r2_balance_room *room = &inst->balance->making;

    room->nics = room->announced = 0;
    room->told = room->looks = false;
    memset(&room->mine, 0, sizeof(room->mine));
    say(inst, false); /* a process may live long after its last connection, and look no more */
}

/* --- both --- */

bool r2_room_is_told(const struct r2_comm *c, int p)
{
    return c->flow->port_there[p] != 0 && c->flow->port_there[p] < c->flow->port_first[p];
}

void r2_room_comm(struct r2_comm *c, bool is_open)
{
    uint32_t *displaced = &c->inst->balance->making.displaced[!!c->is_send],
             usable = is_open ? ib_conn_usable(&c->conn) : 0;
    bool is_displaced = usable && !(usable & ib_conn_pair(&c->conn, 0));

    *displaced += (uint32_t)is_displaced - (uint32_t)c->flow->is_displaced;
    if (!is_displaced && c->flow->is_displaced) {
        r2_flow_stands(c, 0);
    }
    c->flow->is_displaced = is_displaced;
    if (is_open && !c->flow->is_open) {
        c->flow->host = r2_fnv_add(R2_FNV_BASIS, c->far.host, strlen(c->far.host));
    }
    c->flow->is_open = is_open;
    c->flow->usable = usable;
}

uint32_t r2_room_left(const struct r2_comm *c, int p)
{
    uint32_t left = c->is_send ? 0 : c->flow->came.left[p];

    return left ? left : c->inst->balance->ways.port[c->conn.path[p].nic];
}

uint32_t r2_room_host(const struct r2_comm *c)
{
    for (uint32_t m = c->flow->plan; m; m &= m - 1) {
        if (r2_room_is_told(c, __builtin_ctz(m))) {
            return r2_fnv_add(c->flow->host, &c->peer, sizeof(c->peer));
        }
    }
    return c->flow->host;
}

void r2_balance_on_channel(struct r2_comm *c)
{
    if (!c->is_send && c->flow->told.ever) {
        c->flow->told.repeat = REPEATS;
        c->inst->balance->making.announced++;
    }
}

bool r2_room_is_due(struct r2_inst *inst)
{
    const struct r2_balance *b = inst->balance;
    const struct r2_balance_room *room = &b->making;

    return inst->cfg.balance && inst->nics.count > 1 && r2_comm_first(inst) != NULL &&
           (room->displaced[0] != 0 || room->displaced[1] != 0 || room->announced != 0 ||
            (!inst->cfg.spread && (room->nics != 0 || room->told)) || room->mine.stands[0] ||
            room->mine.stands[1] || b->theirs.stands[0] || b->theirs.stands[1]);
}

void r2_room_look(struct r2_inst *inst)
{
    bool is_due = r2_room_is_due(inst);

    if (is_due) {
        sending(inst);
        receiving(inst);
    }
    inst->balance->making.looks = is_due;
    say(inst, is_due);
}
