#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_log.h"
#include "tests/fabric/model/fab_fault.h"
#include "core/r2_registry.h"

#define WAKE_NS 500ull

struct rig_relay rig_relay;
uint64_t rig_rate;
void (*rig_verbs)(struct ib_verbs *v);

/* For a build with the leak sanitizer: objects of a dead device are left behind on purpose, its
 * driver is not called any more. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:fab_ibv_\n";
}

static struct rig *running;
static int inside;

static void log_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    if (getenv("RIG_VERBOSE")) {
        printf("%12.3f us p%d %s\n", running ? (double)fab_inproc_now(running->f) / 1e3 : 0, inside,
               msg);
    }
    ck_assert_msg(strstr(msg, " cannot go from ") == NULL, "%s",
                  msg); /* no table of states allows that */
    if (level == R2_LOG_WARN && running) {
        snprintf(running->last_warn[inside], RIG_LOG, "%s", msg);
    }
}

void rig_enter(struct rig_side *s)
{
    inside = s->index;
    running = s->rig;
    fab_inproc_set_host(s->rig->f, s->index);
}

uint64_t rig_now(struct rig *r)
{
    return fab_inproc_now(r->f);
}

/* --- threads of a process, as events --- */

/* The thread that waits is NCCL's: the others go on meanwhile. */
static void env_wait(void *arg, uint64_t ns)
{
    struct rig_side *s = arg;

    fab_inproc_run_until(s->rig->f, rig_now(s->rig) + ns);
    rig_enter(s);
}

static uint64_t env_now(void *arg)
{
    return rig_now(((struct rig_side *)arg)->rig);
}

static void env_random(void *arg, void *out, unsigned len)
{
    struct rig_side *s = arg;
    uint8_t *b = out;

    for (unsigned i = 0; i < len; i++) {
        s->random = s->random * 6364136223846793005ull + 1442695040888963407ull;
        b[i] = (uint8_t)(s->random >> 33);
    }
}

static void service_at(struct rig_side *s, uint64_t at);

static void service_run(void *arg)
{
    struct rig_side *s = arg;
    uint64_t next, now;

    s->service_id = 0;
    if (s->inst == NULL || s->still) {
        return;
    }
    rig_enter(s);
    next = r2_inst_service_step(s->inst);
    now = rig_now(s->rig);
    if (next != UINT64_MAX) {
        service_at(s, next > now ? next : now + WAKE_NS);
    }
}

static void service_at(struct rig_side *s, uint64_t at)
{
    if (s->service_id) {
        if (s->service_at <= at) {
            return;
        }
        fab_inproc_cancel(s->rig->f, s->service_id);
    }
    s->service_at = at;
    s->service_id = fab_inproc_at(s->rig->f, at, service_run, s);
}

void rig_kick(void *arg)
{
    struct rig_side *s = arg;

    service_at(s, rig_now(s->rig) + WAKE_NS);
}

struct worker_arg {
    struct rig_side *s;
    int device;
};

static void worker_run(void *arg)
{
    struct worker_arg *w = arg;
    struct rig_side *s = w->s;
    int device = w->device;

    free(w);
    s->worker_armed &= ~(1u << device);
    if (s->inst == NULL) {
        return;
    }
    rig_enter(s);
    while (r2_inst_worker_step(s->inst, device)) {
    }
}

static void env_kick_worker(void *arg, int device)
{
    struct rig_side *s = arg;
    struct worker_arg *w;

    if ((s->worker_armed >> device) & 1) {
        return;
    }
    s->worker_armed |= 1u << device;
    w = malloc(sizeof(*w));
    ck_assert_ptr_nonnull(w);
    *w = (struct worker_arg){s, device};
    fab_inproc_at(s->rig->f, rig_now(s->rig) + WAKE_NS, worker_run, w);
}

/* --- birth and death --- */

static void set_options(struct rig *r, const char *const *options)
{
    char name[64], why[200];

    for (int i = 0; i < 2; i++) {
        r2_config_defaults(&r->side[i].cfg);
        ck_assert_int_eq(r2_config_set(&r->side[i].cfg, "NCCL_IB_TIMEOUT", "14", why, sizeof(why)),
                         0);
        ck_assert_int_eq(r2_config_set(&r->side[i].cfg, "NCCL_R2_INBAND", "off", why, sizeof(why)),
                         0);
    }
    for (; options && *options; options++) {
        const char *o = *options, *eq;
        int from = 0, to = 1;

        if (o[1] == ':') {
            from = to = o[0] - '0';
            o += 2;
        }
        eq = strchr(o, '=');
        ck_assert_ptr_nonnull(eq);
        snprintf(name, sizeof(name), "%.*s", (int)(eq - o), o);
        for (int i = from; i <= to; i++) {
            ck_assert_msg(r2_config_set(&r->side[i].cfg, name, eq + 1, why, sizeof(why)) == 0,
                          "%s: %s", o, why);
        }
    }
}

