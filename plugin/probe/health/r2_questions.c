#include "r2_questions.h"

/* A count of this tick. */
static unsigned *of_tick(struct r2_inst *inst, struct r2_questions *q)
{
    if (q->tick != inst->watch.tick) {
        q->tick = inst->watch.tick;
        q->n = 0;
    }
    return &q->n;
}

bool r2_questions_may_ask(struct r2_comm *c)
{
    unsigned *all = of_tick(c->inst, &c->inst->watch.asked),
             *peer = of_tick(c->inst, &c->peer->asked);

    if (*all == R2_QUESTIONS_ASKED || *peer == R2_QUESTIONS_PEER) {
        return false;
    }
    ++*all;
    ++*peer;
    return true;
}

bool r2_questions_may_answer(struct r2_comm *c)
{
    unsigned *n = of_tick(c->inst, &c->peer->answered);

    return *n < R2_QUESTIONS_ANSWER && ++*n;
}
