/* The receiving end: groups, every byte looked at, and memory that nobody may touch between two
 * messages. */
#include "tests/soak/soak.h"

#include <string.h>
#include <unistd.h>

#define TAKE_AT_LEAST 64 /* turns in which the receive too many must stay open */

/* Nothing was written into the slot since it was poisoned. */
static void slot_check(struct soak_end *e, uint32_t n, const char *when)
{
    const struct soak_slot *s = &e->slot[n % (unsigned)e->cp->slots];
    int64_t bad = soak_check_poison(soak_slot_at(e, n), s->used);

    if (bad >= 0) {
        soak_fail("conn %d: written at %lld of the slot of message %u %s", e->conn, (long long)bad,
                  s->msg, when);
    }
}

void soak_recv_leave_check(struct soak_end *e)
{
    for (int i = 0; i < e->cp->slots; i++) {
        uint32_t number = e->slot[i].msg;
        if (number < e->done ||
            number >= e->next) { /* one that ended with an error may be there in part */
            slot_check(e, (uint32_t)i, "after the connection was closed");
        }
    }
}

static int may_post(struct soak_end *e, uint64_t now)
{
    if (e->next == (uint32_t)e->cp->msgs || e->tail - e->head >= (unsigned)e->cp->window ||
        e->next + e->msg[e->next].n - e->done > (uint32_t)e->cp->slots) {
        return 0;
    }
    if (!e->rested) {
        uint64_t us = soak_pct(&e->rng, e->cp->rest_pct) ? fab_rng_upto(&e->rng, e->cp->rest_us)
                                                         : fab_rng_upto(&e->rng, e->cp->recv_us);
        e->act_at = now + us * SOAK_US;
        e->rested = 1;
    }
    return now >= e->act_at;
}

static int post(struct soak_end *e)
{
    int n = e->msg[e->next].n, sizes[SOAK_GROUP], tags[SOAK_GROUP], rc;
    struct soak_pending *q = &e->fifo[e->tail % SOAK_SLOTS];
    void *data[SOAK_GROUP], *mh[SOAK_GROUP];

    for (int i = 0; i < n; i++) {
        uint32_t number = e->next + (uint32_t)i;
        const struct soak_msg *m = &e->msg[number];
        struct soak_slot *s = &e->slot[number % (unsigned)e->cp->slots];
        if (!e->filled) {
            slot_check(e, number, "after it was done");
            s->msg = number;
            s->used = m->recv_skew + m->cap + 2 * SOAK_GUARD;
            memset(soak_slot_at(e, number), SOAK_POISON, s->used);
        }
        data[i] = soak_slot_at(e, number) + SOAK_GUARD + m->recv_skew;
        sizes[i] = (int)m->cap;
        tags[i] = m->tag;
        mh[i] = e->mh[number & 1];
    }
    e->filled = 1;
    q->req = (void *)0x5a5a5a5a;
    rc = soak_rank.net->irecv(e->comm, n, data, sizes, tags, mh, &q->req);
    if (rc != ABI_SUCCESS) {
        return soak_end_error(e, "irecv", rc) ? -1 : 0;
    }
    if (q->req == NULL) {
        return 0;
    }
    q->first = (uint16_t)e->next;
    q->n = (uint16_t)n;
    q->flush = NULL;
    memset(q->sizes, 0xff, sizeof(q->sizes));
    e->tail++;
    e->next += (uint32_t)n;
    e->filled = e->rested = 0;
    return 1;
}

static void message_check(struct soak_end *e, uint32_t number, int size)
{
    const struct soak_msg *m = &e->msg[number];
    struct soak_slot *s = &e->slot[number % (unsigned)e->cp->slots];
    uint8_t *from = soak_slot_at(e, number), *at = from + SOAK_GUARD + m->recv_skew;
    uint32_t due = soak_due(m);
    int64_t bad;

    if (size != (int)due) {
        soak_fail("conn %d: message %u of %u bytes into %u: received %d", e->conn, number, m->size,
                  m->cap, size);
    }
    bad = soak_check(at, due, soak_msg_key(e->key, number));
    if (bad >= 0) {
        soak_fail("conn %d: message %u, %u bytes: byte %lld is wrong", e->conn, number, due,
                  (long long)bad);
    }
    bad = soak_check_poison(from, SOAK_GUARD + m->recv_skew);
    if (bad >= 0) {
        soak_fail("conn %d: message %u: written before its beginning", e->conn, number);
    }
    bad = soak_check_poison(at + due, m->cap - due + SOAK_GUARD);
    if (bad >= 0) {
        soak_fail("conn %d: message %u, %u bytes: written %lld behind its end", e->conn, number,
                  due, (long long)bad);
    }
    memset(from, SOAK_POISON, s->used);
    atomic_fetch_add_explicit(&soak_rank.mine->bytes, due, memory_order_relaxed);
}

