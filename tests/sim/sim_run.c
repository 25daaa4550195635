/* One run: build the fabric and the instances, let everything happen, take it down, judge. */
#include "sim.h"
#include "sim_locate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WATCH_NS     (5 * SIM_MS)
#define EVENTS_LIMIT 40000000ull

int sim_verbose;
struct sim *sim_now_running;

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (s->failed) {
        return;
    }
    s->failed = 1;
    s->failed_at = s->f ? fab_inproc_now(s->f) : 0;
    va_start(ap, fmt);
    vsnprintf(s->why, sizeof(s->why), fmt, ap);
    va_end(ap);
    if (sim_verbose) {
        printf("%12.3f FAILED %s\n", (double)s->failed_at / 1e3, s->why);
    }
}

void sim_trace(struct sim *s, const char *fmt, ...)
{
    char line[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    sim_hash(s, fab_inproc_now(s->f));
    for (const char *c = line; *c; c++) {
        s->hash = s->hash * 31 + (unsigned char)*c;
    }
    if (sim_verbose) {
        printf("%12.3f    %s\n", (double)fab_inproc_now(s->f) / 1e3, line);
    }
}

/* ---- what is watched all the time ---- */

static int end_waits(const struct sim_end *e)
{
    return !e->proc->dead &&
           ((e->state == SIM_END_OPENING && e->conn->handle_at) || e->state == SIM_END_RUN);
}

static void end_watch(struct sim_end *e, uint64_t now)
{
    struct sim *s = e->conn->sim;
    uint64_t limit = (uint64_t)s->p.stall_ms * SIM_MS, since = e->progress_at,
             far = e->conn->s.progress_at;

    since = !e->sender && far > since ? far : since; /* a receive of several messages is done with
                                                        the last of them, and senders pause */
    if (!end_waits(e) || now < since) {
        return;
    }
    if (now - since > limit) {
        sim_fail(
            s,
            "conn %d: hang: the %s makes no progress since %.3f ms (%s, %u done, %u posted, %d in all)",
            e->conn->index, e->sender ? "sender" : "receiver", (double)since / 1e6,
            e->state == SIM_END_OPENING ? "setting up" : "running", e->done, e->next,
            e->conn->nmsgs);
    }
}

static void watch(void *arg)
{
    struct sim *s = arg;
    uint64_t now = fab_inproc_now(s->f);

    for (int i = 0; i < s->p.conns && !s->failed; i++) {
        end_watch(&s->conn[i].s, now);
        end_watch(&s->conn[i].r, now);
    }
    sim_quarantine_watch(s);
    sim_resort_watch(s);
    if (fab_inproc_events(s->f) > EVENTS_LIMIT) {
        sim_fail(s, "more than %llu events: the clock hardly moves", EVENTS_LIMIT);
    }
    if (!s->failed) {
        fab_inproc_at(s->f, now + WATCH_NS, watch, s);
    }
}

/* A receiver killed before it listens leaves a sender that never gets a handle, and so makes no
 * call at all. */
static int end_is_over(const struct sim_end *e)
{
    const struct sim_conn *c = e->conn;

    return e->state == SIM_END_CLOSED || e->proc->dead ||
           (e->sender && c->r.proc->dead && !c->handle_at);
}

static int all_closed(const struct sim *s)
{
    for (int i = 0; i < s->p.conns; i++) {
        if (!end_is_over(&s->conn[i].s) || !end_is_over(&s->conn[i].r)) {
            return 0;
        }
    }
    return 1;
}

/* ---- a killed process, an aborted connection ---- */

static void kill_one(struct sim *s)
{
    int victim = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.procs);

    s->killed = 1;
    for (int i = 0; i < s->p.conns; i++) {
        struct sim_conn *c = &s->conn[i];
        if (c->s.proc->index == victim || c->r.proc->index == victim) {
            c->may_fail = 1;
        }
    }
    sim_proc_kill(&s->proc[victim]);
}

struct hang {
    struct sim *sim;
    char text[40];
};

