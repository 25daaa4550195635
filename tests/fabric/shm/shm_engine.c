/* Life of the engine, its lock, its turns and its thread. */
#include "tests/fabric/shm/shm_engine.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t g_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards g_engine; taken before an engine's lock */
static struct shm_engine *g_engine;

/* --- turns --- */

static void deadline_compute(struct shm_engine *e)
{
    uint64_t d = e->ring_deadline;

    if (e->heap_len > 0 && e->heap[0]->when < d) {
        d = e->heap[0]->when;
    }
    if (e->held_len > 0 && e->held[0].due < d) {
        d = e->held[0].due;
    }
    for (int i = 0; i < e->map.seg->head.desc.nics; i++) {
        if (fab_nic_tx_pending(&e->nic[i].nic) && e->nic[i].tx_deadline < d) {
            d = e->nic[i].tx_deadline;
        }
    }
    e->deadline = d;
}

void shm_progress(struct shm_engine *e)
{
    if (!e->attached || e->orphan) {
        return;
    }
    e->now = seg_now();
    shm_faults_run(e);
    shm_rx_run(e);
    shm_timers_run(e);
    shm_tx_run(e);
    shm_bells_run(e);
    shm_pkts_trim(e);
    deadline_compute(e);
}

static void engine_lock(struct fab_engine *base)
{
    pthread_mutex_lock(&shm_engine_of(base)->lock);
}

/* A caller that leaves something to be done earlier than the NIC thread would wake wakes it. */
static void engine_unlock(struct fab_engine *base)
{
    struct shm_engine *e = shm_engine_of(base);
    bool wake = e->attached && !e->orphan && e->thread_deadline != 0 &&
                e->deadline < e->thread_deadline && e->thread_deadline - e->deadline > SHM_SLACK_NS;

    if (wake) {
        e->thread_deadline = 0;
    }
    pthread_mutex_unlock(&e->lock);
    if (wake) {
        seg_bell_wake(e->map.seg, e->map.slot);
    }
}

static void nics_open_note(struct shm_engine *e)
{
    uint64_t open = 0;

    for (int i = 0; i < e->map.seg->head.desc.nics; i++) {
        open |= (uint64_t)(e->nic[i].nic.ctxs != NULL) << i;
    }
    atomic_store_explicit(&e->map.seg->slot[e->map.slot].nics_open, open, memory_order_relaxed);
}

/*
 * The thread stands for hardware, which does not wait for a core, while programs that spin on
 * memory for their data keep every core busy. With the right to it: the lowest real-time priority.
 * It never spins, and real-time throttling bounds it besides. Without: a slice shorter than those
 * of the spinners, so that it preempts them when it wakes (Linux 6.12 and later; a core in lazy
 * preemption still finishes its tick). Where the kernel refuses both, the thread is an ordinary
 * one.
 */
static void thread_schedule(void)
{
    struct sched_param rt = {.sched_priority = 1};
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof(attr), .policy = SCHED_OTHER, .runtime = 100000};

    if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &rt) != 0) {
        attr.nice = getpriority(PRIO_PROCESS, 0);
        syscall(SYS_sched_setattr, 0, &attr, 0);
    }
    /* The default lets every deadline be 50 us late. */
    prctl(PR_SET_TIMERSLACK, 1);
}

/* While the program polls; @calls is its count at the start. */
static void thread_nap(struct shm_engine *e, uint64_t calls)
{
    uint64_t made;

    do {
        uint32_t ticket = seg_bell_ticket(&e->map);
        seg_bell_nap(&e->map, ticket, seg_now() + SHM_NAP_NS);
        pthread_mutex_lock(&e->lock);
        if (seg_bell_ticket(&e->map) != ticket) {
            shm_progress(e);
        }
        made = e->calls - calls;
        calls = e->calls;
        pthread_mutex_unlock(&e->lock);
    } while (made >= SHM_NAP_CALLS);
}

