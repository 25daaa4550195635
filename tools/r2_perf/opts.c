#include "tools/r2_perf/opts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/abi_view.h"
#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/engine.h"
#include "tools/r2_perf/planned.h"
#include "tools/r2_perf/type.h"
#include "tools/r2_perf/util.h"
#include "tools/r2_perf/wire.h"
#include "tools/schedule/sched.h"
#include "tools/shared/args.h"

#define OPERATIONS                                                                                 \
    "all_reduce, all_gather, reduce_scatter, broadcast, reduce, sendrecv, alltoall, gather or scatter"

/* How a row's text becomes a value. */
enum row_kind { ROW_INT, ROW_SIZE, ROW_TIME, ROW_TEXT, ROW_FLAG, ROW_FIXED, ROW_CALL };

struct row {
    const char *name;
    char letter; /* 0: long form only */
    const char *meta;
    const char *help;
    enum row_kind kind;
    size_t offset;
    long lo, hi; /* ROW_INT and ROW_SIZE; ROW_FIXED: the only values allowed */
    /* ROW_CALL: NULL, or what is wrong with @text */
    const char *(*call)(struct opts *o, const char *text);
};

static const char *row_type_set(struct opts *o, const char *text)
{
    o->type = type_id_find(text);
    return o->type == -2
               ? "is not one of int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 all"
               : NULL;
}

static const char *row_redop_set(struct opts *o, const char *text)
{
    o->redop = type_redop_find(text);
    return o->redop == -2 ? "is not one of sum prod max min avg all" : NULL;
}

/* nccl-tests' number of threads; with a unit, how long to run. */
static const char *row_threads_set(struct opts *o, const char *text)
{
    long n;
    if (util_int_parse(text, 1, 1, &n)) {
        return NULL;
    }
    if (strpbrk(text, "smh") && util_time_parse(text, &o->duration_ns) && o->duration_ns > 0) {
        return NULL;
    }
    return "is neither 1 (ranks are processes) nor a time with a unit, such as 8s";
}

static const char *row_duration_set(struct opts *o, const char *text)
{
    return util_time_parse(text, &o->duration_ns) && o->duration_ns > 0
               ? NULL
               : "is not a time, such as 8s";
}

/* nccl-tests' root rank; with a colon, the address of rank 0. */
static const char *row_root_set(struct opts *o, const char *text)
{
    long n;
    if (strchr(text, ':')) {
        o->root_address = text;
        return NULL;
    }
    if (!util_int_parse(text, -1, BOOT_RANKS_MAX - 1, &n)) {
        return "is neither a rank (-1: all of them in turn) nor HOST:PORT";
    }
    o->root_rank = (int)n;
    return NULL;
}

static const char *row_intra_set(struct opts *o, const char *text)
{
    o->intra_net = !strcmp(text, "net");
    return o->intra_net || !strcmp(text, "shm") ? NULL : "is not one of shm net";
}

static const char *row_placement_set(struct opts *o, const char *text)
{
    o->out_of_place = strcmp(text, "in") != 0;
    o->in_place = strcmp(text, "out") != 0;
    return !strcmp(text, "in") || !strcmp(text, "out") || !strcmp(text, "both")
               ? NULL
               : "is not one of out in both";
}

static const char *row_fault_add(struct opts *o, const char *text, bool command)
{
    const char *colon = strchr(text, ':');
    char when[32];
    if (o->nfaults == OPTS_FAULTS_MAX) {
        return "is one fault too many";
    }
    struct opts_fault *f = &o->faults[o->nfaults];
    if (!colon || colon - text >= (int)sizeof(when) || !colon[1]) {
        return "is not TIME:WHAT, such as '2s:h0:n1 down'";
    }
    snprintf(when, sizeof(when), "%.*s", (int)(colon - text), text);
    if (!util_time_parse(when, &f->at_ns)) {
        return "does not start with a time, as '2s:h0:n1 down' does";
    }
    f->what = colon + 1;
    f->command = command;
    o->nfaults++;
    return NULL;
}

static const char *row_late_set(struct opts *o, const char *text)
{
    const char *colon = strchr(text, ':');
    char rank[16];
    long n;
    if (!colon || colon - text >= (int)sizeof(rank)) {
        return "is not RANK:TIME, such as 1:8s";
    }
    snprintf(rank, sizeof(rank), "%.*s", (int)(colon - text), text);
    if (!util_int_parse(rank, 0, BOOT_RANKS_MAX - 1, &n)) {
        return "does not start with a rank, as 1:8s does";
    }
    if (!util_time_parse(colon + 1, &o->late_ns)) {
        return "does not end with a time, as 1:8s does";
    }
    o->late_rank = (int)n;
    return NULL;
}

