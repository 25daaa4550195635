#include "r2_host_registry_int.h"

void r2_host_registry_nic_set(struct r2_host_registry *b, int i,
                              const struct r2_host_registry_nic *nic)
{
    word *w;

    if (b->own < 0 || i < 0 || i >= R2_HOST_REGISTRY_NICS) {
        return;
    }
    w = registry_slot_of(b, b->own)->nic[i];
    registry_set(&w[0], nic->guid);
    registry_set(&w[1], (uint64_t)nic->port | (uint64_t)nic->state << 8 |
                            (uint64_t)nic->drained << 16 | (uint64_t)nic->waits << 24 |
                            (uint64_t)nic->usable << 32 | (uint64_t)nic->last << 48);
    registry_set(&w[2], nic->lost);
    registry_text_set(&w[3], TEXT(R2_HOST_REGISTRY_NIC), nic->name);
}

void r2_host_registry_load_set(struct r2_host_registry *b, int i,
                               const struct r2_host_registry_load *l)
{
    if (b->own >= 0 && i >= 0 && i < R2_HOST_REGISTRY_NICS) {
        word *w = registry_slot_of(b, b->own)->load[i];

        registry_set(&w[0], l->moved);
        registry_set(&w[1], l->queued);
        registry_set(&w[2], l->front);
        registry_set(&w[3], l->moved_at);
    }
}

static void load_sum(const word *w, uint64_t now, struct r2_host_registry_load *sum)
{
    uint64_t moved_at = registry_get(&w[3]);

    sum->moved += registry_get(&w[0]);
    if (moved_at == 0 || now < moved_at ||
        now - moved_at <
            R2_HOST_REGISTRY_STALE) { /* else it stands still, or its process was killed */
        sum->queued += registry_get(&w[1]);
        sum->front += registry_get(&w[2]);
    }
    sum->moved_at = moved_at > sum->moved_at ? moved_at : sum->moved_at;
}

void r2_host_registry_load_add(const struct r2_host_registry *b, uint64_t guid, uint8_t port,
                               uint64_t now, struct r2_host_registry_load *sum)
{
    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        const struct registry_slot *s = registry_slot_of(b, i);

        if (i == b->own || registry_get(&s->incarnation) == 0) {
            continue;
        }
        for (int n = 0; n < R2_HOST_REGISTRY_NICS; n++) {
            if (registry_get(&s->nic[n][0]) == guid &&
                (uint8_t)registry_get(&s->nic[n][1]) == port) {
                load_sum(s->load[n], now, sum);
            }
        }
    }
}

void r2_host_registry_flow_set(struct r2_host_registry *b, int i,
                               const struct r2_host_registry_flow *f)
{
    if (b->own >= 0 && i >= 0 && i < R2_HOST_REGISTRY_NICS) {
        struct registry_slot *s = registry_slot_of(b, b->own);

        registry_set(&s->flow[i][0], (uint64_t)f->conns << 32 | f->rows);
        registry_set(&s->flow[i][1], f->demand);
        registry_set(&s->flow_of, registry_get(&s->incarnation));
    }
}

int r2_host_registry_slot_flow(const struct r2_host_registry *b, int i, int row,
                               struct r2_host_registry_flow *f)
{
    const struct registry_slot *s;
    uint64_t v;

    if (i < 0 || i >= R2_HOST_REGISTRY_SLOTS || i == b->own || row < 0 ||
        row >= R2_HOST_REGISTRY_NICS) {
        return 0;
    }
    s = registry_slot_of(b, i);
    v = registry_get(&s->flow[row][0]);
    *f = (struct r2_host_registry_flow){.conns = (uint32_t)(v >> 32),
                                        .rows = (uint32_t)v,
                                        .demand = registry_get(&s->flow[row][1])};
    return f->conns != 0 && registry_get(&s->incarnation) != 0 &&
           registry_get(&s->flow_of) == registry_get(&s->incarnation);
}

int r2_host_registry_slot_nic(const struct r2_host_registry *b, int i, int row,
                              struct r2_host_registry_nic *nic)
{
    const word *w = registry_slot_of(b, i)->nic[row];
    uint64_t packed = registry_get(&w[1]);

    nic->guid = registry_get(&w[0]);
    nic->port = (uint8_t)packed;
    nic->state = (uint8_t)(packed >> 8);
    nic->drained = (uint8_t)(packed >> 16);
    nic->waits = (uint8_t)(packed >> 24);
    nic->usable = (uint16_t)(packed >> 32);
    nic->last = (uint16_t)(packed >> 48);
    nic->lost = registry_get(&w[2]);
    registry_text_get(&w[3], TEXT(R2_HOST_REGISTRY_NIC), nic->name);
    return nic->name[0] != '\0';
}

void r2_host_registry_tempo_set(struct r2_host_registry *b, int i,
                                const struct r2_host_registry_tempo *t)
{
    if (b->own >= 0 && i >= 0 && i < R2_HOST_REGISTRY_NICS) {
        struct registry_slot *s = registry_slot_of(b, b->own);

        registry_set(&s->tempo[i][0], t->rate);
        registry_set(&s->tempo[i][1], t->least);
        registry_set(&s->tempo[i][2],
                     (uint64_t)t->wait_us << 32 | (uint64_t)t->busy << 16 | t->parts);
        registry_set(&s->tempo[i][3], t->at);
        registry_set(&s->tempo_of, registry_get(&s->incarnation));
    }
}

