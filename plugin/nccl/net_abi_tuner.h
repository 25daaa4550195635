/*
 * NCCL's tuner plugin ABI, versions 1 to 6, declared anew: names are ours, layouts are NCCL's and
 * checked below. LP64 only. A cost table is float[algorithms][protocols]: what a collective would
 * take, in us; below 0: not to be had.
 */
#ifndef NET_ABI_TUNER_H
#define NET_ABI_TUNER_H

#include "net_abi.h"

typedef enum nccl_result (*nccl_tuner_init_v2)(size_t ranks, size_t nodes, nccl_logger_fn log,
                                               void **ctx);

/* 2.20 */
struct nccl_tuner_v1 {
    const char *name;
    enum nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger_fn log);
    enum nccl_result (*get_coll_info)(int func, size_t bytes, int collnet, int nvls, int pipe_ops,
                                      int *algo, int *proto, int *channels);
    enum nccl_result (*destroy)(void);
};

/* 2.21 */
struct nccl_tuner_v2 {
    const char *name;
    nccl_tuner_init_v2 init;
    enum nccl_result (*get_coll_info)(void *ctx, int func, size_t bytes, int collnet, int nvls,
                                      int pipe_ops, int *algo, int *proto, int *channels);
    enum nccl_result (*destroy)(void *ctx);
};

/* 2.22, 2.23 */
struct nccl_tuner_v3 {
    const char *name;
    nccl_tuner_init_v2 init;
    enum nccl_result (*get_coll_info)(void *ctx, int func, size_t bytes, int pipe_ops,
                                      float **costs, int algos, int protos, int *channels);
    enum nccl_result (*destroy)(void *ctx);
};

/* Since version 4. */
typedef enum nccl_result (*nccl_tuner_info_v4)(void *ctx, int func, size_t bytes, int pipe_ops,
                                               float **costs, int algos, int protos, int registered,
                                               int *channels);

/* 2.24 to 2.27 */
struct nccl_tuner_v4 {
    const char *name;
    nccl_tuner_init_v2 init;
    nccl_tuner_info_v4 get_coll_info;
    enum nccl_result (*destroy)(void *ctx);
};

/* @nvl_domains: what is joined by NVLink; @constants: of NCCL's own model, which a tuner may
 * change. */
typedef enum nccl_result (*nccl_tuner_init_v5)(void **ctx, uint64_t comm_id, size_t ranks,
                                               size_t nodes, nccl_logger_fn log, void *nvl_domains,
                                               void *constants);

/* 2.28; 2.29.2, 2.29.3, 2.29.7 */
struct nccl_tuner_v5 {
    const char *name;
    nccl_tuner_init_v5 init;
    nccl_tuner_info_v4 get_coll_info;
    enum nccl_result (*finalize)(void *ctx);
};

/* 2.30 */
struct nccl_tuner_v6 {
    const char *name;
    nccl_tuner_init_v5 init;
    nccl_tuner_info_v4 get_coll_info;
    enum nccl_result (*finalize)(void *ctx);
    enum nccl_result (*get_chunk_size)(void *ctx, int func, size_t bytes, int algo, int proto,
                                       int channels, size_t *chunk); /* NULL: NCCL's own */
};

#define NET_ABI_TUNER(version, end)                                                                \
    NET_ABI_AT(nccl_tuner_##version, name, 0);                                                     \
    NET_ABI_AT(nccl_tuner_##version, init, 8);                                                     \
    NET_ABI_AT(nccl_tuner_##version, get_coll_info, 16);                                           \
    NET_ABI_AT(nccl_tuner_##version, end, 24)
NET_ABI_TUNER(v1, destroy);
NET_ABI_SIZE(nccl_tuner_v1, 32);
NET_ABI_TUNER(v2, destroy);
NET_ABI_SIZE(nccl_tuner_v2, 32);
NET_ABI_TUNER(v3, destroy);
NET_ABI_SIZE(nccl_tuner_v3, 32);
NET_ABI_TUNER(v4, destroy);
NET_ABI_SIZE(nccl_tuner_v4, 32);
NET_ABI_TUNER(v5, finalize);
NET_ABI_SIZE(nccl_tuner_v5, 32);
NET_ABI_TUNER(v6, finalize);
NET_ABI_AT(nccl_tuner_v6, get_chunk_size, 32);
NET_ABI_SIZE(nccl_tuner_v6, 40);

#endif