/* Whether packets arrive while the thread lingers, still deaf to bells. */
static bool thread_linger(struct shm_engine *e)
{
    _Atomic uint64_t *pending = &e->map.seg->slot[e->map.slot].pending;
    uint64_t end = seg_now() + SHM_LINGER_NS;

    if (e->linger < 0) {
        e->linger++;
        return false;
    }
    do {
        for (int i = 0; i < 8; i++) {
            if (atomic_load_explicit(pending, memory_order_relaxed) != 0) {
                return true;
            }
            seg_relax();
        }
    } while (seg_now() < end);
    e->linger = -SHM_LINGER_SKIP;
    return false;
}

/* Senders see the flag from here on; what they sent before is looked for once more. */
static void thread_sleep(struct shm_engine *e, uint32_t ticket, uint64_t deadline)
{
    seg_bell_prepare(&e->map, deadline);
    if (atomic_load_explicit(&e->map.seg->slot[e->map.slot].pending, memory_order_seq_cst) != 0) {
        seg_bell_cancel(&e->map);
    } else {
        seg_bell_wait(&e->map, ticket, deadline);
    }
}

static void *thread_main(void *arg)
{
    struct shm_engine *e = arg;

    prctl(PR_SET_NAME, "softfab-nic");
    thread_schedule();
    for (;;) {
        /* The bell's count before the turn: whoever rings from here on ends the wait below at once.
         */
        uint32_t ticket = seg_bell_ticket(&e->map);
        pthread_mutex_lock(&e->lock);
        shm_progress(e);
        nics_open_note(e);
        uint64_t calls = e->calls;
        bool polled =
            e->last_idle && e->idle_polls >= SHM_IDLE_POLLS && e->now - e->call_last < SHM_IDLE_NS;
        bool more = e->deadline <= e->now, moved = e->moved;
        e->thread_deadline = more || polled ? 0 : e->deadline;
        uint64_t deadline = e->thread_deadline;
        pthread_mutex_unlock(&e->lock);
        if (polled) {
            thread_nap(e, calls);
        } else if (!more && !(moved && thread_linger(e))) {
            thread_sleep(e, ticket, deadline);
        }
    }
    return NULL;
}

/* --- what the model and the front-end call --- */

static uint64_t engine_now(struct fab_engine *base)
{
    return seg_now();
}

static void engine_timer_set(struct fab_engine *base, struct fab_timer *t, uint64_t when)
{
    struct shm_engine *e = shm_engine_of(base);

    shm_timer_set(base, t, when);
    if (when < e->deadline) {
        e->deadline = when;
    }
}

static void engine_tx_kick(struct fab_engine *base, struct fab_nic *nic)
{
    shm_nic_of(nic)->tx_deadline = 0;
    shm_engine_of(base)->deadline = 0;
}

static uint64_t engine_no_delay(struct fab_engine *base, struct fab_nic *nic, uint32_t len)
{
    return 0;
}

static uint64_t engine_no_cqe_delay(struct fab_engine *base, struct fab_nic *nic)
{
    return 0;
}

static int engine_resolve(struct fab_engine *base, struct fab_nic *nic,
                          const struct ibv_ah_attr *ah, struct fab_addr *dst)
{
    struct shm_engine *e = shm_engine_of(base);
    int rc = fab_desc_resolve(&e->map.seg->head.desc, nic->nic, &ah->grh.dgid, dst);

    if (rc == 0 &&
        dst->epoch != atomic_load_explicit(&seg_nic_at(e->map.seg, dst->host, dst->nic)->epoch,
                                           memory_order_relaxed)) {
        rc = ETIMEDOUT;
    }
    return rc;
}