static void hang_ends(void *arg)
{
    struct hang *h = arg;

    sim_fabric_fault(h->sim, h->text);
}

/*
 * The driver of the NIC takes no queue pair to ERR while that lasts; within the life of a packet,
 * as with all that hangs.
 */
static void hang_at_abort(struct sim *s, const struct sim_end *e)
{
    static struct hang h;
    uint64_t ns = sim_pick(&s->rng, SIM_MS, (uint64_t)s->p.t_packet_ms * SIM_MS * 3 / 4);

    if (!s->p.abort_hang || e->dev == s->safe_rail) {
        return;
    }
    h.sim = s;
    snprintf(h.text, sizeof(h.text), "h%d:n%d hang", e->proc->host, e->dev);
    sim_trace(s, "%s", h.text);
    sim_fabric_fault(s, h.text);
    s->st.faults[SIM_F_HANG]++;
    sim_broken_nic(s, e->proc->host, e->dev);
    snprintf(h.text, sizeof(h.text), "h%d:n%d unhang", e->proc->host, e->dev);
    fab_inproc_at(s->f, fab_inproc_now(s->f) + ns, hang_ends, &h);
}

static void abort_one(struct sim *s)
{
    int at = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.conns),
        sender = (int)(fab_rng_next(&s->rng) & 1);

    for (int i = 0; i < s->p.conns; i++) {
        struct sim_conn *c = &s->conn[(at + i) % s->p.conns];
        struct sim_end *e = sender ? &c->s : &c->r;
        if ((e->state != SIM_END_RUN && e->state != SIM_END_IDLE) || sim_end_finished(e)) {
            continue;
        }
        s->aborted = 1;
        c->may_fail = 1;
        c->left = !sender;
        sim_trace(s, "conn %d %c: abort", c->index, sender ? 'S' : 'R');
        hang_at_abort(s, e);
        sim_proc_enter(e->proc);
        sim_end_leave(e);
        sim_proc_leave(e->proc);
        return;
    }
}

static void turn_points(struct sim *s)
{
    if (s->p.kill && !s->killed && s->done_total >= s->kill_at) {
        kill_one(s);
    }
    if (s->p.abort && !s->aborted && s->done_total >= s->abort_at) {
        abort_one(s);
    }
}

/* ---- incarnation of a run ---- */

/* A thread that waits on the descriptor of a completion channel wakes up. */
static void on_channel(void *arg, int host)
{
    struct sim *s = arg;

    for (int i = 0; i < s->p.procs; i++) {
        if (s->proc[i].host == host) {
            sim_proc_kick(&s->proc[i]);
        }
    }
}

static int fabric_make(struct sim *s)
{
    struct fab_inproc_opts opts = s->p.fab;
    static struct fab_desc desc;
    char err[160];

    if (fab_desc_init(&desc, s->p.share_host ? 2 : s->p.procs, s->p.nics, s->p.rate,
                      s->p.latency_ns, err, sizeof(err)) != 0) {
        sim_fail(s, "fabric: %s", err);
        return -1;
    }
    desc.crossrail = s->p.crossrail;
    desc.spines = s->p.spines;
    desc.hash = s->p.hash_qp ? FAB_HASH_QP : FAB_HASH_PORTS;
    for (int i = 0; s->p.lids && i < desc.hosts * desc.nics; i++) {
        desc.nic[i / desc.nics][i % desc.nics].ib =
            (struct fab_ib){.lid = (uint16_t)(8 * (1 + i)), .lmc = (uint8_t)(s->p.lids - 1)};
    }
    sim_weights_rates(s, &desc);
    sim_resort_rates(s, &desc);
    opts.on_memory_write = sim_oracle_write;
    opts.arg = s;
    s->f = fab_inproc_create(&desc, s->seed * 7919 + 13, &opts);
    if (!s->f) {
        sim_fail(s, "no fabric");
    } else {
        fab_inproc_on_channel(s->f, on_channel, s);
    }
    return s->f ? 0 : -1;
}

