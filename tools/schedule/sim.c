#include "tools/schedule/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

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
    double b[STEPS_NODES][SPREAD_NICS];
    const struct spread *spread; /* NULL: one NIC a node */
    struct flight *flight;       /* [op][nic] */
    struct set *carries;         /* [op]: when it began */
    int *parts;                  /* [op]: how many have not ended */
    struct set *data;            /* [chunk][node][slot] */
    int *active, *ready;
    int actives, readies;
    struct sim_result *r;
};

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

struct nics {
    double left[2 * STEPS_NODES][SPREAD_NICS], weight[2 * STEPS_NODES][SPREAD_NICS];
    /* sending, then receiving */
};

/* Of all that its connection carries by its NIC. */
static double weight_of(const struct sim *s, const struct flight *f, bool is_weighted)
{
    const struct steps_op *op = &s->steps->op[f->op];

    return is_weighted
               ? s->steps->connection[op->connection].bytes * f->size / s->steps->size[op->chunk]
               : 1;
}

static double *out_of(const struct sim *s, double (*of)[SPREAD_NICS], const struct flight *f)
{
    return &of[s->steps->op[f->op].src][f->nic];
}

static double *in_of(const struct sim *s, double (*of)[SPREAD_NICS], const struct flight *f)
{
    return &of[STEPS_NODES + s->steps->op[f->op].dst][f->nic];
}

static void weights_sum(const struct sim *s, bool is_weighted, struct nics *n)
{
    memset(n->weight, 0, sizeof(n->weight));
    for (int i = 0; i < s->actives; i++) {
        const struct flight *f = &s->flight[s->active[i]];

        if (f->rate < 0) {
            *out_of(s, n->weight, f) += weight_of(s, f, is_weighted);
            *in_of(s, n->weight, f) += weight_of(s, f, is_weighted);
        }
    }
}

/* Rounding may leave less than nothing. */
static double level_of(double left, double weight)
{
    return left > 0 ? left / weight : 0;
}

static double least_level(const struct sim *s, const struct nics *n)
{
    double least = 1e300;

    for (int i = 0; i < 2 * STEPS_NODES; i++) {
        for (int k = 0; k < s->nics; k++) {
            if (n->weight[i][k] > 0 && level_of(n->left[i][k], n->weight[i][k]) < least) {
                least = level_of(n->left[i][k], n->weight[i][k]);
            }
        }
    }
    return least;
}

/* What is left when all that have a rate have it. */
static void left_find(const struct sim *s, struct nics *n)
{
    memcpy(n->left, s->b, sizeof(s->b));
    memcpy(n->left + STEPS_NODES, s->b, sizeof(s->b));
    for (int i = 0; i < s->actives; i++) {
        const struct flight *f = &s->flight[s->active[i]];

        if (f->rate > 0) {
            *out_of(s, n->left, f) -= f->rate;
            *in_of(s, n->left, f) -= f->rate;
        }
    }
}

/* Progressive filling: the NIC that is full first stops all that goes over it. */
static void rates_fill(struct sim *s, bool is_weighted)
{
    struct nics n;
    int open = s->actives;

    for (int i = 0; i < s->actives; i++) {
        s->flight[s->active[i]].rate = -1;
    }
    while (open > 0) {
        double level;

        left_find(s, &n);
        weights_sum(s, is_weighted, &n);
        level = least_level(s, &n);
        for (int i = 0; i < s->actives; i++) {
            struct flight *f = &s->flight[s->active[i]];

            if (f->rate < 0 &&
                (level_of(*out_of(s, n.left, f), *out_of(s, n.weight, f)) <= level * (1 + TINY) ||
                 level_of(*in_of(s, n.left, f), *in_of(s, n.weight, f)) <= level * (1 + TINY))) {
                f->rate = level * weight_of(s, f, is_weighted);
                open--;
            }
        }
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

static void sim_go(struct sim *s, bool is_weighted, struct sim_result *r)
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
    parts_begin(s);
    lanes_begin(s);
    for (ready_begin(s); s->actives > 0; ready_begin(s)) {
        rates_fill(s, is_weighted);
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
}

void sim_run(const struct steps *steps, const double *b, bool is_weighted, struct sim_result *r)
{
    struct sim s = {.steps = steps, .nics = 1};

    for (int i = 0; i < steps->nodes; i++) {
        s.b[i][0] = b[i];
    }
    sim_go(&s, is_weighted, r);
}

void sim_run_spread(const struct spread *spread, bool is_weighted, struct sim_result *r)
{
    struct sim s = {.steps = spread->steps, .nics = spread->nics, .spread = spread};

    for (int i = 0; i < s.steps->nodes; i++) {
        for (int k = 0; k < s.nics; k++) {
            s.b[i][k] = 1.0 / s.nics;
        }
    }
    sim_go(&s, is_weighted, r);
}
