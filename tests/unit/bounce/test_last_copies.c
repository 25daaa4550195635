/* Copies that the last resort is given for memory of GPUs, over the stand-in for CUDA's driver. */
#include "tests/unit/cuda_rig.h"

#include "bounce/r2_last_copies.h"

#define PIECE 65536u

static int opens, open_error;

static int engine_open(const struct ib_copy_ops **out, void **arg)
{
    char why[256];
    int rc = open_error ? open_error : r2_cuda_open(rig_path, &cuda, why, sizeof(why));

    opens++;
    *out = &r2_cuda_ops;
    *arg = cuda;
    return rc;
}

START_TEST(there_and_back)
{
    static struct tcpdev_lanes lanes; /* there to the end of the process */
    const struct tcpdev_copies *c;
    uint8_t host;
    void *arg, *ctx;
    uint64_t at;

    rig_load(NULL, 2);
    c = r2_last_copies_get(engine_open, &arg);
    ck_assert_int_eq(c->gpu_of(arg, &host), -1);
    ck_assert_int_eq(app.retain(&ctx, 1), 0);
    ck_assert_int_eq(app.push(ctx), 0);
    ck_assert_int_eq(app.alloc(&at, PIECE), 0);
    ck_assert_int_eq(app.pop(&ctx), 0);
    ck_assert_int_eq(c->gpu_of(arg, (void *)(uintptr_t)at), 1);
    ck_assert_int_eq(opens, 1);
    ck_assert_int_eq(c->open(arg, 1, PIECE, &lanes), 0);
    ck_assert_int_eq(fake->live().host, 1); /* page-locked */
    memset(lanes.piece, 0x5a, PIECE);
    ck_assert_int_eq(c->begin(arg, &lanes, true, (void *)(uintptr_t)at, lanes.piece, PIECE), 0);
    ck_assert_int_eq(c->done(arg, &lanes, true), 1);
    ck_assert_uint_eq(fake->count().copies, 2); /* lines, then their flags */
    memset(lanes.piece, 0, PIECE);
    ck_assert_int_eq(
        c->begin(arg, &lanes, false, lanes.piece, (void *)(uintptr_t)(at + 3), PIECE - 3), 0);
    ck_assert_int_eq(c->done(arg, &lanes, false), 1);
    for (uint32_t i = 0; i < PIECE; i++) {
        if (((uint8_t *)lanes.piece)[i] != (i < PIECE - 3 ? 0x5a : 0)) {
            ck_abort_msg("byte %u has come back as %02x", i, ((uint8_t *)lanes.piece)[i]);
        }
    }
    fake->hold(1);
    ck_assert_int_eq(c->begin(arg, &lanes, true, (void *)(uintptr_t)at, lanes.piece, 64), 0);
    ck_assert_int_eq(c->done(arg, &lanes, true), 0);
    fake->hold(0);
    ck_assert_int_eq(c->done(arg, &lanes, true), 1);
    rig_thread_is((struct rig_thread){0, -1, 0});
}
END_TEST

/* Of what it has taken nothing is left. */
START_TEST(each_call_of_open_fails)
{
    static const char *const calls[] = {"cuMemHostAlloc", "cuStreamCreate", "cuEventCreate"};
    static struct tcpdev_lanes lanes; /* there to the end of the process */
    const struct tcpdev_copies *c;
    uint8_t host;
    void *arg;

    rig_load(NULL, 1);
    c = r2_last_copies_get(engine_open, &arg);
    c->gpu_of(arg, &host);
    for (unsigned after = 0; after < 2; after++) {
        fake->fail_at(calls[_i], after, RIG_UNKNOWN);
        if (c->open(arg, 0, PIECE, &lanes) == 0) {
            ck_assert(_i == 0 && after == 1); /* there is one call of it */
            continue;
        }
        ck_assert_str_eq(fake->failed(), calls[_i]);
        ck_assert_int_eq(fake->live().host + fake->live().streams + fake->live().events, 0);
    }
}
END_TEST

START_TEST(no_engine)
{
    const struct tcpdev_copies *c;
    uint8_t host;
    void *arg;

    open_error = _i ? ENOENT : 0;
    c = r2_last_copies_get(_i ? engine_open : NULL, &arg);
    ck_assert_int_eq(c->gpu_of(arg, &host), -1);
    ck_assert_int_eq(c->gpu_of(arg, &host), -1);
    ck_assert_int_eq(opens, _i); /* asked once */
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, there_and_back);
    tcase_add_loop_test(t, each_call_of_open_fails, 0, 3);
    tcase_add_loop_test(t, no_engine, 0, 2);
}

int main(void)
{
    return suite_run("last_copies", 60, NULL, NULL, tests_add);
}
