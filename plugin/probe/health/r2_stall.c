#include "r2_stall.h"

#include "core/r2_inst.h"
#include "core/r2_notify.h"
#include "core/r2_visit.h"
#include "r2_watch.h"

void r2_stall_see(struct r2_comm *c, int p, uint64_t silent)
{
    uint64_t clock = c->inst->watch.clock;

    if ((c->watch->stall.paths >> p & 1) && c->watch->stall.path[p].inc == c->conn.path[p].inc) {
        return;
    }
    c->watch->stall.paths |= 1u << p;
    c->watch->stall.path[p].inc = c->conn.path[p].inc;
    c->watch->stall.path[p].since = clock - (silent < clock ? silent : clock);
    c->watch->stall.path[p].cqes = IB_RLX_GET(c->conn.path[p].count.cqes);
}

void r2_stall_drop(struct r2_comm *c, int p)
{
    c->watch->stall.paths &= ~(1u << p);
}

/* A completion came. One that only says that the incarnation has ended is the failure's. */
static void over(struct r2_comm *c, int p, uint64_t ns)
{
    int up;

    r2_comm_visit(c);
    up = ib_conn_up(&c->conn, p);
    r2_comm_unvisit(c);
    if (up && ns >= R2_STALL_MIN_NS) {
        R2_NOTIFY(c->inst, on_stall, c, p, ns, 1);
    }
}

void r2_stall_tick(struct r2_comm *c)
{
    for (uint32_t m = c->watch->stall.paths; m; m &= m - 1) {
        int p = __builtin_ctz(m);
        uint64_t ns = c->inst->watch.clock - c->watch->stall.path[p].since;

        if (c->watch->stall.path[p].inc != c->conn.path[p].inc) {
            r2_stall_drop(c, p);
        } else if (IB_RLX_GET(c->conn.path[p].count.cqes) != c->watch->stall.path[p].cqes) {
            r2_stall_drop(c, p);
            over(c, p, ns);
        } else if (ns >= R2_STALL_MIN_NS) {
            R2_NOTIFY(c->inst, on_stall, c, p, ns, 0);
        }
    }
}
