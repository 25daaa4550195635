#include "r2_registry.h"

#include <unistd.h>

#include "base/r2_log.h"
#include "r2_visit.h"

/* --- those that are awake --- */

/*
 * Pushed once until it rests again: conn.awake, which the gate guards, says whether it is here or
 * on the list.
 *
 *     owner, inside the gate                  service thread
 *     awake == 0: awake = 1, push
 *                                             takes the stack, enters it in the list
 *                                             visits the gate: nothing under way: awake = 0, off
 *     awake == 0: awake = 1, push
 *
 * Who posts before that visit is seen by it; who posts behind it sees awake == 0, since the gate
 * orders the two: none is lost. None is popped singly, so that an A-B-A does no harm.
 *
 * Before the thread sleeps for long (Dekker, all four sequentially consistent):
 *
 *     push                                    sleep = 1
 *     sleep == 1: sleep = 0, wake the thread  the stack is not empty: no sleep
 *
 * Either the owner finds the thread asleep, or the thread finds what the owner has pushed.
 */
void r2_comm_wake(void *arg)
{
    struct r2_comm *c = arg;
    struct r2_inst *inst = c->inst;
    struct r2_comm *first = atomic_load_explicit(&inst->comms.woken, memory_order_relaxed);

    do {
        c->list.woken_next = first;
    } while (!atomic_compare_exchange_weak_explicit(&inst->comms.woken, &first, c,
                                                    memory_order_seq_cst, memory_order_relaxed));
    if (atomic_load_explicit(&inst->comms.sleep, memory_order_seq_cst) &&
        atomic_exchange_explicit(&inst->comms.sleep, 0, memory_order_relaxed)) {
        r2_inst_wake(inst);
    }
}

bool r2_comms_sleep(struct r2_inst *inst)
{
    if (r2_comms_awake(inst)) {
        return false;
    }
    atomic_store_explicit(&inst->comms.sleep, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&inst->comms.woken, memory_order_seq_cst)) {
        r2_comms_turn(inst);
        return false;
    }
    return true;
}

void r2_comms_turn(struct r2_inst *inst)
{
    if (atomic_load_explicit(&inst->comms.sleep, memory_order_relaxed)) {
        atomic_store_explicit(&inst->comms.sleep, 0, memory_order_relaxed);
    }
}

static void list_enter(struct r2_comm **first, struct r2_comm *c)
{
    c->list.awake_next = *first;
    c->list.awake_prev = first;
    if (*first) {
        (*first)->list.awake_prev = &c->list.awake_next;
    }
    *first = c;
}

static void list_leave(struct r2_comm *c)
{
    if (c->list.awake_prev) {
        *c->list.awake_prev = c->list.awake_next;
        if (c->list.awake_next) {
            c->list.awake_next->list.awake_prev = c->list.awake_prev;
        }
        c->list.awake_prev = NULL;
    }
}

static void stir(struct r2_comm *c)
{
    struct r2_comm **first = &c->inst->steps.stirred;

    if (c->list.stirred_prev) {
        return;
    }
    c->list.stirred_next = *first;
    c->list.stirred_prev = first;
    if (*first) {
        (*first)->list.stirred_prev = &c->list.stirred_next;
    }
    *first = c;
}

static void stir_over(struct r2_comm *c)
{
    if (c->list.stirred_prev) {
        *c->list.stirred_prev = c->list.stirred_next;
        if (c->list.stirred_next) {
            c->list.stirred_next->list.stirred_prev = c->list.stirred_prev;
        }
        c->list.stirred_prev = NULL;
    }
}

struct r2_comm *r2_comms_awake(struct r2_inst *inst)
{
    struct r2_comm *c, *next;

    if (atomic_load_explicit(&inst->comms.woken, memory_order_relaxed) == NULL) {
        return inst->steps.awake;
    }
    c = atomic_exchange_explicit(&inst->comms.woken, NULL,
                                 memory_order_acquire); /* pairs with the push */
    for (; c; c = next) {
        next = c->list.woken_next;
        list_leave(c); /* it may have been expecting */
        list_enter(&inst->steps.awake, c);
        stir(c);
    }
    return inst->steps.awake;
}

