#include "tools/r2_perf/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/r2_perf/log.h"
#include "tools/r2_perf/util.h"
#include "tools/r2_perf/watch.h"

/* What the receiving rank of a connection tells the sending one. */
struct wire_offer {
    int32_t pid, fd; /* shared memory: the file that holds the ring; fd -1: through the plugin */
    uint64_t offset;
    char handle[ABI_HANDLE_BYTES];
};

/* Every rank's identity, to see who shares memory with whom. */
struct wire_id {
    uint64_t machine;
    int32_t host, pid;
    int32_t barrier_fd, pad;
};

struct wire_memory {
    struct wire_id ids[BOOT_RANKS_MAX];
    void **maps;
    size_t *sizes;
    int n;
    int fd; /* own shared rings */
    size_t fd_used;
};

static int wire_fail(struct wire *w, const char *what, int rc)
{
    char text[1400], warning[900];
    log_warning_get(warning, sizeof(warning));
    snprintf(text, sizeof(text), "%s on rank %d: %d (%s)%s%s", what, w->setup.rank, rc,
             plugin_result_name(rc), warning[0] ? ": " : "", warning);
    boot_fail(w->setup.boot, PERF_NET, text);
    return -1;
}

static int wire_fail_system(struct wire *w, const char *what)
{
    char text[300];
    snprintf(text, sizeof(text), "%s on rank %d: %s", what, w->setup.rank, strerror(errno));
    boot_fail(w->setup.boot, PERF_INTERNAL, text);
    return -1;
}

static void *wire_map(struct wire *w, int fd, uint64_t offset, size_t bytes)
{
    struct wire_memory *m = w->memory;
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
    if (p == MAP_FAILED) {
        return NULL;
    }
    m->maps = util_mem_resize(m->maps, (size_t)m->n + 1, sizeof(*m->maps));
    m->sizes = util_mem_resize(m->sizes, (size_t)m->n + 1, sizeof(*m->sizes));
    m->maps[m->n] = p;
    m->sizes[m->n++] = bytes;
    return p;
}

