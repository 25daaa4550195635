#include "tools/schedule/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"
#include "tools/schedule/share.h"

/* Rounding: of sizes and rates near 1. */
#define TINY 1e-9

struct set {
    uint64_t w[STEPS_NODES / 64];
};

/* Of the part of an op that goes by one NIC, while it runs. */
struct flight {
    int op, nic;
    int waits;  /* for so many others, and for the one before it of its connection and NIC */
    int behind; /* the next of these */
    double size, left, rate;
};

struct sim {
    const struct steps *steps;
    int nics;
    enum sim_by by;
    const struct spread *spread; /* NULL: one NIC a node */
    double *capacity;            /* [port_of()] */
    int *pair;                   /* [connection]: those between the same two nodes have the same */
    struct share share;
    struct share_flow *flow; /* [actives] */
    struct flight *flight;   /* [op][nic] */
    struct set *carries;     /* [op]: when it began */
    int *parts;              /* [op]: how many have not ended */
    struct set *data;        /* [chunk][node][slot] */
    int *active, *ready;
    int actives, readies;
    struct sim_result *r;
};

/* A direction of a node's NIC. */
static int port_of(const struct sim *s, int node, int nic, bool is_receiving)
{
    return ((is_receiving ? s->steps->nodes : 0) + node) * s->nics + nic;
}

/* --- data --- */

static struct set *data_at(struct sim *s, int chunk, int node, int slot)
{
    return &s->data[((size_t)chunk * (size_t)s->steps->nodes + (size_t)node) *
                        (size_t)s->steps->slots +
                    (size_t)slot];
}

static void data_begin(struct sim *s)
{
    s->data =
        util_mem_alloc((size_t)s->steps->chunks * (size_t)s->steps->nodes * (size_t)s->steps->slots,
                       sizeof(struct set));
    for (int c = 0; c < s->steps->chunks; c++) {
        for (int i = 0; i < s->steps->nodes; i++) {
            data_at(s, c, i, 0)->w[i / 64] = 1ull << i % 64;
        }
    }
}

static void wrong_note(struct sim *s, const struct steps_op *op, const char *what)
{
    if (s->r->wrong[0] == '\0') {
        snprintf(s->r->wrong, sizeof(s->r->wrong), "chunk %d from node %d to node %d: %s",
                 op->chunk, op->src, op->dst, what);
    }
}

static void data_move(struct sim *s, const struct steps_op *op, const struct set *carries)
{
    struct set *to = data_at(s, op->chunk, op->dst, op->to);
    bool is_empty = true;

    if (memcmp(carries, data_at(s, op->chunk, op->src, op->from), sizeof(*to)) != 0) {
        wrong_note(s, op, "changed while it was sent");
    }
    for (int w = 0; w < STEPS_NODES / 64; w++) {
        is_empty = is_empty && carries->w[w] == 0;
        if (op->kind == STEPS_ADD && (to->w[w] & carries->w[w])) {
            wrong_note(s, op, "a contribution is added twice");
        }
        if (op->kind == STEPS_COPY && (to->w[w] & ~carries->w[w])) {
            wrong_note(s, op, "a contribution is overwritten");
        }
        to->w[w] = (op->kind == STEPS_ADD ? to->w[w] : 0) | carries->w[w];
    }
    if (is_empty) {
        wrong_note(s, op, "nothing was there to send");
    }
}

static void data_check(struct sim *s)
{
    for (int c = 0; c < s->steps->chunks; c++) {
        for (int i = 0; i < s->steps->nodes; i++) {
            const struct set *d = data_at(s, c, i, 0);
            int has = 0;

            for (int w = 0; w < STEPS_NODES / 64; w++) {
                has += __builtin_popcountll(d->w[w]);
            }
            if (has != s->steps->nodes && s->r->wrong[0] == '\0') {
                snprintf(s->r->wrong, sizeof(s->r->wrong),
                         "chunk %d at node %d ends with %d of %d contributions", c, i, has,
                         s->steps->nodes);
            }
        }
    }
}

/* --- who is under way --- */

static struct flight *flight_at(struct sim *s, int op, int nic)
{
    return &s->flight[(size_t)op * (size_t)s->nics + (size_t)nic];
}

