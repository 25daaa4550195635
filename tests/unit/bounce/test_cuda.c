/* The CUDA driver's copy engine: opening it, whose memory is whose, bounce buffer. Copies are in
 * test_cuda_lane.c, calls that fail in test_cuda_fault.c. */
#include "tests/unit/cuda_rig.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPUS 3

static char why[256];

static struct r2_cuda *const untouched = (struct r2_cuda *)&why;

START_TEST(no_library)
{
    struct r2_cuda *c = untouched;

    ck_assert_int_eq(r2_cuda_open("/nonexistent/libcuda.so.1", &c, why, sizeof(why)), ENOENT);
    ck_assert_msg(strstr(why, "/nonexistent/libcuda.so.1") != NULL, "%s", why);
    ck_assert_ptr_eq(c, untouched);
    r2_cuda_close(NULL);
}
END_TEST

/* By default it is the one that the loader knows by its name: here, what is loaded already. */
START_TEST(default_library)
{
    struct r2_cuda *c = untouched;
    int rc = r2_cuda_open(NULL, &c, why, sizeof(why));

    if (rc == ENOENT) {
        ck_assert_msg(strstr(why, "libcuda.so.1") != NULL, "%s", why);
        ck_assert_ptr_eq(c, untouched);
        rig_load(NULL, 2);
        ck_assert_int_eq(r2_cuda_open(NULL, &cuda, why, sizeof(why)), 0);
        rig_close(0);
    } else {
        ck_assert(rc == 0 ? c != untouched
                          : why[0] != '\0'); /* a machine with a driver: its own matter */
    }
}
END_TEST

static const char *const needed[] = {
    "cuInit",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxGetState",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxEnablePeerAccess",
    "cuPointerGetAttribute",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemcpyAsync",
};
static const char *const optional[] = {"cuThreadExchangeStreamCaptureMode",
                                       "cuMemGetHandleForAddressRange"};

/* A driver without some calls: a copy of the stand-in in which their names are others. @names ends
 * with NULL. Whoever loads it does so before unlinking @path. */
static void driver_without(const char *const *names, char *path)
{
    struct stat st;
    char *bytes;
    int fd = open(rig_path, O_RDONLY | O_CLOEXEC), out = mkstemp(path);

    ck_assert(fd >= 0 && out >= 0 && fstat(fd, &st) == 0);
    bytes = malloc((size_t)st.st_size);
    ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
    for (; *names != NULL; names++) {
        size_t len = strlen(*names) + 1;
        int found = 0;

        /* whole strings, which begin behind the end of another */
        for (char *p = bytes + 1;
             (p = memmem(p, (size_t)(bytes + st.st_size - p), *names, len)) != NULL; p++) {
            if (p[-1] == '\0') {
                *p = 'X';
                found++;
            }
        }
        ck_assert_msg(found > 0, "the stand-in has no %s", *names);
    }
    ck_assert_int_eq(write(out, bytes, (size_t)st.st_size), st.st_size);
    free(bytes);
    close(fd);
    close(out);
}

START_TEST(no_symbol)
{
    const char *names[] = {needed[_i], NULL};
    char path[] = "/tmp/r2-test-cuda-XXXXXX";
    struct r2_cuda *c = untouched;
    int rc;

    rig_load(NULL, 1);
    driver_without(names, path);
    rc = r2_cuda_open(path, &c, why, sizeof(why));
    unlink(path);
    ck_assert_int_eq(rc, ENOSYS);
    ck_assert_msg(strstr(why, needed[_i]) != NULL && strstr(why, path) != NULL, "%s", why);
    ck_assert_ptr_eq(c, untouched);
}
END_TEST

