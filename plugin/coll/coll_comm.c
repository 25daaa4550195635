#include "coll_comm.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/r2_log.h"
#include "base/r2_time.h"

void coll_comm_init(struct coll_comm *c, void *user, const struct place_meet *meet, int rank,
                    int ranks, uint64_t host, void (*kick)(void))
{
    pthread_condattr_t clock;

    c->user = user;
    c->meet = *meet;
    c->rank = rank;
    c->ranks = ranks;
    c->kick = kick;
    c->facts = (struct place_facts){
        .seq = 1, .rank = (uint32_t)rank, .ranks = (uint32_t)ranks, .host = host, .can = PLACE_CAN};
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
}

void coll_comm_close(struct coll_comm *c)
{
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

/* Lock held. The hub is to know of it, and whoever waits is to look again. */
static void changed(struct coll_comm *c)
{
    c->facts.seq++;
    pthread_cond_broadcast(&c->changed);
}

/* Lock held. It switches no more. That the user has ended it is not taken back: a thread that makes
 * a shadow may find out later. */
static void cannot(struct coll_comm *c)
{
    if (c->facts.can == PLACE_CAN) {
        c->facts.can = PLACE_CAN_NOT;
        changed(c);
    }
}

static int slot_number(const struct coll_comm *c, const struct place_held_slot *s)
{
    return (int)(s - c->held.slot);
}

/* --- the application's threads --- */

/* Lock held. Of the communicator with number @use; the slot of none is -1. */
static void *comm_of(struct coll_comm *c, uint32_t use, int *slot)
{
    struct place_held_slot *s = place_held_find(&c->held, use);

    *slot = -1;
    if (use == 0) {
        return c->user;
    }
    if (s == NULL || s->state != PLACE_HELD_READY) {
        return NULL;
    }
    *slot = slot_number(c, s);
    s->busy++;
    s->used = true;
    return c->shadow[*slot].comm;
}

bool coll_comm_begin(struct coll_comm *c, void **comm, int *slot)
{
    enum place_use what;
    uint32_t use = 0;

    pthread_mutex_lock(&c->lock);
    while ((what = place_member_begin(&c->member, &use)) == PLACE_WAIT) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    *comm = what == PLACE_USE ? comm_of(c, use, slot) : NULL;
    pthread_mutex_unlock(&c->lock);
    return *comm != NULL;
}

void coll_comm_return(struct coll_comm *c, int slot)
{
    bool kick = false;

    pthread_mutex_lock(&c->lock);
    if (slot >= 0) {
        struct place_held_slot *s = &c->held.slot[slot];

        s->busy -= s->busy > 0; /* it may have been aborted under the call */
        kick = s->drop;
    }
    pthread_mutex_unlock(&c->lock);
    if (kick) {
        c->kick();
    }
}

bool coll_comm_take_back(struct coll_comm *c, unsigned n)
{
    bool done;

    pthread_mutex_lock(&c->lock);
    done = place_member_take_back(&c->member, n);
    if (!done) {
        cannot(c);
    }
    pthread_mutex_unlock(&c->lock);
    c->kick();
    return done;
}

bool coll_comm_is_prepared(struct coll_comm *c)
{
    bool is;

    pthread_mutex_lock(&c->lock);
    is = c->member.state == PLACE_PREPARED;
    pthread_mutex_unlock(&c->lock);
    return is;
}

bool coll_comm_is_aborted(struct coll_comm *c)
{
    bool is;

    pthread_mutex_lock(&c->lock);
    is = c->aborted;
    pthread_mutex_unlock(&c->lock);
    return is;
}

void coll_comm_never(struct coll_comm *c)
{
    pthread_mutex_lock(&c->lock);
    if (!c->member.never) {
        place_member_never(&c->member);
        cannot(c);
    }
    pthread_mutex_unlock(&c->lock);
    c->kick();
}

int coll_comm_hold(struct coll_comm *c, void *comm[PLACE_HELD], int slot[PLACE_HELD])
{
    int n = 0;

    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < PLACE_HELD; i++) {
        if (c->held.slot[i].state == PLACE_HELD_READY && c->held.slot[i].used &&
            !c->held.slot[i].taken) {
            c->held.slot[i].busy++;
            comm[n] = c->shadow[i].comm;
            slot[n++] = i;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* Lock held. */
static bool is_over(const struct coll_comm *c)
{
    for (int i = 0; i < PLACE_HELD; i++) {
        if (c->held.slot[i].state != PLACE_HELD_NOT) {
            return false;
        }
    }
    return c->hub_lost || c->heard == c->facts.seq;
}

bool coll_comm_end(struct coll_comm *c, bool abort, uint64_t limit_ns)
{
    uint64_t until = r2_clock_ns(CLOCK_MONOTONIC) + limit_ns;
    struct timespec t = {.tv_sec = (time_t)(until / R2_NS_PER_S),
                         .tv_nsec = (long)(until % R2_NS_PER_S)};
    bool over;

    pthread_mutex_lock(&c->lock);
    c->aborted = c->aborted || abort;
    place_member_end(&c->member);
    place_held_drop_all(&c->held);
    c->facts.can = PLACE_HAS_LEFT;
    changed(c);
    pthread_mutex_unlock(&c->lock);
    c->kick();
    pthread_mutex_lock(&c->lock);
    while (!(over = is_over(c)) && pthread_cond_timedwait(&c->changed, &c->lock, &t) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&c->lock);
    return over;
}

/* --- the control thread --- */

/* Lock held. */
static bool is_ready(struct coll_comm *c, uint32_t comm)
{
    const struct place_held_slot *s = place_held_find(&c->held, comm);

    return comm == 0 || (s != NULL && s->state == PLACE_HELD_READY && !s->drop);
}

/* Lock held. */
static void asked(struct coll_comm *c, uint32_t comm)
{
    if (c->only_advises) {
        cannot(c);
    } else if (place_held_promise(&c->held, comm) != NULL) {
        changed(c);
    }
}

/* Lock held. */
static void make(struct coll_comm *c, const struct place_note *note)
{
    struct place_held_slot *s = place_held_make(&c->held, note->make.comm);

    if (s != NULL) {
        struct coll_shadow *shadow = &c->shadow[slot_number(c, s)];

        *shadow = (struct coll_shadow){.rank = (int)note->make.rank};
        memcpy(shadow->id, note->make.id, sizeof(shadow->id));
        if (s->drop) {
            place_held_move(s, PLACE_HELD_FAILED); /* the user has ended it since its promise */
        }
        changed(c);
    }
}

bool coll_comm_take(struct coll_comm *c, const struct place_note *note, struct place_note *reply)
{
    bool replies = false;

    pthread_mutex_lock(&c->lock);
    switch (note->kind) {
    case PLACE_NOTE_HEARD:
        if (note->heard > c->heard && note->heard <= c->facts.seq) {
            c->heard = note->heard;
            pthread_cond_broadcast(&c->changed);
        }
        break;
    case PLACE_NOTE_ASK:
        asked(c, note->comm);
        break;
    case PLACE_NOTE_MAKE:
        make(c, note);
        break;
    case PLACE_NOTE_DROP:
        if (place_held_drop(&c->held, note->comm)) { /* a repeated one is no news for the hub */
            changed(c);
        }
        break;
    case PLACE_NOTE_MSG:
        *reply = (struct place_note){
            .kind = PLACE_NOTE_MSG, .rank = (uint32_t)c->rank, .key = c->meet.key};
        replies = place_member_take(&c->member, &note->msg, is_ready(c, note->msg.to), &reply->msg);
        pthread_cond_broadcast(&c->changed);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&c->lock);
    return replies;
}

bool coll_comm_facts(struct coll_comm *c, struct place_note *note)
{
    bool due;

    pthread_mutex_lock(&c->lock);
    due = !c->hub_lost && c->heard != c->facts.seq;
    *note = (struct place_note){
        .kind = PLACE_NOTE_FACTS, .rank = (uint32_t)c->rank, .key = c->meet.key};
    note->facts = c->facts;
    note->facts.begun = c->member.begun;
    for (int i = 0; i < PLACE_HELD; i++) {
        note->facts.held[i].state = c->held.slot[i].state;
        note->facts.held[i].comm = c->held.slot[i].comm;
    }
    pthread_mutex_unlock(&c->lock);
    return due;
}

void coll_comm_nics(struct coll_comm *c, unsigned nics, unsigned usable, unsigned used,
                    unsigned mbps)
{
    struct place_facts *f = &c->facts;

    pthread_mutex_lock(&c->lock);
    if (f->nics != nics || f->usable != usable || f->used != used || f->mbps != mbps) {
        f->nics = (uint16_t)nics;
        f->usable = (uint16_t)(usable < nics ? usable : nics);
        f->used = (uint16_t)(used < nics ? used : nics);
        f->mbps = mbps;
        changed(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void coll_comm_lost(struct coll_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->hub_lost = true;
    place_member_lost(&c->member);
    for (int i = 0; i < PLACE_HELD; i++) {
        const struct place_held_slot *s = &c->held.slot[i];

        if (s->state != PLACE_HELD_NOT &&
            (s->state != PLACE_HELD_READY || place_member_is_idle(&c->member, s->comm))) {
            place_held_drop(&c->held, s->comm); /* nobody will say how it goes on */
        }
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* --- threads that make and free --- */

/* Lock held. An aborted one is freed whatever runs on it: that is what the user has asked for. */
static struct place_held_slot *to_free(struct coll_comm *c)
{
    struct place_held_slot *s = place_held_free(&c->held, &c->member);

    for (int i = 0; s == NULL && c->aborted && i < PLACE_HELD; i++) {
        if (c->held.slot[i].state == PLACE_HELD_READY && !c->held.slot[i].taken) {
            s = &c->held.slot[i];
        }
    }
    return s;
}

/* Lock held. Of one that is being made: to make it, once; to break it off, while a thread does. */
static enum coll_work making_work(struct coll_comm *c, int i)
{
    const struct place_held_slot *s = &c->held.slot[i];
    const struct coll_shadow *shadow = &c->shadow[i];

    if (s->state != PLACE_HELD_MAKING) {
        return COLL_WORK_NONE;
    }
    if (!s->taken) {
        return COLL_WORK_MAKE;
    }
    return s->drop && !shadow->made && !shadow->unwanted ? COLL_WORK_BREAK : COLL_WORK_NONE;
}

enum coll_work coll_comm_work(struct coll_comm *c, int *slot)
{
    enum coll_work work = COLL_WORK_NONE;
    struct place_held_slot *s = NULL;

    pthread_mutex_lock(&c->lock);
    for (int i = 0; work == COLL_WORK_NONE && i < PLACE_HELD; i++) {
        work = making_work(c, i);
        s = work != COLL_WORK_NONE ? &c->held.slot[i] : NULL;
    }
    if (s == NULL) {
        s = to_free(c);
        work = s != NULL ? COLL_WORK_FREE : COLL_WORK_NONE;
    }
    if (s != NULL) {
        s->taken = true;
        *slot = slot_number(c, s);
        c->shadow[*slot].unwanted = c->shadow[*slot].breaks = work == COLL_WORK_BREAK;
    }
    pthread_mutex_unlock(&c->lock);
    return work;
}

void coll_comm_done(struct coll_comm *c, int slot, void *comm)
{
    struct place_held_slot *s = &c->held.slot[slot];
    void (*kick)(void) = c->kick; /* @c may be freed once the lock is */

    pthread_mutex_lock(&c->lock);
    s->taken = false;
    if (s->state == PLACE_HELD_MAKING) {
        c->shadow[slot].comm = comm;
        place_held_move(s, comm != NULL ? PLACE_HELD_READY : PLACE_HELD_FAILED);
    } else {
        c->shadow[slot].comm = NULL;
        place_held_move(s, PLACE_HELD_NOT);
    }
    changed(c);
    pthread_mutex_unlock(&c->lock);
    kick();
}

/* --- between the thread that makes a shadow and the one that breaks it off --- */

bool coll_comm_made(struct coll_comm *c, int slot)
{
    struct coll_shadow *s = &c->shadow[slot];
    bool is_ours;

    pthread_mutex_lock(&c->lock);
    s->made = true;
    pthread_cond_broadcast(&c->changed);
    while (s->breaks) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    is_ours = !s->broken;
    pthread_mutex_unlock(&c->lock);
    return is_ours;
}

/* What NCCL has stored it may free again at once, where the rest of what it does then fails, and on
 * some processors is seen before what it points at: it is to stand for a while. */
void *coll_comm_break(struct coll_comm *c, int slot)
{
    const struct timespec nap = {.tv_nsec = (long)R2_MS(50)}; /* no event tells of NCCL's store */
    struct coll_shadow *s = &c->shadow[slot];
    void *comm = NULL, *before;
    bool made;

    do {
        before = comm;
        nanosleep(&nap, NULL);
        comm = atomic_load_explicit(&s->early, memory_order_acquire);
        pthread_mutex_lock(&c->lock);
        made = s->made;
        s->broken = !made && comm != NULL && comm == before;
        pthread_mutex_unlock(&c->lock);
    } while (!made && !s->broken);
    return made ? NULL : comm;
}

void coll_comm_break_wait(struct coll_comm *c, int slot)
{
    pthread_mutex_lock(&c->lock);
    while (!c->shadow[slot].made) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

void coll_comm_broken(struct coll_comm *c, int slot)
{
    pthread_mutex_lock(&c->lock);
    c->shadow[slot].breaks = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}
