/* The promises of r2_oob.h over TCP, and the plugin's door to MPI in a process that has none. */
#include "tests/unit/test_oob_conform_suite.h"

START_TEST(no_module_in_the_process)
{
    struct r2_oob_events ev = {NULL, told_message, told_up, told_down};
    char why[256] = "";

    ck_assert_ptr_null(mpi_make(&ev, why, sizeof(why)));
    ck_assert_ptr_nonnull(strstr(why, "LD_PRELOAD"));
}
END_TEST

static void begin_tcp(void)
{
    backend = BY_TCP;
    fresh();
}

int main(void)
{
    Suite *s = suite_create("oob_conform");
    TCase *t = tcase_create("alone");

    promises(s, "tcp", begin_tcp);
    tcase_add_checked_fixture(t, begin_tcp, end_all);
    tcase_add_test(t, no_module_in_the_process);
    suite_add_tcase(s, t);
    return conform_run(s);
}
