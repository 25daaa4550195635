/*
 * When a path's silence is long enough for a probe (docs/health.md): rate, expected time, limits.
 * Pure; times in ns on the watch's clock, which stands still while the process does not run.
 */
#ifndef PROBE_WATCH_H
#define PROBE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define PROBE_RATE_UNKNOWN 10000000ull /* bytes/s, until it is measured */
#define PROBE_RATE_MIN     2000000ull  /* bytes/s: slower than any network this is meant for */
#define PROBE_SAMPLE_BYTES 65536ull    /* fewer bytes measure latency rather than rate */
#define PROBE_BACKOFF_MAX  1000000000ull

/* TCP sends a lost segment again behind 200 ms, and behind 400 where that is lost, too (Linux'
 * TCP_RTO_MIN, doubled). */
#define PROBE_TCP_NS 600000000ull

/* What a tick reads of a path. */
struct probe_pulse {
    uint64_t moved;  /* grows with every completion and acknowledgement */
    uint64_t posted; /* bytes */
    uint64_t done;   /* of them */
};

struct probe_watch {
    uint64_t moved, moved_at;
    uint64_t went_at; /* it moved last, as far as is known; a pause of watching leaves it */
    uint64_t poll_at; /* not checked again before */
    uint64_t backoff; /* 0: the next check is the first in this silence */
    uint64_t rate;    /* bytes/s; 0: not measured */
    uint64_t from_at, from_done; /* begin of the present sample; from_at 0: none */
    uint64_t answered_at;        /* its NIC pair has answered behind the silence, first seen; 0 */
    uint8_t gap;                 /* nothing was outstanding at one of its ticks */
};

/* Time that what is outstanding should take. */
uint64_t probe_watch_expect(const struct probe_watch *w, const struct probe_pulse *s);

/* Watching pauses: the next tick starts anew. What was measured stays. */
void probe_watch_rest(struct probe_watch *w);

/* Takes in one tick of a path that has no work outstanding, but had some not long ago. */
void probe_watch_idle(struct probe_watch *w, uint64_t now, const struct probe_pulse *s);

/* Takes in one tick of a path with work outstanding. 1: silent for too long, to be checked; then
 * not again before the back-off. */
int probe_watch_tick(struct probe_watch *w, uint64_t now, const struct probe_pulse *s,
                     uint64_t t_suspect);

/* The silence so far. */
static inline uint64_t probe_watch_silence(const struct probe_watch *w, uint64_t now)
{
    return w->moved_at && now > w->moved_at ? now - w->moved_at : 0;
}

/* How long to wait (ns) for the answer to a probe that queues behind @expect ns of data, on a pair
 * whose slowest answer took @slowest ns. @tcp: a pair of last resort. Its answers come from a
 * thread of the peer's, which on a loaded host runs late. */
static inline uint64_t probe_limit(uint64_t t_probe, uint64_t expect, uint64_t slowest, bool tcp)
{
    return t_probe + 2 * expect + 4 * slowest + (tcp ? PROBE_TCP_NS : 0);
}

/* How long a queue pair may stand still on a pair that answers: RC repairs the loss of a last
 * packet within one time-out. */
uint64_t probe_stuck_limit(uint64_t t_stuck, unsigned ib_timeout, uint64_t expect);

/* A queue pair that stands still on a NIC pair that answers now. */
struct probe_tail {
    uint64_t silent, answered; /* since it moved; since the pair was first seen to answer */
    uint64_t t_suspect;
    uint64_t rto;    /* RC's time-out */
    uint64_t answer; /* the pair's longest answer time */
    uint64_t expect; /* what is outstanding on the queue pair should take */
    uint64_t queued; /* what is queued on both NICs, by whomever, should take */
    unsigned rows;   /* how often in a row the pair had that */
    unsigned vain;   /* ... and this path, while nothing of its connection got through */
    uint64_t most;   /* RC repairs it by itself */
};

/*
 * Time until it is taken to have lost its last packet; 0: now. Silent for 50 ms, or two of RC's
 * time-outs where these are no more than 150 ms, and for T_suspect, or 8 answer times if that is
 * more, behind the answer: a queue that the answer came through, or a pause of the priority, ends
 * for both. Beside that four times what its own bytes take, and twice what is queued at both ends,
 * for NICs that serve their queue pairs in turn. Doubled with each fourth time in a row: congestion
 * that none of these explains ends no more than a few.
 */
uint64_t probe_tail_left(const struct probe_tail *t);

#endif
