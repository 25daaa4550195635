#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_env.h"
#include "base/r2_log.h"
#include "base/r2_status.h"

#define KEEP 4096

static struct seen {
    enum r2_log_level level;
    char text[1024];
} seen[KEEP];
static int seen_count;
static atomic_int in_sink;

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    ck_assert_int_eq(atomic_fetch_add(&in_sink, 1), 0);
    ck_assert(strstr(file, "test_log.c") != NULL || strstr(msg, "dropped") != NULL ||
              strstr(msg, " more ") != NULL);
    if (seen_count < KEEP) {
        seen[seen_count].level = level;
        snprintf(seen[seen_count].text, sizeof(seen[0].text), "%s", msg);
    }
    seen_count++;
    atomic_fetch_sub(&in_sink, 1);
}

static void use_sink(void)
{
    seen_count = 0;
    r2_log_sink_set(sink);
}

START_TEST(prefix_order_and_level)
{
    use_sink();
    r2_log_level_set(R2_LOG_INFO);
    R2_INFO("one %d", 1);
    R2_TRACE("not wanted");
    R2_WARN("two");
    ck_assert_int_eq(seen_count, 0); /* nobody but flush calls the sink */
    r2_log_flush();
    ck_assert_int_eq(seen_count, 2);
    ck_assert_str_eq(seen[0].text, "NET/R2 : one 1");
    ck_assert_int_eq(seen[0].level, R2_LOG_INFO);
    ck_assert_str_eq(seen[1].text, "NET/R2 : two");
    ck_assert_int_eq(seen[1].level, R2_LOG_WARN);
    r2_log_level_set(R2_LOG_TRACE);
    R2_TRACE("wanted");
    r2_log_flush();
    ck_assert_int_eq(seen_count, 3);
    r2_log_level_set(R2_LOG_WARN);
    R2_INFO("not wanted");
    r2_log_flush();
    ck_assert_int_eq(seen_count, 3);
}
END_TEST

/* Of a kind of which there are many: the first ones, and how many more; another kind and other
 * lines are not touched; at TRACE all. */
START_TEST(many_lines_are_counted)
{
    use_sink();
    r2_log_level_set(_i ? R2_LOG_TRACE : R2_LOG_INFO);
    for (int i = 0; i < 100; i++) {
        R2_INFO_MANY(R2_LOG_CONNECTED, "send %d connected", i);
    }
    R2_WARN_MANY(R2_LOG_ENDS, "send 1 ends");
    R2_INFO("one");
    r2_log_flush();
    ck_assert_int_eq(seen_count, (_i ? 100 : R2_LOG_FIRST) + 2);
    ck_assert_str_eq(seen[15].text, "NET/R2 : send 15 connected");
    ck_assert_str_eq(seen[seen_count - 2].text, "NET/R2 : send 1 ends");
    ck_assert_int_eq(seen[seen_count - 2].level, R2_LOG_WARN);
    r2_log_many_over();
    r2_log_flush();
    if (_i == 0) {
        ck_assert_int_eq(seen_count, R2_LOG_FIRST + 3);
        ck_assert_str_eq(seen[seen_count - 1].text,
                         "NET/R2 : 84 more connections are up (r2_stat -c lists them)");
        ck_assert_int_eq(seen[seen_count - 1].level, R2_LOG_INFO);
    }
    seen_count = 0;
    R2_INFO_MANY(R2_LOG_CONNECTED, "send 100 connected"); /* it began anew */
    r2_log_many_over();
    r2_log_flush();
    ck_assert_int_eq(seen_count, 1);
}
END_TEST

START_TEST(long_lines_and_line_ends)
{
    char big[3000];

    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    use_sink();
    R2_INFO("%s", big);
    R2_INFO("a\nb\n");
    r2_log_flush();
    ck_assert_int_eq(seen_count, 2);
    ck_assert_uint_eq(strlen(seen[0].text), 899);
    ck_assert_str_eq(seen[1].text, "NET/R2 : a b ");
}
END_TEST

/* A full queue gives up old INFO lines, never a WARN, and says how many. */
START_TEST(full_queue_keeps_warnings)
{
    int infos = 0, warns = 0;

    use_sink();
    R2_WARN("first");
    for (int i = 0; i < 1000; i++) {
        R2_INFO("info %d", i);
    }
    R2_WARN("last");
    ck_assert_uint_eq(r2_log_dropped(), 1002 - 256);
    r2_log_flush();
    for (int i = 0; i < seen_count; i++) {
        infos += strstr(seen[i].text, ": info ") != NULL;
        warns += seen[i].level == R2_LOG_WARN;
    }
    ck_assert_int_eq(infos, 254);
    ck_assert_int_eq(warns, 2);
    ck_assert_str_eq(seen[0].text, "NET/R2 : first");
    ck_assert_str_eq(seen[254].text, "NET/R2 : info 999");
    ck_assert_str_eq(seen[255].text, "NET/R2 : last");
    ck_assert_int_eq(seen_count, 257);
    ck_assert_str_eq(seen[256].text, "NET/R2 : 746 log lines dropped: the queue was full");
    r2_log_flush();
    ck_assert_int_eq(seen_count, 257); /* said once */
}
END_TEST

