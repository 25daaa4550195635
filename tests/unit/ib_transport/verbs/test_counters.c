/* Error counters of a port, from a directory that looks like sysfs. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/ib_transport/verbs/ib_counters.h"
#include "tests/unit/suite.h"

static char dir[64];

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-counters-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void run(const char *what, const char *below)
{
    char cmd[200];

    snprintf(cmd, sizeof(cmd), "%s %s%s", what, dir, below);
    ck_assert_int_eq(system(cmd), 0);
}

static void teardown(void)
{
    run("rm -r", "");
}

static void put(const char *file, const char *text)
{
    char path[200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/ports/2/%s", dir, file);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static int number_of(const char *name)
{
    for (int i = 0; i < IB_COUNTERS; i++) {
        if (strcmp(ib_counters_name(i), name) == 0) {
            return i;
        }
    }
    ck_abort_msg("no counter %s", name);
    return -1;
}

START_TEST(every_counter_has_its_own_name)
{
    for (int i = 0; i < IB_COUNTERS; i++) {
        ck_assert_ptr_nonnull(ib_counters_name(i));
        ck_assert_int_eq(number_of(ib_counters_name(i)), i);
    }
}
END_TEST

START_TEST(what_a_file_says)
{
    static const struct {
        const char *text;
        int known;
        uint64_t value;
    } row[] = {
        {"0\n", 1, 0},
        {"41\n", 1, 41},
        {"18446744073709551615\n", 1, UINT64_MAX},
        {"18446744073709551616\n", 0, 0},
        {"7", 1, 7},
        {"N/A (no PMA)\n", 0, 0},
        {"", 0, 0},
        {"-1\n", 0, 0},
        {"12 x\n", 0, 0},
    };
    struct ib_counters c;
    int i = number_of("symbol_error"), h = number_of("out_of_sequence");

    ck_assert_int_eq(ib_counters_there(dir, 2), 0);
    run("mkdir -p", "/ports/2/hw_counters");
    ck_assert_int_eq(ib_counters_there(dir, 2), 1);
    ck_assert_int_eq(ib_counters_there(dir, 1), 0);
    run("mkdir -p", "/ports/2/counters");
    put("hw_counters/out_of_sequence", "9\n");
    put("hw_counters/symbol_error", "1000\n"); /* not its place */
    for (unsigned r = 0; r < sizeof(row) / sizeof(row[0]); r++) {
        put("counters/symbol_error", row[r].text);
        ib_counters_read(dir, 2, &c);
        ck_assert_msg((int)(c.known >> i & 1) == row[r].known &&
                          (!row[r].known || c.value[i] == row[r].value),
                      "'%s'", row[r].text);
        ck_assert_uint_eq(c.known & ~(1u << i), 1u << h);
        ck_assert_uint_eq(c.value[h], 9);
    }
}
END_TEST

START_TEST(only_growth_says_something)
{
    struct ib_counters before = {.value = {5, 5, 5, 5, 5}, .known = 0x1d},
                       after = {.value = {9, 9, 5, 3, 9}, .known = 0xf};

    ck_assert_uint_eq(ib_counters_grown(&before, &after, 0), 4);
    ck_assert_uint_eq(ib_counters_grown(&before, &after, 1), 0); /* was not known before */
    ck_assert_uint_eq(ib_counters_grown(&before, &after, 2), 0);
    ck_assert_uint_eq(ib_counters_grown(&before, &after, 3), 0); /* was reset */
    ck_assert_uint_eq(ib_counters_grown(&before, &after, 4), 0); /* is not known any more */
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, every_counter_has_its_own_name);
    tcase_add_test(t, what_a_file_says);
    tcase_add_test(t, only_growth_says_something);
}

int main(void)
{
    return suite_run("counters", 60, setup, teardown, add);
}
