/*
 * Collectives through NCCL itself with faults in the middle, where nccl-tests is not at hand:
 * several ranks on one GPU, each as a host of its own. The first process starts the ranks and lets
 * them meet; it touches no GPU.
 */
#include <errno.h>
#include <getopt.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/gpu_bench.h"
#include "tests/gpu/gpu_meet.h"
#include "tests/gpu/gpu_ops.h"

/* A rank's socket to the conductor. */
#define MEET_FD 3

static const char usage[] =
    "gpu_coll OP --ranks N [--bytes 4194304] [--iters 20] [--device 0] [--launch COMMAND] [--fault "
    "SECONDS:COMMAND]...\n"
    "         [--fault_after SECONDS] [--fault_json FILE]\n"
    "  --launch COMMAND   in front of each rank's command, R2_RANK in its environment; default: env "
    "NCCL_HOSTID=gpu_coll-$R2_RANK\n"
    "gpu_coll --libs      are NCCL and CUDA's driver here: their versions\n"
    "Exit status: 0; 1 a fault was not done, or a rank was lost; 2 CUDA; 3 NCCL; 6 wrong use; 7 wrong data.\n";

enum {
    OPT_RANKS = 256,
    OPT_BYTES,
    OPT_ITERS,
    OPT_DEVICE,
    OPT_LAUNCH,
    OPT_FAULT,
    OPT_AFTER,
    OPT_JSON,
    OPT_RANK,
    OPT_LIBS
};

static const struct option options[] = {
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"bytes", required_argument, NULL, OPT_BYTES},
    {"iters", required_argument, NULL, OPT_ITERS},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"launch", required_argument, NULL, OPT_LAUNCH},
    {"fault", required_argument, NULL, OPT_FAULT},
    {"fault_after", required_argument, NULL, OPT_AFTER},
    {"fault_json", required_argument, NULL, OPT_JSON},
    {"rank", required_argument, NULL, OPT_RANK},
    {"libs", no_argument, NULL, OPT_LIBS},
    {NULL, 0, NULL, 0},
};

struct opts {
    struct gpu_bench_opts bench;
    const char *launch;
    bool libs;
};

static int number_parse(const char *what, const char *text, long low, long high, long *out)
{
    char *end;

    errno = 0;
    *out = strtol(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *out >= low && *out <= high) {
        return 0;
    }
    fprintf(stderr, "gpu_coll: --%s '%s': a number from %ld to %ld is wanted\n", what, text, low,
            high);
    return -1;
}

static int int_parse(const char *what, const char *text, long low, long high, int *out)
{
    long n = 0;
    int rc = number_parse(what, text, low, high, &n);

    *out = (int)n;
    return rc;
}

static int option_take(struct opts *o, int c)
{
    long bytes;

    switch (c) {
    case OPT_RANKS:
        return int_parse("ranks", optarg, 2, GPU_RANKS_MAX, &o->bench.nranks);
    case OPT_RANK:
        return int_parse("rank", optarg, 0, GPU_RANKS_MAX - 1, &o->bench.rank);
    case OPT_ITERS:
        return int_parse("iters", optarg, 1, 1000000, &o->bench.iters);
    case OPT_DEVICE:
        return int_parse("device", optarg, 0, 1023, &o->bench.device);
    case OPT_BYTES:
        if (number_parse("bytes", optarg, 1024, 1L << 32, &bytes) != 0) {
            return -1;
        }
        o->bench.bytes = (size_t)bytes;
        return 0;
    case OPT_LAUNCH:
        o->launch = optarg;
        return 0;
    case OPT_FAULT:
        return gpu_bench_fault_add(optarg);
    case OPT_AFTER:
        return gpu_bench_after_set(optarg);
    case OPT_JSON:
        return gpu_bench_json_set(optarg);
    case OPT_LIBS:
        o->libs = true;
        return 0;
    default:
        fputs(usage, stderr);
        return -1;
    }
}

