#include "core/r2_inst.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "admin/r2_admin_files.h"
#include "admin/r2_drain.h"
#include "admin/r2_failback.h"
#include "admin/r2_host_share.h"
#include "admin/r2_rehearse.h"
#include "balance/r2_balance.h"
#include "balance/r2_slow.h"
#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "base/r2_pages.h"
#include "base/r2_thread.h"
#include "bounce/r2_reach.h"
#include "bounce/r2_relay.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "ib_transport/ib_way_file.h"
#include "probe/diagnosis/r2_last_path.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/diagnosis/r2_hang.h"
#include "probe/diagnosis/r2_slowness.h"
#include "probe/diagnosis/r2_verdict.h"
#include "probe/diagnosis/r2_way_report.h"
#include "probe/health/r2_counters.h"
#include "probe/health/r2_inband.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_loopback.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_port_monitor.h"
#include "probe/health/r2_probation.h"
#include "probe/health/r2_watch.h"
#include "probe/health/r2_way_notified.h"
#include "r2_close.h"
#include "r2_conn.h"
#include "r2_dispatch.h"
#include "r2_peer.h"
#include "r2_reconnect.h"
#include "r2_setup.h"
#include "r2_wait.h"
#include "telemetry/r2_prof.h"
#include "telemetry/r2_report.h"

/* --- one turn --- */

/* Steps one connection; it may be freed. */
static void step_comm(struct r2_comm *c, uint64_t now)
{
    uint64_t next;
    int setup;

    r2_comm_visit(c);
    r2_report_comm(c); /* as NCCL's thread has left it */
    setup = atomic_load_explicit(&c->state.setup, memory_order_relaxed);
    if (atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN) {
        next = r2_close_step(c, now);
        if (next == 0) {
            return;
        }
    } else if (setup < R2_SETUP_DONE) {
        next = r2_setup_step(c, now);
    } else {
        next = r2_net_step_attempt(c, now);
        if (setup == R2_SETUP_DONE) {
            next = r2_earlier(next, fo_step(&c->fo, now)); /* first: what it settles may return */
            next = r2_earlier(next, r2_reconnect_step(c, now));
            next = r2_earlier(next, r2_close_send_abort(c, now));
            next = r2_earlier(next, r2_close_notify(c, now));
        }
    }
    r2_timer_set(&c->inst->steps.due, &c->list.due, next);
    r2_host_share_comm(c);
    r2_balance_comm(c);
    r2_report_comm(c);
    r2_comm_unvisit(c);
}

/* All are taken out before the first is stepped: what is due again at once waits for the next turn.
 * A step frees no other connection. */
static void step_due(struct r2_inst *inst, uint64_t now)
{
    struct r2_comm *first = NULL, **last = &first, *next;
    struct r2_timer *t;

    while ((t = r2_timers_take(&inst->steps.due, now)) != NULL) {
        *last = (struct r2_comm *)((char *)t - offsetof(struct r2_comm, list.due));
        last = &(*last)->list.due_next;
    }
    *last = NULL;
    for (; first; first = next) {
        next = first->list.due_next;
        step_comm(first, now);
    }
}

/* A worker is alive as long as jobs of its own come back: those of other devices say nothing about
 * it. A quiet one counts from when it ended: it may have lain here. */
static void reap(struct r2_inst *inst, uint64_t now)
{
    if (ib_workers_reap(inst->jobs.workers) == 0) {
        return;
    }
    for (int i = 0; i < inst->nics.device_count; i++) {
        uint64_t n = ib_workers_reaped(inst->jobs.workers, i);
        uint64_t at = n != inst->jobs.reaped[i] ? now : ib_workers_quiet_at(inst->jobs.workers, i);

        inst->jobs.reaped[i] = n;
        inst->jobs.alive[i] = at > inst->jobs.alive[i] ? at : inst->jobs.alive[i];
    }
}

/* What the wait has found empty is left alone. With a look at the ports all are read: a kernel that
 * has lost an event, or a device that asks for none, keeps nothing back for longer. */
