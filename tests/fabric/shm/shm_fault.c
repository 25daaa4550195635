/* Faults of the segment, applied to the NICs of this process. */
#include "tests/fabric/shm/shm_engine.h"

static void device_fault(struct shm_nic *n, enum fab_fault_kind kind, uint64_t value)
{
    struct fab_fault f = {.host = -1, .nic = -1, .kind = kind, .value = value};

    fab_nic_fault(&n->nic, &f, true);
}

/* The words stand for what the log no longer holds: events in between are lost, the state is right.
 */
static void state_take(struct shm_nic *n)
{
    struct fab_link l;
    uint32_t gone = atomic_load_explicit(&n->seg->gone, memory_order_relaxed);

    seg_link_read(n->seg, &l);
    if (gone == 0 && n->nic.gone) {
        device_fault(n, FAB_FAULT_RESTORE, 0);
    }
    if (l.down != n->nic.link.down) {
        device_fault(n, l.down ? FAB_FAULT_DOWN : FAB_FAULT_UP, 0);
    }
    n->nic.link = l;
    while (n->nic.gid_epoch != atomic_load_explicit(&n->seg->epoch, memory_order_relaxed)) {
        device_fault(n, FAB_FAULT_GID_CHANGE, 0);
    }
    if (atomic_load_explicit(&n->seg->hung, memory_order_relaxed) != n->nic.hung) {
        device_fault(n, n->nic.hung ? FAB_FAULT_UNHANG : FAB_FAULT_HANG, 0);
    }
    n->nic.retry7_forever = atomic_load_explicit(&n->seg->retry7, memory_order_relaxed) != 0;
    n->nic.silent_death = atomic_load_explicit(&n->seg->silent_death, memory_order_relaxed) != 0;
    n->nic.recv_kept = atomic_load_explicit(&n->seg->recv_kept, memory_order_relaxed) != 0;
    n->nic.gpu_dma_fail = atomic_load_explicit(&n->seg->gpu_dma_fail, memory_order_relaxed) != 0;
    n->nic.provider =
        (enum fab_provider)atomic_load_explicit(&n->seg->provider, memory_order_relaxed);
    n->nic.mr_hang = atomic_load_explicit(&n->seg->mr_hang, memory_order_relaxed) != 0;
    if (atomic_load_explicit(&n->seg->mr_fail, memory_order_relaxed) != 0) {
        n->nic.mr_fail = UINT32_MAX;
    }
    if (atomic_load_explicit(&n->seg->call_error, memory_order_relaxed) != 0) {
        n->nic.call_error = UINT32_MAX;
    }
    if (gone != 0 && !n->nic.gone) {
        device_fault(n, (enum fab_fault_kind)(gone - 1), 0);
    }
}

void shm_faults_init(struct shm_engine *e, int i)
{
    struct shm_nic *n = &e->nic[i];

    n->fault_seq = atomic_load_explicit(&n->seg->fault_seq, memory_order_acquire);
    state_take(n);
}

static void nic_faults(struct shm_nic *n)
{
    /* Pairs with the release in seg_fault.c. */
    uint32_t newest = atomic_load_explicit(&n->seg->fault_seq, memory_order_acquire);
    struct fab_fault f;

    while (n->fault_seq != newest) {
        if (newest - n->fault_seq >= SEG_FAULT_LOG - 1 ||
            !seg_fault_read(n->seg, n->fault_seq + 1, &f)) {
            n->fault_seq = newest;
            state_take(n);
            return;
        }
        n->fault_seq++;
        fab_nic_fault(&n->nic, &f, true);
        n->tx_deadline = 0;
    }
}

void shm_faults_run(struct shm_engine *e)
{
    uint32_t gen = atomic_load_explicit(&e->map.seg->head.fault_gen, memory_order_acquire);

    if (gen == e->fault_gen) {
        return;
    }
    e->fault_gen = gen;
    for (int i = 0; i < e->map.seg->head.desc.nics; i++) {
        nic_faults(&e->nic[i]);
    }
    if (e->map.slot >= 0) { /* pairs with the acquire in seg_fault.c: no packet is taken any more by
                               a device that died */
        atomic_store_explicit(&e->map.seg->slot[e->map.slot].fault_gen, gen, memory_order_release);
    }
}