static const char *row_algo_set(struct opts *o, const char *text)
{
    o->algo = planned_algo_find(text);
    return o->algo < 0 ? "is not one of " PLANNED_ALGOS : NULL;
}

static const char *row_order_set(struct opts *o, const char *text)
{
    o->order_given = true;
    return planned_order_read(text, o->order, &o->order_n, &o->order_seats);
}

static const char *row_fabric_fault_add(struct opts *o, const char *text)
{
    return row_fault_add(o, text, false);
}

static const char *row_command_fault_add(struct opts *o, const char *text)
{
    return row_fault_add(o, text, true);
}

#define AT(field) offsetof(struct opts, field)

static const struct row rows[] = {
    {"nthreads", 't', "N|TIME", "threads: only 1; with a unit (8s) the same as --duration",
     ROW_CALL, 0, 0, 0, row_threads_set},
    {"ngpus", 'g', "N", "ranks per process: only 1", ROW_FIXED, 0, 1, 1, NULL},
    {"minbytes", 'b', "SIZE", "smallest size (default 32M)", ROW_SIZE, AT(min_bytes), 0, 0, NULL},
    {"maxbytes", 'e', "SIZE", "largest size (default 32M)", ROW_SIZE, AT(max_bytes), 0, 0, NULL},
    {"stepbytes", 'i', "SIZE", "from one size to the next, in bytes (default 1M)", ROW_SIZE,
     AT(step_bytes), 1, 0, NULL},
    {"stepfactor", 'f', "N", "from one size to the next, as a factor (default: by bytes)", ROW_INT,
     AT(step_factor), 1, 1024, NULL},
    {"iters", 'n', "N", "timed iterations (default 20)", ROW_INT, AT(iters), 1, 1000000000, NULL},
    {"agg_iters", 'm', "N", "operations per iteration (default 1)", ROW_INT, AT(agg), 1, 100000,
     NULL},
    {"warmup_iters", 'w', "N", "warm-up operations per size (default 1)", ROW_INT, AT(warmup), 0,
     1000000, NULL},
    {"run_cycles", 'N', "N", "run all sizes this often (default 1; 0: for ever)", ROW_INT,
     AT(cycles), 0, 1000000000, NULL},
    {"parallel_init", 'p', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"check", 'c', "0|1", "check every element of every timed operation (default 1)", ROW_INT,
     AT(check), 0, 1000000, NULL},
    {"op", 'o', "OP", "sum prod max min avg all (default sum)", ROW_CALL, 0, 0, 0, row_redop_set},
    {"datatype", 'd', "TYPE",
     "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 all (default float)",
     ROW_CALL, 0, 0, 0, row_type_set},
    {"root", 'r', "RANK|HOST:PORT",
     "root (default 0; -1: each in turn); with a colon, where rank 0 listens under mpirun",
     ROW_CALL, 0, 0, 0, row_root_set},
    {"blocking", 'z', "0-3",
     "1 barrier after each operation, 2 none, 3 one per iteration, untimed (default 0)", ROW_INT,
     AT(blocking), 0, 3, NULL},
    {"stream_null", 'y', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"timeout", 'T', "TIME", "end with exit code 4 after so long without progress (default 60s)",
     ROW_TIME, AT(timeout_ns), 0, 0, NULL},
    {"cudagraph", 'G', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"report_cputime", 'C', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"report_timestamps", 'S', "0|1", "print the time of day in each row (default 0)", ROW_INT,
     AT(timestamps), 0, 1, NULL},
    {"output_file", 'J', "FILE", "results as JSON; never overwrites: FILE, else FILE.0, FILE.1",
     ROW_TEXT, AT(json), 0, 0, NULL},
    {"json", 0, "FILE", "the same as -J", ROW_TEXT, AT(json), 0, 0, NULL},
    {"average", 'a', "0-3",
     "report time of 0 rank 0, 1 all averaged, 2 fastest, 3 slowest (default 1)", ROW_INT,
     AT(average), 0, 3, NULL},
    {"local_register", 'R', "0|1", "register the buffers with NCCL (r2_nccl only; default 0)",
     ROW_INT, AT(local_register), 0, 1, NULL},
    {"cta_policy", 'x', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"device_implementation", 'D', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"memory", 'M', "0", "only 0", ROW_FIXED, 0, 0, 0, NULL},
    {"unalign", 'u', "N", "start buffers N elements late (default 0)", ROW_INT, AT(unalign), 0,
     4096, NULL},
    {"per_iter_timing", 'I', "0|1", "columns with the spread over iterations (default 0)", ROW_INT,
     AT(per_iter), 0, 1, NULL},
    {"per_iter_skip", 'K', "N", "leave the first N out of that spread (default 0)", ROW_INT,
     AT(per_skip), 0, 1000000, NULL},
    {"help", 'h', NULL, "this text", ROW_FLAG, AT(help), 0, 0, NULL},
    {"duration", 0, "TIME", "run each measurement for this long instead of -n iterations", ROW_CALL,
     0, 0, 0, row_duration_set},
    {"placement", 0, "out|in|both", "which of the two measurements of a row to make (default both)",
     ROW_CALL, 0, 0, 0, row_placement_set},
    {"hosts", 0, "N", "hosts to start ranks for (default 2)", ROW_INT, AT(hosts), 1, BOOT_RANKS_MAX,
     NULL},
    {"ranks-per-host", 0, "N", "ranks on each (default 1)", ROW_INT, AT(ranks_per_host), 1,
     BOOT_RANKS_MAX, NULL},
    {"fabric", 0, "NAME", "run on this software fabric", ROW_TEXT, AT(fabric), 0, 0, NULL},
    {"nics", 0, "N", "start a software fabric with N NICs per host for this run, unless it is up",
     ROW_INT, AT(nics), 1, 16, NULL},
    {"rate", 0, "RATE", "link rate of that fabric, such as 100MB/s", ROW_TEXT, AT(rate), 0, 0,
     NULL},
    {"latency", 0, "TIME", "link latency of that fabric, such as 10us", ROW_TEXT, AT(latency), 0, 0,
     NULL},
    {"crossrail", 0, NULL,
     "every NIC of that fabric reaches every other, not only those of its number", ROW_FLAG,
     AT(crossrail), 0, 0, NULL},
    {"spines", 0, "N", "ways between any two NICs of a rail of that fabric (default 1)", ROW_INT,
     AT(spines), 1, 64, NULL},
    {"softfab", 0, "PATH", "the fabric's command (default: beside this program)", ROW_TEXT,
     AT(softfab), 0, 0, NULL},
    {"abi", 0, "8-12", "version of the plugin's table to use (default: the newest it has, as NCCL)",
     ROW_INT, AT(abi), ABI_VIEW_OLDEST, ABI_VIEW_NEWEST, NULL},
    {"algo", 0, "NAME", "all_reduce by a planned schedule, a rank a host: " PLANNED_ALGOS, ROW_CALL,
     0, 0, 0, row_algo_set},
    {"order", 0, "HOSTS",
     "with --algo, who sits where: rank (default), seats (tree: the lightest for those with least) or 2,0,1",
     ROW_CALL, 0, 0, 0, row_order_set},
    {"pieces", 0, "N", "with --algo, as of r2_plan simulate: how often parts are cut (default 8)",
     ROW_INT, AT(pieces), 1, 64, NULL},
    {"channels", 0, "N", "rings side by side, channel c on NIC c mod NICs (default: one per NIC)",
     ROW_INT, AT(channels), 1, WIRE_CHANNELS_MAX, NULL},
    {"buffsize", 0, "SIZE", "buffer of a ring connection, 8 steps (default NCCL_BUFFSIZE, 4M)",
     ROW_SIZE, AT(buffer_bytes), 8192, 1l << 30, NULL},
    {"p2p-chunk", 0, "SIZE",
     "message of sendrecv and alltoall (default NCCL_P2P_NET_CHUNKSIZE, 128K)", ROW_SIZE,
     AT(pair_bytes), 1024, 1l << 27, NULL},
    {"batch-bytes", 0, "SIZE",
     "buffers for operations that run back to back before a check (default 256M)", ROW_SIZE,
     AT(batch_bytes), 0, 0, NULL},
    {"intra", 0, "shm|net", "between ranks of one host: shared memory (default) or the plugin",
     ROW_CALL, 0, 0, 0, row_intra_set},
    {"flush", 0, NULL, "call iflush after each receive", ROW_FLAG, AT(flush), 0, 0, NULL},
    {"unload", 0, NULL, "dlclose the plugin at the end", ROW_FLAG, AT(unload), 0, 0, NULL},
    {"fault", 0, "TIME:FAULT", "do 'softfab fault FAULT' so long into the last size; repeatable",
     ROW_CALL, 0, 0, 0, row_fabric_fault_add},
    {"fault-cmd", 0, "TIME:CMD", "run a shell command so long into the last size; repeatable",
     ROW_CALL, 0, 0, 0, row_command_fault_add},
    {"late", 0, "RANK:TIME", "one rank begins the last size so much later, as one that computes",
     ROW_CALL, 0, 0, 0, row_late_set},
    {"after", 0, "TIME", "with --duration: go on until so long after the last fault was done",
     ROW_TIME, AT(after_ns), 0, 0, NULL},
    {"fault-optional", 0, NULL, "a fault whose time never came is no error", ROW_FLAG,
     AT(fault_optional), 0, 0, NULL},
    {"interval", 0, "TIME", "resolution of the rate over time (default 100ms)", ROW_TIME,
     AT(interval_ns), 0, 0, NULL},
    {"stats", 0, NULL, "print stalls and rate over time also without a fault", ROW_FLAG, AT(stats),
     0, 0, NULL},
    {"idle-sleep", 0, "TIME", "sleep so long whenever nothing moved (default: spin, as NCCL does)",
     ROW_TIME, AT(idle_ns), 0, 0, NULL},
    {"plot", 0, "FILE.svg", "draw the rate over time", ROW_TEXT, AT(plot), 0, 0, NULL},
    {"trace", 0, "FILE.json", "write what happened as a trace for ui.perfetto.dev", ROW_TEXT,
     AT(trace), 0, 0, NULL},
    {"rendezvous", 0, "FILE", "under mpirun: a shared file in which rank 0 leaves its address",
     ROW_TEXT, AT(rendezvous), 0, 0, NULL},
};

