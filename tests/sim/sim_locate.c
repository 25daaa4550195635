/*
 * Which part broke: the confusion matrix (tests/matrix) in virtual time. One failure of drawn kind
 * and place under traffic between all hosts, then silence until every process had its time to say
 * what it thinks. The judge is that of r2_matrix; a wrong blame fails the run, a failure that
 * nobody speaks of, too.
 */
#include "sim_locate.h"

#include <stdio.h>
#include <string.h>

#define LOCATE_NICS 3
#define FAULT_FROM  (100 * SIM_MS)
#define FAULT_TO    (200 * SIM_MS)
#define LISTEN_NS   (4500 * SIM_MS)
#define STILL_FROM  (1000 * SIM_MS)
#define STILL_NS    (12000 * SIM_MS)
#define NAMED_NS    (10000 * SIM_MS) /* who stands is named after so long, with what is default */

static void draw(struct sim_params *p, struct fab_rng *r, int hosts)
{
    p->locate = p->mesh = 1;
    p->procs = hosts;
    p->share_host = 0;
    p->nics = LOCATE_NICS;
    p->conns = hosts * (hosts - 1);
    p->crossrail = p->loopback_pct = p->cross_dev_pct = 0;
    p->setup_ns = SIM_MS;
    p->msgs = 400;
    p->ops = 1;
    p->max_size = 16384;
    p->pace_ns = 30 * SIM_MS;
    p->fault_mask = 0;
    p->faults = 0;
    p->ib_timeout = 18; /* RC says nothing: the watchdog finds it */
    p->ib_retry = 7;
    p->give_up_ms = 30000;
    p->hold_ns = FAULT_TO + LISTEN_NS;
    p->stall_ms =
        6000; /* what is wanted of a killed process ends when its host has refused for a while */
    p->oob_max_ns = sim_pct(r, 50) ? 100 * SIM_US : 2 * SIM_MS;
}

void sim_locate_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 3);
}

void sim_locate_two_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 2);
}

/* Four hosts know their neighbours alone: a NIC has one auxiliary port. */
void sim_locate_ring_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 4);
    p->mesh = 0;
    p->ring = 1;
    p->nics = 2;
    p->conns = 8;
}

/* Every path is its connection's last one: nothing ends by silence, and a case of it opens. Half of
 * what breaks is mended. */
void sim_locate_one_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 3);
    p->nics = 1;
    p->give_up_ms = 4000; /* within the time that is listened */
    p->mended_ns = sim_pct(r, 50) ? 3000 * SIM_MS : 0;
    p->hold_ns += p->mended_ns;
}

/* Rails reach each other; whether paths may go across them is drawn. */
static void draw_cross(struct sim_params *p, struct fab_rng *r, int hosts)
{
    draw(p, r, hosts);
    p->crossrail = 1;
    p->own_rail = sim_pct(r, 50);
}

void sim_locate_cross_draw(struct sim_params *p, struct fab_rng *r)
{
    draw_cross(p, r, 3);
}

void sim_locate_two_cross_draw(struct sim_params *p, struct fab_rng *r)
{
    draw_cross(p, r, 2);
}

/* The machine is so busy that a process now and then stands still for seconds; meanwhile what broke
 * is mended. */
void sim_locate_late_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 3);
    p->mended_ns = 3000 * SIM_MS;
    p->service = (struct sim_delay){50 * SIM_US, 3000 * SIM_MS, (uint32_t)fab_rng_upto(r, 5000)};
    p->hold_ns += p->mended_ns;
}

/* Who is asked what it finds does not answer: its process is stopped, while its NICs go on, or its
 * channel carries nothing and says nothing of it, so that words go over NICs. */
void sim_locate_still_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 3);
    p->still_ns = STILL_NS;
    p->hold_ns += STILL_FROM + p->still_ns;
    p->stall_ms += (int)(p->still_ns / SIM_MS);
}

/* Connections to and from the host may end. */
static void may_end(struct sim *s)
{
    for (int i = 0; i < s->p.conns; i++) {
        if (s->conn[i].s.proc->index == s->located.host ||
            s->conn[i].r.proc->index == s->located.host || s->located.kind == MX_PLANE_CUT) {
            s->conn[i].may_fail = 1;
        }
    }
}

static void kill_host(struct sim *s)
{
    may_end(s);
    s->killed = 1;
    sim_proc_kill(&s->proc[s->located.host]);
}

