#include "tools/r2_perf/conn.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_perf/log.h"
#include "tools/r2_perf/plugin.h"
#include "tools/r2_perf/util.h"

static size_t conn_data_offset(void)
{
    return util_size_roundup(sizeof(struct conn_ring), (size_t)sysconf(_SC_PAGESIZE));
}

size_t conn_memory_size(int nslots, size_t slot_bytes)
{
    return conn_data_offset() +
           util_size_roundup((size_t)nslots * slot_bytes, (size_t)sysconf(_SC_PAGESIZE));
}

void conn_memory_use(struct conn *c, void *memory, int nslots, size_t slot_bytes)
{
    c->ring = memory;
    c->data = (char *)memory + conn_data_offset();
    c->nslots = nslots;
    c->slot_bytes = slot_bytes;
}

static int conn_slot_index(const struct conn *c, uint64_t seq)
{
    return (int)(seq % (uint64_t)c->nslots);
}

static char *conn_slot_data(const struct conn *c, uint64_t seq)
{
    return c->data + (size_t)conn_slot_index(c, seq) * c->slot_bytes;
}

char *conn_slot_free(struct conn *c)
{
    uint64_t head = atomic_load_explicit(&c->ring->head, memory_order_acquire);
    return c->seq - head < (uint64_t)c->nslots ? conn_slot_data(c, c->seq) : NULL;
}

void conn_slot_fill(struct conn *c, size_t bytes)
{
    c->ring->size[conn_slot_index(c, c->seq)] = (uint32_t)bytes;
    c->seq++;
    atomic_store_explicit(&c->ring->tail, c->seq, memory_order_release);
}

char *conn_slot_full(struct conn *c, size_t *bytes)
{
    if (atomic_load_explicit(&c->ring->tail, memory_order_acquire) == c->seq) {
        return NULL;
    }
    *bytes = c->ring->size[conn_slot_index(c, c->seq)];
    return conn_slot_data(c, c->seq);
}

void conn_slot_release(struct conn *c)
{
    c->seq++;
    atomic_store_explicit(&c->ring->head, c->seq, memory_order_release);
}

bool conn_idle(const struct conn *c)
{
    uint64_t filled = c->kind == CONN_SEND
                          ? atomic_load_explicit(&c->ring->tail, memory_order_relaxed)
                          : c->posted;
    return c->kind == CONN_SHM || c->done == filled;
}

static int conn_error(const struct conn *c, const char *call, int rc, char *error, size_t bytes)
{
    char warning[900];
    log_warning_get(warning, sizeof(warning));
    snprintf(error, bytes, "%s %s rank %d on rank %d, channel %d, device %d returned %d (%s)%s%s",
             call, c->kind == CONN_SEND ? "to" : "from", c->peer, c->rank, c->channel, c->dev, rc,
             plugin_result_name(rc), warning[0] ? ": " : "", warning);
    return -1;
}

static int conn_send_post(struct conn *c, char *error, size_t bytes)
{
    uint64_t tail = atomic_load_explicit(&c->ring->tail, memory_order_acquire);
    if (c->posted == tail || c->posted - c->done >= (uint64_t)c->nslots) {
        return 0;
    }
    int i = conn_slot_index(c, c->posted);
    void *request = NULL;
    int rc = c->net->isend(c->comm, conn_slot_data(c, c->posted), (int)c->ring->size[i], c->rank,
                           c->mhandle, &request);
    if (rc) {
        return conn_error(c, "isend", rc, error, bytes);
    }
    if (!request) {
        return 0;
    }
    c->slots[i].request = request;
    c->posted++;
    return 1;
}

static int conn_send_test(struct conn *c, struct trace *trace, char *error, size_t bytes)
{
    if (c->done == c->posted) {
        return 0;
    }
    int done = 0, size = 0,
        rc = c->net->test(c->slots[conn_slot_index(c, c->done)].request, &done, &size);
    if (rc) {
        return conn_error(c, "test of a send", rc, error, bytes);
    }
    if (!done) {
        return 0;
    }
    c->done++;
    atomic_store_explicit(&c->ring->head, c->done, memory_order_release);
    uint64_t now = util_now_ns();
    trace_conn_note(trace, c->since, now, c->peer, c->channel, false);
    c->since = now;
    return 1;
}

