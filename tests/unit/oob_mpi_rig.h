/* What the suites of the MPI backend share: a process that is an MPI job of one rank, with the
 * module as its MPI_Init. */
#ifndef OOB_MPI_RIG_H
#define OOB_MPI_RIG_H

#include "test_oob_conform.h"

static void *mpi_module;
static int (*mpi_init)(int *, char ***);

/* Under a sanitizer: Open MPI leaks from components that it has unloaded by then, which no
 * suppression can name. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return 1;
}

RIG const char *module_path(void)
{
    static char path[4096];
    const char *b = getenv("R2_BUILD");

    snprintf(path, sizeof(path), "%s/" R2_OOB_MPI_MODULE, b != NULL ? b : "build");
    return path;
}

RIG void *module_open(void)
{
    /* Open MPI asks hwloc for the machine, whose component for PCI reads all of pci.ids with a
     * realloc per name: 8 s a process under AddressSanitizer, which never grows in place. */
    setenv("HWLOC_COMPONENTS", "-pci", 1);
    mpi_module = dlopen(module_path(), RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(mpi_module != NULL, "%s", dlerror());
    *(void **)&mpi_init = dlsym(mpi_module, "MPI_Init");
    ck_assert(mpi_init != NULL);
    return mpi_module;
}

RIG void begin_mpi(void)
{
    backend = BY_MPI;
    module_open();
    ck_assert_int_eq(mpi_init(NULL, NULL), 0);
    fresh();
}

/* Where there is no Open MPI at build time there is no module: the suite is skipped. */
RIG int module_is_there(void)
{
    if (access(module_path(), R_OK) == 0) {
        return 1;
    }
    printf("%s is not there: it is built where Open MPI is installed\n", module_path());
    return 0;
}

#endif
