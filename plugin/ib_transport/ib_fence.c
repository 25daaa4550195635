#include "ib_fence.h"

#include <errno.h>
#include <stdbool.h>

#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "ib_fence_proof.h"

#define RETRY_NS                                                                                   \
    (50 * 1000000ull) /* a soft fence tries again after this, then ever more rarely: a thousand    \
                         dead queue pairs */
#define RETRY_MAX_NS                                                                               \
    (20 * RETRY_NS) /* would keep the worker and the service thread busy with calls that fail */
#define MARKS_AGAIN   3
#define DRAIN_POLL_NS 50000ull /* flushes take microseconds: look again soon, without spinning */

static const char *const stage_names[IB_FENCE_STAGES] = {"idle", "to error", "draining", "hard",
                                                         "soft"};

const char *ib_fence_stage_name(enum ib_fence_stage s)
{
    return (unsigned)s < IB_FENCE_STAGES ? stage_names[s] : "?";
}

/* The only writer of the stage; a path that returns has a new fence. Row: from. Refused: whoever
 * calls changes nothing else, either. */
static bool fence_move(struct ib_fence *f, enum ib_fence_stage to)
{
    static const unsigned char legal[IB_FENCE_STAGES][IB_FENCE_STAGES] = {
        [IB_FENCE_IDLE] = {[IB_FENCE_ERROR] = 1, [IB_FENCE_HARD] = 1},
        [IB_FENCE_ERROR] = {[IB_FENCE_DRAIN] = 1, [IB_FENCE_HARD] = 1, [IB_FENCE_SOFT] = 1},
        [IB_FENCE_DRAIN] = {[IB_FENCE_ERROR] = 1, [IB_FENCE_HARD] = 1, [IB_FENCE_SOFT] = 1},
        [IB_FENCE_SOFT] = {[IB_FENCE_HARD] = 1},
    };

    if (!legal[f->stage][to]) {
        R2_WARN("fence of path %u cannot go from %s to %s", f->path ? f->path->index : 0,
                stage_names[f->stage], stage_names[to]);
        return false;
    }
    f->stage = to;
    return true;
}

static void job_run(struct ib_job *job)
{
    struct ib_fence *f = (struct ib_fence *)job;
    struct ib_nic *nic = &f->conn->nics->nic[f->path->nic];
    uint64_t asked = ib_conn_now(f->conn);
    int rc;

    if (f->job_ask_at == 0) {
        atomic_store_explicit(&f->job_started, asked, memory_order_release);
    } else if (atomic_load_explicit(&nic->asked, memory_order_relaxed) >= f->job_ask_at) {
        atomic_store_explicit(&f->job_rc, 0, memory_order_release); /* answered to others */
        return;
    }
    rc = ib_path_error(f->conn, f->path);
    if (rc == 0) { /* in this order: who reads a question has its answer, or a later one */
        atomic_store_explicit(&nic->answered, ib_conn_now(f->conn), memory_order_relaxed);
        atomic_store_explicit(&nic->asked, asked, memory_order_release);
    }
    if (rc != 0 && ib_nic_is_gone(f->conn->nics, f->path->nic)) {
        atomic_store_explicit(&f->job_gone, 1, memory_order_release);
    }
    atomic_store_explicit(&f->job_rc, rc, memory_order_release);
}

static void job_done(struct ib_job *job)
{
    struct ib_fence *f = (struct ib_fence *)job;

    f->notify(f->notify_arg);
}

static void submit(struct ib_fence *f, struct ib_workers *w, uint64_t ask_at)
{
    f->job_ask_at = ask_at;
    atomic_store_explicit(&f->job_rc, -1, memory_order_relaxed);
    if (ask_at == 0) {
        atomic_store_explicit(&f->job_started, 0, memory_order_relaxed);
    }
    f->job.run = job_run;
    f->job.done = job_done;
    ib_workers_submit(w, f->conn->nics->nic[f->path->nic].device_index, &f->job);
}