START_TEST(full_of_warnings)
{
    use_sink();
    for (int i = 0; i < 300; i++) {
        R2_WARN("warn %d", i);
    }
    R2_INFO("no room for this");
    r2_log_flush();
    ck_assert_int_eq(seen_count, 257);
    ck_assert_str_eq(seen[0].text, "NET/R2 : warn 44");
    ck_assert_str_eq(seen[255].text, "NET/R2 : warn 299");
    ck_assert_uint_eq(r2_log_dropped(), 45);
    R2_INFO("room again");
    r2_log_flush();
    ck_assert_str_eq(seen[257].text, "NET/R2 : room again");
}
END_TEST

START_TEST(no_sink_drops_and_new_sink_gets_the_queue)
{
    seen_count = 0;
    r2_log_sink_set(NULL);
    R2_INFO("gone");
    r2_log_flush();
    R2_INFO("kept");
    r2_log_sink_set(sink);
    r2_log_flush();
    ck_assert_int_eq(seen_count, 1);
    ck_assert_str_eq(seen[0].text, "NET/R2 : kept");
}
END_TEST

static void calling_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    seen_count++;
    if (strstr(msg, "outer") != NULL) {
        R2_INFO("inner");
        r2_log_flush();
        ck_assert_int_eq(seen_count, 1); /* not handed out inside of itself */
    }
}

START_TEST(sink_may_call_back)
{
    seen_count = 0;
    r2_log_sink_set(calling_sink);
    R2_INFO("outer");
    r2_log_flush();
    ck_assert_int_eq(seen_count, 2);
}
END_TEST

#define WRITERS 4
#define PER     200

static void *writer(void *arg)
{
    for (int i = 0; i < PER; i++) {
        R2_INFO("writer %d line %d", (int)(intptr_t)arg, i);
        r2_log_flush();
    }
    return NULL;
}

/* Each thread flushes after each line, so nothing may be dropped, overtaken or handed to the sink
 * by two at once. */
START_TEST(many_writers)
{
    pthread_t t[WRITERS];
    int next[WRITERS] = {0}, w, n;

    use_sink();
    for (int i = 0; i < WRITERS; i++) {
        ck_assert_int_eq(pthread_create(&t[i], NULL, writer, (void *)(intptr_t)i), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(t[i], NULL);
    }
    ck_assert_int_eq(seen_count, WRITERS * PER);
    for (int i = 0; i < seen_count; i++) {
        ck_assert_int_eq(sscanf(seen[i].text, "NET/R2 : writer %d line %d", &w, &n), 2);
        ck_assert_int_eq(n, next[w]++);
    }
}
END_TEST

START_TEST(status_has_a_name_for_each)
{
    for (int i = 0; i < R2_STATUS_COUNT; i++) {
        ck_assert_str_ne(r2_status_name((enum r2_status)i), "unknown status");
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(r2_status_name((enum r2_status)i), r2_status_name((enum r2_status)j));
        }
    }
    ck_assert_str_eq(r2_status_name(R2_STATUS_COUNT), "unknown status");
}
END_TEST

START_TEST(environment_is_real)
{
    struct r2_env e;
    uint64_t a[4] = {0}, b[4] = {0}, t;

    r2_env_default(&e);
    t = e.now_ns(e.arg);
    ck_assert_uint_ge(e.now_ns(e.arg), t);
    e.random(e.arg, a, sizeof(a));
    e.random(e.arg, b, sizeof(b));
    ck_assert_mem_ne(a, b, sizeof(a));
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_ne(a[i], 0);
    }
    ck_assert_int_eq(e.threads, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("log");
    TCase *t = tcase_create("log");
    SRunner *r;
    int failed;

    tcase_add_test(t, prefix_order_and_level);
    tcase_add_test(t, long_lines_and_line_ends);
    tcase_add_loop_test(t, many_lines_are_counted, 0, 2);
    tcase_add_test(t, full_queue_keeps_warnings);
    tcase_add_test(t, full_of_warnings);
    tcase_add_test(t, no_sink_drops_and_new_sink_gets_the_queue);
    tcase_add_test(t, sink_may_call_back);
    tcase_add_test(t, many_writers);
    tcase_add_test(t, status_has_a_name_for_each);
    tcase_add_test(t, environment_is_real);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
