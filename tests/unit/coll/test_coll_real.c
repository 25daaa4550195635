/* Which NCCL is below libr2coll.so, and what may be asked of it. */
#include <check.h>

#include "coll/coll_real.h"
#include "tests/unit/suite.h"

/* Those whose source was read for it: 2.28.0 to 2.30, whatever its patch. */
START_TEST(releases_that_were_read)
{
    ck_assert(!coll_real_version_defers_aborts(0));
    ck_assert(!coll_real_version_defers_aborts(22707));
    ck_assert(coll_real_version_defers_aborts(22800));
    ck_assert(coll_real_version_defers_aborts(22809));
    ck_assert(coll_real_version_defers_aborts(23007));
    ck_assert(!coll_real_version_defers_aborts(23100));
}
END_TEST

START_TEST(no_nccl)
{
    ck_assert_ptr_null(coll_real_get());
    ck_assert(!coll_real_defers_aborts());
    ck_assert_ptr_null(coll_cuda_get());
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, releases_that_were_read);
    tcase_add_test(t, no_nccl);
}

int main(void)
{
    return suite_run("coll_real", 60, NULL, NULL, add);
}
