/*
 * CUDA's runtime: kernels, and where the driver's functions are. What begins with __cuda is what
 * the code calls that nvcc makes of a kernel and of its launch (crt/host_runtime.h has it); the
 * device code itself is not looked at.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "tests/nccl/standin/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define VERSION 13000

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *stub)
{
    (void)stub;
    memset(a, 0, sizeof(*a));
    a->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *stub, enum cudaFuncAttribute a, int value)
{
    (void)stub;
    (void)a;
    (void)value;
    return cudaSuccess;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *f, const void *stub)
{
    *f = (cudaFunction_t)gpu_kernel_of(stub);
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **params, size_t shared,
                             cudaStream_t s)
{
    (void)block;
    (void)shared;
    return gpu_launch(gpu_kernel_of(stub), grid.x, params, NULL, gpu_stream_of(s))
               ? cudaSuccess
               : cudaErrorLaunchFailure;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *stub, void **params)
{
    return cudaLaunchKernel(stub, c->gridDim, c->blockDim, params, c->dynamicSmemBytes, c->stream);
}

/* ---- what nvcc's code calls ---- */

void **__cudaRegisterFatBinary(void *image);
void **__cudaRegisterFatBinary(void *image)
{
    static void *handle;

    (void)image;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

/* Kernels stay: one that was asked for may be launched by nobody any more. */
void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

char __cudaInitModule(void **handle);
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

void __cudaRegisterFunction(void **handle, const char *stub, char *entry, const char *name,
                            int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid,
                            int *warp);
void __cudaRegisterFunction(void **handle, const char *stub, char *entry, const char *name,
                            int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)handle;
    (void)entry;
    (void)threads;
    (void)tid;
    (void)bid;
    (void)block;
    (void)grid;
    (void)warp;
    gpu_kernel_register(stub, name);
}

/* Device variables are read by device code, of which there is none. */
void __cudaRegisterVar(void **handle, char *var, char *address, const char *name, int ext,
                       size_t size, int constant, int global);
void __cudaRegisterVar(void **handle, char *var, char *address, const char *name, int ext,
                       size_t size, int constant, int global)
{
    (void)handle;
    (void)var;
    (void)address;
    (void)ext;
    (void)constant;
    (void)global;
    gpu_log("device variable %s of %zu bytes: not here", name, size);
}

/* Between the two calls that a launch by <<<>>> is made of. */
static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} config;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s)
{
    config.grid = grid;
    config.block = block;
    config.shared = shared;
    config.stream = s;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s)
{
    *grid = config.grid;
    *block = config.block;
    *shared = config.shared;
    *(cudaStream_t *)s = config.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *stub);
cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *stub)
{
    *k = (cudaKernel_t)gpu_kernel_of(stub);
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **params, size_t shared,
                               cudaStream_t s);
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **params, size_t shared,
                               cudaStream_t s)
{
    return cudaLaunchKernel((const void *)k, grid, block, params, shared, s);
}

/* ---- the driver ---- */

/* The driver's function of this name, in the newest form there is. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    static const char *const forms[] = {"%s_v4", "%s_v3", "%s_v2", "%s"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    char full[128];

    (void)version;
    (void)flags;
    *f = NULL;
    if (driver == NULL || dlsym(driver, "cuInit") == NULL) {
        gpu_die("%s wants the stand-in's libcuda.so.1: %s", name,
                driver ? "another one is loaded" : dlerror());
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]) && *f == NULL; i++) {
        snprintf(full, sizeof(full), forms[i], name);
        *f = dlsym(driver, full);
    }
    if (status) {
        *status = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    if (*f == NULL) {
        gpu_log("the driver's %s is not here", name);
    }
    return cudaSuccess;
}

/* NCCL before 2.28 asks so. */
cudaError_t cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(name, f, VERSION, flags, status);
}