#define ROWS     (sizeof(rows) / sizeof(rows[0]))
#define ROW_CODE 1000 /* getopt's value of row i is ROW_CODE + i */

void opts_help_print(FILE *f)
{
    fprintf(
        f,
        "USAGE: %s OPERATION [options]\n"
        "OPERATION: all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall gather scatter\n"
        "nccl-tests for a net plugin (NCCL_NET_PLUGIN), on the CPU.\n",
        program_invocation_short_name);
    for (size_t i = 0; i < ROWS; i++) {
        char left[64], letter[8] = "    ";
        if (rows[i].letter) {
            snprintf(letter, sizeof(letter), "-%c, ", rows[i].letter);
        }
        snprintf(left, sizeof(left), "%s--%s%s%s", letter, rows[i].name, rows[i].meta ? " " : "",
                 rows[i].meta ? rows[i].meta : "");
        fprintf(f, "  %-34s %s\n", left, rows[i].help);
    }
}

/* What a number, or a size, of @row may be, into @why; returns it. */
static const char *opts_range_tell(const struct row *row, char *why, size_t bytes)
{
    if (row->kind == ROW_INT) {
        snprintf(why, bytes, "is not a whole number from %ld to %ld", row->lo, row->hi);
    } else if (row->hi) {
        snprintf(why, bytes, "is not a size from %ld to %ld bytes, such as 16384 or 64K", row->lo,
                 row->hi);
    } else {
        snprintf(why, bytes, "is not a size of at least %ld bytes, such as 1024, 64K or 1.5M",
                 row->lo);
    }
    return why;
}

