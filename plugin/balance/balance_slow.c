#include "balance_slow.h"

#include <stddef.h>
#include <string.h>

#define CONFIRM                                                                                    \
    2u /* windows in a row that say the same, before it is suspected and before it is believed */
#define PATIENCE                                                                                   \
    16u /* windows that a suspicion lasts: while the others rest, and until it is known what the   \
           peer moves */
#define REST       4u /* windows after a suspicion that was wrong */
#define HOLD_LEAST 2u
#define HOLD_MOST  256u
#define HOLD_FADES 600u /* windows of trust after which the hold is the least again: a minute */
#define PARTS      4u   /* completions: fewer tell of single messages */
#define ENOUGH     (BALANCE_SLOW_ONE / 4)     /* busy for so long: worth a thought */
#define WELL       (BALANCE_SLOW_ONE * 4 / 5) /* as fast as the others */
#define STEP       8u                         /* a change by an eighth of the larger one is one */

static const char *const state_names[BALANCE_SLOW_STATES] = {"no", "suspect", "yes"};

const char *balance_slow_name(enum balance_slow_state s)
{
    return (unsigned)s < BALANCE_SLOW_STATES ? state_names[s] : "?";
}

/* What the others did in the same time, as if each had our port's rate. */
struct others {
    unsigned fast;  /* of them: faster by more than the limit, beyond doubt */
    unsigned alike; /* ... as busy as we are and no faster than the limit */
    uint64_t rate;  /* the middle one; 0: nobody moved enough */
};

enum finding {
    LOOKS_WELL,
    LOOKS_SLOW,
    LOOKS_ALONE, /* the others rest, so nothing is known: neither for nor against it */
};

static uint64_t scaled(uint64_t rate, uint32_t from, uint32_t to)
{
    double r = from && to ? (double)rate * to / from : (double)rate;

    return r < 1e18 ? (uint64_t)r : (uint64_t)1e18;
}

static void insert(uint64_t *sorted, unsigned n, uint64_t rate)
{
    while (n > 0 && sorted[n - 1] > rate) {
        sorted[n] = sorted[n - 1];
        n--;
    }
    sorted[n] = rate;
}

static struct others compare(const struct balance_slow_facts *f, const struct balance_tempo *own)
{
    uint64_t rate[BALANCE_SLOW_PEERS];
    struct others o = {0};
    unsigned n = 0;

    for (unsigned i = 0; i < f->peers && n < BALANCE_SLOW_PEERS; i++) {
        const struct balance_tempo *t = &f->peer[i].tempo;
        uint64_t limit = scaled(t->least, f->peer[i].mbps, f->mbps) / 100 * f->percent;

        if (t->rate == 0 || t->parts < PARTS) {
            continue;
        }
        insert(rate, n++, scaled(t->rate, f->peer[i].mbps, f->mbps));
        if (own->most < limit && t->wait <= own->wait / 2) {
            o.fast++; /* the wait tells a slow link from messages so small that only their number
                         counts */
        } else if (t->busy >= BALANCE_SLOW_ONE / 2) {
            o.alike++;
        }
    }
    o.rate = n ? rate[n / 2] : 0;
    return o;
}

static enum finding find(const struct balance_slow_facts *f, const struct others *o)
{
    if (f->own.parts < PARTS || f->own.busy < ENOUGH || o->alike >= (o->fast ? o->fast : 1)) {
        return LOOKS_WELL;
    }
    return o->fast ? LOOKS_SLOW : LOOKS_ALONE;
}

/* One of the NICs moves as much as a NIC can in the time in which we are busy: others use it, and
 * they may rest when we rest. */
static int shared(const struct balance_slow_facts *f, const struct others *o)
{
    uint64_t most = o->rate / BALANCE_SLOW_ONE * f->own.busy / 4 * 3;

    return f->moved_here >= most || f->moved_there >= most;
}

static uint16_t part_of(uint64_t rate, uint64_t of)
{
    double part = of ? (double)rate * BALANCE_SLOW_ONE / (double)of : BALANCE_SLOW_ONE;

    return part < BALANCE_SLOW_LEAST ? BALANCE_SLOW_LEAST
           : part > BALANCE_SLOW_ONE ? BALANCE_SLOW_ONE
                                     : (uint16_t)part;
}

