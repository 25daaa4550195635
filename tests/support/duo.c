#include "tests/support/duo.h"
#include "plugin/base/r2_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_NS 500
#define KICK_NS 1000 /* until duo.wake_ns says otherwise */

/* For a build with the leak sanitizer: objects of a dead device are left behind on purpose, a
 * driver is not asked to free them. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:fab_ibv_\n";
}

static const char *const host_name[DUO_ENDS] = {
    "host0", "host1", "host2",  "host3",  "host4",  "host5",  "host6",  "host7",
    "host8", "host9", "host10", "host11", "host12", "host13", "host14", "host15"};

static uint64_t host_uuid(int host)
{
    return 1 + (uint64_t)host;
}

/* ---- env ---- */

static void service_at(struct duo_end *e, uint64_t at);

static void service_run(void *arg)
{
    struct duo_end *e = arg;
    uint64_t next;

    e->service_id = 0;
    e->duo->running = e->host;
    next = r2_inst_service_step(e->inst);
    e->duo->running = -1;
    if (next != UINT64_MAX) {
        service_at(e, next > duo_now(e->duo) ? next : duo_now(e->duo) + e->duo->wake_ns);
    }
}

static void service_at(struct duo_end *e, uint64_t at)
{
    if (e->service_id) {
        if (e->service_at <= at) {
            return;
        }
        fab_inproc_cancel(e->duo->f, e->service_id);
    }
    e->service_at = at;
    e->service_id = fab_inproc_at(e->duo->f, at, service_run, e);
}

static uint64_t env_now(void *arg)
{
    return duo_now(((struct duo_end *)arg)->duo);
}

static void env_random(void *arg, void *out, unsigned len)
{
    struct duo_end *e = arg;

    for (unsigned i = 0; i < len; i++) {
        e->random = e->random * 6364136223846793005ull + 1442695040888963407ull;
        ((uint8_t *)out)[i] = (uint8_t)(e->random >> 56);
    }
}

static void env_kick_service(void *arg)
{
    struct duo_end *e = arg;

    if (e->inst) {
        service_at(e, duo_now(e->duo) + e->duo->wake_ns);
    }
}

static uint64_t job_ns(const struct duo *d, int device)
{
    return d->device_ns[device] ? d->device_ns[device] : d->job_ns;
}

static void worker_run(void *arg)
{
    struct duo_worker *w = arg;

    struct duo *d = w->end->duo;
    int more;

    w->armed = 0;
    if (d->stuck[w->end->host] >> w->device & 1) {
        return;
    }
    d->running = w->end->host;
    while ((more = r2_inst_worker_step(w->end->inst, w->device)) && !job_ns(d, w->device)) {
    }
    d->running = -1;
    if (more && !w->armed) { /* the thread is busy with this one for so long */
        w->armed = 1;
        fab_inproc_at(d->f, duo_now(d) + job_ns(d, w->device), worker_run, w);
    }
}

static void env_kick_worker(void *arg, int device)
{
    struct duo_end *e = arg;
    struct duo_worker *w = &e->worker[device];
    uint64_t wait = job_ns(e->duo, device);

    w->end = e;
    w->device = device;
    if (!w->armed) {
        w->armed = 1;
        fab_inproc_at(e->duo->f, duo_now(e->duo) + (wait ? wait : e->duo->wake_ns), worker_run, w);
    }
}

/* ---- the channel ---- */

static void oob_destroy(struct r2_oob *oob)
{
    struct duo_end *e = (struct duo_end *)oob;

    while (e->in) {
        struct duo_message *m = e->in;

        e->in = m->next;
        free(m);
    }
    e->in_tail = &e->in;
}

static int oob_fd(struct r2_oob *oob)
{
    return -1;
}

