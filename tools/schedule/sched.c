#include "tools/schedule/sched.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/planner/planner_bound.h"
#include "plugin/planner/planner_level.h"
#include "plugin/planner/planner_paper.h"
#include "plugin/planner/planner_seat.h"
#include "tools/r2_perf/util.h"

/* Channels: levels have two each. */
#define CHANNEL_RING(k) (2 * (k))
#define CHANNEL_SIDE(k) (2 * (k) + 1)

const char *sched_name(int kind)
{
    return kind == SCHED_SERIAL ? "r2ccl, as printed" : planner_choose_name(kind);
}

static int node_at(const struct sched *c, int position)
{
    return c->order != NULL ? c->order[position] : position;
}

/* --- levels --- */

struct levels {
    struct planner_level level[PLANNER_LEVELS];
    int n;
    int of[STEPS_NODES]; /* the level of each node */
    enum planner_scheme scheme;
};

static bool is_one_level(int kind)
{
    return kind == PLANNER_R2 || kind == PLANNER_ATTACH || kind == SCHED_SERIAL;
}

static bool levels_find(const struct sched *c, int kind, struct levels *l)
{
    int worst = 0;

    memset(l, 0, sizeof(*l));
    l->scheme = kind == PLANNER_ATTACH || kind == PLANNER_LEAVES ? PLANNER_LEAF : PLANNER_BROADCAST;
    if (is_one_level(kind)) {
        l->n = planner_level_isolate(c->b, c->nodes, l->level);
        for (int i = 1; i < c->nodes; i++) {
            worst = c->b[i] < c->b[worst] ? i : worst;
        }
        for (int i = 0; i < c->nodes; i++) {
            l->of[i] = i != worst;
        }
    } else if (kind == PLANNER_RING) {
        l->n = 1;
        l->level[0] = (struct planner_level){
            .b = planner_bound_least(c->b, c->nodes), .nodes = c->nodes, .members = c->nodes};
    } else {
        l->n = planner_level_find(c->b, c->nodes, l->level);
        for (int i = 0; i < c->nodes; i++) {
            while (l->n > 0 && l->level[l->of[i]].b < c->b[i]) {
                l->of[i]++;
            }
        }
    }
    if (l->n < 1) {
        return false;
    }
    planner_level_best(l->level, l->n, 1, l->scheme);
    if (is_one_level(kind) && (c->share > 0 || kind == SCHED_SERIAL)) {
        double x = 1 - l->level[0].b / l->level[1].b;

        if (x <= 0) {
            return false;
        }
        l->level[1].share = c->share > 0 ? c->share : planner_paper_share(x, c->nodes, 1);
        l->level[0].share = 1 - l->level[1].share;
    }
    return true;
}

/* --- a ring of a level, and who is outside --- */

/* One block of a ring: it begins at member @first, comes back to the one before it with all
 * contributions of members, and goes around once more as the result. */
struct block {
    int chunk, first;
    int hop[2 * STEPS_NODES]; /* ops: hop h leaves member first + h */
};

struct ring {
    struct steps *s;
    int k, m; /* level; members */
    int member[STEPS_NODES], outside[STEPS_NODES], outs;
    struct block *block; /* of all pieces, m each; NULL: nothing of the data is for this level */
    int blocks;          /* of the pieces that are being made, as many as are abreast */
    int *add;            /* [blocks][outs][m], of these */
    int stage;           /* what the inputs from outside wait for; -1: nothing */
};

static int member_at(const struct ring *r, const struct block *b, int h)
{
    return r->member[(b->first + h) % r->m];
}

/* The op after which the member at position @h of the block's way has the sum; -1: at once. */
static int done_at(const struct ring *r, const struct block *b, int h)
{
    if (r->m == 1) {
        return -1;
    }
    return h == r->m - 1 ? b->hop[r->m - 2] : b->hop[r->m + h - 1];
}

