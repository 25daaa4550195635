/* Events: the text of a line, and a file that several processes append to and turn over. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/telemetry/r2_event.h"
#include "plugin/base/r2_json.h"
#include "tests/unit/fsize.h"
#include "tests/unit/suite.h"

static char dir[64], path[128], old[160], why[700];
static const struct r2_event_source source = {.host = "n\"1",
                                              .command = "train",
                                              .version = "0.1",
                                              .boot_id = "b",
                                              .scheduler = "slurm",
                                              .job = "7",
                                              .pid = 12,
                                              .cuda_dev = -1,
                                              .digest = 0xabc};

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-event-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/events", dir);
    snprintf(old, sizeof(old), "%s.1", path);
}

static void teardown(void)
{
    unlink(path);
    unlink(old);
    ck_assert_msg(rmdir(dir) == 0, "%s is not empty", dir);
}

/* --- text --- */

START_TEST(json_escapes)
{
    char out[256];
    struct r2_json j;

    r2_json_begin(&j, out, sizeof(out));
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "a\"", "x\\y\n\x01\x7f\xc3\xa4 end");
    r2_json_open(&j, "l", '[');
    r2_json_int(&j, NULL, INT64_MIN);
    r2_json_uint(&j, NULL, UINT64_MAX);
    r2_json_null(&j, NULL);
    r2_json_close(&j, ']');
    r2_json_text(&j, "n", NULL);
    r2_json_close(&j, '}');
    ck_assert_uint_eq(r2_json_end(&j), strlen(out));
    ck_assert_str_eq(out,
                     "{\"a\\\"\":\"x\\\\y\\n\\u0001??? "
                     "end\",\"l\":[-9223372036854775808,18446744073709551615,null],\"n\":null}");
}
END_TEST

/* No bound, and text as it came. */
START_TEST(json_goes_to_a_file)
{
    static const uint8_t gid[16] = {0xfe, 0x80, [15] = 0x1f};
    char *out = NULL;
    size_t len;
    FILE *f = open_memstream(&out, &len);
    struct r2_json j;

    r2_json_begin_file(&j, f);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "t", "\t\"\xc3\xa4");
    r2_json_open(&j, "r", '[');
    r2_json_real(&j, NULL, -0.5);
    r2_json_real(&j, NULL, 1e300 * 1e10);
    r2_json_bool(&j, NULL, true);
    r2_json_open(&j, NULL, '{');
    r2_json_close(&j, '}');
    r2_json_close(&j, ']');
    r2_json_time(&j, "ms", 1700000000123456789ull, 3);
    r2_json_gid(&j, "gid", gid);
    r2_json_close(&j, '}');
    fclose(f);
    ck_assert_str_eq(out, "{\"t\":\"\\t\\\"\xc3\xa4\",\"r\":[-0.500000,null,true,{}],\"ms\":"
                          "\"2023-11-14T22:13:20.123Z\",\"gid\":"
                          "\"fe80:0000:0000:0000:0000:0000:0000:001f\"}");
    free(out);
}
END_TEST

static struct r2_event a_switch(void)
{
    struct r2_event e = r2_event_empty;

    e.kind = R2_EVENT_SWITCH;
    e.when_ns = 1700000000123456789ull;
    e.mono_ns = 5;
    e.nic = (struct r2_event_nic){.device = "mlx5_3",
                                  .pci = "0000:9c:00.0",
                                  .netdev = "eth\"3",
                                  .fw = "28.39",
                                  .guid = 0x1234,
                                  .port = 1,
                                  .lid = 9,
                                  .rail = 3};
    e.peer.host = "n2";
    e.how = "port_event";
    e.stall_us = 1800;
    e.replayed_bytes = 0;
    e.connections = 24;
    e.capacity.all = 8;
    e.capacity.up = 7;
    return e;
}

START_TEST(a_line_is_what_the_schema_says)
{
    struct r2_event e = a_switch();
    char out[R2_EVENT_LINE];
    size_t n = r2_event_line(out, sizeof(out), &source, &e, 3);

    ck_assert_uint_eq(n, strlen(out));
    ck_assert_str_eq(
        out,
        "{\"schema\":\"r2.event/"
        "1\",\"ts\":\"2023-11-14T22:13:20.123456789Z\",\"mono_ns\":5,\"boot_id\":\"b\",\"seq\":3,"
        "\"host\":\"n\\\"1\",\"job\":{\"scheduler\":\"slurm\",\"id\":\"7\"},\"pid\":12,\"cuda_dev\":null,\"kind\":"
        "\"switch\","
        "\"severity\":\"info\",\"nic\":{\"device\":\"mlx5_3\",\"port\":1,\"pci\":\"0000:9c:00.0\",\"netdev\":\"eth\\\"3\",\"fw\":\"28.39\",\"guid\":"
        "\"0000000000001234\","
        "\"gid\":\"0000:0000:0000:0000:0000:0000:0000:0000\",\"lid\":9,\"rail\":3},\"peer\":{\"host\":\"n2\"},"
        "\"cause\":{\"how\":\"port_event\"},\"stall_us\":1800,\"replayed_bytes\":0,\"connections\":24,"
        "\"capacity\":[8,7]}\n");
}
END_TEST

