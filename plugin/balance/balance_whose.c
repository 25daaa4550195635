#include "balance_whose.h"

#include <stddef.h>

#include "base/r2_time.h"

/* A word may have come after the turn began whose time @now is. */
static bool is_fresh(uint64_t at, uint64_t now)
{
    return at != 0 && r2_elapsed(now, at) < BALANCE_WHOSE_FRESH;
}

static bool is_slow(const struct balance_witness *x, uint64_t now)
{
    return is_fresh(x->sends_at, now) || is_fresh(x->slow_at, now);
}

static bool has_place(const struct balance_witness *x)
{
    return x->sends_at || x->slow_at;
}

/* Its place, else one of a host of which nothing is slow any more. NULL: there is none; those that
 * have one are enough to go by. */
static struct balance_witness *witness_of(struct balance_whose *w, uint32_t host, uint64_t now)
{
    struct balance_witness *old = NULL;

    for (size_t i = 0; i < BALANCE_WHOSE_HOSTS; i++) {
        struct balance_witness *x = &w->witness[i];

        if (x->host == host && has_place(x)) {
            return x;
        }
        old = old == NULL && !is_slow(x, now) ? x : old;
    }
    if (old) {
        *old = (struct balance_witness){.host = host};
    }
    return old;
}

void balance_whose_slow(struct balance_whose *w, uint32_t host, uint64_t now)
{
    struct balance_witness *x = witness_of(w, host, now);

    if (x) {
        x->slow_at = now;
    }
}

void balance_whose_told(struct balance_whose *w, uint32_t host, enum balance_word word,
                        uint64_t now)
{
    struct balance_witness *x = witness_of(w, host, now);

    if (x) {
        x->sends_at = x->word_at = now;
        x->word = word;
    }
}

void balance_whose_word(struct balance_whose *w, uint32_t host, enum balance_word word,
                        uint64_t now)
{
    for (size_t i = 0; i < BALANCE_WHOSE_HOSTS; i++) {
        struct balance_witness *x = &w->witness[i];

        if (x->host == host && has_place(x)) {
            x->word_at = now;
            x->word = word;
        }
    }
}

bool balance_whose_has_others(const struct balance_whose *w, uint32_t host, uint64_t now)
{
    for (size_t i = 0; i < BALANCE_WHOSE_HOSTS; i++) {
        if (w->witness[i].host != host && is_slow(&w->witness[i], now)) {
            return true;
        }
    }
    return false;
}

struct heard {
    unsigned ways, well, others; /* hosts with a slow way; of these, by what they have just said */
    uint32_t hosts[2];           /* the first that carry well */
};

static struct heard count(const struct balance_whose *w, uint64_t now)
{
    struct heard h = {0};

    for (size_t i = 0; i < BALANCE_WHOSE_HOSTS; i++) {
        const struct balance_witness *x = &w->witness[i];
        bool is_spoken = x->word_at && r2_elapsed(now, x->word_at) < BALANCE_WHOSE_SPOKEN;

        if (!is_slow(x, now)) {
            continue;
        }
        h.ways++;
        if (is_spoken && x->word == BALANCE_WORD_WELL) {
            if (h.well < 2) {
                h.hosts[h.well] = x->host;
            }
            h.well++;
        }
        h.others += is_spoken && x->word == BALANCE_WORD_OTHERS;
    }
    return h;
}

static bool become(struct balance_whose *w, bool ours)
{
    bool changes = w->ours != ours;

    w->ours = ours;
    w->held = w->against = 0;
    return changes;
}

bool balance_whose_step(struct balance_whose *w, uint64_t now)
{
    struct heard h = count(w, now);
    uint64_t ns = w->step_at ? r2_elapsed(now, w->step_at) : 0;

    ns = ns < BALANCE_WHOSE_STEP ? ns : BALANCE_WHOSE_STEP;
    w->step_at = now;
    if (h.ways == 0) {
        if (w->heard_at && r2_elapsed(now, w->heard_at) >= BALANCE_WHOSE_KEPT) {
            become(w, false);
        }
        return false;
    }
    w->heard_at = now;
    if (h.well >= 2) {
        w->from = w->ours || w->held ? w->from : now;
        w->held += ns;
        w->against = 0;
        if (w->held >= BALANCE_WHOSE_HOLDS && !w->ours) {
            w->hosts[0] = h.hosts[0];
            w->hosts[1] = h.hosts[1];
            return become(w, true);
        }
    } else if (h.others) {
        w->held = 0;
        w->against += ns;
        return w->against >= BALANCE_WHOSE_HOLDS && become(w, false);
    }
    return false;
}
