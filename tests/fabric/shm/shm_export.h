/*
 * How the drop-in exports: names and versions of rdma-core's libibverbs.so.1 (libibverbs.map lists
 * them).
 *
 * A name that exists in one version is a plain function with R2_EXPORT. A name that changed its ABI
 * between IBVERBS_1.0 and IBVERBS_1.1 has two definitions, bound by .symver.
 */
#ifndef SHM_EXPORT_H
#define SHM_EXPORT_H

#include <infiniband/verbs.h>

#define SHM_EXPORT __attribute__((visibility("default")))

/* @ret @name @params in IBVERBS_1.1, the default, as the front-end's fab_@name. */
#define SHM_EXPORT_11(ret, name, params, args)                                                     \
    SHM_EXPORT ret shm_##name params;                                                              \
    __asm__(".symver shm_" #name "," #name "@@IBVERBS_1.1");                                       \
    ret shm_##name params                                                                          \
    {                                                                                              \
        return fab_##name args;                                                                    \
    }

/* The body is given by the caller. */
#define SHM_DEFINE_11(ret, name, params)                                                           \
    SHM_EXPORT ret shm_##name params;                                                              \
    __asm__(".symver shm_" #name "," #name "@@IBVERBS_1.1");                                       \
    ret shm_##name params

#endif