/* Pieces that are abreast. */
static void hops_add(struct ring *r, struct block *piece)
{
    int m = r->m;

    for (int h = 0; h < 2 * m - 2; h++) {
        for (int i = 0; i < r->blocks; i++) {
            struct block *b = &piece[i];

            b->hop[h] = steps_op_add(r->s, h < m - 1 ? STEPS_ADD : STEPS_COPY, CHANNEL_RING(r->k),
                                     b->chunk, member_at(r, b, h), 0, member_at(r, b, h + 1), 0);
            steps_after(r->s, b->hop[h], h > 0 ? b->hop[h - 1] : -1);
        }
    }
}

/* The op by which position @h of block @i's way adds what came from the @q-th node outside; -1: it
 * does not. */
static int *add_at(struct ring *r, int i, int q, int h)
{
    return &r->add[(i * r->outs + q) * r->m + h];
}

/* A node's input goes to one partner, the last that the block passes, for the next node outside the
 * one before that; it adds it before it hands the block on. Returns the partner's position. */
static int leaf_add(struct ring *r, struct block *piece, int q)
{
    int h = r->m - 1 - q % r->m;

    for (int i = 0; i < r->blocks; i++) {
        struct block *b = &piece[i];
        int partner = member_at(r, b, h);
        int in = steps_op_add(r->s, STEPS_COPY, CHANNEL_SIDE(r->k), b->chunk, r->outside[q], 0,
                              partner, 1 + q);
        int add = steps_op_add(r->s, STEPS_ADD, 0, b->chunk, partner, 1 + q, partner, 0);

        *add_at(r, i, q, h) = add;
        steps_after(r->s, in, r->stage);
        steps_after(r->s, add, in);
        if (r->m > 1) {
            steps_after(r->s, b->hop[h], add);
        }
    }
    return h;
}

/* A node's input goes around among all members, which keep it aside and add it to the sum when that
 * has come and has been passed on. Returns the last position, which has nothing to pass on. */
static int broadcast_add(struct ring *r, struct block *piece, int q)
{
    int before[STEPS_NODES * SCHED_ABREAST];

    for (int h = 0; h < r->m; h++) {
        for (int i = 0; i < r->blocks; i++) {
            struct block *b = &piece[i];
            int to = member_at(r, b, h), from = h > 0 ? member_at(r, b, h - 1) : r->outside[q];
            int op = steps_op_add(r->s, STEPS_COPY, CHANNEL_SIDE(r->k), b->chunk, from,
                                  h > 0 ? 1 + q : 0, to, 1 + q);
            int add = steps_op_add(r->s, STEPS_ADD, 0, b->chunk, to, 1 + q, to, 0);

            *add_at(r, i, q, h) = add;
            steps_after(r->s, op, h > 0 ? before[i] : r->stage);
            before[i] = op;
            steps_after(r->s, add, op);
            steps_after(r->s, add, done_at(r, b, h));
            /* Position m-1 passes the sum on first, m-2 last. */
            if (r->m > 1 && h != r->m - 2) {
                steps_after(r->s, add, b->hop[h == r->m - 1 ? h : r->m + h]);
            }
        }
    }
    return r->m - 1;
}

/* Pieces that are abreast. A result goes out when all that its sender adds is in it. */
static void sides_add(struct ring *r, struct block *piece, enum planner_scheme scheme)
{
    int at[STEPS_NODES];

    memset(r->add, 0xff, (size_t)(r->blocks * r->outs * r->m) * sizeof(int));
    for (int q = 0; q < r->outs; q++) {
        at[q] = scheme == PLANNER_LEAF ? leaf_add(r, piece, q) : broadcast_add(r, piece, q);
    }
    for (int q = 0; q < r->outs; q++) {
        for (int i = 0; i < r->blocks; i++) {
            struct block *b = &piece[i];
            int back = steps_op_add(r->s, STEPS_COPY, CHANNEL_SIDE(r->k), b->chunk,
                                    member_at(r, b, at[q]), 0, r->outside[q], 0);

            steps_after(r->s, back, done_at(r, b, at[q]));
            for (int p = 0; p < r->outs; p++) {
                steps_after(r->s, back, *add_at(r, i, p, at[q]));
            }
        }
    }
}

