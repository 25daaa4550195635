#include "tools/r2_perf/player.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

/* One connection of the schedule over one NIC, at this end. */
struct lane {
    const struct steps_connection *of;
    struct conn *conn;
    int nic, op;    /* the op that is sent or awaited; STEPS_NONE: all are done */
    size_t at, n;   /* elements of its part: the next, and how many are left */
    size_t begin;   /* of its part */
    bool is_loaded; /* begin, n are those of op */
};

struct player {
    const struct spread *spread;
    const struct steps *steps;
    struct wire *wire;
    int rank;
    struct player_data data;
    size_t type_size;
    char *scratch; /* places 1 and above */
    size_t scratch_bytes;
    int *waits; /* [op]: of those that begin here */
    int *parts; /* [op]: NICs whose part has not been sent, or not come */
    int *ready; /* local ops to be done */
    int readies, pending;
    struct lane *out, *in;
    int outs, ins;
    struct player_count count;
};

static void lanes_make(struct player *p)
{
    const struct steps *s = p->steps;
    size_t most = (size_t)s->connections * (size_t)p->spread->nics + 1;

    p->out = util_mem_alloc(most, sizeof(*p->out));
    p->in = util_mem_alloc(most, sizeof(*p->in));
    for (int i = 0; i < s->connections; i++) {
        const struct steps_connection *c = &s->connection[i];

        for (int k = 0; k < p->spread->nics; k++) {
            int channel = c->channel * p->spread->nics + k;

            if (c->src == p->rank) {
                p->out[p->outs++] =
                    (struct lane){.of = c, .nic = k, .conn = p->wire->send[channel][c->dst]};
            } else if (c->dst == p->rank) {
                p->in[p->ins++] =
                    (struct lane){.of = c, .nic = k, .conn = p->wire->recv[channel][c->src]};
            }
        }
    }
}

struct player *player_open(const struct spread *spread, struct wire *wire)
{
    struct player *p = util_mem_alloc(1, sizeof(*p));
    size_t ops = (size_t)spread->steps->ops + 1;

    p->spread = spread;
    p->steps = spread->steps;
    p->wire = wire;
    p->rank = wire->setup.rank;
    p->waits = util_mem_alloc(ops, sizeof(int));
    p->parts = util_mem_alloc(ops, sizeof(int));
    p->ready = util_mem_alloc(ops, sizeof(int));
    lanes_make(p);
    return p;
}

void player_close(struct player *p)
{
    if (!p) {
        return;
    }
    free(p->scratch);
    free(p->waits);
    free(p->parts);
    free(p->ready);
    free(p->out);
    free(p->in);
    free(p);
}

/* --- what waits --- */

static void wait_end(struct player *p, int op)
{
    const struct steps_op *o = &p->steps->op[op];

    if (o->src == p->rank && --p->waits[op] == 0 && o->dst == p->rank) {
        p->ready[p->readies++] = op;
    }
}

/* @op has come, or has been sent: what begins here and sees that goes on. */
static void op_end(struct player *p, int op)
{
    p->pending--;
    for (int e = p->steps->op[op].followers; e != STEPS_NONE; e = p->steps->edge[e].next) {
        wait_end(p, p->steps->edge[e].op);
    }
}

static char *place_at(struct player *p, int slot, size_t element)
{
    char *base = slot == 0 ? p->data.recv
                           : p->scratch + (size_t)(slot - 1) * p->spread->count * p->type_size;

    return base + element * p->type_size;
}

/* @n elements from @from come to @slot. */
static void elements_put(struct player *p, enum steps_kind kind, int slot, size_t begin,
                         const char *from, size_t n)
{
    char *to = place_at(p, slot, begin);

    if (kind == STEPS_ADD) {
        type_vec_reduce(p->data.type, p->data.redop, to, from, to, n);
    } else {
        memcpy(to, from, n * p->type_size);
    }
}

static void ready_do(struct player *p)
{
    while (p->readies > 0) {
        int op = p->ready[--p->readies];
        const struct steps_op *o = &p->steps->op[op];

        if (steps_moves(o)) {
            size_t begin = p->spread->begin[o->chunk];

            elements_put(p, o->kind, o->to, begin, place_at(p, o->from, begin),
                         p->spread->begin[o->chunk + 1] - begin);
        }
        op_end(p, op);
    }
}

/* --- lanes --- */

/* Whether anything of @op goes over the NIC of @l; begin and n become those of its part. */
static bool lane_part_get(const struct player *p, const struct lane *l, int op, size_t *begin,
                          size_t *n)
{
    spread_part(p->spread, op, l->nic, begin, n);
    return *n > 0 ||
           (p->steps->op[op].kind == STEPS_SIGNAL && spread_first(p->spread, op) == l->nic);
}

/* The next op with a part for this NIC. */
static void lane_load(const struct player *p, struct lane *l)
{
    while (!l->is_loaded && l->op != STEPS_NONE) {
        if (lane_part_get(p, l, l->op, &l->begin, &l->n)) {
            l->at = l->begin;
            l->is_loaded = true;
        } else {
            l->op = p->steps->op[l->op].behind;
        }
    }
}

static size_t lane_message_get(const struct player *p, const struct lane *l)
{
    return util_size_min(l->n, p->wire->slot_bytes / p->type_size);
}