/* Whatever the room is: a whole line, or none, and nothing behind it is touched. */
START_TEST(a_line_that_does_not_fit_is_none)
{
    struct r2_event e = a_switch();
    char out[R2_EVENT_LINE], whole[R2_EVENT_LINE];
    size_t len = r2_event_line(whole, sizeof(whole), &source, &e, 3);

    for (size_t room = 0; room < len + 8; room++) {
        size_t n;

        memset(out, 'x', sizeof(out));
        n = r2_event_line(out, room, &source, &e, 3);
        ck_assert_uint_eq(n, room >= len + 1 ? len : 0);
        ck_assert_msg(n == 0 || strcmp(out, whole) == 0, "room %zu", room);
        size_t touched = room; /* an assertion of Check is a system call: one for each room */
        while (touched < sizeof(out) && out[touched] == 'x') {
            touched++;
        }
        ck_assert_msg(touched >= sizeof(out), "room %zu: byte %zu", room, touched);
    }
}
END_TEST

START_TEST(every_kind_has_a_name)
{
    for (unsigned k = 0; k < R2_EVENT_KINDS; k++) {
        ck_assert_str_ne(r2_event_kind_name(k), "?");
    }
    ck_assert_str_eq(r2_event_kind_name(R2_EVENT_KINDS), "?");
    ck_assert_str_eq(r2_event_severity_name(R2_EVENT_SEVERITIES), "?");
}
END_TEST

/* --- file --- */

static off_t size_of(const char *p)
{
    struct stat st;

    return stat(p, &st) == 0 ? st.st_size : -1;
}

#define WRITERS 4
#define LINES   2000

static int writer(int who)
{
    struct r2_event_file f;
    char line[64];

    if (r2_event_file_init(&f, path, 16384) != 0) {
        return 1;
    }
    for (int i = 0; i < LINES; i++) {
        int n = snprintf(line, sizeof(line), "%d %06d the rest of the line\n", who, i);

        r2_event_append(&f, line, (size_t)n, why, sizeof(why));
    }
    r2_event_file_close(&f);
    return f.written == LINES && f.failed == 0 ? 0 : 1;
}

/* Every line of @name is whole, and those of one writer are in order, and the last ones are there.
 */
static void lines_check(const char *name, int last[WRITERS])
{
    FILE *f = fopen(name, "r");
    char line[128];

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        int who, i, end = 0;

        ck_assert_msg(sscanf(line, "%d %d the rest of the line%n", &who, &i, &end) == 2 &&
                          end > 0 && line[end] == '\n',
                      "'%s'", line);
        ck_assert(who >= 0 && who < WRITERS && i < LINES);
        last[who] = i > last[who] ? i : last[who];
    }
    fclose(f);
}