static void awake_drop(struct r2_comm *c)
{
    r2_comms_awake(c->inst); /* it may have been woken just now */
    list_leave(c);
}

void r2_comm_rest(struct r2_comm *c)
{
    awake_drop(c);
    IB_RLX_SET(c->conn.awake, 0);
}

void r2_comm_rest_expecting(struct r2_comm *c)
{
    r2_comm_rest(c);
    list_enter(&c->inst->steps.expecting, c);
}

struct r2_comm *r2_comms_expecting(struct r2_inst *inst)
{
    r2_comms_awake(inst); /* those that were woken just now are none of them */
    return inst->steps.expecting;
}

struct r2_comm *r2_comms_stirred(struct r2_inst *inst)
{
    r2_comms_awake(inst); /* those that were woken just now are some of them */
    return inst->steps.stirred;
}

void r2_comms_looked(struct r2_inst *inst, int look)
{
    struct r2_comm *next;

    for (struct r2_comm *c = look ? inst->steps.stirred : NULL; c; c = next) {
        next = c->list.stirred_next;
        if (!IB_RLX_GET(c->conn.awake)) { /* who wakes now is pushed, and enters again */
            stir_over(c);
        }
    }
}

/* --- connections --- */

static struct r2_comm **bucket_of(struct r2_inst *inst, uint32_t id)
{
    return &inst->comms.bucket[id % R2_COMM_BUCKETS];
}

void r2_comm_enter(struct r2_comm *c)
{
    struct r2_inst *inst = c->inst;

    pthread_mutex_lock(&inst->lock);
    c->id = ++inst->comms.next_id;
    r2_visits_join(c);
    c->list.hash_next = *bucket_of(inst, c->id);
    *bucket_of(inst, c->id) = c;
    c->list.all_next = inst->comms.all;
    if (inst->comms.all) {
        inst->comms.all->list.all_prev = c;
    }
    inst->comms.all = c;
    inst->comms.n++;
    pthread_mutex_unlock(&inst->lock);
}

/* Must hold inst->lock. */
static void kick_drop(struct r2_comm *c)
{
    struct r2_comm **const list[] = {&c->inst->comms.kicked, &c->inst->comms.turn}, **p;

    for (int i = 0; i < 2; i++) {
        for (p = list[i]; *p && *p != c; p = &(*p)->list.kick_next) {
        }
        if (*p) {
            *p = c->list.kick_next;
        }
    }
    c->list.kicked = 0;
}

static void leave_peer(struct r2_comm *c)
{
    if (c->list.peer_prev) {
        *c->list.peer_prev = c->list.peer_next;
        if (c->list.peer_next) {
            c->list.peer_next->list.peer_prev = c->list.peer_prev;
        }
        c->list.peer_prev = NULL;
    }
    if (c->list.from_prev) {
        *c->list.from_prev = c->list.from_next;
        if (c->list.from_next) {
            c->list.from_next->list.from_prev = c->list.from_prev;
        }
        c->list.from_prev = NULL;
    }
}

void r2_comm_unlink(struct r2_comm *c)
{
    struct r2_inst *inst = c->inst;
    struct r2_comm **p;

    pthread_mutex_lock(&inst->lock);
    for (p = bucket_of(inst, c->id); *p != c; p = &(*p)->list.hash_next) {
    }
    *p = c->list.hash_next;
    *(c->list.all_prev ? &c->list.all_prev->list.all_next : &inst->comms.all) = c->list.all_next;
    if (c->list.all_next) {
        c->list.all_next->list.all_prev = c->list.all_prev;
    }
    inst->comms.n--;
    if (c->list.kicked) {
        kick_drop(c);
    }
    pthread_mutex_unlock(&inst->lock);
    r2_timer_set(&inst->steps.due, &c->list.due, UINT64_MAX);
    leave_peer(c);
    awake_drop(c);
    stir_over(c);
}