/* A file of another process; works where both see the same processes and run as the same user. */
static int wire_file_of(int pid, int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* One machine: a barrier in shared memory. Whether it works for all is agreed, so that all use the
 * same one. */
static int wire_barrier_open(struct wire *w)
{
    struct wire_memory *m = w->memory;
    int rank = w->setup.rank, n = w->setup.nranks;
    char works[BOOT_RANKS_MAX] = {0};
    int fd =
        rank == 0 ? dup(m->ids[0].barrier_fd) : wire_file_of(m->ids[0].pid, m->ids[0].barrier_fd);
    void *page =
        fd >= 0 && m->ids[rank].machine == m->ids[0].machine ? wire_map(w, fd, 0, 4096) : NULL;
    if (fd >= 0) {
        close(fd);
    }
    works[rank] = page != NULL;
    if (boot_allgather(w->setup.boot, works, 1) != 0) {
        return -1;
    }
    bool all = true;
    for (int r = 0; r < n; r++) {
        all = all && works[r];
    }
    if (all) {
        boot_barrier_share(w->setup.boot, page);
    }
    return 0;
}

static int wire_ids_exchange(struct wire *w)
{
    struct wire_memory *m = w->memory;
    int rank = w->setup.rank;
    int fd = rank == 0 ? memfd_create("r2_perf_barrier", MFD_CLOEXEC) : -1;
    if (rank == 0 && (fd < 0 || ftruncate(fd, 4096) != 0)) {
        return wire_fail_system(w, "memory for the barrier");
    }
    m->ids[rank] = (struct wire_id){.machine = util_machine_id(),
                                    .host = w->setup.host,
                                    .pid = (int32_t)getpid(),
                                    .barrier_fd = fd};
    int rc = boot_allgather(w->setup.boot, m->ids, sizeof(m->ids[0]));
    rc = rc == 0 ? wire_barrier_open(w) : rc;
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

static bool wire_ranks_share(const struct wire *w, int a, int b)
{
    const struct wire_id *x = &w->memory->ids[a], *y = &w->memory->ids[b];
    return !w->setup.intra_net && x->machine == y->machine && x->host == y->host;
}

/* Does @src send to @dst in this operation? With a root in one that has one: -r lets each be it in
 * turn. */
static bool wire_link(const struct wire *w, int channel, int src, int dst)
{
    if (w->setup.links) {
        return w->setup.links[channel * w->setup.nranks + src] >> dst & 1;
    }
    const struct algo_info *info = algo_info_get(w->setup.op);
    bool all = info->pairwise && w->setup.op != ALGO_SENDRECV;
    return src != dst && (all || dst == (src + 1) % w->setup.nranks);
}

static void wire_conn_add(struct wire *w, int channel, int peer, bool sending)
{
    struct conn *c = &w->conns[w->nconns++];
    bool shm = wire_ranks_share(w, w->setup.rank, peer);
    c->kind = shm ? CONN_SHM : sending ? CONN_SEND : CONN_RECV;
    c->rank = w->setup.rank;
    c->peer = peer;
    c->channel = channel;
    c->dev = channel % (w->setup.links ? w->setup.nics : w->setup.plugin->ndev);
    c->net = w->setup.plugin->net;
    c->flush = w->setup.flush;
    w->nnet += !shm;
    if (sending) {
        w->send[channel][peer] = c;
    } else {
        w->recv[channel][peer] = c;
    }
}

static void wire_conns_plan(struct wire *w)
{
    const struct algo_info *info = algo_info_get(w->setup.op);
    int n = w->setup.nranks, rank = w->setup.rank;
    bool pair = info->pairwise || w->setup.links;
    w->nslots = w->setup.links ? CONN_STEPS : CONN_STEPS / info->slice_steps;
    w->slot_bytes =
        pair ? w->setup.pair_bytes : w->setup.buffer_bytes / CONN_STEPS * (size_t)info->slice_steps;
    w->conns = util_mem_alloc((size_t)(2 * n * w->setup.channels), sizeof(*w->conns));
    for (int c = 0; c < w->setup.channels; c++) {
        for (int peer = 0; peer < n; peer++) {
            if (wire_link(w, c, rank, peer)) {
                wire_conn_add(w, c, peer, true);
            }
            if (wire_link(w, c, peer, rank)) {
                wire_conn_add(w, c, peer, false);
            }
        }
    }
}

/* Receiving end: memory, and for the network a listen whose handle goes to the peer. */
static int wire_conn_offer(struct wire *w, struct conn *c, struct wire_offer *offer)
{
    size_t bytes = conn_memory_size(w->nslots, w->slot_bytes);
    offer->fd = -1;
    offer->pid = (int32_t)getpid();
    if (c->kind == CONN_RECV) {
        int rc = c->net->listen(c->dev, c->handle, &c->listen_comm);
        if (rc || !c->listen_comm) {
            return wire_fail(w, "listen", rc);
        }
        memcpy(offer->handle, c->handle, sizeof(offer->handle));
        return 0;
    }
    struct wire_memory *m = w->memory;
    if (m->fd < 0) {
        m->fd = memfd_create("r2_perf_rings", MFD_CLOEXEC);
    }
    offer->fd = m->fd;
    offer->offset = m->fd_used;
    m->fd_used += bytes;
    if (m->fd < 0 || ftruncate(m->fd, (off_t)m->fd_used) != 0) {
        return wire_fail_system(w, "shared memory");
    }
    void *p = wire_map(w, m->fd, offer->offset, bytes);
    if (!p) {
        return wire_fail_system(w, "shared memory");
    }
    conn_memory_use(c, p, w->nslots, w->slot_bytes);
    return 0;
}

/* Sending end of shared memory: map what the receiver made. */
static int wire_conn_attach(struct wire *w, struct conn *c, const struct wire_offer *offer)
{
    int fd = wire_file_of(offer->pid, offer->fd);
    void *p =
        fd >= 0 ? wire_map(w, fd, offer->offset, conn_memory_size(w->nslots, w->slot_bytes)) : NULL;
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = saved;
    if (!p) {
        return wire_fail_system(
            w, "memory of another rank of this host cannot be mapped (try --intra net)");
    }
    conn_memory_use(c, p, w->nslots, w->slot_bytes);
    return 0;
}

static struct wire_offer *wire_offer_at(struct wire *w, struct wire_offer *all, int receiver,
                                        int channel, int sender)
{
    int n = w->setup.nranks;
    return &all[((size_t)receiver * (size_t)w->setup.channels + (size_t)channel) * (size_t)n +
                (size_t)sender];
}

static int wire_offers_exchange(struct wire *w)
{
    size_t each = (size_t)w->setup.channels * (size_t)w->setup.nranks;
    struct wire_offer *all = util_mem_alloc(each * (size_t)w->setup.nranks, sizeof(*all));
    int rc = 0;
    for (int i = 0; i < w->nconns && rc == 0; i++) {
        struct conn *c = &w->conns[i];
        if (w->recv[c->channel][c->peer] == c) {
            rc = wire_conn_offer(w, c, wire_offer_at(w, all, w->setup.rank, c->channel, c->peer));
        }
    }
    rc = rc == 0 ? boot_allgather(w->setup.boot, all, each * sizeof(*all)) : rc;
    for (int i = 0; i < w->nconns && rc == 0; i++) {
        struct conn *c = &w->conns[i];
        struct wire_offer *offer = wire_offer_at(w, all, c->peer, c->channel, w->setup.rank);
        if (w->send[c->channel][c->peer] != c) {
            continue;
        }
        if (c->kind == CONN_SHM) {
            rc = wire_conn_attach(w, c, offer);
        } else {
            memcpy(c->handle, offer->handle, sizeof(c->handle));
        }
    }
    free(all);
    return rc;
}

/* One call of connect or accept; neither blocks. 1 when the connection has come about, 0 not yet,
 * -1 failed. */
static int wire_conn_try(struct wire *w, struct conn *c)
{
    struct abi_device_handle *device = NULL;
    bool sending = c->kind == CONN_SEND;
    int rc = sending ? c->net->connect(c->dev, c->handle, &c->comm, &device)
                     : c->net->accept(c->listen_comm, &c->comm, &device);
    if (rc) {
        c->comm = NULL;
        return wire_fail(w, sending ? "connect" : "accept", rc);
    }
    if (!c->comm) {
        return 0;
    }
    if (!sending) {
        rc = c->net->close_listen(c->listen_comm);
        c->listen_comm = NULL;
    }
    return rc ? wire_fail(w, "closeListen", rc) : 1;
}

/* All pending connections in turn, until all have come about: any order of the two ends works. */
static int wire_conns_connect(struct wire *w)
{
    int pending = w->nnet;
    while (pending > 0) {
        int made = 0;
        for (int i = 0; i < w->nconns; i++) {
            struct conn *c = &w->conns[i];
            if (c->kind == CONN_SHM || c->comm) {
                continue;
            }
            int rc = wire_conn_try(w, c);
            if (rc < 0) {
                return -1;
            }
            made += rc;
        }
        pending -= made;
        if (boot_failed(w->setup.boot)) {
            return -1;
        }
        if (made) {
            watch_progress_note();
        } else {
            sched_yield();
        }
    }
    return 0;
}

static int wire_conns_register(struct wire *w)
{
    for (int i = 0; i < w->nconns; i++) {
        struct conn *c = &w->conns[i];
        if (c->kind == CONN_SHM) {
            continue;
        }
        void *p = wire_map(w, -1, 0, conn_memory_size(w->nslots, w->slot_bytes));
        if (!p) {
            return wire_fail_system(w, "buffer memory");
        }
        conn_memory_use(c, p, w->nslots, w->slot_bytes);
        int rc = c->net->reg_mr(c->comm, c->data, (size_t)c->nslots * c->slot_bytes, ABI_PTR_HOST,
                                &c->mhandle);
        if (rc) {
            return wire_fail(w, "regMr", rc);
        }
        watch_progress_note();
    }
    return 0;
}

int wire_open(struct wire *w, const struct wire_setup *setup)
{
    memset(w, 0, sizeof(*w));
    w->setup = *setup;
    w->memory = util_mem_alloc(1, sizeof(*w->memory));
    w->memory->fd = -1;
    if (wire_ids_exchange(w) != 0) {
        return -1;
    }
    wire_conns_plan(w);
    watch_phase_set("connecting");
    int rc = wire_offers_exchange(w);
    rc = rc == 0 ? wire_conns_connect(w) : rc;
    rc = rc == 0 ? wire_conns_register(w) : rc;
    watch_phase_set(NULL);
    return rc == 0 ? boot_barrier(w->setup.boot) : rc;
}

static void wire_conn_close(struct wire *w, struct conn *c)
{
    int rc = 0;
    if (c->kind == CONN_SHM) {
        return;
    }
    if (c->listen_comm) {
        rc = c->net->close_listen(c->listen_comm);
    }
    if (c->comm && c->mhandle) {
        rc |= c->net->dereg_mr(c->comm, c->mhandle);
    }
    if (c->comm) {
        rc |= c->kind == CONN_SEND ? c->net->close_send(c->comm) : c->net->close_recv(c->comm);
    }
    if (rc && !boot_failed(w->setup.boot)) {
        wire_fail(w, "closing a connection", rc);
    }
}

void wire_close(struct wire *w)
{
    boot_barrier_share(w->setup.boot, NULL);
    for (int i = 0; i < w->nconns; i++) {
        wire_conn_close(w, &w->conns[i]);
    }
    for (int i = 0; w->memory && i < w->memory->n; i++) {
        munmap(w->memory->maps[i], w->memory->sizes[i]);
    }
    if (w->memory) {
        if (w->memory->fd >= 0) {
            close(w->memory->fd);
        }
        free(w->memory->maps);
        free(w->memory->sizes);
        free(w->memory);
    }
    free(w->conns);
}