void ib_fence_begin(struct ib_fence *f, struct ib_workers *w, uint64_t now, int urgent)
{
    if (!fence_move(f, IB_FENCE_ERROR)) {
        return; /* its job may be with the worker, and reads what follows */
    }
    f->job.urgent = urgent;
    f->path->marker.out = f->path->marker.by_nic = f->path->marker.posted = 0;
    f->idle = f->path->sq.used == 0 && !f->path->failed;
    f->refused = f->queried = f->again = f->flushed = 0;
    f->erred_at = 0;
    f->quiet_at = UINT64_MAX;
    f->since = now;
    ib_path_mark(f->path); /* what fails here is tried again behind ERR */
    submit(f, w, 0);
}

void ib_fence_without(struct ib_fence *f)
{
    if (fence_move(f, IB_FENCE_HARD)) {
        f->path->open = 0;
    }
}

/* The incarnation is closed: from here no completion of it enters the ledger (P16.5). */
static void close_incarnation(struct ib_fence *f, enum ib_fence_stage stage, uint64_t now)
{
    if (!fence_move(f, stage)) {
        return;
    }
    if (r2_rule(R2_RULE_CLOSE_INCARNATION)) {
        f->path->open = 0;
    }
    f->path->closed_at = now;
}

static void close_soft(struct ib_fence *f, uint64_t now)
{
    int rc = atomic_load_explicit(&f->job_rc, memory_order_acquire);

    f->drain(f->half, f->path->index); /* what is there counts still */
    R2_INFO(
        "path %u life %u on %s is not drained: ibv_modify_qp %s (%d), markers posted %u, out %u, send slots used %u",
        f->path->index, f->path->inc, f->conn->nics->nic[f->path->nic].name,
        rc < 0 ? "is out"
        : rc   ? "failed"
               : "done",
        rc, f->path->marker.posted, f->path->marker.out, f->path->sq.used);
    close_incarnation(f, IB_FENCE_SOFT, now);
    f->retry_ns = RETRY_NS;
    f->retry_at = now + f->retry_ns;
}

static int late(const struct ib_fence *f, uint64_t now, uint64_t worker_alive)
{
    uint64_t limit = (uint64_t)f->conn->cfg->t_fence_ms * 1000000;
    uint64_t started = atomic_load_explicit(&f->job_started, memory_order_acquire);
    uint64_t from = started ? started : f->since > worker_alive ? f->since : worker_alive;

    return now > from && now - from > limit;
}

static uint64_t t_pcie(const struct ib_fence *f)
{
    return (uint64_t)f->conn->cfg->t_pcie_ms * 1000000;
}

/* At R: the receive marker that was posted before ERR, if any, was taken by an arrival. */
static int lacks_marker(const struct ib_fence *f)
{
    return f->path->mem.ring == NULL && !(f->path->marker.posted & IB_MARK_RECV);
}

/* Posts the markers that are missing, behind ERR. */
static void mark_behind(struct ib_fence *f)
{
    int rc = ib_path_mark(f->path);

    f->refused = rc != 0 && rc != ENOMEM; /* a full queue says nothing */
}

/*
 * The same for one that an arrival has taken. 1: the queue pair moves to ERR once more, since
 * rdma_rxe flushes what is posted in ERR with the next move alone; the others flush it at once.
 * Only so often: nothing arrives any more, but where a device takes packets in ERR.
 */
static int mark_again(struct ib_fence *f, struct ib_workers *w)
{
    if (!lacks_marker(f) || f->refused || f->again == MARKS_AGAIN || f->job.busy) {
        return 0;
    }
    f->again++;
    mark_behind(f);
    if (lacks_marker(f)) {
        return 0;
    }
    submit(f, w, 0);
    return 1;
}

/* The device has said that the queue pair is in ERR. */
static void erred(struct ib_fence *f, uint64_t now)
{
    f->erred_at = now;
    if (!lacks_marker(f)) {
        mark_behind(f);
    }
}

