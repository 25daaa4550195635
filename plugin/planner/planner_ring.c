#include "planner_ring.h"

static int common(const uint32_t *rails, int a, int b)
{
    return __builtin_popcount(rails[a] & rails[b]);
}

int planner_ring_width(const uint32_t *rails, int n, const int *order)
{
    int width = common(rails, order[n - 1], order[0]);

    for (int i = 1; i < n; i++) {
        int edge = common(rails, order[i - 1], order[i]);

        width = edge < width ? edge : width;
    }
    return width;
}

int planner_ring_limit(const uint32_t *rails, int n)
{
    int least = __builtin_popcount(rails[0]);

    for (int i = 1; i < n; i++) {
        int has = __builtin_popcount(rails[i]);

        least = has < least ? has : least;
    }
    return least;
}

/* --- the paper's --- */

static int place_find(int n, const int *order, int node)
{
    int i = 0;

    while (i < n && order[i] != node) {
        i++;
    }
    return i;
}

static bool can_bridge(const uint32_t *rails, int n, const int *order, int w, int u, int v,
                       int limit)
{
    int node = order[w], before = order[(w + n - 1) % n], after = order[(w + 1) % n];

    return node != u && node != v && common(rails, u, node) >= limit &&
           common(rails, node, v) >= limit && common(rails, before, after) >= limit;
}

/* Takes the node at @from out and puts it behind @u. */
static void node_move(int n, int *order, int from, int u)
{
    int node = order[from], to;

    for (int i = from; i < n - 1; i++) {
        order[i] = order[i + 1];
    }
    to = place_find(n - 1, order, u) + 1;
    for (int i = n - 1; i > to; i--) {
        order[i] = order[i - 1];
    }
    order[to] = node;
}

int planner_ring_paper(const uint32_t *rails, int n, int *order, int *work)
{
    int limit = planner_ring_limit(rails, n), moved = 0;

    for (int i = 0; i < n; i++) {
        work[i] = order[i];
    }
    for (int i = 0; i < n; i++) {
        int u = work[i], v = work[(i + 1) % n], w = 0;

        if (common(rails, u, v) >= limit) {
            continue;
        }
        while (w < n && !can_bridge(rails, n, order, w, u, v, limit)) {
            w++;
        }
        if (w < n) {
            node_move(n, order, w, u);
            moved++;
        }
    }
    return moved;
}

/* --- the widest --- */

enum { SEPARATOR, OTHER, TAKEN }; /* planner_cover.state */

/* Nodes that have fewer than @t rails in common with some other one; bit j of adjacent[i]: the i-th
 * and the j-th of them have @t. */
struct others {
    int m, separators, t;
    int node[PLANNER_COVERED];
    uint16_t adjacent[PLANNER_COVERED];
};

static bool is_separator(const uint32_t *rails, int n, int node, int t)
{
    for (int i = 0; i < n; i++) {
        if (i != node && common(rails, i, node) < t) {
            return false;
        }
    }
    return true;
}

static void others_find(const uint32_t *rails, int n, const int *order, int t, uint8_t *state,
                        struct others *o)
{
    o->m = 0;
    o->t = t;
    for (int i = 0; i < n; i++) {
        state[order[i]] = is_separator(rails, n, order[i], t) ? SEPARATOR : OTHER;
        if (state[order[i]] == OTHER) {
            if (o->m < PLANNER_COVERED) {
                o->node[o->m] = order[i];
            }
            o->m++;
        }
    }
    o->separators = n - o->m;
}

static void adjacent_fill(const uint32_t *rails, struct others *o)
{
    for (int i = 0; i < o->m; i++) {
        o->adjacent[i] = 0;
        for (int j = 0; j < o->m; j++) {
            if (i != j && common(rails, o->node[i], o->node[j]) >= o->t) {
                o->adjacent[i] |= (uint16_t)(1u << j);
            }
        }
    }
}

/*
 * For each set: the fewest paths that cover it, and who can be the end of the last of them. It is
 * enough to keep the ends of covers with the fewest paths: a cover with one path more that is
 * extended has as many as one with the fewest where a new path begins. With @is_cycle sets grow
 * from the first node alone, by edges alone; no end: there is no such path.
 */
