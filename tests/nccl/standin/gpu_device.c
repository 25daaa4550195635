/* What both of CUDA's interfaces say of a device, and the checks of their arguments. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "tests/nccl/standin/gpu.h"

bool gpu_has(int dev)
{
    return dev >= 0 && dev < gpu_count();
}

int gpu_attribute(int attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return gpu_sm() / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return gpu_sm() % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return gpu_sm() >= 90 ? 232448 : 166912;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 108;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        return gpu_dmabuf();
    default:
        gpu_log("attribute %d of a GPU: 0", attribute);
        return 0;
    }
}

bool gpu_reaches(int dev, int peer)
{
    return gpu_has(dev) && gpu_has(peer) && dev != peer;
}

bool gpu_busid_copy(char *id, int len, int dev)
{
    return gpu_has(dev) && len > 0 && snprintf(id, (size_t)len, "%s", gpu_busid(dev)) < len;
}

bool gpu_busid_find(const char *id, int *dev)
{
    for (int i = 0; i < gpu_count(); i++) {
        if (strcasecmp(gpu_busid(i), id) == 0) {
            *dev = i;
            return true;
        }
    }
    return false;
}

void gpu_name_copy(char *name, size_t len)
{
    snprintf(name, len, "no GPU, sm_%d", gpu_sm());
}

void gpu_uuid_copy(char uuid[16], int dev)
{
    memset(uuid, 0, 16);
    uuid[0] = (char)(dev + 1);
}

bool gpu_is_device_memory(const struct gpu_mem *m)
{
    return m->kind == GPU_MEM_DEVICE || m->kind == GPU_MEM_IPC;
}
