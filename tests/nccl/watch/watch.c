/*
 * A profiler plugin for NCCL 2.28 (tables of version 5) that counts: what NCCL says of its network
 * steps, and what the network says of its work requests below them. A line per process goes to
 * WATCH_FILE.PID when the last communicator ends:
 *
 *     steps=N step_bytes=B sends=N send_bytes=B recvs=N recv_bytes=B open=N odd=N nics=N:B,...
 *
 * steps: what NCCL sent; sends, recvs: work requests of the network; open: those not ended; odd:
 * those that break a rule of docs/abi.md; nics: sends by device.
 *
 * Layouts are NCCL's, in a reading of our own. Threads: NCCL's, any.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIND_STEP = 1 << 4, KIND_NET = 1 << 7 }; /* of events; NCCL begins those above them, too */
enum { STATE_SEND_WAIT = 9 };                   /* of a step: handed to the network */
enum { NET_IB_1 = 1 << 16 | 1, QP = 1 };        /* of the network's events */
enum { WR_WRITE_WITH_IMM = 1, WC_RECV_WITH_IMM = 129 };
#define NICS 8

struct description {
    uint64_t kind;
    void *parent;
    int rank;
    struct { /* of the network's events */
        int64_t id;
        void *data;
    } net;
};

struct qp_event {
    uint8_t type;
    struct {
        int device;
        uint64_t wr_id;
        int opcode, qp;
        size_t bytes;
    } wr; /* as a union: at 8 */
};

/* An event's handle: its kind, and whether it is open. */
struct event {
    uint64_t kind;
    atomic_int open;
};

static struct {
    atomic_ulong comms, steps, step_bytes, sends, send_bytes, recvs, recv_bytes, odd, open;
    atomic_ulong nic_sends[NICS], nic_bytes[NICS];
} seen;

static int watch_init(void **ctx, uint64_t comm_id, int *kinds, const char *name, int nodes,
                      int ranks, int rank, void *log)
{
    (void)comm_id;
    (void)name;
    (void)nodes;
    (void)ranks;
    (void)rank;
    (void)log;
    *ctx = &seen;
    *kinds = KIND_STEP | KIND_NET;
    seen.comms++;
    return 0;
}

/* Whether the network speaks of a work request as it is written down (docs/abi.md). */
static int net_count(const struct description *d)
{
    const struct qp_event *e = d->net.data;

    if (d->parent == NULL || d->net.id != NET_IB_1 || e == NULL || e->type != QP ||
        e->wr.device < 0 || e->wr.device >= NICS) {
        return -1;
    }
    if (e->wr.opcode == WR_WRITE_WITH_IMM) {
        seen.sends++;
        seen.send_bytes += e->wr.bytes;
        seen.nic_sends[e->wr.device]++;
        seen.nic_bytes[e->wr.device] += e->wr.bytes;
    } else if (e->wr.opcode == WC_RECV_WITH_IMM) {
        seen.recvs++;
        seen.recv_bytes += e->wr.bytes;
    } else {
        return -1;
    }
    return 0;
}

static int watch_start(void *ctx, void **handle, struct description *d)
{
    struct event *e;

    (void)ctx;
    *handle = NULL;
    e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return 0;
    }
    e->kind = d->kind;
    e->open = 1;
    seen.open += d->kind == KIND_NET;
    seen.odd += d->kind == KIND_NET && net_count(d) != 0;
    *handle = e;
    return 0;
}

/* Handles stay: one that is ended twice is to be seen. */
static int watch_stop(void *handle)
{
    struct event *e = handle;

    if (e == NULL) {
        return 0;
    }
    if (atomic_exchange(&e->open, 0) == 0) {
        seen.odd += e->kind == KIND_NET;
    } else {
        seen.open -= e->kind == KIND_NET;
    }
    return 0;
}

static int watch_state(void *handle, int state, size_t *args)
{
    struct event *e = handle;

    if (e && e->kind == KIND_STEP && state == STATE_SEND_WAIT) {
        seen.steps++;
        seen.step_bytes += *args;
    }
    return 0;
}

static int watch_finalize(void *ctx)
{
    const char *file = getenv("WATCH_FILE");
    char path[4096];
    FILE *f;

    (void)ctx;
    if (--seen.comms != 0 || file == NULL) {
        return 0;
    }
    snprintf(path, sizeof(path), "%s.%d", file, (int)getpid());
    f = fopen(path, "w");
    if (f == NULL) {
        perror(path);
        return 0;
    }
    fprintf(
        f,
        "steps=%lu step_bytes=%lu sends=%lu send_bytes=%lu recvs=%lu recv_bytes=%lu open=%lu odd=%lu nics=",
        seen.steps, seen.step_bytes, seen.sends, seen.send_bytes, seen.recvs, seen.recv_bytes,
        seen.open, seen.odd);
    for (int i = 0; i < NICS; i++) {
        fprintf(f, "%lu:%lu%s", seen.nic_sends[i], seen.nic_bytes[i], i + 1 < NICS ? "," : "\n");
    }
    fclose(f);
    return 0;
}

extern const struct watch {
    const char *name;
    int (*init)(void **ctx, uint64_t comm_id, int *kinds, const char *name, int nodes, int ranks,
                int rank, void *log);
    int (*start)(void *ctx, void **handle, struct description *d);
    int (*stop)(void *handle);
    int (*state)(void *handle, int state, size_t *args);
    int (*finalize)(void *ctx);
} ncclProfiler_v5;
__attribute__((visibility("default"))) const struct watch ncclProfiler_v5 = {
    "watch", watch_init, watch_start, watch_stop, watch_state, watch_finalize};
