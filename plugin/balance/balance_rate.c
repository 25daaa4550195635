#include "balance_rate.h"

#include <string.h>

#include "base/r2_time.h"

int balance_rate_tick(struct balance_rate *r, uint64_t ns, uint32_t parts, uint64_t bytes,
                      uint64_t queued, int busy)
{
    struct balance_rate_sum *s = &r->now;

    s->ticks++;
    s->ns += ns;
    s->parts += parts;
    s->bytes += bytes;
    s->busy += busy != 0;
    s->busy_ns += busy ? ns : 0;
    s->queued += busy ? queued : 0;
    if (s->ticks < BALANCE_RATE_TICKS || s->ns < BALANCE_RATE_NS) {
        return 0;
    }
    r->window[r->next] = *s;
    r->next = (uint8_t)((r->next + 1) % BALANCE_RATE_WINDOWS);
    r->windows += r->windows < BALANCE_RATE_WINDOWS;
    memset(s, 0, sizeof(*s));
    return 1;
}

static uint32_t root_of(uint32_t n)
{
    uint32_t r = 0;

    while ((r + 1) * (r + 1) <= n) {
        r++;
    }
    return r;
}

/* As if so many checks had been busy ones. In doubles: the products of bytes and ns do not fit, and
 * nobody needs the last bit. */
static uint64_t rate_of(const struct balance_rate_sum *s, uint32_t busy)
{
    double ns = s->busy ? (double)s->busy_ns * busy / s->busy : (double)s->ns * busy / s->ticks,
           rate = ns > 0 ? (double)s->bytes * (double)R2_NS_PER_S / ns : 0;

    return rate < 1e18 ? (uint64_t)rate : (uint64_t)1e18;
}

void balance_rate_get(const struct balance_rate *r, unsigned n, struct balance_tempo *out)
{
    struct balance_rate_sum s = {0};
    uint32_t busy, slack;

    memset(out, 0, sizeof(*out));
    if (n == 0 || n > r->windows) {
        return;
    }
    for (unsigned i = 1; i <= n; i++) {
        const struct balance_rate_sum *w =
            &r->window[(r->next + BALANCE_RATE_WINDOWS - i) % BALANCE_RATE_WINDOWS];

        s.ticks += w->ticks;
        s.busy += w->busy;
        s.parts += w->parts;
        s.ns += w->ns;
        s.busy_ns += w->busy_ns;
        s.bytes += w->bytes;
        s.queued += w->queued;
    }
    if (s.bytes == 0) {
        return;
    }
    busy = s.busy ? s.busy : 1;
    slack = 2 * root_of((uint32_t)((uint64_t)busy * (s.ticks - busy) / s.ticks)) +
            1; /* two deviations of the share of checks */
    out->rate = rate_of(&s, busy);
    out->least = rate_of(&s, busy + slack < s.ticks ? busy + slack : s.ticks);
    out->most = rate_of(&s, busy > slack ? busy - slack : 1);
    out->wait = out->rate
                    ? (uint64_t)((double)s.queued / busy * (double)R2_NS_PER_S / (double)out->rate)
                    : 0;
    out->parts = s.parts;
    out->busy = (uint32_t)((uint64_t)s.busy * 1024 / s.ticks);
}
