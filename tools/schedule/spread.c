#include "tools/schedule/spread.h"

#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

/* The sum of squares falls in each; it is at its least long before. */
#define ROUNDS 400

/* What NICs carry, in D, while parts are sought. */
struct carried {
    double sent[STEPS_NODES][SPREAD_NICS], received[STEPS_NODES][SPREAD_NICS];
};

static uint32_t nics_of(const struct steps_connection *c, const uint32_t *up, int nics)
{
    uint32_t both = up[c->src] & up[c->dst];

    return both != 0 ? both : (1u << nics) - 1;
}

static void part_add(struct carried *all, const struct steps_connection *c, const double *part,
                     int nics, double sign)
{
    for (int k = 0; k < nics; k++) {
        all->sent[c->src][k] += sign * part[k];
        all->received[c->dst][k] += sign * part[k];
    }
}

/* The parts of @c with the least sum of squares beside what is carried already: what is there and
 * the part come to the same on all NICs that have a part. */
static void part_fill(const struct carried *all, const struct steps_connection *c, uint32_t open,
                      int nics, double *part)
{
    for (;;) {
        double level = c->bytes;
        int of = 0, most = -1;

        for (int k = 0; k < nics; k++) {
            if (open >> k & 1) {
                part[k] = (all->sent[c->src][k] + all->received[c->dst][k]) / 2;
                level += part[k];
                of++;
                most = most < 0 || part[k] > part[most] ? k : most;
            }
        }
        level /= of;
        if (of == 1 || part[most] <= level) {
            for (int k = 0; k < nics; k++) {
                part[k] = open >> k & 1 ? level - part[k] : 0;
            }
            return;
        }
        open &= ~(1u << most); /* too full already */
    }
}

static void parts_find(struct spread *p, const uint32_t *up)
{
    const struct steps *s = p->steps;
    struct carried *all = util_mem_alloc(1, sizeof(*all));
    double(*part)[SPREAD_NICS] = util_mem_alloc((size_t)s->connections + 1, sizeof(*part));

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < s->connections; i++) {
            const struct steps_connection *c = &s->connection[i];

            part_add(all, c, part[i], p->nics, -1);
            part_fill(all, c, nics_of(c, up, p->nics), p->nics, part[i]);
            part_add(all, c, part[i], p->nics, 1);
        }
    }
    for (int i = 0; i < s->connections; i++) {
        const struct steps_connection *c = &s->connection[i];
        double sum = 0;
        int last = 0;

        for (int k = 0; k < p->nics; k++) {
            last = part[i][k] > 1e-6 * c->bytes ? k : last;
        }
        for (int k = 0; k < p->nics; k++) {
            sum += c->bytes > 0 ? part[i][k] / c->bytes : 1;
            p->until[i][k] = k >= last ? 1 : sum;
        }
    }
    free(part);
    free(all);
}

void spread_open(struct spread *p, const struct steps *steps, const uint32_t *up, int nics,
                 size_t count)
{
    double sum = 0;

    *p = (struct spread){.steps = steps, .nics = nics, .count = count};
    p->begin = util_mem_alloc((size_t)steps->chunks + 1, sizeof(*p->begin));
    p->until = util_mem_alloc((size_t)steps->connections + 1, sizeof(*p->until));
    for (int c = 0; c < steps->chunks; c++) {
        p->begin[c] = util_size_min((size_t)(sum * (double)count + 0.5), count);
        sum += steps->size[c];
    }
    p->begin[steps->chunks] = count;
    parts_find(p, up);
}

void spread_close(struct spread *p)
{
    free(p->begin);
    free(p->until);
    *p = (struct spread){0};
}

void spread_part(const struct spread *p, int op, int nic, size_t *begin, size_t *n)
{
    const struct steps_op *o = &p->steps->op[op];
    size_t of = steps_moves(o) ? p->begin[o->chunk + 1] - p->begin[o->chunk] : 0, from = 0, to;

    if (nic > 0) {
        from = (size_t)(p->until[o->connection][nic - 1] * (double)of + 0.5);
    }
    to = (size_t)(p->until[o->connection][nic] * (double)of + 0.5);
    *begin = (of > 0 ? p->begin[o->chunk] : 0) + from;
    *n = to - from;
}

int spread_first(const struct spread *p, int op)
{
    int k = 0;

    while (p->until[p->steps->op[op].connection][k] <= 0) {
        k++;
    }
    return k;
}

void spread_loads(const struct spread *p, struct spread_load *load)
{
    memset(load, 0, (size_t)p->steps->nodes * sizeof(*load));
    for (int i = 0; i < p->steps->ops; i++) {
        const struct steps_op *op = &p->steps->op[i];

        for (int k = 0; op->src != op->dst && k < p->nics; k++) {
            size_t begin, n;

            spread_part(p, i, k, &begin, &n);
            load[op->src].sent[k] += n;
            load[op->dst].received[k] += n;
        }
    }
}
