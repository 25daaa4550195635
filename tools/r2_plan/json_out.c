#include "plugin/base/r2_json.h"
#include "tools/r2_plan/tool.h"

static void order_put(struct r2_json *j, const char *key, const int *order, int n)
{
    r2_json_open(j, key, '[');
    for (int i = 0; i < n; i++) {
        r2_json_int(j, NULL, order[i]);
    }
    r2_json_close(j, ']');
}

/* The same by name, where nodes have names. */
static void names_put(struct r2_json *j, const struct job *job, const int *order)
{
    if (job->hosts == NULL) {
        return;
    }
    r2_json_open(j, "order_hosts", '[');
    for (int i = 0; i < job->nodes; i++) {
        r2_json_text(j, NULL, job->hosts->host[order[i]]->name);
    }
    r2_json_close(j, ']');
}

static void row_put(struct r2_json *j, const char *name, const struct planner_row *r)
{
    r2_json_open(j, NULL, '{');
    r2_json_text(j, "name", name);
    if (r->load > 0) {
        r2_json_real(j, "load", r->load);
        r2_json_real(j, "us", r->us);
    } else {
        r2_json_null(j, "load");
        r2_json_null(j, "us");
    }
    r2_json_bool(j, "nccl", r->is_nccls);
    r2_json_close(j, '}');
}

static void job_put(struct r2_json *j, const struct job *job)
{
    r2_json_int(j, "nodes", job->nodes);
    r2_json_int(j, "nics", job->nics);
    r2_json_int(j, "gpus", job->gpus);
    r2_json_real(j, "nic_gbps", job->gbps);
    r2_json_uint(j, "bytes", job->bytes);
    r2_json_open(j, "degraded", '[');
    for (int i = 0; i < job->nodes; i++) {
        if (job->b[i] < 1) {
            r2_json_open(j, NULL, '{');
            r2_json_int(j, "node", i);
            r2_json_int(j, "lost", job->nics - __builtin_popcount(job->rails[i]));
            r2_json_real(j, "share", job->b[i]);
            r2_json_close(j, '}');
        }
    }
    r2_json_close(j, ']');
}

static void host_put(struct r2_json *j, const struct host *host)
{
    r2_json_open(j, NULL, '{');
    r2_json_text(j, "name", host->name);
    r2_json_int(j, "processes", host->processes);
    r2_json_int(j, "nics", host->nics);
    r2_json_int(j, "usable", host_usable(host));
    r2_json_open(j, "degraded_by", '[');
    for (int i = 0; i < host->nics; i++) {
        const struct host_nic *n = &host->nic[i];

        if (!host_nic_is_usable(n)) {
            r2_json_open(j, NULL, '{');
            r2_json_text(j, "nic", n->name);
            r2_json_int(j, "port", n->port);
            r2_json_text(j, "state", host_nic_word(n));
            r2_json_text(j, "why", n->why[0] ? n->why : NULL);
            r2_json_close(j, '}');
        }
    }
    r2_json_close(j, ']');
    r2_json_close(j, '}');
}

/* Of hosts that were read. */
static void hosts_put(struct r2_json *j, const struct job *job)
{
    static const char *const rate[] = {"assumed", "read", "said"};
    const struct hosts *h = job->hosts;

    if (h == NULL) {
        return;
    }
    r2_json_text(j, "job", h->job.id[0] ? h->job.id : NULL);
    r2_json_text(j, "rate", rate[job->rate_by]);
    r2_json_open(j, "hosts", '[');
    for (int i = 0; i < h->hosts; i++) {
        host_put(j, h->host[i]);
    }
    r2_json_close(j, ']');
    r2_json_open(j, "missing", '[');
    for (int i = 0; i < h->peers; i++) {
        if (hosts_is_missing(h, i)) {
            r2_json_text(j, NULL, h->peer[i]);
        }
    }
    r2_json_close(j, ']');
}

static void ring_put(struct r2_json *j, const struct job *job, const struct answer *a)
{
    r2_json_open(j, "rail_ring", '{');
    r2_json_int(j, "present", a->present);
    r2_json_int(j, "printed", a->printed);
    r2_json_int(j, "best", a->ring.width);
    r2_json_bool(j, "proved", a->ring.is_best);
    r2_json_int(j, "limit", a->ring.limit);
    order_put(j, "order", a->order, job->nodes);
    names_put(j, job, a->order);
    r2_json_close(j, '}');
}

static void what_if_put(struct r2_json *j, const struct job *job)
{
    static const char *const names[] = {"one", "each", "random"};

    r2_json_open(j, "what_if", '[');
    for (int k = 1; k <= job->what_if; k++) {
        for (int w = LOSS_ONE; w <= LOSS_RANDOM; w++) {
            struct loss l;

            if (!loss_find(job, w, k, &l)) {
                continue;
            }
            r2_json_open(j, NULL, '{');
            r2_json_int(j, "nics", k);
            r2_json_text(j, "where", names[w]);
            r2_json_real(j, "ring", l.ring);
            r2_json_real(j, "nccl", l.nccl);
            r2_json_real(j, "possible", l.best);
            r2_json_close(j, '}');
        }
    }
    r2_json_close(j, ']');
}

void json_write(FILE *f, const struct job *job, const struct answer *a)
{
    const struct planner_plan *p = &a->plan;
    struct r2_json j;

    r2_json_begin_file(&j, f);
    r2_json_open(&j, NULL, '{');
    r2_json_int(&j, "schema", 1);
    r2_json_text(&j, "version", R2_VERSION);
    job_put(&j, job);
    hosts_put(&j, job);
    r2_json_open(&j, "healthy", '[');
    row_put(&j, planner_choose_name(PLANNER_RING), &p->healthy[PLANNER_RING]);
    row_put(&j, planner_choose_name(PLANNER_TREE), &p->healthy[PLANNER_TREE]);
    r2_json_close(&j, ']');
    r2_json_open(&j, "strategies", '[');
    for (int s = 0; s < PLANNER_STRATEGIES; s++) {
        row_put(&j, planner_choose_name(s), &p->row[s]);
    }
    r2_json_close(&j, ']');
    r2_json_real(&j, "bound", p->bound);
    r2_json_text(&j, "use", planner_choose_name(p->use));
    r2_json_text(&j, "fastest", planner_choose_name(p->fastest));
    r2_json_text(&j, "nccl_algo", p->use == PLANNER_RING ? "Ring" : "Tree");
    order_put(&j, "order", a->seat, job->nodes);
    names_put(&j, job, a->seat);
    r2_json_open(&j, "paper", '{');
    r2_json_real(&j, "share", p->paper_share);
    r2_json_real(&j, "us", p->paper_us);
    r2_json_close(&j, '}');
    if (job->rail_only) {
        ring_put(&j, job, a);
    }
    if (job->what_if > 0) {
        what_if_put(&j, job);
    }
    r2_json_close(&j, '}');
    fputc('\n', f);
}
