#include "tools/r2_plan/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

#define NONE (-1)

/* Rounding: of sizes and rates near 1. */
#define TINY 1e-9

struct set {
    uint64_t w[SIM_NODES / 64];
};

struct op {
    uint8_t kind;
    int chunk, src, dst, from, to;
    int connection, behind; /* the next of this connection */
    int waits;              /* for so many others, and for its place in the connection */
    int followers;          /* first in edge[] */
    struct set carries;     /* when it began */
    double left, rate;
};

struct edge {
    int op, next;
};

struct connection {
    int channel, src, dst, last, next; /* last op added; next connection of this hash */
    double bytes;
};

#define HASH 4096

struct sim {
    int nodes, slots, chunks, ops, edges, connections;
    double b[SIM_NODES];
    double *size;
    struct op *op;
    struct edge *edge;
    struct connection *connection;
    int hash[HASH];
    struct set *data; /* [chunk][node][slot] */
    int *active, *ready;
    int actives, readies;
    struct sim_result *r;
};

/* Room for one more: sizes double at powers of two. */
static void *room_make(void *p, int n, size_t size)
{
    return n == 0 || (n & (n - 1)) == 0 ? util_mem_resize(p, (size_t)(n ? 2 * n : 1), size) : p;
}

struct sim *sim_open(int nodes, const double *b, int slots)
{
    struct sim *s = util_mem_alloc(1, sizeof(*s));

    s->nodes = nodes;
    s->slots = slots;
    for (int i = 0; i < nodes; i++) {
        s->b[i] = b[i];
    }
    for (int i = 0; i < HASH; i++) {
        s->hash[i] = NONE;
    }
    return s;
}

void sim_close(struct sim *s)
{
    free(s->size);
    free(s->op);
    free(s->edge);
    free(s->connection);
    free(s->data);
    free(s->active);
    free(s->ready);
    free(s);
}

int sim_chunk_add(struct sim *s, double size)
{
    s->size = room_make(s->size, s->chunks, sizeof(*s->size));
    s->size[s->chunks] = size;
    return s->chunks++;
}

static int connection_get(struct sim *s, int channel, int src, int dst)
{
    unsigned key = ((unsigned)channel * SIM_NODES + (unsigned)src) * SIM_NODES + (unsigned)dst;
    int *first = &s->hash[key * 2654435761u % HASH];

    for (int c = *first; c != NONE; c = s->connection[c].next) {
        const struct connection *k = &s->connection[c];

        if (k->channel == channel && k->src == src && k->dst == dst) {
            return c;
        }
    }
    s->connection = room_make(s->connection, s->connections, sizeof(*s->connection));
    s->connection[s->connections] = (struct connection){
        .channel = channel, .src = src, .dst = dst, .last = NONE, .next = *first};
    return *first = s->connections++;
}

int sim_op_add(struct sim *s, enum sim_kind kind, int channel, int chunk, int src, int from,
               int dst, int to)
{
    struct op *op;

    s->op = room_make(s->op, s->ops, sizeof(*s->op));
    op = &s->op[s->ops];
    *op = (struct op){.kind = (uint8_t)kind,
                      .chunk = chunk,
                      .src = src,
                      .dst = dst,
                      .from = from,
                      .to = to,
                      .connection = NONE,
                      .behind = NONE,
                      .followers = NONE};
    if (src != dst) {
        struct connection *c;

        op->connection = connection_get(s, channel, src, dst);
        c = &s->connection[op->connection];
        c->bytes += s->size[chunk];
        if (c->last != NONE) {
            s->op[c->last].behind = s->ops;
            op->waits++;
        }
        c->last = s->ops;
    }
    return s->ops++;
}

void sim_op_after(struct sim *s, int op, int before)
{
    if (before < 0) {
        return;
    }
    s->edge = room_make(s->edge, s->edges, sizeof(*s->edge));
    s->edge[s->edges] = (struct edge){.op = op, .next = s->op[before].followers};
    s->op[before].followers = s->edges++;
    s->op[op].waits++;
}

