/*
 * Memory of a GPU, on a fabric that reaches it (softfab up --gpu). With the stand-in for CUDA's
 * driver (tests/gpu/fake) its addresses are none of this process: whoever touches them otherwise
 * than by the driver's copies dies.
 */
#include "tests/abi/drv.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define PTR_CUDA 0x2

static struct {
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int ordinal);
    int (*ctx_retain)(void **ctx, int device);
    int (*ctx_set)(void *ctx);
    int (*alloc)(uint64_t *ptr, size_t len);
    int (*copy_to)(uint64_t dst, const void *src, size_t len);
    int (*copy_from)(void *dst, uint64_t src, size_t len);
} cu;

static void cuda_open(void)
{
    static const struct {
        const char *name;
        void *call;
    } calls[] = {{"cuInit", &cu.init},
                 {"cuDeviceGet", &cu.device_get},
                 {"cuDevicePrimaryCtxRetain", &cu.ctx_retain},
                 {"cuCtxSetCurrent", &cu.ctx_set},
                 {"cuMemAlloc_v2", &cu.alloc},
                 {"cuMemcpyHtoD_v2", &cu.copy_to},
                 {"cuMemcpyDtoH_v2", &cu.copy_from}};
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *ctx;
    int device;

    NEED(lib != NULL, "%s", dlerror());
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *f = dlsym(lib, calls[i].name);

        NEED(f != NULL, "libcuda.so.1 has no %s", calls[i].name);
        memcpy(calls[i].call, &f, sizeof(f));
    }
    NEED(cu.init(0) == 0 && cu.device_get(&device, 0) == 0 && cu.ctx_retain(&ctx, device) == 0 &&
             cu.ctx_set(ctx) == 0,
         "no GPU");
}

/* Messages from memory of a GPU to memory of a GPU, each flushed before it is read. DRV_FAULT, a
 * command of side 0, is run while the 20th is under way: what is posted again is read from the GPU,
 * too. */
static void gpu_memory(void)
{
    enum { ROOM = 1 << 20, LEN = 700000, MESSAGES = 40 };
    const char *fault = getenv("DRV_FAULT");
    int size = LEN, got[1];
    static char host[ROOM];
    struct abi_props p;
    struct drv_link l;
    uint64_t gpu;
    void *mh = NULL, *req, *data;

    cuda_open();
    OK(drv.net->get_properties(0, &p));
    NEED(p.ptr_support & PTR_CUDA, "this fabric reaches memory of a GPU, the plugin says %x",
         p.ptr_support);
    NEED(cu.alloc(&gpu, ROOM) == 0, "cuMemAlloc");
    data = (void *)(uintptr_t)gpu;
    drv_connect(&l, 0);
    OK(drv.net->reg_mr(drv.side ? l.recv : l.send, data, ROOM, PTR_CUDA, &mh));
    for (int i = 0; i < MESSAGES; i++) {
        memset(host, 0xee, sizeof(host));
        if (drv.side == 0) {
            drv_fill(host, LEN, (uint32_t)i);
        }
        NEED(cu.copy_to(gpu, host, ROOM) == 0, "cuMemcpyHtoD");
        drv_barrier();
        req = drv.side == 0 ? drv_isend(l.send, data, LEN, 0, mh)
                            : drv_irecv1(l.recv, data, LEN, 0, mh);
        if (i == 20 && drv.side == 0 && fault != NULL) {
            NEED(system(fault) == 0, "'%s' failed", fault);
        }
        drv_wait(&req, 1, got);
        NEED(got[0] == LEN, "size %d", got[0]);
        if (drv.side == 1) {
            req = NULL;
            OK(drv.net->iflush(l.recv, 1, &data, &size, &mh, &req));
            NEED(i > 0 || req != NULL, "nothing was flushed");
            drv_wait(&req, 1, NULL);
            NEED(cu.copy_from(host, gpu, ROOM) == 0, "cuMemcpyDtoH");
            drv_check(host, LEN, (uint32_t)i, "message");
            drv_check_byte(host + LEN, ROOM - LEN, 0xee, "behind the message");
        }
        drv_barrier();
    }
    OK(drv.net->dereg_mr(drv.side ? l.recv : l.send, mh));
    drv_close(&l);
}

const struct drv_case drv_cases_gpu[] = {
    {.name = "gpu_memory", .sides = 2, .limit_s = 60, .run = gpu_memory, .by_name = 1},
    {0},
};
