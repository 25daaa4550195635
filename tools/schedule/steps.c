#include "tools/schedule/steps.h"

#include <stdlib.h>

#include "tools/r2_perf/util.h"

/* Room for one more: sizes double at powers of two. */
static void *room_make(void *p, int n, size_t size)
{
    return n == 0 || (n & (n - 1)) == 0 ? util_mem_resize(p, (size_t)(n ? 2 * n : 1), size) : p;
}

struct steps *steps_open(int nodes, int slots)
{
    struct steps *s = util_mem_alloc(1, sizeof(*s));

    s->nodes = nodes;
    s->slots = slots;
    for (int i = 0; i < STEPS_HASH; i++) {
        s->hash[i] = STEPS_NONE;
    }
    return s;
}

void steps_close(struct steps *s)
{
    if (s == NULL) {
        return;
    }
    free(s->size);
    free(s->op);
    free(s->edge);
    free(s->connection);
    free(s);
}

int steps_chunk_add(struct steps *s, double size)
{
    s->size = room_make(s->size, s->chunks, sizeof(*s->size));
    s->size[s->chunks] = size;
    return s->chunks++;
}

static int connection_get(struct steps *s, int channel, int src, int dst)
{
    unsigned key = ((unsigned)channel * STEPS_NODES + (unsigned)src) * STEPS_NODES + (unsigned)dst;
    int *first = &s->hash[key * 2654435761u % STEPS_HASH];

    for (int c = *first; c != STEPS_NONE; c = s->connection[c].next) {
        const struct steps_connection *k = &s->connection[c];

        if (k->channel == channel && k->src == src && k->dst == dst) {
            return c;
        }
    }
    s->connection = room_make(s->connection, s->connections, sizeof(*s->connection));
    s->connection[s->connections] = (struct steps_connection){.channel = channel,
                                                              .src = src,
                                                              .dst = dst,
                                                              .first = STEPS_NONE,
                                                              .last = STEPS_NONE,
                                                              .next = *first};
    s->channels = channel >= s->channels ? channel + 1 : s->channels;
    return *first = s->connections++;
}

int steps_op_add(struct steps *s, enum steps_kind kind, int channel, int chunk, int src, int from,
                 int dst, int to)
{
    struct steps_op *op;

    s->op = room_make(s->op, s->ops, sizeof(*s->op));
    op = &s->op[s->ops];
    *op = (struct steps_op){.kind = kind,
                            .chunk = chunk,
                            .src = src,
                            .dst = dst,
                            .from = from,
                            .to = to,
                            .connection = STEPS_NONE,
                            .behind = STEPS_NONE,
                            .followers = STEPS_NONE};
    if (src != dst) {
        struct steps_connection *c;

        op->connection = connection_get(s, channel, src, dst);
        c = &s->connection[op->connection];
        c->bytes += steps_moves(op) ? s->size[chunk] : 0;
        if (c->last != STEPS_NONE) {
            s->op[c->last].behind = s->ops;
        } else {
            c->first = s->ops;
        }
        c->last = s->ops;
    }
    return s->ops++;
}

int steps_join_add(struct steps *s, int node)
{
    return steps_op_add(s, STEPS_JOIN, 0, 0, node, 0, node, 0);
}

void steps_after(struct steps *s, int op, int before)
{
    if (before < 0) {
        return;
    }
    s->edge = room_make(s->edge, s->edges, sizeof(*s->edge));
    s->edge[s->edges] = (struct steps_edge){.op = op, .next = s->op[before].followers};
    s->op[before].followers = s->edges++;
    s->op[op].waits++;
}

bool steps_is_local(const struct steps *s)
{
    for (int i = 0; i < s->ops; i++) {
        const struct steps_op *before = &s->op[i];

        for (int e = before->followers; e != STEPS_NONE; e = s->edge[e].next) {
            int at = s->op[s->edge[e].op].src;

            if (at != before->dst && at != before->src) {
                return false;
            }
        }
    }
    return true;
}
