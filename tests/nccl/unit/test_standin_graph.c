/* Captures and graphs of the stand-in: what runs when, and what ends a capture. */
#include "tests/unit/suite.h"

#include <pthread.h>
#include <string.h>

#include "tests/nccl/standin/gpu.h"

static uint8_t from[64], to[3][64];
static struct gpu_stream *a, *b;
static struct gpu_event *e;

static void setup(void)
{
    memset(to, 0, sizeof(to));
    memset(from, 7, sizeof(from));
    a = gpu_stream_new(0);
    b = gpu_stream_new(0);
    e = gpu_event_new();
}

static void teardown(void)
{
    gpu_event_free(e);
    gpu_stream_free(a);
    gpu_stream_free(b);
}

static struct gpu_graph *end(void)
{
    struct gpu_graph *g;

    ck_assert_int_eq(gpu_capture_end(a, &g), 0);
    ck_assert_ptr_nonnull(g);
    return g;
}

static void begin(enum gpu_capture_mode mode)
{
    ck_assert_int_eq(gpu_capture_begin(a, mode), 0);
}

/* With what the memory has at the launch. */
START_TEST(a_graph_runs_at_each_launch)
{
    struct gpu_graph *g;

    begin(GPU_CAPTURE_GLOBAL);
    gpu_copy(to[0], from, sizeof(from), a);
    gpu_copy(to[1], to[0], sizeof(from), a);
    g = end();
    gpu_sync(a);
    ck_assert_uint_eq(to[0][0], 0);
    for (uint8_t k = 1; k < 4; k++) {
        memset(from, k, sizeof(from));
        ck_assert_int_eq(gpu_graph_launch(g, k % 2 ? a : b), 0);
        gpu_sync(k % 2 ? a : b);
        ck_assert_mem_eq(to[1], from, sizeof(from));
    }
    gpu_graph_free(g);
}
END_TEST

static _Atomic int destroyed;

static void destroy(void *arg)
{
    destroyed += *(int *)arg;
}

/* A graph that is launched, or can be, keeps what it owns. */
START_TEST(objects_go_with_the_last_use)
{
    struct gpu_graph *g;
    int one = 1;

    begin(GPU_CAPTURE_GLOBAL);
    g = end();
    gpu_graph_object_add(g, destroy, &one);
    gpu_graph_hold(g);
    gpu_graph_free(g);
    ck_assert_int_eq(destroyed, 0);
    gpu_graph_launch(g, a);
    gpu_graph_free(g);
    gpu_sync(a);
    ck_assert_int_eq(destroyed, 1);
}
END_TEST

START_TEST(another_stream_joins_by_an_event)
{
    struct gpu_graph *g;
    unsigned long long id, other;
    bool is_spoiled;

    begin(GPU_CAPTURE_GLOBAL);
    gpu_copy(to[0], from, sizeof(from), a);
    gpu_event_record(e, a);
    ck_assert_int_eq(gpu_event_wait(e, b, false), 0);
    ck_assert_ptr_eq(gpu_capture_of(b, &other, &is_spoiled), gpu_capture_of(a, &id, &is_spoiled));
    ck_assert(id == other && id != 0 && !is_spoiled);
    gpu_copy(to[1], to[0], sizeof(from), b);
    g = end();
    ck_assert_ptr_null(gpu_capture_of(b, &id, &is_spoiled));
    gpu_copy(to[2], from, sizeof(from), b); /* at once again */
    gpu_sync(b);
    ck_assert_mem_eq(to[2], from, sizeof(from));
    ck_assert_uint_eq(to[1][0], 0);
    gpu_graph_launch(g, a);
    gpu_sync(a);
    ck_assert_mem_eq(to[1], from, sizeof(from));
    gpu_graph_free(g);
}
END_TEST

/* A launch is behind what the event was recorded for, and what waits for it is behind the launch.
 */
START_TEST(events_order_launches_and_others)
{
    struct gpu_event *done = gpu_event_new();
    struct gpu_graph *g;

    begin(GPU_CAPTURE_GLOBAL);
    ck_assert_int_eq(gpu_event_wait(e, a, true), 0);
    gpu_copy(to[1], to[0], sizeof(from), a);
    g = end();
    gpu_graph_record_add(g, done);
    gpu_copy(to[0], from, sizeof(from), b);
    gpu_event_record(e, b);
    gpu_graph_launch(g, a);
    ck_assert_int_eq(gpu_event_wait(done, b, false), 0);
    gpu_copy(to[2], to[1], sizeof(from), b);
    gpu_sync(b);
    ck_assert_mem_eq(to[2], from, sizeof(from));
    gpu_sync(a);
    gpu_graph_free(g);
    gpu_event_free(done);
}
END_TEST

