/* What a failure cost in bytes: how much less was carried, until it was over, than at the rate
 * before. */
#include <stdlib.h>
#include <string.h>

#include "tools/r2_report/story.h"

#define BEFORE 10 /* parts whose median is the rate before */

static int amount_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Bytes of a part before part @at: the median of those in which nothing was lost and something was
 * carried. 0: there is none. */
static double before_get(const double *carried, const double *lost, int at)
{
    double near[BEFORE];
    int n = 0;

    for (int i = at - 1; i >= 0 && n < BEFORE; i--) {
        if (lost[i] <= 0 && carried[i] > 0) {
            near[n++] = carried[i];
        }
    }
    if (n == 0) {
        return 0;
    }
    qsort(near, (size_t)n, sizeof(near[0]), amount_compare);
    return n % 2 ? near[n / 2] : (near[n / 2 - 1] + near[n / 2]) / 2;
}

double story_less_of(const double *carried, const double *lost, int n)
{
    double less = 0;

    for (int i = 0; i < n;) {
        double before, sum = 0;
        int at = i;

        if (lost[i] <= 0) {
            i++;
            continue;
        }
        before = before_get(carried, lost, at);
        if (before <= 0) {
            return -1;
        }
        for (; i < n && lost[i] > 0; i++) {
            sum += before * lost[i] - carried[i];
        }
        less += sum > 0 ? sum : 0;
    }
    return less;
}

/* A part in the middle of which something breaks counts whole: what it has less is for that. One in
 * which the process ends has time until then. */
static void span_mark(const struct story *s, const struct story_span *span, double *lost)
{
    for (int i = 0; i < s->rates.n; i++) {
        uint64_t begin = s->rates.from + (uint64_t)i * s->rates.width;
        uint64_t end = begin + s->rates.width;
        double share = 1;

        if (end <= span->from || begin >= span->to) {
            continue;
        }
        if (span->open && span->to < end) {
            share = (double)(span->to - begin) / (double)s->rates.width;
        }
        lost[i] = share > lost[i] ? share : lost[i];
    }
}

void story_less(struct story *s)
{
    double carried[STORY_RATES], lost[STORY_RATES] = {0};

    for (int i = 0; i < s->nics; i++) {
        for (int k = 0; k < s->nic[i].spans; k++) {
            if (s->nic[i].span[k].why == STORY_LOST) {
                span_mark(s, &s->nic[i].span[k], lost);
            }
        }
    }
    for (int c = 0; c < s->costs; c++) {
        memset(carried, 0, sizeof(carried));
        for (int i = 0; i < s->nics; i++) {
            const struct story_nic *n = &s->nic[i];

            for (int k = 0; n->rate && k < s->rates.n && strcmp(n->host, s->cost[c].host) == 0;
                 k++) {
                carried[k] += n->rate[k].sent + n->rate[k].received;
            }
        }
        s->cost[c].less = s->rates.n ? story_less_of(carried, lost, s->rates.n) : -1;
    }
}