static void wait_end(struct sim *s, struct flight *f)
{
    if (--f->waits == 0) {
        s->ready[s->readies++] = (int)(f - s->flight);
    }
}

static void op_end(struct sim *s, int at)
{
    const struct steps_op *op = &s->steps->op[at];

    if (steps_moves(op)) {
        data_move(s, op, &s->carries[at]);
    }
    for (int e = op->followers; e != STEPS_NONE; e = s->steps->edge[e].next) {
        for (int k = 0; k < s->nics; k++) {
            wait_end(s, flight_at(s, s->steps->edge[e].op, k));
        }
    }
}

static void flight_end(struct sim *s, struct flight *f)
{
    if (f->behind != STEPS_NONE) {
        wait_end(s, flight_at(s, f->behind, f->nic));
    }
    if (--s->parts[f->op] == 0) {
        op_end(s, f->op);
    }
}

/* What takes no time ends at once, and may make others ready. */
static void ready_begin(struct sim *s)
{
    while (s->readies > 0) {
        int at = s->ready[--s->readies];
        struct flight *f = &s->flight[at];
        const struct steps_op *op = &s->steps->op[f->op];

        if (steps_moves(op) && s->parts[f->op] == s->nics) {
            s->carries[f->op] = *data_at(s, op->chunk, op->src, op->from);
        }
        if (f->size <= 0) {
            flight_end(s, f);
            continue;
        }
        f->left = f->size;
        s->active[s->actives++] = at;
    }
}

/* --- rates --- */

/* Of all that its connection carries by its NIC. */
static double weight_of(const struct sim *s, const struct flight *f)
{
    const struct steps_op *op = &s->steps->op[f->op];

    return s->by == SIM_BYTES
               ? s->steps->connection[op->connection].bytes * f->size / s->steps->size[op->chunk]
               : 1;
}

static void rates_find(struct sim *s)
{
    for (int i = 0; i < s->actives; i++) {
        const struct flight *f = &s->flight[s->active[i]];
        const struct steps_op *op = &s->steps->op[f->op];

        s->flow[i] = (struct share_flow){
            .out = port_of(s, op->src, f->nic, false),
            .in = port_of(s, op->dst, f->nic, true),
            .pair = s->pair[op->connection] * s->nics + f->nic,
            .weight = weight_of(s, f),
        };
    }
    share_fill(&s->share, s->by == SIM_SENDERS ? SHARE_SENDERS : SHARE_FLOWS, s->flow, s->actives);
    for (int i = 0; i < s->actives; i++) {
        s->flight[s->active[i]].rate = s->flow[i].rate;
    }
}

static double advance(struct sim *s)
{
    double dt = 1e300;
    int kept = 0, moved = s->actives;

    for (int i = 0; i < s->actives; i++) {
        const struct flight *f = &s->flight[s->active[i]];

        dt = f->left / f->rate < dt ? f->left / f->rate : dt;
    }
    for (int i = 0; i < moved; i++) {
        struct flight *f = &s->flight[s->active[i]];
        const struct steps_op *op = &s->steps->op[f->op];

        f->left -= f->rate * dt;
        if (f->left > TINY * f->size) {
            s->active[kept++] = s->active[i];
            continue;
        }
        s->r->transfers++;
        s->r->sent[op->src] += f->size;
        s->r->received[op->dst] += f->size;
        flight_end(s, f);
    }
    s->actives = kept;
    return dt;
}

/* The parts of all ops: in D, the last ones take up rounding. */
static void parts_begin(struct sim *s)
{
    const struct steps *p = s->steps;

    for (int i = 0; i < p->ops; i++) {
        bool is_sent = p->op[i].src != p->op[i].dst && steps_moves(&p->op[i]);
        double size = is_sent ? p->size[p->op[i].chunk] : 0, before = 0;

        s->parts[i] = s->nics;
        for (int k = 0; k < s->nics; k++) {
            double until = s->spread && is_sent ? s->spread->until[p->op[i].connection][k] : 1;

            *flight_at(s, i, k) = (struct flight){.op = i,
                                                  .nic = k,
                                                  .waits = p->op[i].waits,
                                                  .behind = STEPS_NONE,
                                                  .size = (until - before) * size};
            before = until;
        }
    }
}