/* Another part is believed where it is off by an eighth, and beyond what looks may err. 1: *part
 * has changed. */
static int follow(uint16_t *part, const struct balance_tempo *t, uint64_t of)
{
    uint16_t now = part_of(t->rate, of), larger = now > *part ? now : *part;
    unsigned change = now > *part ? now - *part : *part - now;

    if (change * STEP < larger ||
        (now > *part ? part_of(t->least, of) <= *part : part_of(t->most, of) >= *part)) {
        return 0;
    }
    *part = now;
    return 1;
}

/* The NIC carries its pair, too: no less. */
static const struct balance_tempo *of_nic(const struct balance_slow_facts *f,
                                          const struct balance_tempo *pair)
{
    return f->nic.rate > pair->rate ? &f->nic : pair;
}

/* Row: from. It is suspected before it is believed. */
bool balance_slow_move(struct balance_slow *s, enum balance_slow_state to, uint16_t rest)
{
    static const unsigned char legal[BALANCE_SLOW_STATES][BALANCE_SLOW_STATES] = {
        [BALANCE_SLOW_NO] = {[BALANCE_SLOW_SUSPECT] = 1},
        [BALANCE_SLOW_SUSPECT] = {[BALANCE_SLOW_NO] = 1, [BALANCE_SLOW_YES] = 1},
        [BALANCE_SLOW_YES] = {[BALANCE_SLOW_NO] = 1},
    };

    if (!legal[s->state][to]) {
        return false;
    }
    s->state = to;
    s->rest = rest;
    s->good = s->bad = 0;
    return true;
}

static void window_no(struct balance_slow *s, const struct balance_slow_facts *f)
{
    struct others o = compare(f, &f->own);

    if (s->age < HOLD_FADES && ++s->age == HOLD_FADES) {
        s->hold = HOLD_LEAST;
    }
    if (s->rest > 0) {
        s->rest--;
        return;
    }
    switch (find(f, &o)) {
    case LOOKS_WELL:
        s->bad = 0;
        break;
    case LOOKS_SLOW:
        s->bad++;
        break;
    case LOOKS_ALONE:
        break;
    }
    if (s->bad >= CONFIRM) {
        balance_slow_move(s, BALANCE_SLOW_SUSPECT, 0);
    }
}

static int window_suspect(struct balance_slow *s, const struct balance_slow_facts *f)
{
    struct others o = compare(f, &f->own);
    enum finding l = find(f, &o);

    if (l == LOOKS_WELL || (l == LOOKS_SLOW && f->moved_known && shared(f, &o)) ||
        ++s->good > PATIENCE) {
        balance_slow_move(s, BALANCE_SLOW_NO, REST);
        return 0;
    }
    s->bad += l == LOOKS_SLOW;
    if (l != LOOKS_SLOW || s->bad < CONFIRM || !f->moved_known) {
        return 0;
    }
    balance_slow_move(s, BALANCE_SLOW_YES, 0);
    s->part = part_of(f->own.rate, o.rate);
    s->nic = part_of(of_nic(f, &f->own)->rate, o.rate);
    s->hold = s->hold ? s->hold : HOLD_LEAST;
    return 1;
}

static int window_yes(struct balance_slow *s, const struct balance_slow_facts *f)
{
    struct others o = compare(f, &f->all);
    int changed;

    if (f->all.parts < PARTS || o.rate == 0) {
        s->good = 0;
        return 0;
    }
    s->good = part_of(f->all.rate, o.rate) >= WELL ? s->good + 1 : 0;
    if (s->good >= s->hold) {
        balance_slow_move(s, BALANCE_SLOW_NO, REST);
        s->part = s->nic = 0;
        s->age = 0;
        s->hold = s->hold * 2u < HOLD_MOST ? (uint16_t)(s->hold * 2u) : HOLD_MOST;
        return 1;
    }
    changed = follow(&s->part, &f->all, o.rate);
    return follow(&s->nic, of_nic(f, &f->all), o.rate) | changed;
}

int balance_slow_window(struct balance_slow *s, const struct balance_slow_facts *f)
{
    switch (s->state) {
    case BALANCE_SLOW_SUSPECT:
        return window_suspect(s, f);
    case BALANCE_SLOW_YES:
        return window_yes(s, f);
    default:
        window_no(s, f);
        return 0;
    }
}