/* NULL, or what is wrong with the value, maybe in @why. */
static const char *opts_row_apply(struct opts *o, const struct row *row, const char *text,
                                  char *why, size_t bytes)
{
    char *at = (char *)o + row->offset;
    long n;
    switch (row->kind) {
    case ROW_INT:
        if (!util_int_parse(text, row->lo, row->hi, &n)) {
            return opts_range_tell(row, why, bytes);
        }
        *(int *)at = (int)n;
        return NULL;
    case ROW_SIZE:
        if (!util_size_parse(text, (size_t *)at) || *(size_t *)at < (size_t)row->lo ||
            (row->hi && *(size_t *)at > (size_t)row->hi)) {
            return opts_range_tell(row, why, bytes);
        }
        return NULL;
    case ROW_TIME:
        return util_time_parse(text, (uint64_t *)at) && *(uint64_t *)at > 0
                   ? NULL
                   : "is not a time, such as 10us, 100ms, 8s or 2m";
    case ROW_TEXT:
        *(const char **)at = text;
        return *text ? NULL : "is empty";
    case ROW_FLAG:
        *(bool *)at = true;
        return NULL;
    case ROW_FIXED:
        return util_int_parse(text, row->lo, row->hi, &n) ? NULL : "cannot be done without a GPU";
    default:
        return row->call(o, text);
    }
}

