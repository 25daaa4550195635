#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ib_transport/r2_ledger.h"

static struct r2_ledger l;

static void setup(void)
{
    r2_ledger_init(&l);
}

START_TEST(parts_complete_in_any_order)
{
    uint64_t s = r2_ledger_post(&l, 1000);

    ck_assert_int_eq(r2_ledger_add(&l, (uint16_t)s, 2, 3, 100), R2_LEDGER_NEW);
    ck_assert_int_eq(r2_ledger_add(&l, (uint16_t)s, 0, 3, 400), R2_LEDGER_NEW);
    ck_assert(!r2_ledger_complete(&l, s));
    ck_assert_uint_eq(l.acked, 0);
    ck_assert_int_eq(r2_ledger_add(&l, (uint16_t)s, 1, 3, 500), R2_LEDGER_COMPLETE);
    ck_assert(r2_ledger_complete(&l, s));
    ck_assert_uint_eq(l.acked, 1);
    ck_assert_uint_eq(l.entry[0].bytes, 1000);
}
END_TEST

START_TEST(acked_is_cumulative)
{
    for (int i = 0; i < 4; i++) {
        r2_ledger_post(&l, 8);
    }
    ck_assert_int_eq(r2_ledger_add(&l, 1, 0, 1, 8), R2_LEDGER_COMPLETE);
    ck_assert_int_eq(r2_ledger_add(&l, 3, 0, 1, 8), R2_LEDGER_COMPLETE);
    ck_assert_uint_eq(l.acked, 0);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 0, 1, 8), R2_LEDGER_COMPLETE);
    ck_assert_uint_eq(l.acked, 2);
    ck_assert_int_eq(r2_ledger_add(&l, 2, 0, 1, 0), R2_LEDGER_COMPLETE);
    ck_assert_uint_eq(l.acked, 4);
}
END_TEST

START_TEST(whole_messages_are_added_or_nothing_is)
{
    struct r2_ledger before;

    for (int i = 0; i < 4; i++) {
        r2_ledger_post(&l, 100);
    }
    ck_assert(r2_ledger_add_whole(&l, 1, 100));
    ck_assert_uint_eq(l.acked, 0);
    ck_assert(r2_ledger_add_whole(&l, 0, 0));
    ck_assert_uint_eq(l.acked, 2);
    ck_assert_uint_eq(l.entry[1].bytes, 100);
    ck_assert_int_eq(r2_ledger_add(&l, 2, 0, 2, 1), R2_LEDGER_NEW);
    ck_assert_int_eq(r2_ledger_see(&l, 3, 0, 1), R2_LEDGER_NEW);
    before = l;
    ck_assert(!r2_ledger_add_whole(&l, 1, 1)); /* again */
    ck_assert(!r2_ledger_add_whole(&l, 2, 1)); /* of one that is cut */
    ck_assert(!r2_ledger_add_whole(&l, 3, 1)); /* waits for its read */
    ck_assert(!r2_ledger_add_whole(&l, 4, 0));
    ck_assert(!r2_ledger_add_whole(&l, 0xffff, 0));
    r2_ledger_post(&l, 100);
    before.rpost++;
    before.entry[4] = l.entry[4];
    ck_assert(!r2_ledger_add_whole(&l, 4, 101));
    ck_assert_int_eq(memcmp(&before, &l, sizeof(l)), 0);
    ck_assert(r2_ledger_add_whole(&l, 4, 100));
    ck_assert_uint_eq(l.acked, 2);
}
END_TEST

START_TEST(impossible_arrivals_change_nothing)
{
    struct r2_ledger before;

    r2_ledger_post(&l, 100);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 0, 2, 60), R2_LEDGER_NEW);
    before = l;
    ck_assert_int_eq(r2_ledger_add(&l, 0, 0, 2, 60), R2_LEDGER_DUPLICATE);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 1, 2, 41), R2_LEDGER_SIZE_ERR);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 2, 2, 1), R2_LEDGER_PART_ERR);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 1, 3, 1), R2_LEDGER_PART_ERR);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 1, 0, 1), R2_LEDGER_PART_ERR);
    ck_assert_int_eq(r2_ledger_add(&l, 1, 0, 1, 1), R2_LEDGER_WINDOW_ERR);
    ck_assert_int_eq(r2_ledger_add(&l, 0xffff, 0, 1, 1), R2_LEDGER_WINDOW_ERR);
    ck_assert_int_eq(memcmp(&before, &l, sizeof(l)), 0);
}
END_TEST