static void side_start(struct rig *r, int i)
{
    struct rig_side *s = &r->side[i];
    struct r2_env env = {.arg = s,
                         .now_ns = env_now,
                         .random = env_random,
                         .wait = env_wait,
                         .kick_service = rig_kick,
                         .kick_worker = env_kick_worker};
    struct ib_verbs verbs;
    struct r2_inst_params par = {
        .env = &env, .verbs = &verbs, .cfg = &s->cfg, .oob_create = rig_oob_create, .oob_arg = s};
    char why[256] = "", host[16];

    s->rig = r;
    s->index = i;
    s->random = 77 + (uint64_t)i;
    snprintf(host, sizeof(host), "host%d", i & 1);
    par.host = host;
    fab_inproc_verbs(r->f, i, &verbs);
    if (i == 0) {
        par.copy = rig_relay.ops;
        par.copy_arg = rig_relay.arg;
        par.topo = rig_relay.topo;
    }
    if (rig_verbs) {
        rig_verbs(&verbs);
    }
    if (i == 0 && rig_relay.verbs) {
        rig_relay.verbs(&verbs);
    }
    rig_enter(s);
    s->inst = r2_inst_create(&par, why, sizeof(why));
    ck_assert_msg(s->inst != NULL, "%s", why);
    rig_kick(s);
}

static void on_channel(void *arg, int host)
{
    for (struct rig *r = arg; r; r = r->beside) {
        rig_kick(&r->side[host]);
    }
}

static struct rig *rig_start(struct fab_inproc *f, int nics, const char *const *options)
{
    struct rig *r = calloc(1, sizeof(*r));

    ck_assert_ptr_nonnull(r);
    r->sent = calloc(RIG_MAX_SENT, sizeof(*r->sent));
    ck_assert_ptr_nonnull(r->sent);
    r->f = f;
    r->nics = nics;
    r->traffic_class = R2_NET_NO_CLASS;
    running = r;
    fab_inproc_on_channel(f, on_channel, r);
    r2_log_sink_set(log_sink);
    set_options(r, options);
    for (int i = 0; i < 2; i++) {
        side_start(r, i);
    }
    return r;
}

struct rig *rig_create_on(const struct fab_inproc_opts *opts, int nics, int crossrail,
                          const char *const *options)
{
    struct fab_inproc *f;
    struct fab_desc desc;
    char err[200];

    ck_assert_msg(fab_desc_init(&desc, 2, nics, rig_rate, RIG_US, err, sizeof(err)) == 0, "%s",
                  err);
    desc.crossrail = crossrail;
    f = fab_inproc_create(&desc, 1, opts);
    ck_assert_ptr_nonnull(f);
    return rig_start(f, nics, options);
}

struct rig *rig_create_desc(const struct fab_desc *desc, const char *const *options)
{
    struct fab_inproc *f = fab_inproc_create(desc, 1, NULL);

    ck_assert_ptr_nonnull(f);
    return rig_start(f, desc->nics, options);
}

struct rig *rig_create(int nics, int crossrail, const char *const *options)
{
    return rig_create_on(NULL, nics, crossrail, options);
}

struct rig *rig_create_beside(struct rig *first, const char *const *options)
{
    struct rig *r = rig_start(first->f, first->nics, options);

    r->beside = first->beside;
    first->beside = r;
    fab_inproc_on_channel(first->f, on_channel, first);
    return r;
}

static void close_all(struct rig *r)
{
    r->filter = NULL;
    for (int i = 0; i < 2; i++) {
        rig_close(r, i);
    }
    if (r->listen) {
        rig_enter(&r->side[1]);
        r2_net_close_listen(r->listen);
    }
}

static void stop_instances(struct rig *r)
{
    for (int i = 0; i < 2; i++) {
        struct r2_inst *inst = r->side[i].inst;

        rig_enter(&r->side[i]);
        r2_inst_destroy(inst);
        r->side[i].inst = NULL;
    }
}

void rig_destroy(struct rig *r)
{
    struct rig *next;

    for (struct rig *x = r; x; x = x->beside) {
        close_all(x);
    }
    rig_run(r, RIG_S);
    for (struct rig *x = r; x; x = x->beside) {
        stop_instances(x);
    }
    r2_log_flush();
    while (fab_inproc_next_event_time(r->f) !=
           UINT64_MAX) { /* the workers' arguments are freed by their events */
        fab_inproc_step(r->f);
    }
    fab_inproc_destroy(r->f);
    running = NULL;
    r2_log_sink_set(NULL);
    for (; r; r = next) {
        next = r->beside;
        free(r->sent);
        free(r);
    }
}

