/*
 * What hosts tell each other of slow ways, from LOAD to the line, the event and the history of NICs
 * (plugin/balance/r2_slow_whose.h): two instances on the in-process fabric, virtual time. The
 * second host that finds the NIC slow is a third one's, whose word is put in.
 */
#include "tests/unit/suite.h" /* before the rig, whose names its parameters have */
#include "tests/unit/watch_rig.h"

#include "plugin/balance/r2_slow_whose.h"
#include "plugin/control/fo_proto.h"
#include "plugin/probe/probe_line.h"
#include "base/r2_fnv.h"
#include "base/r2_log.h"

#define TICK (100 * RIG_MS)

static struct r2_slow_whose whose[2];
static struct r2_slow_claim claim;
static unsigned words[2], causes[2]; /* of each side */
static struct {
    char brief[PROBE_SHORT_SIZE], blame[40], how[128];
    const char *action;
    enum probe_severity severity;
    int nic, has_peer;
    uint64_t since;
} last[2]; /* of each side */

static int side_of(const struct r2_inst *inst)
{
    return inst == rig->side[1].inst;
}

static void on_slow_word(struct r2_pair *pair, uint8_t flags)
{
    int side = side_of(pair->inst);

    words[side]++;
    r2_slow_whose_on(&whose[side], pair, side == 0 ? &claim : NULL, flags, r2_now(pair->inst));
}

static void on_cause(struct r2_inst *inst, const struct r2_cause *v)
{
    int side = side_of(inst);

    causes[side]++;
    snprintf(last[side].brief, sizeof(last[side].brief), "%s", v->brief);
    snprintf(last[side].blame, sizeof(last[side].blame), "%s", v->blame);
    snprintf(last[side].how, sizeof(last[side].how), "%s", v->how);
    last[side].action = v->action;
    last[side].severity = (enum probe_severity)v->severity;
    last[side].nic = v->nic;
    last[side].has_peer = v->peer_host != NULL;
    last[side].since = v->since_ns;
}

static const struct r2_subscriber watching = {.on_slow_word = on_slow_word, .on_cause = on_cause};

static void reset(void)
{
    memset(whose, 0, sizeof(whose));
    memset(last, 0, sizeof(last));
    claim = (struct r2_slow_claim){0};
    words[0] = words[1] = causes[0] = causes[1] = 0;
}

/* The module itself is off, else it answers, too. */
static void begin(void)
{
    reset();
    start(2, (const char *[]){QUIET_RC, "NCCL_R2_SLOW=off", NULL});
    subscribe(&watching);
    messages(3, BIG);
    rig_run(rig, 100 * RIG_MS);
}

static uint32_t hash(const char *host)
{
    return r2_fnv_add(R2_FNV_BASIS, host, strlen(host));
}

/* What a third host says to side 1. */
static enum balance_word third_word;

/* The way out of side 0 is slow for @ns, over which it goes on to send, and so, with @third, that
 * of a third host. */
static void slow_for(uint64_t ns, const char *third)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        rig_enter(&rig->side[0]);
        r2_slow_whose_claim(&whose[0], pair_of(0, 0), &claim, r2_now(rig->side[0].inst));
        r2_slow_whose_step(&whose[0], rig->side[0].inst, r2_now(rig->side[0].inst));
        rig_enter(&rig->side[1]);
        if (third) {
            balance_whose_told(&whose[1].nic[0], hash(third), third_word,
                               r2_now(rig->side[1].inst));
        }
        r2_slow_whose_step(&whose[1], rig->side[1].inst, r2_now(rig->side[1].inst));
        messages(1, BIG);
        rig_run(rig, TICK);
    }
}

static enum balance_word word_at(int side, const char *host)
{
    for (int i = 0; i < BALANCE_WHOSE_HOSTS; i++) {
        if (whose[side].nic[0].witness[i].host == hash(host)) {
            return whose[side].nic[0].witness[i].word;
        }
    }
    return BALANCE_WORD_NONE;
}

/* What side 0 sends goes to another host as well, as far as it knows. */
static void send_elsewhere(void)
{
    struct r2_comm *c = rig->side[0].comm;

    ck_assert_str_eq(c->far.host, rig->side[1].inst->self.host);
    snprintf(c->far.host, sizeof(c->far.host), "h9");
}

/* Between two hosts nobody can tell, and a claim is answered, not repeated with each window. */
START_TEST(two_hosts)
{
    begin();
    if (_i) {
        send_elsewhere();
    }
    slow_for(10 * RIG_S, NULL);
    ck_assert_uint_ge(words[1], 15);
    ck_assert_uint_le(words[1], 25);
    ck_assert_uint_ge(words[0], words[1] - 1);
    ck_assert_uint_eq(causes[0] + causes[1], 0);
    ck_assert_int_eq(word_at(1, rig->side[0].inst->self.host),
                     _i ? BALANCE_WORD_WELL : BALANCE_WORD_ALONE);
    ck_assert_int_eq(word_at(0, rig->side[1].inst->self.host), BALANCE_WORD_ALONE);
    stop();
}
END_TEST

/* Nor where one of two hosts has nothing else to go by. */
START_TEST(a_host_that_cannot_tell)
{
    begin();
    third_word = _i ? BALANCE_WORD_ALONE : BALANCE_WORD_WELL;
    if (_i) {
        send_elsewhere();
    }
    slow_for(10 * RIG_S, "h7");
    ck_assert_uint_eq(causes[0] + causes[1], 0);
    stop();
}
END_TEST