static void cover_fill(const struct others *o, bool is_cycle, struct planner_cover *c)
{
    c->paths[0] = 0;
    c->ends[0] = 0;
    for (uint32_t set = 1; set < 1u << o->m; set++) {
        unsigned least = UINT8_MAX, ends = 0;

        for (int v = 0; v < o->m; v++) {
            uint32_t rest = set & ~(1u << v);
            bool has_edge = c->ends[rest] & o->adjacent[v];
            unsigned paths = c->paths[rest] + !has_edge;

            if (rest == set || (is_cycle && (rest == 0 ? v != 0 : !has_edge))) {
                continue;
            }
            ends = paths < least ? 1u << v : paths == least ? ends | 1u << v : ends;
            least = paths < least ? paths : least;
        }
        c->paths[set] = (uint8_t)least;
        c->ends[set] = (uint16_t)ends;
    }
}

/* Writes the cover backwards into out[], from @last on; behind each path a place of -1 where there
 * are separators. */
static void cover_write(const struct others *o, const struct planner_cover *c, int last, int *out)
{
    uint32_t set = (1u << o->m) - 1;
    int at = 0;

    for (;;) {
        uint32_t rest = set & ~(1u << last), ends = c->ends[rest] & o->adjacent[last];

        out[at++] = o->node[last];
        if (rest == 0) {
            break;
        }
        if (ends == 0) {
            out[at++] = -1;
            ends = c->ends[rest];
        }
        last = __builtin_ctz(ends);
        set = rest;
    }
    if (o->separators > 0) {
        out[at] = -1;
    }
}

static bool exact_find(const uint32_t *rails, struct others *o, int *out, struct planner_cover *c)
{
    uint32_t all = (1u << o->m) - 1, ends;

    adjacent_fill(rails, o);
    cover_fill(o, o->separators == 0, c);
    ends = c->ends[all];
    if (o->separators == 0) {
        ends &= o->adjacent[0];
    } else if (c->paths[all] > o->separators) {
        return false;
    }
    if (ends == 0) {
        return false;
    }
    cover_write(o, c, __builtin_ctz(ends), out);
    return true;
}

/* The first node in order[] that is free and compatible with @last, or simply free; -1: none. */
static int other_find(const uint32_t *rails, int n, const int *order, const uint8_t *state, int t,
                      int last)
{
    for (int i = 0; i < n; i++) {
        if (state[order[i]] == OTHER && (last < 0 || common(rails, last, order[i]) >= t)) {
            return order[i];
        }
    }
    return -1;
}

/* A path is gone on with by the first node that fits; where none does, a separator begins the next.
 * At least one separator is needed at the end, behind the last path. */
static bool greedy_find(const uint32_t *rails, int n, const int *order, const struct others *o,
                        int *out, uint8_t *state)
{
    int at = 0, last = -1, left = o->separators;

    for (int i = 0; i < o->m; i++) {
        int next = other_find(rails, n, order, state, o->t, last);

        if (next < 0) {
            out[at++] = -1;
            left--;
            next = other_find(rails, n, order, state, o->t, -1);
        }
        if (left < 1) {
            return false;
        }
        state[next] = TAKEN;
        out[at++] = last = next;
    }
    out[at] = -1;
    return true;
}

static bool order_find(const uint32_t *rails, int n, const int *order, struct others *o, int *out,
                       struct planner_cover *c)
{
    for (int i = 0; i < n; i++) {
        out[i] = -1;
    }
    if (o->m == 0) {
        return true;
    }
    return o->m <= PLANNER_COVERED ? exact_find(rails, o, out, c)
                                   : greedy_find(rails, n, order, o, out, c->state);
}

struct planner_ring planner_ring_best(const uint32_t *rails, int n, const int *order, int *out,
                                      struct planner_cover *c)
{
    struct planner_ring r = {.limit = planner_ring_limit(rails, n), .is_best = true};
    int before = planner_ring_width(rails, n, order);

    for (r.width = r.limit; r.width > before; r.width--) {
        struct others o;

        others_find(rails, n, order, r.width, c->state, &o);
        if (order_find(rails, n, order, &o, out, c)) {
            for (int i = 0, at = 0; i < n; i++) {
                if (c->state[order[i]] != SEPARATOR) {
                    continue;
                }
                while (out[at] >= 0) {
                    at++;
                }
                out[at] = order[i];
            }
            return r;
        }
        /* What the exact method does not find is not there. */
        r.is_best = r.is_best && o.m <= PLANNER_COVERED;
    }
    for (int i = 0; i < n; i++) {
        out[i] = order[i];
    }
    return r;
}
