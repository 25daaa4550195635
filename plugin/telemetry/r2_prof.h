/*
 * Events for NCCL's profiler plugin (docs/abi.md): each part of a message that is on its way over
 * some queue pair, as a child of the step that NCCL sends or receives. Nothing without
 * NCCL_R2_PROFILER_EVENTS, or when NCCL has given no callback.
 *
 * NCCL tests the oldest request of a connection alone: each check is at all that are outstanding.
 *
 * Threads: all but r2_prof_set() is for the thread that drives the connection (NCCL's); the looks
 * with the gate held, the calls of the profiler, which is foreign code and may take its time,
 * without.
 */
#ifndef R2_PROF_H
#define R2_PROF_H

#include "core/r2_inst.h"
#include "ib_transport/r2_ledger.h"

struct ib_conn;
struct ib_smsg;

#define R2_PROF_EVENTS                                                                             \
    8 /* of a request, in all: NCCL's example profiler has no room for more at a step              \
         (ext-profiler/example/event.h) */

struct r2_prof_desc {
    int device;
    uint64_t wr_id; /* by message and part, as of a plain work request */
    int opcode;  /* of what is sent: enum ibv_wr_opcode; of what is received: enum ibv_wc_opcode */
    uint32_t qp; /* number; 0: the path has none any more */
    uint64_t bytes;
};

/* Begins an event below @parent, and puts what the profiler calls it into *event (NULL: it keeps
 * none); or, @desc NULL, ends *event. May block. */
typedef void (*r2_prof_fn)(void *arg, void **event, void *parent, const struct r2_prof_desc *desc);

/* For connections that are made from now on; those that stand keep theirs. NULL: none. Any thread;
 * does not block. */
void r2_prof_set(r2_prof_fn fn, void *arg);

/* A part and the incarnation of the path that it was posted on; of a receive, a buffer of the
 * group. */
struct r2_prof_event {
    void *event; /* the profiler's own */
    uint32_t inc;
    uint8_t part, path, open;
};

struct r2_prof_req {
    void *parent[R2_NET_MAX_RECVS]; /* NULL: NCCL wants none of it */
    uint8_t n;                      /* events begun */
    struct r2_prof_event ev[R2_PROF_EVENTS];
};

struct r2_prof_call {
    struct r2_prof_event *event;
    void *parent; /* NULL: it ends */
    struct r2_prof_desc desc;
};

/* Of one check: what finds no room in it is found by the next one. */
#define R2_PROF_CALLS (8 * R2_PROF_EVENTS)

/* Of a connection. */
struct r2_prof {
    r2_prof_fn fn;
    void *arg;
    uint64_t wanted[R2_LEDGER_WINDOW /
                    64]; /* bit per entry of req[]: outstanding, and some parent is not NULL */
    unsigned calls;
    struct r2_prof_call call[R2_PROF_CALLS]; /* to be made once the gate is left */
    struct r2_prof_req req[R2_LEDGER_WINDOW];
};

/* NULL: nobody listens, or no memory. For free(). Does not block. */
struct r2_prof *r2_prof_new(const struct r2_config *cfg);

/* Whether a profiler listens to @c. */
static inline int r2_prof_listens(const struct r2_comm *c)
{
    return c->prof != NULL;
}

/* @req was just started for what NCCL calls @parent, one per buffer, NULL: none. Looks at it, where
 * a profiler listens. No gate held. */
void r2_prof_begin(struct r2_req *req, void *const *parent);

/* Reports the events of the connection's requests that began or ended since the last call; @over:
 * nothing of @req is under way any more. Gate held. r2_prof_notify() follows. */
void r2_prof_poll(struct r2_req *req, int over);

/* Tells the profiler; @failed: the connection has ended, and so has every event. No gate held. */
void r2_prof_notify(struct r2_prof *prof, int failed);

/* --- the decisions: pure but for @prof --- */

void r2_prof_send(struct r2_prof *prof, struct r2_prof_req *r, const struct ib_smsg *m,
                  const struct ib_conn *l, int over);

#endif
