#include "probe_way.h"

#include "base/r2_time.h"

/* How much longer it is avoided. */
static uint64_t avoided_for(const struct probe_ways *w, unsigned way, uint64_t now)
{
    uint64_t since = r2_elapsed(now, w->way[way - 1].lost_at);

    return w->way[way - 1].lost_at ? r2_elapsed(w->way[way - 1].avoid, since) : 0;
}

void probe_ways_lost(struct probe_ways *w, unsigned way, uint64_t now)
{
    uint64_t avoid;

    if (way == 0 || way > IB_WAYS_MAX) {
        return;
    }
    avoid = w->way[way - 1].avoid;
    if (w->way[way - 1].lost_at == 0 || r2_elapsed(now, w->way[way - 1].lost_at) > 2 * avoid) {
        avoid = PROBE_WAY_AVOID_NS;
    } else if (r2_elapsed(now, w->way[way - 1].lost_at) >= avoid / 2) {
        avoid = r2_earlier(2 * avoid, PROBE_WAY_AVOID_MAX_NS);
    }
    w->way[way - 1].lost_at = now ? now : 1;
    w->way[way - 1].avoid = avoid;
}

bool probe_ways_avoids(const struct probe_ways *w, unsigned way, uint64_t now)
{
    return way > 0 && way <= IB_WAYS_MAX && avoided_for(w, way, now) > 0;
}

unsigned probe_ways_pick(const struct probe_ways *w, unsigned n, unsigned first, uint64_t now)
{
    unsigned best = 0;

    if (n < 2) {
        return 0;
    }
    n = n < IB_WAYS_MAX ? n : IB_WAYS_MAX;
    for (unsigned i = 0; i < n; i++) {
        unsigned way = (first + i) % n + 1;

        if (best == 0 || avoided_for(w, way, now) < avoided_for(w, best, now)) {
            best = way;
        }
    }
    return best;
}
