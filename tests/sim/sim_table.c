/* What many runs saw: a row for each class and their sum, and behind them each class' faults and
 * what only it has. */
#include "sim.h"

#include <stdio.h>

void sim_stats_add(struct sim_stats *to, const struct sim_stats *s)
{
    to->runs += s->runs;
    to->failed += s->failed;
    to->messages += s->messages;
    to->events += s->events;
    to->switches += s->switches;
    to->false_switches += s->false_switches;
    to->soft += s->soft;
    to->told += s->told;
    to->retransmitted += s->retransmitted;
    to->virtual_ns += s->virtual_ns;
    if (s->longest_stall_ns > to->longest_stall_ns) {
        to->longest_stall_ns = s->longest_stall_ns;
    }
    for (int i = 0; i < SIM_F_KINDS; i++) {
        to->faults[i] += s->faults[i];
    }
    to->oob_lost += s->oob_lost;
    to->copies += s->copies;
    to->copies_refused += s->copies_refused;
    to->refused += s->refused;
    to->made_up += s->made_up;
    to->late_arrivals += s->late_arrivals;
    to->lists += s->lists;
    to->lists_cut += s->lists_cut;
    to->overtaken += s->overtaken;
    to->oob_dup += s->oob_dup;
    to->oob_reordered += s->oob_reordered;
    to->oob_outages += s->oob_outages;
    to->ghosts += s->ghosts;
    to->returns += s->returns;
    to->resorts += s->resorts;
    to->weights += s->weights;
    mx_sums_add(&to->matrix, &s->matrix);
    for (int i = 0; i < SIM_INCS; i++) {
        to->carried[i] += s->carried[i];
    }
}

static void row_print(const char *name, const struct sim_stats *s)
{
    uint64_t faults = 0;

    for (int k = 0; k < SIM_F_KINDS; k++) {
        faults += s->faults[k];
    }
    printf("%-11s %9llu %6llu %9llu %7llu %9llu %6llu %8llu %8llu %6llu %9.3f %9.1f\n", name,
           (unsigned long long)s->runs, (unsigned long long)s->failed,
           (unsigned long long)s->messages, (unsigned long long)faults,
           (unsigned long long)s->switches, (unsigned long long)s->false_switches,
           (unsigned long long)s->retransmitted, (unsigned long long)s->returns,
           (unsigned long long)s->soft, (double)s->longest_stall_ns / 1e6,
           (double)s->virtual_ns / 1e9);
}

static void faults_print(const struct sim_stats *st)
{
    for (int k = 0; k < SIM_F_KINDS; k++) {
        if (st->faults[k]) {
            printf(" %s %llu", sim_fault_kind_name(k), (unsigned long long)st->faults[k]);
        }
    }
}

static int has_details(const struct sim_stats *st)
{
    int faults = 0;

    for (int k = 0; k < SIM_F_KINDS; k++) {
        faults |= st->faults[k] != 0;
    }
    return faults || st->ghosts || st->copies || st->lists || st->returns || st->weights ||
           st->oob_lost + st->oob_dup + st->oob_reordered;
}

static void details_print(const char *name, const struct sim_stats *st)
{
    int carried = 0;

    if (!has_details(st)) {
        return;
    }
    printf("%s:", name);
    faults_print(st);
    if (st->told) {
        printf(" soft incarnations compared %llu", (unsigned long long)st->told);
    }
    if (st->ghosts) {
        printf(" ghosts %llu", (unsigned long long)st->ghosts);
    }
    if (st->copies) {
        printf(" copies %llu, refused %llu", (unsigned long long)st->copies,
               (unsigned long long)st->copies_refused);
    }
    if (st->refused + st->made_up) {
        printf(" posts refused %llu, flushes made up %llu, arrivals behind them %llu",
               (unsigned long long)st->refused, (unsigned long long)st->made_up,
               (unsigned long long)st->late_arrivals);
    }
    if (st->lists) {
        printf(" lists %llu, cut %llu, overtaken writes %llu", (unsigned long long)st->lists,
               (unsigned long long)st->lists_cut, (unsigned long long)st->overtaken);
    }
    for (int i = 1; i < SIM_INCS; i++) {
        carried |= st->carried[i] != 0;
    }
    if (carried) {
        printf(" incarnations with data");
        for (int i = 1; i < SIM_INCS; i++) {
            printf(" %d%s: %llu", i, i == SIM_INCS - 1 ? "+" : "",
                   (unsigned long long)st->carried[i]);
        }
    }
    if (st->resorts) {
        printf(" looks over the last resort %llu", (unsigned long long)st->resorts);
    }
    if (st->weights) {
        printf(" plans changed %llu", (unsigned long long)st->weights);
    }
    if (st->oob_lost + st->oob_dup + st->oob_reordered) {
        printf(" oob lost %llu dup %llu reordered %llu", (unsigned long long)st->oob_lost,
               (unsigned long long)st->oob_dup, (unsigned long long)st->oob_reordered);
    }
    printf("\n");
}

static void matrix_print(const struct sim_stats *st)
{
    for (int k = 0; k < MX_KINDS; k++) {
        if (st->matrix.cases[k]) {
            mx_table_print(&st->matrix, stdout);
            return;
        }
    }
}

void sim_table_print(const struct sim_stats *st)
{
    struct sim_stats all = {0};
    int rows = 0;

    printf("%-11s %9s %6s %9s %7s %9s %6s %8s %8s %6s %9s %9s\n", "class", "schedules", "failed",
           "messages", "faults", "switches", "false", "resent", "returns", "soft", "stall ms",
           "virtual s");
    for (int c = 0; c < sim_class_count; c++) {
        if (!st[c].runs) {
            continue;
        }
        row_print(sim_classes[c].name, &st[c]);
        sim_stats_add(&all, &st[c]);
        rows++;
    }
    row_print("sum", &all);
    for (int c = 0; c < sim_class_count; c++) {
        if (!st[c].runs) {
            continue;
        }
        details_print(sim_classes[c].name, &st[c]);
        matrix_print(&st[c]);
    }
    if (rows > 1) {
        details_print("sum", &all);
    }
}