static int conn_send_progress(struct conn *c, struct trace *trace, char *error, size_t bytes)
{
    bool work = atomic_load_explicit(&c->ring->tail, memory_order_relaxed) != c->done;
    if (work && !c->busy) {
        c->since = util_now_ns();
    }
    c->busy = work;
    if (!work) {
        return 0;
    }
    int posted = conn_send_post(c, error, bytes);
    int tested = posted < 0 ? -1 : conn_send_test(c, trace, error, bytes);
    return posted < 0 || tested < 0 ? -1 : posted | tested;
}

static int conn_recv_post(struct conn *c, char *error, size_t bytes)
{
    uint64_t head = atomic_load_explicit(&c->ring->head,
                                         memory_order_relaxed); /* written by this very thread */
    if (c->posted == c->expected || c->posted - head >= (uint64_t)c->nslots) {
        return 0;
    }
    /* what is in *request on entry must not matter to the plugin: hand it the last use of the slot
     */
    struct conn_slot *slot = &c->slots[conn_slot_index(c, c->posted)];
    void *data = conn_slot_data(c, c->posted), *request = slot->request;
    int size = (int)c->slot_bytes, tag = c->peer;
    int rc = c->net->irecv(c->comm, 1, &data, &size, &tag, &c->mhandle, &request);
    if (rc) {
        return conn_error(c, "irecv", rc, error, bytes);
    }
    if (!request) {
        return 0;
    }
    slot->request = request;
    slot->flushing = false;
    if (c->posted++ == c->done) {
        c->since = util_now_ns();
    }
    return 1;
}

/* As NCCL: only for a received message that is not empty. True when there is a flush to wait for.
 */
static int conn_recv_flush(struct conn *c, struct conn_slot *slot, char *error, size_t bytes)
{
    void *data = conn_slot_data(c, c->done), *request = NULL;
    int rc = c->net->iflush(c->comm, 1, &data, &slot->bytes, &c->mhandle, &request);
    if (rc) {
        return conn_error(c, "iflush", rc, error, bytes);
    }
    slot->request = request;
    slot->flushing = request != NULL;
    return request != NULL;
}

static int conn_recv_test(struct conn *c, struct trace *trace, char *error, size_t bytes)
{
    if (c->done == c->posted) {
        return 0;
    }
    int i = conn_slot_index(c, c->done), done = 0, sizes[64] = {0};
    struct conn_slot *slot = &c->slots[i];
    int rc = c->net->test(slot->request, &done, slot->flushing ? NULL : sizes);
    if (rc) {
        return conn_error(c, slot->flushing ? "test of a flush" : "test of a receive", rc, error,
                          bytes);
    }
    if (!done) {
        return 0;
    }
    if (!slot->flushing) {
        slot->bytes = sizes[0];
        if (sizes[0] < 0 || (size_t)sizes[0] > c->slot_bytes) {
            snprintf(
                error, bytes,
                "test of a receive from rank %d on rank %d, channel %d returned %d bytes of at most %zu",
                c->peer, c->rank, c->channel, sizes[0], c->slot_bytes);
            return -1;
        }
        rc = c->flush && sizes[0] > 0 ? conn_recv_flush(c, slot, error, bytes) : 0;
        if (rc) {
            return rc;
        }
    }
    c->ring->size[i] = (uint32_t)slot->bytes;
    c->done++;
    atomic_store_explicit(&c->ring->tail, c->done, memory_order_release);
    uint64_t now = util_now_ns();
    trace_conn_note(trace, c->since, now, c->peer, c->channel, true);
    c->since = now;
    return 1;
}

int conn_progress(struct conn *c, struct trace *trace, char *error, size_t error_bytes)
{
    if (c->kind == CONN_SHM) {
        return 0;
    }
    if (c->kind == CONN_SEND) {
        return conn_send_progress(c, trace, error, error_bytes);
    }
    int posted = conn_recv_post(c, error, error_bytes);
    int tested = posted < 0 ? -1 : conn_recv_test(c, trace, error, error_bytes);
    return posted < 0 || tested < 0 ? -1 : posted | tested;
}
