/* Hours of virtual time in which nothing is broken: congestion, loss, callers and processes that
 * stand still, flaps shorter than detection. Not one path may go down. Each disturbance lies under
 * traffic; rig_fault asserts that it fired, the counters that packets felt it. */
#include "tests/unit/watch_rig.h"

#define HOUR (3600 * RIG_S)

enum kind {
    LOSS,
    DAMAGE,
    TWICE,
    DELAY,
    CONGESTION,
    SLOW_RECEIVER,
    SLOW_SENDER,
    PAUSED_PROCESS,
    PAUSED_HOST,
    FLAP,
    HALF_FLAP,
    NOTHING,
    KINDS
};

static uint64_t state, times[KINDS], tails; /* rounds that ended an incarnation */
static int spines;                          /* of each rail; what they suffer counts as well */
static uint64_t at_spines;
static unsigned ways_lost; /* said to be */

static uint64_t draw(uint64_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
}

/* "hH:nN TEXT" at a NIC that is drawn, for one of both ends' NICs. */
static void disturb(const char *text)
{
    char fault[64], err[128];

    if (spines > 1 && (strncmp(text, "loss", 4) == 0 || strncmp(text, "rate", 4) == 0)) {
        snprintf(fault, sizeof(fault), "spine %d %s", (int)draw((uint64_t)spines), text);
        ck_assert_msg(fab_inproc_fault(rig->f, fault, err, sizeof(err)) == 0, "%s", err);
        at_spines++;
        return;
    }
    snprintf(fault, sizeof(fault), "h%d:n%d %s", (int)draw(2), (int)draw(2), text);
    fire(fault);
}

static void all_nics(int host, const char *what)
{
    char fault[32];

    snprintf(fault, sizeof(fault), "h%d:* %s", host, what);
    fire(fault);
}

static void idle(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        rig_turn(rig, 10 * RIG_MS);
    }
}

static void sends(int n)
{
    for (int i = 0; i < n; i++) {
        send_post(i, BIG);
    }
}

/* What stands between the receives' CTS and the end of the traffic. */
static void under_way(enum kind k, int n)
{
    int side = (int)draw(2);
    struct r2_inst *inst;
    char text[32];

    switch (k) {
    case LOSS:
    case DAMAGE:
        snprintf(text, sizeof(text), "%s 0.%d%%", k == LOSS ? "loss" : "corrupt", 1 + (int)draw(9));
        disturb(text);
        break;
    case TWICE:
        snprintf(text, sizeof(text), "dup %d%%", 1 + (int)draw(20));
        disturb(text);
        break;
    case DELAY:
        snprintf(text, sizeof(text), "delay %dms", 1 + (int)draw(10));
        disturb(text);
        break;
    case CONGESTION:
        /* 8 messages at 4 MB/s are half of what a spine's queue takes: it drops what is more */
        snprintf(text, sizeof(text), "rate %dMB/s", (spines > 1 ? 4 : 2) + (int)draw(20));
        disturb(text);
        break;
    case SLOW_RECEIVER:
    case SLOW_SENDER:
        side = k == SLOW_RECEIVER;
        sends(n);
        rig->side[side].asleep = 1;
        idle(draw(6 * RIG_S));
        rig->side[side].asleep = 0;
        return;
    case PAUSED_PROCESS:
    case PAUSED_HOST:
        sends(n);
        inst = process_stop(side);
        if (k == PAUSED_HOST) {
            all_nics(side, "hang");
        }
        idle(draw(3 * RIG_S));
        if (k == PAUSED_HOST) {
            all_nics(side, "unhang");
        }
        process_go(side, inst);
        return;
    case FLAP:
    case HALF_FLAP:
        disturb(k == FLAP ? "blackhole" : draw(2) ? "blackhole-tx" : "blackhole-rx");
        sends(n);
        rig_run(rig, RIG_MS + draw(24 * RIG_MS)); /* less than T_suspect */
        return;
    default:
        break;
    }
    sends(n);
    finish(n, BIG, 60 * RIG_S); /* under the disturbance from beginning to end */
}

/* Packets are lost, and so may be the last one of a queue pair, whose incarnation ends then:
 * neither NIC is given up for it, and the path is back at once (test_watch_tail.c). */
static bool is_lossy(enum kind k)
{
    return k == LOSS || k == DAMAGE || k == FLAP || k == HALF_FLAP || k == PAUSED_HOST;
}

