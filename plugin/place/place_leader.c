#include "place_leader.h"

#include <string.h>

#include "base/r2_time.h"

const char *place_leader_state_name(enum place_leader_state s)
{
    static const char *const names[PLACE_LEADER_STATES] = {"idle", "preparing", "committing",
                                                           "aborting"};

    return (unsigned)s < PLACE_LEADER_STATES ? names[s] : "?";
}

/* Row: from. */
bool place_leader_move(struct place_leader *l, enum place_leader_state to)
{
    static const unsigned char legal[PLACE_LEADER_STATES][PLACE_LEADER_STATES] = {
        [PLACE_IDLE] = {[PLACE_PREPARING] = 1},
        [PLACE_PREPARING] = {[PLACE_COMMITTING] = 1, [PLACE_ABORTING] = 1},
        [PLACE_COMMITTING] = {[PLACE_IDLE] = 1},
        [PLACE_ABORTING] = {[PLACE_IDLE] = 1},
    };

    if (l->state >= PLACE_LEADER_STATES || (unsigned)to >= PLACE_LEADER_STATES ||
        !legal[l->state][to]) {
        return false;
    }
    l->state = (uint8_t)to;
    return true;
}

void place_leader_init(struct place_leader *l, struct place_rank *rank, int n, uint64_t wait_ns)
{
    memset(l, 0, sizeof(*l));
    memset(rank, 0, (size_t)n * sizeof(*rank));
    l->n = n;
    l->rank = rank;
    l->margin = PLACE_MARGIN;
    l->wait_ns = wait_ns;
}

bool place_leader_begin(struct place_leader *l, uint32_t to, uint64_t begun, uint64_t now)
{
    uint64_t most = begun;

    if (l->never || l->state != PLACE_IDLE || to == l->now) {
        return false;
    }
    for (int i = 0; i < l->n; i++) {
        l->rank[i].answer = PLACE_NONE;
        l->rank[i].done = false;
        most = l->rank[i].begun > most ? l->rank[i].begun : most;
    }
    l->attempt++;
    l->to = to;
    l->at = most + l->margin;
    l->began = now;
    return place_leader_move(l, PLACE_PREPARING);
}

/* --- the decision --- */

static void give_up(struct place_leader *l, enum place_answer why)
{
    l->why = (uint8_t)why;
    if (why == PLACE_NEVER) {
        l->never = true;
    } else if (why == PLACE_LATE && l->margin < PLACE_MARGIN_MAX) {
        l->margin *= 2;
    }
    l->told = PLACE_ABORT;
    place_leader_move(l, PLACE_ABORTING);
}

static bool have_all_agreed(const struct place_leader *l)
{
    for (int i = 0; i < l->n; i++) {
        if (l->rank[i].answer != PLACE_YES) {
            return false;
        }
    }
    return true;
}

static void on_answer(struct place_leader *l, struct place_rank *r, const struct place_msg *msg)
{
    if (l->state != PLACE_PREPARING || r->answer == PLACE_YES || msg->answer == PLACE_NONE ||
        msg->answer >= PLACE_ANSWERS) {
        return;
    }
    r->answer = msg->answer;
    if (msg->answer != PLACE_YES) {
        give_up(l, (enum place_answer)msg->answer);
    } else if (have_all_agreed(l)) {
        l->now = l->to;
        l->margin = l->margin > 2 * PLACE_MARGIN ? l->margin / 2 : PLACE_MARGIN;
        l->told = PLACE_COMMIT;
        place_leader_move(l, PLACE_COMMITTING);
    }
}

/* Nothing where no decision is open: that is no legal move. */
static void settle(struct place_leader *l)
{
    for (int i = 0; i < l->n; i++) {
        if (!l->rank[i].done && !l->rank[i].gone) {
            return;
        }
    }
    place_leader_move(l, PLACE_IDLE);
}

void place_leader_take(struct place_leader *l, int rank, const struct place_msg *msg)
{
    struct place_rank *r;

    if (rank < 0 || rank >= l->n || msg->attempt != l->attempt) {
        return;
    }
    r = &l->rank[rank];
    if (msg->kind == PLACE_ANSWER || msg->kind == PLACE_DONE) {
        r->begun = msg->at > r->begun ? msg->at : r->begun;
    }
    if (msg->kind == PLACE_ANSWER) {
        on_answer(l, r, msg);
    } else if (msg->kind == PLACE_DONE && l->state != PLACE_PREPARING) {
        r->done = true;
        settle(l);
    }
}

void place_leader_tick(struct place_leader *l, uint64_t now)
{
    if (l->state == PLACE_PREPARING && r2_elapsed(now, l->began) >= l->wait_ns) {
        give_up(l, PLACE_NONE);
    }
}

bool place_leader_due(const struct place_leader *l, int rank, struct place_msg *msg)
{
    bool offers = l->state == PLACE_PREPARING;

    if (rank < 0 || rank >= l->n || l->attempt == 0 ||
        (offers ? l->rank[rank].answer != PLACE_NONE : l->rank[rank].done)) {
        return false;
    }
    *msg = (struct place_msg){.kind = offers ? (uint8_t)PLACE_PREPARE : l->told,
                              .attempt = l->attempt,
                              .to = l->to,
                              .at = l->at};
    return true;
}

void place_leader_lost(struct place_leader *l, int rank)
{
    l->never = true;
    if (rank < 0 || rank >= l->n) {
        return;
    }
    if (l->state == PLACE_PREPARING) {
        give_up(l, PLACE_NONE);
    }
    l->rank[rank].gone = true;
    settle(l);
}