static void read_descriptors(struct r2_inst *inst, int look)
{
    uint32_t no_message = look ? 0 : inst->service.no_message;
    uint32_t no_event = look ? 0 : inst->service.no_event;

    inst->service.no_message = inst->service.no_event = 0; /* known of this turn alone */
    r2_inband_progress(inst, no_message);
    ib_async_progress(&inst->nics, no_event, r2_port_monitor_fact, inst);
}

uint64_t r2_inst_service_step(struct r2_inst *inst)
{
    uint64_t now = r2_now(inst), next, oob_next;
    struct r2_comm *c;
    int look = r2_port_monitor_is_due(inst, now);

    r2_watch_clock(inst, now);
    r2_visits_step(inst, now);
    oob_next = inst->oob->ops->progress(inst->oob, now);
    read_descriptors(inst, look);
    reap(inst, now);
    /* Timed first: a step that ends in kicking its own connection must not starve the others. */
    step_due(inst, now);
    r2_comms_kicked(inst);
    while ((c = r2_comm_kicked(inst)) != NULL) {
        step_comm(c, now);
    }
    r2_reconnect_admit(inst);
    /* may ask for a check of the ports, and has words for the peers */
    next = r2_watch_step(inst, now);
    next = r2_earlier(next, r2_probation_step(inst, now));
    next = r2_earlier(next, r2_pairs_announce(inst, now));
    if (inst->share.rung || look) {
        r2_admin_files_poll(inst, inst->share.rung);
    }
    r2_host_share_step(inst, now, look);
    next = r2_earlier(next, r2_balance_step(inst, now, look));
    inst->share.rung = 0;
    next = r2_earlier(next, r2_port_monitor_step(inst, now, look));
    next = r2_earlier(next, r2_peers_step(inst, now));
    next = r2_earlier(next, r2_timers_next(&inst->steps.due));
    next = r2_earlier(next, r2_report_step(inst, now, look));
    r2_comms_looked(inst, look);
    r2_log_flush();
    return r2_earlier(next, oob_next);
}

int r2_inst_worker_step(struct r2_inst *inst, int device)
{
    return ib_worker_step(inst->jobs.workers, device);
}

/* --- the thread --- */

static void *service_main(void *arg)
{
    struct r2_inst *inst = arg;

    pthread_setname_np(pthread_self(), "r2-service");
    while (!atomic_load_explicit(&inst->service.stop, memory_order_acquire)) {
        r2_wait(inst, r2_inst_service_step(inst));
    }
    return NULL;
}

static int start_thread(struct r2_inst *inst, char *why, size_t why_len)
{
    int rc;

    inst->service.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (inst->service.wake_fd < 0) {
        snprintf(why, why_len, "eventfd: %s", strerror(errno));
        return -1;
    }
    rc = r2_thread_start(&inst->service.thread, service_main, inst);
    if (rc != 0) {
        snprintf(why, why_len, "service thread: %s", strerror(rc));
        return -1;
    }
    inst->service.started = 1;
    return 0;
}

/* --- birth and death --- */

/* Who hears of facts (r2_notify.h), from the bottom of the folders to the top. */
static const struct r2_subscriber *const subscribers[] = {
    &r2_way_notified_subscriber, &r2_locate_subscriber, &r2_last_path_subscriber,
    &r2_gossip_subscriber,       &r2_way_subscriber,    &r2_hang_subscriber,
    &r2_slowness_subscriber,     &r2_slow_subscriber,   &r2_report_subscriber,
    &r2_host_share_subscriber,   &r2_drain_subscriber,  NULL};

/* The peer is held over the message, as over one of the channel's. */
static void deliver(struct r2_inst *inst, struct r2_peer *peer, const void *msg, size_t len)
{
    struct r2_peer *held = r2_peer_get(inst, peer->oob);

    if (held) {
        r2_dispatch(inst, held, msg, len);
        r2_peer_put(inst, held);
    }
}

