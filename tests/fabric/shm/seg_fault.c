/* Faults in the segment: what a fault amounts to, and the log from which engines learn of it. */
#include "tests/fabric/shm/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void seg_link_read(struct seg_nic *n, struct fab_link *l)
{
    struct seg_link *s = &n->link;

    l->down = (uint8_t)atomic_load_explicit(&s->down, memory_order_relaxed);
    l->blackhole_tx = (uint8_t)atomic_load_explicit(&s->blackhole_tx, memory_order_relaxed);
    l->blackhole_rx = (uint8_t)atomic_load_explicit(&s->blackhole_rx, memory_order_relaxed);
    l->ack_lost = (uint8_t)atomic_load_explicit(&s->ack_lost, memory_order_relaxed);
    l->send_error = (uint8_t)atomic_load_explicit(&s->send_error, memory_order_relaxed);
    l->late_some = (uint8_t)atomic_load_explicit(&s->late_some, memory_order_relaxed);
    l->loss_ppm = atomic_load_explicit(&s->loss_ppm, memory_order_relaxed);
    l->corrupt_ppm = atomic_load_explicit(&s->corrupt_ppm, memory_order_relaxed);
    l->dup_ppm = atomic_load_explicit(&s->dup_ppm, memory_order_relaxed);
    l->delay_ns = atomic_load_explicit(&s->delay_ns, memory_order_relaxed);
    l->rate = atomic_load_explicit(&s->rate, memory_order_relaxed);
    for (int h = 0; h < FAB_MAX_HOSTS; h++) {
        l->cut[h] = (uint16_t)atomic_load_explicit(&s->cut[h], memory_order_relaxed);
        l->late[h] = (uint16_t)atomic_load_explicit(&s->late[h], memory_order_relaxed);
    }
}

static void link_write(struct seg_nic *n, const struct fab_link *l)
{
    struct seg_link *s = &n->link;

    atomic_store_explicit(&s->down, l->down, memory_order_relaxed);
    atomic_store_explicit(&s->blackhole_tx, l->blackhole_tx, memory_order_relaxed);
    atomic_store_explicit(&s->blackhole_rx, l->blackhole_rx, memory_order_relaxed);
    atomic_store_explicit(&s->ack_lost, l->ack_lost, memory_order_relaxed);
    atomic_store_explicit(&s->send_error, l->send_error, memory_order_relaxed);
    atomic_store_explicit(&s->late_some, l->late_some, memory_order_relaxed);
    atomic_store_explicit(&s->loss_ppm, l->loss_ppm, memory_order_relaxed);
    atomic_store_explicit(&s->corrupt_ppm, l->corrupt_ppm, memory_order_relaxed);
    atomic_store_explicit(&s->dup_ppm, l->dup_ppm, memory_order_relaxed);
    atomic_store_explicit(&s->delay_ns, l->delay_ns, memory_order_relaxed);
    atomic_store_explicit(&s->rate, l->rate, memory_order_relaxed);
    for (int h = 0; h < FAB_MAX_HOSTS; h++) {
        atomic_store_explicit(&s->cut[h], l->cut[h], memory_order_relaxed);
        atomic_store_explicit(&s->late[h], l->late[h], memory_order_relaxed);
    }
}

static void device_return(struct seg_nic *n)
{
    atomic_store_explicit(&n->gone, 0, memory_order_relaxed);
    atomic_store_explicit(&n->hung, 0, memory_order_relaxed);
    atomic_store_explicit(&n->mr_fail, 0, memory_order_relaxed);
    atomic_store_explicit(&n->call_error, 0, memory_order_relaxed);
}