/* An old driver: nothing knows of DMA-BUFs, and no thread can be relaxed. */
START_TEST(no_optional_symbol)
{
    const char *names[] = {optional[0], optional[1], NULL};
    char path[] = "/tmp/r2-test-cuda-XXXXXX";
    struct ib_copy_mem mem;

    rig_load(NULL, 1);
    driver_without(names, path);
    rig_load(path, 2);
    fake->dmabuf_set(1);
    ck_assert_int_eq(r2_cuda_open(path, &cuda, why, sizeof(why)), 0);
    unlink(path);
    ck_assert_int_eq(ops->mem_get(cuda, 1, 1, &mem), 0);
    ck_assert_int_eq(mem.dmabuf_fd, -1);
    ops->mem_put(cuda, &mem);
    fake->capture_set(1);
    ck_assert_int_eq(ops->mem_get(cuda, 1, 1, &mem),
                     EIO); /* which is what the other drivers' call is for */
    ck_assert_int_eq((int)fake->count().spoiled, 1);
    fake->capture_set(0);
    ck_assert_int_eq(rig_logged(), 1);
    rig_close(0);
}
END_TEST

START_TEST(no_gpu)
{
    struct r2_cuda *c = untouched;

    rig_load(NULL, 0);
    ck_assert_int_eq(r2_cuda_open(rig_path, &c, why, sizeof(why)), ENODEV);
    ck_assert_msg(strstr(why, "no GPU: cuInit: ") != NULL, "%s", why);
    fake->gpus_set(1);
    ck_assert_int_eq(r2_cuda_open(rig_path, &c, why, sizeof(why)), 0);
    r2_cuda_close(c);
    c = untouched;
    fake->gpus_set(0); /* initialised, and nothing there */
    ck_assert_int_eq(r2_cuda_open(rig_path, &c, why, sizeof(why)), ENODEV);
    ck_assert_str_eq(why, "no GPU: cuDeviceGetCount says 0");
    ck_assert_ptr_eq(c, untouched);
}
END_TEST

/* What whole programs over the stand-in have to say about it. */
START_TEST(gpus_by_the_environment)
{
    char text[32];

    setenv("FAKE_CUDA_GPUS", "2", 1);
    rig_open(-1);
    ck_assert_int_eq(ops->gpu_pci(cuda, 1, text, sizeof(text)), 0);
    ck_assert_int_eq(ops->gpu_pci(cuda, 2, text, sizeof(text)), EINVAL);
    rig_close(0);
    unsetenv("FAKE_CUDA_GPUS");
    rig_open(-1);
    ck_assert_int_eq(ops->gpu_pci(cuda, 1, text, sizeof(text)), EINVAL);
    rig_close(0);
}
END_TEST

START_TEST(open_fails_at_each_call)
{
    unsigned n = 0;

    rig_load(NULL, GPUS);
    for (;; n++) {
        struct r2_cuda *c = untouched;
        int rc;

        fake->fail_at(NULL, n, RIG_UNKNOWN);
        rc = r2_cuda_open(rig_path, &c, why, sizeof(why));
        if (fake->failed() == NULL) {
            fake->fail_at(NULL, 0, 0);
            ck_assert_int_eq(rc, 0);
            r2_cuda_close(c);
            break;
        }
        ck_assert_int_eq(rc, EIO);
        ck_assert_msg(strstr(why, fake->failed()) != NULL && strstr(why, "fake (999)") != NULL,
                      "%s", why);
        ck_assert_ptr_eq(c, untouched);
    }
    ck_assert_uint_eq(n, 2 + GPUS);
    ck_assert_int_eq(fake->live().retained, 0);
}
END_TEST

