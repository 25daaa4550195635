/*
 * r2_nccl_life: the life of communicators in the released NCCL (tests/nccl/README.md). A call is
 * the conductor of its scenarios, one after the other, or, when R2_NCCL_LIFE_RANK is set, a rank of
 * one.
 */
#include "tests/nccl/rank/nccl_life.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/r2_perf/plugin.h"

#define FORGETS "NCCL_NET_PLUGIN_REF_COUNT=0"
#define KEEPS   "NCCL_NET_PLUGIN_REF_COUNT=1"
#define WAITS_2 "NCCL_R2_GIVE_UP=2000"

/* From 2.26.2 to 2.27.7 progressOps() returns success whatever an operation of the proxy did:
 * nothing ends the communicator. */
#define ERRORS       "way for an error of the network: its progressOps() drops it"
#define PLACES       "communicator made in the caller's thread (docs/collectives.md)"
#define DROPS_ERRORS (nccl_lib.version >= 22602 && nccl_lib.version < 22800)

const struct life_scenario life_scenarios[] = {
    {"lost",
     "all NICs lost, error, abort, memory used anew, a new communicator",
     2,
     false,
     {KEEPS, WAITS_2},
     ERRORS,
     life_lost},
    {"aborts",
     "abort of one rank, then of the other, while a NIC hangs or is silent",
     2,
     false,
     {KEEPS},
     ERRORS,
     life_aborts},
    {"resort",
     "abort of one rank, then of the other, while the collective goes over TCP",
     2,
     true,
     {KEEPS, "STANDIN_DMABUF=0", "NCCL_R2_LAST_RESORT=auto", "NCCL_R2_LAST_RESORT_RATE=3"},
     ERRORS,
     life_resort},
    {"killed",
     "a rank is killed in a collective; the others abort and make a new communicator",
     3,
     false,
     {KEEPS},
     ERRORS,
     life_killed},
    {"stopped",
     "a rank stops in a collective; the others shrink with NCCL_SHRINK_ABORT",
     3,
     false,
     {KEEPS, "NCCL_R2_GIVE_UP=60000"},
     "ncclCommShrink",
     life_stopped},
    {"shrink",
     "shrunk with nothing broken, and both communicators used with a fault",
     3,
     false,
     {KEEPS},
     "ncclCommShrink",
     life_shrink},
    {"split",
     "three communicators by ncclCommSplit, all under way at a fault",
     2,
     false,
     {KEEPS},
     NULL,
     life_split},
    {"several",
     "four communicators made while a NIC is silent and another becomes so",
     2,
     false,
     {KEEPS},
     NULL,
     life_several},
    {"ends",
     "ncclCommFinalize and ncclCommDestroy while a fault is being settled",
     2,
     false,
     {KEEPS},
     "ncclCommFinalize",
     life_ends},
    {"revoke",
     "ncclCommRevoke in a collective while a NIC hangs, then a split",
     2,
     false,
     {KEEPS},
     "ncclCommRevoke",
     life_revoke},
    {"registered",
     "user buffers, registered, with a fault in each collective",
     2,
     false,
     {KEEPS},
     "ncclMemAlloc",
     life_registered},
    {"cycles",
     "four times from the first communicator to the last in one process",
     2,
     false,
     {KEEPS},
     NULL,
     life_cycles},
    {"forgotten",
     "the same without NCCL_NET_PLUGIN_REF_COUNT: what NCCL says",
     2,
     false,
     {FORGETS},
     NULL,
     life_forgotten},
    {"gpu",
     "memory of the GPU behind the driver, flushed after each receive (sm 80)",
     2,
     true,
     {KEEPS, "STANDIN_SM=80", "STANDIN_DMABUF=0"},
     NULL,
     life_gpu},
    {"placed",
     "two communicators switch to shadows; one is aborted there, one while its shadow is made",
     4,
     false,
     {KEEPS, "NCCL_ALGO=Tree", "NCCL_IB_HCA==fab0,fab1", "NCCL_DEBUG_SUBSYS=INIT,NET,REG,COLL"},
     PLACES,
     life_placed,
     true},
    {"graphs",
     "collectives in CUDA graphs, memory behind the driver, a fault in each replay (sm 80)",
     2,
     true,
     {KEEPS, "STANDIN_SM=80", "STANDIN_DMABUF=0", "NCCL_R2_LAST_RESORT=auto"},
     NULL,
     life_graphs},
    {"captures",
     "graphs are captured while the plugin flushes and copies memory of the GPU (sm 80)",
     2,
     true,
     {KEEPS, "STANDIN_SM=80", "STANDIN_DMABUF=0", "NCCL_R2_LAST_RESORT=auto"},
     NULL,
     life_captures},
    {"placed-graphs",
     "a graph keeps its communicator, while another one switches; captures while a shadow is made",
     4,
     false,
     {KEEPS, "NCCL_ALGO=Tree", "NCCL_IB_HCA==fab0,fab1", "NCCL_DEBUG_SUBSYS=INIT,NET,REG,COLL",
      "NCCL_BUFFSIZE=-2", "NCCL_LL128_BUFFSIZE=-2"} /* NCCL's own: it measures */,
     PLACES,
     life_placed_graphs,
     true},
    {"placed-full",
     "a GPU has no memory for a shadow, and the job goes on as it is until it has",
     4,
     false,
     {KEEPS, "NCCL_ALGO=Tree", "NCCL_IB_HCA==fab0,fab1", "NCCL_DEBUG_SUBSYS=INIT,NET,REG,COLL"},
     PLACES,
     life_placed_full,
     true},
    {"placed-stopped",
     "a rank stops while a shadow is made: the abort frees the others from NCCL's init",
     4,
     false,
     {KEEPS, WAITS_2, "NCCL_ALGO=Tree", "NCCL_IB_HCA==fab0,fab1",
      "NCCL_DEBUG_SUBSYS=INIT,NET,REG,COLL"},
     PLACES,
     life_placed_stopped,
     true},
    {"placed-hub-killed",
     "the process that leads the agreement is killed meanwhile: they are broken off without it",
     4,
     false,
     {KEEPS, "NCCL_ALGO=Tree", "NCCL_IB_HCA==fab0,fab1", "NCCL_DEBUG_SUBSYS=INIT,NET,REG,COLL"},
     PLACES,
     life_placed_hub_killed,
     true},
};
const int life_scenarios_n = sizeof(life_scenarios) / sizeof(life_scenarios[0]);

