/* Collectives in CUDA graphs: NCCL plans them once, registers the user's buffers with the plugin
 * for the graph's life, and posts everything anew with each replay. */
#include "tests/nccl/rank/nccl_life.h"

#include <unistd.h>

#define SMALL      (64u << 10) /* int32 elements */
#define BIG        (2u << 20)
#define BYTES      ((size_t)BIG * 4)
#define KINDS      3
#define TINY       (8u << 10)
#define CAPTURE_US 20000 /* a capture goes on for so long at least */

static void *captures_run(void *arg)
{
    struct life_captures *k = arg;
    CUstream stream = NULL;

    k->rc = nccl_lib.cuCtxSetCurrent(k->l->context);
    k->rc = k->rc ? k->rc : nccl_lib.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    while (k->rc == CUDA_SUCCESS && !atomic_load(&k->stop)) {
        CUgraph graph = NULL;

        k->rc = nccl_lib.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        usleep(CAPTURE_US);
        k->rc = k->rc ? k->rc : nccl_lib.cuStreamEndCapture(stream, &graph);
        k->rc = k->rc ? k->rc : nccl_lib.cuGraphDestroy(graph);
        k->n++;
    }
    nccl_lib.cuStreamDestroy(stream);
    return NULL;
}

void life_captures_begin(struct life *l, struct life_captures *k)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    *k = (struct life_captures){.l = l};
    LIFE_CUDA(l, cuThreadExchangeStreamCaptureMode, &mode);
    LIFE_WANT(l, pthread_create(&k->thread, NULL, captures_run, k) == 0, "no thread");
}

void life_captures_end(struct life *l, struct life_captures *k)
{
    atomic_store(&k->stop, true);
    pthread_join(k->thread, NULL);
    LIFE_WANT(l, k->rc == CUDA_SUCCESS, "capture %u, beside other threads: CUDA error %d", k->n,
              (int)k->rc);
    LIFE_WANT(l, k->n > 0, "nothing was captured");
}

static void replay_all(struct life *l, struct life_comm *c, const struct life_graph *g)
{
    for (int i = 0; i < KINDS; i++) {
        life_replay(l, c, &g[i]);
    }
}

static void capture_all(struct life *l, struct life_comm *c, struct life_graph *g)
{
    for (int i = 0; i < KINDS; i++) {
        life_capture(l, c, (enum life_op)i, i == LIFE_ALL_GATHER ? BIG / 2 : BIG, &g[i]);
    }
}

void life_graphs(struct life *l)
{
    static const char *const faults[] = {"h0:n0 down", "h1:n1 blackhole", "h0:n2 down"};
    struct life_graph first[KINDS], second[KINDS];
    struct life_comm c;

    life_comm_make(l, &c, BYTES);
    capture_all(l, &c, first); /* before anything has run: NCCL connects in it */
    life_say(l, "NCCL registered %llu buffers with the plugin for graphs",
             (unsigned long long)life_log_count(l, "NET register userbuff"));
    replay_all(l, &c, first);
    life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
    for (int i = 0; i < KINDS; i++) {
        life_arm(l, "fault %s", faults[i]);
        life_replay(l, &c, &first[i]);
        life_noticed(l);
    }
    capture_all(l, &c, second); /* without those NICs */
    replay_all(l, &c, second);
    life_ask_all(l, "fault *:* up");
    for (int i = 0; i < KINDS; i++) {
        life_run(l, &c, (enum life_op)i, SMALL);
        life_replay(l, &c, &first[i]);
        life_graph_free(l, &first[i]);
    }
    replay_all(l, &c, second);
    for (int i = 0; i < KINDS; i++) {
        life_graph_free(l, &second[i]);
    }
    life_destroy(l, &c);
    life_comm_free(l, &c);
}

/* The plugin's own copies of a GPU's memory, by other threads, while the user captures. */
void life_captures(struct life *l)
{
    struct life_captures captures;
    struct life_comm c;

    life_comm_make(l, &c, BYTES);
    life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
    life_captures_begin(l, &captures);
    life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
    life_ask_all(l, "fault h0:* down");
    for (int i = 0; i < KINDS; i++) {
        life_run(l, &c, (enum life_op)i, TINY);
    }
    life_phase(l, "the plugin's word of the last resort"); /* its service thread's, behind them */
    while (life_all(l, life_log_count(l, LIFE_OVER_TCP)) == 0) {
        usleep(2000);
    }
    life_phase(l, NULL);
    life_ask_all(l, "fault *:* up");
    life_run(l, &c, LIFE_ALL_REDUCE, BIG);
    life_destroy(l, &c);
    life_captures_end(l, &captures);
    life_comm_free(l, &c);
    LIFE_WANT(l, life_log_count(l, "flush") > 0, "nothing has been flushed");
}
