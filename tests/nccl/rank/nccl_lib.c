#include "tests/nccl/rank/nccl_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/r2_seam.h"
#include "tests/nccl/rank/nccl_release.h"
#include "tests/nccl/rank/nccl_yield.h"
#include "tools/r2_perf/plugin.h"
#include "tools/r2_perf/util.h"

#ifndef NCCL_LIB_DEFAULT
#define NCCL_LIB_DEFAULT ""
#endif

struct nccl_lib nccl_lib;

#define STR_(x) #x
#define STR(x)  STR_(x) /* a name that cuda.h has made a versioned one of */
static const struct {
    const char *name;
    size_t at;
} nccl_calls[] =
    {
#define ROW(name) {#name, offsetof(struct nccl_lib, name)},
        NCCL_CALLS(ROW)
#undef ROW
},
  cuda_calls[] = {
#define ROW(name) {STR(name), offsetof(struct nccl_lib, name)},
      CUDA_CALLS(ROW)
#undef ROW
};

void nccl_lib_error_print(ncclResult_t code, ncclComm_t comm, char *text, size_t bytes)
{
    snprintf(text, bytes, "%d %s: %s", (int)code, nccl_lib.ncclGetErrorString(code),
             nccl_lib.ncclGetLastError(comm));
}

/* The folder of this program. */
static void folder_get(char *out, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", out, bytes - 1);
    char *slash;

    out[n > 0 ? n : 0] = '\0';
    slash = strrchr(out, '/');
    if (slash) {
        *slash = '\0';
    }
}

/* CUDA as it is on this machine: its driver is the loader's, and NCCL finds GPUs itself. */
static int gpu_is_real(void)
{
    const char *s = getenv("STANDIN");

    return s && strcmp(s, "off") == 0;
}

/*
 * What the stand-in wants of NCCL, unless the user says otherwise: it has no VMM allocations, no
 * NVLS and no PAT, which a GPU does without then, too, so that both run the same. NCCL is told
 * where GPUs and NICs are, since it finds none.
 */
static void environment_set(const char *folder)
{
    char path[PATH_MAX + 64];

    setenv("NCCL_CUMEM_ENABLE", "0", 0);
    setenv("NCCL_CUMEM_HOST_ENABLE", "0", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_ALGO", "Ring,Tree", 0);
    if (!gpu_is_real()) {
        setenv("STANDIN_GPUS", "2", 0); /* as many as the topology has */
        setenv("STANDIN_BUSID", "0000:05:00.0,0000:95:00.0", 0);
        snprintf(path, sizeof(path), "%s/nccl-standin/topo.xml", folder);
        setenv("NCCL_TOPO_FILE", path, 0);
    }
    if (getenv("NCCL_NET") && strcmp(getenv("NCCL_NET"), "IB") == 0) {
        setenv("NCCL_NET_PLUGIN", "none", 0);
        /* 2.28 calls the GIN table of its IB transport, which is not there on a fabric without
         * GPUs, and dies */
        setenv("NCCL_GIN_TYPE", "2", 0);
        setenv("NCCL_GIN_ENABLE", "0", 0);
    }
    snprintf(path, sizeof(path), "%s/libnccl-net-r2.so", folder);
    setenv("NCCL_NET_PLUGIN", path, 0);
}

/* NCCL's own IB transport looks its NICs up in /sys, which is the fabric's then, for this process
 * alone. */
static int sysfs_take(char *error, size_t bytes)
{
    const char *net = getenv("NCCL_NET"), *sys = getenv("SOFTFAB_SYSFS");

    if (net == NULL || strcmp(net, "IB") != 0 || sys == NULL) {
        return 0;
    }
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(sys, "/sys", NULL, MS_BIND, NULL) != 0) {
        snprintf(error, bytes,
                 "NCCL_NET=IB wants a /sys of its own with the fabric's NICs, as root: %s",
                 strerror(errno));
        return -1;
    }
    return 0;
}

/* Where a library stands before NCCL (LD_PRELOAD), its calls are what the program calls, as if this
 * were linked with NCCL. */
static void *stands_before(void *lib)
{
    return dlsym(RTLD_DEFAULT, R2_SEAM_SYMBOL) != NULL ? RTLD_DEFAULT : lib;
}

static int calls_find(void *lib, const char *file, int cuda, char *error, size_t bytes)
{
    size_t n = cuda ? sizeof(cuda_calls) / sizeof(cuda_calls[0])
                    : sizeof(nccl_calls) / sizeof(nccl_calls[0]);

    for (size_t i = 0; i < n; i++) {
        const char *name = cuda ? cuda_calls[i].name : nccl_calls[i].name;
        void *f = dlsym(lib, name);

        if (f == NULL) {
            snprintf(error, bytes, "%s has no %s", file, name);
            return -1;
        }
        memcpy((char *)&nccl_lib + (cuda ? cuda_calls[i].at : nccl_calls[i].at), &f, sizeof(f));
    }
    return 0;
}

