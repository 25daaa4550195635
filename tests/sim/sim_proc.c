/* An instance of the plugin and its threads, which here are events: each wakes after a random
 * delay, as the scheduler pleases. */
#include "sim.h"
#include "sim_locate.h"

#include "plugin/ib_transport/ib_path.h"
#include "plugin/core/r2_inst.h"

#include <stdio.h>
#include <stdlib.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static struct sim_proc *inside;

uint64_t sim_delay_draw(const struct sim_delay *d, struct fab_rng *r)
{
    return fab_rng_chance(r, d->rare_ppm) ? fab_rng_upto(r, d->rare) : fab_rng_upto(r, d->usual);
}

/* Which incarnations carried data, and how many came up after the first: the receivers say it. */
static void inc_judge(struct sim *s, const char *msg)
{
    const char *inc = strstr(msg, " life ");
    unsigned n;

    if (!strstr(msg, " : recv ") || !inc || sscanf(inc, " life %u", &n) != 1) {
        return;
    }
    s->st.returns += strstr(inc, " is up: ") != NULL;
    if (strstr(inc, " ends: ") && !strstr(inc, " bytes 0")) {
        s->st.carried[n < SIM_INCS ? n : SIM_INCS - 1]++;
    }
}

/* The plugin says each change of state in one line: that is where the summary has its numbers from.
 */
static void log_judge(struct sim *s, const char *msg)
{
    const char *settled = strstr(msg, " settled: ");
    unsigned parts;

    if (strstr(msg, " life ") && strstr(msg, " UP -> DOWN: ") &&
        !strstr(msg, ib_fault_name(IB_FAULT_CLOSE))) {
        s->st.switches++;
        sim_switch_judge(inside, msg);
    }
    if (strstr(msg, " -> FENCED: soft")) {
        s->st.soft++;
    }
    inc_judge(s, msg);
    if (strstr(msg, " : arrival ")) { /* P7, P9: none of them can be while one copy is live */
        sim_fail(s, "process %d took an impossible arrival: %s", inside->index, msg);
    }
    if (strstr(msg, " cannot go from ")) {
        sim_fail(s, "process %d: a state moves against its table: %s", inside->index, msg);
    }
    if (settled && sscanf(settled, " settled: %u parts", &parts) == 1) {
        s->st.retransmitted += parts;
    }
}

static void log_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    struct sim *s = sim_now_running;
    struct sim_proc *p = inside;

    if (!s || !p) {
        return;
    }
    snprintf(p->log[p->log_count++ % SIM_LOG_LINES], SIM_LOG_CHARS, "%10.3f us  p%d  %s",
             (double)fab_inproc_now(s->f) / 1e3, p->index, msg);
    log_judge(s, msg);
    sim_locate_line(s, p->index, level == R2_LOG_WARN, msg);
    if (sim_verbose) {
        printf("%12.3f p%d %s\n", (double)fab_inproc_now(s->f) / 1e3, p->index, msg);
    }
}

void sim_proc_log_print(const struct sim_proc *p)
{
    unsigned n = p->log_count < SIM_LOG_LINES ? p->log_count : SIM_LOG_LINES;

    for (unsigned i = p->log_count - n; i < p->log_count; i++) {
        printf("    %s\n", p->log[i % SIM_LOG_LINES]);
    }
}

void sim_proc_enter(struct sim_proc *p)
{
    inside = p;
    fab_inproc_set_host(p->sim->f, p->host);
}

void sim_proc_leave(struct sim_proc *p)
{
    r2_log_flush();
    inside = NULL;
}

/* ---- env ---- */

static uint64_t env_now(void *arg)
{
    struct sim_proc *p = arg;
    uint64_t now = fab_inproc_now(p->sim->f);

    /* looking at the clock takes time: what is stamped later in the same turn is later than the
     * turn's beginning */
    p->clock = now > p->clock ? now : p->clock + 1 + fab_rng_upto(&p->rng, 200);
    return p->clock;
}

