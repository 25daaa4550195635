#include "r2_ctx.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * A closed context is used again, and not before so many others have been closed: a proxy of
 * NCCL 2.28.3 that several communicators share goes on connecting with the context of the first one
 * after its finalize. No context is ever freed.
 */
#define CTX_REST 64

struct r2_ctx {
    /*
     * NCCL hands the context of the network to its own IB transport, for one-sided communication,
     * as if it were that one's: a communicator's configuration, an int, which 2.29 reads and 2.30
     * writes as well. This is the int; nobody here reads it.
     */
    int of_nccl;
    _Atomic int class;     /* relaxed: who uses a context has it from who opened it */
    int open;              /* under ctx_lock, as the rest */
    struct r2_ctx *all;    /* next of all: so that none is lost */
    struct r2_ctx *closed; /* next of those closed, the oldest first */
};
_Static_assert(offsetof(struct r2_ctx, of_nccl) == 0, "NCCL looks at the beginning");

static pthread_mutex_t ctx_lock = PTHREAD_MUTEX_INITIALIZER;
static struct r2_ctx *ctxs, *closed_head, *closed_tail;
static int closed_count;

/* Under ctx_lock; NULL when there is no memory. */
static struct r2_ctx *ctx_take(void)
{
    struct r2_ctx *ctx = closed_head;

    if (closed_count > CTX_REST) {
        closed_head = ctx->closed;
        closed_count--;
        return ctx;
    }
    ctx = calloc(1, sizeof(*ctx));
    if (ctx != NULL) {
        ctx->all = ctxs;
        ctxs = ctx;
    }
    return ctx;
}

enum r2_status r2_ctx_open(r2_log_sink_fn sink, uint64_t comm_id, int class, struct r2_ctx **out)
{
    enum r2_status s = r2_init(sink);
    struct r2_ctx *ctx;

    *out = NULL;
    if (s != R2_OK) {
        return s;
    }
    pthread_mutex_lock(&ctx_lock);
    ctx = ctx_take();
    if (ctx != NULL) {
        ctx->of_nccl = class;
        atomic_store_explicit(&ctx->class, class, memory_order_relaxed);
        ctx->open = 1;
    }
    pthread_mutex_unlock(&ctx_lock);
    if (ctx == NULL) {
        R2_WARN("communicator %016llx: %s", (unsigned long long)comm_id, strerror(ENOMEM));
        return R2_ERR_SYSTEM;
    }
    if (class != R2_NET_NO_CLASS) {
        R2_INFO("communicator %016llx requests traffic class %d", (unsigned long long)comm_id,
                class);
    }
    *out = ctx;
    return R2_OK;
}

enum r2_status r2_ctx_close(struct r2_ctx *ctx)
{
    int was_open;

    if (ctx == NULL) {
        return R2_OK;
    }
    pthread_mutex_lock(&ctx_lock);
    was_open = ctx->open;
    if (was_open) {
        ctx->open = 0;
        ctx->closed = NULL;
        if (closed_count++ == 0) {
            closed_head = ctx;
        } else {
            closed_tail->closed = ctx;
        }
        closed_tail = ctx;
    }
    pthread_mutex_unlock(&ctx_lock);
    if (!was_open) {
        R2_WARN("finalize of a communicator that is not open");
    }
    return was_open ? R2_OK : R2_ERR_ARG;
}

int r2_ctx_class(const struct r2_ctx *ctx)
{
    return atomic_load_explicit(&ctx->class, memory_order_relaxed);
}
