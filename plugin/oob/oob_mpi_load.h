/*
 * The door to the MPI backend of the out-of-band channel (docs/control.md).
 *
 * The backend is a module of its own, libnccl-net-r2-oob-mpi.so, because it needs libmpi and the
 * plugin must not. A communicator of our own can only be made where all ranks meet, in MPI_Init, so
 * the program is started with the module preloaded; the plugin finds it in its own process, or
 * there is no MPI backend.
 *
 * Plugin and module meet only here and in r2_oob.h. R2_OOB_MPI_ABI changes with either.
 */
#ifndef OOB_MPI_LOAD_H
#define OOB_MPI_LOAD_H

#include "base/r2_env.h"
#include "base/r2_log.h"
#include "r2_oob.h"

#define R2_OOB_MPI_ABI    1
#define R2_OOB_MPI_MODULE "libnccl-net-r2-oob-mpi.so"
#define R2_OOB_MPI_ENTRY  "r2_oob_mpi_create"

struct r2_oob_mpi_params {
    uint32_t abi; /* filled by r2_oob_mpi_load() */
    uint32_t size;
    const struct r2_env *env; /* used during the call only */
    void (*log)(enum r2_log_level level, const char *file, int line, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
    /* The TCP endpoint beneath: for peers that MPI does not reach, and for the time after
     * MPI_Finalize. */
    struct r2_oob *(*tcp_create)(void *arg, const struct r2_oob_events *ev, char *why,
                                 size_t why_len);
    void *tcp_arg;
    uint64_t hello_timeout_ns, keepalive_ns; /* as of TCP; 0 = default */
};

typedef struct r2_oob *(*r2_oob_mpi_create_fn)(const struct r2_oob_mpi_params *params,
                                               const struct r2_oob_events *ev, char *why,
                                               size_t why_len);

/* An endpoint of the module. NULL with the reason in @why: no module in this process, or what the
 * module says. */
struct r2_oob *r2_oob_mpi_load(struct r2_oob_mpi_params *params, const struct r2_oob_events *ev,
                               char *why, size_t why_len);

#endif