/* Parts of a connection that go by one NIC stand behind each other. */
static void lanes_begin(struct sim *s)
{
    const struct steps *p = s->steps;

    for (int i = 0; i < p->connections * s->nics; i++) {
        struct flight *last = NULL;

        for (int op = p->connection[i / s->nics].first; op != STEPS_NONE; op = p->op[op].behind) {
            struct flight *f = flight_at(s, op, i % s->nics);

            if (f->size <= 0 && steps_moves(&p->op[op])) {
                continue;
            }
            if (last != NULL) {
                last->behind = op;
                f->waits++;
            }
            last = f;
        }
    }
    for (int i = p->ops * s->nics - 1; i >= 0; i--) {
        if (s->flight[i].waits == 0) {
            s->ready[s->readies++] = i;
        }
    }
}

/* Numbers for pairs of nodes that have connections. Returns how many there are. */
static int pairs_number(struct sim *s)
{
    int nodes = s->steps->nodes, pairs = 0;
    int *number = util_mem_alloc((size_t)nodes * (size_t)nodes, sizeof(*number));

    for (int i = 0; i < s->steps->connections; i++) {
        const struct steps_connection *c = &s->steps->connection[i];
        int *of = &number[c->src * nodes + c->dst]; /* 0: none yet */

        *of = *of > 0 ? *of : ++pairs;
        s->pair[i] = *of - 1;
    }
    free(number);
    return pairs;
}

static void share_begin(struct sim *s)
{
    size_t nics = (size_t)s->nics;

    s->pair = util_mem_alloc((size_t)s->steps->connections + 1, sizeof(int));
    s->flow = util_mem_alloc(((size_t)s->steps->ops + 1) * nics, sizeof(*s->flow));
    share_open(&s->share, s->capacity, 2 * s->steps->nodes * s->nics, pairs_number(s) * s->nics);
}

static void sim_go(struct sim *s, struct sim_result *r)
{
    size_t ops = (size_t)s->steps->ops + 1;
    int waiting = 0;

    memset(r, 0, sizeof(*r));
    s->r = r;
    data_begin(s);
    s->flight = util_mem_alloc(ops * (size_t)s->nics, sizeof(*s->flight));
    s->active = util_mem_alloc(ops * (size_t)s->nics, sizeof(int));
    s->ready = util_mem_alloc(ops * (size_t)s->nics, sizeof(int));
    s->carries = util_mem_alloc(ops, sizeof(*s->carries));
    s->parts = util_mem_alloc(ops, sizeof(int));
    share_begin(s);
    parts_begin(s);
    lanes_begin(s);
    for (ready_begin(s); s->actives > 0; ready_begin(s)) {
        rates_find(s);
        r->time += advance(s);
    }
    for (int i = 0; i < s->steps->ops; i++) {
        waiting += s->parts[i] > 0;
    }
    if (waiting > 0 && r->wrong[0] == '\0') {
        snprintf(r->wrong, sizeof(r->wrong), "%d transfers wait for each other", waiting);
    }
    data_check(s);
    free(s->flight);
    free(s->data);
    free(s->active);
    free(s->ready);
    free(s->carries);
    free(s->parts);
    share_close(&s->share);
    free(s->pair);
    free(s->flow);
    free(s->capacity);
}

/* @b: of each node; NULL: all whole. */
static void capacity_set(struct sim *s, const double *b)
{
    s->capacity = util_mem_alloc((size_t)(2 * s->steps->nodes * s->nics), sizeof(double));
    for (int i = 0; i < s->steps->nodes; i++) {
        for (int k = 0; k < s->nics; k++) {
            double c = (b ? b[i] : 1) / s->nics;

            s->capacity[port_of(s, i, k, false)] = c;
            s->capacity[port_of(s, i, k, true)] = c;
        }
    }
}

void sim_run(const struct steps *steps, const double *b, enum sim_by by, struct sim_result *r)
{
    struct sim s = {.steps = steps, .nics = 1, .by = by};

    capacity_set(&s, b);
    sim_go(&s, r);
}

void sim_run_spread(const struct spread *spread, enum sim_by by, struct sim_result *r)
{
    struct sim s = {.steps = spread->steps, .nics = spread->nics, .spread = spread, .by = by};

    capacity_set(&s, NULL);
    sim_go(&s, r);
}
