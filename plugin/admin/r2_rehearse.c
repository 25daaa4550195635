#include "r2_rehearse.h"

#include <stdlib.h>
#include <time.h>

#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_commands.h"
#include "r2_drain.h"

/* A command that is older than what it asks for, by so much, is not begun: a process that was
 * stopped finds it late. */
#define LATE_US 1000000u

struct r2_rehearsal {
    struct r2_commands commands;
    uint64_t until[IB_MAX_NICS]; /* ns, of those in inst->drain.rehearsed */
};

int r2_rehearse_open(struct r2_inst *inst)
{
    inst->drain.rehearsal = calloc(1, sizeof(*inst->drain.rehearsal));
    return inst->drain.rehearsal ? 0 : -1;
}

/* Takes up what is new: which of our NICs are out from now on. */
static uint32_t commands_take(struct r2_inst *inst, struct r2_rehearsal *r, uint64_t now)
{
    struct r2_rundir_command latest[IB_MAX_NICS];
    uint32_t nics = inst->drain.rehearsed;
    struct timespec ts;
    uint64_t real;

    clock_gettime(CLOCK_REALTIME, &ts);
    real = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
    for (uint32_t m = r2_commands_poll(inst, &r->commands, R2_RUNDIR_REHEARSE, latest); m;
         m &= m - 1) {
        int i = __builtin_ctz(m);
        uint64_t ms = latest[i].ms;

        if (ms && real > latest[i].number + 1000 * ms + LATE_US) {
            R2_INFO("NIC %s: its rehearsal is over before this process has read of it",
                    inst->nics.nic[i].name);
            continue;
        }
        r->until[i] = now + R2_MS(ms);
        nics = ms ? nics | 1u << i : nics & ~(1u << i);
    }
    for (uint32_t m = nics; m; m &= m - 1) {
        int i = __builtin_ctz(m);

        nics &= ~((uint32_t)(now >= r->until[i]) << i);
    }
    return nics;
}

/* Paths of @c over @nic. */
static uint32_t paths_over(const struct r2_comm *c, int nic)
{
    uint32_t paths = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        paths |= (uint32_t)(c->conn.path[p].nic == nic && ib_conn_up(&c->conn, p)) << p;
    }
    return paths;
}

/* The NIC is drained by now, so that nothing new takes it, and no path returns over it. */
static void begin(struct r2_inst *inst, int nic, uint64_t ms)
{
    int moved = 0, stay = 0;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        uint32_t paths;

        r2_comm_visit(c);
        if (c->peer &&
            atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE &&
            atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN &&
            (paths = paths_over(c, nic)) != 0) {
            if (fo_rehearse(&c->fo, paths) > 0) {
                moved++;
            } else {
                stay++;
            }
            r2_comm_kick(c);
        }
        r2_comm_unvisit(c);
    }
    R2_INFO("rehearsal: NIC %s fails for %.1f s, as the administrator asked: %d connections leave "
            "it, %d cannot do without",
            inst->nics.nic[nic].name, (double)ms / 1e3, moved, stay);
}

void r2_rehearse_poll(struct r2_inst *inst)
{
    struct r2_rehearsal *r = inst->drain.rehearsal;
    uint64_t now = r2_now(inst);
    uint32_t before = inst->drain.rehearsed, nics = commands_take(inst, r, now);

    if (nics == before) {
        return;
    }
    inst->drain.rehearsed = nics;
    r2_drain_poll(inst);
    for (uint32_t m = nics & ~before; m; m &= m - 1) {
        int i = __builtin_ctz(m);

        begin(inst, i, (r->until[i] - now) / 1000000);
    }
    for (uint32_t m = before & ~nics; m; m &= m - 1) {
        R2_INFO("rehearsal: NIC %s may be used again", inst->nics.nic[__builtin_ctz(m)].name);
    }
}
