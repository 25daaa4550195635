/* The sending end: fills a slot, sends it, and spoils it as soon as it may. */
#include "tests/soak/soak.h"

#include <string.h>

/* A group that is begun is sent whole, whatever the window: none of its sends needs to be done
 * before all of them have come. */
static int may_post(struct soak_end *e, uint64_t now)
{
    if (e->next == (uint32_t)e->cp->msgs ||
        (e->tail - e->head >= (unsigned)e->cp->window * 2 && e->msg[e->next].first == e->next) ||
        e->tail - e->head >= SOAK_SLOTS || e->next - e->done >= (uint32_t)e->cp->slots) {
        return 0;
    }
    if (!e->rested) {
        uint64_t us = soak_pct(&e->rng, e->cp->rest_pct) ? fab_rng_upto(&e->rng, e->cp->rest_us)
                                                         : fab_rng_upto(&e->rng, e->cp->send_us);
        e->act_at = now + us * SOAK_US;
        e->rested = 1;
    }
    return now >= e->act_at;
}

static int post(struct soak_end *e)
{
    uint32_t place = e->next, number = e->order[place];
    const struct soak_msg *m = &e->msg[number];
    uint8_t *at = soak_slot_at(e, place) + SOAK_GUARD + m->send_skew;
    struct soak_pending *q = &e->fifo[e->tail % SOAK_SLOTS];
    int rc;

    if (!e->filled) {
        soak_fill(at, m->size, soak_msg_key(e->key, number));
        e->filled = 1;
    }
    q->req = (void *)0x5a5a5a5a;
    rc = soak_rank.net->isend(e->comm, at, (int)m->size, m->tag, e->mh[place & 1], &q->req);
    if (rc != ABI_SUCCESS) {
        return soak_end_error(e, "isend", rc) ? -1 : 0;
    }
    if (q->req == NULL) {
        return 0;
    }
    if (e->tail == e->head) {
        e->moved_at = soak_now(); /* a stall begins with work */
    }
    q->first = (uint16_t)place;
    q->n = 1;
    e->tail++;
    e->next++;
    e->filled = e->rested = 0;
    return 1;
}

static void stall_note(struct soak_end *e)
{
    uint64_t gap = soak_now() - e->moved_at, most = atomic_load(&soak_rank.mine->stall);

    while (gap > most && !atomic_compare_exchange_weak(&soak_rank.mine->stall, &most, gap)) {
    }
}

static int reap(struct soak_end *e, uint64_t now)
{
    struct soak_pending *q = &e->fifo[e->head % SOAK_SLOTS];
    const struct soak_msg *m = &e->msg[e->order[q->first]];
    int done = 7, size = -1, rc;

    if (e->head == e->tail || now < e->test_at) {
        return 0;
    }
    rc = soak_rank.net->test(q->req, &done, &size);
    if (rc != ABI_SUCCESS) {
        return soak_end_error(e, "test of a send", rc) ? -1 : 0;
    }
    e->test_at = now + fab_rng_upto(&e->rng, e->cp->test_us) * SOAK_US;
    if (!done) {
        return 0;
    }
    if (size != (int)soak_due(m)) {
        soak_fail("conn %d: message %u of %u bytes into %u: sent %d", e->conn, e->order[q->first],
                  m->size, m->cap, size);
    }
    stall_note(e);
    memset(soak_slot_at(e, q->first), 0xee, m->size + m->send_skew + 2 * SOAK_GUARD);
    e->head++;
    e->done++;
    soak_end_moved(e);
    return 1;
}

int soak_send_turn(struct soak_end *e)
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
