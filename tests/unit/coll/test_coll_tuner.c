/* Which library of NCCL_NET_PLUGIN is named as NCCL's tuner. */
#include <check.h>
#include <string.h>

#include "coll/coll_tuner.h"
#include "tests/unit/suite.h"

static const struct {
    const char *net, *file; /* file NULL: none */
} cases[] = {
    {"r2", "libnccl-net-r2.so"},
    {"libnccl-net-r2.so", "libnccl-net-r2.so"},
    {"libnccl-net-r2.so.0", "libnccl-net-r2.so.0"},
    {"/opt/r2/libnccl-net-r2.so", "/opt/r2/libnccl-net-r2.so"},
    {"/opt/r2/libnccl-net.so", "/opt/r2/libnccl-net.so"},
    {"spcx,r2", "libnccl-net-r2.so"},
    {"r2,spcx", "libnccl-net-r2.so"},
    {",,/a,b/libnccl-net-r2.so,r2", "b/libnccl-net-r2.so"},
    {"r2,/opt/r2/libnccl-net-r2.so", "libnccl-net-r2.so"},
    {NULL, NULL},
    {"", NULL},
    {",", NULL},
    {"none", NULL},
    {"spcx", NULL},
    {"r", NULL},
    {"r2x", NULL},
    {"/r2", NULL},
    {"/opt/r2,/opt/libnccl-net-ofi.so", NULL},
};

START_TEST(first_that_is_ours)
{
    char file[64] = "before";

    ck_assert_int_eq(coll_tuner_file(cases[_i].net, file, sizeof(file)), cases[_i].file != NULL);
    ck_assert_str_eq(file, cases[_i].file != NULL ? cases[_i].file : "");
}
END_TEST

START_TEST(longer_than_there_is_room)
{
    char file[sizeof("libnccl-net-r2.so")];

    ck_assert(coll_tuner_file("r2", file, sizeof(file)));
    ck_assert(!coll_tuner_file("r2", file, sizeof(file) - 1));
    ck_assert_str_eq(file, "");
    ck_assert(coll_tuner_file("/libnccl-net-r2.so,r2", file, sizeof(file)));
    ck_assert_str_eq(file, "libnccl-net-r2.so");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, first_that_is_ours, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(t, longer_than_there_is_room);
}

int main(void)
{
    return suite_run("coll_tuner", 60, NULL, NULL, add);
}
