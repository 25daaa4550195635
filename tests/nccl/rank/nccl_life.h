/*
 * The life of communicators inside the released NCCL: scenarios in which they are made, broken,
 * aborted, shrunk, split and made again in one process.
 *
 * A conductor starts a process per rank on the hosts of a software fabric and applies faults to it;
 * ranks meet on a page that all of them map (struct life_board). The conductor alone has the
 * fabric's segment open beside the ranks' verbs library: record locks of the segment belong to a
 * process.
 */
#ifndef NCCL_LIFE_H
#define NCCL_LIFE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/nccl/rank/nccl_lib.h"
#include "tools/r2_perf/util.h"

#define LIFE_RANKS   4
#define LIFE_STREAMS 4
/* Of every call that could hang: a guard, nothing is measured by it. */
#define LIFE_LIMIT_S 240
/* The plugin's word that a connection goes over TCP. */
#define LIFE_OVER_TCP "last resort: no RDMA path is left"

/* --- the page (nccl_life_board.c) --- */

struct life_place {
    _Atomic uint32_t step;     /* barriers that this rank has come to */
    _Atomic uint32_t gone;     /* 1: dead, and a scenario wanted it */
    _Atomic uint64_t word;     /* life_all() */
    _Atomic uint64_t limit_ns; /* when the present phase is late; 0: nothing is owed */
    char phase[80];
};

struct life_board {
    _Atomic int failed; /* 0 none, 1 being written, 2 @code and @text are valid */
    int code;
    char text[1200];
    _Atomic uint32_t asked, answered; /* one rank asks, the conductor answers */
    char ask[160], answer[400];
    int answer_rc;
    _Atomic uint32_t fired;       /* what was armed has happened */
    _Atomic uint64_t moved;       /* payload that all NICs have sent so far */
    _Atomic uint64_t moved_fired; /* the same when it fired */
    ncclUniqueId id;
    struct life_place place[LIFE_RANKS];
};

struct life {
    struct life_board *board;
    int rank, ranks;
    CUcontext context;
    int comms;          /* made so far, the same number on all ranks: names what their data is */
    uint64_t downs;     /* that the plugin's log had when something was armed */
    char said[1024];    /* NCCL's last error, with its code */
    char log[PATH_MAX]; /* of NCCL, of this process */
};

/* Ends the run of all ranks with @code (enum perf_exit) and a text, and this process. */
void life_fail(struct life *l, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));
/* The same of a claim that does not hold. */
#define LIFE_WANT(l, ok, ...)                                                                      \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            life_fail(l, PERF_NET, __VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)
/* Ends this process if another one has ended the run. */
void life_look(struct life *l);
/* From here to the next call a call is under way that must return: the conductor ends the run when
 * LIFE_LIMIT_S have passed. NULL: none. */
