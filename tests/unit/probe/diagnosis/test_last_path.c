/* The last path of a connection stands still (docs/diagnosis.md): it is told within seconds what
 * broke, and nothing ends. Two hosts of one NIC each: no other port is there to ask. Which part it
 * is on three: r2_sim --class locate-one. */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include "plugin/base/r2_log.h"
#include "plugin/probe/diagnosis/r2_last_path.h"
#include "plugin/probe/diagnosis/r2_locate.h"

#define CONN_UP (rig->side[0].comm->conn.up & rig->side[1].comm->conn.up)

static unsigned causes[2];
static uint64_t fell[2], late; /* each end's clock; from there to the earliest time that is given */
static const char *expected;

static void on_cause(struct r2_inst *inst, const struct r2_cause *cause)
{
    int side = inst == rig->side[1].inst;
    uint64_t after = cause->since_ns > fell[side] ? cause->since_ns - fell[side] : 0;

    late = after < late ? after : late;
    causes[side]++;
    ck_assert_msg(strcmp(cause->code, "R2-G01") != 0 || strstr(cause->how, "stalled") == NULL ||
                      strstr(cause->brief, " continues ") != NULL,
                  "%s", cause->brief);
    ck_assert_msg(rig->side[0].comm->conn.last || !strstr(cause->brief, " continues at 0/"), "%s",
                  cause->brief); /* no path is up, nor TCP's */
    ck_assert_msg(strncmp(cause->code, expected, strlen(expected)) == 0, "%s", cause->code);
}

static const struct r2_subscriber counting = {.on_cause = on_cause};

static void begin(int nics, const char *option)
{
    causes[0] = causes[1] = 0;
    expected = "R2-F0";
    start(nics, (const char *[]){QUIET_RC, "NCCL_R2_HANG_AFTER=0", option, NULL});
    subscribe(&counting);
    messages(3, BIG);
    rig_run(rig, 100 * RIG_MS);
}

/* NIC @nic falls silent with a message under way. */
static void fall_silent(int nic)
{
    char fault[32];

    snprintf(fault, sizeof(fault), "h0:n%d blackhole", nic);
    recv_post(0, BIG);
    rig_run(rig, 5 * RIG_MS); /* S has its CTS */
    fire(fault);
    late = UINT64_MAX;
    for (int s = 0; s < 2; s++) {
        fell[s] = r2_now(rig->side[s].inst);
        rig->last_warn[s][0] = '\0';
    }
    send_post(0, BIG);
}

/* Nobody has anything to say of a stall that lasts. */
static void nobody_says(void)
{
    rig_run(rig, 4 * RIG_S);
    ck_assert(!rig_all_done(rig)); /* it does last */
    ck_assert_uint_eq(causes[0] + causes[1], 0);
}

static int is_told(struct rig *r)
{
    (void)r;
    return causes[0] || causes[1];
}

/* It is said once a stall, at both ends, however long it lasts; and the message arrives behind it
 * before RC would repeat it. */
START_TEST(a_silent_cable)
{
    begin(1, NULL);
    wait_probes();
    for (unsigned n = 1; n <= 2; n++) {
        unsigned before = causes[0] + causes[1];

        fall_silent(0);
        rig_run(rig, 900 * RIG_MS);
        ck_assert_uint_eq(causes[0] + causes[1], before);
        rig_run(rig, 3000 * RIG_MS);
        ck_assert_uint_gt(causes[0] + causes[1], before); /* an undecided one by one end or both */
        ck_assert_uint_le(causes[0], n);
        ck_assert_uint_le(causes[1], n);
        ck_assert_uint_lt(late, 100 * RIG_MS);
        r2_log_flush();
        ck_assert_msg(strstr(rig->last_warn[0], " fate=waits ") ||
                          strstr(rig->last_warn[1], " fate=waits "),
                      "'%s' '%s'", rig->last_warn[0], rig->last_warn[1]);
        ck_assert_uint_eq(CONN_UP, 1);
        fire("h0:n0 up");
        finish(1, BIG, RIG_S);
        ck_assert(rig_until(rig, probes_stand, 2 * RIG_S));
        messages(3, BIG);
        rig_run(rig, 12 * RIG_S);
    }
    stop();
}
END_TEST

/* A fault that is over before anybody looks: no part is blamed, and the packet that it took does
 * not wait for RC's time-out. */
START_TEST(a_moment)
{
    static const int ms[] = {50, 300, 800};

    begin(1, NULL);
    wait_probes();
    expected = "R2-G01";
    fall_silent(0);
    rig_run(rig, (uint64_t)ms[_i] * RIG_MS);
    fire("h0:n0 up");
    finish(1, BIG, RIG_S);
    rig_run(rig, 3 * RIG_S);
    stop();
}
END_TEST

