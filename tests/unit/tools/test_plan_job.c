/* What r2_plan makes of its list of lost NICs, of any text; and what it says losing NICs costs. */
#include <check.h>
#include <string.h>

#include "planner/planner_bound.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"
#include "tools/r2_plan/job.c"

static struct job j;
static char why[200];

static void begin(int nodes, int nics)
{
    j = (struct job){.nodes = nodes, .nics = nics, .gpus = 8, .gbps = 400, .bytes = 1 << 30};
    j.patterns = 20;
    job_begin(&j);
}

START_TEST(list_becomes_rails_and_shares)
{
    begin(20, 8);
    ck_assert(job_lost_read(&j, "3:1,17:n2+n5,0:0", why, sizeof(why)));
    ck_assert_int_eq(__builtin_popcount(j.rails[3]), 7);
    ck_assert_uint_eq(j.rails[17], 0xffu & ~(1u << 2 | 1u << 5));
    ck_assert_uint_eq(j.rails[0], 0xff);
    ck_assert_double_eq(j.b[17], 0.75);
    ck_assert(j.is_counted);
    begin(20, 32);
    ck_assert(job_lost_read(&j, "1:31,2:n31", why, sizeof(why)));
    ck_assert_int_eq(__builtin_popcount(j.rails[1]), 1);
    ck_assert_uint_eq(j.rails[2], 0x7fffffff);
    begin(20, 8);
    ck_assert(job_lost_read(&j, "2:n1", why, sizeof(why)));
    ck_assert(!j.is_counted);
}
END_TEST

/* Texts of the letters that such lists have: what is taken makes sense, what is refused has a
 * reason. */
START_TEST(any_text_is_taken_or_refused_with_a_reason)
{
    static const char letters[] = "0123456789:,+nn::,,x";
    uint64_t seed = 4;
    int taken = 0, refused = 0;

    for (int round = 0; round < plan_rounds(20000); round++) {
        char text[24];
        int n = (int)plan_random(&seed, 12);

        for (int i = 0; i < n; i++) {
            text[i] = letters[plan_random(&seed, sizeof(letters) - 1)];
        }
        text[n] = '\0';
        why[0] = '\0';
        begin(12, 8);
        if (!job_lost_read(&j, text, why, sizeof(why))) {
            refused++;
            ck_assert_msg(why[0] != '\0', "'%s' is refused without a reason", text);
            continue;
        }
        taken++;
        for (int i = 0; i < j.nodes; i++) {
            if (j.rails[i] == 0 || j.rails[i] > 0xff ||
                j.b[i] != __builtin_popcount(j.rails[i]) / 8.0) {
                ck_abort_msg("'%s' leaves node %d with NICs %x", text, i, j.rails[i]);
            }
        }
    }
    ck_assert_int_gt(taken, 50);
    ck_assert_int_gt(refused, 1000);
}
END_TEST

START_TEST(random_losses_are_as_many_as_asked_for)
{
    uint64_t state = 1;

    begin(6, 4);
    for (int lost = 1; lost <= 18; lost++) {
        int left = 0;

        job_lose_random(&j, lost, &state);
        for (int i = 0; i < j.nodes; i++) {
            ck_assert_uint_ne(j.rails[i], 0);
            left += __builtin_popcount(j.rails[i]);
        }
        ck_assert_int_eq(left, 24 - lost);
    }
}
END_TEST

START_TEST(losses_cost_what_the_strategies_say)
{
    struct loss one, each, random;

    begin(8, 8);
    ck_assert(loss_find(&j, LOSS_ONE, 4, &one));
    ck_assert_double_eq_tol(one.ring, 1, 0.15); /* half of the NICs, and latency */
    ck_assert_double_eq_tol(one.nccl, 0, 1e-9); /* in a light seat */
    ck_assert(loss_find(&j, LOSS_EACH, 4, &each));
    ck_assert_double_lt(each.ring, one.ring);
    ck_assert_double_gt(each.nccl, 0.05); /* more than there are seats */
    ck_assert_double_le(each.best, each.nccl);
    ck_assert(loss_find(&j, LOSS_RANDOM, 4, &random));
    ck_assert_double_gt(random.ring, each.ring);
    ck_assert_double_lt(random.ring, one.ring);
    ck_assert(!loss_find(&j, LOSS_ONE, 8, &one));
    ck_assert(!loss_find(&j, LOSS_EACH, 9, &one));
    ck_assert(!loss_find(&j, LOSS_RANDOM, 57, &one));
    begin(8, 1);
    ck_assert(!loss_find(&j, LOSS_EACH, 1, &one));
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, list_becomes_rails_and_shares);
    tcase_add_test(t, any_text_is_taken_or_refused_with_a_reason);
    tcase_add_test(t, random_losses_are_as_many_as_asked_for);
    tcase_add_test(t, losses_cost_what_the_strategies_say);
}

int main(void)
{
    return suite_run("plan_job", plan_limit_s(), NULL, NULL, tests_add);
}