void life_phase(struct life *l, const char *name);
/* All ranks that live are here. Blocks. */
void life_barrier(struct life *l);
/* The sum over all ranks that live. Blocks. */
uint64_t life_all(struct life *l, uint64_t word);
/* A line about the scenario, on stdout. */
void life_say(struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Asks the conductor; returns when it has been done. One rank at a time.
 *   "fault h0:n1 down"    now
 *   "kill 2", "stop 2"    rank 2 is killed (SIGKILL) or stopped, and counts as gone from then on
 *   "arm kill 2"          (or a fault) soon after the collective has begun that is queued next;
 * until then, and until something else is asked, the NICs are slow: it cannot be over before
 */
void life_ask(struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Rank 0 asks, all ranks wait for it. */
void life_ask_all(struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same of what is armed. */
void life_arm(struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Until what was armed has happened. The plugin may say what it has done to the collective before
 * the conductor, which did it, says that it is done. */
void life_fired_wait(struct life *l);
/* It has happened in the middle, not at the end, and the plugin of some rank has taken paths down.
 * All ranks that live, when the collective is over; waits for the plugin's word. */
void life_noticed(struct life *l);
bool life_fired(const struct life *l);
/* How often @text stands in NCCL's log of this process. */
uint64_t life_log_count(struct life *l, const char *text);

/* --- communicators and what they carry (nccl_life_comm.c) --- */

enum life_op { LIFE_ALL_REDUCE, LIFE_ALL_GATHER, LIFE_SENDRECV };

/* Memory of the GPU with a guard before and behind what is used. */
struct life_buf {
    CUdeviceptr at;
    size_t bytes; /* between the guards */
    bool by_nccl; /* ncclMemAlloc */
    void *handle; /* ncclCommRegister */
};

struct life_comm {
    ncclComm_t nccl;
    int rank, n, serial, iteration;
    CUstream stream;
    CUevent done;
    struct life_buf send, recv;
    enum life_op op;
    size_t count; /* int32 elements that a rank sends */
};

void life_buf_make(struct life *l, struct life_buf *b, size_t bytes, bool by_nccl);
void life_buf_free(struct life *l, struct life_buf *b);
/* All of it, guards too, gets a pattern that no collective's data has. */
void life_buf_poison(struct life *l, const struct life_buf *b);
/* Nothing has written to it since. */
void life_buf_poisoned_check(struct life *l, const struct life_buf *b, const char *what);
void life_buf_register(struct life *l, struct life_comm *c, struct life_buf *b);
void life_buf_deregister(struct life *l, struct life_comm *c, struct life_buf *b);

/* A communicator of all ranks that live, or NCCL's error, which life_said() has. */
ncclResult_t life_comm_try(struct life *l, struct life_comm *c);
/* The same, which must succeed, with buffers of @bytes (0: none). */
void life_comm_make(struct life *l, struct life_comm *c, size_t bytes);
/* Around a communicator that split or shrink has made. */
void life_comm_take(struct life *l, struct life_comm *c, ncclComm_t nccl, int rank, int n,
                    size_t bytes);
/* Queues a collective of @count elements; data and poison are put in place before. */
ncclResult_t life_start(struct life *l, struct life_comm *c, enum life_op op, size_t count);
/* A collective that is captured, and what it is. */
struct life_graph {
    CUgraphExec exec;
    enum life_op op;
    size_t count;
};
/* Captures one, in the mode that forbids the most; nothing runs. */
void life_capture(struct life *l, struct life_comm *c, enum life_op op, size_t count,
                  struct life_graph *g);
/* Launches it, as life_run() runs a collective that is not captured. */
void life_replay(struct life *l, struct life_comm *c, const struct life_graph *g);
void life_graph_free(struct life *l, struct life_graph *g);
/* Until it is complete, or NCCL's error of the background. */
ncclResult_t life_wait(struct life *l, struct life_comm *c);
/* Whether it is still under way. */
bool life_is_busy(struct life *l, struct life_comm *c);
/* Every element of it, what was sent, and the guards. */
void life_check(struct life *l, struct life_comm *c);
/* A collective from beginning to end, which must succeed. */
void life_run(struct life *l, struct life_comm *c, enum life_op op, size_t count);
/* The end with ncclCommAbort, or with ncclCommDestroy; buffers stay. Milliseconds. */
double life_abort(struct life *l, struct life_comm *c);
void life_destroy(struct life *l, struct life_comm *c);
/* Buffers, stream, event. */
void life_comm_free(struct life *l, struct life_comm *c);
/* NCCL's text of @rc in l->said. */
const char *life_said(struct life *l, ncclResult_t rc, ncclComm_t comm);

#define LIFE_NCCL(l, call, ...)                                                                    \
    do {                                                                                           \
        ncclResult_t rc_;                                                                          \
        life_phase(l, #call);                                                                      \
        rc_ = nccl_lib.call(__VA_ARGS__);                                                          \
        life_phase(l, NULL);                                                                       \
        LIFE_WANT(l, rc_ == ncclSuccess, #call ": %s", life_said(l, rc_, NULL));                   \
    } while (0)
#define LIFE_CUDA(l, call, ...)                                                                    \
    do {                                                                                           \
        CUresult rc_ = nccl_lib.call(__VA_ARGS__);                                                 \
        LIFE_WANT(l, rc_ == CUDA_SUCCESS, #call ": CUDA error %d", (int)rc_);                      \
    } while (0)

/* A thread of the user's captures, one capture after the other, in the mode that forbids the most
 * to all others. The calling thread is allowed everything from then on; at the end no capture has
 * failed. */
struct life_captures {
    struct life *l;
    pthread_t thread;
    _Atomic bool stop;
    unsigned n;
    CUresult rc; /* the first that failed */
};
void life_captures_begin(struct life *l, struct life_captures *k);
void life_captures_end(struct life *l, struct life_captures *k);

/* Functions of NCCL's that not every release has: NULL then. */
struct life_calls {
    ncclResult_t (*finalize)(ncclComm_t);
    ncclResult_t (*shrink)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
    ncclResult_t (*revoke)(ncclComm_t, int);
    ncclResult_t (*mem_alloc)(void **, size_t);
    ncclResult_t (*mem_free)(void *);
};
extern struct life_calls life_calls;
void life_calls_find(void);

/* --- scenarios (nccl_life_*.c) --- */

struct life_scenario {
    const char *name, *what;
    int ranks;
    bool gpu;           /* a fabric that reaches memory of GPUs by the driver (softfab up --gpu) */
    const char *set[6]; /* NAME=VALUE */
    const char *wants;  /* a function of NCCL's, or ERRORS; skipped without it; NULL: none */
    void (*run)(struct life *l);
    bool placed; /* libr2coll.so in front of NCCL, NCCL_R2_PLACE=on */
};
extern const struct life_scenario life_scenarios[];
extern const int life_scenarios_n;

void life_lost(struct life *l);
void life_aborts(struct life *l);
void life_resort(struct life *l);
void life_killed(struct life *l);
void life_stopped(struct life *l);
void life_shrink(struct life *l);
void life_split(struct life *l);
void life_several(struct life *l);
void life_ends(struct life *l);
void life_revoke(struct life *l);
void life_registered(struct life *l);
void life_cycles(struct life *l);
void life_forgotten(struct life *l);
void life_gpu(struct life *l);
void life_placed(struct life *l);
void life_graphs(struct life *l);
void life_placed_graphs(struct life *l);
void life_placed_full(struct life *l);
void life_placed_stopped(struct life *l);
void life_placed_hub_killed(struct life *l);
void life_captures(struct life *l);

/* The conductor: one scenario, from fabric up to fabric down. The exit code. */
int life_conduct(const struct life_scenario *s, const char *log_dir);
/* A rank of it: @place is what the conductor has written ("RANK:RANKS:BOARD_FD"). */
int life_rank(const struct life_scenario *s, const char *place);

#endif
