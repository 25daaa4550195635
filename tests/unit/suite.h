/* main() of a suite of one test case: Check's set-up, once for all rigs. */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>
#include <stdlib.h>

/* @setup, @teardown: around each test, in its process; NULL: none. @limit_s: a bound against hangs.
 * Returns the exit status. */
static inline int suite_run(const char *name, int limit_s, void (*setup)(void),
                            void (*teardown)(void), void (*add)(TCase *t))
{
    Suite *s = suite_create(name);
    TCase *t = tcase_create(name);
    SRunner *r;
    int failed;

    tcase_set_timeout(t, limit_s);
    tcase_add_checked_fixture(t, setup, teardown);
    add(t);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