START_TEST(sixteen_bits_name_one_seq_across_the_wrap)
{
    l.rdone = l.acked = 0x1fff0;
    l.rpost = l.rdone;
    for (int i = 0; i < 40; i++) {
        r2_ledger_post(&l, 1);
    }
    ck_assert_uint_eq(r2_ledger_seq(&l, 0xfff0), 0x1fff0);
    ck_assert_uint_eq(r2_ledger_seq(&l, 0xffff), 0x1ffff);
    ck_assert_uint_eq(r2_ledger_seq(&l, 0x0000), 0x20000);
    ck_assert_uint_eq(r2_ledger_seq(&l, 0x0017), 0x20017);
    ck_assert_uint_eq(r2_ledger_seq(&l, 0x0018), UINT64_MAX);
    ck_assert_uint_eq(r2_ledger_seq(&l, 0xffef), UINT64_MAX);
}
END_TEST

START_TEST(window_is_256)
{
    for (int i = 0; i < 256; i++) {
        ck_assert(r2_ledger_room(&l, 1));
        r2_ledger_post(&l, 1);
    }
    ck_assert(!r2_ledger_room(&l, 1));
    ck_assert_int_eq(r2_ledger_add(&l, 0, 0, 1, 1), R2_LEDGER_COMPLETE);
    ck_assert(!r2_ledger_room(&l, 1));
    r2_ledger_retire(&l, 1);
    ck_assert(r2_ledger_room(&l, 1));
    ck_assert_int_eq(r2_ledger_add(&l, 0, 0, 1, 1), R2_LEDGER_WINDOW_ERR);
}
END_TEST

START_TEST(snapshot_gives_every_open_seq)
{
    uint64_t base;
    uint16_t mask[256];

    for (int i = 0; i < 5; i++) {
        r2_ledger_post(&l, 100);
    }
    r2_ledger_add(&l, 0, 0, 1, 1);
    r2_ledger_add(&l, 2, 1, 4, 1);
    r2_ledger_add(&l, 4, 0, 1, 1);
    ck_assert_uint_eq(r2_ledger_snapshot(&l, &base, mask, 256), 4);
    ck_assert_uint_eq(base, 1);
    ck_assert_uint_eq(mask[0], 0);
    ck_assert_uint_eq(mask[1], 2);
    ck_assert_uint_eq(mask[2], 0);
    ck_assert_uint_eq(mask[3], 1);
}
END_TEST

/* Seen is not counted: in no mask, not complete, and neither seen nor added a second time. */
START_TEST(seen_parts_wait)
{
    uint64_t base;
    uint16_t mask[256];

    r2_ledger_post(&l, 100);
    ck_assert_int_eq(r2_ledger_see(&l, 1, 0, 1), R2_LEDGER_WINDOW_ERR);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 2, 2), R2_LEDGER_PART_ERR);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 0, 17), R2_LEDGER_PART_ERR);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 1, 2), R2_LEDGER_NEW);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 1, 2), R2_LEDGER_DUPLICATE);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 0, 3), R2_LEDGER_PART_ERR);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 0, 2), R2_LEDGER_NEW);
    ck_assert(!r2_ledger_complete(&l, 0));
    ck_assert_uint_eq(r2_ledger_snapshot(&l, &base, mask, 256), 1);
    ck_assert_uint_eq(mask[0], 0);
    r2_ledger_unsee(&l, 0, 0); /* dropped, and here again */
    ck_assert_int_eq(r2_ledger_see(&l, 0, 0, 2), R2_LEDGER_NEW);
    r2_ledger_unsee(&l, 0, 0);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 0, 2, 60), R2_LEDGER_NEW);
    ck_assert_int_eq(r2_ledger_see(&l, 0, 0, 2), R2_LEDGER_DUPLICATE);
    r2_ledger_unsee(&l, 0, 1);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 1, 2, 41), R2_LEDGER_SIZE_ERR);
    ck_assert_int_eq(r2_ledger_add(&l, 0, 1, 2, 40), R2_LEDGER_COMPLETE);
    ck_assert_uint_eq(l.acked, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ledger");
    TCase *t = tcase_create("ledger");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, parts_complete_in_any_order);
    tcase_add_test(t, acked_is_cumulative);
    tcase_add_test(t, whole_messages_are_added_or_nothing_is);
    tcase_add_test(t, impossible_arrivals_change_nothing);
    tcase_add_test(t, sixteen_bits_name_one_seq_across_the_wrap);
    tcase_add_test(t, window_is_256);
    tcase_add_test(t, snapshot_gives_every_open_seq);
    tcase_add_test(t, seen_parts_wait);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