/* What is proved by now; a last question where the time is up. */
static enum ib_fence_proof proof(struct ib_fence *f, uint64_t now)
{
    const struct ib_path *p = f->path;
    struct ib_fence_facts facts = {.sender = p->mem.ring != NULL,
                                   .posted = p->marker.posted,
                                   .out = p->marker.out,
                                   .out_nic = p->marker.by_nic,
                                   .idle = f->idle,
                                   .late = late(f, now, now)};
    enum ib_fence_proof r;

    if (facts.late && !f->queried && (facts.out & facts.posted) != facts.posted) {
        f->queried = 1;
        f->refused |= ib_path_refuses(f->path);
    }
    facts.refused = f->refused;
    r = ib_fence_proof(&facts);
    return r == IB_PROOF_LIBRARY && !r2_rule(R2_RULE_TOLD) ? IB_PROOF_NIC : r;
}

/*
 * P16.4: the device may have hung since it said ERR, with writes in hand. It is asked again half of
 * T_pcie later, by the move of any queue pair of that NIC to ERR; what is left then is in memory
 * half of T_pcie after that answer.
 */
static uint64_t ask_at(const struct ib_fence *f)
{
    return f->erred_at + t_pcie(f) / 2;
}

static void take_answer(struct ib_fence *f)
{
    const struct ib_nic *nic = &f->conn->nics->nic[f->path->nic];

    /* pairs with the worker's release */
    if (f->quiet_at == UINT64_MAX && f->erred_at &&
        atomic_load_explicit(&nic->asked, memory_order_acquire) >= ask_at(f)) {
        f->quiet_at = atomic_load_explicit(&nic->answered, memory_order_relaxed) + t_pcie(f) / 2;
    }
}

int ib_fence_is_quiet(const struct ib_fence *f, uint64_t now)
{
    return f->stage == IB_FENCE_HARD || now >= f->quiet_at;
}

/* The library's word, held for as long as the device may have something in hand. */
static void close_flushed(struct ib_fence *f, uint64_t now)
{
    f->flushed = 1;
    take_answer(f);
    if (now >= f->quiet_at) {
        close_incarnation(f, IB_FENCE_HARD, now);
        return;
    }
    R2_INFO(
        "path %u life %u on %s is flushed by its library: quarantined until the device answers again",
        f->path->index, f->path->inc, f->conn->nics->nic[f->path->nic].name);
    close_incarnation(f, IB_FENCE_SOFT, now);
    f->retry_ns = RETRY_NS;
    f->retry_at = now + f->retry_ns;
}

static void step_error(struct ib_fence *f, uint64_t now, uint64_t worker_alive)
{
    int rc = atomic_load_explicit(&f->job_rc, memory_order_acquire);

    if (rc < 0) {
        if (late(f, now, worker_alive)) {
            close_soft(f, now);
        }
        return;
    }
    if (!r2_rule(R2_RULE_MARKERS)) {
        close_incarnation(f, IB_FENCE_HARD,
                          now); /* rule off: the snapshot does not wait for the NIC */
        return;
    }
    if (rc != 0) {
        close_soft(f, now);
        return;
    }
    erred(f, now);
    fence_move(f, IB_FENCE_DRAIN);
}

static void step_drain(struct ib_fence *f, struct ib_workers *w, uint64_t now)
{
    if (f->drain(f->half, f->path->index) < 0) {
        close_soft(f, now);
        return;
    }
    if (mark_again(f, w)) {
        f->since = now;
        fence_move(f, IB_FENCE_ERROR);
        return;
    }
    switch (proof(f, now)) {
    case IB_PROOF_NIC:
        close_incarnation(f, IB_FENCE_HARD, now);
        break;
    case IB_PROOF_LIBRARY:
        close_flushed(f, now);
        break;
    case IB_PROOF_NONE:
        close_soft(f, now);
        break;
    case IB_PROOF_WAIT:
        break;
    }
}

