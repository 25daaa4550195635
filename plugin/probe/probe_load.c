#include "probe_load.h"

#include "base/r2_time.h"
#include "probe_watch.h"

static const char *const end_names[PROBE_ACTIVITY_COUNT] = {"unknown", "silent", "moves", "busy"};

const char *probe_activity_name(enum probe_activity e)
{
    return (unsigned)e < PROBE_ACTIVITY_COUNT ? end_names[e] : "?";
}

static uint64_t rate_of(uint64_t bytes, uint64_t ns)
{
    return bytes < UINT64_MAX / R2_NS_PER_S ? bytes * R2_NS_PER_S / ns : UINT64_MAX / ns;
}

void probe_peak_take(struct probe_peak *p, uint64_t now, uint64_t moved)
{
    uint64_t rate;

    if (p->at != 0 && moved >= p->moved && now < p->at + PROBE_PEAK_NS) {
        return;
    }
    if (p->at != 0 && moved >= p->moved) {
        rate = rate_of(moved - p->moved, now - p->at);
        p->rate = rate > p->rate ? rate : p->rate;
    }
    p->at = now;
    p->moved = moved;
}

void probe_track_take(struct probe_track *t, const struct probe_load *l, uint64_t clock)
{
    if (l->at == 0 || (t->last.at != 0 && l->at < t->last.at)) {
        return; /* late */
    }
    if (l->age < clock && clock - l->age > t->moved_at) {
        t->moved_at = clock - l->age;
    }
    if (t->last.at == 0 ||
        l->moved < t->last.moved) { /* the first, or a process has gone with what it had moved */
        t->from = t->mid = t->last = *l;
        return;
    }
    t->last = *l;
    if (l->at - t->mid.at >= PROBE_TRACK_NS) {
        t->from = t->mid;
        t->mid = *l;
    }
}

uint64_t probe_load_expect(const struct probe_load *l, uint64_t bytes)
{
    uint64_t rate = l->rate == 0               ? PROBE_RATE_UNKNOWN
                    : l->rate < PROBE_RATE_MIN ? PROBE_RATE_MIN
                                               : l->rate;

    bytes = bytes < PROBE_QUEUED_MAX ? bytes : PROBE_QUEUED_MAX;
    return bytes / rate * R2_NS_PER_S + bytes % rate * (R2_NS_PER_S / 1000) / (rate / 1000);
}

enum probe_activity probe_track_end(const struct probe_track *t, uint64_t clock, uint64_t fresh)
{
    uint64_t bytes = t->last.moved - t->from.moved, ns = t->last.at - t->from.at;
    int busy;

    if (t->last.at == 0) {
        return PROBE_ACTIVITY_UNKNOWN;
    }
    if (t->moved_at == 0 || clock - t->moved_at > fresh) {
        return PROBE_ACTIVITY_SILENT;
    }
    if (t->last.rate == 0) {
        busy = bytes >= PROBE_SAMPLE_BYTES;
    } else {
        busy = ns && bytes && rate_of(bytes, ns) >= t->last.rate / PROBE_BUSY_PART;
    }
    return busy ? PROBE_ACTIVITY_BUSY : PROBE_ACTIVITY_MOVES;
}

uint64_t probe_case_deadline(const struct probe_case *c)
{
    uint64_t most = c->most > c->limit ? c->most : c->limit, wait = c->limit, at;
    int here = c->here >= PROBE_ACTIVITY_MOVES, there = c->there >= PROBE_ACTIVITY_MOVES;

    wait += here ? 2 * c->queue_here : 0;
    wait += there ? 2 * c->queue_there : 0;
    if (c->here == PROBE_ACTIVITY_BUSY || c->there == PROBE_ACTIVITY_BUSY) {
        uint64_t busy = here && there ? most : PROBE_BUSY_WAIT * c->t_probe;

        wait = busy > wait ? busy : wait;
    }
    at = c->from + wait;
    if (c->done_at > c->from && c->done_at + c->limit > at) {
        at = c->done_at + c->limit;
    }
    return at < c->from + most ? at : c->from + most;
}
