/* The network API over registrations: what NCCL registers on a connection, and what of it the
 * connection still holds. */
#include "r2_reg.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "bounce/r2_relay.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "r2_close.h"

/*
 * One for each registration that a connection holds handles of. NCCL gets the same pointer for each
 * registration of memory that another one covers (ib_mr.h), also on other connections, so that
 * ib_mr.refs does not say whether this one still has a handle of it. It is pinned: another
 * connection may have released what is held here.
 */
struct r2_held {
    struct ib_mr *mr;
    uint64_t handles;
    uint64_t wholes; /* of them, so many at most are of all of @mr, not of a part */
    struct r2_held *next;
};

/* Gate held, as for what follows. */
static struct r2_held **held_find(struct r2_comm *c, const struct ib_mr *mr)
{
    struct r2_held **h;

    for (h = &c->held; *h && (*h)->mr != mr; h = &(*h)->next) {
    }
    return h;
}

/* One more handle of @mr, all of it or a part. Returns @fresh if it was not needed, else NULL. */
static struct r2_held *held_add(struct r2_comm *c, struct ib_mr *mr, bool whole,
                                struct r2_held *fresh)
{
    struct r2_held **h = held_find(c, mr);

    if (*h == NULL) {
        ib_mr_pin(mr);
        fresh->mr = mr;
        *h = fresh;
        fresh = NULL;
    }
    (*h)->handles++;
    (*h)->wholes += whole;
    return fresh;
}

/* One less. 0 when there was none. With the last one *gone is what the caller frees. *part: it was
 * of a part, since all that are held here are; else that is not known, one pointer being that of
 * all. */
static int held_drop(struct r2_comm *c, const struct ib_mr *mr, struct r2_held **gone, bool *part)
{
    struct r2_held **at = held_find(c, mr), *h = *at;

    *gone = NULL;
    *part = false;
    if (h == NULL) {
        return 0;
    }
    *part = h->wholes == 0;
    h->handles--;
    h->wholes = h->wholes < h->handles ? h->wholes : h->handles;
    if (h->handles == 0) {
        *gone = h;
        *at = h->next;
    }
    return 1;
}

void r2_reg_leave(struct r2_comm *c)
{
    struct r2_held *h;

    while ((h = c->held) != NULL) {
        c->held = h->next;
        ib_mr_leave(h->mr);
        ib_mr_unpin(h->mr);
        free(h);
    }
}

/* Takes the gate: the service thread writes a whole path when its next incarnation begins, its NIC
 * too, and that is 0 in between. */
static uint64_t nic_mask(struct r2_comm *c)
{
    uint64_t mask = 0;

    r2_gate_visit(&c->gate);
    for (int p = 0; p < c->conn.npaths; p++) {
        mask |= 1ull << c->conn.path[p].nic;
    }
    r2_gate_unvisit(&c->gate);
    return mask;
}

static enum r2_status reg_failed(const struct r2_comm *c, const void *addr, size_t len, int type,
                                 const char *why)
{
    R2_WARN("%s: %zu bytes at %p (type %d) cannot be registered on any NIC: %s", c->label, len,
            addr, type, why);
    r2_log_flush();
    return R2_ERR_SYSTEM;
}

enum r2_status r2_net_reg(struct r2_comm *c, void *addr, size_t len, int type, uint64_t offset,
                          int fd, struct ib_mr **out)
{
    struct r2_held *fresh;
    uint64_t nics;

    *out = NULL;
    if (type != IB_PTR_HOST && !c->is_send && (c->flush.lane == NULL || !c->flush.lane->able)) {
        R2_WARN(
            "%s: memory of type %d cannot be received into: no NIC of this connection can flush it",
            c->label, type);
        r2_log_flush();
        return R2_ERR_SYSTEM;
    }
    fresh = calloc(
        1, sizeof(*fresh)); /* before there is a handle, which could not be counted without it */
    if (fresh == NULL) {
        return reg_failed(c, addr, len, type, strerror(ENOMEM));
    }
    nics = nic_mask(c);
    *out = ib_mr_get(c->inst->mem.mrs, addr, len, type, offset, fd, nics);
    if (*out == NULL) {
        free(fresh);
        return reg_failed(c, addr, len, type, strerror(errno));
    }
    r2_gate_visit(&c->gate);
    fresh = held_add(c, *out, ib_mr_is_whole(c->inst->mem.mrs, *out, addr, len, type, fd), fresh);
    r2_gate_unvisit(&c->gate);
    free(fresh);
    r2_relay_buffer(c, addr, *out, nics);
    return R2_OK;
}

