#include "coll_op.h"

#include <stdlib.h>

#include "base/r2_log.h"

struct entry {
    struct coll_user *u;
    int slot; /* of a shadow; -1: the user's own */
    bool counted, captured;
    void *comm, *stream;
    struct coll_reduce what;
};

static _Thread_local struct {
    int depth, n, room;
    coll_status failed; /* an operation that could not begin, of which NCCL knows nothing */
    struct entry *entry;
    struct coll_user *aborted; /* in this group */
} group;

static bool is_error(coll_status rc)
{
    return rc != COLL_SUCCESS && rc != COLL_IN_PROGRESS;
}

/* --- order --- */

/*
 * NCCL runs the operations of one communicator one after the other, on whatever streams they are;
 * those of two it does not. So each leaves an event behind, and one that is for another
 * communicator than the one before waits for that one's. An event, and not the stream: that one may
 * be gone by then. What is captured happens later, or never: it neither waits nor is waited for.
 */
static void order(struct coll_user *u, int slot, void *stream)
{
    const struct coll_mark *last = &u->mark[u->last];

    if (u->last != slot + 1 && last->is_recorded &&
        coll_cuda_get()->stream_wait_event(stream, last->event, 0) != 0) {
        R2_WARN("placement: two operations of a communicator could not be ordered");
    }
}

static void record(const struct entry *e)
{
    struct coll_mark *mark = &e->u->mark[e->slot + 1];

    if (e->captured) {
        return;
    }
    mark->is_recorded = coll_cuda_get()->event_record(mark->event, e->stream) == 0;
    e->u->last = e->slot + 1;
}

static bool is_captured(void *stream)
{
    int status = COLL_CUDA_NOT_CAPTURING;

    return coll_cuda_get()->stream_is_capturing(stream, &status) == 0 &&
           status != COLL_CUDA_NOT_CAPTURING;
}

/* --- groups --- */

bool coll_group_is_open(void)
{
    return group.depth > 0;
}

/* The entry's reference goes with it. */
static bool keep(const struct entry *e)
{
    if (group.n == group.room) {
        int room = group.room != 0 ? 2 * group.room : 16;
        struct entry *more = realloc(group.entry, (size_t)room * sizeof(*more));

        if (more == NULL) {
            return false;
        }
        group.entry = more;
        group.room = room;
    }
    group.entry[group.n++] = *e;
    return true;
}

static coll_status issue(const struct coll_real *real, const struct entry *e)
{
    if (!e->captured) {
        order(e->u, e->slot, e->stream);
    }
    return real->all_reduce(e->what.send, e->what.recv, e->what.count, e->what.type, e->what.op,
                            e->comm, e->stream);
}

static int deferred_count(void)
{
    int n = 0;

    for (int i = 0; i < group.n; i++) {
        n += group.entry[i].slot >= 0;
    }
    return n;
}

static coll_status deferred_run(const struct coll_real *real)
{
    coll_status rc = real->group_start(), end;

    for (int i = 0; i < group.n && rc == COLL_SUCCESS; i++) {
        if (group.entry[i].slot >= 0) {
            rc = issue(real, &group.entry[i]);
        }
    }
    end = real->group_end();
    return rc != COLL_SUCCESS ? rc : end;
}

static void record_all(bool deferred)
{
    for (int i = 0; i < group.n; i++) {
        if ((group.entry[i].slot >= 0) == deferred) {
            record(&group.entry[i]);
        }
    }
}

/*
 * Operations of @u from entry @first on have not happened; @all: none, else those on shadows. Where
 * others of the same communicator have, the count cannot be made good.
 */
static void take_back(struct coll_user *u, int first, bool all)
{
    unsigned counted = 0, gone = 0;

    for (int i = first; i < group.n; i++) {
        struct entry *e = &group.entry[i];

        if (e->u == u && e->counted) {
            counted++;
            gone += all || e->slot >= 0;
            e->counted = false; /* once */
        }
    }
    if (gone > 0 && !coll_comm_take_back(&u->comm, gone == counted ? gone : UINT32_MAX)) {
        R2_WARN("placement: a group has failed across a switch: the communicator cannot go on");
    }
}

