/* Names that are no option's: near ones, ours, NCCL's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_config_names.h"

static const struct {
    const char *name;
    int odd;
    const char *near;
} names[] = {
    {"NCCL_R2_FAILOVR", 1, "NCCL_R2_FAILOVER"},
    {"NCL_R2_FAILOVER", 1, "NCCL_R2_FAILOVER"},
    {"nccl_r2_failover", 1, "NCCL_R2_FAILOVER"},
    {"NCCL_R2_TIMEOUT", 1, NULL},
    {"NCCL_R2_", 1, NULL},
    {"NCCL_R2", 0, NULL},
    {"R2_ACCESS_KEY_ID", 0, NULL},
    /* NCCL's: one letter */
    {"NCCL_IB_TIMEOUTS", 1, "NCCL_IB_TIMEOUT"},
    {"NCCL_IB_TMEOUT", 1, "NCCL_IB_TIMEOUT"},
    {"NCCL_IB_hca", 1, "NCCL_IB_HCA"},
    {"NCCLIB_HCA", 1, "NCCL_IB_HCA"},
    {"NCCL_IB_HAC", 0, NULL},
    {"NCCL_IB_TIMOUTS", 0, NULL},
    {"UNCCL_IB_HCA", 0, NULL},
    {"_NCCL_IB_HCA", 0, NULL},
    {"NCCL_SOCKET_IFNAMES", 0, NULL},
    {"NCCL_DEBUG", 0, NULL},
    {"", 0, NULL},
};

START_TEST(odd_or_somebody_elses)
{
    const char *near = "?";

    ck_assert_int_eq(r2_config_name_odd(names[_i].name, &near), names[_i].odd);
    ck_assert_pstr_eq(near, names[_i].near);
}
END_TEST

START_TEST(of_nccls_transport)
{
    static const char *const its[] = {"NCCL_IB_MERGE_NICS", "NCCL_IB_FIFO_TC",
                                      "NCCL_IB_RESILIENCY_PORT_FAILOVER", "NCCL_IB_CUDA_SUPPORT"};
    static const char *const not_its[] = {"NCCL_IB_HCA",     "NCCL_IB_MERGE", "MERGE_NICS",
                                          "NCCL_MERGE_NICS", "NCCL_IB_",      ""};
    const char *near;

    for (size_t i = 0; i < sizeof(its) / sizeof(its[0]); i++) {
        ck_assert_int_eq(r2_config_name_is_nccls(its[i]), 1);
        ck_assert_int_eq(r2_config_name_odd(its[i], &near), 0);
    }
    for (size_t i = 0; i < sizeof(not_its) / sizeof(not_its[0]); i++) {
        ck_assert_int_eq(r2_config_name_is_nccls(not_its[i]), 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config: names");
    TCase *t = tcase_create("names");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, odd_or_somebody_elses, 0, sizeof(names) / sizeof(names[0]));
    tcase_add_test(t, of_nccls_transport);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