static uint64_t oob_progress(struct r2_oob *oob, uint64_t now)
{
    struct duo_end *e = (struct duo_end *)oob;

    for (int i = 0; i < e->duo->ends; i++) {
        if (i != e->host && !e->peer[i].up) {
            e->peer[i].up = 1;
            e->ev.up(e->ev.arg, &e->peer[i]);
        }
    }
    while (e->in) {
        struct duo_message *m = e->in;

        e->in = m->next;
        if (e->in == NULL) {
            e->in_tail = &e->in;
        }
        e->ev.message(e->ev.arg, &e->peer[m->from], m->data, m->len);
        free(m);
    }
    return UINT64_MAX;
}

static void oob_name_get(struct r2_oob *oob, struct r2_oob_name *name)
{
    memset(name, 0, sizeof(*name));
    name->uuid[0] = host_uuid(((struct duo_end *)oob)->host);
}

static struct r2_oob_peer *oob_peer_get(struct r2_oob *oob, const struct r2_oob_name *name)
{
    struct duo_end *e = (struct duo_end *)oob;

    for (int i = 0; i < e->duo->ends; i++) {
        if (i != e->host && name->uuid[0] == host_uuid(i)) {
            return &e->peer[i];
        }
    }
    return &e->peer[e->host ? 0 : 1];
}

static void oob_peer_ignore(struct r2_oob_peer *p)
{
}

static const uint64_t *oob_peer_uuid(const struct r2_oob_peer *p)
{
    return p->uuid;
}

static const char *oob_peer_str(const struct r2_oob_peer *p)
{
    return host_name[p->host];
}

static bool oob_peer_is_up(const struct r2_oob_peer *p)
{
    return p->up;
}

static int oob_send(struct r2_oob_peer *p, const void *msg, size_t len)
{
    struct duo_end *to = &p->end->duo->end[p->host];
    struct duo_message *m = to->inst ? malloc(sizeof(*m) + len) : NULL;

    if (m == NULL) {
        return -1;
    }
    p->end->sent++;
    p->end->sent_bytes += len;
    m->next = NULL;
    m->from = p->end->host;
    m->len = len;
    memcpy(m->data, msg, len);
    *to->in_tail = m;
    to->in_tail = &m->next;
    service_at(to, duo_now(to->duo) + to->duo->wake_ns);
    return 0;
}

static void oob_drain(struct r2_oob *oob, uint64_t limit_ns)
{
}

static void oob_counters(struct r2_oob *oob, struct r2_oob_counters *out)
{
    memset(out, 0, sizeof(*out));
}

static const struct r2_oob_ops ops = {
    .name = "duo",
    .destroy = oob_destroy,
    .fd = oob_fd,
    .progress = oob_progress,
    .name_get = oob_name_get,
    .peer_get = oob_peer_get,
    .peer_ref = oob_peer_ignore,
    .peer_put = oob_peer_ignore,
    .peer_uuid = oob_peer_uuid,
    .peer_str = oob_peer_str,
    .peer_is_up = oob_peer_is_up,
    .send = oob_send,
    .drain = oob_drain,
    .counters = oob_counters,
};

static struct r2_oob *oob_create(void *arg, const struct r2_oob_events *ev, char *why,
                                 size_t why_len)
{
    struct duo_end *e = arg;

    e->oob.ops = &ops;
    e->ev = *ev;
    for (int i = 0; i < e->duo->ends; i++) {
        e->peer[i] = (struct r2_oob_peer){.end = e, .host = i, .uuid = {host_uuid(i), 0}};
    }
    e->in_tail = &e->in;
    return &e->oob;
}

/* ---- incarnation ---- */

static void log_line(enum r2_log_level level, const char *file, int line, const char *msg)
{
    fprintf(stderr, "%s\n", msg);
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "duo: %s: %s\n", what, why);
    abort();
}