START_TEST(whose_memory)
{
    struct ib_copy_mem mem[GPUS], host;
    int here = 0;
    uint64_t ptr;
    void *ctx;

    rig_open(GPUS);
    for (int i = 0; i < GPUS; i++) {
        ck_assert_int_eq(ops->mem_get(cuda, i, 100, &mem[i]), 0);
        ck_assert_int_eq(ops->gpu_of(cuda, mem[i].addr), i);
        ck_assert_int_eq(ops->gpu_of(cuda, (char *)mem[i].addr + mem[i].len - 1), i);
        ck_assert_int_eq(ops->gpu_of(cuda, (char *)mem[i].addr + mem[i].len), IB_COPY_HOST);
    }
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, 100, &host), 0);
    ck_assert_int_eq(ops->gpu_of(cuda, host.addr), IB_COPY_HOST);
    ck_assert_int_eq(ops->gpu_of(cuda, &here), IB_COPY_HOST);
    ck_assert_int_eq(ops->gpu_of(cuda, NULL), IB_COPY_HOST);
    fake->fail_at("cuPointerGetAttribute", 1, RIG_UNKNOWN);
    ck_assert_int_eq(ops->gpu_of(cuda, mem[1].addr), IB_COPY_HOST);
    ck_assert_str_eq(fake->failed(), "cuPointerGetAttribute");
    ops->mem_put(cuda, &host);
    fake->gpus_set(GPUS + 1); /* a GPU that this engine does not know */
    ck_assert_int_eq(app.retain(&ctx, GPUS), 0);
    ck_assert_int_eq(app.push(ctx), 0);
    ck_assert_int_eq(app.alloc(&ptr, 1), 0);
    ck_assert_int_eq(ops->gpu_of(cuda, (void *)(uintptr_t)ptr), IB_COPY_HOST);
    ck_assert_int_eq(app.free(ptr), 0);
    for (int i = 0; i < GPUS; i++) {
        ops->mem_put(cuda, &mem[i]);
    }
    rig_close(1);
}
END_TEST

START_TEST(pci_address)
{
    char text[32] = "x";

    rig_open(9);
    ck_assert_int_eq(ops->gpu_pci(cuda, 0, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "0000:3b:00.0");
    ck_assert_int_eq(ops->gpu_pci(cuda, 8, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "001a:43:00.0");
    ck_assert_int_eq(ops->gpu_pci(cuda, 8, text, 13), 0);
    ck_assert_int_eq(ops->gpu_pci(cuda, 8, text, 12), ENAMETOOLONG);
    ck_assert_int_eq(ops->gpu_pci(cuda, 9, text, sizeof(text)), EINVAL);
    ck_assert_int_eq(ops->gpu_pci(cuda, -1, text, sizeof(text)), EINVAL);
    fake->fail_at("cuDeviceGetPCIBusId", 0, RIG_UNKNOWN);
    ck_assert_int_eq(ops->gpu_pci(cuda, 0, text, sizeof(text)), EIO);
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_str_eq(rig_line, "NET/R2 : CUDA: GPU 0: cuDeviceGetPCIBusId: fake (999)");
    rig_close(0);
}
END_TEST

START_TEST(memory_of_the_host)
{
    struct ib_copy_mem mem = {.addr = &mem};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    rig_open(1);
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, 0, &mem), EINVAL);
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, SIZE_MAX, &mem), EINVAL);
    ck_assert_int_eq(ops->mem_get(cuda, 1, 1, &mem), EINVAL);
    ck_assert_int_eq(ops->mem_get(cuda, -2, 1, &mem), EINVAL);
    ck_assert_ptr_eq(mem.addr, &mem);
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, page + 1, &mem), 0);
    ck_assert_uint_eq(mem.len, 2 * page);
    ck_assert_int_eq(mem.type, IB_PTR_HOST);
    ck_assert_int_eq(mem.dmabuf_fd, -1);
    memset(mem.addr, 7, mem.len);
    ck_assert_int_eq(fake->live().host, 1);
    ops->mem_put(cuda, &mem);
    ck_assert_ptr_null(mem.addr);
    ck_assert_int_eq(mem.dmabuf_fd, -1);
    ops->mem_put(cuda, &mem); /* nothing: */
    rig_close(0);
}
END_TEST

/* Memory of the host makes no context on a GPU that the process does not use: its own or, as yet
 * without one, the application's. */