START_TEST(several_writers_and_a_bound)
{
    int last[WRITERS] = {-1, -1, -1, -1}, status;
    pid_t pid[WRITERS];

    for (int w = 0; w < WRITERS; w++) {
        pid[w] = fork();
        if (pid[w] == 0) {
            _exit(writer(w));
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        ck_assert_int_eq(waitpid(pid[w], &status, 0), pid[w]);
        ck_assert_int_eq(status, 0);
    }
    lines_check(old, last);
    lines_check(path, last);
    ck_assert_int_gt(last[0] + last[1] + last[2] + last[3], -4);
    /* each may have looked just before the others wrote their line */
    ck_assert_int_le(size_of(path), 2 * 16384 + WRITERS * 64);
    ck_assert_int_le(size_of(old), 2 * 16384 + WRITERS * 64);
}
END_TEST

/* Whoever turns the file over is stopped in between: the others go on, and no line is lost. */
START_TEST(who_holds_the_lock_stands_still)
{
    char line[64];
    struct r2_event_file f;
    int n = snprintf(line, sizeof(line), "%d %06d the rest of the line\n", 0, 0), holder;

    ck_assert_int_eq(r2_event_file_init(&f, path, 1000), 0);
    ck_assert_int_eq(r2_event_append(&f, line, (size_t)n, why, sizeof(why)), 0);
    holder = open(path, O_RDONLY);
    ck_assert_int_eq(flock(holder, LOCK_EX), 0);
    while (size_of(path) + n <= 2000) {
        ck_assert_int_eq(r2_event_append(&f, line, (size_t)n, why, sizeof(why)), 0);
    }
    ck_assert_int_eq(size_of(old), -1); /* the lock was seen */
    ck_assert_int_eq(r2_event_append(&f, line, (size_t)n, why, sizeof(why)), 0);
    ck_assert_int_eq(size_of(path), n);
    ck_assert_int_gt(size_of(old), 1000);
    ck_assert_int_le(size_of(old), 2000);
    ck_assert_uint_eq(f.failed, 0);
    close(holder);
    r2_event_file_close(&f);
}
END_TEST

/* FILE.1 cannot be taken: the file grows to twice its size, then lines are lost and say why, until
 * it can. */
START_TEST(cannot_be_turned_over)
{
    struct r2_event_file f;

    ck_assert_int_eq(r2_event_file_init(&f, path, 10), 0);
    ck_assert_int_eq(mkdir(old, 0700), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(r2_event_append(&f, "1234\n", 5, why, sizeof(why)), 0);
    }
    ck_assert_int_eq(r2_event_append(&f, "1234\n", 5, why, sizeof(why)), -1);
    ck_assert_msg(strstr(why, "cannot be turned over") && strstr(why, strerror(EISDIR)), "%s", why);
    ck_assert_int_eq(size_of(path), 20);
    ck_assert_int_eq(rmdir(old), 0);
    ck_assert_int_eq(r2_event_append(&f, "1234\n", 5, why, sizeof(why)), 0);
    ck_assert_int_eq(size_of(path), 5);
    ck_assert_int_eq(size_of(old), 20);
    ck_assert_uint_eq(f.failed, 1);
    r2_event_file_close(&f);
}
END_TEST

START_TEST(only_a_file_of_ours)
{
    struct r2_event_file f;

    ck_assert_int_eq(r2_event_file_init(&f, path, 1000), 0);
    ck_assert_int_eq(r2_event_append(&f, "a\n", 2, why, sizeof(why)), 0);
    ck_assert_int_eq(size_of(path), 2);
    ck_assert_int_eq(rename(path, old), 0);
    ck_assert_int_eq(symlink(old, path), 0); /* to one that is in order */
    ck_assert_int_eq(r2_event_append(&f, "b\n", 2, why, sizeof(why)), -1);
    ck_assert_msg(strstr(why, strerror(ELOOP)) != NULL, "%s", why);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody reads it: no waiting */
    ck_assert_int_eq(r2_event_append(&f, "b\n", 2, why, sizeof(why)), -1);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rename(old, path), 0);
    ck_assert_int_eq(chmod(path, 0622), 0);
    ck_assert_int_eq(r2_event_append(&f, "b\n", 2, why, sizeof(why)), -1);
    ck_assert_msg(strstr(why, "written by others") != NULL, "%s", why);
    if (geteuid() == 0) {
        ck_assert_int_eq(chmod(path, 0600), 0);
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        ck_assert_int_eq(r2_event_append(&f, "b\n", 2, why, sizeof(why)), -1);
        ck_assert_int_eq(chown(path, 0, 0), 0);
    }
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(r2_event_append(&f, "c\n", 2, why, sizeof(why)), 0); /* in order again */
    ck_assert_int_eq(size_of(path), 4);
    ck_assert_uint_eq(f.written, 2);
    ck_assert_uint_ge(f.failed, 3);
    r2_event_file_close(&f);
}
END_TEST

START_TEST(no_room_is_counted)
{
    struct r2_event_file f;
    char text[32] = "";
    int fd;

    ck_assert_int_eq(r2_event_file_init(&f, path, 1000), 0);
    ck_assert_int_eq(FSIZE_LIMITED(8, r2_event_append(&f, "12345\n", 6, why, sizeof(why))), 0);
    ck_assert_int_eq(FSIZE_LIMITED(8, r2_event_append(&f, "67890\n", 6, why, sizeof(why))),
                     -1); /* half of it is there */
    ck_assert_int_eq(FSIZE_LIMITED(8, r2_event_append(&f, "67890\n", 6, why, sizeof(why))), -1);
    ck_assert_uint_eq(f.failed, 2);
    ck_assert_int_eq(r2_event_append(&f, "abcde\n", 6, why, sizeof(why)), 0);
    fd = open(path, O_RDONLY);
    ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
    close(fd);
    ck_assert_str_eq(text, "12345\n67\nabcde\n"); /* one line is spoilt, not two */
    r2_event_file_close(&f);
}
END_TEST

START_TEST(names_that_are_too_long)
{
    struct r2_event_file f;
    char longest[1000];

    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    ck_assert_int_eq(r2_event_file_init(&f, longest, 1000), -1);
    ck_assert_int_eq(r2_event_path(longest, 0, path, sizeof(path)), -1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, json_escapes);
    tcase_add_test(t, json_goes_to_a_file);
    tcase_add_test(t, a_line_is_what_the_schema_says);
    tcase_add_test(t, a_line_that_does_not_fit_is_none);
    tcase_add_test(t, every_kind_has_a_name);
    tcase_add_test(t, several_writers_and_a_bound);
    tcase_add_test(t, who_holds_the_lock_stands_still);
    tcase_add_test(t, cannot_be_turned_over);
    tcase_add_test(t, only_a_file_of_ours);
    tcase_add_test(t, no_room_is_counted);
    tcase_add_test(t, names_that_are_too_long);
}

int main(void)
{
    return suite_run("event", 60, setup, teardown, add);
}