static void dead_nics(struct sim *s)
{
    char text[40];
    int rail = (s->safe_rail + 1) % s->p.nics, host;

    if (!s->p.dead_at_start) {
        return;
    }
    host = (int)(fab_rng_next(&s->rng) % (s->p.share_host ? 2u : (unsigned)s->p.procs));
    snprintf(text, sizeof(text), "h%d:n%d down", host, rail);
    sim_trace(s, "at start: %s", text);
    sim_fabric_fault(s, text);
    s->st.faults[SIM_F_DOWN]++;
    if (s->p.rounds) {
        sim_rounds_late_nic(s, host, rail);
    }
}

/* Which library each NIC has. */
static void providers_make(struct sim *s)
{
    struct fab_rng r = {s->p.providers};
    uint64_t kind = fab_rng_upto(&r, FAB_PROVIDERS_IN_ERR - 1);
    char text[40];

    if (!s->p.providers) {
        return;
    }
    for (int h = 0; h < (s->p.share_host ? 2 : s->p.procs); h++) {
        for (int n = 0; n < s->p.nics - s->p.last_nic; n++) {
            kind = s->p.one_provider ? kind : fab_rng_upto(&r, FAB_PROVIDERS_IN_ERR - 1);
            snprintf(text, sizeof(text), "h%d:n%d provider %s", h, n, fab_provider_name(kind));
            sim_trace(s, "%s", text);
            sim_fabric_fault(s, text);
            s->st.faults[SIM_F_PROVIDER] += kind != FAB_PROVIDER_PLAIN;
        }
    }
}

static void drivers_make(struct sim *s)
{
    for (int h = 0; h < (s->p.share_host ? 2 : s->p.procs); h++) {
        for (int n = 0; n < s->p.nics; n++) {
            if (n == s->safe_rail || !s->p.list_cut) {
                continue;
            }
            fab_inproc_nic(s->f, h, n)->list_cut = (uint32_t)s->p.list_cut;
            sim_broken_nic(s, h, n);
        }
    }
    providers_make(s);
    if (s->p.retry7) {
        sim_fabric_fault(s, "*:* retry7-forever");
    }
    if (s->p.recv_kept) {
        sim_fabric_fault(s, "*:* recv-kept");
    }
    s->st.faults[SIM_F_RETRY7] += (unsigned)s->p.retry7;
    s->st.faults[SIM_F_RECV_KEPT] += (unsigned)s->p.recv_kept;
}

static int sim_make(struct sim *s)
{
    static uint64_t run;

    r2_log_level_set(s->p.rounds ? R2_LOG_TRACE
                                 : R2_LOG_INFO); /* what an incarnation carried is a trace */
    s->rng.s = s->seed * 0xbf58476d1ce4e5b9ull + (uint64_t)s->cls * 7;
    fab_rng_next(&s->rng);
    s->key = ++run * 0x94d049bb133111ebull;
    sim_arena_init();
    if (fabric_make(s) != 0) {
        return -1;
    }
    s->bus = sim_bus_create(s);
    for (int i = 0; i < s->p.conns; i++) {
        sim_conn_init(&s->conn[i], s, i);
        s->msgs_total += 2 * (uint32_t)s->conn[i].nmsgs;
    }
    s->kill_at = s->abort_at = (uint32_t)fab_rng_upto(&s->rng, s->msgs_total * 8 / 10) + 1;
    sim_faults_draw(s);
    drivers_make(s);
    dead_nics(s);
    for (int i = 0; i < s->p.procs && !s->failed; i++) {
        sim_proc_start(s, i, s->p.share_host ? i % 2 : i);
    }
    return s->failed ? -1 : 0;
}

