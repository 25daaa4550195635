/* In-process engine: life, clock, user events, faults. */
#include "fab_inproc_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nic *fab_inproc_nic_box(struct fab_inproc *f, int host, int nic)
{
    return &f->nics[host * f->desc.nics + nic];
}

struct fab_nic *fab_inproc_nic(struct fab_inproc *f, int host, int nic)
{
    return &fab_inproc_nic_box(f, host, nic)->n;
}

void fab_inproc_mix(struct fab_inproc *f, uint64_t v)
{
    f->digest = (f->digest ^ v ^ f->now) * 0x9e3779b97f4a7c15ull;
    f->digest ^= f->digest >> 29;
}

static struct fab_nic *host_nic(struct fab_engine *e, int host, int nic)
{
    return fab_inproc_nic((struct fab_inproc *)e, host, nic);
}

static int init_nics(struct fab_inproc *f)
{
    f->nics = calloc((size_t)f->desc.hosts * (size_t)f->desc.nics, sizeof *f->nics);
    if (!f->nics) {
        return -1;
    }
    for (int h = 0; h < f->desc.hosts; h++) {
        f->hosts[h] = (struct fab_ibv_host){
            .eng = &f->eng, .host = h, .nnics = f->desc.nics, .nic = host_nic};
        for (int n = 0; n < f->desc.nics; n++) {
            struct nic *nic = fab_inproc_nic_box(f, h, n);
            struct fab_nic_cfg cfg = f->opts.nic;

            cfg.base_rate = f->desc.nic[h][n].rate;
            cfg.ib = f->desc.nic[h][n].ib;
            cfg.ece = f->desc.nic[h][n].ece;
            cfg.latency_ns = f->desc.nic[h][n].latency_ns;
            nic->f = f;
            fab_inproc_net_init(nic);
            if (fab_nic_init(&nic->n, &f->eng, h, n, &cfg)) {
                return -1;
            }
        }
    }
    return 0;
}

struct fab_inproc *fab_inproc_create(const struct fab_desc *desc, uint64_t seed,
                                     const struct fab_inproc_opts *opts)
{
    struct fab_inproc *f;
    uint32_t seg = opts ? opts->nic.seg_bytes : 0;

    if (desc->hosts < 1 || desc->hosts > FAB_MAX_HOSTS || desc->nics < 1 ||
        desc->nics > FAB_MAX_NICS || desc->spines > FAB_MAX_SPINES || desc->spines < 0 ||
        seg % 64 || seg > 1u << 20) {
        errno = EINVAL;
        return NULL;
    }
    f = calloc(1, sizeof *f);
    if (!f) {
        return NULL;
    }
    f->eng.ops = &fab_inproc_ops;
    f->eng.never_block = 1;
    f->desc = *desc;
    if (opts) {
        f->opts = *opts;
    }
    f->rng.s = seed;
    if (init_nics(f) || fab_inproc_spine_init(f)) {
        fab_inproc_destroy(f);
        errno = ENOMEM;
        return NULL;
    }
    return f;
}

void fab_inproc_destroy(struct fab_inproc *f)
{
    for (int i = 0; f->nics && i < f->desc.hosts * f->desc.nics; i++) {
        struct fab_nic *n = &f->nics[i].n;

        if (n->ctxs) {
            fprintf(stderr, "fab_inproc_destroy: a context is still open on h%u:n%u\n", n->host,
                    n->nic);
            abort();
        }
        fab_nic_fini(n);
    }
    fab_inproc_net_fini(f);
    for (uint32_t i = 0; i < f->nusers; i++) {
        free(f->users[i]);
    }
    free(f->users);
    free(f->heap.v);
    free(f->nics);
    free(f->rails);
    fab_ibv_bind(NULL);
    free(f);
}

void fab_inproc_set_host(struct fab_inproc *f, int host)
{
    fab_ibv_bind(&f->hosts[host]);
}

