/* The network API over registrations: what NCCL registers on a connection, and what of it the connection still holds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "r2_inst.h"
#include "r2_log.h"
#include "r2_relay.h"

/*
 * One for each registration that a connection holds handles of. NCCL gets the same pointer for each registration of memory that another one
 * covers (ib_mr.h), also on other connections, so that ib_mr.refs does not say whether this one still has a handle of it. It is pinned:
 * another connection may have released what is held here.
 */
struct r2_held {
    struct ib_mr *mr;
    uint64_t handles;
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

/* One more handle of @mr. Returns @fresh if it was not needed, else NULL. */
static struct r2_held *held_add(struct r2_comm *c, struct ib_mr *mr, struct r2_held *fresh)
{
    struct r2_held **h = held_find(c, mr);

    if (*h == NULL) {
        ib_mr_pin(mr);
        fresh->mr = mr;
        *h = fresh;
        fresh = NULL;
    }
    (*h)->handles++;
    return fresh;
}

/* One less. 0 when there was none. With the last one *gone is what the caller frees. */
static int held_drop(struct r2_comm *c, const struct ib_mr *mr, struct r2_held **gone)
{
    struct r2_held **h = held_find(c, mr);

    *gone = NULL;
    if (*h == NULL) {
        return 0;
    }
    if (--(*h)->handles == 0) {
        *gone = *h;
        *h = (*h)->next;
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

/* Takes the gate: the service thread writes a whole path when its next life begins, its NIC too, and that is 0 in between. */
static uint64_t nic_mask(struct r2_comm *c)
{
    uint64_t mask = 0;

    r2_gate_visit(&c->gate);
    for (int p = 0; p < c->link.npaths; p++) {
        mask |= 1ull << c->link.path[p].nic;
    }
    r2_gate_unvisit(&c->gate);
    return mask;
}

static enum r2_status reg_failed(const struct r2_comm *c, const void *addr, size_t len, int type, const char *why)
{
    R2_WARN("%s: %zu bytes at %p (type %d) cannot be registered on any NIC: %s", c->label, len, addr, type, why);
    r2_log_flush();
    return R2_ERR_SYSTEM;
}

enum r2_status r2_net_reg(struct r2_comm *c, void *addr, size_t len, int type, uint64_t offset, int fd, struct ib_mr **out)
{
    struct r2_held *fresh;
    uint64_t nics;

    *out = NULL;
    if (type != IB_PTR_HOST && !c->is_send && (c->flush == NULL || !c->flush->able)) {
        R2_WARN("%s: memory of type %d cannot be received into: no NIC of this connection can flush it", c->label, type);
        r2_log_flush();
        return R2_ERR_SYSTEM;
    }
    fresh = calloc(1, sizeof(*fresh)); /* before there is a handle, which could not be counted without it */
    if (fresh == NULL) {
        return reg_failed(c, addr, len, type, strerror(ENOMEM));
    }
    nics = nic_mask(c);
    *out = ib_mr_get(c->inst->mrs, addr, len, type, offset, fd, nics);
    if (*out == NULL) {
        free(fresh);
        return reg_failed(c, addr, len, type, strerror(errno));
    }
    r2_gate_visit(&c->gate);
    fresh = held_add(c, *out, fresh);
    r2_gate_unvisit(&c->gate);
    free(fresh);
    r2_relay_buffer(c, addr, *out, nics);
    return R2_OK;
}

#define COPY_WAIT_NS 20000 /* between two looks; a copy takes about as long */

/*
 * An abort: NCCL frees the memory of @mr when this returns, and copies to staging memory may still read it, which no registration keeps from it. They are
 * waited for as close waits for them, for T_dead at most, outside the gate, which the service thread needs for all connections.
 */
static void wait_for_copies(struct r2_comm *c, const struct ib_mr *mr)
{
    const struct r2_env *env = &c->inst->env;
    uint64_t since = r2_now(c->inst), limit = (uint64_t)c->inst->cfg.t_dead_ms * 1000000;
    int reads = 1;

    while (reads) {
        r2_gate_visit(&c->gate);
        reads = ib_send_stage_reads(c->tx, mr);
        r2_gate_unvisit(&c->gate);
        if (reads && (env->wait == NULL || r2_elapsed(r2_now(c->inst), since) >= limit)) {
            R2_WARN("%s: a buffer is released that a copy to staging memory reads", c->label);
            r2_log_flush();
            return;
        }
        if (reads) {
            env->wait(env->arg, COPY_WAIT_NS);
        }
    }
}

/* Of another connection, or left by one that was closed: both work with the transports that NCCL has, so they do here. */
static enum r2_status release_other(struct r2_comm *c, struct ib_mr *mr)
{
    if (ib_mr_put_known(c->inst->mrs, mr) == 0) {
        return R2_OK;
    }
    R2_WARN("%s: %p is to be released and is no registration", c->label, (void *)mr);
    r2_log_flush();
    return R2_ERR_ARG;
}

/*
 * The last registration taken away under outstanding requests is how an abort begins (P27): from here the service thread must not post
 * for them any more, since neither the handle nor the memory is there.
 */
enum r2_status r2_net_dereg(struct r2_comm *c, struct ib_mr *mr)
{
    struct r2_held *gone;
    int had, copies;

    if (mr == NULL) {
        return R2_OK;
    }
    r2_gate_visit(&c->gate);
    had = held_drop(c, mr, &gone);
    if (gone && !c->fo.quiet && (c->is_send ? ib_send_uses(c->tx, mr) : ib_recv_uses(c->rx, mr))) {
        fo_quiet(&c->fo);
        fo_fail(&c->fo, R2_ERR_ARG, "a buffer of an outstanding request was deregistered");
    }
    copies = gone && c->is_send && c->tx->lanes != 0;
    r2_gate_unvisit(&c->gate);
    if (!had) {
        return release_other(c, mr);
    }
    if (copies) {
        wait_for_copies(c, mr);
    }
    ib_mr_put(c->inst->mrs, mr);
    if (gone) {
        ib_mr_unpin(mr);
        free(gone);
    }
    return R2_OK;
}
