/* What NICs carried, over time: what rows of processes say, in parts of one length. */
#include <stdlib.h>

#include "plugin/base/r2_time.h"
#include "tools/r2_report/story.h"

#define SECOND R2_NS_PER_S

void story_rates_begin(struct story *s, uint64_t from, uint64_t to)
{
    uint64_t length = to > from ? to - from : SECOND;

    length = length > STORY_RATES_NS ? STORY_RATES_NS : length;
    s->rates.width = length / STORY_RATES + 1 > SECOND ? length / STORY_RATES + 1 : SECOND;
    s->rates.n = (int)((length + s->rates.width - 1) / s->rates.width);
    /* the last part ends with the last row: else it would seem that less was carried in it */
    s->rates.from = to - (uint64_t)s->rates.n * s->rates.width;
}

/* How much of [@from, @to] lies in part @i, of 1. */
static double part_of(const struct story *s, int i, uint64_t from, uint64_t to)
{
    uint64_t begin = s->rates.from + (uint64_t)i * s->rates.width, end = begin + s->rates.width;

    begin = begin > from ? begin : from;
    end = end < to ? end : to;
    return end > begin ? (double)(end - begin) / (double)(to - from) : 0;
}

int story_rate_add(struct story *s, const char *host, const char *device, uint64_t from,
                   uint64_t to, const struct r2_traffic_cell *more)
{
    struct story_nic *n = story_nic_at(s, host, device);
    uint64_t end = s->rates.from + (uint64_t)s->rates.n * s->rates.width;

    if (n && n->rate == NULL) {
        n->rate = calloc((size_t)s->rates.n, sizeof(*n->rate));
    }
    if (n == NULL || n->rate == NULL) {
        return -1;
    }
    if (to <= from || to <= s->rates.from || from >= end) {
        return 0;
    }
    for (uint64_t i = from > s->rates.from ? (from - s->rates.from) / s->rates.width : 0;
         i < (uint64_t)s->rates.n; i++) {
        double part = part_of(s, (int)i, from, to);
        struct story_rate *r = &n->rate[i];

        if (part <= 0) {
            break;
        }
        r->sent += part * (double)more->sent;
        r->received += part * (double)more->received;
        r->state = more->state > r->state ? more->state : r->state;
    }
    return 0;
}
