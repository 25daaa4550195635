#include "tools/r2_perf/rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_perf/chrome.h"
#include "tools/r2_perf/fault.h"
#include "tools/r2_perf/launch.h"
#include "tools/r2_perf/log.h"
#include "tools/r2_perf/measure.h"
#include "tools/r2_perf/outfile.h"
#include "tools/r2_perf/planned.h"
#include "tools/r2_perf/plot.h"
#include "tools/r2_perf/timeline.h"
#include "tools/r2_perf/util.h"
#include "tools/r2_perf/watch.h"

struct rank {
    const struct opts *o;
    const struct boot_place *place;
    char host[64];
    struct boot *boot;
    struct plugin plugin;
    bool plugin_ready;
    struct wire wire;
    bool wire_ready;
    struct trace trace;
    struct engine *engine;
    struct measure measure;
    struct planned planned;     /* with --algo */
    struct fault_agent *faults; /* rank 0 */
    struct stats *stats;        /* with --trace */
    struct chrome chrome;       /* likewise */
    struct report report;       /* rank 0 */
    bool report_ready;
    int channels;
    size_t watched_size; /* what the trace is about */
    double op_bytes;     /* of one operation of it, as algbw counts */
};

/* Everybody must have what it takes before anybody goes on: then one message says what is missing,
 * and where. */
static int rank_fail(struct rank *r, int code, const char *text)
{
    boot_fail(r->boot, code, text);
    return -1;
}

static int rank_plugin_open(struct rank *r)
{
    char error[2600], text[2800];
    if (plugin_open(&r->plugin, r->o->abi, error, sizeof(error)) != 0) {
        snprintf(text, sizeof(text), "rank %d on %s: %s", r->place->rank, r->host, error);
        return rank_fail(r, PERF_NET, text);
    }
    r->plugin_ready = true;
    return 0;
}

static void rank_device_describe(const struct rank *r, struct report_device *d)
{
    memset(d, 0, sizeof(*d));
    d->rank = r->place->rank;
    d->pid = (int32_t)getpid();
    d->device = r->place->local;
    snprintf(d->host, sizeof(d->host), "%s", r->host);
    const char *bus = plugin_device_bus(&r->plugin, r->place->local % r->plugin.ndev);
    snprintf(d->bus, sizeof(d->bus), "%.*s", (int)strcspn(bus, "."), bus);
    int n = snprintf(d->info, sizeof(d->info), "%s:", r->plugin.net->name);
    for (int i = 0; i < r->plugin.ndev && n < (int)sizeof(d->info) - 40; i++) {
        n += snprintf(d->info + n, sizeof(d->info) - (size_t)n, " %.32s", r->plugin.props[i].name);
    }
}

/* Devices of all ranks for the list, and the number of channels that all agree on. */
static int rank_devices_exchange(struct rank *r)
{
    struct report_device *all = util_mem_alloc(BOOT_RANKS_MAX, sizeof(*all));
    int32_t ndev[BOOT_RANKS_MAX] = {0};
    int most = 1, n = r->place->nranks;
    rank_device_describe(r, &all[r->place->rank]);
    ndev[r->place->rank] = r->plugin.ndev;
    int rc = boot_allgather(r->boot, all, sizeof(all[0]));
    rc = rc == 0 ? boot_allgather(r->boot, ndev, sizeof(ndev[0])) : rc;
    for (int i = 0; i < n && rc == 0; i++) {
        most = ndev[i] > most ? ndev[i] : most;
    }
    r->channels =
        r->o->channels ? r->o->channels : (int)util_size_min((size_t)most, WIRE_CHANNELS_MAX);
    if (rc == 0 && r->place->rank == 0) {
        report_open(&r->report, r->o, all, n);
        r->report_ready = true;
    }
    free(all);
    return rc;
}