/* --- connection --- */

void rig_connect_begin(struct rig *r, int s_dev, int r_dev)
{
    struct r2_comm *none;

    rig_enter(&r->side[1]);
    ck_assert_int_eq(r2_net_listen(r->side[1].inst, r_dev, r->handle, &r->listen), R2_OK);
    rig_enter(&r->side[0]);
    ck_assert_int_eq(
        r2_net_connect_class(r->side[0].inst, s_dev, r->traffic_class, r->handle, &none), R2_OK);
    ck_assert_ptr_null(none);
}

enum r2_status rig_connect_turn(struct rig *r, int s_dev, int *done)
{
    enum r2_status st = R2_OK;

    if (r->side[0].comm == NULL) {
        rig_enter(&r->side[0]);
        st = r2_net_connect_class(r->side[0].inst, s_dev, r->traffic_class, r->handle,
                                  &r->side[0].comm);
    }
    if (st == R2_OK && r->side[1].comm == NULL && r->listen) {
        rig_enter(&r->side[1]);
        st = r2_net_accept(r->listen, &r->side[1].comm);
    }
    *done = r->side[0].comm && r->side[1].comm;
    fab_inproc_run_until(r->f, rig_now(r) + 10 * RIG_US);
    return st;
}

void rig_connect(struct rig *r, int s_dev, int r_dev)
{
    int done = 0;

    rig_connect_begin(r, s_dev, r_dev);
    for (uint64_t end = rig_now(r) + 10 * RIG_S; !done && rig_now(r) < end;) {
        ck_assert_int_eq(rig_connect_turn(r, s_dev, &done), R2_OK);
    }
    ck_assert_msg(done, "no connection after 10 s");
}

enum r2_status rig_connect_fails(struct rig *r, int s_dev, int r_dev)
{
    enum r2_status st = R2_OK;
    int done = 0;

    rig_connect_begin(r, s_dev, r_dev);
    for (uint64_t end = rig_now(r) + 100 * RIG_S; st == R2_OK && !done && rig_now(r) < end;) {
        st = rig_connect_turn(r, s_dev, &done);
    }
    ck_assert_msg(!done, "the connection stands");
    ck_assert_msg(st != R2_OK, "no error after 100 s");
    return st;
}

/* What a connection has seen before it goes: nothing came twice, nothing came that is not its own.
 */
static void counts_are_right(const struct rig *r, const struct r2_comm *c)
{
    if (r->hostile ||
        atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE) {
        return;
    }
    if (c->rx) {
        ck_assert_uint_eq(c->rx->count.duplicates, 0);
        ck_assert_uint_eq(c->rx->count.bad_arrivals, 0);
    }
    if (c->tx) {
        ck_assert_uint_eq(c->tx->count.bad_cts, 0);
        ck_assert_uint_eq(c->tx->count.bad_ack, 0);
    }
}

void rig_close(struct rig *r, int side)
{
    struct rig_side *s = &r->side[side];

    if (s->comm) {
        counts_are_right(r, s->comm);
        rig_enter(s);
        r2_net_close(s->comm);
        s->comm = NULL;
        s->head = s->tail;
    }
}

int rig_comms(struct rig *r, int side)
{
    int n = 0;

    for (struct r2_comm *c = r2_comm_first(r->side[side].inst); c; c = c->list.all_next) {
        n++;
    }
    return n;
}

static int named(const struct fab_fault *what, int host, int nic)
{
    return (what->host < 0 || what->host == host) && (what->nic < 0 || what->nic == nic);
}

void rig_fault(struct rig *r, const char *text)
{
    uint64_t before[2][FAB_MAX_NICS];
    struct fab_fault what;
    char err[200];

    ck_assert_msg(fab_fault_parse(text, &what, err, sizeof(err)) == 0, "%s: %s", text, err);
    for (int h = 0; h < 2; h++) {
        for (int n = 0; n < r->nics; n++) {
            before[h][n] = fab_inproc_nic(r->f, h, n)->cnt.faults[what.kind];
        }
    }
    ck_assert_msg(fab_inproc_fault(r->f, text, err, sizeof(err)) == 0, "%s: %s", text, err);
    for (int h = 0; h < 2; h++) {
        for (int n = 0; n < r->nics; n++) {
            ck_assert_msg(!named(&what, h, n) ||
                              fab_inproc_nic(r->f, h, n)->cnt.faults[what.kind] > before[h][n],
                          "%s did not fire at host %d NIC %d", text, h, n);
        }
    }
    for (int i = 0; i < 2; i++) { /* its event makes a descriptor readable */
        rig_kick(&r->side[i]);
    }
}