void fab_inproc_verbs(struct fab_inproc *f, int host, struct ib_verbs *v)
{
    fab_inproc_set_host(f, host);
    *v = (struct ib_verbs){
        .get_device_list = fab_ibv_get_device_list,
        .free_device_list = fab_ibv_free_device_list,
        .get_device_name = fab_ibv_get_device_name,
        .get_device_guid = fab_ibv_get_device_guid,
        .open_device = fab_ibv_open_device,
        .close_device = fab_ibv_close_device,
        .query_device = fab_ibv_query_device,
        .query_port = fab_ibv_query_port,
        .is_removed = fab_ibv_is_removed,
        .query_gid = fab_ibv_query_gid,
        .get_async_event = fab_ibv_get_async_event,
        .ack_async_event = fab_ibv_ack_async_event,
        .alloc_pd = fab_ibv_alloc_pd,
        .dealloc_pd = fab_ibv_dealloc_pd,
        .reg_mr = fab_ibv_reg_mr,
        .reg_mr_iova2 = fab_ibv_reg_mr_iova2,
        .reg_dmabuf_mr = fab_ibv_reg_dmabuf_mr,
        .dereg_mr = fab_ibv_dereg_mr,
        .create_comp_channel = fab_ibv_create_comp_channel,
        .destroy_comp_channel = fab_ibv_destroy_comp_channel,
        .get_cq_event = fab_ibv_get_cq_event,
        .ack_cq_events = fab_ibv_ack_cq_events,
        .create_cq = fab_ibv_create_cq,
        .destroy_cq = fab_ibv_destroy_cq,
        .create_srq = fab_ibv_create_srq,
        .destroy_srq = fab_ibv_destroy_srq,
        .create_qp = fab_ibv_create_qp,
        .modify_qp = fab_ibv_modify_qp,
        .query_qp = fab_ibv_query_qp,
        .destroy_qp = fab_ibv_destroy_qp,
        .query_ece = fab_ibv_query_ece,
        .set_ece = fab_ibv_set_ece,
        .fork_init = fab_ibv_fork_init,
        .wc_status_str = fab_ibv_wc_status_str,
        .event_type_str = fab_ibv_event_type_str,
    };
}

void fab_inproc_on_channel(struct fab_inproc *f, void (*cb)(void *arg, int host), void *arg)
{
    f->on_channel = cb;
    f->channel_arg = arg;
}

uint64_t fab_inproc_now(struct fab_inproc *f)
{
    return f->now;
}

/* ---- events of the user ---- */

static void user_fire(struct fab_timer *t)
{
    struct user *u = t->owner;
    struct fab_inproc *f = u->f;
    void (*cb)(void *arg) = u->cb;
    void *arg = u->arg;

    u->gen++;
    u->next = f->users_free;
    f->users_free = u;
    cb(arg);
}

static struct user *user_new(struct fab_inproc *f)
{
    struct user **users, *u = f->users_free;

    if (u) {
        f->users_free = u->next;
        return u;
    }
    u = calloc(1, sizeof *u);
    users = u ? realloc(f->users, (f->nusers + 1) * sizeof *users) : NULL;
    if (!users) {
        free(u);
        return NULL;
    }
    f->users = users;
    u->index = f->nusers;
    u->f = f;
    u->t.fire = user_fire;
    u->t.owner = u;
    users[f->nusers++] = u;
    return u;
}

uint64_t fab_inproc_at(struct fab_inproc *f, uint64_t when_ns, void (*cb)(void *arg), void *arg)
{
    struct user *u = user_new(f);

    if (!u) {
        return 0;
    }
    u->cb = cb;
    u->arg = arg;
    f->eng.ops->timer_set(&f->eng, &u->t, when_ns);
    return (uint64_t)u->gen << 32 | (u->index + 1);
}