/* The thread that waits is NCCL's: all others, of all processes, go on meanwhile. */
static void env_wait(void *arg, uint64_t ns)
{
    struct sim_proc *p = arg;
    struct sim *s = p->sim;
    uint64_t until = fab_inproc_now(s->f) + ns;

    sim_proc_leave(p);
    while (!s->failed && fab_inproc_next_event_time(s->f) <= until) {
        fab_inproc_step(s->f);
        sim_oracle_settle(s);
    }
    if (fab_inproc_now(s->f) < until) {
        fab_inproc_skip(s->f, until - fab_inproc_now(s->f));
    }
    sim_proc_enter(p);
}

static void env_random(void *arg, void *out, unsigned len)
{
    struct sim_proc *p = arg;
    uint8_t *b = out;

    for (unsigned i = 0; i < len; i++) {
        b[i] = (uint8_t)(fab_rng_next(&p->rng) >> 33);
    }
}

static void service_at(struct sim_proc *p, uint64_t at);

static void service_run(void *arg)
{
    struct sim_proc *p = arg;
    uint64_t next, now;

    p->service_id = 0;
    if (p->dead || !p->inst) {
        return;
    }
    if (fab_inproc_now(p->sim->f) < p->still_until) {
        service_at(p, p->still_until);
        return;
    }
    sim_proc_enter(p);
    next = r2_inst_service_step(p->inst);
    sim_proc_leave(p);
    now = fab_inproc_now(p->sim->f);
    sim_hash(p->sim, now ^ (uint64_t)p->index << 60);
    if (next != UINT64_MAX) {
        service_at(p,
                   (next > now ? next : now + 100) + sim_delay_draw(&p->sim->p.service, &p->rng));
    }
}

static void service_at(struct sim_proc *p, uint64_t at)
{
    if (p->service_id) {
        if (p->service_at <= at) {
            return;
        }
        fab_inproc_cancel(p->sim->f, p->service_id);
    }
    p->service_at = at;
    p->service_id = fab_inproc_at(p->sim->f, at, service_run, p);
}

void sim_proc_kick(struct sim_proc *p)
{
    if (!p->dead && p->inst) {
        service_at(p, fab_inproc_now(p->sim->f) + sim_delay_draw(&p->sim->p.service, &p->rng));
    }
}

static void env_kick_service(void *arg)
{
    struct sim_proc *p = arg;

    if (!p->dead) {
        service_at(p, fab_inproc_now(p->sim->f) + sim_delay_draw(&p->sim->p.service, &p->rng));
    }
}

static void worker_run(void *arg)
{
    struct sim_worker *w = arg;
    struct sim_proc *p = w->proc;
    int more;

    w->armed = 0;
    if (p->dead || !p->inst) {
        return;
    }
    if (fab_inproc_now(p->sim->f) < p->still_until) {
        w->armed = 1;
        fab_inproc_at(p->sim->f, p->still_until, worker_run, w);
        return;
    }
    sim_proc_enter(p);
    more = r2_inst_worker_step(p->inst, w->device);
    sim_proc_leave(p);
    if (more && !w->armed) {
        w->armed = 1;
        fab_inproc_at(p->sim->f,
                      fab_inproc_now(p->sim->f) + sim_delay_draw(&p->sim->p.worker, &p->rng),
                      worker_run, w);
    }
}

static void env_kick_worker(void *arg, int device)
{
    struct sim_proc *p = arg;
    struct sim_worker *w = &p->worker[device];

    if (w->armed) {
        return;
    }
    w->armed = 1;
    w->proc = p;
    w->device = device;
    fab_inproc_at(p->sim->f, fab_inproc_now(p->sim->f) + sim_delay_draw(&p->sim->p.worker, &p->rng),
                  worker_run, w);
}

/* --- devices that differ --- */

static struct ib_verbs plain;

/* NICs of odd rails are InfiniBand, where adaptive routing is on unless the process says otherwise.
 */