#define COPY_WAIT_NS 20000 /* between two checks; a copy takes about as long */

/*
 * An abort: NCCL frees the memory of @mr when this returns, and copies to a bounce buffer may still
 * read it, which no registration keeps from it. They are waited for as close waits for them, for
 * r2_close_patience at most, outside the gate, which the service thread needs for all connections.
 */
static void wait_for_copies(struct r2_comm *c, const struct ib_mr *mr)
{
    const struct r2_env *env = &c->inst->env;
    uint64_t since = r2_now(c->inst), limit = r2_close_patience(&c->inst->cfg);
    int reads = 1;

    while (reads) {
        r2_gate_visit(&c->gate);
        reads = ib_send_bounce_reads(c->tx, mr);
        r2_gate_unvisit(&c->gate);
        if (reads && (env->wait == NULL || r2_elapsed(r2_now(c->inst), since) >= limit)) {
            R2_WARN("%s: a buffer is released that a copy to a bounce buffer reads", c->label);
            r2_log_flush();
            return;
        }
        if (reads) {
            env->wait(env->arg, COPY_WAIT_NS);
        }
    }
}

/* --- an abort: what a NIC may still use is not taken away (P27) --- */

static int uses(const struct r2_comm *c, const struct ib_mr *mr)
{
    return c->is_send ? ib_send_uses(c->tx, mr) : ib_recv_uses(c->rx, mr);
}

/*
 * Gate held. NCCL takes away what requests of @c refer to: nothing is posted for them any more,
 * and the queue pairs go to ERR.
 */
static void abort_begin(struct r2_comm *c)
{
    if (!c->fo.posting_stopped) {
        fo_stop_posting(&c->fo);
        fo_fail(&c->fo, R2_ERR_ARG, "a buffer of an outstanding request was deregistered");
        c->end->abort = 1; /* said from here on: r2_close_send_abort() */
        c->repeat.at = 0;
        c->repeat.interval = (uint64_t)c->inst->cfg.t_repeat_ms * 1000000;
        r2_comm_kick(c);
    }
    fo_abort(&c->fo);
}

#define HALT_FENCES   10 /* x T_fence for one call into the driver; few take a hundredth of that */
#define HALT_POLL_NS  20000 /* between two checks, doubling */
#define HALT_POLL_MAX 1000000

/*
 * Gate held. Whether it is no use to wait longer for the queue pair of path @p. A call that is
 * out, or has failed and is repeated, has ten T_fence; behind other jobs of a device that works,
 * r2_close_patience; behind those of a device that is FATAL, or has failed in this before, T_fence,
 * so that an abort of many connections is not kept by each of them.
 */
static bool halt_is_late(const struct r2_comm *c, int p, uint64_t since, uint64_t now)
{
    const struct r2_config *cfg = &c->inst->cfg;
    const struct ib_fence *f = &c->fo.path[p].fence;
    uint32_t device = 1u << c->inst->nics.nic[c->conn.path[p].nic].device_index;
    uint64_t fence = (uint64_t)cfg->t_fence_ms * 1000000, dead = r2_close_patience(cfg);
    uint64_t started;

    /* pairs with the worker's release */
    started = atomic_load_explicit(&f->job_started, memory_order_acquire);
    if (atomic_load_explicit(&c->inst->jobs.unhalted, memory_order_relaxed) & device ||
        ib_nic_state_get(&c->inst->nics.nic[c->conn.path[p].nic]) == IB_NIC_FATAL) {
        return r2_elapsed(now, since) >= fence;
    }
    if (atomic_load_explicit(&f->job_rc, memory_order_acquire) > 0) {
        return r2_elapsed(now, since) >= HALT_FENCES * fence;
    }
    if (started) {
        return r2_elapsed(now, started) >= HALT_FENCES * fence;
    }
    return r2_elapsed(now, since) >= dead;
}