/* 1: what was received may be looked at; 0: not yet; -1: the connection has ended. */
static int flushed(struct soak_end *e, struct soak_pending *q)
{
    void *data[SOAK_GROUP], *mh[SOAK_GROUP];
    int done = 0, rc;

    if (!soak_rank.plan->flush) {
        return 1;
    }
    if (q->flush == NULL) {
        for (int i = 0; i < q->n; i++) {
            uint32_t number = q->first + (uint32_t)i;
            data[i] = soak_slot_at(e, number) + SOAK_GUARD + e->msg[number].recv_skew;
            mh[i] = e->mh[number & 1];
        }
        rc = soak_rank.net->iflush(e->comm, q->n, data, q->sizes, mh, &q->flush);
        if (rc != ABI_SUCCESS) {
            return soak_end_error(e, "iflush", rc) ? -1 : 0;
        }
        if (q->flush == NULL) {
            return 1;
        }
    }
    rc = soak_rank.net->test(q->flush, &done, NULL);
    if (rc != ABI_SUCCESS) {
        return soak_end_error(e, "test of a flush", rc) ? -1 : 0;
    }
    return done;
}

static void count(uint32_t n)
{
    uint32_t before = atomic_fetch_add(&soak_rank.board->done, n),
             wake = atomic_load(&soak_rank.board->wake_at);

    if (before < wake && before + n >= wake) {
        soak_conductor_ring();
    }
}

static int reap(struct soak_end *e, uint64_t now)
{
    struct soak_pending *q = &e->fifo[e->head % SOAK_SLOTS];
    int done = 1, rc;

    if (e->head == e->tail || now < e->test_at) {
        return 0;
    }
    e->test_at = now + fab_rng_upto(&e->rng, e->cp->test_us) * SOAK_US;
    if (q->req) {
        rc = soak_rank.net->test(q->req, &done, q->sizes);
        if (rc != ABI_SUCCESS) {
            return soak_end_error(e, "test of a receive", rc) ? -1 : 0;
        }
        if (!done) {
            return 0;
        }
        q->req = NULL;
    }
    rc = flushed(e, q);
    if (rc <= 0) {
        return rc;
    }
    for (int i = 0; i < q->n; i++) {
        message_check(e, q->first + (uint32_t)i, q->sizes[i]);
    }
    for (int i = q->n; i < 64; i++) {
        if (q->sizes[i] != -1) {
            soak_fail("conn %d: size %d of a group of %d was written", e->conn, i, q->n);
        }
    }
    count(q->n);
    e->done += q->n;
    e->head++;
    soak_end_moved(e);
    return 1;
}

int soak_recv_turn(struct soak_end *e)
{
    uint64_t now = soak_now();
    int moved = 0, rc;

    if (may_post(e, now)) {
        rc = post(e);
        if (rc < 0) {
            return -1;
        }
        moved |= rc;
    }
    rc = reap(e, now);
    return rc < 0 ? -1 : moved | rc;
}

int soak_recv_extra(struct soak_end *e)
{
    struct soak_pending *q = &e->fifo[0];
    uint8_t *at = soak_slot_at(e, 0);
    int size = SOAK_GUARD, tag = 7, done = 0, rc;
    void *data = at;

    if (e->extra_turns == 0) {
        slot_check(e, 0, "after it was done");
        if (e->slot[0].used < SOAK_GUARD) {
            e->slot[0].used = SOAK_GUARD;
        }
        memset(at, SOAK_POISON, SOAK_GUARD);
        q->req = NULL;
        rc = soak_rank.net->irecv(e->comm, 1, &data, &size, &tag, &e->mh[0], &q->req);
    } else {
        rc = soak_rank.net->test(q->req, &done, q->sizes);
    }
    if (rc != ABI_SUCCESS) {
        return soak_end_error(e, "the receive too many", rc);
    }
    if (done) {
        soak_fail("conn %d: one message more than was sent, of %d bytes", e->conn, q->sizes[0]);
    }
    if (q->req == NULL) {
        return 0;
    }
    return ++e->extra_turns > TAKE_AT_LEAST;
}