static int opts_parse(struct opts *o, int argc, char **argv)
{
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option_take(o, c) != 0) {
            return -1;
        }
    }
    if (o->libs) {
        return 0;
    }
    if (optind + 1 != argc || o->bench.nranks == 0) {
        fputs(usage, stderr);
        return -1;
    }
    o->bench.op = argv[optind];
    if (gpu_op_find(o->bench.op) == NULL) {
        fprintf(stderr, "gpu_coll: %s is none of %s\n", o->bench.op, gpu_op_names());
        return -1;
    }
    return 0;
}

/* This program again, through a shell for the launch command, with --rank behind what it was called
 * with. 0 or an errno. */
static int rank_spawn(const struct opts *o, int argc, char **argv, int rank, int fd, pid_t *pid)
{
    char script[4096], number[16], option[] = "--rank", shell[] = "sh", minus_c[] = "-c";
    char **args = calloc((size_t)argc + 7, sizeof(*args));
    posix_spawn_file_actions_t actions;
    int n = 0, rc;

    if (args == NULL || (size_t)snprintf(script, sizeof(script), "exec %s \"$0\" \"$@\"",
                                         o->launch) >= sizeof(script)) {
        free(args);
        return E2BIG;
    }
    snprintf(number, sizeof(number), "%d", rank);
    setenv("R2_RANK", number, 1);
    args[n++] = shell;
    args[n++] = minus_c;
    args[n++] = script;
    for (int i = 0; i < argc; i++) {
        args[n++] = argv[i];
    }
    args[n++] = option;
    args[n++] = number;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, MEET_FD);
    rc = posix_spawn(pid, "/bin/sh", &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(args);
    return rc;
}

/* Of all ranks, the status that says most: wrong data before NCCL's error before a rank that had to
 * stop because of another. */
static int ranks_wait(const pid_t *pid, int n)
{
    int worst = 0;

    for (int r = 0; r < n; r++) {
        int status, rc;

        if (pid[r] <= 0) {
            continue;
        }
        while (waitpid(pid[r], &status, 0) < 0 && errno == EINTR)
            ;
        rc = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (rc != 0) {
            fprintf(stderr, "gpu_coll: rank %d ended with status %d\n", r,
                    WIFEXITED(status) ? rc : 128 + WTERMSIG(status));
        }
        if (rc > worst && rc <= 7) {
            worst = rc;
        } else if (rc > 7 && worst == 0) {
            worst = 1;
        }
    }
    return worst;
}

static int ranks_run(const struct opts *o, int argc, char **argv)
{
    pid_t pid[GPU_RANKS_MAX] = {0};
    int fd[GPU_RANKS_MAX], rc = 0, n = o->bench.nranks;

    for (int r = 0; r < n; r++) {
        int pair[2], err;

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
            perror("gpu_coll: socketpair");
            return 1;
        }
        fd[r] = pair[0];
        err = rank_spawn(o, argc, argv, r, pair[1], &pid[r]);
        close(pair[1]);
        if (err != 0) {
            fprintf(stderr, "gpu_coll: rank %d cannot be started: %s\n", r, strerror(err));
            rc = 1;
        }
    }
    gpu_meet_conduct(fd, n);
    n = ranks_wait(pid, n);
    return rc ? rc : n;
}

int main(int argc, char **argv)
{
    struct opts o = {.bench = {.bytes = 4 << 20, .iters = 20, .rank = -1, .meet_fd = MEET_FD},
                     .launch = "env NCCL_HOSTID=gpu_coll-$R2_RANK"};
    int version = 0;

    if (opts_parse(&o, argc, argv) != 0) {
        return 6;
    }
    if (o.libs) {
        if (gpu_api_load() != 0) {
            return 1;
        }
        gpu_nccl.get_version(&version);
        printf("NCCL %d\n", version);
        gpu_cuda.driver_get_version(&version);
        printf("CUDA driver %d\n", version);
        return 0;
    }
    if (o.bench.rank < 0) {
        return ranks_run(&o, argc, argv);
    }
    setlinebuf(stdout);
    return gpu_api_load() == 0 ? gpu_bench_run(&o.bench) : 1;
}
