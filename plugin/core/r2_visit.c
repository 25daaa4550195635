#include "r2_visit.h"

#include "r2_registry.h"

#define TOKEN_NS (1000000000ull / R2_VISIT_RATE)

/* A barrier may be paid. What was not paid for long is no more than a burst. */
static int take_token(struct r2_visits *v, uint64_t now)
{
    uint64_t new = (now - v->filled_at) / TOKEN_NS;

    if (now > v->filled_at && new > 0) {
        v->left = new < R2_VISIT_BURST - v->left ? v->left + (unsigned)new : R2_VISIT_BURST;
        v->filled_at = v->left < R2_VISIT_BURST ? v->filled_at + new *TOKEN_NS : now;
    }
    if (v->left == 0) {
        return 0;
    }
    v->left--;
    return 1;
}

static void mark_all(struct r2_inst *inst, int bit)
{
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        r2_gate_mark(&c->gate, bit);
    }
}

/* A connection that is entered from here on finds `strict` and marks its own gate; those before are
 * on the list. */
static void make_strict(struct r2_inst *inst, uint64_t now)
{
    pthread_mutex_lock(&inst->lock);
    inst->visits.strict = 1;
    pthread_mutex_unlock(&inst->lock);
    mark_all(inst, R2_GATE_STRICT);
    r2_gates_barrier();
    mark_all(inst, R2_GATE_FREE);
    inst->visits.count = 0;
    inst->visits.tick_at = now + R2_VISIT_TICK_NS;
}

static void make_loose(struct r2_inst *inst)
{
    pthread_mutex_lock(&inst->lock);
    inst->visits.strict = 0;
    pthread_mutex_unlock(&inst->lock);
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        r2_gate_loosen(&c->gate);
    }
}

void r2_comm_visit(struct r2_comm *c)
{
    struct r2_inst *inst = c->inst;

    inst->visits.count++;
    if (!inst->visits.strict && inst->env.threads) {
        uint64_t now = r2_now(inst);

        if (!take_token(&inst->visits, now)) {
            make_strict(inst, now);
        }
    }
    r2_gate_visit(&c->gate);
}

void r2_comm_unvisit(struct r2_comm *c)
{
    r2_gate_unvisit(&c->gate);
}

void r2_visits_step(struct r2_inst *inst, uint64_t now)
{
    struct r2_visits *v = &inst->visits;

    if (!v->strict || now < v->tick_at) {
        return;
    }
    if (v->count * 1000000000 < R2_VISIT_RATE * (now - v->tick_at + R2_VISIT_TICK_NS)) {
        make_loose(inst);
    }
    v->count = 0;
    v->tick_at = now + R2_VISIT_TICK_NS;
}

void r2_visits_join(struct r2_comm *c)
{
    if (c->inst->visits.strict) {
        r2_gate_mark(&c->gate, R2_GATE_STRICT | R2_GATE_FREE);
    }
}
