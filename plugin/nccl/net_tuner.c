/*
 * NCCL's tuner tables, versions 1 to 6: NCCL's own choice stays what it is. The cost table, the
 * number of channels and the constants are left alone, which NCCL takes for "not decided". The one
 * exception is a communicator that libr2coll.so makes (base/r2_seam.h), on all ranks: its
 * all_reduce is by Tree. Threads: init and the end, whoever makes or destroys the communicator;
 * get_coll_info, whoever launches. Nothing blocks.
 */
#include "net_abi_tuner.h"

#include "base/r2_log.h"
#include "base/r2_seam.h"
#include "net_offer.h"
#include "net_shims.h"

#define OFFER(version) NET_OFFER(ncclTunerPlugin_##version, "NCCL_TUNER_PLUGIN", tuner_##version)

/* Of NCCL's enumerations (src/include/nccl_common.h, 2.22 to 2.30). */
enum { FUNC_ALL_REDUCE = 4, ALGO_TREE = 0 };

/* The context of a communicator whose all_reduce is by Tree. */
static char by_tree;

static enum nccl_result leave_choice(void)
{
    R2_INFO("tuner: NCCL's choice of algorithm and protocol stays as it is");
    return NCCL_SUCCESS;
}

static enum nccl_result v1_init(size_t ranks, size_t nodes, nccl_logger_fn log)
{
    return leave_choice();
}

static enum nccl_result v1_info(int func, size_t bytes, int collnet, int nvls, int pipe_ops,
                                int *algo, int *proto, int *channels)
{
    return NCCL_SUCCESS;
}

static enum nccl_result v1_destroy(void)
{
    return NCCL_SUCCESS;
}

static enum nccl_result v2_init(size_t ranks, size_t nodes, nccl_logger_fn log, void **ctx)
{
    *ctx = NULL;
    return leave_choice();
}

static enum nccl_result v2_info(void *ctx, int func, size_t bytes, int collnet, int nvls,
                                int pipe_ops, int *algo, int *proto, int *channels)
{
    return NCCL_SUCCESS;
}

static enum nccl_result v3_info(void *ctx, int func, size_t bytes, int pipe_ops, float **costs,
                                int algos, int protos, int *channels)
{
    return NCCL_SUCCESS;
}

static enum nccl_result v4_info(void *ctx, int func, size_t bytes, int pipe_ops, float **costs,
                                int algos, int protos, int registered, int *channels)
{
    return NCCL_SUCCESS;
}

static enum nccl_result v5_init(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes,
                                nccl_logger_fn log, void *nvl_domains, void *constants)
{
    const struct r2_seam *seam = r2_seam_find();

    *ctx = seam != NULL && seam->is_shadow() ? &by_tree : NULL;
    if (*ctx == NULL) {
        return leave_choice();
    }
    R2_INFO("tuner: all_reduce of this communicator is by Tree");
    return NCCL_SUCCESS;
}

/* Whether NCCL can run it by Tree at all. */
static bool has_tree(const float *cost, int protos)
{
    for (int p = 0; p < protos; p++) {
        if (cost[ALGO_TREE * protos + p] >= 0) {
            return true;
        }
    }
    return false;
}

/* @costs is float[algos][protos], whatever its type says. NCCL has the same in it on all ranks. */
static enum nccl_result v5_info(void *ctx, int func, size_t bytes, int pipe_ops, float **costs,
                                int algos, int protos, int registered, int *channels)
{
    float *cost = (float *)costs;

    if (ctx == &by_tree && func == FUNC_ALL_REDUCE && has_tree(cost, protos)) {
        for (int i = 0; i < algos * protos; i++) {
            cost[i] = i / protos == ALGO_TREE ? cost[i] : -1; /* not to be had */
        }
    }
    return NCCL_SUCCESS;
}

static enum nccl_result end(void *ctx)
{
    return NCCL_SUCCESS;
}

static const struct nccl_tuner_v1 tuner_v1 = {NET_SHIM_NAME, v1_init, v1_info, v1_destroy};
static const struct nccl_tuner_v2 tuner_v2 = {NET_SHIM_NAME, v2_init, v2_info, end};
static const struct nccl_tuner_v3 tuner_v3 = {NET_SHIM_NAME, v2_init, v3_info, end};
static const struct nccl_tuner_v4 tuner_v4 = {NET_SHIM_NAME, v2_init, v4_info, end};
static const struct nccl_tuner_v5 tuner_v5 = {NET_SHIM_NAME, v5_init, v5_info, end};
static const struct nccl_tuner_v6 tuner_v6 = {NET_SHIM_NAME, v5_init, v5_info, end, NULL};
OFFER(v1);
OFFER(v2);
OFFER(v3);
OFFER(v4);
OFFER(v5);
OFFER(v6);
