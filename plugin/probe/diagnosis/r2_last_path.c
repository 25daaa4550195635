#include "r2_last_path.h"

#include <stdbool.h>

#include "core/r2_inst.h"
#include "core/r2_notify.h"
#include "core/r2_visit.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_probation.h"
#include "probe/health/r2_watch.h"
#include "r2_locate.h"

#define SILENT_NS                                                                                  \
    R2_MS(1000) /* of a path; longer than what congestion does, and some seconds shorter           \
                   than a process is named for (R2-H01) */

/* Nothing else carries the connection. */
static bool is_last(struct r2_comm *c, int p)
{
    bool last;

    r2_comm_visit(c);
    last = c->fo.error == R2_OK && !c->fo.bye.peer && ib_conn_up(&c->conn, p) &&
           r2_watch_others(c, ib_conn_pair(&c->conn, p)) == 0 && !r2_probation_has_spare(c);
    r2_comm_unvisit(c);
    return last;
}

/*
 * Its pair is asked, among others, and given up if it does not answer; what came of that is known
 * to the case. As long as the path stands still, and until the pair is good again, its queue pair
 * is made anew: else nobody would ask it, take the blame back, or find the last packet lost.
 */
static void on_stall(struct r2_comm *c, int p, uint64_t ns, int over)
{
    const struct ib_path *path = &c->conn.path[p];
    struct r2_pair *pair;
    bool is_new, is_dead;

    if (ns < SILENT_NS || over || !r2_watch_is_watched(c) ||
        c->inst->nics.nic[path->nic].last) { /* TCP says itself that it is lost */
        return;
    }
    pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);
    if (pair == NULL || /* none is made where nobody is to look, or to move anything */
        !c->inst->oob->ops->peer_is_up(c->peer->oob)) {
        return;
    }
    is_new = !r2_locate_has_case(pair, c->inst->watch.clock - ns);
    is_dead = pair->build.state == R2_PAIR_DEAD && !pair->probation.interest;
    if ((!is_new && !is_dead) || !is_last(c, p)) {
        return; /* nearly always the first: a thousand connections stand still together */
    }
    if (is_new) {
        r2_locate_silent(pair, ns);
    }
    if (is_dead) {
        r2_probation_wanted(pair);
    }
}

const struct r2_subscriber r2_last_path_subscriber = {.on_stall = on_stall};