START_TEST(memory_of_the_host_is_of_a_context_in_use)
{
    struct ib_copy_mem mem, other;
    int active;
    unsigned flags;
    void *ctx;

    rig_open(GPUS);
    ck_assert_int_eq(app.retain(&ctx, 2), 0);
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, 1, &mem), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(app.state(i, &flags, &active), 0);
        ck_assert(!active);
    }
    ck_assert_int_eq(ops->mem_get(cuda, 1, 1, &other), 0);
    ops->mem_put(cuda, &mem);
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, 1, &mem), 0);
    ck_assert_int_eq(app.state(0, &flags, &active), 0);
    ck_assert(!active);
    ops->mem_put(cuda, &mem);
    ops->mem_put(cuda, &other);
    rig_close(1);
}
END_TEST

START_TEST(memory_of_a_gpu)
{
    struct ib_copy_mem mem;

    rig_open(GPUS);
    ck_assert_int_eq(ops->mem_get(cuda, 1, 65537, &mem), 0);
    ck_assert_uint_eq(mem.len, 131072);
    ck_assert_int_eq(mem.type, IB_PTR_CUDA);
    ck_assert_int_eq(mem.dmabuf_fd, -1); /* this driver has none */
    ck_assert_int_eq(fake->live().memory, 1);
    ck_assert_int_eq(fake->live().retained, 1);
    ops->mem_put(cuda, &mem);
    rig_close(0);
}
END_TEST

START_TEST(dmabuf)
{
    struct ib_copy_mem mem;
    int before;
    char *p;

    rig_open(GPUS);
    fake->dmabuf_set(1);
    before = fds();
    ck_assert_int_eq(ops->mem_get(cuda, 2, 1, &mem), 0);
    ck_assert_int_ge(mem.dmabuf_fd, 0);
    ck_assert_int_eq(fcntl(mem.dmabuf_fd, F_GETFD), FD_CLOEXEC);
    ck_assert_int_eq(mem.type, IB_PTR_CUDA);
    p = mmap(NULL, mem.len, PROT_READ | PROT_WRITE, MAP_SHARED, mem.dmabuf_fd, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    strcpy(p, "by the NIC");
    ck_assert_str_eq((char *)app.bytes(mem.addr), "by the NIC"); /* offset 0 is its first byte */
    munmap(p, mem.len);
    ops->mem_put(cuda, &mem);
    ck_assert_int_eq(fds(), before);
    rig_close(0);
}
END_TEST

/* Where there could be one and is none the memory is registered by its address; somebody may want
 * to know why. */
START_TEST(no_dmabuf)
{
    struct ib_copy_mem mem;

    rig_open(1);
    fake->dmabuf_set(1);
    fake->fail_at("cuMemGetHandleForAddressRange", 0, RIG_UNKNOWN);
    ck_assert_int_eq(ops->mem_get(cuda, 0, 1, &mem), 0);
    ck_assert_int_eq(mem.dmabuf_fd, -1);
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_msg(strstr(rig_line, "cuMemGetHandleForAddressRange: fake (999)") != NULL, "%s",
                  rig_line);
    ops->mem_put(cuda, &mem);
    fake->skew_set(256); /* the file would not begin with the memory */
    ck_assert_int_eq(ops->mem_get(cuda, 0, 1, &mem), 0);
    ck_assert_int_eq(mem.dmabuf_fd, -1);
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_msg(strstr(rig_line, "begins within a page") != NULL, "%s", rig_line);
    ops->mem_put(cuda, &mem);
    rig_close(0);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, no_library);
    tcase_add_test(t, default_library);
    tcase_add_loop_test(t, no_symbol, 0, sizeof(needed) / sizeof(needed[0]));
    tcase_add_test(t, no_optional_symbol);
    tcase_add_test(t, no_gpu);
    tcase_add_test(t, gpus_by_the_environment);
    tcase_add_test(t, open_fails_at_each_call);
    tcase_add_test(t, whose_memory);
    tcase_add_test(t, pci_address);
    tcase_add_test(t, memory_of_the_host);
    tcase_add_test(t, memory_of_the_host_is_of_a_context_in_use);
    tcase_add_test(t, memory_of_a_gpu);
    tcase_add_test(t, dmabuf);
    tcase_add_test(t, no_dmabuf);
}

int main(void)
{
    return suite_run("cuda", 60, NULL, NULL, tests_add);
}