static int rank_wire_open(struct rank *r)
{
    const struct opts *o = r->o;
    struct wire_setup setup = {.boot = r->boot,
                               .plugin = &r->plugin,
                               .op = o->op,
                               .rank = r->place->rank,
                               .nranks = r->place->nranks,
                               .channels = r->channels,
                               .local = r->place->local,
                               .host = r->place->host,
                               .intra_net = o->intra_net,
                               .flush = o->flush,
                               .local_register = o->local_register != 0,
                               .buffer_bytes = o->buffer_bytes,
                               .pair_bytes = o->pair_bytes,
                               .links = r->planned.links,
                               .nics = r->planned.nics};
    r->wire_ready = true;
    if (wire_open(&r->wire, &setup) != 0) {
        return -1;
    }
    trace_init(&r->trace, r->place->rank, o->interval_ns);
    r->engine = engine_open(&r->wire, &r->trace, o->idle_ns);
    return r->engine ? 0 : rank_fail(r, PERF_INTERNAL, "no thread for progress");
}

static void rank_clock_started(void *arg, uint64_t t0_ns)
{
    struct rank *r = arg;
    if (r->faults) {
        fault_agent_start(r->faults, t0_ns);
    }
    if (r->stats) {
        stats_start(r->stats, t0_ns);
    }
}

static bool rank_faults_unfinished(void *arg)
{
    struct rank *r = arg;
    return fault_agent_unfinished(r->faults);
}

/* Whether all ranks give rank 0 what their plugins tell. */
static bool rank_is_told(const struct rank *r)
{
    return r->o->trace || (r->o->plot && r->place->nranks <= PLOT_RANKS);
}

static int rank_measure_open(struct rank *r)
{
    char error[300];
    struct measure *m = &r->measure;
    m->o = r->o;
    m->boot = r->boot;
    m->engine = r->engine;
    m->rank = r->place->rank;
    m->nranks = r->place->nranks;
    if (rank_is_told(r)) {
        r->stats = stats_open(r->o->interval_ns);
    }
    m->trace = r->o->trace ? &r->trace : NULL;
    m->started = r->faults || r->stats ? rank_clock_started : NULL;
    m->unfinished = r->faults && r->o->after_ns ? rank_faults_unfinished : NULL;
    m->started_arg = r;
    if (r->o->algo >= 0) {
        r->planned.engine = r->engine;
        m->before = planned_before;
        m->after = planned_after;
        m->around_arg = &r->planned;
    }
    return measure_open(m, error, sizeof(error)) == 0 ? 0 : rank_fail(r, PERF_INTERNAL, error);
}

/* On a terminal, what is being measured; the line is gone before the row is printed. */
static void rank_progress_show(const struct rank *r, const struct measure_case *c, bool show)
{
    if (r->place->rank != 0 || !isatty(STDERR_FILENO)) {
        return;
    }
    if (show) {
        fprintf(stderr, "\r%zu B %s %s ...", c->bytes, type_id_name(c->type),
                c->in_place ? "in place" : "out of place");
    } else {
        fprintf(stderr, "\r\033[K");
    }
}

static void rank_row_print(struct rank *r, const struct measure_case *c, struct report_row *row)
{
    const struct algo_info *info = algo_info_get(r->o->op);
    struct algo_counts counts;
    size_t ts = type_id_size(c->type);
    measure_counts_get(&r->measure, c, &counts);
    row->size = util_size_max(counts.send, counts.recv) * ts;
    row->count = counts.param;
    row->type = type_id_name(c->type);
    row->redop = info->names_redop ? type_redop_name(c->redop) : "none";
    row->root = info->rooted ? c->root : -1;
    if (c->watched) {
        r->watched_size = row->size;
        r->op_bytes = (double)algo_bytes_get(r->o->op, counts.param, ts, r->place->nranks);
    }
    report_row_print(&r->report, row);
}

static void rank_cell_free(struct report_cell *cell)
{
    free((void *)cell->times);
    free((void *)cell->rank_times);
}

/* Both placements of one size: one row. */
static int rank_size_run(struct rank *r, struct measure_case c)
{
    struct report_row row = {0};
    bool wanted[2] = {r->o->out_of_place, r->o->in_place};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        c.in_place = i == 1;
        if (wanted[i]) {
            rank_progress_show(r, &c, true);
            rc = measure_run(&r->measure, &c, i ? &row.in : &row.out, &row.iters);
            rank_progress_show(r, &c, false);
        }
    }
    if (rc == 0 && r->place->rank == 0) {
        rank_row_print(r, &c, &row);
    }
    rank_cell_free(&row.out);
    rank_cell_free(&row.in);
    return rc;
}

