#include "r2_registry.h"

#include <unistd.h>

#include "base/r2_log.h"

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
    c->list.hash_next = *bucket_of(inst, c->id);
    *bucket_of(inst, c->id) = c;
    c->list.all_next = inst->comms.all;
    inst->comms.all = c;
    pthread_mutex_unlock(&inst->lock);
}

void r2_comm_unlink(struct r2_comm *c)
{
    struct r2_inst *inst = c->inst;
    struct r2_comm **p;

    pthread_mutex_lock(&inst->lock);
    for (p = bucket_of(inst, c->id); *p != c; p = &(*p)->list.hash_next) {
    }
    *p = c->list.hash_next;
    for (p = &inst->comms.all; *p != c; p = &(*p)->list.all_next) {
    }
    *p = c->list.all_next;
    for (p = &inst->comms.kicked; *p && *p != c; p = &(*p)->list.kick_next) {
    }
    if (*p) {
        *p = c->list.kick_next;
    }
    pthread_mutex_unlock(&inst->lock);
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

struct r2_comm *r2_comm_kicked(struct r2_inst *inst)
{
    struct r2_comm *c;

    pthread_mutex_lock(&inst->lock);
    c = inst->comms.kicked;
    if (c) {
        inst->comms.kicked = c->list.kick_next;
        c->list.kicked = 0;
    }
    pthread_mutex_unlock(&inst->lock);
    return c;
}

/* --- peers --- */

struct r2_peer *r2_peer_find(struct r2_inst *inst, struct r2_oob_peer *oob)
{
    struct r2_peer *p;

    for (p = inst->peers; p && p->oob != oob; p = p->next) {
    }
    return p;
}

void r2_peer_emit(struct r2_inst *inst, struct r2_peer *peer, enum fo_type type,
                  const union fo_body *body)
{
    size_t n;

    if (sizeof(peer->out.buf) - peer->out.len < FO_MAX_RECORD) {
        inst->post(inst, peer);
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

    for (struct r2_peer *p = inst->peers; p; p = p->next) {
        p->down.gen[nic] = gen;
        p->down.mask |= 1u << nic;
        p->down.repeat.at = 0;
        p->down.repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    }
}