static void tempo_get(const word *w, uint64_t now, uint64_t age,
                      struct r2_host_registry_tempo *best)
{
    uint64_t at = registry_get(&w[3]), least = registry_get(&w[1]), packed = registry_get(&w[2]);

    if (at > now || now - at > age || least <= best->least) {
        return;
    }
    *best = (struct r2_host_registry_tempo){.rate = registry_get(&w[0]),
                                            .least = least,
                                            .wait_us = (uint32_t)(packed >> 32),
                                            .busy = (uint16_t)(packed >> 16),
                                            .parts = (uint16_t)packed,
                                            .at = at};
}

int r2_host_registry_tempo_best(const struct r2_host_registry *b, uint64_t guid, uint8_t port,
                                uint64_t now, uint64_t age, struct r2_host_registry_tempo *out)
{
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        const struct registry_slot *s = registry_slot_of(b, i);

        if (i == b->own || registry_get(&s->incarnation) == 0 ||
            registry_get(&s->tempo_of) != registry_get(&s->incarnation)) {
            continue;
        }
        for (int n = 0; n < R2_HOST_REGISTRY_NICS; n++) {
            if (registry_get(&s->nic[n][0]) == guid &&
                (uint8_t)registry_get(&s->nic[n][1]) == port) {
                tempo_get(s->tempo[n], now, age, out);
            }
        }
    }
    return out->least != 0;
}

/* A number as 16 bits: its binary exponent, and the 10 bits below its highest one. Unpacked it is
 * less by a thousandth at most; 1 is 0. */
static uint64_t pack(uint64_t v)
{
    unsigned e = v > 1 ? 63 - (unsigned)__builtin_clzll(v) : 0;
    uint64_t below = e ? v - (1ull << e) : 0;

    return (uint64_t)e << 10 | (e >= 10 ? below >> (e - 10) : below << (10 - e));
}

static uint64_t unpack(uint64_t code)
{
    unsigned e = code >> 10 & 63;
    uint64_t below = code & 1023;

    return e == 0 ? 0 : (1ull << e) + (e >= 10 ? below << (e - 10) : below >> (10 - e));
}

void r2_host_registry_room_set(struct r2_host_registry *b, const struct r2_host_registry_room *r)
{
    struct registry_slot *s;

    if (b->own < 0) {
        return;
    }
    s = registry_slot_of(b, b->own);
    if (r == NULL) {
        registry_set(&s->room_of, 0);
        return;
    }
    for (int i = 0; i < R2_HOST_REGISTRY_NICS; i++) {
        const struct r2_host_registry_room_nic *n = &r->nic[i];

        registry_set(&s->room[i][0],
                     (uint64_t)n->rows << 32 | pack(n->demand) << 16 | pack(n->in_fixed));
        registry_set(&s->room[i][1], pack(n->out) << 48 | pack(n->out_bound) << 32 |
                                         pack(n->in) << 16 | pack(n->in_bound));
    }
    registry_set(&s->room_sum[0], r->move);
    registry_set(&s->room_sum[1],
                 (uint64_t)r->stands[1] << 33 | (uint64_t)r->stands[0] << 32 | r->move_rows);
    registry_set(&s->room_sum[2], r->hosts);
    registry_set(&s->room_sum[3], r->until);
    registry_set(&s->room_of, registry_get(&s->incarnation));
}

int r2_host_registry_slot_room(const struct r2_host_registry *b, int i,
                               struct r2_host_registry_room *r)
{
    const struct registry_slot *s;
    uint64_t sum;

    memset(r, 0, sizeof(*r));
    if (i < 0 || i >= R2_HOST_REGISTRY_SLOTS || i == b->own) {
        return 0;
    }
    s = registry_slot_of(b, i);
    if (registry_get(&s->incarnation) == 0 ||
        registry_get(&s->room_of) != registry_get(&s->incarnation)) {
        return 0;
    }
    for (int k = 0; k < R2_HOST_REGISTRY_NICS; k++) {
        uint64_t v = registry_get(&s->room[k][0]), w = registry_get(&s->room[k][1]);

        r->nic[k] = (struct r2_host_registry_room_nic){.rows = (uint32_t)(v >> 32),
                                                       .demand = unpack(v >> 16 & 0xffff),
                                                       .in_fixed = unpack(v & 0xffff),
                                                       .out = unpack(w >> 48),
                                                       .out_bound = unpack(w >> 32 & 0xffff),
                                                       .in = unpack(w >> 16 & 0xffff),
                                                       .in_bound = unpack(w & 0xffff)};
    }
    r->move = registry_get(&s->room_sum[0]);
    sum = registry_get(&s->room_sum[1]);
    r->move_rows = (uint32_t)sum;
    r->stands[0] = sum >> 32 & 1;
    r->stands[1] = sum >> 33 & 1;
    r->hosts = registry_get(&s->room_sum[2]);
    r->until = registry_get(&s->room_sum[3]);
    return registry_get(&s->room_of) == registry_get(&s->incarnation);
}