void fab_inproc_cancel(struct fab_inproc *f, uint64_t id)
{
    uint32_t index = (uint32_t)id - 1;
    struct user *u = index < f->nusers ? f->users[index] : NULL;

    if (!u || u->gen != id >> 32 || !u->t.slot) {
        return;
    }
    heap_cancel(&f->heap, &u->t);
    u->gen++;
    u->next = f->users_free;
    f->users_free = u;
}

/* ---- the clock ---- */

int fab_inproc_step(struct fab_inproc *f)
{
    struct fab_timer *t = heap_pop(&f->heap);

    if (!t) {
        return 0;
    }
    if (t->when > f->now) {
        f->now = t->when;
    }
    f->events++;
    fab_timer_fire(t);
    return 1;
}

uint64_t fab_inproc_next_event_time(struct fab_inproc *f)
{
    if (!f->heap.n) {
        return UINT64_MAX;
    }
    return f->heap.v[1]->when > f->now ? f->heap.v[1]->when : f->now;
}

void fab_inproc_run_until(struct fab_inproc *f, uint64_t t_ns)
{
    while (f->heap.n && f->heap.v[1]->when <= t_ns) {
        fab_inproc_step(f);
    }
    if (f->now < t_ns) {
        f->now = t_ns;
    }
}

void fab_inproc_skip(struct fab_inproc *f, uint64_t ns)
{
    f->now += ns;
}

/* ---- faults, figures ---- */

static void apply(struct fab_inproc *f, const struct fab_fault *fault, bool other)
{
    for (int h = 0; h < f->desc.hosts; h++) {
        for (int n = 0; n < f->desc.nics; n++) {
            struct fab_nic *nic = fab_inproc_nic(f, h, n);

            if (!fab_ports_has(fab_ports(fault->host, fault->nic), h, n) ||
                (other && !fab_fault_moves(fault, &nic->link))) {
                continue;
            }
            fab_inproc_mix(f, (uint64_t)fault->kind << 32 ^ fault->value);
            fab_nic_fault(nic, fault, fab_rng_chance(&f->rng, f->opts.remove_event_ppm));
        }
    }
}

int fab_inproc_fault(struct fab_inproc *f, const char *text, char *err, size_t err_len)
{
    struct fab_fault fault, other;

    if (fab_fault_parse(text, &fault, err, err_len)) {
        return -1;
    }
    if (!fab_fault_spine_fits(&fault, &f->desc, err, err_len)) {
        return -1;
    }
    if (!fab_fault_fits(&fault, f->desc.hosts, f->desc.nics)) {
        if (err && err_len) {
            snprintf(err, err_len, "'%s': the fabric has hosts 0 to %d with NICs 0 to %d", text,
                     f->desc.hosts - 1, f->desc.nics - 1);
        }
        return -1;
    }
    fab_inproc_spine_fault(f, &fault);
    if (fault.at == FAB_AT_SPINE) {
        return 0;
    }
    apply(f, &fault, false);
    if (fab_fault_other(&fault, &other)) {
        apply(f, &other, true);
    }
    return 0;
}

void fab_inproc_totals(struct fab_inproc *f, struct fab_counters *sum)
{
    uint64_t *to = (uint64_t *)sum;

    _Static_assert(sizeof *sum % sizeof(uint64_t) == 0, "counters are an array of uint64_t");
    memset(sum, 0, sizeof *sum);
    for (int i = 0; i < f->desc.hosts * f->desc.nics; i++) {
        const uint64_t *from = (const uint64_t *)&f->nics[i].n.cnt;

        for (size_t k = 0; k < sizeof *sum / sizeof *to; k++) {
            to[k] += from[k];
        }
    }
}

uint64_t fab_inproc_events(struct fab_inproc *f)
{
    return f->events;
}

uint64_t fab_inproc_digest(struct fab_inproc *f)
{
    return f->digest;
}

uint64_t fab_inproc_random(struct fab_inproc *f)
{
    return fab_rng_next(&f->rng);
}