/* Nobody is to look, or does the moving. */
START_TEST(where_nobody_looks)
{
    static const char *const off[] = {"NCCL_R2_WATCHDOG=off", "NCCL_R2_FAILOVER=off"};

    begin(1, off[_i]);
    fall_silent(0);
    nobody_says();
    fire("h0:n0 up");
    finish(1, BIG, 20 * RIG_S);
    stop();
}
END_TEST

/* The peer's process cannot be asked: its silence would say nothing of the NICs. */
START_TEST(the_channel_is_lost)
{
    begin(1, NULL);
    wait_probes();
    rig_oob_cut(rig, 1);
    fall_silent(0);
    nobody_says();
    rig_oob_cut(rig, 0);
    ck_assert(rig_until(rig, is_told, 4 * RIG_S));
    fire("h0:n0 up");
    finish(1, BIG, 2 * RIG_S);
    stop();
}
END_TEST

/* As many pairs as there are cases have theirs: they keep them. */
START_TEST(no_case_is_free)
{
    static const struct r2_case other = {
        .state = R2_CASE_DECIDED, .nic = 9, .peer_nic = 9, .until.kept = UINT64_MAX};

    begin(1, NULL);
    wait_probes();
    for (int i = 0; i < 2 * R2_CASES; i++) {
        struct r2_case *k = &rig->side[i % 2].inst->diagnosis.cases[i / 2];

        *k = other;
        k->peer = rig->side[i % 2].comm->peer;
    }
    fall_silent(0);
    nobody_says();
    for (int s = 0; s < 2; s++) {
        rig->side[s].inst->diagnosis.cases[R2_CASES - 1].until.kept = 1;
    }
    ck_assert(rig_until(rig, is_told, 4 * RIG_S));
    fire("h0:n0 up");
    finish(1, BIG, 2 * RIG_S);
    stop();
}
END_TEST

/* The second NIC is of last resort. */
static int is_second(struct ibv_context *ctx)
{
    return strchr(ctx->device->name, '1') ? 10000 : 0; /* Mb/s */
}

static void with_last(struct ib_verbs *v)
{
    v->last_resort = is_second;
}

START_TEST(over_tcp)
{
    rig_verbs = with_last;
    begin(2, NULL);
    rig_verbs = NULL;
    ck_assert_uint_eq(rig->side[0].comm->conn.last, 2);
    wait_probes();
    fall_silent(0);
    finish(1, BIG, RIG_S);
    ck_assert_uint_eq(CONN_UP, 2);
    rig_run(rig, 3 * RIG_S);
    causes[0] = causes[1] = 0;
    fall_silent(1);
    nobody_says();
    fire("h0:n1 up");
    finish(1, BIG, 20 * RIG_S);
    stop();
}
END_TEST

/* A queue pair stands still that is to be waited for, while another path is up: that is no case. */
START_TEST(one_of_two)
{
    begin(2, "NCCL_R2_FAILBACK=never");
    wait_probes();
    recv_post(0, BIG);
    rig_run(rig, 5 * RIG_MS);
    driver.stuck = driver_hook(0, 0)->qp;
    send_post(0, BIG);
    rig_run(rig, 3 * RIG_S);
    ck_assert_uint_ge(driver.fired, 1);
    ck_assert(!rig_all_done(rig));
    ck_assert_uint_eq(CONN_UP, 3);
    ck_assert_uint_eq(causes[0] + causes[1], 0);
    expected = "R2-G01"; /* it ends in the end */
    finish(1, BIG, 20 * RIG_S);
    ck_assert(is_told(rig));
    stop();
}
END_TEST

/* The second of two is the last once the first has ended. */
START_TEST(one_after_the_other)
{
    begin(2, NULL);
    wait_probes();
    fall_silent(0);
    finish(1, BIG, RIG_S);
    ck_assert_uint_eq(CONN_UP, 2);
    rig_run(rig, 3 * RIG_S);
    causes[0] = causes[1] = 0;
    fall_silent(1);
    ck_assert(rig_until(rig, is_told, 4 * RIG_S));
    ck_assert_uint_eq(CONN_UP, 2);
    fire("h0:n1 up");
    finish(1, BIG, 2 * RIG_S);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_silent_cable);
    tcase_add_loop_test(t, a_moment, 0, 3);
    tcase_add_loop_test(t, where_nobody_looks, 0, 2);
    tcase_add_test(t, the_channel_is_lost);
    tcase_add_test(t, no_case_is_free);
    tcase_add_test(t, over_tcp);
    tcase_add_test(t, one_of_two);
    tcase_add_test(t, one_after_the_other);
}

int main(void)
{
    return suite_run("last_path", 60, NULL, teardown, add);
}
