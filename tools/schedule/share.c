#include "tools/schedule/share.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

/* Rounding: a port this near to its capacity is full. */
#define NEAR_FULL 1e-9

#define IS_OPEN (-1)

void share_open(struct share *s, const double *capacity, int ports, int pairs)
{
    *s = (struct share){.ports = ports, .pairs = pairs, .capacity = capacity};
    s->port = util_mem_alloc((size_t)ports + 1, sizeof(*s->port));
    s->pair = util_mem_alloc((size_t)pairs + 1, sizeof(*s->pair));
}

void share_close(struct share *s)
{
    free(s->port);
    free(s->pair);
    *s = (struct share){0};
}

static bool is_open(const struct share_flow *f)
{
    return f->rate == IS_OPEN;
}

/* What is fixed and what is open, by port and by pair of ports. */
static void round_begin(struct share *s, const struct share_flow *flow, int flows)
{
    memset(s->pair, 0, (size_t)s->pairs * sizeof(*s->pair));
    for (int i = 0; i < s->ports; i++) {
        s->port[i] = (struct share_port){.left = s->capacity[i]};
    }
    for (int i = 0; i < flows; i++) {
        const struct share_flow *f = &flow[i];
        struct share_port *out = &s->port[f->out], *in = &s->port[f->in];

        s->pair[f->pair].in = f->in;
        if (is_open(f)) {
            out->weight += f->weight;
            in->weight += f->weight;
            s->pair[f->pair].weight += f->weight;
        } else {
            out->left -= f->rate;
            in->left -= f->rate;
            s->pair[f->pair].held += f->rate;
        }
    }
}

/* Rounding may leave less than nothing. */
static double part_of(double left, double weight)
{
    return left > 0 ? left / weight : 0;
}

/* What a receiving port gives to a unit of weight of each that sends to it. */
static void receivers_find(struct share *s, enum share_by by)
{
    for (int i = 0; i < s->pairs; i++) {
        struct share_pair *p = &s->pair[i];

        if (p->weight > 0) {
            s->port[p->in].senders++;
            s->port[p->in].held += p->held;
        }
    }
    for (int i = 0; i < s->pairs; i++) {
        struct share_pair *p = &s->pair[i];
        const struct share_port *in = &s->port[p->in];

        if (p->weight > 0) {
            double own = (in->left + in->held) / in->senders - p->held;

            /* In a circle a sender may have more than its part already. */
            p->level =
                by == SHARE_SENDERS && own > 0 ? own / p->weight : part_of(in->left, in->weight);
        }
    }
}

/* Each open flow rises by the smaller of its fair parts. */
static void rises_find(struct share *s, struct share_flow *flow, int flows)
{
    for (int i = 0; i < flows; i++) {
        struct share_flow *f = &flow[i];

        if (is_open(f)) {
            double out = part_of(s->port[f->out].left, s->port[f->out].weight);
            double in = s->pair[f->pair].level;

            f->rise = f->weight * (out < in ? out : in);
            s->port[f->out].load += f->rise;
            s->port[f->in].load += f->rise;
        }
    }
}

/* How far all may rise: 1 where some port has only flows whose smaller part is the one there. */
static double reach_find(const struct share *s)
{
    double reach = 1e300;

    for (int i = 0; i < s->ports; i++) {
        const struct share_port *p = &s->port[i];

        if (p->load > 0 && p->left / p->load < reach) {
            reach = p->left / p->load;
        }
    }
    return reach;
}

static bool is_full(const struct share_port *p, double reach)
{
    return p->load * reach >= p->left * (1 - NEAR_FULL);
}

int share_fill(struct share *s, enum share_by by, struct share_flow *flow, int flows)
{
    int open = flows, circles = 0;

    for (int i = 0; i < flows; i++) {
        flow[i].rate = IS_OPEN;
    }
    while (open > 0) {
        double reach;

        round_begin(s, flow, flows);
        receivers_find(s, by);
        rises_find(s, flow, flows);
        reach = reach_find(s);
        circles += reach > 1 + NEAR_FULL && reach < 1e300;
        for (int i = 0; i < flows; i++) {
            struct share_flow *f = &flow[i];

            if (is_open(f) &&
                (is_full(&s->port[f->out], reach) || is_full(&s->port[f->in], reach))) {
                f->rate = f->rise > 0 ? f->rise * reach : 0;
                open--;
            }
        }
    }
    return circles;
}