/*
 * Gate held. Notes for the next wait which devices of @c have failed in it, and which have not.
 * Returns the paths that are to be waited for.
 */
static uint32_t halt_poll(struct r2_comm *c, uint64_t since, uint32_t *late)
{
    uint64_t now = r2_now(c->inst);
    uint32_t left = fo_unhalted(&c->fo);

    for (int p = 0; p < c->conn.npaths; p++) {
        uint32_t device = 1u << c->inst->nics.nic[c->conn.path[p].nic].device_index;

        if (!(left >> p & 1)) {
            atomic_fetch_and_explicit(&c->inst->jobs.unhalted, ~device, memory_order_relaxed);
        } else if (c->inst->env.wait == NULL || halt_is_late(c, p, since, now)) {
            atomic_fetch_or_explicit(&c->inst->jobs.unhalted, device, memory_order_relaxed);
            *late |= 1u << p;
        }
    }
    return left & ~*late;
}

/* A connection whose abort is waited for. */
struct halting {
    struct r2_comm *c;
    uint32_t late; /* paths that could not be stopped in time */
};

/*
 * Waits, outside the gates, until no queue pair of @h[0..n) can use the keys of its buffers, for
 * all of them together. Returns the one of which that could not be had, so that registrations must
 * stay; NULL. Bounded from the call on: halt_is_late().
 */
static const struct halting *wait_for_halt(struct r2_inst *inst, struct halting *h, int n)
{
    const struct r2_env *env = &inst->env;
    uint64_t since = r2_now(inst), pause = HALT_POLL_NS;
    uint32_t left;

    do {
        left = 0;
        for (int i = 0; i < n; i++) {
            r2_gate_visit(&h[i].c->gate);
            left |= halt_poll(h[i].c, since, &h[i].late);
            r2_gate_unvisit(&h[i].c->gate);
        }
        if (left) {
            env->wait(env->arg, pause);
            pause = 2 * pause < HALT_POLL_MAX ? 2 * pause : HALT_POLL_MAX;
        }
    } while (left);
    for (int i = 0; i < n; i++) {
        if (h[i].late) {
            return &h[i];
        }
    }
    return NULL;
}

/*
 * The reference stays for ever, and with it keys and pages: what the NIC still does with them
 * hits nobody else.
 */
static void keep(const struct halting *h, struct ib_mr *mr)
{
    struct r2_comm *c = h->c;
    const struct ib_nic *nic = &c->inst->nics.nic[c->conn.path[__builtin_ctz(h->late)].nic];

    ib_mr_keep(c->inst->mem.mrs, mr);
    R2_WARN(
        "%s: aborted, and a queue pair on NIC %s could not be stopped: %zu bytes at %p stay registered",
        c->label, nic->name, mr->len, (void *)mr->addr);
    r2_log_flush();
}

/*
 * The connection behind @c, the first one for NULL. It is not freed until the next call with it,
 * which gives @c back.
 */
static struct r2_comm *visit_next(struct r2_inst *inst, struct r2_comm *c)
{
    struct r2_comm *next;

    pthread_mutex_lock(&inst->lock);
    next = c ? c->list.all_next : inst->comms.all;
    while (next && next->list.going) {
        next = next->list.all_next;
    }
    if (next) {
        next->list.visits++;
    }
    if (c) {
        c->list.visits--;
    }
    pthread_mutex_unlock(&inst->lock);
    return next;
}

/* What visit_next() holds of @c goes on until visit_end(). */
static void visit_extend(struct r2_inst *inst, struct r2_comm *c)
{
    pthread_mutex_lock(&inst->lock);
    c->list.visits++;
    pthread_mutex_unlock(&inst->lock);
}

static void visit_end(struct r2_inst *inst, struct r2_comm *c)
{
    pthread_mutex_lock(&inst->lock);
    c->list.visits--;
    pthread_mutex_unlock(&inst->lock);
}

/* Whether @c has requests under @mr: then its abort begins. */
static int abort_user(struct r2_comm *c, const struct ib_mr *mr)
{
    int used;

    if (atomic_load_explicit(&c->state.setup, memory_order_acquire) != R2_SETUP_DONE) {
        return 0; /* pairs with setup_move */
    }
    r2_gate_visit(&c->gate);
    used = uses(c, mr);
    if (used) {
        abort_begin(c);
    }
    r2_gate_unvisit(&c->gate);
    return used;
}