/* --- data --- */

static struct set *data_at(struct sim *s, int chunk, int node, int slot)
{
    return &s->data[((size_t)chunk * (size_t)s->nodes + (size_t)node) * (size_t)s->slots +
                    (size_t)slot];
}

static void data_begin(struct sim *s)
{
    s->data =
        util_mem_alloc((size_t)s->chunks * (size_t)s->nodes * (size_t)s->slots, sizeof(struct set));
    for (int c = 0; c < s->chunks; c++) {
        for (int i = 0; i < s->nodes; i++) {
            data_at(s, c, i, 0)->w[i / 64] = 1ull << i % 64;
        }
    }
}

static void wrong_note(struct sim *s, const struct op *op, const char *what)
{
    if (s->r->wrong[0] == '\0') {
        snprintf(s->r->wrong, sizeof(s->r->wrong), "chunk %d from node %d to node %d: %s",
                 op->chunk, op->src, op->dst, what);
    }
}

static void data_move(struct sim *s, const struct op *op)
{
    struct set *to = data_at(s, op->chunk, op->dst, op->to);
    bool is_empty = true;

    if (memcmp(&op->carries, data_at(s, op->chunk, op->src, op->from), sizeof(*to)) != 0) {
        wrong_note(s, op, "changed while it was sent");
    }
    for (int w = 0; w < SIM_NODES / 64; w++) {
        is_empty = is_empty && op->carries.w[w] == 0;
        if (op->kind == SIM_ADD && (to->w[w] & op->carries.w[w])) {
            wrong_note(s, op, "a contribution is added twice");
        }
        if (op->kind == SIM_COPY && (to->w[w] & ~op->carries.w[w])) {
            wrong_note(s, op, "a contribution is overwritten");
        }
        to->w[w] = (op->kind == SIM_ADD ? to->w[w] : 0) | op->carries.w[w];
    }
    if (is_empty) {
        wrong_note(s, op, "nothing was there to send");
    }
}

static void data_check(struct sim *s)
{
    for (int c = 0; c < s->chunks; c++) {
        for (int i = 0; i < s->nodes; i++) {
            const struct set *d = data_at(s, c, i, 0);
            int has = 0;

            for (int w = 0; w < SIM_NODES / 64; w++) {
                has += __builtin_popcountll(d->w[w]);
            }
            if (has != s->nodes && s->r->wrong[0] == '\0') {
                snprintf(s->r->wrong, sizeof(s->r->wrong),
                         "chunk %d at node %d ends with %d of %d contributions", c, i, has,
                         s->nodes);
            }
        }
    }
}

/* --- who is under way --- */

static void wait_end(struct sim *s, int op)
{
    if (--s->op[op].waits == 0) {
        s->ready[s->readies++] = op;
    }
}

static void op_end(struct sim *s, int at)
{
    struct op *op = &s->op[at];

    if (op->kind != SIM_JOIN) {
        data_move(s, op);
    }
    if (op->behind != NONE) {
        wait_end(s, op->behind);
    }
    for (int e = op->followers; e != NONE; e = s->edge[e].next) {
        wait_end(s, s->edge[e].op);
    }
}

/* What takes no time ends at once, and may make others ready. */
static void ready_begin(struct sim *s)
{
    while (s->readies > 0) {
        int at = s->ready[--s->readies];
        struct op *op = &s->op[at];

        if (op->kind != SIM_JOIN) {
            op->carries = *data_at(s, op->chunk, op->src, op->from);
        }
        if (op->src == op->dst) {
            op_end(s, at);
            continue;
        }
        op->left = s->size[op->chunk];
        s->active[s->actives++] = at;
    }
}

/* --- rates --- */

struct nics {
    double left[2 * SIM_NODES], weight[2 * SIM_NODES]; /* sending, then receiving */
};

static double weight_of(const struct sim *s, const struct op *op, bool is_weighted)
{
    return is_weighted ? s->connection[op->connection].bytes : 1;
}

