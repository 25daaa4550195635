/*
 * The GPUs that CUDA's driver of this machine has: a line each, "0000:18:00.0 90 NAME", place on
 * PCI as NCCL writes it, compute capability, name. Exit 1 and one line on stderr without any.
 */
#include <cuda.h>
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CALLS(X)                                                                                   \
    X(cuInit)                                                                                      \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet) X(cuDeviceGetPCIBusId) X(cuDeviceGetName) X(cuDeviceGetAttribute)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    CALLS(MEMBER)
#undef MEMBER
} cuda;

static int driver_open(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *f;

    if (lib == NULL) {
        fprintf(stderr, "no driver of CUDA's: %s\n", dlerror());
        return -1;
    }
#define FIND(name)                                                                                 \
    f = dlsym(lib, #name);                                                                         \
    memcpy(&cuda.name, &f, sizeof(f));                                                             \
    if (f == NULL) {                                                                               \
        fprintf(stderr, "libcuda.so.1 has no %s\n", #name);                                        \
        return -1;                                                                                 \
    }
    CALLS(FIND)
#undef FIND
    return 0;
}

static int gpu_print(int i)
{
    char bus[32], name[128];
    int major = 0, minor = 0;
    CUdevice dev;

    if (cuda.cuDeviceGet(&dev, i) != CUDA_SUCCESS ||
        cuda.cuDeviceGetPCIBusId(bus, sizeof(bus), dev) != CUDA_SUCCESS ||
        cuda.cuDeviceGetName(name, sizeof(name), dev) != CUDA_SUCCESS ||
        cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev) !=
            CUDA_SUCCESS ||
        cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev) !=
            CUDA_SUCCESS) {
        fprintf(stderr, "CUDA's driver says nothing of GPU %d\n", i);
        return -1;
    }
    for (char *c = bus; *c; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    printf("%s %d %s\n", bus, major * 10 + minor, name);
    return 0;
}

int main(void)
{
    int n = 0;

    if (driver_open() != 0) {
        return 1;
    }
    if (cuda.cuInit(0) != CUDA_SUCCESS || cuda.cuDeviceGetCount(&n) != CUDA_SUCCESS || n < 1) {
        fprintf(stderr, "CUDA's driver has no GPU\n");
        return 1;
    }
    for (int i = 0; i < n; i++) {
        if (gpu_print(i) != 0) {
            return 1;
        }
    }
    return 0;
}
