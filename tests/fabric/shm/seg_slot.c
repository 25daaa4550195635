/* Slots: who lives in the fabric. The record lock on byte i of the alive file is the truth, the
 * words only follow it.
 */
#include "tests/fabric/shm/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int slot_lock(int fd, int i, short type)
{
    struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};

    return fcntl(fd, F_SETLK, &fl);
}

static void command_read(char *buf, size_t len)
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, len - 1);

    if (fd >= 0) {
        close(fd);
    }
    if (n <= 0) {
        snprintf(buf, len, "?");
        return;
    }
    buf[n] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
}

/* The slot is locked by us; its former owner is gone. What others do to it meanwhile: publish
 * records, set bits, ring.
 */
static void slot_take(struct seg_map *m, int i, int host)
{
    struct seg_slot *s = &m->seg->slot[i];
    uint32_t old = atomic_load_explicit(&s->incarnation, memory_order_relaxed);

    m->slot = i;
    m->reserved = 0;
    atomic_store_explicit(&s->pid, (int32_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&s->host, (uint32_t)host, memory_order_relaxed);
    atomic_store_explicit(&s->nics_open, 0, memory_order_relaxed);
    atomic_store_explicit(&s->starved, 0, memory_order_relaxed);
    atomic_store_explicit(&s->sleeping, 0, memory_order_relaxed);
    command_read(s->command, sizeof(s->command));
    /* The next odd number; a burial at the same time changes it by compare-and-swap and loses or
     * was first. Pairs with the acquire in seg_ring_reserve. */
    while (!atomic_compare_exchange_weak_explicit(&s->incarnation, &old,
                                                  (old | 1) == old ? old + 2 : old + 1,
                                                  memory_order_seq_cst, memory_order_relaxed)) {
    }
    /* Records for the former owner go now, so that their senders find room again. */
    atomic_store_explicit(&s->pending, UINT64_MAX, memory_order_seq_cst);
    for (int src = 0; src < SEG_SLOTS; src++) {
        if (!seg_ring_empty(m, src)) {
            seg_ring_peek(m, src);
        }
    }
}

int seg_slot_attach(struct seg_map *m, int host, char *why, size_t why_len)
{
    if (host < 0 || host >= m->seg->head.desc.hosts) {
        snprintf(why, why_len, "fabric %s has hosts 0 to %d, not %d", m->seg->head.name,
                 m->seg->head.desc.hosts - 1, host);
        return -1;
    }
    for (int i = 0; i < SEG_SLOTS; i++) {
        if (slot_lock(m->alive_fd, i, F_WRLCK) == 0) {
            slot_take(m, i, host);
            return 0;
        }
        if (errno != EACCES && errno != EAGAIN) {
            snprintf(why, why_len, "cannot lock %s/alive: %s", m->dir, strerror(errno));
            return -1;
        }
    }
    snprintf(why, why_len, "fabric %s has %d processes already, its most", m->seg->head.name,
             SEG_SLOTS);
    return -1;
}

void seg_slot_detach(struct seg_map *m)
{
    if (m->slot < 0) {
        return;
    }
    /* Even first: senders stop. Then the lock goes, and with it the slot. */
    atomic_fetch_add_explicit(&m->seg->slot[m->slot].incarnation, 1, memory_order_seq_cst);
    slot_lock(m->alive_fd, m->slot, F_UNLCK);
    m->slot = -1;
}

bool seg_slot_alive(const struct seg_map *m, int i, pid_t *pid_p)
{
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};

    if (i == m->slot) {
        *pid_p = getpid();
        return true;
    }
    if (fcntl(m->alive_fd, F_GETLK, &fl) != 0 || fl.l_type == F_UNLCK) {
        return false;
    }
    /* A lock holder of another pid namespace shows as 0 or -1; what it wrote itself is better than
     * nothing. */
    *pid_p =
        fl.l_pid > 0 ? fl.l_pid : atomic_load_explicit(&m->seg->slot[i].pid, memory_order_relaxed);
    return true;
}

bool seg_slot_bury(struct seg_map *m, int i)
{
    struct seg_slot *s = &m->seg->slot[i];
    uint32_t seen = atomic_load_explicit(&s->incarnation, memory_order_acquire);
    pid_t pid;

    if (!(seen & 1)) {
        return true;
    }
    if (seg_slot_alive(m, i, &pid)) {
        return false;
    }
    /* A new owner between the two lines above has another number, and the swap fails. */
    return atomic_compare_exchange_strong_explicit(&s->incarnation, &seen, seen + 1,
                                                   memory_order_seq_cst, memory_order_relaxed);
}

uint32_t seg_slot_qpn_next(struct seg_map *m)
{
    uint32_t span = (1u << SEG_QPN_BITS) - SEG_QPN_FIRST;
    uint32_t n =
        atomic_fetch_add_explicit(&m->seg->slot[m->slot].qpn_next, 1, memory_order_relaxed);

    return (uint32_t)m->slot << SEG_QPN_BITS | (SEG_QPN_FIRST + n % span);
}