static uint32_t engine_qpn_alloc(struct fab_engine *base, struct fab_nic *nic)
{
    struct shm_engine *e = shm_engine_of(base);

    if (e->orphan || !e->attached) {
        return 0;
    }
    for (uint32_t i = 0; i < (1u << SEG_QPN_BITS); i++) {
        uint32_t qpn = seg_slot_qpn_next(&e->map);
        if (fab_nic_find_qp(nic, qpn) == NULL) {
            return qpn;
        }
    }
    return 0;
}

static void engine_qpn_free(struct fab_engine *base, struct fab_nic *nic, uint32_t qpn)
{
}

static void engine_progress(struct fab_engine *base, struct fab_nic *nic)
{
    struct shm_engine *e = shm_engine_of(base);

    shm_progress(e);
    e->calls++;
    e->call_last = e->now;
    if (!e->last_idle) {
        e->idle_polls = 0;
    }
    e->last_idle = false;
}

static void engine_idle(struct fab_engine *base)
{
    struct shm_engine *e = shm_engine_of(base);

    e->last_idle = true;
    e->idle_polls++;
}

static int thread_start(struct shm_engine *e)
{
    sigset_t all, old;
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    /* The program's signals are the program's threads' business. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&e->thread, &attr, thread_main, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* The first open device makes the process an inhabitant of the fabric. */
static int engine_attach(struct shm_engine *e)
{
    char why[256];

    if (seg_slot_attach(&e->map, e->host, why, sizeof(why)) != 0) {
        fprintf(stderr, "softfab: %s\n", why);
        return EAGAIN;
    }
    e->attached = true;
    e->fault_gen = atomic_load_explicit(&e->map.seg->head.fault_gen, memory_order_acquire);
    for (int i = 0; i < e->map.seg->head.desc.nics; i++) {
        shm_faults_init(e, i);
    }
    e->rng.s = seg_now() ^ (uint64_t)getpid() << 32;
    int rc = thread_start(e);
    if (rc != 0) {
        seg_slot_detach(&e->map);
        e->attached = false;
    }
    return rc;
}

void shm_engine_refresh(struct shm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    if (e->attached) {
        shm_faults_run(e);
    } else {
        for (int i = 0; i < e->map.seg->head.desc.nics; i++) {
            shm_faults_init(e, i);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

static int engine_control(struct fab_engine *base, struct fab_nic *nic, enum fab_call call)
{
    struct shm_engine *e = shm_engine_of(base);

    if (e->orphan) {
        return EIO;
    }
    if (call == FAB_CALL_OPEN && !e->attached) {
        return engine_attach(e);
    }
    if (e->attached) {
        shm_faults_run(e);
    }
    return 0;
}

static const struct fab_engine_ops engine_ops = {
    .memory_has = shm_gpu_has,
    .memory_copy = shm_gpu_copy,
    .now = engine_now,
    .timer_set = engine_timer_set,
    .timer_cancel = shm_timer_cancel,
    .pkt_alloc = shm_pkt_alloc,
    .pkt_send = shm_pkt_send,
    .pkt_free = shm_pkt_free,
    .tx_kick = engine_tx_kick,
    .dma_delay = engine_no_delay,
    .cqe_delay = engine_no_cqe_delay,
    .resolve = engine_resolve,
    .qpn_alloc = engine_qpn_alloc,
    .qpn_free = engine_qpn_free,
    .lock = engine_lock,
    .unlock = engine_unlock,
    .progress = engine_progress,
    .idle = engine_idle,
    .control = engine_control,
};

/* --- life --- */

/*
 * Payload per packet, the same for the whole fabric because the two ends of a queue pair must
 * agree: packets of about 100 us share a rated link finely; without a rate the fewest packets are
 * the fastest.
 */
static uint32_t seg_bytes_choose(const struct fab_desc *d)
{
    uint32_t b = 32768;

    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            while (d->nic[h][n].rate != 0 && b > 4096 &&
                   fab_link_ns(d->nic[h][n].rate, b) > 100000) {
                b /= 2;
            }
        }
    }
    return b;
}

static int engine_nics_init(struct shm_engine *e)
{
    const struct fab_desc *d = &e->map.seg->head.desc;

    for (int i = 0; i < d->nics; i++) {
        const struct fab_nic_desc *nd = &d->nic[e->host][i];
        struct fab_nic_cfg cfg = {.latency_ns = nd->latency_ns,
                                  .base_rate = nd->rate,
                                  .reorder_ns = d->reorder ? FAB_REORDER_NS : 0};

        cfg.linger_ns = 1000000;
        cfg.seg_bytes = seg_bytes_choose(d);
        /* Small packets need more of them in flight: 1 MiB covers the time that a busy machine
         * takes to answer. */
        cfg.window = cfg.seg_bytes >= 16384 ? 64 : (1u << 20) / cfg.seg_bytes;
        e->nic[i].seg = seg_nic_at(e->map.seg, e->host, i);
        e->nic[i].tx_deadline = UINT64_MAX;
        if (fab_nic_init(&e->nic[i].nic, &e->base, e->host, i, &cfg) != 0) {
            return -1;
        }
        shm_faults_init(e, i);
    }
    return 0;
}

/* A program that loses its core while it holds the lock gets the NIC thread's priority until it
 * lets go. */
static void lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    if (pthread_mutex_init(lock, &attr) != 0) {
        pthread_mutex_init(lock, NULL);
    }
    pthread_mutexattr_destroy(&attr);
}

static struct shm_engine *engine_new(const char *dir, int host)
{
    char why[256] = "out of memory";
    struct shm_engine *e = calloc(1, sizeof(*e));

    if (e == NULL) {
        return NULL;
    }
    e->base.ops = &engine_ops;
    e->host = host;
    e->deadline = e->ring_deadline = UINT64_MAX;
    lock_init(&e->lock);
    e->scratch = malloc(1u << 20);
    if (e->scratch == NULL || seg_file_open(&e->map, dir, why, sizeof(why)) != 0) {
        goto err;
    }
    if (host >= e->map.seg->head.desc.hosts) {
        snprintf(why, sizeof(why), "%s=%d, but the fabric has hosts 0 to %d", SEG_ENV_HOST, host,
                 e->map.seg->head.desc.hosts - 1);
        goto err;
    }
    if (engine_nics_init(e) != 0) {
        goto err;
    }
    return e;
err:
    fprintf(stderr, "softfab: %s\n", why);
    seg_file_close(&e->map);
    free(e->scratch);
    free(e);
    errno = ENODEV;
    return NULL;
}

/*
 * A child has the memory but neither the thread nor the slot: what it inherited is dead to it, what
 * it opens is new. The lock may have been held by a thread that the child does not have.
 */
static void after_fork_child(void)
{
    pthread_mutex_init(&g_lock, NULL);
    if (g_engine != NULL) {
        lock_init(&g_engine->lock);
        g_engine->orphan = true;
        g_engine = NULL;
    }
}

struct shm_engine *shm_engine_get(void)
{
    static bool hooked;
    const char *dir = getenv(SEG_ENV_DIR), *host = getenv(SEG_ENV_HOST);
    char *end = NULL;

    if (dir == NULL || host == NULL) {
        errno = ENOSYS;
        return NULL;
    }
    long h = strtol(host, &end, 10);
    if (end == host || *end != '\0' || h < 0 || h >= FAB_MAX_HOSTS) {
        fprintf(stderr, "softfab: %s='%s' is not a host number\n", SEG_ENV_HOST, host);
        errno = EINVAL;
        return NULL;
    }
    pthread_mutex_lock(&g_lock);
    if (!hooked) {
        hooked = pthread_atfork(NULL, NULL, after_fork_child) == 0;
    }
    if (g_engine == NULL) {
        g_engine = engine_new(dir, (int)h);
    }
    struct shm_engine *e = g_engine;
    pthread_mutex_unlock(&g_lock);
    return e;
}
