/* Copies to memory of a GPU that is polled while it is written: in which pieces, and in which order
 * they land. */
#include "tests/unit/cuda_rig.h"

#include "bounce/r2_cuda_lines.h"

#define ROOM 1024u

static struct ib_copy_mem from, to;
static void *lane;

static bool is_flag(uint64_t addr)
{
    return addr % R2_CUDA_LINE >= R2_CUDA_LINE - R2_CUDA_FLAG;
}

/* What is wrong with how [@dst, @dst + @len) is cut; NULL. */
static const char *cut_check(uint64_t dst, size_t len)
{
    struct r2_cuda_piece p[R2_CUDA_PIECES];
    uint8_t times[4 * R2_CUDA_LINE] = {0};
    int n = r2_cuda_lines_cut(dst, len, p);
    bool flags = false;

    for (int i = 0; i < n; i++) {
        for (size_t at = 0; at < p[i].width * p[i].rows; at++) {
            size_t off = p[i].off + at / p[i].width * R2_CUDA_LINE + at % p[i].width;

            if (off >= len) {
                return "a byte behind the end";
            }
            times[off]++;
            if (flags && !is_flag(dst + off)) {
                return "a byte of a line behind a flag";
            }
            flags = flags || is_flag(dst + off);
        }
        if (p[i].width == 0 || p[i].rows == 0) {
            return "a piece without bytes";
        }
    }
    for (size_t off = 0; off < len; off++) {
        if (times[off] != 1) {
            return "a byte that is not copied once";
        }
    }
    return n > R2_CUDA_PIECES ? "too many pieces" : NULL;
}

/* Every beginning within a line, every length up to some lines: each byte once, and no byte of a
 * line behind its flag. */
START_TEST(each_byte_once_and_flags_last)
{
    for (uint64_t dst = 4096; dst < 4096 + R2_CUDA_LINE; dst++) {
        for (size_t len = 0; len <= 4 * R2_CUDA_LINE; len++) {
            const char *wrong = cut_check(dst, len);

            if (wrong) {
                ck_abort_msg("dst %llu len %zu: %s", (unsigned long long)dst, len, wrong);
            }
        }
    }
}
END_TEST

static void lane_make(void)
{
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, ROOM, &from), 0);
    ck_assert_int_eq(ops->mem_get(cuda, 0, ROOM, &to), 0);
    ck_assert_int_eq(ops->lane_open(cuda, IB_COPY_HOST, 0, 2, &lane), 0);
    memset(from.addr, 1, ROOM);
    memset(app.bytes(to.addr), 0, ROOM);
}

static void lane_end(void)
{
    ops->lane_close(cuda, lane);
    ops->mem_put(cuda, &from);
    ops->mem_put(cuda, &to);
}

/* What a kernel sees that polls the flags: where one is there, its line is. */
static void lines_check(size_t off, size_t len)
{
    const uint8_t *b = app.bytes(to.addr);

    for (size_t i = off; i < off + len; i++) {
        for (size_t k = off; is_flag(i) && b[i] && k < off + len; k++) {
            ck_assert_msg(k / R2_CUDA_LINE != i / R2_CUDA_LINE || is_flag(k) || b[k],
                          "the flag at %zu is there and byte %zu of its line is not", i, k);
        }
    }
}

START_TEST(flags_land_last)
{
    static const size_t offs[] = {0, 8, 112, 120, 124}, lens[] = {8, 128, 136, 300, 640};
    size_t off = offs[_i / 5], len = lens[_i % 5];
    const uint8_t *b;
    unsigned steps = 0;

    rig_open(1);
    lane_make();
    b = app.bytes(to.addr);
    fake->hold(1);
    ck_assert_int_eq(
        ops->begin_lines(cuda, lane, 0, (char *)to.addr + off, (char *)from.addr + off, len), 0);
    while (ops->done(cuda, lane, 0) == 0) {
        ck_assert_uint_eq(fake->release(-1, 1), 1);
        lines_check(off, len);
        steps++;
    }
    ck_assert_uint_le(steps, R2_CUDA_PIECES);
    ck_assert_int_eq(ops->done(cuda, lane, 0), 1);
    for (size_t i = 0; i < ROOM; i++) {
        ck_assert_int_eq(b[i], i >= off && i < off + len);
    }
    fake->hold(0);
    lane_end();
    rig_close(0);
}
END_TEST

/* The first piece is refused: nothing runs, the lane is well. A later one: what was begun runs, and
 * nobody knows its end. */
START_TEST(a_piece_that_fails)
{
    static const struct {
        const char *call;
        unsigned after;
        int error, rc, done;
    } rows[] = {{"cuMemcpy2DAsync_v2", 0, 1, EINVAL, 1},
                {"cuMemcpy2DAsync_v2", 0, RIG_UNKNOWN, 0, -1},
                {"cuMemcpy2DAsync_v2", 1, 1, 0, -1},
                {"cuEventRecord", 0, RIG_UNKNOWN, 0, -1}};
    void *at;

    rig_open(1);
    lane_make();
    at = to.addr;
    fake->fail_at(rows[_i].call, rows[_i].after, rows[_i].error);
    ck_assert_int_eq(ops->begin_lines(cuda, lane, 0, at, from.addr, 256), rows[_i].rc);
    ck_assert_str_eq(fake->failed(), rows[_i].call);
    ck_assert_int_eq(rig_logged(), 1);
    if (rows[_i].rc == 0) {
        ck_assert_int_eq(ops->done(cuda, lane, 0), -1);
        ck_assert_int_eq(ops->begin_lines(cuda, lane, 1, at, from.addr, 256), EIO);
    } else {
        ck_assert_int_eq(ops->begin_lines(cuda, lane, 0, at, from.addr, 256), 0);
        ck_assert_int_eq(ops->done(cuda, lane, 0), 1);
    }
    lane_end();
    rig_close(rows[_i].rc == 0);
}
END_TEST

START_TEST(whether_it_can)
{
    rig_open(1);
    lane_make();
    ck_assert_int_eq(ops->begin_lines(cuda, lane, 0, to.addr, from.addr, 0), 0);
    ck_assert_int_eq(ops->begin_lines(cuda, lane, 2, to.addr, from.addr, 8), EINVAL);
    lane_end();
    rig_close(0);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, each_byte_once_and_flags_last);
    tcase_add_loop_test(t, flags_land_last, 0, 25);
    tcase_add_loop_test(t, a_piece_that_fails, 0, 4);
    tcase_add_test(t, whether_it_can);
}

int main(void)
{
    return suite_run("cuda_lines", 60, NULL, NULL, tests_add);
}
