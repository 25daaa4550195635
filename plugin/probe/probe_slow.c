#include "probe_slow.h"

#include <string.h>

#define NS_PER_S 1000000000.0
#define MOST     1000000u /* permille: more is not told apart */
#define FOLLOW   64       /* windows in which what is usual goes to where it is */
#define MADS     6
#define FULL     4 /* of the best rate: a NIC that moves this part of it is full */

const char *probe_slow_name(enum probe_slow_state s)
{
    static const char *const names[PROBE_SLOW_STATES] = {"learns", "usual", "suspect", "said"};

    return (unsigned)s < PROBE_SLOW_STATES ? names[s] : "?";
}

/* Row: from. What is usual is learnt anew where paths have changed, but for what was said: that is
 * over only when it is as it was. */
bool probe_slow_move(struct probe_slow *s, enum probe_slow_state to)
{
    static const unsigned char legal[PROBE_SLOW_STATES][PROBE_SLOW_STATES] = {
        [PROBE_SLOW_LEARNS] = {[PROBE_SLOW_USUAL] = 1},
        [PROBE_SLOW_USUAL] = {[PROBE_SLOW_LEARNS] = 1, [PROBE_SLOW_SUSPECT] = 1},
        [PROBE_SLOW_SUSPECT] =
            {[PROBE_SLOW_LEARNS] = 1, [PROBE_SLOW_USUAL] = 1, [PROBE_SLOW_SAID] = 1},
        [PROBE_SLOW_SAID] = {[PROBE_SLOW_USUAL] = 1},
    };

    if (s->state >= PROBE_SLOW_STATES || (unsigned)to >= PROBE_SLOW_STATES ||
        !legal[s->state][to]) {
        return false;
    }
    s->state = (uint8_t)to;
    s->row = s->tries = 0;
    return true;
}

static void sort(uint64_t *x, int n)
{
    for (int i = 1; i < n; i++) {
        uint64_t v = x[i];
        int k = i;

        for (; k > 0 && x[k - 1] > v; k--) {
            x[k] = x[k - 1];
        }
        x[k] = v;
    }
}

/* The middle one; of an even number the upper. Sorts. */
static uint64_t median(uint64_t *x, int n)
{
    sort(x, n);
    return x[n / 2];
}

/* --- one peer --- */

static uint32_t root_of(uint32_t n)
{
    uint32_t r = 0;

    while ((uint64_t)(r + 1) * (r + 1) <= n) {
        r++;
    }
    return r;
}

static uint32_t times(double x)
{
    return x < 1 ? PROBE_SLOW_ONE : x > MOST / 1000.0 ? MOST : (uint32_t)(x * 1000);
}

static void learn(struct probe_slow *s, const struct probe_slow_figures *f)
{
    uint64_t rate[PROBE_SLOW_LEARN], wait[PROBE_SLOW_LEARN];

    s->learnt[s->n++] = *f;
    if (s->n < PROBE_SLOW_LEARN) {
        return;
    }
    for (int i = 0; i < PROBE_SLOW_LEARN; i++) {
        rate[i] = s->learnt[i].rate;
        wait[i] = s->learnt[i].wait;
    }
    s->usual.rate = median(rate, PROBE_SLOW_LEARN);
    s->usual.wait = median(wait, PROBE_SLOW_LEARN);
    probe_slow_move(s, PROBE_SLOW_USUAL);
}

static void follow(uint64_t *usual, uint64_t is)
{
    *usual = *usual - *usual / FOLLOW + is / FOLLOW;
}

/* Paths have changed. */
static void forget(struct probe_slow *s)
{
    if (s->state != PROBE_SLOW_SAID) {
        probe_slow_move(s, PROBE_SLOW_LEARNS);
        s->n = 0;
    }
}

/* @best: the least of what it is slower by, as far as looks tell. */
static void compare(struct probe_slow *s, const struct probe_slow_figures *best)
{
    double rate = best->rate ? (double)s->usual.rate / (double)best->rate : 1, wait = 1;

    if (best->wait > s->usual.wait + PROBE_SLOW_SLACK) {
        wait = (double)best->wait / (double)(s->usual.wait ? s->usual.wait : 1);
    }
    s->last.slow = times(rate < wait ? rate : wait);
    s->last.most = times(rate > wait ? rate : wait);
}

/* As if so many looks had found it busy. */
static struct probe_slow_figures figures(const struct probe_slow_looks *l, uint32_t busy,
                                         uint32_t looks, uint64_t ns)
{
    double look = (double)ns / looks, rate = (double)l->bytes * NS_PER_S / (look * busy),
           wait = l->busy ? l->queued / l->busy * busy * look / (double)l->bytes : 0;

    return (struct probe_slow_figures){.rate = rate < 1e18 ? (uint64_t)rate : (uint64_t)1e18,
                                       .wait = wait < 1e18 ? (uint64_t)wait : (uint64_t)1e18};
}

/* Looks are samples: what is usual is learnt as slow as they allow, by two deviations of the share
 * of looks, and what is now is taken as fast. */