static void params_take(struct r2_inst *inst, const struct r2_inst_params *p)
{
    inst->env = *p->env;
    inst->v = *p->verbs;
    inst->cfg = *p->cfg;
    inst->ports.polls = 1; /* the first connection reads anew what was read at init */
    inst->service.wake_fd = -1;
    snprintf(inst->self.host, sizeof(inst->self.host), "%s", p->host ? p->host : "?");
    if (p->job && p->job->id[0]) {
        snprintf(inst->self.job, sizeof(inst->self.job), "%s:%s", p->job->scheduler, p->job->id);
    }
    snprintf(inst->share.run_dir, sizeof(inst->share.run_dir), "%s",
             p->run_dir && strlen(p->run_dir) < sizeof(inst->share.run_dir) ? p->run_dir : "");
    pthread_mutex_init(&inst->lock, NULL);
}

/* NCCL_R2_WAYS. What is wrong with its file ends no job. */
static void ways_open(struct r2_inst *inst)
{
    char why[600];

    inst->self.digest = r2_config_digest(&inst->cfg);
    if (ib_ways_load(&inst->ways, inst->cfg.ways, why, sizeof(why)) != 0) {
        R2_WARN("%s", why);
    }
    if (inst->ways.rules) {
        inst->self.digest = (inst->self.digest ^ ib_ways_digest(&inst->ways)) * R2_FNV_PRIME;
        R2_INFO("ways by NCCL_R2_WAYS=%s: rules: %u, digest %08x", inst->cfg.ways, inst->ways.rules,
                ib_ways_digest(&inst->ways));
    }
}

/* What modules keep of the instance. -1: out of memory. */
static int modules_open(struct r2_inst *inst)
{
    return r2_port_monitor_open(inst) != 0 || r2_load_open(inst) != 0 ||
                   r2_failback_open(inst) != 0 || r2_rehearse_open(inst) != 0 ||
                   r2_loopbacks_open(inst) != 0 || r2_counters_open(inst) != 0 ||
                   r2_locate_init(inst) != 0 || r2_verdict_open(inst) != 0 ||
                   r2_gossip_open(inst) != 0 || r2_slow_open(inst) != 0 ||
                   r2_hang_open(inst) != 0 || r2_slowness_open(inst) != 0
               ? -1
               : 0;
}

/* No job of a worker is out. */
static void modules_close(struct r2_inst *inst)
{
    r2_gossip_close(inst);
    free(inst->diagnosis.hang);
    r2_slowness_close(inst);
    free(inst->slow);
    free(inst->diagnosis.verdicts);
    free(inst->drain.failback);
    free(inst->drain.rehearsal);
    free(inst->watch.load);
    free(inst->ports.refresh);
    free(inst->diagnosis.cases);
    free(inst->diagnosis.counters);
    free(inst->diagnosis.loop);
}

/* Memory of GPUs: bounced where a NIC does not reach it, and tested. It does without either. */
static void bounce_open(struct r2_inst *inst, const struct r2_inst_params *p)
{
    if (inst->cfg.relay != R2_VIA_NONE && p->copy) {
        inst->mem.relay = r2_relay_open(inst, p->topo, p->copy, p->copy_arg);
    }
    inst->mem.reach = r2_reach_create(inst, p->copy, p->copy_arg, p->copy_open);
    if (inst->mem.reach) {
        ib_mr_cache_reaches_set(inst->mem.mrs, r2_reach_check, inst->mem.reach);
    }
}

/* What is made of the name that the channel has given this process. */
static void name_take(struct r2_inst *inst)
{
    struct r2_oob_name self;

    inst->oob->ops->name_get(inst->oob, &self);
    inst->diagnosis.origin = self.uuid[0];
    inst->probing.connections = (unsigned)self.uuid[0]; /* processes take different ways first */
}

struct r2_inst *r2_inst_create(const struct r2_inst_params *p, char *why, size_t why_len)
{
    struct r2_inst *inst = calloc(1, sizeof(*inst));
    struct r2_oob_events ev = {.arg = inst,
                               .message = r2_dispatch_message,
                               .up = r2_peer_channel_up,
                               .down = r2_peer_channel_down};