/* The end of the first stage, as the one node outside sees it: all have said that they have their
 * results of all rings. */
static int stage_make(const struct sched *c, const struct ring *ring, int rings)
{
    struct steps *s = ring->s;
    int outside = ring[rings - 1].outside[0], all = steps_join_add(s, outside);
    int own[STEPS_NODES];

    for (int i = 0; i < c->nodes; i++) {
        own[i] = i == outside ? all : steps_join_add(s, i);
    }
    for (int k = 0; k < rings; k++) {
        const struct ring *r = &ring[k];

        for (int i = 0; r->block != NULL && r->m > 1 && i < r->m * c->pieces; i++) {
            int end = r->block[i].hop[2 * r->m - 3];

            steps_after(s, own[s->op[end].dst], end);
        }
    }
    for (int i = 0; i < c->nodes; i++) {
        if (i != outside) {
            int told = steps_op_add(s, STEPS_SIGNAL, CHANNEL_SIDE(rings - 1), 0, i, 0, outside, 0);

            steps_after(s, told, own[i]);
            steps_after(s, all, told);
        }
    }
    return all;
}

/* The rings of all levels; with @is_serial the second stage waits for all of them. */
static struct steps *levels_make(const struct sched *c, const struct levels *l, bool is_serial)
{
    struct steps *s = steps_open(c->nodes, 1 + c->nodes - l->level[l->n - 1].members);
    struct ring *ring = util_mem_alloc((size_t)l->n, sizeof(*ring));
    int stage = -1, abreast = c->abreast > 1 ? c->abreast : 1;

    for (int k = 0; k < l->n; k++) {
        struct ring *r = &ring[k];

        *r = (struct ring){.s = s, .k = k};
        for (int i = 0; i < c->nodes; i++) {
            if (l->of[node_at(c, i)] >= k) {
                r->member[r->m++] = node_at(c, i);
            } else {
                r->outside[r->outs++] = node_at(c, i);
            }
        }
        if (l->level[k].share <= 0) {
            continue;
        }
        r->block = util_mem_alloc((size_t)(r->m * c->pieces), sizeof(*r->block));
        for (int p = 0; p < c->pieces; p++) {
            struct block *piece = &r->block[p * r->m];

            for (int i = 0; i < r->m; i++) {
                piece[i].first = i;
                piece[i].chunk = steps_chunk_add(s, l->level[k].share / (r->m * c->pieces));
            }
        }
        for (int p = 0; p < c->pieces; p += abreast) {
            r->blocks = r->m * (c->pieces - p < abreast ? c->pieces - p : abreast);
            hops_add(r, &r->block[p * r->m]);
        }
    }
    if (is_serial) {
        stage = stage_make(c, ring, l->n);
    }
    for (int k = 0; k < l->n; k++) {
        struct ring *r = &ring[k];

        r->stage = stage;
        r->add = util_mem_alloc((size_t)(r->m * abreast * r->outs * r->m) + 1, sizeof(int));
        for (int p = 0; r->block != NULL && p < c->pieces; p += abreast) {
            r->blocks = r->m * (c->pieces - p < abreast ? c->pieces - p : abreast);
            sides_add(r, &r->block[p * r->m], l->scheme);
        }
        free(r->add);
        free(r->block);
    }
    free(ring);
    return s;
}

/* --- the double binary tree --- */

/* One chunk up @tree and down again. Positions in the order in which a parent comes before its
 * children. */