/* A message of @n is done with. True: it was the last of its op here. */
static bool lane_advance(struct player *p, struct lane *l, size_t n)
{
    int op = l->op;

    l->at += n;
    l->n -= n;
    if (l->n > 0) {
        return false;
    }
    l->op = p->steps->op[op].behind;
    l->is_loaded = false;
    return --p->parts[op] == 0;
}

static bool lane_receive(struct player *p, struct lane *l, struct trace *trace)
{
    const struct steps_op *o;
    size_t bytes, n;
    const char *got;
    int op;

    lane_load(p, l);
    if (!l->is_loaded || !(got = conn_slot_full(l->conn, &bytes))) {
        return false;
    }
    op = l->op;
    o = &p->steps->op[op];
    n = lane_message_get(p, l);
    if (bytes != n * p->type_size && p->count.mismatches++ == 0) {
        snprintf(p->count.mismatch, sizeof(p->count.mismatch),
                 "from rank %d on rank %d, NIC %d: %zu bytes instead of %zu", o->src, p->rank,
                 l->nic, bytes, n * p->type_size);
    }
    if (bytes == n * p->type_size && steps_moves(o)) {
        elements_put(p, o->kind, o->to, l->at, got, n);
    }
    conn_slot_release(l->conn);
    p->count.received[l->nic] += bytes;
    if (trace->active_since) {
        trace_bytes_add(trace, util_now_ns(), bytes);
    }
    if (lane_advance(p, l, n)) {
        op_end(p, op);
        ready_do(p);
    }
    return true;
}

static bool lane_send(struct player *p, struct lane *l)
{
    size_t n, bytes;
    char *put;
    int op;

    lane_load(p, l);
    if (!l->is_loaded || p->waits[l->op] > 0 || !(put = conn_slot_free(l->conn))) {
        return false;
    }
    op = l->op;
    n = lane_message_get(p, l);
    bytes = n * p->type_size;
    memcpy(put, place_at(p, p->steps->op[op].from, l->at), bytes);
    conn_slot_fill(l->conn, bytes);
    p->count.sent[l->nic] += bytes;
    if (lane_advance(p, l, n)) {
        op_end(p, op);
        ready_do(p);
    }
    return true;
}

bool player_step(struct player *p, struct trace *trace)
{
    bool moved = false;

    if (player_is_done(p)) {
        return false;
    }
    for (int i = 0; i < p->ins; i++) {
        moved |= lane_receive(p, &p->in[i], trace);
    }
    for (int i = 0; i < p->outs; i++) {
        moved |= lane_send(p, &p->out[i]);
    }
    if (player_is_done(p)) {
        type_vec_finish(p->data.type, p->data.redop, p->data.recv, p->spread->count,
                        p->steps->nodes);
    }
    return moved;
}

bool player_is_done(const struct player *p)
{
    return p->pending == 0;
}

/* --- an operation --- */

/* The parts of all ops of @l, and of an incoming one the messages. */
static void lane_start(struct player *p, struct lane *l, bool is_in)
{
    size_t most = p->wire->slot_bytes / p->type_size, begin, n;

    l->op = l->of->first;
    l->is_loaded = false;
    for (int op = l->of->first; op != STEPS_NONE; op = p->steps->op[op].behind) {
        if (!lane_part_get(p, l, op, &begin, &n)) {
            continue;
        }
        p->parts[op]++;
        if (is_in) {
            l->conn->expected += util_size_max((n + most - 1) / most, 1);
        }
    }
}

/* Those without any part, for want of elements, are done when they may begin. */
static void ops_start(struct player *p)
{
    const struct steps *s = p->steps;

    for (int i = 0; i < s->ops; i++) {
        const struct steps_op *o = &s->op[i];

        p->waits[i] = o->waits;
        p->pending += o->src == p->rank || o->dst == p->rank;
    }
    for (int i = 0; i < s->ops; i++) {
        const struct steps_op *o = &s->op[i];
        bool is_here = o->src == p->rank || o->dst == p->rank;

        if (is_here && o->src == o->dst) {
            if (o->waits == 0) {
                p->ready[p->readies++] = i;
            }
        } else if (is_here && p->parts[i] == 0) {
            op_end(p, i);
        }
    }
    ready_do(p);
}

void player_start(struct player *p, const struct player_data *data)
{
    size_t bytes;

    p->data = *data;
    p->type_size = type_id_size(data->type);
    bytes = p->spread->count * p->type_size;
    if (p->scratch_bytes < bytes * (size_t)(p->steps->slots - 1)) {
        free(p->scratch);
        p->scratch_bytes = bytes * (size_t)(p->steps->slots - 1);
        p->scratch = util_mem_alloc(p->scratch_bytes, 1);
    }
    if (data->send != data->recv) {
        memcpy(data->recv, data->send, bytes);
    }
    memset(p->parts, 0, (size_t)p->steps->ops * sizeof(int));
    p->pending = 0;
    for (int i = 0; i < p->outs; i++) {
        lane_start(p, &p->out[i], false);
    }
    for (int i = 0; i < p->ins; i++) {
        lane_start(p, &p->in[i], true);
    }
    ops_start(p);
}

void player_count_take(struct player *p, struct player_count *sum)
{
    for (int k = 0; k < SPREAD_NICS; k++) {
        sum->sent[k] += p->count.sent[k];
        sum->received[k] += p->count.received[k];
    }
    if (sum->mismatches == 0) {
        memcpy(sum->mismatch, p->count.mismatch, sizeof(sum->mismatch));
    }
    sum->mismatches += p->count.mismatches;
    p->count = (struct player_count){0};
}