    if (inst == NULL) {
        snprintf(why, why_len, "out of memory");
        return NULL;
    }
    params_take(inst, p);
    inst->above.subscribers = subscribers;
    inst->above.post = r2_peer_post;
    inst->above.deliver = deliver;
    r2_gate_setup(inst->env.threads);
    if (ib_nics_open(&inst->nics, &inst->v, &inst->cfg, why, why_len) != 0) {
        goto err_inst;
    }
    ways_open(inst);
    inst->nics.ways = &inst->ways;
    inst->jobs.workers = ib_workers_create(&inst->env, inst->nics.device_count, r2_inst_wake, inst);
    inst->mem.mrs = ib_mr_cache_create(&inst->nics, inst->env.threads);
    if (inst->jobs.workers == NULL || inst->mem.mrs == NULL) {
        snprintf(why, why_len, "workers: %s", strerror(errno));
        goto err_workers;
    }
    if (modules_open(inst) != 0 || r2_balance_open(inst, p->topo) != 0) {
        snprintf(why, why_len, "out of memory");
        goto err_workers;
    }
    bounce_open(inst, p);
    inst->oob = p->oob_create(p->oob_arg, &ev, why, why_len);
    if (inst->oob == NULL) {
        goto err_workers;
    }
    name_take(inst);
    if (inst->share.run_dir[0] && inst->cfg.host_registry) {
        r2_host_share_open(inst, inst->share.run_dir);
    }
    r2_hang_begin(inst, p->job ? p->job->rank : -1);
    r2_report_open(inst, p->job);
    r2_admin_files_poll(inst, 1);
    if (inst->env.threads && start_thread(inst, why, why_len) != 0) {
        goto err_registry;
    }
    return inst;

err_registry:
    r2_report_stop(inst);
    r2_report_free(inst);
    r2_host_share_close(inst);
    inst->oob->ops->destroy(inst->oob);
err_workers:
    r2_relay_close(inst->mem.relay);
    r2_reach_destroy(inst->mem.reach);
    if (inst->mem.mrs) {
        ib_mr_cache_destroy(inst->mem.mrs, 0); /* nothing was registered */
    }
    if (inst->jobs.workers) {
        ib_workers_destroy(inst->jobs.workers, 0);
    }
    r2_balance_close(inst);
    modules_close(inst);
    ib_nics_close(&inst->nics);
    ib_ways_free(&inst->ways);
err_inst:
    pthread_mutex_destroy(&inst->lock);
    if (inst->service.wake_fd >= 0) {
        close(inst->service.wake_fd);
    }
    free(inst);
    return NULL;
}

/*
 * What has landed is polled, so that the peer does not take for lost what is here. Where the owner
 * does not come out, in a driver perhaps, nothing is read of what it may be writing, and nothing is
 * claimed: a ledger read in the middle could have what never came.
 */
static void send_last_bye(struct r2_comm *c, uint64_t limit_ns)
{
    int inside = r2_gate_visit_for(&c->gate, limit_ns);

    if (inside && c->rx && !c->fo.torn_down) {
        ib_recv_progress(c->rx);
    }
    if (atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN) {
        c->end->abort = 1;
    }
    if (inside) {
        r2_close_send_bye(c);
        r2_comm_unvisit(c);
    } else {
        r2_close_send_nothing_left(c);
    }
}

/* Last messages: every open connection says BYE once, then the channels are closed in order (P28).
 * All gates together are waited for until @until. */
static void send_goodbye(struct r2_inst *inst, uint64_t until)
{
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        uint64_t now = r2_now(inst);

        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE ||
            c->end->bye_ok) {
            continue;
        }
        send_last_bye(c, until > now ? until - now : 0);
    }
    r2_peers_step(inst, r2_now(inst));
}

#define STOP_MIN_NS                                                                                \
    100000000ull /* a thread that no driver keeps is through long before, whatever T_exit is */

/* Stops the service thread. -1: a driver has kept it for @limit_ns, and it goes on running. */
static int stop_thread(struct r2_inst *inst, uint64_t limit_ns)
{
    struct timespec until;
    uint64_t ns;

    if (!inst->service.started) {
        return 0;
    }
    atomic_store_explicit(&inst->service.stop, 1, memory_order_release);
    r2_inst_wake(inst);
    clock_gettime(CLOCK_REALTIME, &until);
    ns = (uint64_t)until.tv_nsec + (limit_ns > STOP_MIN_NS ? limit_ns : STOP_MIN_NS);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    if (pthread_timedjoin_np(inst->service.thread, NULL, &until) != 0) {
        return -1;
    }
    inst->service.started = 0;
    return 0;
}