/* NCCL_LIB=FILE, NCCL_HOME, what was found when this was built, the loader's path. */
static void *nccl_open(char *file, size_t file_bytes, char *error, size_t bytes)
{
    const char *lib = getenv("NCCL_LIB"), *home = getenv("NCCL_HOME");
    void *handle;

    if (lib && *lib) {
        snprintf(file, file_bytes, "%s", lib);
    } else if (home && *home) {
        snprintf(file, file_bytes, "%s/lib/libnccl.so.2", home);
    } else {
        snprintf(file, file_bytes, "%s",
                 access(NCCL_LIB_DEFAULT, R_OK) == 0 ? NCCL_LIB_DEFAULT : "libnccl.so.2");
    }
    handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        snprintf(error, bytes, "%s (NCCL_LIB=FILE names a libnccl.so.2)", dlerror());
    }
    return handle;
}

/* The stand-in for this release: an unknown one is refused, since its layouts would be a guess. */
static int standin_find(char *path, size_t path_bytes, const char *folder, char *error,
                        size_t bytes)
{
    const char *release = nccl_release_folder(nccl_lib.version);

    if (release == NULL) {
        nccl_release_refuse(nccl_lib.version, error, bytes);
        return -1;
    }
    snprintf(path, path_bytes, "%s/nccl-standin/%s/libcuda.so.1", folder, release);
    return 0;
}

static void *library_open(const char *path, int flags, char *error, size_t bytes)
{
    void *lib = dlopen(path, flags);

    if (lib == NULL) {
        snprintf(error, bytes, "%s", dlerror());
    }
    return lib;
}

/* The runtime and NVML first: a NCCL that needs libcudart.so.13, and every NCCL that opens NVML by
 * its name, gets what is there. Then NCCL, and the driver of its release, which attaches to it. */
static int libraries_open(const char *folder, char *error, size_t bytes)
{
    static const char *const first[] = {"libcudart.so.13", "libnvidia-ml.so.1"};
    int real = gpu_is_real();
    char file[PATH_MAX], path[PATH_MAX + 64];
    void *nccl, *cuda;

    if (!real) {
        nccl_yield_sleep();
    }
    for (size_t i = 0; !real && i < sizeof(first) / sizeof(first[0]); i++) {
        snprintf(path, sizeof(path), "%s/nccl-standin/%s", folder, first[i]);
        if (library_open(path, RTLD_NOW, error, bytes) == NULL) {
            return -1;
        }
    }
    nccl = nccl_open(file, sizeof(file), error, bytes);
    if (nccl == NULL || calls_find(stands_before(nccl), file, 0, error, bytes) != 0) {
        return -1;
    }
    nccl_lib.ncclGetVersion(&nccl_lib.version);
    snprintf(path, sizeof(path), "libcuda.so.1");
    if (!real && standin_find(path, sizeof(path), folder, error, bytes) != 0) {
        return -1;
    }
    cuda = library_open(path, RTLD_NOW | RTLD_GLOBAL, error, bytes);
    return cuda && calls_find(cuda, path, 1, error, bytes) == 0 ? 0 : -1;
}

/* --- what r2_perf calls --- */

void plugin_conf_read(void)
{
    /* NCCL reads its own */
}

int plugin_open(struct plugin *p, int abi, char *error, size_t error_bytes)
{
    static char name[32];
    static struct abi_net net = {.name = name};
    char folder[PATH_MAX], release[24];

    memset(p, 0, sizeof(*p));
    if (abi) {
        snprintf(error, error_bytes, "--abi: which table of a plugin is used is NCCL's choice");
        return -1;
    }
    folder_get(folder, sizeof(folder));
    environment_set(folder);
    if (sysfs_take(error, error_bytes) != 0 || libraries_open(folder, error, error_bytes) != 0) {
        return -1;
    }
    if (nccl_lib.cuInit(0) != CUDA_SUCCESS ||
        nccl_lib.cuDeviceGetCount(&nccl_lib.gpus) != CUDA_SUCCESS || nccl_lib.gpus < 1) {
        snprintf(error, error_bytes, "there is no GPU");
        return -1;
    }
    nccl_release_print(nccl_lib.version, release, sizeof(release));
    snprintf(name, sizeof(name), "NCCL %s", release);
    snprintf(p->path, sizeof(p->path), "%s",
             getenv("NCCL_NET_PLUGIN") ? getenv("NCCL_NET_PLUGIN") : "");
    p->net = &net;
    p->ndev = 1;
    p->props[0].name = (char *)"GPU";
    return 0;
}

void plugin_close(struct plugin *p, int unload)
{
    (void)p;
    (void)unload; /* NCCL unloads its plugins itself */
}

const char *plugin_result_name(int result)
{
    return nccl_lib.ncclGetErrorString((ncclResult_t)result);
}

const char *plugin_device_bus(const struct plugin *p, int dev)
{
    static char id[16];
    CUdevice d;

    (void)p;
    if (nccl_lib.cuDeviceGet(&d, dev % nccl_lib.gpus) != CUDA_SUCCESS ||
        nccl_lib.cuDeviceGetPCIBusId(id, sizeof(id), d) != CUDA_SUCCESS) {
        return "0000:00:00.0";
    }
    return id;
}