static void group_close(bool failed, bool all)
{
    for (int i = 0; failed && i < group.n; i++) {
        take_back(group.entry[i].u, i, all);
    }
    for (int i = 0; i < group.n; i++) {
        coll_comm_return(&group.entry[i].u->comm, group.entry[i].slot);
        coll_ctl_put(group.entry[i].u);
    }
    group.n = 0;
    group.failed = COLL_SUCCESS;
    while (group.aborted != NULL) {
        struct coll_user *u = group.aborted;

        group.aborted = u->next_aborted;
        coll_ctl_leave(u, true);
        coll_ctl_put(u);
    }
}

coll_status coll_group_start(const struct coll_real *real)
{
    group.depth++;
    return real->group_start();
}

coll_status coll_group_end(const struct coll_real *real)
{
    coll_status rc, failed = group.failed;
    bool none;

    group.depth -= group.depth > 0;
    rc = real->group_end();
    if (group.depth > 0) {
        return rc;
    }
    none = is_error(rc);
    if (!none) {
        record_all(false);
        rc = rc == COLL_SUCCESS && failed != COLL_SUCCESS ? failed : rc;
    }
    if (!is_error(rc) && deferred_count() > 0) {
        rc = deferred_run(real);
        record_all(true);
    }
    group_close(is_error(rc), none);
    return rc;
}

coll_status coll_group_simulate_end(const struct coll_real *real, struct coll_sim *sim)
{
    coll_status rc;

    group.depth -= group.depth > 0;
    rc = real->group_simulate_end(sim);
    if (group.depth == 0) {
        group_close(true, true);
    }
    return rc;
}

coll_status coll_op_abort(const struct coll_real *real, struct coll_user *u)
{
    coll_status rc, end;

    coll_group_start(real);
    rc = real->abort(u->comm.user);
    if (coll_ctl_abort(u)) {
        u->next_aborted = group.aborted;
        group.aborted = u;
    } else {
        coll_ctl_put(u);
    }
    end = coll_group_end(real);
    return is_error(rc) ? rc : end;
}

/* --- operations --- */

static coll_status cannot_begin(struct coll_user *u)
{
    R2_WARN("placement: an operation cannot begin: the process that leads the agreement is lost, "
            "or the communicator is ended");
    r2_log_flush();
    coll_ctl_put(u);
    group.failed = group.depth > 0 ? COLL_REMOTE_ERROR : COLL_SUCCESS;
    return COLL_REMOTE_ERROR;
}

static coll_status out_of_memory(struct entry *e)
{
    if (e->counted) {
        coll_comm_take_back(&e->u->comm, 1);
    }
    coll_comm_return(&e->u->comm, e->slot);
    coll_ctl_put(e->u);
    return COLL_SYSTEM_ERROR;
}

coll_status coll_op_reduce(const struct coll_real *real, struct coll_user *u,
                           const struct coll_reduce *what, void *stream)
{
    struct entry e = {
        .u = u, .counted = true, .captured = is_captured(stream), .stream = stream, .what = *what};
    coll_status rc;

    if (e.captured) {
        coll_comm_never(&u->comm);
    }
    if (!coll_comm_begin(&u->comm, &e.comm, &e.slot)) {
        return cannot_begin(u);
    }
    if (group.depth > 0) {
        if (!keep(&e)) {
            return out_of_memory(&e);
        }
        return e.slot < 0 ? issue(real, &e) : COLL_SUCCESS;
    }
    rc = issue(real, &e);
    if (is_error(rc)) {
        coll_comm_take_back(&u->comm, 1);
    } else {
        record(&e);
    }
    coll_comm_return(&u->comm, e.slot);
    coll_ctl_put(u);
    return rc;
}

bool coll_op_before(struct coll_user *u, void *stream)
{
    struct entry e = {.u = u, .slot = -1, .stream = stream};

    if (u == NULL) {
        return true;
    }
    e.captured = is_captured(stream);
    if (e.captured) {
        coll_comm_never(&u->comm);
    } else {
        order(u, -1, stream);
    }
    if (group.depth > 0 && !keep(&e)) {
        out_of_memory(&e);
        return false;
    }
    return true;
}

void coll_op_after(struct coll_user *u, void *stream, coll_status rc)
{
    if (u == NULL || group.depth > 0) {
        return; /* the group has its reference */
    }
    if (!is_error(rc)) {
        record(
            &(struct entry){.u = u, .slot = -1, .captured = is_captured(stream), .stream = stream});
    }
    coll_ctl_put(u);
}