/* At WARN, by either side: lines are written out by who comes next. */
static bool is_logged(const char *text)
{
    return strstr(rig->last_warn[0], text) || strstr(rig->last_warn[1], text);
}

/* Until side @side has said @n things in all, for 5 s at most. */
static void until_said(int side, unsigned n)
{
    for (int i = 0; i < 50 && causes[side] < n; i++) {
        slow_for(TICK, "h7");
    }
    ck_assert_uint_eq(causes[side], n);
}

/* The host of the NIC says that it is slow, once; the other one hears of it, once. So it is when
 * that is taken back, as others turn out to be slow, too. */
START_TEST(a_nic_that_is_slow_itself)
{
    const char *host = NULL;
    uint64_t from;

    begin();
    third_word = BALANCE_WORD_WELL;
    send_elsewhere();
    host = rig->side[0].inst->self.host;
    slow_for(RIG_S, NULL);
    from = r2_now(rig->side[1].inst);
    slow_for(2500 * RIG_MS, "h7");
    ck_assert_uint_eq(causes[1], 0);
    until_said(1, 1);
    ck_assert_str_eq(last[1].blame, "nic-cable-or-port");
    ck_assert_str_eq(last[1].action, "check-link");
    ck_assert_int_eq(last[1].severity, PROBE_WARNING);
    ck_assert_int_eq(last[1].nic, 0);
    ck_assert_int_eq(last[1].has_peer, 0);
    ck_assert_ptr_nonnull(strstr(last[1].how, host));
    ck_assert_ptr_nonnull(strstr(last[1].how, "host-left")); /* no pair leads to h7 */
    ck_assert_str_eq(last[1].brief,
                     "R2-G02 fab0 slow beside the others; job continues; check link");
    ck_assert_uint_ge(last[1].since, from - 2 * TICK);
    ck_assert_uint_le(last[1].since, from + 3 * TICK);
    r2_log_flush();
    ck_assert(is_logged(" R2-G02 host=host1 nic=fab0 ") && is_logged(" blame=nic-cable-or-port ") &&
              is_logged(" do=check-link"));
    until_said(0, 1);
    ck_assert_str_eq(last[0].blame, "peer-nic");
    ck_assert_int_eq(last[0].severity, PROBE_INFO);
    ck_assert_int_eq(last[0].nic, 0);
    ck_assert_msg(strncmp(last[0].brief, "R2-G02 ", 7) == 0 && strstr(last[0].brief, ":fab0 slow"),
                  "%s", last[0].brief);
    slow_for(5 * RIG_S, "h7");
    ck_assert_uint_eq(causes[0], 1);
    ck_assert_uint_eq(causes[1], 1);

    third_word = BALANCE_WORD_OTHERS;
    until_said(1, 2);
    ck_assert_int_eq(last[1].severity, PROBE_INFO);
    ck_assert_str_eq(last[1].blame, "nic-or-path");
    ck_assert_str_eq(last[1].how, "taken-back");
    until_said(0, 2);
    ck_assert_str_eq(last[0].how, "taken-back-by-its-host");
    ck_assert_msg(strncmp(last[0].brief, "R2-G02 fab0 slow", 16) == 0, "%s", last[0].brief);
    slow_for(5 * RIG_S, "h7");
    ck_assert_uint_eq(causes[0], 2);
    ck_assert_uint_eq(causes[1], 2);
    stop();
}
END_TEST

/* A host of which others say the same is none to go by, and does not say that it is well. */
START_TEST(a_slow_rail)
{
    begin();
    third_word = BALANCE_WORD_WELL;
    send_elsewhere();
    whose[1].nic[0].ours = _i;
    for (int i = 0; i < 60; i++) {
        rig_enter(&rig->side[0]);
        balance_whose_told(&whose[0].nic[0], hash("h8"), BALANCE_WORD_WELL,
                           r2_now(rig->side[0].inst));
        slow_for(TICK, "h7"); /* and side 0 says that others find its NIC slow */
        if (i > 5) {          /* it has been told again */
            ck_assert_int_eq(word_at(1, rig->side[0].inst->self.host), BALANCE_WORD_OTHERS);
        }
    }
    ck_assert_uint_eq(causes[0], 0);
    ck_assert_uint_eq(causes[1], _i ? 1 : 0); /* it is taken back */
    stop();
}
END_TEST

/* The module itself answers, but where it is off: who does not answer is no witness. */
START_TEST(switched_off)
{
    static const char *const how[] = {"NCCL_R2_SLOW=on", "NCCL_R2_SLOW=off"};
    const struct r2_subscriber *const *own;

    rig = rig_create(2, 0, (const char *[]){QUIET_RC, how[_i], NULL});
    own = rig->side[1].inst->above.subscribers;
    subscribe(&watching);
    rig->side[1].inst->above.subscribers = own;
    connect_ends();
    messages(3, BIG);
    reset();
    slow_for(5 * RIG_S, NULL);
    ck_assert_int_eq(words[0] > 5, _i == 0);
    ck_assert_int_eq(whose[0].nic[0].witness[0].word_at > 0, _i == 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, two_hosts, 0, 2);
    tcase_add_loop_test(t, a_host_that_cannot_tell, 0, 2);
    tcase_add_test(t, a_nic_that_is_slow_itself);
    tcase_add_loop_test(t, a_slow_rail, 0, 2);
    tcase_add_loop_test(t, switched_off, 0, 2);
}

int main(void)
{
    return suite_run("slow: whose", 120, NULL, teardown, add);
}