static unsigned ended(void)
{
    return rig->side[0].comm->fo.switches + rig->side[1].comm->fo.switches;
}

static void round_of(enum kind k)
{
    int n = 1 + (int)draw(8);
    unsigned before = ended();

    times[k]++;
    for (int i = 0; i < n; i++) {
        recv_post(i, BIG);
    }
    rig_run(rig, 200 * RIG_US);
    under_way(k, n);
    fire("*:* restore");
    finish(n, BIG, 60 * RIG_S); /* a packet that RC alone repeats costs 4.3 s */
    idle(draw(RIG_S));
    ck_assert_msg(is_lossy(k) || ended() == before, "kind %d: %s, %s", k,
                  rig->side[0].comm->fo.last_fault, rig->side[1].comm->fo.last_fault);
    if (ended() != before) {
        tails++;
        ck_assert_msg(strstr(rig->side[0].comm->fo.last_fault, "last packet") ||
                          strstr(rig->side[1].comm->fo.last_fault, "last packet"),
                      "kind %d: %s, %s", k, rig->side[0].comm->fo.last_fault,
                      rig->side[1].comm->fo.last_fault);
    }
}

static uint64_t answers(void)
{
    uint64_t n = 0;

    for (int s = 0; s < 2; s++) {
        for (int nic = 0; nic < 2; nic++) {
            n += pair_of(s, nic)->probe.answers;
        }
    }
    return n;
}

static void on_way(struct r2_pair *pair, unsigned way, unsigned good, uint64_t ns)
{
    (void)pair, (void)way, (void)good, (void)ns;
    ways_lost++;
}

/* Defaults of NCCL and of the plugin; both NICs carry. */
static void begin(void)
{
    static const struct r2_subscriber test = {.on_way = on_way};
    static const char *const options[] = {"NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7",
                                          "NCCL_R2_SPREAD=on", NULL};
    struct fab_desc desc;
    char err[128];

    memset(times, 0, sizeof(times));
    tails = at_spines = ways_lost = 0;
    ck_assert_msg(fab_desc_init(&desc, 2, 2, 0, RIG_US, err, sizeof(err)) == 0, "%s", err);
    desc.spines = spines;
    rig = rig_create_desc(&desc, options);
    subscribe(&test);
    connect_ends();
}

/* The last two over eight spines, of which one at a time is slow or loses packets. */
START_TEST(an_hour_of_what_is_no_failure)
{
    struct fab_counters sum;
    uint64_t end, rounds = 0;

    state = (uint64_t)_i + 1;
    spines = _i > 1 ? 8 : 1;
    begin();
    wait_probes();
    messages(8, BIG);
    for (end = rig_now(rig) + HOUR; rig_now(rig) < end; rounds++) {
        round_of((enum kind)draw(KINDS));
    }
    ck_assert_uint_gt(tails, 10);
    for (int k = 0; k < KINDS; k++) {
        ck_assert_msg(times[k] >= rounds / KINDS / 2, "kind %d: %llu of %llu rounds", k,
                      (unsigned long long)times[k], (unsigned long long)rounds);
    }
    fab_inproc_totals(rig->f, &sum);
    ck_assert_uint_gt(sum.tx_dropped + sum.rx_dropped, 100);
    ck_assert_uint_gt(sum.rx_hung, 100);
    ck_assert_uint_gt(sum.dups_made, 100);
    ck_assert_uint_gt(sum.timeouts, 100);
    ck_assert_uint_gt(answers(), 100); /* suspected, asked, and nothing was wrong */
    ck_assert(spines == 1 || at_spines > 100);
    ck_assert_uint_eq(ways_lost, 0);
    stop();
}
END_TEST

/* Nobody is asked over a NIC pair while messages come and go, in bursts and with seconds between
 * them. */
START_TEST(an_hour_of_healthy_traffic_asks_nothing)
{
    uint64_t asked, end, rounds = 0;

    state = 77;
    start(2,
          (const char *[]){"NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7", "NCCL_R2_SPREAD=on", NULL});
    wait_probes();
    asked = answers();
    for (end = rig_now(rig) + HOUR; rig_now(rig) < end; rounds++) {
        round_of(NOTHING);
    }
    ck_assert_uint_gt(rounds, 3600);
    ck_assert_uint_eq(answers(), asked);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("watchdog: an hour");
    TCase *t = tcase_create("hour");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_loop_test(t, an_hour_of_what_is_no_failure, 0, 4);
    tcase_add_test(t, an_hour_of_healthy_traffic_asks_nothing);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