/* The device has answered, perhaps late: what it and its library tell by now. */
static void step_soft_erred(struct ib_fence *f, struct ib_workers *w, uint64_t now, int rc)
{
    enum ib_fence_proof r;

    if (f->erred_at == 0) {
        erred(f, now);
        f->retry_ns = DRAIN_POLL_NS; /* the driver answers: what it flushes comes soon */
        f->retry_at = now;
    }
    take_answer(f);
    if (f->quiet_at == UINT64_MAX && now >= ask_at(f) && !f->job.busy &&
        (rc == 0 || now >= f->retry_at)) {
        f->job.urgent = 0; /* the first moves of others are, and are answers, too */
        submit(f, w, ask_at(f));
    }
    if (f->drain(f->half, f->path->index) < 0 || mark_again(f, w)) {
        return;
    }
    r = proof(f, now);
    f->flushed |= r == IB_PROOF_LIBRARY;
    if (r == IB_PROOF_NIC || (f->flushed && now >= f->quiet_at)) {
        fence_move(f, IB_FENCE_HARD);
    }
}

/*
 * The driver does not answer, and the NIC speaks for itself: the queue pair has gone to ERR, as
 * where RC gives up, and the NIC has flushed both markers. The receive's is the proof of ERR, since
 * the send's may have been executed.
 */
static int has_broken_itself(struct ib_fence *f)
{
    const struct ib_path *p = f->path;

    return f->drain(f->half, p->index) == 0 && p->marker.posted == IB_MARK_BOTH &&
           p->marker.by_nic == IB_MARK_BOTH;
}

/* P18 (a): the hard fence comes after all, or the kernel has removed the device. Arrivals found on
 * the way no longer count. */
static void step_soft(struct ib_fence *f, struct ib_workers *w, uint64_t now)
{
    int rc = atomic_load_explicit(&f->job_rc, memory_order_acquire);

    if (ib_nic_state_get(&f->conn->nics->nic[f->path->nic]) == IB_NIC_GONE) {
        atomic_store_explicit(&f->job_gone, 1,
                              memory_order_release); /* seen since the job looked */
    }
    if (atomic_load_explicit(&f->job_gone, memory_order_acquire)) {
        fence_move(f, IB_FENCE_HARD);
        return;
    }
    if (rc == 0 || f->erred_at) {
        step_soft_erred(f, w, now, rc); /* also while a question is out */
    } else if (has_broken_itself(f)) {
        fence_move(f, IB_FENCE_HARD);
        return;
    } else if (rc > 0 && now >= f->retry_at && !f->job.busy) {
        submit(f, w, 0);
    }
    if (now >= f->retry_at) {
        f->retry_ns = f->retry_ns * 2 < RETRY_MAX_NS ? f->retry_ns * 2 : RETRY_MAX_NS;
        f->retry_at = now + f->retry_ns;
    }
}

enum ib_fence_stage ib_fence_step(struct ib_fence *f, struct ib_workers *w, uint64_t now,
                                  uint64_t worker_alive)
{
    if (f->stage == IB_FENCE_ERROR) {
        step_error(f, now, worker_alive);
    }
    if (f->stage == IB_FENCE_DRAIN) {
        step_drain(f, w, now);
    } else if (f->stage == IB_FENCE_SOFT) {
        step_soft(f, w, now);
    }
    return f->stage;
}

static uint64_t soft_deadline(const struct ib_fence *f, uint64_t now)
{
    uint64_t next = f->retry_at;

    if (f->erred_at && ask_at(f) > now && ask_at(f) < next) {
        next = ask_at(f);
    }
    return f->quiet_at > now && f->quiet_at < next ? f->quiet_at : next;
}

uint64_t ib_fence_deadline(const struct ib_fence *f, uint64_t now)
{
    switch (f->stage) {
    case IB_FENCE_ERROR:
        return now + (uint64_t)f->conn->cfg->t_fence_ms * 1000000;
    case IB_FENCE_DRAIN:
        return now + DRAIN_POLL_NS;
    case IB_FENCE_SOFT:
        return soft_deadline(f, now);
    default:
        return UINT64_MAX;
    }
}