/*
 * Every NIC always has work queued, and the way between two of them is cut: RC ends an incarnation
 * long before the watchdog gives the pair up, since what a busy NIC has not answered yet may stand
 * behind that work.
 */
void sim_locate_busy_draw(struct sim_params *p, struct fab_rng *r)
{
    draw(p, r, 3);
    p->cut_path = 1;
    p->msgs = 4000;
    p->max_size = 65536;
    p->big_pct = 100;
    p->pace_ns = 0;
    p->rate = 30000000;
    p->ib_timeout = 15;
}

static void mend_it(void *arg)
{
    struct sim *s = arg;

    s->mended = 1;
    sim_trace(s, "mended");
    sim_fabric_fault(s, "*:* restore");
}

/* A request of @e has waited for the process that stands still for so long that it is to be named.
 */
static int waits_long(const struct sim *s, const struct sim_end *e, const struct sim_end *other)
{
    return other->proc->index == s->still && !e->proc->dead && e->head != e->tail &&
           fab_inproc_now(s->f) - e->progress_at >= NAMED_NS;
}

/* A moment before it goes on. */
static void stand_up(void *arg)
{
    struct sim *s = arg;

    for (int i = 0; i < s->p.conns; i++) {
        s->waited |= waits_long(s, &s->conn[i].s, &s->conn[i].r) ||
                     waits_long(s, &s->conn[i].r, &s->conn[i].s);
    }
}

static void stand_still(void *arg)
{
    struct sim *s = arg;
    uint64_t ns = sim_pick(&s->rng, STILL_FROM / 10, s->p.still_ns);
    int who = (int)fab_rng_upto(&s->rng, (uint64_t)s->p.procs - 1);

    if (s->killed && who == s->located.host) {
        who = (who + 1) % s->p.procs;
    }
    s->still = who;
    if (sim_pct(&s->rng, 50)) {
        sim_trace(s, "process %d stands still for %.3f s", who, (double)ns / 1e9);
        s->proc[who].still_until = fab_inproc_now(s->f) + ns;
        fab_inproc_at(s->f, s->proc[who].still_until - 1, stand_up, s);
        return;
    }
    sim_trace(s, "the channel of process %d stands still for %.3f s", who, (double)ns / 1e9);
    for (int i = 0; i < s->p.procs; i++) {
        if (i != who && !s->proc[i].dead) {
            sim_bus_outage(s->bus, who, i, ns, 1);
        }
    }
}

static void break_it(void *arg)
{
    struct sim *s = arg;
    char name[64], text[48];

    mx_case_name(&s->located, name, sizeof(name));
    sim_trace(s, "broken: %s", name);
    s->broken_at = fab_inproc_now(s->f);
    for (int i = 0; mx_case_fault(&s->located, i, text); i++) {
        sim_fabric_fault(s, text);
    }
    if (s->p.nics == 1 && s->located.kind < MX_SLOW) {
        may_end(s);
    }
    if (s->located.kind == MX_KILLED) {
        kill_host(s);
    } else if (s->p.mended_ns && s->located.kind != MX_HANG &&
               !mx_case_ends_job(&s->located)) { /* what hangs longer than T_packet is beyond what
                                                    the holds promise */
        fab_inproc_at(s->f, s->broken_at + fab_rng_upto(&s->rng, s->p.mended_ns), mend_it, s);
    }
    if (s->p.still_ns) { /* half of them from the beginning: nobody asks before */
        fab_inproc_at(s->f,
                      s->broken_at + (sim_pct(&s->rng, 50) ? 0 : fab_rng_upto(&s->rng, STILL_FROM)),
                      stand_still, s);
    }
    for (int i = 0; i < s->p.procs; i++) {
        sim_proc_kick(&s->proc[i]);
    }
}

/* A rail on which what breaks has work: a connection from or to that host, of a path: between its
 * two. */
static int busy_rail(const struct sim *s)
{
    for (int i = 0; i < s->p.conns; i++) {
        const struct sim_conn *c = &s->conn[(s->seed + (unsigned)i) % (unsigned)s->p.conns];
        int from = c->s.proc->index, to = c->r.proc->index, host = s->located.host,
            far = s->located.far;

        if ((from == host && (far < 0 || to == far)) || (to == host && (far < 0 || from == far))) {
            return c->s.dev;
        }
    }
    return s->located.nic;
}

