/* What a fence may believe (P16.4): every combination of facts against the rule, said the other way
 * round. */
#include "plugin/ib_transport/ib_fence_proof.h"

#include "tests/unit/suite.h"

#define S IB_MARK_SEND
#define R IB_MARK_RECV

static enum ib_fence_proof prove(int sender, uint8_t posted, uint8_t out, uint8_t nic,
                                 const char *more)
{
    struct ib_fence_facts f = {.sender = sender, .posted = posted, .out = out, .out_nic = nic};

    for (; *more; more++) {
        f.idle |= *more == 'i';
        f.refused |= *more == 'r';
        f.late |= *more == 'l';
    }
    return ib_fence_proof(&f);
}

START_TEST(the_nics_own_flush_is_proof)
{
    ck_assert_int_eq(prove(0, S | R, 0, 0, ""), IB_PROOF_WAIT);
    ck_assert_int_eq(prove(0, S | R, R, R, ""), IB_PROOF_WAIT);
    ck_assert_int_eq(prove(0, S | R, S | R, S | R, ""), IB_PROOF_NIC);
    ck_assert_int_eq(prove(1, S | R, S | R, S | R, ""), IB_PROOF_NIC);
    ck_assert_int_eq(prove(0, S | R, S, S, "l"), IB_PROOF_NONE);
    ck_assert_int_eq(prove(1, S | R, 0, 0, "l"), IB_PROOF_NONE);
}
END_TEST

/* S's send marker says nothing of what R's device has taken. */
START_TEST(each_end_needs_its_own_marker)
{
    ck_assert_int_eq(prove(0, S | R, S | R, S, ""), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(0, S | R, S | R, R, ""), IB_PROOF_NIC);
    ck_assert_int_eq(prove(1, S | R, S | R, R, ""), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(1, S | R, S | R, S, ""), IB_PROOF_NIC);
    ck_assert_int_eq(prove(0, R, R, R, "r"), IB_PROOF_NIC); /* R's sends were refused */
}
END_TEST

/* Nothing of S was under way: no flush has to say so. R, whose arrivals are others' sends, gains
 * nothing by it. */
START_TEST(an_idle_send_queue_is_proof_at_the_sender)
{
    ck_assert_int_eq(prove(1, S | R, S | R, 0, "i"), IB_PROOF_NIC);
    ck_assert_int_eq(prove(1, 0, 0, 0, "ir"), IB_PROOF_NIC);
    ck_assert_int_eq(prove(0, S | R, S | R, 0, "i"), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(0, 0, 0, 0, "ir"), IB_PROOF_LIBRARY);
}
END_TEST

START_TEST(what_is_refused_is_not_waited_for)
{
    ck_assert_int_eq(prove(0, 0, 0, 0, "r"), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(1, 0, 0, 0, "r"), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(0, S, 0, 0, "r"), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(0, R, 0, 0, "r"), IB_PROOF_WAIT); /* this one may come, by the NIC */
    ck_assert_int_eq(prove(0, R, 0, 0, "rl"), IB_PROOF_LIBRARY);
    ck_assert_int_eq(prove(1, S, 0, 0, "r"), IB_PROOF_WAIT);
    ck_assert_int_eq(prove(0, S, S, S, ""), IB_PROOF_WAIT); /* not posted, and nobody refused it */
    ck_assert_int_eq(prove(0, S, S, S, "l"), IB_PROOF_NONE);
}
END_TEST

/* Over all facts: only the NIC's own completion, or a queue that was empty, is proof; and a NIC of
 * which nothing is known but silence is not told. */
START_TEST(no_other_proof)
{
    for (unsigned x = 0; x < 1u << 10; x++) {
        struct ib_fence_facts f = {.sender = (int)(x & 1),
                                   .posted = (x >> 1) & 3,
                                   .out = (x >> 3) & 3 & (x >> 1),
                                   .out_nic = (x >> 5) & 3 & (x >> 3) & (x >> 1),
                                   .idle = (int)((x >> 7) & 1),
                                   .refused = (int)((x >> 8) & 1),
                                   .late = (int)((x >> 9) & 1)};
        enum ib_fence_proof r = ib_fence_proof(&f);

        if (r == IB_PROOF_NIC) {
            ck_assert(f.out_nic & (f.sender ? S : R) || (f.sender && f.idle));
        }
        if (r == IB_PROOF_LIBRARY) {
            ck_assert(f.refused || (f.out == f.posted && (f.posted & (f.sender ? S : R))));
        }
        if (r == IB_PROOF_NONE) {
            ck_assert(f.late && !f.refused);
        }
        ck_assert(r != IB_PROOF_WAIT || !f.late);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_nics_own_flush_is_proof);
    tcase_add_test(t, each_end_needs_its_own_marker);
    tcase_add_test(t, an_idle_send_queue_is_proof_at_the_sender);
    tcase_add_test(t, what_is_refused_is_not_waited_for);
    tcase_add_test(t, no_other_proof);
}

int main(void)
{
    return suite_run("fence proof", 60, NULL, NULL, add);
}
