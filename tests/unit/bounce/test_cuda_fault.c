/* The CUDA driver's calls fail one after the other, or may not be made since somebody captures a
 * graph: what is left behind, and what is said. */
#include "tests/unit/cuda_rig.h"

#define GPUS 3

static char why[256];

/* Of which a failure costs nothing but what it is for. */
static int call_is_dispensable(const char *name)
{
    static const char *const names[] = {
        "cuDeviceGetAttribute",  "cuMemGetHandleForAddressRange", "cuDeviceCanAccessPeer",
        "cuCtxEnablePeerAccess", "cuDevicePrimaryCtxGetState",    "cuCtxPopCurrent_v2"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

enum { MEM_HOST, MEM_GPU, LANE, PAIRS };
static struct ib_copy_mem got;
static void *lane;

static int pair_open(int what)
{
    switch (what) {
    case MEM_HOST:
        return ops->mem_get(cuda, IB_COPY_HOST, 1, &got);
    case MEM_GPU:
        return ops->mem_get(cuda, 0, 1, &got);
    default:
        return ops->lane_open(cuda, 0, 1, 4, &lane);
    }
}

static void pair_close(int what)
{
    if (what == LANE) {
        ops->lane_close(cuda, lane);
    } else {
        ops->mem_put(cuda, &got);
    }
}

/* The driver's calls fail one after the other: nothing is left behind, the thread is as it was,
 * what is said names the call. */
START_TEST(opening_fails_at_each_call)
{
    /* how many there are; hard: relax, context, push, then what is made; a lane has the other GPU's
     * context, a stream, 4 events */
    static const struct {
        int hard, all;
    } calls[] = {{4, 4 + GPUS + 2}, {4, 4 + 2 + 2}, {9, 9 + 2 + 2}};
    struct rig_thread before;
    int hard = 0, all = 0, descriptors;

    rig_open(GPUS);
    rig_close(0);
    fake->dmabuf_set(1);
    rig_thread_busy(2);
    before = rig_thread();
    descriptors = fds();
    for (;; all++) {
        char name[64];
        int rc;

        ck_assert_int_eq(r2_cuda_open(rig_path, &cuda, why, sizeof(why)), 0);
        fake->fail_at(NULL, (unsigned)all, 2);
        rc = pair_open(_i);
        snprintf(name, sizeof(name), "%s", fake->failed() ? fake->failed() : "");
        if (!rig_fault_seen(before)) {
            break;
        }
        if (rc != 0) {
            ck_assert_int_eq(rc, ENOMEM);
            ck_assert_msg(!call_is_dispensable(name), "%s", name);
            ck_assert_int_eq(live_sum(), 0);
            ck_assert_int_eq(fds(), descriptors);
            hard++;
        } else {
            /* the mode of capture: set, or put back */
            ck_assert_msg(call_is_dispensable(name) ||
                              strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0,
                          "%s", name);
            pair_close(_i);
        }
        if (strcmp(name, "cuDeviceGetAttribute") != 0 &&
            strcmp(name, "cuDevicePrimaryCtxGetState") != 0) {
            ck_assert_int_eq(rig_logged(), 1);
            ck_assert_msg(strstr(rig_line, name) != NULL && strstr(rig_line, "(2)") != NULL,
                          "%s: %s", name, rig_line);
        }
        ck_assert_int_eq(live_sum(), 0);
        ck_assert_int_eq(fds(), descriptors);
        rig_close(1);
    }
    pair_close(_i);
    ck_assert_int_eq(hard, calls[_i].hard);
    ck_assert_int_eq(all, calls[_i].all);
    rig_close(1);
}
END_TEST

/* What cannot be given back is said, in one line, and the rest is given back. */
START_TEST(closing_fails_at_each_call)
{
    struct rig_thread before;
    int all = 0, lost = 0;

    rig_open(GPUS);
    fake->dmabuf_set(1);
    rig_thread_busy(2);
    before = rig_thread();
    for (;; all++) {
        int live = live_sum();
        char name[64];

        ck_assert_int_eq(pair_open(_i), 0);
        fake->fail_at(NULL, (unsigned)all, RIG_UNKNOWN);
        pair_close(_i);
        snprintf(name, sizeof(name), "%s", fake->failed() ? fake->failed() : "");
        if (!rig_fault_seen(before)) {
            break;
        }
        lost += live_sum() > live;
        if (strstr(name, "Destroy") != NULL) {
            ck_assert_int_eq(live_sum(), live + 1);
        }
        ck_assert_int_eq(rig_logged(), 1);
    }
    ck_assert_msg(all >= 4 && lost >= 3, "%d of %d", lost, all);
    r2_cuda_close(cuda);
    ck_assert_int_eq(fake->live().retained, 1);
}
END_TEST

/* Contexts that cannot be given back: said, once each; the driver's own end is not worth a warning.
 */
START_TEST(close_fails)
{
    static const int errors[] = {RIG_UNKNOWN, 4};
    struct ib_copy_mem mem;

    rig_open(1);
    ck_assert_int_eq(ops->mem_get(cuda, 0, 1, &mem), 0);
    ops->mem_put(cuda, &mem);
    fake->fail_at("cuDevicePrimaryCtxRelease_v2", 0, errors[_i]);
    r2_cuda_close(cuda);
    r2_log_flush();
    ck_assert_int_eq(rig_warns, _i == 0);
    ck_assert_int_eq(rig_infos, _i == 1);
}
END_TEST

/* The GPU whose memory it is cannot be asked for: it stays, and that is said. */
START_TEST(memory_of_nobody)
{
    struct ib_copy_mem mem;

    rig_open(1);
    ck_assert_int_eq(ops->mem_get(cuda, 0, 1, &mem), 0);
    fake->fail_at("cuPointerGetAttribute", 0, 4);
    ops->mem_put(cuda, &mem);
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_int_eq(fake->live().memory, 1);
    r2_cuda_close(cuda);
}
END_TEST

/* Somebody captures a graph: nothing of ours fails, or ends the capture. */
START_TEST(while_a_graph_is_captured)
{
    rig_open(GPUS);
    fake->dmabuf_set(1);
    fake->capture_set(1);
    for (int what = 0; what < PAIRS; what++) {
        ck_assert_int_eq(pair_open(what), 0);
        pair_close(what);
    }
    rig_close(0);
    ck_assert_uint_eq(fake->count().spoiled, 0);
    ck_assert_int_eq(fake->capture_mode(), 0);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_loop_test(t, opening_fails_at_each_call, 0, PAIRS);
    tcase_add_loop_test(t, closing_fails_at_each_call, 0, PAIRS);
    tcase_add_loop_test(t, close_fails, 0, 2);
    tcase_add_test(t, memory_of_nobody);
    tcase_add_test(t, while_a_graph_is_captured);
}

int main(void)
{
    return suite_run("cuda_fault", 60, NULL, NULL, tests_add);
}
