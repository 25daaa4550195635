/* What a silent auxiliary port is worth: it is known to be well where another case says so, and to
 * be bad where the job blames it. What comes of it in a job: r2_sim --class locate-ring. */
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

/* --- ports that are known to be bad --- */

#define BAD   0xbad
#define SOUND 0x50

static struct probe_gossip gossip;

/* The job blames port 1 of BAD for @blame. */
static void blame(enum probe_blame blame)
{
    struct probe_report w = {.subject = {.a = BAD, .pa = 1},
                             .blame = (uint8_t)blame,
                             .confidence = 80,
                             .host = "h",
                             .nic = "n"};

    probe_gossip_init(&gossip);
    inst.diagnosis.gossip = &gossip;
    probe_gossip_next_version(&gossip, &w);
    ck_assert(probe_gossip_put(&gossip, &w, -1));
}

static struct r2_case_probe aux_of(uint64_t guid, enum probe_outcome outcome, const char *host)
{
    struct r2_case_probe a = {.guid = guid, .peer_port = 1, .outcome = (uint8_t)outcome};

    strcpy(a.host, host);
    return a;
}

START_TEST(a_silent_port_that_is_bad)
{
    static const uint8_t bad[] = {PROBE_BLAME_LOCAL_NIC, PROBE_BLAME_LOCAL_LINK};

    blame((enum probe_blame)bad[_i]);
    ck_assert(!r2_locate_is_silent(&inst, PROBE_TIMEOUT, BAD, 1));
    ck_assert(!r2_locate_is_silent(&inst, PROBE_ERROR, BAD, 1));
    ck_assert(r2_locate_is_silent(&inst, PROBE_TIMEOUT, BAD, 2));
    ck_assert(r2_locate_is_silent(&inst, PROBE_ERROR, SOUND, 1));
    ck_assert(r2_locate_is_silent(&inst, PROBE_TIMEOUT, 0, 0)); /* which has not said its name */
    ck_assert(!r2_locate_is_silent(&inst, PROBE_OK, SOUND, 1));
    ck_assert(!r2_locate_is_silent(&inst, PROBE_NA, SOUND, 1));
    blame(PROBE_BLAME_NONE);
    ck_assert(r2_locate_is_silent(&inst, PROBE_TIMEOUT, BAD, 1));
}
END_TEST

/* Ours that are silent, by host, without those that are bad; an answer counts, whoever is blamed.
 */
START_TEST(our_end_without_bad_ports)
{
    struct r2_case *k = &cases[0];

    blame(PROBE_BLAME_LOCAL_NIC);
    *k = (struct r2_case){
        .probes = {.aux = {aux_of(BAD, PROBE_TIMEOUT, "h1"), aux_of(SOUND, PROBE_TIMEOUT, "h2"),
                           aux_of(SOUND, PROBE_TIMEOUT, "h2")},
                   .n_aux = 1}};
    r2_locate_take_stock(&inst, k);
    ck_assert_int_eq(k->facts.local.aux, PROBE_NA);
    ck_assert_int_eq(k->facts.local.aux_n, 0);
    k->probes.n_aux = 3;
    r2_locate_take_stock(&inst, k);
    ck_assert_int_eq(k->facts.local.aux, PROBE_TIMEOUT);
    ck_assert_int_eq(k->facts.local.aux_n, 1);
    k->probes.aux[0].outcome = PROBE_OK;
    r2_locate_take_stock(&inst, k);
    ck_assert_int_eq(k->facts.local.aux, PROBE_OK);
    k->probes.aux[0].outcome = PROBE_TIMEOUT;
    blame(PROBE_BLAME_NONE);
    r2_locate_take_stock(&inst, k);
    ck_assert_int_eq(k->facts.local.aux_n, 2);
}
END_TEST

START_TEST(their_end_without_bad_ports)
{
    struct fo_locate m = {.end = {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 1},
                          .n_aux = 1,
                          .aux = {{BAD, 1, PROBE_TIMEOUT}, {SOUND, 1, PROBE_ERROR}}};

    blame(PROBE_BLAME_LOCAL_LINK);
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux, PROBE_NA);
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).loop, PROBE_OK);
    m.n_aux = m.end.aux_n = 2;
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux, PROBE_TIMEOUT);
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux_n, 1);
    m.end.aux = PROBE_OK; /* of one of the others that it has not named */
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux, PROBE_OK);
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux_n, 2);
    m.end.aux = PROBE_ERROR;
    blame(PROBE_BLAME_NONE);
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux, PROBE_ERROR);
    ck_assert_int_eq(r2_locate_far_end(&inst, &m).aux_n, 2);
}
END_TEST

/* ... nor is it known to be well by what its process says. */
START_TEST(a_bad_port_that_reaches_others)
{
    two_cases();
    cases[0].probes.aux[0].guid = BAD;
    cases[0].probes.aux[0].peer_port = 1;
    blame(PROBE_BLAME_LOCAL_NIC);
    ck_assert(!is_well());
    blame(PROBE_BLAME_NONE);
    ck_assert(is_well());
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, it_reports_that_it_reaches_others, 0, 2);
    tcase_add_test(t, what_it_reports_is_no_answer);
    tcase_add_test(t, of_another_pair_or_another_time);
    tcase_add_test(t, the_port_is_not_silent);
    tcase_add_loop_test(t, a_silent_port_that_is_bad, 0, 2);
    tcase_add_test(t, our_end_without_bad_ports);
    tcase_add_test(t, their_end_without_bad_ports);
    tcase_add_test(t, a_bad_port_that_reaches_others);
}

int main(void)
{
    return suite_run("locate", 30, NULL, NULL, add);
}
