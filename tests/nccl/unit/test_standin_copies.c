/*
 * Copies of rows, as CUDA's driver has them (tests/nccl/standin/gpu_stream.c): each row's bytes and
 * no others, behind what is in the stream, and in no order that a caller could rely on.
 */
#include "tests/nccl/unit/kernel_rig.h"

#include <semaphore.h>
#include <string.h>

#include "tests/nccl/standin/gpu.h"

#define LINE 128
#define ROWS 6

static uint8_t from[ROWS * LINE], to[ROWS * LINE];
static sem_t held;

static void fill(void)
{
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (uint8_t)(1 + i * 7 % 255);
    }
    memset(to, 0, sizeof(to));
}

static void hold(void *arg)
{
    (void)arg;
    while (sem_wait(&held) != 0) {
    }
}

/* Lines without their flags, then the flags: what the plugin asks for. */
START_TEST(rows_are_copied_and_nothing_between_them)
{
    struct gpu_rows data = {to, from, LINE, LINE, LINE - 8, ROWS};
    struct gpu_rows flags = {to + LINE - 8, from + LINE - 8, LINE, LINE, 8, ROWS};
    struct gpu_stream *s = gpu_stream_new(0);

    fill();
    gpu_copy_rows(&data, s);
    gpu_sync(s);
    for (size_t i = 0; i < ROWS; i++) {
        ck_assert_mem_eq(to + i * LINE, from + i * LINE, LINE - 8);
        for (size_t j = LINE - 8; j < LINE; j++) {
            ck_assert_uint_eq(to[i * LINE + j], 0);
        }
    }
    gpu_copy_rows(&flags, s);
    gpu_sync(s);
    ck_assert_mem_eq(to, from, sizeof(to));
    gpu_stream_free(s);
}
END_TEST

START_TEST(each_side_has_its_pitch)
{
    struct gpu_rows r = {to, from, 40, LINE, 24, ROWS};
    struct gpu_stream *s = gpu_stream_new(0);

    fill();
    gpu_copy_rows(&r, s);
    gpu_sync(s);
    for (size_t i = 0; i < ROWS; i++) {
        ck_assert_mem_eq(to + i * 40, from + i * LINE, 24);
        ck_assert_uint_eq(to[i * 40 + 24], 0);
    }
    gpu_stream_free(s);
}
END_TEST

/* Rows that lie in each other: the first is written last. */
START_TEST(the_last_row_is_first)
{
    struct gpu_rows r = {to, from, 0, LINE, 8, ROWS};
    struct gpu_stream *s = gpu_stream_new(0);

    fill();
    gpu_copy_rows(&r, s);
    gpu_sync(s);
    ck_assert_mem_eq(to, from, 8);
    gpu_stream_free(s);
}
END_TEST

START_TEST(nothing_moves_before_its_turn)
{
    struct gpu_rows r = {to, from, LINE, LINE, LINE, ROWS};
    struct gpu_stream *s = gpu_stream_new(0);
    struct gpu_event *e = gpu_event_new();
    uint8_t before[sizeof(to)] = {0};

    fill();
    ck_assert_int_eq(sem_init(&held, 0, 0), 0);
    gpu_push(s, hold, NULL, false);
    gpu_copy_rows(&r, s);
    gpu_event_record(e, s);
    ck_assert(!gpu_event_done(e));
    ck_assert_mem_eq(to, before, sizeof(to));
    ck_assert_int_eq(sem_post(&held), 0);
    gpu_event_sync(e);
    ck_assert_mem_eq(to, from, sizeof(to));
    gpu_event_free(e);
    gpu_stream_free(s);
}
END_TEST

START_TEST(nothing_of_nothing)
{
    struct gpu_rows none[] = {{to, from, LINE, LINE, 0, ROWS}, {to, from, LINE, LINE, LINE, 0}};
    struct gpu_stream *s = gpu_stream_new(0);
    uint8_t before[sizeof(to)] = {0};

    fill();
    gpu_copy_rows(&none[0], s);
    gpu_copy_rows(&none[1], s);
    gpu_sync(s);
    ck_assert_mem_eq(to, before, sizeof(to));
    gpu_stream_free(s);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, rows_are_copied_and_nothing_between_them);
    tcase_add_test(t, each_side_has_its_pitch);
    tcase_add_test(t, the_last_row_is_first);
    tcase_add_test(t, nothing_moves_before_its_turn);
    tcase_add_test(t, nothing_of_nothing);
}

int main(void)
{
    return suite_run("stand-in: copies of rows", 300, NULL, NULL, add);
}