static int query_port_mixed(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int rc = plain.query_port(ctx, port, attr);
    const char *name = plain.get_device_name(ctx->device);

    if (rc == 0 && (name[strlen(name) - 1] & 1)) {
        attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    }
    return rc;
}

static struct ibv_qp *create_qp_no_inline(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (attr->cap.max_inline_data) {
        errno = EINVAL;
        return NULL;
    }
    return plain.create_qp(pd, attr);
}

static void devices_make(struct sim_proc *p, struct ib_verbs *verbs, struct r2_config *cfg)
{
    const struct sim_params *sp = &p->sim->p;

    plain = *verbs;
    snprintf(cfg->ib_hca, sizeof(cfg->ib_hca),
             "fab"); /* named: else one of another sort, or much slower, is no backup */
    sim_resort_verbs(sp, verbs, cfg);
    if (sp->no_inline) {
        verbs->create_qp = create_qp_no_inline;
    }
    if (sp->ar_mixed) {
        verbs->query_port = query_port_mixed;
        cfg->ib_ar = (int)(fab_rng_next(&p->rng) % 4) - 1;
        cfg->ib_ar = cfg->ib_ar > 1 ? -1 : cfg->ib_ar;
        cfg->ib_ar_threshold >>= fab_rng_next(&p->rng) % 4;
    }
}

void sim_proc_start(struct sim *s, int index, int host)
{
    struct sim_proc *p = &s->proc[index];
    struct r2_env env = {.arg = p,
                         .now_ns = env_now,
                         .random = env_random,
                         .wait = env_wait,
                         .threads = 0,
                         .kick_service = env_kick_service,
                         .kick_worker = env_kick_worker};
    struct r2_config cfg = s->cfg;
    struct ib_verbs verbs;
    struct r2_inst_params par = {
        .env = &env, .verbs = &verbs, .cfg = &cfg, .oob_create = sim_oob_create, .oob_arg = p};
    char why[256] = "", name[16];
    int ports = sim_params_ports(&s->p, index, &cfg);

    p->sim = s;
    p->index = index;
    p->host = host;
    cfg.rq_depth = index % 2 ? 96 - cfg.rq_depth : cfg.rq_depth; /* 32 or 64: not the neighbour's */
    p->rng.s = s->seed * 0x2545f4914f6cdd1dull + (uint64_t)index * 977 + 5;
    snprintf(name, sizeof(name), "h%d", host);
    par.host = name;
    fab_inproc_verbs(s->f, host, &verbs);
    devices_make(p, &verbs, &cfg);
    if (s->p.copy_nics) {
        sim_copy_verbs(&verbs);
        par.copy = &sim_copy_ops;
        par.copy_arg = p;
    }
    r2_log_many_first(UINT_MAX); /* each line is evidence here */
    r2_log_sink_set(log_sink);
    sim_proc_enter(p);
    p->inst = r2_inst_create(&par, why, sizeof(why));
    sim_proc_leave(p);
    if (ports >= 0) {
        close(ports);
        if (p->inst && p->inst->ways.rules != 1) {
            sim_fail(s, "process %d has not read its file of ports", index);
        }
    }
    if (!p->inst) {
        sim_fail(s, "process %d: no instance: %s", index, why);
    } else {
        /* whether a NIC reaches memory of a GPU is waited for under a lock of that NIC, and all of
         * NCCL's threads are one here */
        ib_mr_cache_reaches_set(p->inst->mem.mrs, NULL, NULL);
        sim_proc_kick(p);
    }
}

void sim_proc_stop(struct sim_proc *p)
{
    if (!p->inst) {
        return;
    }
    sim_proc_enter(p);
    r2_inst_destroy(p->inst);
    sim_proc_leave(p);
    p->inst = NULL;
}

void sim_proc_kill(struct sim_proc *p)
{
    struct sim *s = p->sim;
    char text[40];

    sim_trace(s, "process %d is killed", p->index);
    p->dead = 1;
    sim_bus_dead(s->bus, p->index);
    snprintf(text, sizeof(text), "h%d:* fatal", p->host);
    sim_fabric_fault(s, text);
}