static void weights_sum(const struct sim *s, bool is_weighted, struct nics *n)
{
    memset(n->weight, 0, sizeof(n->weight));
    for (int i = 0; i < s->actives; i++) {
        const struct op *op = &s->op[s->active[i]];

        if (op->rate < 0) {
            n->weight[op->src] += weight_of(s, op, is_weighted);
            n->weight[SIM_NODES + op->dst] += weight_of(s, op, is_weighted);
        }
    }
}

/* Rounding may leave less than nothing. */
static double level_of(const struct nics *n, int nic)
{
    return n->left[nic] > 0 ? n->left[nic] / n->weight[nic] : 0;
}

/* Progressive filling: the NIC that is full first stops all that goes over it. */
static void rates_fill(struct sim *s, bool is_weighted)
{
    struct nics n;
    int open = s->actives;

    for (int i = 0; i < s->nodes; i++) {
        n.left[i] = n.left[SIM_NODES + i] = s->b[i];
    }
    for (int i = 0; i < s->actives; i++) {
        s->op[s->active[i]].rate = -1;
    }
    while (open > 0) {
        double level = 1e300;

        weights_sum(s, is_weighted, &n);
        for (int i = 0; i < 2 * SIM_NODES; i++) {
            if (n.weight[i] > 0 && level_of(&n, i) < level) {
                level = level_of(&n, i);
            }
        }
        for (int i = 0; i < s->actives; i++) {
            struct op *op = &s->op[s->active[i]];
            int in = SIM_NODES + op->dst;

            if (op->rate < 0 && (level_of(&n, op->src) <= level * (1 + TINY) ||
                                 level_of(&n, in) <= level * (1 + TINY))) {
                op->rate = level * weight_of(s, op, is_weighted);
                open--;
            }
        }
        for (int i = 0; i < s->nodes; i++) {
            n.left[i] = n.left[SIM_NODES + i] = s->b[i];
        }
        for (int i = 0; i < s->actives; i++) {
            const struct op *op = &s->op[s->active[i]];

            if (op->rate > 0) {
                n.left[op->src] -= op->rate;
                n.left[SIM_NODES + op->dst] -= op->rate;
            }
        }
    }
}

static double advance(struct sim *s)
{
    double dt = 1e300;
    int kept = 0, moved = s->actives;

    for (int i = 0; i < s->actives; i++) {
        const struct op *op = &s->op[s->active[i]];

        dt = op->left / op->rate < dt ? op->left / op->rate : dt;
    }
    for (int i = 0; i < moved; i++) {
        struct op *op = &s->op[s->active[i]];

        op->left -= op->rate * dt;
        if (op->left > TINY * s->size[op->chunk]) {
            s->active[kept++] = s->active[i];
            continue;
        }
        s->r->transfers++;
        s->r->sent[op->src] += s->size[op->chunk];
        s->r->received[op->dst] += s->size[op->chunk];
        op_end(s, s->active[i]);
    }
    s->actives = kept;
    return dt;
}

void sim_run(struct sim *s, bool is_weighted, struct sim_result *r)
{
    int waiting = 0;

    memset(r, 0, sizeof(*r));
    s->r = r;
    data_begin(s);
    s->active = util_mem_alloc((size_t)s->ops + 1, sizeof(int));
    s->ready = util_mem_alloc((size_t)s->ops + 1, sizeof(int));
    for (int i = s->ops - 1; i >= 0; i--) {
        if (s->op[i].waits == 0) {
            s->ready[s->readies++] = i;
        }
    }
    for (ready_begin(s); s->actives > 0; ready_begin(s)) {
        rates_fill(s, is_weighted);
        r->time += advance(s);
    }
    for (int i = 0; i < s->ops; i++) {
        waiting += s->op[i].waits > 0;
    }
    if (waiting > 0 && r->wrong[0] == '\0') {
        snprintf(r->wrong, sizeof(r->wrong), "%d transfers wait for each other", waiting);
    }
    data_check(s);
}