void probe_slow_window(struct probe_slow *s, const struct probe_slow_looks *l, uint32_t looks,
                       uint64_t ns)
{
    struct probe_slow_figures worst, best;
    uint32_t busy = l->busy ? l->busy : 1, slack;

    memset(&s->last, 0, sizeof(s->last));
    if (l->broken) {
        forget(s);
        return;
    }
    if (looks < PROBE_SLOW_LOOKS || l->parts < PROBE_SLOW_PARTS || l->bytes == 0 || ns == 0 ||
        busy > looks) {
        return;
    }
    slack = 2 * root_of((uint32_t)((uint64_t)busy * (looks - busy) / looks)) + 1;
    worst = figures(l, busy + slack < looks ? busy + slack : looks, looks, ns);
    if (s->state == PROBE_SLOW_LEARNS) {
        learn(s, &worst);
        return;
    }
    best = figures(l, busy > slack ? busy - slack : 1, looks, ns);
    s->last.known = true;
    s->last.busy = (uint32_t)((uint64_t)l->busy * 1000 / looks);
    s->last.is = figures(l, busy, looks, ns);
    compare(s, &best);
    if (s->state == PROBE_SLOW_USUAL && s->last.slow < PROBE_SLOW_WELL) {
        follow(&s->usual.rate, worst.rate);
        follow(&s->usual.wait, worst.wait);
    }
}

/* --- beside the others --- */

bool probe_slow_is_alone(const struct probe_slow_row *row, int n, int i)
{
    uint64_t most[PROBE_SLOW_ROWS], off[PROBE_SLOW_ROWS], host[PROBE_SLOW_ROWS], usual;
    int hosts = 0;

    if (n > PROBE_SLOW_ROWS || i < 0 || i >= n || row[i].slow <= PROBE_SLOW_FACTOR) {
        return false;
    }
    for (int k = 0; k < n; k++) {
        int h = 0;

        if (row[k].host == row[i].host) {
            continue;
        }
        for (; h < hosts && host[h] != row[k].host; h++) {
        }
        if (h == hosts) {
            host[hosts] = row[k].host;
            most[hosts++] = 0;
        }
        most[h] = row[k].most > most[h] ? row[k].most : most[h];
    }
    if (hosts < PROBE_SLOW_OTHERS) {
        return false;
    }
    usual = median(most, hosts);
    for (int h = 0; h < hosts; h++) {
        off[h] = most[h] > usual ? most[h] - usual : usual - most[h];
        if (most[h] * 1000 > usual * PROBE_SLOW_FACTOR) {
            return false; /* another one, too */
        }
    }
    return (uint64_t)row[i].slow * 1000 > usual * PROBE_SLOW_FACTOR &&
           row[i].slow > usual + MADS * median(off, hosts);
}

enum probe_slow_load probe_slow_load(uint64_t bytes, uint64_t ns, uint64_t best)
{
    if (ns == 0 || best == 0) {
        return PROBE_SLOW_LOAD_UNKNOWN;
    }
    return (double)bytes * NS_PER_S * FULL >= (double)best * (double)ns ? PROBE_SLOW_LOAD_FULL
                                                                        : PROBE_SLOW_LOAD_FREE;
}

/* --- over windows --- */

static enum probe_slow_change suspect(struct probe_slow *s, bool slow, enum probe_slow_load load)
{
    s->row = slow && load == PROBE_SLOW_LOAD_FREE ? (uint8_t)(s->row + 1) : 0;
    if (s->row >= PROBE_SLOW_ROW) {
        probe_slow_move(s, PROBE_SLOW_SAID);
        return PROBE_SLOW_SAY;
    }
    if (++s->tries >= PROBE_SLOW_TRIES) {
        probe_slow_move(s, PROBE_SLOW_USUAL);
        s->rest = PROBE_SLOW_REST;
    }
    return PROBE_SLOW_NONE;
}

enum probe_slow_change probe_slow_decide(struct probe_slow *s, bool alone,
                                         enum probe_slow_load load)
{
    bool slow = s->last.known && alone && s->last.slow > PROBE_SLOW_FACTOR &&
                s->last.busy >= PROBE_SLOW_BUSY;

    switch (s->state) {
    case PROBE_SLOW_USUAL:
        if (s->rest) {
            s->rest--;
        } else if (slow) {
            probe_slow_move(s, PROBE_SLOW_SUSPECT);
        }
        return PROBE_SLOW_NONE;
    case PROBE_SLOW_SUSPECT:
        return suspect(s, slow, load);
    case PROBE_SLOW_SAID:
        s->row = s->last.known && s->last.slow < PROBE_SLOW_WELL ? (uint8_t)(s->row + 1) : 0;
        if (s->row >= PROBE_SLOW_ROW) {
            probe_slow_move(s, PROBE_SLOW_USUAL);
            return PROBE_SLOW_OVER;
        }
        return PROBE_SLOW_NONE;
    default:
        return PROBE_SLOW_NONE;
    }
}
