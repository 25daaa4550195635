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
#define STANDS  3 /* looks in a row: who puts its work elsewhere by itself does not stand in */

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
    return c->flow->stands == STANDS;
}

/* @moves: some connection of that direction is fresh. Where none is, a displaced one may rest as
 * the job does. */
static void stands_follow(struct r2_comm *c, bool moves)
{
    if (c->flow->is_displaced && c->flow->is_fresh) {
        c->flow->stands += c->flow->stands < STANDS;
    } else if (moves || !c->flow->is_displaced) {
        c->flow->stands = 0;
    }
}

/* Those that send, or that receive. */
static void all_stand_follow(struct r2_inst *inst, int is_send)
{
    bool moves = false, *some = &inst->balance->making.stands[is_send];

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

static void others_add(const struct r2_balance *b, struct out *out)
{
    for (uint32_t i = 0; i < b->others; i++) {
        uint32_t nics = b->other[i].nics & (b->ways.nics < 32 ? (1u << b->ways.nics) - 1 : ~0u);

        for (uint32_t m = nics; m; m &= m - 1) {
            out->all[__builtin_ctz(m)] += b->other[i].demand / (uint32_t)__builtin_popcount(nics);
        }
    }
}

/* The paths beside its home's over which it may make room: those of NICs, here and there, that are
 * not crowded themselves. */
static uint32_t room_of(const struct r2_comm *c, const struct out *out)
{
    uint32_t room = 0;

    for (uint32_t m = c->flow->usable & ~ib_conn_pair(&c->conn, 0); m; m &= m - 1) {
        int p = __builtin_ctz(m), nic = c->conn.path[p].nic;

        if (!r2_room_is_told(c, p) && !balance_room_is_bound(out->all[nic], out->bound[nic])) {
            room |= 1u << p;
        }
    }
    return room;
}

/* The same, 0 where it stays at home. */
static uint32_t room_wanted(const struct r2_comm *c, const struct out *out)
{
    uint32_t room = room_of(c, out);
    struct balance_room_facts f = {.some_stand_in = c->inst->balance->making.stands[1],
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
    return !c->flow->is_displaced && balance_room_wants(&f) ? room : 0;
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

static void sending(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;
    struct out out;
    uint32_t makes = 0;
    bool told = false;

    if (b->making.displaced[1] == 0 && b->making.nics == 0 && !b->making.told &&
        !b->making.stands[1]) {
        return;
    }
    b->due |= r2_flows_hear(inst);
    all_stand_follow(inst, 1);
    memset(&out, 0, sizeof(out));
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->is_send && c->flow->plan) {
            out_add(c, &out);
        }
    }
    others_add(b, &out);
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->is_send && c->flow->is_open) {
            uint32_t room = c->flow->plan ? room_wanted(c, &out) : 0;

            r2_balance_make_room(c, room);
            makes |= (uint32_t)(room != 0) << home_of(c);
            told |= r2_room_is_told(c, 0);
        }
    }
    b->making.told = told;
    log_changes(inst, makes);
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

/* A sender of which some connection stands in divides what it sends by what it has left: it is told
 * of nothing that it brings about. */
static bool is_bound(const struct r2_peer *peer)
{
    for (const struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        if (!c->is_send && stands_in(c)) {
            return true;
        }
    }
    return false;
}

struct incoming {
    struct balance_in in[IB_MAX_NICS];
    uint64_t all, move;
    uint32_t reach; /* bit per NIC that a sender that is not bound can use */
    uint32_t nics;  /* ... of those that can move */
};

static void in_count(struct r2_inst *inst, struct incoming *i)
{
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (!c->is_send) {
            came_follow(c, inst->balance->making.series);
        }
    }
    all_stand_follow(inst, 0);
    for (struct r2_peer *peer = inst->index.peers; peer; peer = peer->next) {
        bool bound = is_bound(peer);

        for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
            if (c->is_send) {
                continue;
            }
            i->reach |= bound ? 0 : nics_of(c, c->flow->usable);
            for (int p = 0; p < c->conn.npaths; p++) {
                struct balance_in *in = &i->in[c->conn.path[p].nic];

                in->all += c->flow->came.sum[p];
                in->bound += bound ? c->flow->came.sum[p] : 0;
                i->all += c->flow->came.sum[p];
            }
        }
    }
}

static bool can_move(const struct r2_comm *c, uint32_t crowded)
{
    return crowded >> home_of(c) & 1;
}

/* Of all that comes from @peer, what can move; the rest into @fixed, by NIC. */
static uint64_t peer_count(const struct r2_peer *peer, uint32_t crowded,
                           uint64_t fixed[IB_MAX_NICS])
{
    bool bound = is_bound(peer);
    uint64_t move = 0;

    for (const struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        for (int p = 0; !c->is_send && p < c->conn.npaths; p++) {
            if (!bound && can_move(c, crowded)) {
                move += c->flow->came.sum[p];
            } else {
                fixed[c->conn.path[p].nic] += c->flow->came.sum[p];
            }
        }
    }
    return move;
}

static void move_count(struct r2_inst *inst, uint32_t crowded, struct incoming *i)
{
    uint64_t fixed[IB_MAX_NICS] = {0};

    for (struct r2_peer *peer = inst->index.peers; peer; peer = peer->next) {
        uint64_t move = peer_count(peer, crowded, fixed);

        i->move += move;
        for (const struct r2_comm *c = move ? peer->comms : NULL; c; c = c->list.peer_next) {
            i->nics |= !c->is_send && can_move(c, crowded) ? nics_of(c, c->flow->usable) : 0;
        }
    }
    for (int n = 0; n < inst->nics.count; n++) {
        i->in[n].fixed = fixed[n];
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

static void all_tell(struct r2_inst *inst, const struct incoming *i)
{
    struct r2_balance_room *room = &inst->balance->making;
    int n = inst->nics.count;
    double level = balance_room_level(i->in, i->nics, i->move);

    room->announced = 0;
    for (struct r2_peer *peer = inst->index.peers; peer; peer = peer->next) {
        struct balance_room_sender s = {.part = 0};
        uint32_t left[IB_MAX_NICS];

        if (i->move) {
            s.part = (double)peer_count(peer, room->crowded, s.own) / (double)i->move;
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
    struct r2_balance_room *room = &inst->balance->making;
    struct incoming i = {.all = 0};

    if (room->displaced[0] == 0 && room->announced == 0 && !room->stands[0]) {
        room->looks = false;
        return;
    }
    if (!room->looks) {
        room->looks = true;
        room->series++;
        room->crowded = 0;
    }
    for (int n = 0; n < inst->nics.count; n++) {
        i.in[n].mbps = inst->balance->ways.port[n];
    }
    in_count(inst, &i);
    if (room->displaced[0] != 0 && i.all < BALANCE_ROOM_LEAST) {
        return; /* a job that rests: it stays as it was */
    }
    room->crowded = room->displaced[0]
                        ? balance_room_crowded(i.in, inst->nics.count, i.reach, room->crowded)
                        : 0;
    move_count(inst, room->crowded, &i);
    all_tell(inst, &i);
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
    c->flow->is_displaced = is_displaced;
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

void r2_room_look(struct r2_inst *inst)
{
    if (!inst->cfg.balance || inst->nics.count < 2) {
        return;
    }
    if (!inst->cfg.spread) {
        sending(inst);
    }
    receiving(inst);
}
