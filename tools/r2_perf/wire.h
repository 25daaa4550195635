/*
 * All connections of a rank: made once before the first operation, as NCCL's service thread makes
 * them, closed at the end.
 */
#ifndef R2_PERF_WIRE_H
#define R2_PERF_WIRE_H

#include "tools/r2_perf/algo.h"
#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/conn.h"
#include "tools/r2_perf/plugin.h"

struct wire_setup {
    struct boot *boot;
    const struct plugin *plugin;
    enum algo_op op;
    int rank, nranks, channels;
    int local; /* of the ranks of its host, from 0 */
    int host;  /* ranks with equal numbers share memory unless intra_net; -1: ask the machine */
    bool intra_net; /* ranks of a host use the plugin too */
    bool flush;
    bool local_register; /* NCCL registers the buffers of the collectives (-R) */
    size_t buffer_bytes; /* per ring connection: eight steps */
    size_t pair_bytes;   /* per message of pairwise operations and of schedules */
    const uint64_t
        *links; /* schedules: [channel][source] the ranks it sends to; NULL: those of @op */
    int nics;   /* with links: channel c is on NIC c mod nics */
};

struct wire {
    struct wire_setup setup;
    struct conn *conns; /* all of them */
    int nconns, nnet;   /* and how many go through the plugin */
    struct conn *send[16][BOOT_RANKS_MAX],
        *recv[16][BOOT_RANKS_MAX]; /* by channel and peer; NULL: none */
    int nslots;
    size_t slot_bytes;
    struct wire_memory *memory; /* mappings, freed by wire_close */
};

#define WIRE_CHANNELS_MAX 16

/*
 * Connect to every peer that @setup->op talks to and register the buffers. Blocks until done.
 * 0, or -1: the run has then been failed with the reason. In both cases wire_close frees. Thread:
 * main.
 */
int wire_open(struct wire *w, const struct wire_setup *setup);
/* Deregister, close, unmap. Works with requests outstanding. Thread: main, while the progress
 * thread is idle. */
void wire_close(struct wire *w);

#endif