static void tree_chunk_add(struct steps *s, const struct sched *c, int tree, int chunk,
                           const int *parent, const int *down)
{
    int up[STEPS_NODES], got[STEPS_NODES], n = c->nodes;

    for (int i = n - 1; i > 0; i--) {
        int v = down[i];

        up[v] = steps_op_add(s, STEPS_ADD, tree, chunk, node_at(c, v), 0, node_at(c, parent[v]), 0);
        for (int w = 0; w < n; w++) {
            if (parent[w] == v) {
                steps_after(s, up[v], up[w]);
            }
        }
    }
    for (int i = 1; i < n; i++) {
        int v = down[i], p = parent[v];

        got[v] = steps_op_add(s, STEPS_COPY, tree, chunk, node_at(c, p), 0, node_at(c, v), 0);
        if (parent[p] >= 0) {
            steps_after(s, got[v], got[p]);
            continue;
        }
        for (int w = 0; w < n; w++) {
            if (parent[w] == p) {
                steps_after(s, got[v], up[w]);
            }
        }
    }
}

static struct steps *tree_make(const struct sched *c)
{
    struct steps *s = steps_open(c->nodes, 1);
    int parent[2][STEPS_NODES], down[2][STEPS_NODES], n = c->nodes;

    for (int tree = 0; tree < 2; tree++) {
        int found = 0;

        for (int i = 0; i < n; i++) {
            parent[tree][i] = planner_seat_parent(tree, i, n);
            if (parent[tree][i] < 0) {
                down[tree][found++] = i;
            }
        }
        for (int at = 0; at < n; at++) {
            for (int i = 0; i < n; i++) {
                if (parent[tree][i] == down[tree][at]) {
                    down[tree][found++] = i;
                }
            }
        }
    }
    for (int p = 0; p < c->pieces * n; p++) {
        for (int tree = 0; tree < 2; tree++) {
            tree_chunk_add(s, c, tree, steps_chunk_add(s, 0.5 / (c->pieces * n)), parent[tree],
                           down[tree]);
        }
    }
    return s;
}

/* --- weighted stars --- */

static struct steps *stars_make(const struct sched *c)
{
    struct steps *s = steps_open(c->nodes, 1);
    double share[STEPS_NODES];
    int n = c->nodes;

    planner_bound_stars(c->b, n, share);
    for (int p = 0; p < c->pieces; p++) {
        for (int root = 0; root < n; root++) {
            int chunk, sum;

            if (share[root] <= 0) {
                continue;
            }
            chunk = steps_chunk_add(s, share[root] / c->pieces);
            sum = steps_join_add(s, root);
            for (int k = 1; k < n; k++) {
                steps_after(s, sum,
                            steps_op_add(s, STEPS_ADD, 0, chunk, (root + k) % n, 0, root, 0));
            }
            for (int k = 1; k < n; k++) {
                steps_after(s, steps_op_add(s, STEPS_COPY, 1, chunk, root, 0, (root + k) % n, 0),
                            sum);
            }
        }
    }
    return s;
}

/* --- all of them --- */

double sched_load(const struct sched *c, int kind)
{
    double load[STEPS_NODES];
    struct levels l;

    switch (kind) {
    case PLANNER_TREE:
    case PLANNER_SEATS:
        planner_seat_loads(c->nodes, load);
        return planner_seat_time(c->b, c->nodes, c->order, load);
    case PLANNER_STARS:
        return planner_bound(c->b, c->nodes);
    case SCHED_SERIAL:
        if (!levels_find(c, kind, &l)) {
            return 0;
        }
        return planner_paper_time(1 - l.level[0].b / l.level[1].b, l.level[1].share, c->nodes, 1) /
               l.level[1].b;
    default:
        return levels_find(c, kind, &l) ? planner_level_time(l.level, l.n, 1, l.scheme) : 0;
    }
}

struct steps *sched_make(const struct sched *c, int kind)
{
    struct levels l;

    switch (kind) {
    case PLANNER_TREE:
    case PLANNER_SEATS:
        return tree_make(c);
    case PLANNER_STARS:
        return stars_make(c);
    default:
        return levels_find(c, kind, &l) ? levels_make(c, &l, kind == SCHED_SERIAL) : NULL;
    }
}