static struct r2_comm **from_of(struct r2_inst *inst, const struct r2_peer *peer, uint32_t src)
{
    uint64_t h = ((uint64_t)(uintptr_t)peer >> 4) * 0x9e3779b97f4a7c15ull;

    return &inst->index.from[((h >> 32) + src) % R2_COMM_BUCKETS]; /* numbers follow each other */
}

void r2_comm_join(struct r2_comm *c, struct r2_peer *peer)
{
    struct r2_comm **from;

    c->peer = peer;
    c->list.peer_prev = &peer->comms;
    c->list.peer_next = peer->comms;
    if (peer->comms) {
        peer->comms->list.peer_prev = &c->list.peer_next;
    }
    peer->comms = c;
    if (c->is_send) {
        return;
    }
    from = from_of(c->inst, peer, c->fo.peer);
    c->list.from_prev = from;
    c->list.from_next = *from;
    if (*from) {
        (*from)->list.from_prev = &c->list.from_next;
    }
    *from = c;
}

struct r2_comm *r2_comm_from(struct r2_inst *inst, const struct r2_peer *peer, uint32_t src)
{
    struct r2_comm *c;

    for (c = *from_of(inst, peer, src); c && !(c->peer == peer && c->fo.peer == src);
         c = c->list.from_next) {
    }
    return c;
}

struct r2_comm *r2_comm_find(struct r2_inst *inst, uint32_t id)
{
    struct r2_comm *c;

    pthread_mutex_lock(&inst->lock);
    for (c = *bucket_of(inst, id); c && c->id != id; c = c->list.hash_next) {
    }
    pthread_mutex_unlock(&inst->lock);
    return c;
}

int r2_comm_leaves(struct r2_comm *c)
{
    int going;

    pthread_mutex_lock(&c->inst->lock);
    going = c->list.going = c->list.visits == 0;
    pthread_mutex_unlock(&c->inst->lock);
    return going;
}

struct r2_comm *r2_comm_first(struct r2_inst *inst)
{
    struct r2_comm *c;

    pthread_mutex_lock(&inst->lock);
    c = inst->comms.all;
    pthread_mutex_unlock(&inst->lock);
    return c;
}

unsigned r2_comm_count(struct r2_inst *inst)
{
    unsigned n;

    pthread_mutex_lock(&inst->lock);
    n = inst->comms.n;
    pthread_mutex_unlock(&inst->lock);
    return n;
}

/* --- listeners --- */

void r2_listen_enter(struct r2_listen *l)
{
    struct r2_inst *inst = l->inst;
    struct r2_listen **bucket;

    pthread_mutex_lock(&inst->lock);
    l->id = ++inst->comms.next_id;
    bucket = &inst->comms.listen[l->id % R2_COMM_BUCKETS];
    l->next = *bucket;
    l->prev = bucket;
    if (l->next) {
        l->next->prev = &l->next;
    }
    *bucket = l;
    pthread_mutex_unlock(&inst->lock);
}

void r2_listen_unlink(struct r2_listen *l)
{
    pthread_mutex_lock(&l->inst->lock);
    *l->prev = l->next;
    if (l->next) {
        l->next->prev = l->prev;
    }
    pthread_mutex_unlock(&l->inst->lock);
}

struct r2_listen *r2_listen_find(const struct r2_inst *inst, uint32_t id)
{
    struct r2_listen *l;

    for (l = inst->comms.listen[id % R2_COMM_BUCKETS]; l && l->id != id; l = l->next) {
    }
    return l;
}

/* --- the service thread's turn --- */

void r2_inst_wake(void *arg)
{
    struct r2_inst *inst = arg;
    uint64_t one = 1;

    if (!inst->env.threads) {
        inst->env.kick_service(inst->env.arg);
    } else if (write(inst->service.wake_fd, &one, sizeof(one)) < 0) {
        return; /* the counter is full: the thread is awake anyway */
    }
}

void r2_comm_kick(void *arg)
{
    struct r2_comm *c = arg;
    struct r2_inst *inst = c->inst;
    int first;

    pthread_mutex_lock(&inst->lock);
    first = !c->list.kicked;
    if (first) {
        c->list.kicked = 1;
        c->list.kick_next = inst->comms.kicked;
        inst->comms.kicked = c;
    }
    pthread_mutex_unlock(&inst->lock);
    if (first) {
        r2_inst_wake(inst);
    }
}