/* The device's part of a fault, for processes that open it later. */
static void device_write(struct seg_nic *n, const struct fab_fault *f)
{
    uint32_t gone;

    switch (f->kind) {
    case FAB_FAULT_FATAL:
    case FAB_FAULT_REMOVE:
    case FAB_FAULT_UNPLUG:
        atomic_store_explicit(&n->gone, (uint32_t)f->kind + 1, memory_order_relaxed);
        break;
    case FAB_FAULT_HANG:
    case FAB_FAULT_UNHANG:
        atomic_store_explicit(&n->hung, f->kind == FAB_FAULT_HANG, memory_order_relaxed);
        break;
    case FAB_FAULT_MR_FAIL:
        atomic_store_explicit(&n->mr_fail, f->value == 0 || f->value >= UINT32_MAX,
                              memory_order_relaxed);
        break;
    case FAB_FAULT_GPU_DMA_FAIL:
        atomic_store_explicit(&n->gpu_dma_fail, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_CALL_ERROR:
        atomic_store_explicit(&n->call_error, f->value == 0 || f->value >= UINT32_MAX,
                              memory_order_relaxed);
        break;
    case FAB_FAULT_QP_ERROR:
        atomic_fetch_add_explicit(&n->qp_errors, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_SEND_STUCK:
        atomic_fetch_add_explicit(&n->send_stucks, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_RETRY7_FOREVER:
        atomic_store_explicit(&n->retry7, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_SILENT_DEATH:
        atomic_store_explicit(&n->silent_death, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_RECV_KEPT:
        atomic_store_explicit(&n->recv_kept, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_PROVIDER:
        atomic_store_explicit(&n->provider, (uint32_t)f->value, memory_order_relaxed);
        break;
    case FAB_FAULT_MR_HANG:
        atomic_store_explicit(&n->mr_hang, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_GID_CHANGE:
        atomic_fetch_add_explicit(&n->epoch, 1, memory_order_relaxed);
        break;
    case FAB_FAULT_UP:
        gone = atomic_load_explicit(&n->gone, memory_order_relaxed);
        if (gone != 0 && gone != FAB_FAULT_UNPLUG + 1) {
            device_return(n);
        }
        break;
    case FAB_FAULT_RESTORE:
        atomic_store_explicit(&n->retry7, 0, memory_order_relaxed);
        atomic_store_explicit(&n->recv_kept, 0, memory_order_relaxed);
        atomic_store_explicit(&n->mr_hang, 0, memory_order_relaxed);
        atomic_store_explicit(&n->silent_death, 0, memory_order_relaxed);
        atomic_store_explicit(&n->gpu_dma_fail, 0, memory_order_relaxed);
        device_return(n);
        break;
    default:
        break;
    }
}

/* @other: the fault's part at other ports (fab_fault_other). */
static void nic_apply(struct seg *seg, int host, int nic, const struct fab_fault *f, bool other)
{
    struct seg_nic *n = seg_nic_at(seg, host, nic);
    uint32_t seq = atomic_load_explicit(&n->fault_seq, memory_order_relaxed) + 1;
    struct seg_fault *e = &n->log[seq % SEG_FAULT_LOG];
    struct fab_link l;

    seg_link_read(n, &l);
    if (other && !fab_fault_moves(f, &l)) {
        return;
    }
    fab_link_fault(&l, f, seg->head.desc.nic[host][nic].rate);
    link_write(n, &l);
    device_write(n, f);
    atomic_store_explicit(&e->kind, f->kind, memory_order_relaxed);
    atomic_store_explicit(&e->value, f->value, memory_order_relaxed);
    /* Pairs with the acquire of fault_seq in engines: all of the above comes with it. */
    atomic_store_explicit(&n->fault_seq, seq, memory_order_release);
}

bool seg_fault_read(struct seg_nic *n, uint32_t seq, struct fab_fault *f)
{
    struct seg_fault *e = &n->log[seq % SEG_FAULT_LOG];

    *f = (struct fab_fault){.host = -1, .nic = -1};
    f->kind = (enum fab_fault_kind)atomic_load_explicit(&e->kind, memory_order_relaxed);
    f->value = atomic_load_explicit(&e->value, memory_order_relaxed);
    /* The writer overwrites an entry before it moves fault_seq: one entry less than the log's size
     * is surely whole. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&n->fault_seq, memory_order_relaxed) - seq < SEG_FAULT_LOG - 1;
}

static void all_apply(struct seg *seg, const struct fab_fault *f, bool other)
{
    const struct fab_desc *d = &seg->head.desc;

    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            if (fab_ports_has(fab_ports(f->host, f->nic), h, n)) {
                nic_apply(seg, h, n, f, other);
            }
        }
    }
}

#define SEEN_NS (5 * SEG_NSEC_PER_SEC)

/* Whether every process that has the NIC open has taken up fault generation @gen; false where one
 * stands still. */
static bool all_seen(struct seg_map *m, int host, int nic, uint32_t gen)
{
    uint64_t until = seg_now() + SEEN_NS;

    for (int i = 0; i < SEG_SLOTS; i++) {
        struct seg_slot *s = &m->seg->slot[i];
        pid_t pid;

        while ((atomic_load_explicit(&s->incarnation, memory_order_acquire) & 1) != 0 &&
               i != m->slot &&
               atomic_load_explicit(&s->host, memory_order_relaxed) == (uint32_t)host &&
               (atomic_load_explicit(&s->nics_open, memory_order_relaxed) >> nic & 1) != 0 &&
               (int32_t)(atomic_load_explicit(&s->fault_gen, memory_order_acquire) - gen) < 0 &&
               seg_slot_alive(m, i, &pid)) {
            if (seg_now() >= until) {
                return false;
            }
            seg_bell_wake(m->seg, i);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    return true;
}

/* What a program sees of the devices beside verbs. */
static void trees_follow(struct seg_map *m, const struct fab_fault *f, uint32_t gen)
{
    const struct fab_desc *d = &m->seg->head.desc;

    if (f->at == FAB_AT_SPINE ||
        (f->kind != FAB_FAULT_REMOVE && f->kind != FAB_FAULT_UP && f->kind != FAB_FAULT_RESTORE)) {
        return;
    }
    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            if (fab_ports_has(fab_ports(f->host, f->nic), h, n)) {
                bool gone = atomic_load_explicit(&seg_nic_at(m->seg, h, n)->gone,
                                                 memory_order_relaxed) == FAB_FAULT_REMOVE + 1;

                if (!gone || all_seen(m, h, n, gen)) {
                    seg_sysfs_device_set(m->dir, d, h, n, !gone);
                }
            }
        }
    }
}

int seg_fault_fits_desc(const struct fab_desc *d, const char *name, const struct fab_fault *f,
                        char *why, size_t why_len)
{
    bool here = f->host >= d->hosts || f->nic >= d->nics;

    if (!fab_fault_spine_fits(f, d, why, why_len)) {
        return -1;
    }
    if (fab_fault_fits(f, d->hosts, d->nics)) {
        return 0;
    }
    snprintf(why, why_len, "no NIC h%d:n%d: %s%s has %d hosts with %d NICs",
             here ? f->host : (int)(f->value >> 16) - 1,
             here ? f->nic : (int)(f->value & 0xffff) - 1, name ? "fabric " : "the fabric",
             name ? name : "", d->hosts, d->nics);
    return -1;
}

int seg_fault_fits(const struct seg_map *m, const struct fab_fault *f, char *why, size_t why_len)
{
    return seg_fault_fits_desc(&m->seg->head.desc, m->seg->head.name, f, why, why_len);
}

int seg_fault_apply(struct seg_map *m, const struct fab_fault *f, char *why, size_t why_len)
{
    struct flock fl = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SEG_LOCK_FAULT, .l_len = 1};
    struct fab_fault other;
    uint32_t gen;

    if (seg_fault_fits(m, f, why, why_len) != 0) {
        return -1;
    }
    while (fcntl(m->alive_fd, F_SETLKW, &fl) != 0) {
        if (errno != EINTR) {
            snprintf(why, why_len, "cannot lock %s/alive: %s", m->dir, strerror(errno));
            return -1;
        }
    }
    seg_rails_fault(m->seg, f);
    if (f->at == FAB_AT_NIC) {
        all_apply(m->seg, f, false);
    }
    if (fab_fault_other(f, &other)) {
        all_apply(m->seg, &other, true);
    }
    gen = atomic_fetch_add_explicit(&m->seg->head.fault_gen, 1, memory_order_seq_cst) + 1;
    seg_bell_ring_all(m->seg);
    trees_follow(m, f, gen);
    fl.l_type = F_UNLCK;
    fcntl(m->alive_fd, F_SETLK, &fl);
    return 0;
}
