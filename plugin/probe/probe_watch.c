#include "probe_watch.h"

#include "base/r2_time.h"

#define TAIL_NS     50000000ull
#define TAIL_ROWS   4
#define TAIL_VAIN   1            /* another way may be silent, too */
#define TAIL_RTO_NS 150000000ull /* who has set RC to be so quick is left to it */

static uint64_t rate_of(const struct probe_watch *w)
{
    if (w->rate == 0) {
        return PROBE_RATE_UNKNOWN;
    }
    return w->rate < PROBE_RATE_MIN ? PROBE_RATE_MIN : w->rate;
}

uint64_t probe_watch_expect(const struct probe_watch *w, const struct probe_pulse *s)
{
    uint64_t out = s->posted > s->done ? s->posted - s->done : 0;

    return out < UINT64_MAX / R2_NS_PER_S ? out * R2_NS_PER_S / rate_of(w) : UINT64_MAX / 16;
}

void probe_watch_rest(struct probe_watch *w)
{
    w->moved_at = 0;
    w->poll_at = w->answered_at = 0;
    w->backoff = 0;
}

static void sample_begin(struct probe_watch *w, uint64_t now, const struct probe_pulse *s)
{
    w->from_at = now;
    w->from_done = s->done;
    w->gap = s->posted == s->done;
}

static void went(struct probe_watch *w, uint64_t now, const struct probe_pulse *s)
{
    if (w->moved != s->moved) {
        w->moved = s->moved;
        w->went_at = now;
    }
}

/*
 * What was done in a time bounds the rate from below whatever else happened then, so it rises at
 * once: a slow phase must not make a fast path look patient. It falls by samples that had work
 * outstanding at each tick alone.
 */
static void measure(struct probe_watch *w, uint64_t now, const struct probe_pulse *s)
{
    uint64_t bytes = s->done - w->from_done, rate;

    w->gap |= s->posted == s->done;
    if (w->from_at == 0 || now <= w->from_at || bytes > UINT64_MAX / R2_NS_PER_S) {
        sample_begin(w, now, s);
        return;
    }
    if (bytes < PROBE_SAMPLE_BYTES) {
        if (w->gap) {
            sample_begin(w, now, s);
        }
        return;
    }
    rate = bytes * R2_NS_PER_S / (now - w->from_at);
    if (rate > w->rate) {
        w->rate = rate;
    } else if (!w->gap) {
        w->rate -= (w->rate - rate) / 8;
    }
    sample_begin(w, now, s);
}

void probe_watch_idle(struct probe_watch *w, uint64_t now, const struct probe_pulse *s)
{
    measure(w, now, s);
    went(w, now, s);
    probe_watch_rest(w);
}

int probe_watch_tick(struct probe_watch *w, uint64_t now, const struct probe_pulse *s,
                     uint64_t t_suspect)
{
    measure(w, now, s);
    if (w->moved_at == 0 || w->moved != s->moved) {
        went(w, now, s);
        w->moved_at = now;
        w->poll_at = w->answered_at = 0;
        w->backoff = 0;
        return 0;
    }
    if (now < w->poll_at || now - w->moved_at < t_suspect + 2 * probe_watch_expect(w, s)) {
        return 0;
    }
    w->backoff = w->backoff == 0                      ? t_suspect
                 : 2 * w->backoff < PROBE_BACKOFF_MAX ? 2 * w->backoff
                                                      : PROBE_BACKOFF_MAX;
    w->poll_at = now + w->backoff;
    return 1;
}

uint64_t probe_stuck_limit(uint64_t t_stuck, unsigned ib_timeout, uint64_t expect)
{
    uint64_t rto =
        4096ull << (ib_timeout < 32 ? ib_timeout : 31); /* IBTA 9.7.6.1.3: 4.096 us x 2^timeout */
    uint64_t limit = t_stuck > 2 * rto ? t_stuck : 2 * rto;

    return limit > 4 * expect ? limit : 4 * expect;
}

uint64_t probe_tail_left(const struct probe_tail *t)
{
    uint64_t behind = 8 * t->answer > t->t_suspect ? 8 * t->answer : t->t_suspect, limit = TAIL_NS,
             bytes = t->most;
    unsigned doubled;

    limit = 2 * t->rto > limit && 2 * t->rto <= TAIL_RTO_NS ? 2 * t->rto : limit;

    if (t->expect < t->most / 4 && t->queued < t->most / 4) {
        bytes = 4 * t->expect + 2 * t->queued;
    }
    doubled = t->rows / TAIL_ROWS + (t->vain > TAIL_VAIN ? t->vain - TAIL_VAIN : 0);
    for (unsigned i = 0; i < doubled && limit < t->most; i++) {
        limit *= 2;
        behind *= 2;
    }
    limit = limit + bytes < t->most ? limit + bytes : t->most;
    limit = t->silent < limit ? limit - t->silent : 0;
    behind = t->answered < behind ? behind - t->answered : 0;
    return limit > behind ? limit : behind;
}