static const struct life_scenario *scenario_find(const char *name)
{
    for (int i = 0; i < life_scenarios_n; i++) {
        if (strcmp(life_scenarios[i].name, name) == 0) {
            return &life_scenarios[i];
        }
    }
    fprintf(stderr, "r2_nccl_life: there is no scenario '%s' (--list names them)\n", name);
    return NULL;
}

/* --- a rank --- */

static bool has_function(const char *name)
{
    return (strcmp(name, "ncclCommShrink") == 0 && life_calls.shrink) ||
           (strcmp(name, "ncclCommRevoke") == 0 && life_calls.revoke) ||
           (strcmp(name, "ncclCommFinalize") == 0 && life_calls.finalize) ||
           (strcmp(name, "ncclMemAlloc") == 0 && life_calls.mem_alloc && life_calls.mem_free) ||
           (strcmp(name, ERRORS) == 0 && !DROPS_ERRORS) ||
           (strcmp(name, PLACES) == 0 && nccl_lib.version >= 22800);
}

static void log_name(struct life *l)
{
    const char *pattern = getenv("NCCL_DEBUG_FILE");
    const char *pid = pattern ? strstr(pattern, "%p") : NULL;

    LIFE_WANT(l, pid != NULL, "NCCL_DEBUG_FILE has no %%p");
    snprintf(l->log, sizeof(l->log), "%.*s%d%s", (int)(pid - pattern), pattern, (int)getpid(),
             pid + 2);
}

