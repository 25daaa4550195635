#include "r2_questions.h"

#define SLOTS_LOG2_MAX 10

/* Counts of the tick @number. */
static void begin(struct r2_questions *q, uint64_t number, unsigned limit)
{
    if (q->number == number) {
        return;
    }
    q->number = number;
    q->turn++;
    if (q->refused && q->slots_log2 < SLOTS_LOG2_MAX) {
        q->slots_log2++;
    } else if (!q->refused && q->n < limit / 2 && q->slots_log2) {
        q->slots_log2--;
    }
    q->n = q->refused = 0;
}

/* Where more want to ask than may, each has the turn that its number says: those in front of the
 * list are not the only ones. All go by the turns of the instance, so that a turn of the peer's is
 * one of its. */
static bool has_turn(const struct r2_questions *all, const struct r2_questions *peer, uint32_t id)
{
    unsigned log2 = all->slots_log2 > peer->slots_log2 ? all->slots_log2 : peer->slots_log2;

    return ((id + all->turn) & ((1u << log2) - 1)) == 0;
}

bool r2_questions_may_ask(struct r2_comm *c)
{
    struct r2_questions *all = &c->inst->watch.asked, *peer = &c->peer->asked;

    begin(all, c->inst->watch.tick, R2_QUESTIONS_ASKED);
    begin(peer, c->inst->watch.tick, R2_QUESTIONS_PEER);
    if (!has_turn(all, peer, c->id)) {
        return false;
    }
    if (all->n == R2_QUESTIONS_ASKED || peer->n == R2_QUESTIONS_PEER) {
        all->refused += all->n == R2_QUESTIONS_ASKED;
        peer->refused += peer->n == R2_QUESTIONS_PEER;
        return false;
    }
    all->n++;
    peer->n++;
    return true;
}

bool r2_questions_may_answer(struct r2_comm *c)
{
    struct r2_questions *q = &c->peer->answered;
    uint64_t step = (uint64_t)c->inst->cfg.t_suspect_ms * 1000000 / 4;

    begin(q, r2_now(c->inst) / (step ? step : 1) + 1, R2_QUESTIONS_ANSWER);
    return q->n < R2_QUESTIONS_ANSWER && ++q->n;
}