/*
 * Connections with requests under @mr abort, all of them before any is waited for. Returns how
 * many; they are checked until visit_end(). *list is the caller's to free. -1: there is no memory
 * for one of them.
 */
static int abort_all(struct r2_inst *inst, const struct ib_mr *mr, struct halting **list)
{
    int n = 0, room = 0, lacks = 0;

    *list = NULL;
    for (struct r2_comm *c = visit_next(inst, NULL); c; c = visit_next(inst, c)) {
        if (!abort_user(c, mr)) {
            continue;
        }
        if (n == room) {
            struct halting *more = realloc(*list, (2 * (size_t)room + 16) * sizeof(*more));

            if (more == NULL) {
                lacks = 1;
                continue;
            }
            *list = more;
            room = 2 * room + 16;
        }
        (*list)[n++] = (struct halting){.c = c};
        visit_extend(inst, c);
    }
    if (lacks) {
        for (int i = 0; i < n; i++) {
            visit_end(inst, (*list)[i].c);
        }
    }
    return lacks ? -1 : n;
}

/* 1: some connection has requests under @mr and could not be stopped: @mr is kept. */
static int abort_users(struct r2_inst *inst, struct ib_mr *mr)
{
    const struct halting *late;
    struct halting *list;
    int n = abort_all(inst, mr, &list);

    for (int i = 0; i < n; i++) {
        if (list[i].c->is_send) {
            wait_for_copies(list[i].c, mr);
        }
    }
    late = n > 0 ? wait_for_halt(inst, list, n) : NULL;
    if (n < 0) { /* who could not be waited for may use it still */
        ib_mr_keep(inst->mem.mrs, mr);
        R2_WARN("%zu bytes at %p stay registered: %s", mr->len, (void *)mr->addr, strerror(ENOMEM));
        r2_log_flush();
    } else if (late) {
        keep(late, mr);
    }
    for (int i = 0; i < n; i++) {
        visit_end(inst, list[i].c);
    }
    free(list);
    return n < 0 || late;
}

/*
 * Of another connection, or left by one that was closed: both work with the transports that NCCL
 * has, so they do here. Whose it was may have requests under it still, and have been closed with
 * them; so all connections are asked, which costs what it does: NCCL does not come here. Nor does
 * what released a whole on a connection that holds parts of it, as if it were one of these.
 */
static enum r2_status release_other(struct r2_comm *c, struct ib_mr *mr)
{
    int last = ib_mr_last(c->inst->mem.mrs, mr);

    if (last > 0 && abort_users(c->inst, mr)) {
        return R2_OK;
    }
    if (last >= 0 && ib_mr_put_known(c->inst->mem.mrs, mr) == 0) {
        return R2_OK;
    }
    R2_WARN("%s: %p is to be released and is no registration", c->label, (void *)mr);
    r2_log_flush();
    return R2_ERR_ARG;
}

/*
 * The last registration taken away under outstanding requests is how an abort begins (P27): from
 * here the service thread must not post for them any more, since neither the handle nor the
 * memory is there; and the NIC must not use them, since both are somebody else's soon.
 */
enum r2_status r2_net_dereg(struct r2_comm *c, struct ib_mr *mr)
{
    struct halting halt = {.c = c};
    struct r2_held *gone;
    int had, copies, used;
    bool part;

    if (mr == NULL) {
        return R2_OK;
    }
    r2_gate_visit(&c->gate);
    had = held_drop(c, mr, &gone, &part);
    used = gone && uses(c, mr);
    if (used) {
        abort_begin(c);
    }
    copies = gone && c->is_send && c->tx->lanes != 0;
    r2_gate_unvisit(&c->gate);
    if (!had) {
        return release_other(c, mr);
    }
    if (copies) {
        wait_for_copies(c, mr);
    }
    if (used && wait_for_halt(c->inst, &halt, 1)) {
        keep(&halt, mr);
    } else if (part) {
        ib_mr_put_part(c->inst->mem.mrs, mr);
    } else {
        ib_mr_put(c->inst->mem.mrs, mr);
    }
    if (gone) {
        ib_mr_unpin(mr);
        free(gone);
    }
    return R2_OK;
}
