/* What becomes of a held case: of facts that are made up, with what the job knows by then, or of a
 * peer that has left. */
#include "tests/unit/gossip_world.h"

#include "plugin/base/r2_log.h"
#include "plugin/service/r2_peer.h"

/* Node GUIDs of the NICs of two more hosts. */
#define THIRD  0x3333
#define FOURTH 0x4444

/* A held case of the pair of the first NICs, decided in the next turn: the pair is silent, and the
 * end @by (0: ours) had no answer from THIRD and FOURTH, the other end one from THIRD. What was
 * found. */
static enum probe_blame found_beside(int by)
{
    struct r2_inst *inst = rig->side[0].inst;
    struct r2_peer *peer = rig->side[0].comm->peer;
    struct r2_case *k = &inst->diagnosis.cases[0];
    static const struct probe_end well = {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 1},
                                  alone = {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2};
    uint8_t ours = by ? PROBE_OK : PROBE_TIMEOUT, its = by ? PROBE_TIMEOUT : PROBE_OK;

    *k = (struct r2_case){
        .peer = peer,
        .state = R2_CASE_HELD,
        .since = r2_now(inst),
        .opened = inst->watch.clock,
        .until.held = inst->watch.clock,
        .confirm = {.on = 1, .answers = r2_pair_find(inst, peer, 0, 0)->probe.answers},
        .facts.local = by ? well : alone,
        .probes = {.direct = {.outcome = PROBE_TIMEOUT},
                   .n_aux = by ? 1 : 2,
                   .aux = {{.guid = THIRD, .peer_port = 1, .host = "third", .outcome = ours},
                           {.guid = FOURTH, .peer_port = 1, .host = "fourth", .outcome = ours}}},
        .theirs = {.heard = 1,
                   .complete = 1,
                   .report = {.end = by ? alone : well,
                              .direct = PROBE_TIMEOUT,
                              .n_aux = by ? 2 : 1,
                              .aux = {{THIRD, 1, its}, {FOURTH, 1, its}}}}};
    rig_enter(&rig->side[0]);
    inst->watch.probing = 1;
    rig_kick(&rig->side[0]);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_eq(k->state, R2_CASE_DECIDED);
    k->state = R2_CASE_FREE;
    return (enum probe_blame)k->found;
}

/* Two are silent, so that end's link is dead; unless the job knows by now that one of them is bad,
 * though it has answered the other end before: then a single silent port is left. */
START_TEST(a_witness_that_is_bad)
{
    int by = _i;
    struct probe_report w = {.subject = {.a = THIRD, .pa = 1},
                             .blame = PROBE_BLAME_LOCAL_NIC,
                             .confidence = 80,
                             .host = "third",
                             .nic = "n"};

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    ck_assert_int_eq(found_beside(by), by ? PROBE_BLAME_REMOTE_LINK : PROBE_BLAME_LOCAL_LINK);
    rig_enter(&rig->side[0]);
    ck_assert(r2_gossip_publish(rig->side[0].inst, &w));
    ck_assert_int_eq(found_beside(by), PROBE_BLAME_UNKNOWN);
    stop();
}
END_TEST

/* A case that is open when the peer's host refuses: a peer whose connections have all closed in
 * order takes it along, one that is missed is its verdict. */
START_TEST(a_peer_that_has_left)
{
    int left = _i;
    struct r2_inst *inst;
    struct r2_case *k;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    inst = rig->side[0].inst;
    k = &inst->diagnosis.cases[0];
    ck_assert_int_eq(k->state, R2_CASE_FREE);
    *k = (struct r2_case){.peer = rig->side[0].comm->peer,
                          .state = R2_CASE_HELD,
                          .since = r2_now(inst),
                          .opened = inst->watch.clock,
                          .until.held = inst->watch.clock,
                          .theirs.complete = 1,
                          .theirs.in_facts = 1};
    rig_enter(&rig->side[0]);
    for (struct r2_comm *c = k->peer->comms; c; c = c->list.peer_next) {
        c->fo.bye.peer = (uint8_t)left;
    }
    inst->watch.probing = 1;
    r2_peer_channel_down(inst, k->peer->oob, 1);
    rig_kick(&rig->side[0]);
    rig_run(rig, 10 * RIG_MS);
    r2_log_flush();
    ck_assert_int_eq(k->state, left ? R2_CASE_FREE : R2_CASE_DECIDED);
    ck_assert_msg((strstr(rig->last_warn[0], "R2-P01 host=host1 ") == NULL) == left, "%s",
                  rig->last_warn[0]);
    for (struct r2_comm *c = rig->side[0].comm->peer->comms; c; c = c->list.peer_next) {
        c->fo.bye.peer = 0;
    }
    r2_peer_channel_up(inst, rig->side[0].comm->peer->oob);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_witness_that_is_bad, 0, 2);
    tcase_add_loop_test(t, a_peer_that_has_left, 0, 2);
}

int main(void)
{
    return suite_run("locate_held", 60, NULL, teardown, add);
}
