#include "oob_mpi_load.h"

#include <dlfcn.h>
#include <stdio.h>

struct r2_oob *r2_oob_mpi_load(struct r2_oob_mpi_params *params, const struct r2_oob_events *ev,
                               char *why, size_t why_len)
{
    r2_oob_mpi_create_fn create;
    void *module;

    /* Only what is here already: a module loaded now would have missed MPI_Init. */
    module = dlopen(R2_OOB_MPI_MODULE, RTLD_NOW | RTLD_NOLOAD);
    if (module == NULL) {
        snprintf(why, why_len, "the program was not started with LD_PRELOAD=" R2_OOB_MPI_MODULE);
        return NULL;
    }
    create = (r2_oob_mpi_create_fn)dlsym(module, R2_OOB_MPI_ENTRY);
    if (create == NULL) {
        snprintf(why, why_len, R2_OOB_MPI_MODULE " is not the module of this plugin");
        dlclose(module);
        return NULL;
    }
    params->abi = R2_OOB_MPI_ABI;
    params->size = sizeof(*params);
    return create(params, ev, why,
                  why_len); /* the reference on the module stays: its threads' code is in use */
}
