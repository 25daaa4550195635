#include <string.h>

#include "plugin/base/r2_json.h"
#include "plugin/planner/planner_seat.h"
#include "tools/schedule/sched.h"
#include "tools/schedule/sim.h"
#include "tools/r2_plan/tool.h"

static const struct {
    const char *name, *text;
} shares[] = {
    [SIM_BYTES] = {"bytes", "by what their connections carry"},
    [SIM_CONNECTIONS] = {"connections", "equally"},
    [SIM_SENDERS] = {"senders", "equally, at a receiver by senders first"},
};

bool simulate_by_read(const char *text, enum sim_by *by)
{
    for (int i = 0; i < (int)(sizeof(shares) / sizeof(shares[0])); i++) {
        if (strcmp(text, shares[i].name) == 0) {
            *by = (enum sim_by)i;
            return true;
        }
    }
    return false;
}

struct row {
    const char *name;
    double load,
        longest; /* what the planner says; the longest time of any NIC by bytes that went */
    struct sim_result r;
    bool is_made;
};

/* By what was sent and received, whenever that was. */
static double longest_find(const struct sim_result *r, const double *b, int n)
{
    double longest = 0;

    for (int i = 0; i < n; i++) {
        double most = r->sent[i] > r->received[i] ? r->sent[i] : r->received[i];

        longest = most / b[i] > longest ? most / b[i] : longest;
    }
    return longest;
}

static void row_make(const struct job *j, int kind, struct row *row)
{
    double load[STEPS_NODES];
    int order[STEPS_NODES], seat[STEPS_NODES];
    struct sched c = {.nodes = j->nodes, .b = j->b, .order = order, .pieces = j->pieces};
    struct steps *s;

    for (int i = 0; i < j->nodes; i++) {
        order[i] = i;
    }
    if (kind == PLANNER_SEATS) {
        planner_seat_loads(j->nodes, load);
        planner_seat_assign(j->b, j->nodes, order, load, seat);
        c.order = seat;
    }
    *row = (struct row){.name = sched_name(kind), .load = sched_load(&c, kind)};
    s = sched_make(&c, kind);
    if (s != NULL) {
        row->is_made = true;
        sim_run(s, j->b, j->by, &row->r);
        row->longest = longest_find(&row->r, j->b, j->nodes);
        steps_close(s);
    }
}

static void rows_text(FILE *f, const struct job *j, const struct row *row)
{
    fprintf(f,
            "%d nodes, %d pieces, transfers share NICs %s; times in D/B\n\n"
            "%-22s %8s %10s %10s %10s  data\n",
            j->nodes, j->pieces, shares[j->by].text, "strategy", "planner", "NICs busy",
            "simulated", "transfers");
    for (int k = 0; k < SCHED_KINDS; k++) {
        const struct row *w = &row[k];

        if (w->is_made) {
            fprintf(f, "%-22s %8.4f %10.4f %10.4f %10d  %s\n", w->name, w->load, w->longest,
                    w->r.time, w->r.transfers, w->r.wrong[0] ? w->r.wrong : "right");
        } else {
            fprintf(f, "%-22s has no form for this\n", w->name);
        }
    }
    fprintf(f, "%-22s %8.4f\n", "no schedule below", planner_bound(j->b, j->nodes));
}

static void rows_json(FILE *f, const struct job *job, const struct row *row)
{
    struct r2_json j;

    r2_json_begin_file(&j, f);
    r2_json_open(&j, NULL, '{');
    r2_json_int(&j, "schema", 1);
    r2_json_text(&j, "version", R2_VERSION);
    r2_json_int(&j, "nodes", job->nodes);
    r2_json_int(&j, "pieces", job->pieces);
    r2_json_text(&j, "share", shares[job->by].name);
    r2_json_real(&j, "bound", planner_bound(job->b, job->nodes));
    r2_json_open(&j, "strategies", '[');
    for (int k = 0; k < SCHED_KINDS; k++) {
        if (!row[k].is_made) {
            continue;
        }
        r2_json_open(&j, NULL, '{');
        r2_json_text(&j, "name", row[k].name);
        r2_json_real(&j, "planner", row[k].load);
        r2_json_real(&j, "busy", row[k].longest);
        r2_json_real(&j, "simulated", row[k].r.time);
        r2_json_int(&j, "transfers", row[k].r.transfers);
        r2_json_text(&j, "wrong", row[k].r.wrong[0] ? row[k].r.wrong : NULL);
        r2_json_close(&j, '}');
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    fputc('\n', f);
}

bool simulate_write(FILE *f, const struct job *j)
{
    static struct row row[SCHED_KINDS];
    bool is_right = true;

    for (int k = 0; k < SCHED_KINDS; k++) {
        row_make(j, k, &row[k]);
        is_right = is_right && row[k].r.wrong[0] == '\0';
    }
    if (j->json) {
        rows_json(f, j, row);
    } else {
        rows_text(f, j, row);
    }
    return is_right;
}