static size_t rank_size_next(const struct opts *o, size_t bytes)
{
    return o->step_factor > 1 ? bytes * (size_t)o->step_factor : bytes + o->step_bytes;
}

/* All sizes of one type, operation and root. @last: the trace records the largest size of the last
 * cycle. */
static int rank_sweep_run(struct rank *r, struct measure_case c, bool last)
{
    const struct opts *o = r->o;
    for (size_t n = o->min_bytes; n <= o->max_bytes; n = n ? n * 2 : 1) {
        c.bytes = n;
        if (measure_warmup(&r->measure, &c, o->warmup) != 0) {
            return -1;
        }
    }
    for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++) {
        for (c.bytes = o->min_bytes; c.bytes <= o->max_bytes;
             c.bytes = rank_size_next(o, c.bytes)) {
            c.watched = last && cycle + 1 == o->cycles && rank_size_next(o, c.bytes) > o->max_bytes;
            if (rank_size_run(r, c) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

/* -1 stands for all of @n choices. */
static void rank_range_get(int choice, int n, int *from, int *to)
{
    *from = choice < 0 ? 0 : choice;
    *to = choice < 0 ? n - 1 : choice;
}

static int rank_sweeps_run(struct rank *r)
{
    const struct algo_info *info = algo_info_get(r->o->op);
    int types[2], redops[2], roots[2];
    rank_range_get(r->o->type, TYPE_COUNT, &types[0], &types[1]);
    rank_range_get(info->names_redop ? r->o->redop : 0, REDOP_COUNT, &redops[0], &redops[1]);
    rank_range_get(info->rooted ? r->o->root_rank : 0, r->place->nranks, &roots[0], &roots[1]);
    for (int t = types[0]; t <= types[1]; t++) {
        for (int op = redops[0]; op <= redops[1]; op++) {
            for (int root = roots[0]; root <= roots[1]; root++) {
                struct measure_case c = {
                    .type = (enum type_id)t, .redop = (enum type_redop)op, .root = root};
                bool last = t == types[1] && op == redops[1] && root == roots[1];
                if (rank_sweep_run(r, c, last) != 0) {
                    return -1;
                }
            }
        }
    }
    return 0;
}

/* Wrong sizes of all ranks; the first is this rank's or the lowest other rank's. */
static int rank_mismatches_gather(struct rank *r, uint64_t *sum, char *first, size_t bytes)
{
    struct {
        uint64_t n;
        char text[168];
    } all[BOOT_RANKS_MAX];
    const char *own;
    memset(all, 0, sizeof(all));
    all[r->place->rank].n = engine_mismatches_get(r->engine, &own);
    snprintf(all[r->place->rank].text, sizeof(all[0].text), "%s", own);
    if (boot_allgather(r->boot, all, sizeof(all[0])) != 0) {
        return -1;
    }
    *sum = 0;
    for (int i = r->place->nranks - 1; i >= 0; i--) {
        *sum += all[i].n;
        if (all[i].n) {
            snprintf(first, bytes, "%s", all[i].text);
        }
    }
    return 0;
}

/* A fault that was asked for and did not happen makes the result worth nothing. */
static int rank_faults_code(const struct rank *r, const struct report_extra *x)
{
    int code = PERF_OK;
    for (int i = 0; i < x->nevents; i++) {
        bool missing = !x->events[i].fired && !r->o->fault_optional;
        if (missing || (x->events[i].fired && x->events[i].status != 0)) {
            code = PERF_INTERNAL;
        }
    }
    return code;
}

/* 8388608 as 8 MiB; sizes that are no such multiple in bytes. */
static char *rank_size_text(size_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    return util_str_format("%zu %s", bytes, units[unit]);
}

/* What the picture and the trace are of; the caller frees. */
static char *rank_title_get(const struct rank *r)
{
    char *size = rank_size_text(r->watched_size);
    char *title =
        util_str_format("%s, %s, %d ranks, %d channels, plugin %s", algo_info_get(r->o->op)->name,
                        size, r->place->nranks, r->channels, r->plugin.net->name);
    free(size);
    return title;
}

static void rank_plot_write(const struct rank *r, const struct timeline *t)
{
    char *title = rank_title_get(r);
    if (plot_timeline_write(r->o->plot, title, t, &r->chrome) != 0) {
        fprintf(stderr, "%s: --plot %s: %s\n", program_invocation_short_name, r->o->plot,
                strerror(errno));
    } else {
        printf("# r2 plot %s\n", r->o->plot);
    }
    free(title);
}

/* PERF_OK, or the exit code that a trace makes which was asked for and is not there. */
static int rank_trace_write(const struct rank *r, const struct timeline *t)
{
    struct outfile out;
    char *title = rank_title_get(r);
    struct chrome_run run = {.operation = algo_info_get(r->o->op)->name,
                             .plugin = r->plugin.net->name,
                             .title = title,
                             .size = r->watched_size,
                             .op_bytes = r->op_bytes,
                             .timeline = t};
    int rc = outfile_open(&out, r->o->trace);
    if (rc == 0) {
        chrome_write(&r->chrome, &run, out.f);
        rc = outfile_close(&out);
    }
    if (rc == 0) {
        printf("# r2 trace %s\n", r->o->trace);
    } else {
        fprintf(stderr, "%s: --trace %s: %s\n", program_invocation_short_name, r->o->trace,
                strerror(errno));
    }
    free(title);
    return rc == 0 ? PERF_OK : PERF_INTERNAL;
}

/* Rank 0's last words. Returns the exit code. */
static int rank_results_print(struct rank *r, const struct timeline *t, uint64_t mismatches,
                              const char *first)
{
    struct report_extra x = {.plugin_name = r->plugin.net->name,
                             .plugin_path = r->plugin.path,
                             .plugin_abi = abi_view.version,
                             .devices = r->plugin.ndev,
                             .channels = r->channels,
                             .nranks = r->place->nranks,
                             .forked = r->place->board_fd >= 0,
                             .checked = r->measure.checked,
                             .wrong = r->measure.wrong,
                             .mismatches = mismatches,
                             .mismatch = first,
                             .watched_size = r->watched_size,
                             .timeline = t,
                             .planned = r->o->algo >= 0 ? &r->planned : NULL};
    bool print = r->o->nfaults || r->o->duration_ns || r->o->stats || r->o->plot || r->o->trace;
    x.events = fault_events_get(r->faults, &x.nevents);
    int code = report_footer_print(&r->report, NULL);
    report_extra_print(&r->report, &x, print);
    if (r->o->algo >= 0) {
        planned_print(&r->planned);
    }
    if (r->o->plot) {
        rank_plot_write(r, t);
    }
    int lost = r->o->trace ? rank_trace_write(r, t) : PERF_OK;
    report_close(&r->report, NULL);
    if (code == PERF_OK && (mismatches || r->measure.wrong)) {
        code = PERF_RESULT;
    }
    int faults = rank_faults_code(r, &x);
    code = code ? code : faults;
    return code ? code : lost;
}

/* After the last operation: put everything together. Returns the exit code, or -1 once the run has
 * failed. */
static int rank_results_gather(struct rank *r)
{
    struct timeline t;
    uint64_t mismatches = 0;
    char first[168] = "";
    int code = PERF_OK;
    if (r->faults) {
        fault_agent_stop(r->faults);
    }
    int rc = timeline_gather(&t, r->boot, r->place->rank, r->place->nranks, &r->trace,
                             r->measure.bus_bytes, log_failovers_count(), r->faults);
    if (rc == 0 && rank_is_told(r)) {
        rc = chrome_gather(&r->chrome, r->boot, r->place->rank, r->place->nranks, r->host,
                           &r->trace, r->stats ? stats_stop(r->stats) : NULL);
    }
    rc = rc == 0 ? rank_mismatches_gather(r, &mismatches, first, sizeof(first)) : rc;
    if (rc == 0 && r->place->rank == 0) {
        code = rank_results_print(r, &t, mismatches, first);
    }
    timeline_free(&t);
    return rc == 0 ? code : -1;
}

/* Under mpirun it is known here first how many there are. */
static int rank_option_refuse(struct rank *r, const char *option, int rank)
{
    char text[120];
    snprintf(text, sizeof(text), "option --%s: there is no rank %d: there are 0 to %d", option,
             rank, r->place->nranks - 1);
    return rank_fail(r, PERF_USAGE, text);
}

/* As our own launcher does before it starts ranks; here all hear of it. */
static int rank_trace_check(struct rank *r)
{
    int32_t errors[BOOT_RANKS_MAX] = {0};
    char text[700];
    if (!r->o->trace || r->place->board_fd >= 0) {
        return 0;
    }
    if (r->place->rank == 0 && outfile_check(r->o->trace) != 0) {
        errors[0] = errno;
    }
    if (boot_allgather(r->boot, errors, sizeof(errors[0])) != 0) {
        return -1;
    }
    snprintf(text, sizeof(text), "--trace %.500s: %s", r->o->trace, strerror(errors[0]));
    return errors[0] ? rank_fail(r, PERF_USAGE, text) : 0;
}

static int rank_work(struct rank *r)
{
    if (rank_plugin_open(r) != 0 || rank_devices_exchange(r) != 0) {
        return -1;
    }
    if (algo_info_get(r->o->op)->rooted && r->o->root_rank >= r->place->nranks) {
        return rank_option_refuse(r, "root", r->o->root_rank);
    }
    if (r->o->late_ns && r->o->late_rank >= r->place->nranks) {
        return rank_option_refuse(r, "late", r->o->late_rank);
    }
    if (rank_trace_check(r) != 0) {
        return -1;
    }
    if (r->place->rank == 0) {
        r->faults = fault_agent_open(r->o, launch_softfab_get(), launch_fabric_get());
    }
    if (r->o->algo >= 0) {
        if (planned_open(&r->planned, r->o, r->place, r->boot, &r->plugin) != 0) {
            return -1;
        }
        r->channels = r->planned.channels;
    }
    if (rank_wire_open(r) != 0 || rank_measure_open(r) != 0) {
        return -1;
    }
    if (r->place->rank == 0) {
        report_header_print(&r->report);
    }
    return rank_sweeps_run(r) == 0 ? rank_results_gather(r) : -1;
}

/* Also after a failure: closing with requests outstanding is what a plugin must bear. */
static void rank_close(struct rank *r)
{
    engine_close(r->engine);
    if (r->wire_ready) {
        wire_close(&r->wire);
    }
    if (r->plugin_ready) {
        plugin_close(&r->plugin, r->o->unload);
    }
    measure_close(&r->measure);
    planned_close(&r->planned);
    fault_agent_close(r->faults);
    stats_close(r->stats);
    chrome_free(&r->chrome);
    trace_free(&r->trace);
}

/* A launcher knows more, such as how a process died, and shows the error after all ranks are gone.
 */
static bool rank_prints_error(const struct rank *r)
{
    return r->place->rank == 0 && r->place->board_fd < 0;
}

static int rank_error_report(struct rank *r)
{
    const struct board *board = boot_error(r->boot);
    if (r->place->rank == 0) {
        if (rank_prints_error(r)) {
            watch_error_print(board);
        }
        if (r->report_ready) {
            report_close(&r->report, board->text);
        }
        fflush(stdout);
    }
    return board->code;
}

int rank_run(const struct opts *o, const struct boot_place *place)
{
    struct rank r = {.o = o, .place = place};
    char error[600];
    if (place->host >= 0) {
        snprintf(r.host, sizeof(r.host), "h%d", place->host);
    } else {
        gethostname(r.host, sizeof(r.host) - 1);
    }
    log_setup(r.host);
    if (boot_open(&r.boot, place, o->timeout_ns, error, sizeof(error)) != 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, error);
        return PERF_INTERNAL;
    }
    watch_start(r.boot, place->rank, rank_prints_error(&r), o->timeout_ns);
    int code = rank_work(&r);
    if (code < 0 || boot_failed(r.boot)) {
        code = rank_error_report(&r);
        boot_fail_settle(r.boot);
    }
    rank_close(&r);
    if (code == PERF_OK && boot_failed(r.boot)) {
        code = rank_error_report(
            &r); /* a connection could not be closed, or a rank died while closing */
    }
    watch_stop();
    int late = boot_close(r.boot);
    return code == PERF_OK ? late : code;
}
