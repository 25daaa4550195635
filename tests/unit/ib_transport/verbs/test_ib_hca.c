#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib_transport/verbs/ib_hca.h"

static int chosen(const char *spec, const char *name, int port)
{
    struct ib_hca_filter f;
    char why[128] = "";

    ck_assert_msg(ib_hca_parse(&f, spec, why, sizeof(why)) == 0, "'%s' refused: %s", spec, why);
    return ib_hca_match(&f, name, port, NULL);
}

START_TEST(empty_chooses_all)
{
    ck_assert_int_eq(chosen("", "mlx5_0", 1), 1);
    ck_assert_int_eq(chosen("=", "mlx5_0", 1), 1);
    ck_assert_int_eq(chosen(",,", "mlx5_0", 1), 1);
    ck_assert_int_eq(chosen("^", "mlx5_0", 1), 0);
}
END_TEST

START_TEST(beginnings_of_names)
{
    ck_assert_int_eq(chosen("mlx5", "mlx5_0", 1), 1);
    ck_assert_int_eq(chosen("mlx5_1", "mlx5_10", 1), 1);
    ck_assert_int_eq(chosen("mlx5_1", "mlx5_0", 1), 0);
    ck_assert_int_eq(chosen("mlx5_3,mlx5_0", "mlx5_0", 2), 1);
    ck_assert_int_eq(chosen("mlx5_0", "mlx5", 1), 0);
}
END_TEST

START_TEST(whole_names)
{
    ck_assert_int_eq(chosen("=mlx5_1", "mlx5_10", 1), 0);
    ck_assert_int_eq(chosen("=mlx5_1", "mlx5_1", 1), 1);
    ck_assert_int_eq(chosen("=mlx5", "mlx5_1", 1), 0);
}
END_TEST

START_TEST(exclusion)
{
    ck_assert_int_eq(chosen("^mlx5_0", "mlx5_0", 1), 0);
    ck_assert_int_eq(chosen("^mlx5_0", "mlx5_1", 1), 1);
    ck_assert_int_eq(chosen("^=mlx5_1", "mlx5_10", 1), 1);
    ck_assert_int_eq(chosen("^=mlx5_1:2", "mlx5_1", 1), 1);
    ck_assert_int_eq(chosen("^=mlx5_1:2", "mlx5_1", 2), 0);
    /* the order of the two marks is fixed: "=^x" is the device "^x" */
    ck_assert_int_eq(chosen("=^mlx5_0", "mlx5_1", 1), 0);
}
END_TEST

START_TEST(ports)
{
    ck_assert_int_eq(chosen("mlx5_0:2", "mlx5_0", 1), 0);
    ck_assert_int_eq(chosen("mlx5_0:2", "mlx5_0", 2), 1);
    ck_assert_int_eq(chosen("mlx5_0:-1", "mlx5_0", 2), 1);
    ck_assert_int_eq(chosen("mlx5_0:", "mlx5_0", 2), 1);
    ck_assert_int_eq(chosen("mlx5_0:2,mlx5_0:1", "mlx5_0", 1), 1);
}
END_TEST

START_TEST(rails)
{
    struct ib_hca_filter f;
    char why[128];
    int rail = 77;

    ck_assert_int_eq(ib_hca_parse(&f, "=a:1:3,b::4:1,c", why, sizeof(why)), 0);
    ck_assert_int_eq(f.count, 3);
    ck_assert_int_eq(ib_hca_match(&f, "a", 1, &rail), 1);
    ck_assert_int_eq(rail, 3);
    ck_assert_int_eq(ib_hca_match(&f, "b", 2, &rail), 1);
    ck_assert_int_eq(rail, 4);
    ck_assert_int_eq(f.entry[1].plane, 1);
    ck_assert_int_eq(ib_hca_match(&f, "c", 1, &rail), 1);
    ck_assert_int_eq(rail, -1);
    ck_assert_int_eq(ib_hca_match(&f, "d", 1, &rail), 0);
    ck_assert_int_eq(rail, -1);
    ck_assert_int_eq(ib_hca_rank(&f, "b", 1), 1);
    ck_assert_int_eq(ib_hca_rank(&f, "d", 1), -1);
    ck_assert_int_eq(ib_hca_parse(&f, "^a:1:3", why, sizeof(why)), 0);
    ck_assert_int_eq(ib_hca_match(&f, "b", 1, &rail), 1);
    ck_assert_int_eq(rail, -1);
}
END_TEST

static void refused(const char *spec, const char *part, const char *reason)
{
    struct ib_hca_filter f;
    char why[160] = "";

    ck_assert_int_eq(ib_hca_parse(&f, spec, why, sizeof(why)), -1);
    ck_assert_msg(strstr(why, part) && strstr(why, reason), "'%s' gave: %s", spec, why);
    ck_assert_int_eq(ib_hca_match(&f, "whatever", 1, NULL), 1);
}

START_TEST(bad_text_is_named)
{
    char longname[80], list[400] = "";

    refused("mlx5_0:x", "'mlx5_0:x'", "port");
    refused("mlx5_1,mlx5_0:1:y,z", "'mlx5_0:1:y'", "rail");
    refused("a:1:2:p", "'a:1:2:p'", "plane");
    refused("a:1:2:3:4", "'a:1:2:3:4'", "four");
    refused("a:-2", "'a:-2'", "port");
    refused("a:99999999999", "a:999", "port");
    memset(longname, 'n', sizeof(longname) - 1);
    longname[sizeof(longname) - 1] = '\0';
    refused(longname, "nnnn", "too long");
    for (int i = 0; i < IB_HCA_MAX + 1; i++) {
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "n%d,", i);
    }
    refused(list, "'n64'", "too long");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_hca");
    TCase *t = tcase_create("filter");
    SRunner *r;
    int failed;

    tcase_add_test(t, empty_chooses_all);
    tcase_add_test(t, beginnings_of_names);
    tcase_add_test(t, whole_names);
    tcase_add_test(t, exclusion);
    tcase_add_test(t, ports);
    tcase_add_test(t, rails);
    tcase_add_test(t, bad_text_is_named);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
