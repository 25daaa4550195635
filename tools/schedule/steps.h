/*
 * A schedule of an all_reduce as a list of steps between nodes: who sends which chunk to whom, from
 * which place to which, what is added and what replaces, and what each waits for. The simulator
 * (sim.h) and r2_perf run the same list. Sizes in D. One thread; memory that is not there ends the
 * process (util_mem_alloc()).
 */
#ifndef SCHEDULE_STEPS_H
#define SCHEDULE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#define STEPS_NODES 128

enum steps_kind {
    STEPS_ADD,    /* what comes is added to what is there */
    STEPS_COPY,   /* what comes replaces what is there, all of which it has to contain */
    STEPS_JOIN,   /* at a node: moves nothing, others can wait for it */
    STEPS_SIGNAL, /* from a node to another: moves nothing, takes no time */
};

#define STEPS_NONE (-1)

struct steps_op {
    enum steps_kind kind;
    int chunk, src, dst, from, to;
    int connection; /* STEPS_NONE: src == dst */
    int behind;     /* the next of this connection */
    int waits;      /* for so many others */
    int followers;  /* first in edge[] */
};

struct steps_edge {
    int op, next;
};

struct steps_connection {
    int channel, src, dst;
    int first, last; /* ops */
    int next;        /* of this hash */
    double bytes;    /* all that it carries */
};

#define STEPS_HASH 4096

struct steps {
    int nodes, slots; /* places for each chunk and node */
    int chunks, ops, edges, connections, channels;
    double *size; /* of a chunk */
    struct steps_op *op;
    struct steps_edge *edge;
    struct steps_connection *connection;
    int hash[STEPS_HASH];
};

/* @slots places for each chunk and node: 0 begins with the node's own contribution, others empty.
 */
struct steps *steps_open(int nodes, int slots);
void steps_close(struct steps *s);

/* A piece of the data, of @size. Returns its number. */
int steps_chunk_add(struct steps *s, double size);

/*
 * A transfer of a chunk from a slot of @src to one of @dst; of one channel, @src and @dst they are
 * under way one at a time, in the order in which they were added. src == dst takes no time. Returns
 * its number.
 */
int steps_op_add(struct steps *s, enum steps_kind kind, int channel, int chunk, int src, int from,
                 int dst, int to);
/* At @node: no more than something to wait for. */
int steps_join_add(struct steps *s, int node);

/*
 * @op begins when @before is done; @before < 0: nothing. @before is one that @op's source sees end:
 * by receiving, by having sent, or at itself (steps_is_local()).
 */
void steps_after(struct steps *s, int op, int before);

/* Nobody waits for what happens between two others. */
bool steps_is_local(const struct steps *s);

/* Whether all contributions are moved: not STEPS_JOIN, STEPS_SIGNAL. */
static inline bool steps_moves(const struct steps_op *op)
{
    return op->kind == STEPS_ADD || op->kind == STEPS_COPY;
}

#endif
