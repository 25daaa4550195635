/* --algo and --order by name; what is printed of operations by a plan. */
#include "tools/r2_perf/planned.h"

#include <math.h>
#include <string.h>

#include "tools/r2_perf/util.h"
#include "tools/schedule/sched.h"

static const struct {
    const char *name;
    int kind;
} algos[] = {{"ring", PLANNER_RING},     {"tree", PLANNER_TREE},
             {"r2", PLANNER_R2},         {"r2-serial", SCHED_SERIAL},
             {"leaf", PLANNER_ATTACH},   {"recursion", PLANNER_RECURSION},
             {"leaves", PLANNER_LEAVES}, {"star", PLANNER_STARS}};

#define ALGOS ((int)(sizeof(algos) / sizeof(algos[0])))

int planned_algo_find(const char *name)
{
    for (int i = 0; i < ALGOS; i++) {
        if (!strcmp(name, algos[i].name)) {
            return algos[i].kind;
        }
    }
    return -1;
}

static const char *planned_algo_name(int kind)
{
    int i = 0;

    while (algos[i].kind != kind) {
        i++;
    }
    return algos[i].name;
}

const char *planned_order_read(const char *text, int *order, int *n, bool *seats)
{
    uint64_t seen = 0;

    *n = 0;
    *seats = !strcmp(text, "seats");
    if (*seats || !strcmp(text, "rank")) {
        return NULL;
    }
    for (const char *at = text;; at++) {
        char number[8];
        size_t length = strcspn(at, ",");
        long host;

        snprintf(number, sizeof(number), "%.*s", (int)length, at);
        if (length >= sizeof(number) || !util_int_parse(number, 0, BOOT_RANKS_MAX - 1, &host)) {
            return "is not rank, seats or all hosts as in 2,0,1";
        }
        if (seen >> host & 1) {
            return "names a host twice; it is rank, seats or all hosts as in 2,0,1";
        }
        seen |= 1ull << host;
        order[(*n)++] = (int)host;
        at += length;
        if (*at == '\0') {
            break;
        }
    }
    if ((seen & (seen + 1)) != 0) {
        return "leaves a host out; it is rank, seats or all hosts as in 2,0,1";
    }
    return NULL;
}

/* Seconds that the simulator says; NAN: the rate of NICs is not known. */
static double planned_simulated_get(const struct planned *p, const struct planned_run *r)
{
    return p->rate ? r->simulated * (double)r->bytes / ((double)p->nics * (double)p->rate) : NAN;
}

static double planned_measured_get(const struct planned_run *r)
{
    return r->seconds / r->operations;
}

static void planned_hosts_print(const struct planned *p, const struct planned_run *r)
{
    printf("# r2 %-8s %14s %14s %14s %14s %14s %14s\n", "", "planned sent", "sent", "on the wire",
           "planned recv", "received", "on the wire");
    for (int i = 0; i < p->nranks; i++) {
        for (int k = 0; k < p->nics; k++) {
            uint64_t n = (uint64_t)r->operations;
            char name[32], wire[2][24] = {"-", "-"};

            snprintf(name, sizeof(name), "h%d:n%d", i, k);
            if (p->has_wire) {
                snprintf(wire[0], sizeof(wire[0]), "%llu", (unsigned long long)r->wire[i].sent[k]);
                snprintf(wire[1], sizeof(wire[1]), "%llu",
                         (unsigned long long)r->wire[i].received[k]);
            }
            printf("# r2 %-8s %14llu %14llu %14s %14llu %14llu %14s%s\n", name,
                   (unsigned long long)(n * r->plan[i].sent[k]),
                   (unsigned long long)r->moved[i].sent[k], wire[0],
                   (unsigned long long)(n * r->plan[i].received[k]),
                   (unsigned long long)r->moved[i].received[k], wire[1],
                   r->up[i] >> k & 1 ? "" : "  down");
        }
    }
}

static void planned_run_print(const struct planned *p, const struct planned_run *r)
{
    double simulated = planned_simulated_get(p, r), measured = planned_measured_get(r);

    printf("# r2 schedule %s, size %zu, %d operations, positions", planned_algo_name(p->o->algo),
           r->bytes, r->operations);
    for (int i = 0; i < p->nranks; i++) {
        printf(" h%d", r->order[i]);
    }
    printf("; NICs that work:");
    for (int i = 0; i < p->nranks; i++) {
        printf(" %d", __builtin_popcount(r->up[i]));
    }
    printf(" of %d%s\n", p->nics, r->changed ? ", which changed in their middle" : "");
    if (isnan(simulated)) {
        printf("# r2 makespan %.2f ms; simulated %.4f D/B, of a rate that is not known\n",
               measured * 1e3, r->simulated);
    } else {
        printf("# r2 makespan %.2f ms, simulated %.2f ms (%.4f D/B): ratio %.3f\n", measured * 1e3,
               simulated * 1e3, r->simulated, measured / simulated);
    }
    planned_hosts_print(p, r);
}

void planned_print(const struct planned *p)
{
    for (int i = 0; i < p->nruns; i++) {
        planned_run_print(p, &p->runs[i]);
    }
    fflush(stdout);
}

static void planned_nic_json(struct r2_json *j, const struct planned *p,
                             const struct planned_run *r, int i, int k)
{
    int64_t n = r->operations;

    r2_json_open(j, NULL, '{');
    r2_json_int(j, "host", i);
    r2_json_int(j, "nic", k);
    report_bool_json(j, "up", r->up[i] >> k & 1);
    r2_json_int(j, "planned_sent", n * (int64_t)r->plan[i].sent[k]);
    r2_json_int(j, "sent", (int64_t)r->moved[i].sent[k]);
    r2_json_int(j, "planned_received", n * (int64_t)r->plan[i].received[k]);
    r2_json_int(j, "received", (int64_t)r->moved[i].received[k]);
    if (p->has_wire) {
        r2_json_int(j, "wire_sent", (int64_t)r->wire[i].sent[k]);
        r2_json_int(j, "wire_received", (int64_t)r->wire[i].received[k]);
    }
    r2_json_close(j, '}');
}

void planned_json(struct r2_json *j, const struct planned *p)
{
    r2_json_open(j, "schedules", '[');
    for (int at = 0; at < p->nruns; at++) {
        const struct planned_run *r = &p->runs[at];
        double simulated = planned_simulated_get(p, r), measured = planned_measured_get(r);

        r2_json_open(j, NULL, '{');
        r2_json_text(j, "algo", planned_algo_name(p->o->algo));
        r2_json_int(j, "bytes", (int64_t)r->bytes);
        r2_json_int(j, "operations", r->operations);
        report_bool_json(j, "changed", r->changed);
        r2_json_open(j, "order", '[');
        for (int i = 0; i < p->nranks; i++) {
            r2_json_int(j, NULL, r->order[i]);
        }
        r2_json_close(j, ']');
        r2_json_real(j, "makespan_ms", measured * 1e3);
        r2_json_real(j, "simulated", r->simulated);
        r2_json_real(j, "simulated_ms", simulated * 1e3);
        r2_json_real(j, "ratio", measured / simulated);
        r2_json_open(j, "nics", '[');
        for (int i = 0; i < p->nranks * p->nics; i++) {
            planned_nic_json(j, p, r, i / p->nics, i % p->nics);
        }
        r2_json_close(j, ']');
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
}