int life_rank(const struct life_scenario *s, const char *place)
{
    struct life l = {0};
    struct plugin p;
    char error[2600];
    CUdevice dev;
    int fd;

    if (sscanf(place, "%d:%d:%d", &l.rank, &l.ranks, &fd) != 3 || l.ranks != s->ranks ||
        l.rank < 0 || l.rank >= l.ranks) {
        fprintf(stderr, "r2_nccl_life: R2_NCCL_LIFE_RANK=%s was not made by its conductor\n",
                place);
        return PERF_USAGE;
    }
    l.board = mmap(NULL, sizeof(*l.board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (l.board == MAP_FAILED) {
        fprintf(stderr, "r2_nccl_life: R2_NCCL_LIFE_RANK=%s names no page\n", place);
        return PERF_USAGE;
    }
    log_name(&l);
    life_phase(&l, "opening the libraries");
    if (plugin_open(&p, 0, error, sizeof(error)) != 0) {
        life_fail(&l, PERF_NET, "%s", error);
    }
    life_calls_find();
    if (s->wants && !has_function(s->wants)) {
        life_barrier(&l);
        if (l.rank == 0) {
            printf("SKIP %s: %s has no %s\n", s->name, p.net->name, s->wants);
        }
        return 0;
    }
    LIFE_CUDA(&l, cuDeviceGet, &dev, l.rank % nccl_lib.gpus);
    LIFE_CUDA(&l, cuDevicePrimaryCtxRetain, &l.context, dev);
    LIFE_CUDA(&l, cuCtxSetCurrent, l.context);
    life_phase(&l, NULL);
    life_barrier(&l);
    s->run(&l);
    life_barrier(&l);
    life_phase(&l, "the end of the process");
    fflush(stdout);
    return 0;
}

/* --- the conductor --- */

static int usage(FILE *to, int code)
{
    fprintf(to,
            "r2_nccl_life [--log FOLDER] SCENARIO...   (all: every one of them)\n"
            "  --list                 their names, a line each\n"
            "  --log FOLDER           where NCCL's logs go, a file per process; default: a folder "
            "that is removed\n\n");
    for (int i = 0; i < life_scenarios_n; i++) {
        fprintf(to, "  %-12s %s\n", life_scenarios[i].name, life_scenarios[i].what);
    }
    return code;
}

static int conduct(const struct life_scenario *s, const char *log)
{
    uint64_t from = util_now_ns();
    int code = life_conduct(s, log);

    printf("%s %s: exit %d, %.1f s\n", code ? "FAIL" : "done", s->name, code,
           (double)(util_now_ns() - from) / 1e9);
    fflush(stdout);
    return code;
}

static int scenarios_run(int n, char **names, const char *log)
{
    int code = 0;

    if (strcmp(names[0], "all") == 0) {
        for (int i = 0; i < life_scenarios_n; i++) {
            int c = conduct(&life_scenarios[i], log);

            code = code ? code : c;
        }
        return code;
    }
    for (int i = 0; i < n; i++) {
        if (scenario_find(names[i]) == NULL) {
            return PERF_USAGE;
        }
    }
    for (int i = 0; i < n; i++) {
        int c = conduct(scenario_find(names[i]), log);

        code = code ? code : c;
    }
    return code;
}

/* Of files alone: NCCL's logs. */
static void folder_remove(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) {
        closedir(d);
    }
    rmdir(path);
}

static int logged_run(int n, char **names, const char *log)
{
    char temp[] = "/tmp/r2_nccl_life.XXXXXX";
    int code;

    if (log && access(log, W_OK | X_OK) != 0) {
        fprintf(stderr, "r2_nccl_life: --log %s: no folder that can be written to\n", log);
        return PERF_USAGE;
    }
    if (log) {
        return scenarios_run(n, names, log);
    }
    if (mkdtemp(temp) == NULL) {
        fprintf(stderr, "r2_nccl_life: cannot make %s\n", temp);
        return PERF_INTERNAL;
    }
    code = scenarios_run(n, names, temp);
    folder_remove(temp);
    return code;
}

int main(int argc, char **argv)
{
    const char *place = getenv("R2_NCCL_LIFE_RANK"), *log = NULL;
    int i = 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (place) {
        const struct life_scenario *s = argc == 2 ? scenario_find(argv[1]) : NULL;

        return s ? life_rank(s, place) : PERF_USAGE;
    }
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            for (int k = 0; k < life_scenarios_n; k++) {
                puts(life_scenarios[k].name);
            }
            return 0;
        }
        if (strcmp(argv[i], "--help") == 0) {
            return usage(stdout, 0);
        }
        if (strcmp(argv[i], "--log") == 0 && i + 1 < argc) {
            log = argv[++i];
            continue;
        }
        fprintf(stderr, "r2_nccl_life: '%s' is no option, or wants a value (--help lists them)\n",
                argv[i]);
        return PERF_USAGE;
    }
    if (i == argc) {
        fprintf(stderr, "r2_nccl_life: which scenario? (--help lists them)\n");
        return PERF_USAGE;
    }
    return logged_run(argc - i, argv + i, log);
}