static void sim_go(struct sim *s)
{
    uint64_t quiet_from = 0;

    for (int i = 0; i < s->p.conns; i++) {
        sim_conn_start(&s->conn[i]);
    }
    sim_faults_start(s);
    sim_locate_start(s);
    sim_weights_start(s);
    fab_inproc_at(s->f, WATCH_NS, watch, s);
    while (!s->failed) {
        if (!fab_inproc_step(s->f)) {
            sim_fail(s, "nothing is left to happen");
            break;
        }
        sim_oracle_settle(s);
        turn_points(s);
        if (all_closed(s)) {
            sim_faults_rest(s);
        }
        if (!all_closed(s) || sim_faults_left(s) > 0) {
            quiet_from = 0;
            continue;
        }
        if (!quiet_from) {
            quiet_from = fab_inproc_now(s->f);
        }
        /* Late bytes and last words: what is held back in the fabric comes within this time. */
        if (fab_inproc_now(s->f) > quiet_from + 60 * SIM_MS) {
            break;
        }
    }
}

static void ends_drop(struct sim_proc *p)
{
    struct sim *s = p->sim;

    for (int i = 0; i < s->p.conns; i++) {
        struct sim_end *e[2] = {&s->conn[i].s, &s->conn[i].r};
        for (int k = 0; k < 2; k++) {
            if (e[k]->proc == p && e[k]->state != SIM_END_CLOSED) {
                sim_end_close(e[k]);
            }
        }
    }
}

static void sim_take_down(struct sim *s)
{
    int first = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.procs);
    struct fab_counters sum;

    fab_inproc_totals(s->f, &sum);
    s->st.ghosts += sum.rx_ghosts;
    s->st.refused += sum.posts_refused;
    s->st.made_up += sum.flushes_made_up;
    s->st.late_arrivals += sum.late_arrivals;
    s->st.lists += sum.lists;
    s->st.lists_cut += sum.lists_cut;
    s->st.overtaken += sum.overtaken;
    if (!s->p.adaptive != !sum.lists && s->p.want == SIM_WANT_FINISH && !s->p.ar_threshold &&
        !s->p.ar_mixed && !s->p.copy_nics) { /* what is bounced is posted as one */
        sim_fail(s, "%llu lists of work requests were posted, adaptive routing is %s",
                 (unsigned long long)sum.lists, s->p.adaptive ? "on" : "off");
    }
    if (sum.rnr_naks != sum.srq_rnr_naks) { /* paths have queues of their own */
        sim_fail(s, "%llu times a receive queue was empty: more parts under way than receives (P2)",
                 (unsigned long long)(sum.rnr_naks - sum.srq_rnr_naks));
    }
    if (sum.cq_overruns) {
        sim_fail(s, "%llu completion queues overran", (unsigned long long)sum.cq_overruns);
    }
    s->st.events += fab_inproc_events(s->f);
    s->st.virtual_ns += fab_inproc_now(s->f);
    for (int i = 0; i < s->p.procs; i++) {
        struct sim_proc *p = &s->proc[(first + i) % s->p.procs];
        sim_proc_enter(p);
        ends_drop(p);
        sim_proc_leave(p);
        sim_proc_stop(p);
    }
    sim_oracle_settle(s);
    sim_hash(s, fab_inproc_events(s->f));
    fab_inproc_destroy(s->f);
    s->f = NULL;
    sim_bus_destroy(s->bus);
}

int sim_run(struct sim *s, int cls, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    s->cls = cls;
    s->seed = seed;
    sim_params_draw(&s->p, cls, seed);
    sim_params_config(&s->p, &s->cfg);
    sim_now_running = s;
    if (sim_make(s) == 0) {
        sim_go(s);
    }
    if (!s->failed && s->p.no_retransmit && s->st.retransmitted) {
        sim_fail(s, "%llu parts were posted again though nothing failed",
                 (unsigned long long)s->st.retransmitted);
    }
    sim_locate_judge(s);
    /* A failed run is left as it is: its child process ends, and with it everything. */
    if (!s->failed) {
        sim_take_down(s);
    }
    sim_now_running = NULL;
    s->st.runs = 1;
    s->st.failed = (uint64_t)s->failed;
    return s->failed;
}