int r2_inst_exit_notify(struct r2_inst *inst)
{
    uint64_t limit = (uint64_t)inst->cfg.t_exit_ms * 1000000, end = r2_now(inst) + limit, now;

    if (stop_thread(inst, limit) != 0) {
        return -1;
    }
    send_goodbye(inst, r2_now(inst) + limit / 4);
    r2_report_stop(inst);
    now = r2_now(inst);
    inst->oob->ops->drain(inst->oob, end > now ? end - now : 0);
    r2_log_many_over();
    r2_log_flush();
    return 0;
}

/* A job that the workers did not get through is stuck in a driver: what it refers to stays. */
static int comm_stuck(const struct r2_comm *c)
{
    int busy = fo_busy(&c->fo) || ib_flush_busy(c->flush.lane);

    for (int p = 0; p < IB_MAX_PATHS; p++) {
        busy |= c->start->build[p].job.busy || c->ret->path[p].job.busy;
    }
    return busy;
}

/* A connection with a part on a device whose driver still runs is left as it is: memory and queue
 * pairs of all its paths belong together. */
static int comm_on(const struct r2_inst *inst, const struct r2_comm *c, uint64_t devices)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        if (devices >> inst->nics.nic[c->conn.path[p].nic].device_index & 1) {
            return 1;
        }
    }
    return 0;
}

static void comms_free(struct r2_inst *inst, uint64_t still_running)
{
    struct r2_comm *next;

    for (struct r2_comm *c = inst->comms.all; c; c = next) {
        next = c->list.all_next;
        if (comm_stuck(c) || comm_on(inst, c, still_running)) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            ib_path_destroy(&c->conn, &c->conn.path[p]);
            if (c->ret->path[p].has_old) {
                ib_path_destroy(&c->conn, &c->ret->path[p].old);
            }
        }
        if (c->tx) {
            ib_send_bounce_end(c->tx, 1);
        }
        r2_comm_free(c);
    }
}

void r2_inst_destroy(struct r2_inst *inst)
{
    uint64_t still_running, limit = (uint64_t)inst->cfg.t_exit_ms * 1000000;
    struct r2_pair *left;

    if (r2_inst_exit_notify(inst) != 0) {
        return; /* the service thread uses all of it */
    }
    still_running = ib_workers_destroy(inst->jobs.workers, limit);
    inst->jobs.workers = NULL;
    r2_pairs_free(inst, still_running);
    r2_loopbacks_free(inst, still_running);
    r2_inband_close(inst, still_running);
    left = inst->index.pairs;
    inst->index.pairs =
        NULL; /* the last connection of a peer would have its pairs taken down by a worker */
    comms_free(inst, still_running);
    inst->index.pairs = left;
    inst->oob->ops->destroy(inst->oob);
    r2_report_free(inst);
    r2_host_share_close(inst);
    r2_balance_close(inst);
    if (still_running) { /* in a job of a pair, a loop, a check, counters or a connection: each of
                            them reads the instance, its NICs and its keys */
        r2_log_flush();
        return;
    }
    r2_relay_close(inst->mem.relay);
    if (ib_mr_cache_destroy(inst->mem.mrs,
                            limit)) { /* a driver has a registration in hand: it may come back */
        r2_log_flush();
        return;
    }
    modules_close(inst);
    r2_reach_destroy(inst->mem.reach);
    ib_nics_close(&inst->nics);
    ib_ways_free(&inst->ways);
    for (int i = 0; i < R2_COMM_BUCKETS; i++) {
        while (inst->comms.listen[i]) {
            struct r2_listen *l = inst->comms.listen[i];

            inst->comms.listen[i] = l->next;
            free(l);
        }
    }
    pthread_mutex_destroy(&inst->lock);
    if (inst->service.wake_fd >= 0) {
        close(inst->service.wake_fd);
    }
    r2_log_many_over();
    r2_log_flush();
    free(inst);
}
