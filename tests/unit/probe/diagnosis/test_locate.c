/* When a silent auxiliary port is known to be well: another case says so. What comes of it in a
 * job: r2_sim --class locate-ring. */
#include <string.h>

#include "plugin/core/r2_inst.h"
#include "plugin/probe/diagnosis/r2_locate_probe.h"
#include "tests/unit/suite.h"

#define SEC R2_NS_PER_S

static struct r2_inst inst;
static struct r2_case cases[R2_CASES];
static struct r2_peer far_side, near_side;

/* Case 0 has a silent auxiliary port, NIC 2 of near_side by our NIC 1; case 1 is of the pair to it.
 */
static struct r2_case *two_cases(void)
{
    memset(cases, 0, sizeof(cases));
    inst.diagnosis.cases = cases;
    cases[0] = (struct r2_case){
        .state = R2_CASE_WAITING,
        .peer = &far_side,
        .nic = 1,
        .peer_nic = 2,
        .opened = 10 * SEC,
        .probes.n_aux = 1,
        .probes.aux[0] = {
            .peer = &near_side, .nic = 1, .peer_nic = 2, .outcome = PROBE_TIMEOUT, .ended = 1}};
    cases[1] = (struct r2_case){.state = R2_CASE_DECIDED,
                                .peer = &near_side,
                                .nic = 1,
                                .peer_nic = 2,
                                .opened = 10 * SEC,
                                .theirs.complete = 1,
                                .theirs.report.end.aux = PROBE_OK};
    return &cases[1];
}

static bool is_well(void)
{
    return r2_locate_aux_reaches_others(&inst, &cases[0]);
}

START_TEST(it_reports_that_it_reaches_others)
{
    static const uint8_t silent[] = {PROBE_TIMEOUT, PROBE_ERROR};

    two_cases();
    cases[0].probes.aux[0].outcome = silent[_i];
    ck_assert(is_well());
    cases[0].probes.aux[1] = cases[0].probes.aux[0]; /* the second of two */
    cases[0].probes.aux[0].peer_nic = 3;
    cases[0].probes.n_aux = 2;
    ck_assert(is_well());
    cases[0].probes.n_aux = 1;
    ck_assert(!is_well());
}
END_TEST

START_TEST(what_it_reports_is_no_answer)
{
    static const uint8_t aux[] = {PROBE_NA, PROBE_TIMEOUT, PROBE_ERROR};

    for (size_t i = 0; i < sizeof(aux); i++) {
        two_cases()->theirs.report.end.aux = aux[i];
        ck_assert(!is_well());
    }
    two_cases()->theirs.complete = 0;
    ck_assert(!is_well());
    two_cases()->state = R2_CASE_FREE;
    ck_assert(!is_well());
}
END_TEST

START_TEST(of_another_pair_or_another_time)
{
    two_cases()->peer = &far_side;
    ck_assert(!is_well());
    two_cases()->nic = 0;
    ck_assert(!is_well());
    two_cases()->peer_nic = 1;
    ck_assert(!is_well());
    two_cases()->opened = 11 * SEC;
    ck_assert(is_well());
    two_cases()->opened = 9 * SEC;
    ck_assert(is_well());
    two_cases()->opened = 11 * SEC + 1;
    ck_assert(!is_well());
    two_cases()->opened = 9 * SEC - 1;
    ck_assert(!is_well());
}
END_TEST

/* One that has answered, that was not probed, or whose process has gone, as that of a case has. */
START_TEST(the_port_is_not_silent)
{
    two_cases();
    cases[0].probes.aux[0].outcome = PROBE_OK;
    ck_assert(!is_well());
    cases[0].probes.aux[0].outcome = PROBE_NA;
    ck_assert(!is_well());
    two_cases()->peer = NULL;
    cases[0].probes.aux[0].peer = NULL;
    ck_assert(!is_well());
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, it_reports_that_it_reaches_others, 0, 2);
    tcase_add_test(t, what_it_reports_is_no_answer);
    tcase_add_test(t, of_another_pair_or_another_time);
    tcase_add_test(t, the_port_is_not_silent);
}

int main(void)
{
    return suite_run("locate", 30, NULL, NULL, add);
}