static int call_rc;

static void *call_run(void *arg)
{
    int mode = *(int *)arg;

    gpu_capture_mode_swap(&mode);
    call_rc = gpu_unsafe("test");
    return NULL;
}

/* i: the capture's mode x the calling thread's, and whether that is the one that captures */
START_TEST(unsafe_calls)
{
    static const bool forbidden[2][3][3] = {
        {{1, 0, 0}, {0, 0, 0}, {0, 0, 0}}, /* another thread */
        {{1, 1, 0}, {1, 1, 0}, {0, 0, 0}}, /* the same one */
    };
    int mode = _i / 3 % 3, caller = _i % 3, own = _i / 9;
    bool is = forbidden[own][mode][caller];
    struct gpu_graph *g;
    pthread_t t;

    begin((enum gpu_capture_mode)mode);
    if (own) {
        call_run(&caller);
    } else {
        ck_assert_int_eq(pthread_create(&t, NULL, call_run, &caller), 0);
        pthread_join(t, NULL);
    }
    ck_assert_int_eq(call_rc, is ? GPU_CAPTURE_UNSUPPORTED : 0);
    ck_assert_int_eq(gpu_capture_end(a, &g), is ? GPU_CAPTURE_INVALIDATED : 0);
    ck_assert(is == (g == NULL));
    if (g) {
        gpu_graph_free(g);
    }
}
END_TEST

/* i: waits for what is not in the graph; asks for the stream, for the event; two captures meet */
START_TEST(what_ends_a_capture)
{
    struct gpu_stream *c = gpu_stream_new(0);
    int mode = GPU_CAPTURE_RELAXED, rc = 0;
    struct gpu_graph *g;

    gpu_capture_mode_swap(&mode);
    gpu_event_record(e, b);
    begin(GPU_CAPTURE_RELAXED);
    if (_i == 0) {
        rc = gpu_event_wait(e, a, false);
        ck_assert_int_eq(rc, GPU_CAPTURE_ISOLATION);
    } else if (_i == 1) {
        ck_assert_int_eq(gpu_unsafe_on("test", a), GPU_CAPTURE_UNSUPPORTED);
    } else if (_i == 2) {
        gpu_event_record(e, a);
        ck_assert_int_eq(gpu_unsafe_at("test", e), GPU_CAPTURED_EVENT);
    } else {
        gpu_event_record(e, a);
        ck_assert_int_eq(gpu_capture_begin(c, GPU_CAPTURE_RELAXED), 0);
        ck_assert_int_eq(gpu_event_wait(e, c, false), GPU_CAPTURE_MERGE);
        ck_assert_int_eq(gpu_capture_end(c, &g), GPU_CAPTURE_INVALIDATED);
    }
    ck_assert_int_eq(gpu_capture_end(a, &g), GPU_CAPTURE_INVALIDATED);
    ck_assert_ptr_null(g);
    gpu_stream_free(c);
}
END_TEST

START_TEST(ends_where_it_began)
{
    struct gpu_graph *g;

    ck_assert_int_eq(gpu_capture_end(a, &g), GPU_ILLEGAL_STATE);
    begin(GPU_CAPTURE_GLOBAL);
    ck_assert_int_eq(gpu_capture_begin(a, GPU_CAPTURE_GLOBAL), GPU_ILLEGAL_STATE);
    gpu_event_record(e, a);
    gpu_event_wait(e, b, false);
    ck_assert_int_eq(gpu_capture_end(b, &g), GPU_CAPTURE_UNMATCHED);
    gpu_graph_free(end());
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_graph_runs_at_each_launch);
    tcase_add_test(t, objects_go_with_the_last_use);
    tcase_add_test(t, another_stream_joins_by_an_event);
    tcase_add_test(t, events_order_launches_and_others);
    tcase_add_loop_test(t, unsafe_calls, 0, 18);
    tcase_add_loop_test(t, what_ends_a_capture, 0, 4);
    tcase_add_test(t, ends_where_it_began);
}

int main(void)
{
    return suite_run("standin_graph", 60, setup, teardown, add);
}
