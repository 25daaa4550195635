/* Rate and fairness of one direction of a port: seg_port.h has the rules. */
#include "tests/fabric/shm/seg_port.h"

/* All words stand for themselves: what is read a moment late is put right by the next packet. */
static uint64_t get(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void put(_Atomic uint64_t *word, uint64_t v)
{
    atomic_store_explicit(word, v, memory_order_relaxed);
}

static void front_raise(struct seg_port *p, uint64_t tag)
{
    uint64_t old = get(&p->front);

    while (old < tag && !atomic_compare_exchange_weak_explicit(
                            &p->front, &old, tag, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static bool fresh(struct seg_claim *c, uint64_t now)
{
    return get(&c->seen) + SEG_PORT_STALE_NS >= now;
}

/* Time in which the user did not wait gives no claim; of time in which it was away though it
 * waited, LEAD counts. */
static uint64_t tag_now(struct seg_port *p, struct seg_claim *c, bool waits, uint64_t now)
{
    uint64_t tag = get(&c->tag), front = get(&p->front), least = front;

    if (waits) {
        least = fresh(c, now) ? 0 : front > SEG_PORT_LEAD_NS ? front - SEG_PORT_LEAD_NS : 0;
    }
    return tag > least ? tag : least;
}

/* Whether somebody among @rivals waits who has had less than @tag by more than the lead. */
static bool too_far_ahead(struct seg_port *p, uint64_t rivals, uint64_t tag, uint64_t now)
{
    for (; rivals != 0; rivals &= rivals - 1) {
        struct seg_claim *r = &p->claim[__builtin_ctzll(rivals)];
        if (tag > get(&r->tag) + SEG_PORT_LEAD_NS && fresh(r, now)) {
            return true;
        }
    }
    return false;
}

uint64_t seg_port_ask(struct seg_port *p, int user, uint64_t now, uint64_t ahead)
{
    struct seg_claim *c = &p->claim[user];
    uint64_t self = 1ull << user, waiting = get(&p->waiting), free_at = get(&p->free_at), again = 0;
    uint64_t tag = tag_now(p, c, waiting & self, now);

    if (free_at > now + ahead) {
        again = free_at - ahead / 2;
    } else if (too_far_ahead(p, waiting & ~self, tag, now)) {
        again = now + SEG_PORT_YIELD_NS;
    }
    /* The claim is whole before the bit shows it. */
    put(&c->tag, tag);
    put(&c->seen, again > now ? again : now);
    if (again != 0 && !(waiting & self)) {
        atomic_fetch_or_explicit(&p->waiting, self, memory_order_release);
    }
    return again;
}

uint64_t seg_port_floor(struct seg_port *p, int user, uint64_t now)
{
    return get(&p->waiting) >> user & 1 ? now - SEG_PORT_CREDIT_NS : now;
}

uint64_t seg_port_take(struct seg_port *p, int user, uint64_t floor, uint64_t dur)
{
    uint64_t old = get(&p->free_at), tag = get(&p->claim[user].tag), end;

    if (dur == 0) {
        /* It passes behind the others, and takes nothing from who may still start in the past. */
        seg_port_yield(p, user);
        return old > floor ? old : floor;
    }
    do {
        end = (old > floor ? old : floor) + dur;
    } while (!atomic_compare_exchange_weak_explicit(&p->free_at, &old, end, memory_order_relaxed,
                                                    memory_order_relaxed));
    front_raise(p, tag);
    put(&p->claim[user].tag, tag + dur);
    return end;
}

void seg_port_yield(struct seg_port *p, int user)
{
    put(&p->claim[user].seen, 0);
}

void seg_port_leave(struct seg_port *p, int user)
{
    uint64_t self = 1ull << user;

    if (get(&p->waiting) & self) {
        atomic_fetch_and_explicit(&p->waiting, ~self, memory_order_relaxed);
    }
}
