/*
 * What the connections of a process come to, per NIC (r2_report_int.h): how many go over it, and
 * what has moved. What each has in the sums stands with it, so that a change of one is its
 * difference and nobody walks those that rest.
 */
#include <stdbool.h>

#include "core/r2_registry.h"
#include "r2_report_int.h"

/*
 * The receiver counts bytes by a plain addition to an aligned word, which a reader on another
 * thread sees whole. ThreadSanitizer would want an atomic store, and that one costs the data path
 * an instruction; late by a turn is good enough here.
 */
__attribute__((no_sanitize("thread"), noinline)) uint64_t r2_report_word(const uint64_t *w)
{
    return __atomic_load_n(w, __ATOMIC_RELAXED);
}

uint64_t r2_report_bytes(const struct ib_path *path)
{
    return r2_report_word(&path->count.bytes);
}

bool r2_report_is_standing(const struct r2_comm *c)
{
    return atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE &&
           !c->seen.closing && !c->seen.error;
}

/* --- where it goes --- */

static struct r2_counted state_of(const struct r2_comm *c)
{
    const struct ib_nics *nics = c->conn.nics;
    uint32_t rdma = (uint32_t)((1ull << (nics->count - nics->last_count)) - 1), stood = 0;
    uint32_t others = 0, aside = 0; /* that carry, and the first of last resort */
    struct r2_counted n = {.stands = 1};

    for (int p = 0; p < c->conn.npaths; p++) {
        uint32_t bit = 1u << c->conn.path[p].nic;

        n.over |= c->seen.path[p].state == FO_UP ? bit : 0;
        if (c->seen.path[p].state == FO_UP && (c->conn.last >> p & 1)) {
            aside = aside ? aside : bit;
        } else if (c->seen.path[p].state == FO_UP) {
            others |= bit;
        }
        stood |= c->seen.path[p].stood ? bit : 0;
    }
    n.moved = stood & ~n.over;
    n.last = n.over & rdma ? n.over & rdma : n.over;
    n.last = n.last & (n.last - 1) ? 0 : n.last;
    for (int p = 0; p < c->conn.npaths; p++) {
        uint32_t bit = 1u << c->conn.path[p].nic;

        if (c->seen.path[p].stood && c->seen.path[p].state != FO_UP && !c->seen.path[p].theirs) {
            n.ours |= bit & ~n.over;
        }
    }
    n.resort = n.over && !(n.over & rdma);
    n.aside = others ? 0 : aside & rdma;
    return n;
}

/* A bit that is new is one more, a bit that is gone one less. */
#define FOLLOW(is, was, member)                                                                    \
    for (uint32_t m = (is).member ^ (was)->member; m; m &= m - 1) {                                \
        uint32_t i = (uint32_t)__builtin_ctz(m);                                                   \
                                                                                                   \
        r->nic[i].member += (is).member >> i & 1 ? 1u : UINT32_MAX;                                \
    }

void r2_report_count_state(struct r2_report *r, struct r2_comm *c)
{
    struct r2_counted is = {0}, *was = &c->seen.counted;

    if (!r2_report_is_standing(c) && !was->stands) {
        return;
    }
    if (r2_report_is_standing(c)) {
        is = state_of(c);
    }
    FOLLOW(is, was, over)
    FOLLOW(is, was, moved)
    FOLLOW(is, was, last)
    FOLLOW(is, was, ours)
    FOLLOW(is, was, aside)
    r->nic[c->dev].primary += (uint32_t)is.stands - was->stands;
    r->conns.standing += (uint32_t)is.stands - was->stands;
    r->conns.resort += (uint32_t)is.resort - was->resort;
    *was = is;
}

/* Up, and not drained. */
static bool is_ready(const struct r2_report *r, int nic)
{
    return r->nic[nic].state == IB_NIC_UP && !(r->inst->drain.nics >> nic & 1);
}

uint32_t r2_report_usable(const struct r2_report *r)
{
    const struct ib_nics *nics = &r->inst->nics;
    uint32_t usable = 0;

    for (int i = 0; i < nics->count - nics->last_count; i++) {
        usable |= is_ready(r, i) && (r->nic[i].over || !r->nic[i].moved) ? 1u << i : 0;
    }
    return usable;
}

uint32_t r2_report_good(const struct r2_report *r)
{
    const struct ib_nics *nics = &r->inst->nics;
    uint32_t good = 0;

    for (int i = 0; i < nics->count - nics->last_count; i++) {
        good |= is_ready(r, i) && (r->nic[i].over || !r->nic[i].ours) ? 1u << i : 0;
    }
    return good;
}

/* --- what has moved --- */

static void path_moved(struct r2_report *r, struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    struct r2_report_nic *n = &r->nic[path->nic];
    uint64_t bytes = r2_report_bytes(path), wrs = IB_RLX_GET(path->count.wrs);

    *(c->is_send ? &n->sent : &n->received) += bytes - c->seen.path[p].bytes;
    n->wrs += wrs - c->seen.path[p].wrs;
    c->seen.path[p].bytes = bytes;
    c->seen.path[p].wrs = wrs;
}

void r2_report_count_moved(struct r2_report *r, struct r2_comm *c)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        path_moved(r, c, p);
    }
}

void r2_report_incarnation_over(struct r2_comm *c, int p)
{
    struct r2_report *r = c->inst->telemetry.report;

    if (r == NULL || c->seen.path[p].folded) {
        return;
    }
    path_moved(r, c, p);
    c->seen.bytes += r2_report_bytes(&c->conn.path[p]);
    /* of a closing connection the counters stay where they are; of a path that returns they begin
     * anew */
    c->seen.path[p].folded =
        atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN;
    if (!c->seen.path[p].folded) {
        c->seen.path[p].bytes = c->seen.path[p].wrs = 0;
    }
}
