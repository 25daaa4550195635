#include "probe_way.h"

#include "base/r2_time.h"

static bool is_way(unsigned way)
{
    return way > 0 && way <= IB_WAYS_MAX;
}

/* How much longer it is avoided. */
static uint64_t avoided_for(const struct probe_ways *w, unsigned way, uint64_t now)
{
    uint64_t since = r2_elapsed(now, w->way[way - 1].lost_at);

    return w->way[way - 1].lost_at ? r2_elapsed(w->way[way - 1].avoid, since) : 0;
}

void probe_ways_lost(struct probe_ways *w, unsigned way, uint64_t now)
{
    uint64_t avoid;

    if (!is_way(way)) {
        return;
    }
    avoid = w->way[way - 1].avoid;
    if (w->way[way - 1].lost_at == 0 || r2_elapsed(now, w->way[way - 1].lost_at) > 2 * avoid) {
        avoid = PROBE_WAY_AVOID_NS;
        w->way[way - 1].silent = 0;
    } else if (r2_elapsed(now, w->way[way - 1].lost_at) >= avoid / 2) {
        avoid = r2_earlier(2 * avoid, PROBE_WAY_AVOID_MAX_NS);
    }
    w->way[way - 1].lost_at = now ? now : 1;
    w->way[way - 1].avoid = avoid;
}

bool probe_ways_avoids(const struct probe_ways *w, unsigned way, uint64_t now)
{
    return is_way(way) && avoided_for(w, way, now) > 0;
}

bool probe_ways_on_silent(struct probe_ways *w, unsigned way, bool ever, uint64_t now)
{
    bool before = is_way(way) && w->way[way - 1].silent, avoids = probe_ways_avoids(w, way, now);

    probe_ways_lost(w, way, now);
    if (is_way(way) && avoids && !ever) {
        w->way[way - 1].silent = 1;
        return !before;
    }
    return false;
}

void probe_ways_on_answer(struct probe_ways *w, unsigned way)
{
    if (is_way(way)) {
        w->way[way - 1].silent = 0;
    }
}

bool probe_ways_is_silent(const struct probe_ways *w, unsigned way)
{
    return is_way(way) && w->way[way - 1].silent;
}

bool probe_ways_on_notified(struct probe_ways *w, unsigned way, uint64_t since, uint64_t answered,
                            uint64_t now)
{
    if (!is_way(way) || answered > since || probe_ways_is_silent(w, way)) {
        return false;
    }
    probe_ways_lost(w, way, now);
    w->way[way - 1].silent = 1;
    return true;
}

bool probe_way_is_left(uint64_t since, uint64_t went_at, uint64_t late)
{
    return went_at <= since + late;
}

/* Whether way @a is better than way @b. */
static bool is_better(const struct probe_ways *w, unsigned a, unsigned b,
                      const uint16_t used[IB_WAYS_MAX], uint64_t now)
{
    uint64_t for_a = avoided_for(w, a, now), for_b = avoided_for(w, b, now);

    return for_a != for_b ? for_a < for_b : used && used[a - 1] < used[b - 1];
}

unsigned probe_ways_pick(const struct probe_ways *w, unsigned n, unsigned first,
                         const uint16_t used[IB_WAYS_MAX], uint64_t now)
{
    unsigned best = 0;

    if (n < 2) {
        return 0;
    }
    n = n < IB_WAYS_MAX ? n : IB_WAYS_MAX;
    for (unsigned i = 0; i < n; i++) {
        unsigned way = (first + i) % n + 1;

        if (best == 0 || is_better(w, way, best, used, now)) {
            best = way;
        }
    }
    return best;
}

bool probe_way_yields(const struct probe_way_wish *ours, const struct probe_way_wish *theirs,
                      bool first)
{
    int16_t later = (int16_t)(theirs->turn - ours->turn);

    return is_way(ours->way[0]) && is_way(theirs->way[0]) && (later > 0 || (later == 0 && !first));
}