static void end_start(struct duo *d, int host, const struct r2_config *cfg)
{
    struct duo_end *e = &d->end[host];
    struct r2_env env = {.arg = e,
                         .now_ns = env_now,
                         .random = env_random,
                         .kick_service = env_kick_service,
                         .kick_worker = env_kick_worker};
    struct ib_verbs verbs;
    struct r2_inst_params par = {.env = &env,
                                 .verbs = &verbs,
                                 .cfg = cfg,
                                 .oob_create = oob_create,
                                 .oob_arg = e,
                                 .host = host_name[host]};
    char why[256] = "";

    e->duo = d;
    e->host = host;
    e->random = 77 + (uint64_t)host;
    fab_inproc_verbs(d->f, host, &verbs);
    e->inst = r2_inst_create(&par, why, sizeof(why));
    if (e->inst == NULL) {
        die("no instance", why);
    }
    service_at(e, duo_now(d) + d->wake_ns);
}

void duo_create_on(struct duo *d, const struct fab_desc *desc, const struct r2_config *cfg)
{
    memset(d, 0, sizeof(*d));
    d->wake_ns = KICK_NS;
    d->running = -1;
    d->ends = desc->hosts;
    d->f = d->ends <= DUO_ENDS ? fab_inproc_create(desc, 1, NULL) : NULL;
    if (d->f == NULL) {
        die("fabric", "too many hosts, or out of memory");
    }
    if (getenv("DUO_LOG")) {
        r2_log_sink_set(log_line);
    }
    for (int i = 0; i < d->ends; i++) {
        end_start(d, i, cfg);
    }
}

void duo_create(struct duo *d, int nics, uint64_t rate, const struct r2_config *cfg)
{
    static struct fab_desc desc;
    char why[160];

    if (fab_desc_init(&desc, 2, nics, rate, 1000, why, sizeof(why)) != 0) {
        die("fabric", why);
    }
    duo_create_on(d, &desc, cfg);
}

static void end_stop(struct duo_end *e)
{
    struct r2_inst *inst = e->inst;

    while (ib_workers_pending(inst->jobs.workers) > 0) {
        fab_inproc_step(e->duo->f);
    }
    if (e->service_id) {
        fab_inproc_cancel(e->duo->f, e->service_id);
    }
    e->inst = NULL; /* nothing reaches it any more */
    r2_inst_destroy(inst);
}

void duo_destroy(struct duo *d)
{
    for (int i = 0; i < d->ends; i++) {
        end_stop(&d->end[i]);
    }
    fab_inproc_destroy(d->f);
}

int duo_connect_hosts(struct duo *d, int from, int to, int dev, struct r2_comm **send,
                      struct r2_comm **recv)
{
    uint8_t handle[R2_NET_HANDLE_SIZE];
    struct r2_listen *listen;
    int bad = 0;

    *send = *recv = NULL;
    if (r2_net_listen(d->end[to].inst, dev, handle, &listen) != R2_OK) {
        return -1;
    }
    for (int i = 0; i < 1000000 && !bad && !(*send && *recv); i++) {
        bad = (!*send && r2_net_connect(d->end[from].inst, dev, handle, send) != R2_OK) ||
              (!*recv && r2_net_accept(listen, recv) != R2_OK);
        duo_run(d, STEP_NS);
    }
    r2_net_close_listen(listen);
    return *send && *recv ? 0 : -1;
}

int duo_connect(struct duo *d, int dev, struct r2_comm **send, struct r2_comm **recv)
{
    return duo_connect_hosts(d, 0, 1, dev, send, recv);
}

void duo_run(struct duo *d, uint64_t ns)
{
    fab_inproc_run_until(d->f, duo_now(d) + ns);
}

void duo_fault(struct duo *d, const char *text)
{
    char why[160];

    if (fab_inproc_fault(d->f, text, why, sizeof(why)) != 0) {
        die(text, why);
    }
}

enum r2_status duo_wait(struct duo *d, struct r2_req *req, uint64_t limit_ns, int *done, int *sizes)
{
    uint64_t end = duo_now(d) + limit_ns;
    enum r2_status s = r2_net_test(req, done, sizes);

    while (s == R2_OK && !*done && duo_now(d) < end) {
        duo_run(d, STEP_NS);
        s = r2_net_test(req, done, sizes);
    }
    return s;
}
