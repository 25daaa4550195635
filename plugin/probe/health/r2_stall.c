#include "r2_stall.h"

#include "core/r2_inst.h"
#include "core/r2_notify.h"

void r2_stall_see(struct r2_comm *c, int p, uint64_t silent)
{
    uint64_t clock = c->inst->watch_clock;

    if ((c->stalled >> p & 1) && c->stall[p].life == c->link.path[p].life) {
        return;
    }
    c->stalled |= 1u << p;
    c->stall[p].life = c->link.path[p].life;
    c->stall[p].since = clock - (silent < clock ? silent : clock);
    c->stall[p].cqes = IB_RLX_GET(c->link.path[p].cqes);
}

void r2_stall_drop(struct r2_comm *c, int p)
{
    c->stalled &= ~(1u << p);
}

/* A completion came. One that only says that the life has ended is the failure's. */
static void over(struct r2_comm *c, int p, uint64_t ns)
{
    int up;

    r2_gate_visit(&c->gate);
    up = ib_link_up(&c->link, p);
    r2_gate_unvisit(&c->gate);
    if (up && ns >= R2_STALL_MIN_NS) {
        R2_NOTIFY(c->inst, on_stall, c, p, ns, 1);
    }
}

void r2_stall_tick(struct r2_comm *c)
{
    for (uint32_t m = c->stalled; m; m &= m - 1) {
        int p = __builtin_ctz(m);
        uint64_t ns = c->inst->watch_clock - c->stall[p].since;

        if (c->stall[p].life != c->link.path[p].life) {
            r2_stall_drop(c, p);
        } else if (IB_RLX_GET(c->link.path[p].cqes) != c->stall[p].cqes) {
            r2_stall_drop(c, p);
            over(c, p, ns);
        } else if (ns >= R2_STALL_MIN_NS) {
            R2_NOTIFY(c->inst, on_stall, c, p, ns, 0);
        }
    }
}
