/*
 * The command line: nccl-tests' options with nccl-tests' meaning, and our own. One table of rows
 * gives parsing, limits and help. What nccl-tests has and a CPU cannot do is refused by name, never
 * ignored.
 */
#ifndef R2_PERF_OPTS_H
#define R2_PERF_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/r2_perf/algo.h"
#include "tools/r2_perf/boot.h"

#define OPTS_FAULTS_MAX 32

struct opts_fault {
    uint64_t at_ns;   /* since the clock of the watched size started */
    const char *what; /* for softfab, or a shell command */
    bool command;     /* a shell command */
};

struct opts {
    enum algo_op op;
    size_t min_bytes, max_bytes, step_bytes;
    int step_factor, iters, agg, warmup, cycles, check;
    int type, redop; /* -1: all */
    int root_rank, blocking, average, timestamps, unalign, per_iter, per_skip, local_register;
    uint64_t timeout_ns, duration_ns; /* duration 0: by iterations */
    const char *json, *plot, *trace;

    int hosts, ranks_per_host, nics, channels; /* channels 0: one per NIC */
    int spines;                                /* 0: as the fabric has them */
    bool hosts_given, crossrail;
    const char *fabric, *softfab, *rate, *latency;
    size_t buffer_bytes, pair_bytes, batch_bytes;
    bool intra_net, flush, unload, stats, fault_optional;
    bool out_of_place, in_place;
    struct opts_fault faults[OPTS_FAULTS_MAX];
    int nfaults;
    uint64_t interval_ns;
    uint64_t after_ns; /* 0: the duration alone decides */
    uint64_t idle_ns;  /* 0: spin, as NCCL's proxy does */
    uint64_t late_ns;  /* ... that rank late_rank begins the last size later than the others */
    int late_rank;
    const char *root_address, *rendezvous;
    int algo, pieces;                   /* algo: a schedule of tools/schedule; -1: none */
    int order[BOOT_RANKS_MAX], order_n; /* order_n 0: as ranks are, or order_seats */
    bool order_given, order_seats;
    int abi; /* version of the plugin's table; 0: the newest */

    bool help;
    int argc;
    char **argv;
};

/*
 * Fill @o from the command line and, for NCCL_BUFFSIZE, NCCL_P2P_NET_CHUNKSIZE and R2_PERF_ROOT,
 * the environment. Strings point into argv, which must stay. 0, or -1 with one line in @error that
 * names the option.
 */
int opts_parse(struct opts *o, int argc, char **argv, char *error, size_t error_bytes);
/* Usage and all options. */
void opts_help_print(FILE *f);

#endif