static const struct row *opts_row_find(int code)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (code == ROW_CODE + (int)i || (code < ROW_CODE && code == rows[i].letter)) {
            return &rows[i];
        }
    }
    return NULL;
}

static void opts_defaults(struct opts *o, int argc, char **argv)
{
    *o = (struct opts){
        .op = ALGO_COUNT,
        .min_bytes = 32 << 20,
        .max_bytes = 32 << 20,
        .step_bytes = 1 << 20,
        .step_factor = 1,
        .iters = 20,
        .agg = 1,
        .warmup = 1,
        .cycles = 1,
        .check = 1,
        .algo = -1,
        .pieces = 8,
        .type = TYPE_FLOAT,
        .redop = REDOP_SUM,
        .average = 1,
        .timeout_ns = 60 * R2_NS_PER_S,
        .hosts = 2,
        .ranks_per_host = 1,
        .buffer_bytes = 4 << 20,
        .pair_bytes = 128 << 10,
        .batch_bytes = 256 << 20,
        .out_of_place = true,
        .in_place = true,
        .interval_ns = R2_NS_PER_S / 10,
        .argc = argc,
        .argv = argv,
    };
    util_size_parse(getenv("NCCL_BUFFSIZE"), &o->buffer_bytes);
    util_size_parse(getenv("NCCL_P2P_NET_CHUNKSIZE"), &o->pair_bytes);
    o->root_address = getenv("R2_PERF_ROOT");
}

/* What must hold between options. NULL, or what does not. */
static const char *opts_conflict_find(const struct opts *o)
{
    if (o->op == ALGO_COUNT) {
        return "no operation given: " OPERATIONS;
    }
    if (o->min_bytes > o->max_bytes) {
        return "--minbytes is larger than --maxbytes";
    }
    if (o->min_bytes == 0 && o->max_bytes > 0 && o->step_factor > 1) {
        return "--stepfactor never leaves a --minbytes of 0";
    }
    if (o->hosts * o->ranks_per_host > BOOT_RANKS_MAX) {
        return "--hosts x --ranks-per-host is more than 64 ranks";
    }
    if (o->buffer_bytes % 1024 || o->pair_bytes % 1024 || o->buffer_bytes < 8192) {
        return "--buffsize and --p2p-chunk must be multiples of 1K, --buffsize at least 8K";
    }
    if (o->per_skip && (!o->per_iter || o->per_skip >= o->iters)) {
        return "--per_iter_skip needs -I 1 and must be less than --iters";
    }
    if (o->per_iter && o->duration_ns) {
        return "-I 1 needs a number of iterations, not --duration";
    }
    if (o->crossrail && !o->nics) {
        return "--crossrail needs --nics";
    }
    if (o->spines && !o->nics) {
        return "--spines needs --nics";
    }
    if ((o->rate || o->latency) && !o->nics) {
        return "--rate and --latency need --nics";
    }
    if (o->after_ns && !o->duration_ns) {
        return "--after needs --duration";
    }
    if (o->algo < 0 && o->order_given) {
        return "--order needs --algo";
    }
    if (o->algo >= 0 && o->op != ALGO_ALL_REDUCE) {
        return "--algo has schedules of all_reduce alone";
    }
    if (o->algo >= 0 && !engine_can_play()) {
        return "--algo: NCCL has its own algorithms here (NCCL_ALGO)";
    }
    if (o->algo >= 0 && (o->channels || o->ranks_per_host > 1)) {
        return "--algo makes its own channels between hosts with one rank each: --channels and --ranks-per-host have no meaning with it";
    }
    if (o->order_seats && o->algo != PLANNER_TREE) {
        return "--order seats is for --algo tree";
    }
    for (int i = 0; i < o->nfaults; i++) {
        if (!o->faults[i].command && !o->fabric && !o->nics) {
            return "--fault needs --fabric or --nics (else use --fault-cmd)";
        }
    }
    if (o->local_register && !engine_can_register()) {
        return "--local_register: there is no NCCL here to register buffers with";
    }
    if (getenv("NCCL_TESTS_SPLIT") || getenv("NCCL_TESTS_SPLIT_MASK")) {
        return "NCCL_TESTS_SPLIT is not supported: all ranks are one group";
    }
    return NULL;
}

