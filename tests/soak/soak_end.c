/* One end of a connection in one lap: from listen or connect to close, as NCCL's threads do it. */
#include "tests/soak/soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HANG_NS  (20000 * SOAK_MS) /* nothing in a schedule keeps an end waiting for so long */
#define ENDED_NS (15000 * SOAK_MS) /* an error that is due comes within this */
#define CLOSE_NS (2000 * SOAK_MS)  /* close does not wait for anybody, busy machine or not */

uint8_t *soak_slot_at(const struct soak_end *e, uint32_t slot)
{
    return e->base + (size_t)(slot % (unsigned)e->cp->slots) * e->stride;
}

static size_t region_len(const struct soak_end *e)
{
    return e->stride * (unsigned)e->cp->slots;
}

void soak_end_moved(struct soak_end *e)
{
    e->moved_at = soak_now();
}

void soak_end_init(struct soak_end *e, int conn, int sender)
{
    const struct soak_plan *p = soak_rank.plan;
    struct fab_rng r = {p->seed * 1000003 + (unsigned)(conn * 2 + sender) * 977u +
                        (unsigned)soak_rank.lap};

    memset(e, 0, sizeof(*e));
    e->cp = &p->conn[conn];
    e->cb = &soak_rank.board->conn[conn];
    e->conn = conn;
    e->sender = sender;
    e->dev = sender ? e->cp->from_dev : e->cp->to_dev;
    e->rng.s = fab_rng_next(&r);
    e->key =
        (p->seed << 16 ^ (uint64_t)(conn * SOAK_LAPS + soak_rank.lap) * 0xd6e8feb86659fd93ull) | 1;
    e->msg = calloc((size_t)e->cp->msgs, sizeof(*e->msg));
    e->order = calloc((size_t)e->cp->msgs, sizeof(*e->order));
    if (e->msg == NULL || e->order == NULL) {
        soak_fail("memory");
    }
    soak_msgs_draw(p, conn, soak_rank.lap, e->msg, e->order);
    e->stride = ((size_t)e->cp->max_size + 2 * SOAK_GUARD + 128 + 4095) & ~(size_t)4095;
    e->base = mmap(NULL, region_len(e), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (e->base == MAP_FAILED) {
        soak_fail("mmap of %zu bytes", region_len(e));
    }
    e->moved_at = soak_now();
    e->act_at = e->moved_at + fab_rng_upto(&e->rng, e->cp->setup_us) * SOAK_US;
}

void soak_end_free(struct soak_end *e)
{
    if (!e->sender) {
        soak_recv_leave_check(e);
    }
    munmap(e->base, region_len(e));
    free(e->msg);
    free(e->order);
}

static void note_most(_Atomic uint64_t *most, uint64_t v)
{
    uint64_t old = atomic_load(most);

    while (v > old && !atomic_compare_exchange_weak(most, &old, v)) {
    }
}

int soak_end_error(struct soak_end *e, const char *call, int rc)
{
    uint64_t from = atomic_load(&e->cb->may_fail), now = soak_now();
    int killed = atomic_load(&soak_rank.board->killed);

    if (from == 0) {
        soak_fail("conn %d: %s returned %d: %s", e->conn, call, rc, soak_last_warn());
    }
    if (now > from && now - from > ENDED_NS) {
        soak_fail("conn %d: %s returned its error %llu ms after the cause", e->conn, call,
                  (unsigned long long)((now - from) / SOAK_MS));
    }
    if (killed >= 0 && (e->cp->from == killed || e->cp->to == killed) &&
        !atomic_load(&soak_rank.mine->named)) {
        soak_fail(
            "conn %d: %s returned %d, and no line names the process that was killed; the last one: %s",
            e->conn, call, rc, soak_last_warn());
    }
    note_most(&soak_rank.mine->ended, now > from ? now - from : 0);
    atomic_fetch_add(&soak_rank.mine->errors, 1);
    return 1;
}

static void state_to(struct soak_end *e, enum soak_state to)
{
    e->state = to;
    soak_end_moved(e);
}

static void close_begin(struct soak_end *e)
{
    e->act_at = soak_now() + fab_rng_upto(&e->rng, e->cp->close_us) * SOAK_US;
    state_to(e, SOAK_CLOSING);
}

static void registrations_make(struct soak_end *e)
{
    for (int i = 0; i < 2; i++) {
        int rc = soak_rank.net->reg_mr(e->comm, e->base, region_len(e), ABI_PTR_HOST, &e->mh[i]);
        if (rc == ABI_SUCCESS && e->mh[i]) {
            continue;
        }
        if (rc == ABI_SUCCESS) {
            soak_fail("conn %d: regMr succeeded without a handle", e->conn);
        }
        e->mh[i] = NULL;
        soak_end_error(e, "regMr", rc);
        close_begin(e);
        return;
    }
    state_to(e, SOAK_RUN);
    e->act_at = 0;
}

/* Listens, or has the handle. */
static int begin_turn(struct soak_end *e)
{
    int lap = soak_rank.lap, rc;

    if (soak_now() < e->act_at) {
        return 0;
    }
    if (e->sender) {
        if (!atomic_load(&e->cb->lap[lap].ready)) {
            if (atomic_load(&e->cb->may_fail)) {
                state_to(e, SOAK_CLOSED); /* nobody will listen */
            }
            return 0;
        }
        memcpy(e->handle, e->cb->lap[lap].handle, ABI_HANDLE_BYTES);
    } else {
        rc = soak_rank.net->listen(e->dev, e->cb->lap[lap].handle, &e->listen);
        if (rc != ABI_SUCCESS || e->listen == NULL) {
            soak_fail("conn %d: listen returned %d: %s", e->conn, rc, soak_last_warn());
        }
        atomic_store(&e->cb->lap[lap].ready, 1);
    }
    state_to(e, SOAK_OPENING);
    return 1;
}

static int opening_turn(struct soak_end *e)
{
    int gone = atomic_load(&e->cb->may_fail) != 0, rc;

    rc = e->sender ? soak_rank.net->connect(e->dev, e->handle, &e->comm, NULL)
                   : soak_rank.net->accept(e->listen, &e->comm, NULL);
    if (rc == ABI_SUCCESS && e->comm == NULL && (e->sender || !gone)) {
        return 0;
    }
    if (e->listen && soak_rank.net->close_listen(e->listen) != ABI_SUCCESS) {
        soak_fail("conn %d: closeListen failed", e->conn);
    }
    e->listen = NULL;
    if (e->comm == NULL) {
        if (rc != ABI_SUCCESS) {
            soak_end_error(e, e->sender ? "connect" : "accept", rc);
        }
        state_to(e, SOAK_CLOSED); /* an error, or nobody left to dial */
        return 1;
    }
    registrations_make(e);
    return 1;
}

/* Whether this end goes in the middle of its traffic, which is right for the other one to end with
 * an error. */
static int leaves(struct soak_end *e)
{
    uint64_t none = 0;

    if (!e->cp->leave || e->sender != e->cp->leaver_sends || e->next < (uint32_t)e->cp->leave ||
        e->head == e->tail) {
        return 0;
    }
    atomic_compare_exchange_strong(&e->cb->may_fail, &none, soak_now());
    return 1;
}

static int run_turn(struct soak_end *e)
{
    int rc = e->sender ? soak_send_turn(e) : soak_recv_turn(e);

    if (rc < 0 || leaves(e)) {
        close_begin(e);
        e->act_at = 0;
        return 1;
    }
    if (e->done < (uint32_t)e->cp->msgs) {
        return rc;
    }
    if (e->cp->extra) {
        if (e->sender) {
            atomic_store(&e->cb->sent_all, (uint32_t)soak_rank.lap + 1);
        }
        state_to(e, SOAK_EXTRA);
    } else {
        close_begin(e);
    }
    return 1;
}

/* The sender keeps the connection open until the receiver has seen that nothing more comes. */
static int extra_turn(struct soak_end *e)
{
    uint32_t mine = (uint32_t)soak_rank.lap + 1;

    if (atomic_load(&e->cb->may_fail) == 0) {
        if (e->sender ? atomic_load(&e->cb->recv_all) < mine
                      : atomic_load(&e->cb->sent_all) < mine || !soak_recv_extra(e)) {
            return 0;
        }
    }
    if (!e->sender) {
        atomic_store(&e->cb->recv_all, mine);
    }
    close_begin(e);
    return 1;
}

static int closing_turn(struct soak_end *e)
{
    uint64_t now = soak_now();
    int rc = ABI_SUCCESS;

    if (now < e->act_at) {
        return 0;
    }
    for (int i = 0; i < 2 && rc == ABI_SUCCESS; i++) {
        if (e->mh[i]) {
            rc = soak_rank.net->dereg_mr(e->comm, e->mh[i]);
        }
    }
    if (rc != ABI_SUCCESS) {
        soak_fail("conn %d: deregMr returned %d: %s", e->conn, rc, soak_last_warn());
    }
    rc = e->sender ? soak_rank.net->close_send(e->comm) : soak_rank.net->close_recv(e->comm);
    if (rc != ABI_SUCCESS) {
        soak_fail("conn %d: close returned %d: %s", e->conn, rc, soak_last_warn());
    }
    if (soak_now() - now > CLOSE_NS) {
        soak_fail("conn %d: deregMr and close took %llu ms", e->conn,
                  (unsigned long long)((soak_now() - now) / SOAK_MS));
    }
    state_to(e, SOAK_CLOSED);
    return 1;
}

static void hang_check(struct soak_end *e)
{
    static const char *const names[] = {"waiting", "opening", "running",
                                        "extra",   "closing", "closed"};
    uint64_t now = soak_now();

    if (now - e->moved_at > HANG_NS) {
        soak_fail(
            "conn %d (%s, %d to %d) stands still for %llu ms: %s, %u of %d posted, %u done, %u requests",
            e->conn, e->sender ? "send" : "recv", e->cp->from, e->cp->to,
            (unsigned long long)((now - e->moved_at) / SOAK_MS), names[e->state], e->next,
            e->cp->msgs, e->done, e->tail - e->head);
    }
}

int soak_end_turn(struct soak_end *e)
{
    static int (*const turns[])(struct soak_end *) = {begin_turn, opening_turn, run_turn,
                                                      extra_turn, closing_turn};

    if (e->state == SOAK_CLOSED) {
        return 0;
    }
    hang_check(e);
    return turns[e->state](e);
}
