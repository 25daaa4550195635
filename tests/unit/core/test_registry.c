/* Records gather for a peer; what is full goes first, and nothing of it is lost. */
#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

#include "plugin/core/r2_registry.h"

#define MANY 20000

static unsigned posts;
static size_t bytes;

static void post(struct r2_inst *inst, struct r2_peer *peer)
{
    ck_assert_uint_le(peer->out.len, sizeof(peer->out.buf));
    ck_assert_uint_gt(peer->out.len, sizeof(peer->out.buf) - FO_MAX_RECORD);
    posts++;
    bytes += peer->out.len;
    peer->out.len = 0;
}

START_TEST(a_full_message_is_handed_on)
{
    struct rig *rig = rig_create(1, 0, NULL);
    union fo_body b = {.nic_down = {.nic = 0, .gen = 1}};
    uint8_t one[FO_MAX_RECORD];
    size_t size = fo_pack(FO_MSG_NIC_DOWN, &b, one, sizeof(one));
    struct r2_inst *inst;
    struct r2_peer *peer;
    void (*real)(struct r2_inst *, struct r2_peer *);

    rig_connect(rig, 0, 0);
    inst = rig->side[0].inst;
    peer = rig->side[0].comm->peer;
    rig_enter(&rig->side[0]);
    real = inst->above.post;
    inst->above.post = post;
    ck_assert_uint_eq(peer->out.len, 0);
    for (int i = 0; i < MANY; i++) {
        r2_peer_emit(inst, peer, FO_MSG_NIC_DOWN, &b);
    }
    bytes += peer->out.len;
    ck_assert_uint_ge(posts, 2);
    ck_assert_uint_eq(bytes, MANY * size);
    peer->out.len = 0;
    inst->above.post = real;
    rig_destroy(rig);
}
END_TEST

/* Who kicks itself in its step starves nobody: it is the next turn's. */
START_TEST(a_turn_has_those_kicked_before_it)
{
    struct rig *rig = rig_create(1, 0, NULL);
    struct r2_inst *inst;
    struct r2_comm *c;

    rig_connect(rig, 0, 0);
    rig_run(rig, RIG_MS);
    inst = rig->side[0].inst;
    c = rig->side[0].comm;
    rig_enter(&rig->side[0]);
    r2_comms_kicked(inst);
    ck_assert_ptr_null(r2_comm_kicked(inst));
    r2_comm_kick(c);
    ck_assert_ptr_null(r2_comm_kicked(inst));
    r2_comms_kicked(inst);
    r2_comm_kick(c); /* its turn comes, which sees why */
    ck_assert_ptr_eq(r2_comm_kicked(inst), c);
    r2_comm_kick(c);
    ck_assert_ptr_null(r2_comm_kicked(inst));
    r2_comms_kicked(inst);
    ck_assert_ptr_eq(r2_comm_kicked(inst), c);
    ck_assert_ptr_null(r2_comm_kicked(inst));
    r2_comm_kick(c);
    r2_comms_kicked(inst); /* it is closed and freed while its turn stands in the list */
    rig_destroy(rig);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_full_message_is_handed_on);
    tcase_add_test(t, a_turn_has_those_kicked_before_it);
}

int main(void)
{
    return suite_run("registry", 60, NULL, NULL, add);
}