void r2_comms_kicked(struct r2_inst *inst)
{
    struct r2_comm **last = &inst->comms.turn;

    pthread_mutex_lock(&inst->lock);
    while (*last) {
        last = &(*last)->list.kick_next;
    }
    *last = inst->comms.kicked;
    inst->comms.kicked = NULL;
    pthread_mutex_unlock(&inst->lock);
}

struct r2_comm *r2_comm_kicked(struct r2_inst *inst)
{
    struct r2_comm *c;

    pthread_mutex_lock(&inst->lock);
    c = inst->comms.turn;
    if (c) {
        inst->comms.turn = c->list.kick_next;
        c->list.kicked = 0;
    }
    pthread_mutex_unlock(&inst->lock);
    return c;
}

/* --- peers --- */

static struct r2_peer **peer_bucket(struct r2_inst *inst, const struct r2_oob_peer *oob)
{
    uint64_t h = ((uint64_t)(uintptr_t)oob >> 4) * 0x9e3779b97f4a7c15ull;

    return &inst->index.peer[(h >> 32) % R2_PEER_BUCKETS];
}

void r2_peer_enter(struct r2_inst *inst, struct r2_peer *peer)
{
    struct r2_peer **bucket = peer_bucket(inst, peer->oob);

    peer->hash_next = *bucket;
    *bucket = peer;
    peer->next = inst->index.peers;
    peer->prev = &inst->index.peers;
    if (peer->next) {
        peer->next->prev = &peer->next;
    }
    inst->index.peers = peer;
}

void r2_peer_unlink(struct r2_inst *inst, struct r2_peer *peer)
{
    struct r2_peer **p;

    for (p = peer_bucket(inst, peer->oob); *p != peer; p = &(*p)->hash_next) {
    }
    *p = peer->hash_next;
    *peer->prev = peer->next;
    if (peer->next) {
        peer->next->prev = peer->prev;
    }
}

struct r2_peer *r2_peer_find(struct r2_inst *inst, struct r2_oob_peer *oob)
{
    struct r2_peer *p;

    for (p = *peer_bucket(inst, oob); p && p->oob != oob; p = p->hash_next) {
    }
    return p;
}

const char *r2_peer_nic_name(const struct r2_peer *peer, unsigned nic)
{
    for (const struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        for (int p = 0; p < c->conn.npaths; p++) {
            if (c->conn.path[p].peer_nic == nic && c->far.nic[p][0]) {
                return c->far.nic[p];
            }
        }
    }
    return NULL;
}

bool r2_peer_is_missed(const struct r2_peer *peer)
{
    bool missed = false;

    for (struct r2_comm *c = peer->comms; c && !missed; c = c->list.peer_next) {
        if (atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN) {
            r2_comm_visit(c);
            missed = !c->fo.bye.peer && c->fo.error == R2_OK;
            r2_comm_unvisit(c);
        }
    }
    return missed;
}

void r2_peer_emit(struct r2_inst *inst, struct r2_peer *peer, enum fo_type type,
                  const union fo_body *body)
{
    size_t n;

    if (sizeof(peer->out.buf) - peer->out.len < FO_MAX_RECORD) {
        inst->above.post(inst, peer);
    }
    n = fo_pack(type, body, peer->out.buf + peer->out.len, sizeof(peer->out.buf) - peer->out.len);
    if (n == 0) {
        R2_WARN("a %s record cannot be packed", fo_type_name(type));
        return;
    }
    peer->out.len += n;
}

void r2_peers_nic_down(struct r2_inst *inst, int nic)
{
    uint32_t gen = atomic_load_explicit(&inst->nics.nic[nic].generation, memory_order_relaxed);

    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        p->down.gen[nic] = gen;
        p->down.mask |= 1u << nic;
        p->down.repeat.at = 0;
        p->down.repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    }
}