void sim_locate_start(struct sim *s)
{
    s->still = -1;
    if (!s->p.locate) {
        return;
    }
    mx_case_draw(&s->located, s->p.cut_path ? s->seed * MX_KINDS + MX_PATH_CUT : s->seed,
                 s->p.procs, s->p.nics, 1);
    if (s->p.ring && s->located.far >= 0) {
        s->located.far = (s->located.host + 1) % s->p.procs;
    }
    s->located.nic = busy_rail(s);
    s->located.crossrail = s->p.crossrail;
    if (s->located.kind == MX_STOPPED) { /* the simulation's threads all run */
        s->located.kind = MX_CALM;
    }
    fab_inproc_at(s->f, sim_pick(&s->rng, FAULT_FROM, FAULT_TO), break_it, s);
}

/* Who holds the job up (R2-H01), in the line or what it is explained by at INFO: nobody does but
 * one that stands still, or is gone; a path may. */
static void held_up_line(struct sim *s, int proc, const char *text)
{
    const char *found = strstr(text, "R2-H01"), *on = found ? strstr(found, " on h") : NULL;
    int host = -1;

    if (found == NULL || strstr(found, "path-silent") ||
        (sscanf(found, "R2-H01 host=h%d ", &host) != 1 &&
         (on == NULL || sscanf(on, " on h%d", &host) != 1))) {
        return;
    }
    if (host != s->still && !(s->killed && host == s->located.host)) {
        sim_fail(s, "process %d says that process %d holds the job up: %s", proc, host, text);
    }
    s->named += host == s->still;
}

/* What is said of the process that stands still is true. */
static int is_of_still(const struct sim *s, const struct mx_verdict *v)
{
    return v->blame == MX_PROCESS && s->still >= 0 && v->host == s->still;
}

void sim_locate_line(struct sim *s, int proc, int warn, const char *text)
{
    struct mx_verdict v;
    enum mx_said said;
    char line[MX_LINE];

    if (!s->p.locate || s->broken_at == 0) {
        return;
    }
    snprintf(line, sizeof(line), "%s %s", warn ? "WARN" : "INFO", text);
    said = mx_line_read(line, &v);
    if ((said == MX_SAID_VERDICT && v.blame != MX_UNKNOWN) || said == MX_SAID_BAD_REPORT) {
        s->informed_at[proc] = s->informed_at[proc] ? s->informed_at[proc] : fab_inproc_now(s->f);
    }
    held_up_line(s, proc, text);
    if (said != MX_SAID_VERDICT || is_of_still(s, &v)) {
        return;
    }
    if (s->verdict_at == 0 && v.blame != MX_UNKNOWN) {
        s->verdict_at = fab_inproc_now(s->f);
    }
    if (mx_tally_add(&s->tally, &s->located, proc, &v) == MX_WRONG) {
        sim_fail(s, "process %d blames what is not broken: %s", proc, text);
    }
}

/* Nobody need tell it: it may have been mended before somebody looked; or one of the hosts did not
 * say what it found, its own, which alone has seen its NIC, or another, so that those that are left
 * know what two hosts know. */
static int need_not_be_told(const struct sim *s)
{
    struct mx_case left = s->located;

    left.hosts--;
    return s->mended ||
           (s->still >= 0 && (s->still == s->located.host || !mx_case_can_tell(&left)));
}

void sim_locate_judge(struct sim *s)
{
    struct mx_sums none = {0};
    unsigned speaks = 0, informed = 0;
    uint64_t last = 0;
    const char *worse;

    if (!s->p.locate || s->broken_at == 0) {
        return;
    }
    for (int i = 0; i < s->p.procs; i++) {
        if (i == s->located.host && s->located.kind == MX_KILLED) {
            continue;
        }
        speaks |= 1u << i;
        informed |= (unsigned)(s->informed_at[i] != 0) << i;
        last = s->informed_at[i] > last ? s->informed_at[i] : last;
    }
    mx_tally_sum(&s->tally, &s->located, speaks, informed,
                 s->verdict_at ? s->verdict_at - s->broken_at : 0, last ? last - s->broken_at : 0,
                 &s->st.matrix);
    worse = mx_sums_worse(&s->st.matrix, &none, s->located.kind);
    if (s->p.still_ns && s->still < 0) {
        sim_fail(s, "nobody stood still");
    } else if (s->waited && !s->named) {
        sim_fail(s, "process %d was waited for, and nobody named it", s->still);
    }
    if (worse && !need_not_be_told(s)) {
        sim_fail(s, "%s: what is broken was not told as it could be", worse);
    }
}