static void opts_operation_refuse(const char *word, char *error, size_t bytes)
{
    const char *names[ALGO_COUNT + 1] = {NULL}, *near;
    for (int i = 0; i < ALGO_COUNT; i++) {
        names[i] = algo_info_get((enum algo_op)i)->name;
    }
    near = args_near(word, names);
    if (near) {
        snprintf(error, bytes, "'%s' is not an operation: did you mean %s?", word, near);
    } else {
        snprintf(error, bytes, "'%s' is not an operation: " OPERATIONS, word);
    }
}

/* The operation: the only argument that is no option, else the program's name (all_reduce_perf). */
static int opts_operation_set(struct opts *o, int index, char *error, size_t bytes)
{
    const char *base = strrchr(o->argv[0], '/');
    if (index < o->argc) {
        o->op = algo_op_find(o->argv[index]);
        if (o->op == ALGO_COUNT) {
            opts_operation_refuse(o->argv[index], error, bytes);
            return -1;
        }
        if (index + 1 < o->argc) {
            snprintf(error, bytes, "'%s' is one word too many", o->argv[index + 1]);
            return -1;
        }
        return 0;
    }
    o->op = algo_op_find(base ? base + 1 : o->argv[0]);
    return 0;
}

/* The nearest of the words that @wrong lists, into @word; NULL: it lists none, or none is near. */
static const char *opts_choice_near(const char *wrong, const char *text, char *word, size_t bytes)
{
    static const char list[] = "is not one of ";
    const char *names[32] = {NULL};
    char words[200];
    const char *near;
    char *rest = words;
    int n = 0;
    if (strncmp(wrong, list, sizeof(list) - 1) != 0) {
        return NULL;
    }
    snprintf(words, sizeof(words), "%s", wrong + sizeof(list) - 1);
    for (char *p; n < 31 && (p = strsep(&rest, " ")) != NULL; n++) {
        names[n] = p;
    }
    near = args_near(text, names);
    snprintf(word, bytes, "%s", near ? near : "");
    return near ? word : NULL;
}

/* One option as getopt delivered it. */
static int opts_option_apply(struct opts *o, int code, const struct option *longs, char *error,
                             size_t bytes)
{
    char why[ARGS_REFUSAL], near[32];
    if (code == '?' || code == ':') {
        snprintf(error, bytes, "%s", args_refusal(why, code, o->argv, longs));
        return -1;
    }
    const struct row *row = opts_row_find(code);
    const char *wrong = opts_row_apply(o, row, optarg, why, sizeof(why));
    if (wrong && opts_choice_near(wrong, optarg, near, sizeof(near))) {
        snprintf(error, bytes, "option --%s: '%s' %s: did you mean %s?", row->name, optarg, wrong,
                 near);
        return -1;
    }
    if (wrong) {
        snprintf(error, bytes, "option --%s: '%s' %s", row->name, optarg, wrong);
        return -1;
    }
    o->hosts_given = o->hosts_given || !strcmp(row->name, "hosts") ||
                     !strcmp(row->name, "ranks-per-host") || !strcmp(row->name, "nics") ||
                     !strcmp(row->name, "fabric");
    return 0;
}

int opts_parse(struct opts *o, int argc, char **argv, char *error, size_t error_bytes)
{
    struct option longs[ROWS + 1] = {{0}};
    char shorts[2 * ROWS + 2] = ":";
    opts_defaults(o, argc, argv);
    for (size_t i = 0; i < ROWS; i++) {
        bool value = rows[i].kind != ROW_FLAG;
        longs[i] = (struct option){rows[i].name, value ? required_argument : no_argument, NULL,
                                   ROW_CODE + (int)i};
        if (rows[i].letter) {
            size_t n = strlen(shorts);
            snprintf(shorts + n, sizeof(shorts) - n, "%c%s", rows[i].letter, value ? ":" : "");
        }
    }
    opterr = 0;
    optind = 0;
    for (int code; (code = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (opts_option_apply(o, code, longs, error, error_bytes) != 0) {
            return -1;
        }
    }
    if (o->help) {
        return 0;
    }
    if (opts_operation_set(o, optind, error, error_bytes) != 0) {
        return -1;
    }
    const char *conflict = opts_conflict_find(o);
    if (conflict) {
        snprintf(error, error_bytes, "%s", conflict);
        return -1;
    }
    return 0;
}
