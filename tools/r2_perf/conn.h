/*
 * One-way connections between two ranks: a ring of slots that one side fills and the other empties.
 * Between ranks of a host the ring lies in shared memory and both ends are the ranks themselves (as
 * NCCL's SHM transport); between hosts the plugin moves the slots, driven as NCCL's proxy drives
 * it.
 *
 *   producer --tail--> [slot|slot|...|slot] --head--> consumer
 *   shm:  sending rank                                receiving rank
 *   send: the rank                                    conn_send_progress (isend, test)
 *   recv: conn_recv_progress (irecv, test, iflush)    the rank
 */
#ifndef R2_PERF_CONN_H
#define R2_PERF_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/r2_perf/abi.h"
#include "tools/r2_perf/trace.h"

#define CONN_STEPS 8

struct conn_ring {
    _Alignas(64) _Atomic uint64_t
        tail; /* slots filled: release by the producer, acquire by the consumer */
    _Alignas(64) _Atomic uint64_t
        head; /* slots emptied: release by the consumer, acquire by the producer */
    _Alignas(64) uint32_t size[CONN_STEPS]; /* bytes in the slot; ordered by tail and head */
};

enum conn_kind { CONN_SHM, CONN_SEND, CONN_RECV };

struct conn_slot {
    void *request; /* of isend, irecv or iflush; valid between posted and done */
    bool flushing; /* recv: the receive is done, the flush is not */
    int bytes;     /* recv: what arrived */
};

struct conn {
    enum conn_kind kind;
    int rank, peer, channel, dev;
    struct conn_ring *ring;
    char *data; /* nslots x slot_bytes */
    size_t slot_bytes;
    int nslots;
    uint64_t seq; /* the rank's own end: slots it has filled or emptied */

    /* network only; all but @comm and @mhandle belong to the progress thread */
    const struct abi_net *net;
    void *listen_comm, *comm, *mhandle;
    char handle[ABI_HANDLE_BYTES]; /* connect may keep state in it between calls */
    bool flush;                    /* call iflush after each receive */
    struct conn_slot slots[CONN_STEPS];
    uint64_t posted, done,
        expected;   /* messages given to the plugin, finished by it, known to come (recv) */
    bool busy;      /* send: had work at the last look */
    uint64_t since; /* last progress, or when work came */
};

/* Bytes a connection's ring and slots take, a multiple of the page size. */
size_t conn_memory_size(int nslots, size_t slot_bytes);
/* Lay out ring and slots over @memory (zeroed, conn_memory_size bytes, owned by the caller). */
void conn_memory_use(struct conn *c, void *memory, int nslots, size_t slot_bytes);

/* The slot to fill next, or NULL while all are full. Any kind but CONN_RECV; the rank's progress
 * thread. */
char *conn_slot_free(struct conn *c);
/* The slot got from conn_slot_free holds @bytes. */
void conn_slot_fill(struct conn *c, size_t bytes);
/* The oldest filled slot and its size, or NULL. Any kind but CONN_SEND; the rank's progress thread.
 */
char *conn_slot_full(struct conn *c, size_t *bytes);
/* The slot got from conn_slot_full may be used again. */
void conn_slot_release(struct conn *c);

/*
 * One round with the plugin: at most one post and one test of the oldest request, as NCCL's proxy
 * does. 1 when something moved, 0 when not, -1 when the plugin returned an error, described in
 * @error. Thread: progress; blocks only if the plugin does.
 */
int conn_progress(struct conn *c, struct trace *trace, char *error, size_t error_bytes);
/* True when the plugin holds nothing of this connection. */
bool conn_idle(const struct conn *c);

#endif
