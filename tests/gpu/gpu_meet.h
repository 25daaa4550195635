/*
 * Where the ranks meet outside NCCL: a conductor that started them, with a socket to each. Rounds
 * are the same for all ranks: each sends its share, each gets what all have made of it.
 *
 * The socket is between processes of one machine and one build: a struct as it lies in memory.
 */
#ifndef R2_GPU_MEET_H
#define R2_GPU_MEET_H

#include <stdint.h>

#include "tests/gpu/gpu_api.h"

#define GPU_RANKS_MAX 8

enum gpu_meet_kind { GPU_MEET_ID, GPU_MEET_MAX, GPU_MEET_SUM, GPU_MEET_MAX_REAL };

struct gpu_meet {
    int32_t kind; /* enum gpu_meet_kind */
    int32_t pad;
    int64_t whole;
    double real;
    struct gpu_nccl_id id; /* GPU_MEET_ID: rank 0's */
};

/* A rank's side, on descriptor @fd. 0 and the outcome in @m, or -1 with a line on stderr: another
 * rank has ended. Blocks. */
int gpu_meet_all(int fd, struct gpu_meet *m);

/*
 * The conductor's side: rounds until every rank has closed its socket. One that closes in the
 * middle of a round ends the others' sockets, so that they end, too. Blocks.
 */
void gpu_meet_conduct(const int *fd, int nranks);

#endif
