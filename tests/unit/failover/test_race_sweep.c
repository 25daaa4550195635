/* One failure at each of many instants of one exchange, so that every stage of it is met: CTS under
 * way, data under way, landed, polled, acknowledged, idle; and a second failure at each instant of
 * the settlement of the first. */
#include "tests/unit/race_rig.h"

#define MSGS 8
#define SIZE 8192
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COARSE 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(COARSE)
#define STEPS 6 /* under a sanitizer each run takes twenty times as long */
#define STEP  (8 * RIG_US)
#else
#define STEPS 25
#define STEP  (2 * RIG_US) /* the exchange takes about 50 us */
#endif

#define PLAIN "NCCL_R2_T_PACKET=50", "NCCL_R2_T_DEAD=100"
static const char *const plain[] = {PLAIN, NULL};
static const char *const parts[] = {PLAIN, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128", NULL};
/* ... and the bytes of each before what tells of them */
static const char *const pairs[] = {PLAIN,
                                    "NCCL_R2_SPREAD=on",
                                    "NCCL_R2_CUT_MIN=128",
                                    "NCCL_IB_ADAPTIVE_ROUTING=1",
                                    "NCCL_IB_AR_THRESHOLD=0",
                                    NULL};
static const char *const *const cuts[] = {plain, parts, pairs};
#define CUTS 3

static struct {
    const char *text[2];
    uint64_t second;     /* ns after the first */
    unsigned fired, met; /* runs in which something was not done */
} at;

static void fire_now(void *arg)
{
    at.met += arg == NULL && !rig_all_done(rig);
    at.fired++;
    fire(arg ? at.text[1] : at.text[0]);
}

static void fire_at(uint64_t when)
{
    at.fired = 0;
    ck_assert_uint_ne(fab_inproc_at(rig->f, rig_now(rig) + when, fire_now, NULL), 0);
    if (at.text[1]) {
        ck_assert_uint_ne(fab_inproc_at(rig->f, rig_now(rig) + when + at.second, fire_now, &at), 0);
    }
}

/* Eight messages, with at.text at @when after their begin; what is under way then, and what comes
 * afterwards, is through within @limit. */
static void exchange(uint64_t when, uint64_t limit, const char *const *options)
{
    uint64_t began;

    start(4, options);
    messages(2, 1000);
    rig_run(rig, 100 * RIG_MS); /* the probes stand, R has nothing unconfirmed */
    fire(options == plain ? "*:* rate 2GB/s" : "*:* rate 500MB/s");
    began = rig_now(rig);
    fire_at(when);
    for (int i = 0; i < MSGS; i++) {
        recv_post(i, SIZE);
    }
    for (int i = 0; i < MSGS; i++) {
        send_post(i);
    }
    finish(MSGS, limit);
    if (rig_now(rig) < began + when + at.second) {
        rig_run(rig, began + when + at.second - rig_now(rig));
    }
    ck_assert_uint_eq(at.fired, at.text[1] ? 2 : 1);
    ck_assert_int_eq(comm(1)->conn.path[1].nrecords > 0, options == pairs);
    began = rig_now(rig);
    messages(4, 1000);
    ck_assert_msg(rig_now(rig) - began <= limit,
                  "%s after %.1f us: messages behind it took %.3f ms", at.text[0],
                  (double)when / 1e3, (double)(rig_now(rig) - began) / 1e6);
    stop();
    teardown();
}

static const struct {
    const char *text;
    uint64_t limit_ms; /* by an event, by silence, or after a hold */
} fault[] = {
    {"h0:n0 down", 5},       {"h1:n0 down", 5},           {"*:n0 down", 5},
    {"h0:n0 qp-error", 5},   {"h1:n0 qp-error", 5},       {"*:n0 qp-error", 5},
    {"h0:n0 fatal", 150},    {"h1:n0 fatal", 150},        {"h0:n0 remove", 300},
    {"h1:n0 remove", 300},   {"h0:n0 blackhole", 300},    {"h1:n0 blackhole-tx", 300},
    {"h1:n0 ack-lost", 300}, {"h0:n0 blackhole-rx", 300}, {"h0:n0 hang", 500},
    {"h1:n0 hang", 500},     {"h0:n0 send-stuck", 300},   {"h1:n0 send-stuck", 300},
};
#define FAULTS (int)(sizeof(fault) / sizeof(fault[0]))

START_TEST(fault_at_each_instant)
{
    memset(&at, 0, sizeof(at));
    at.text[0] = fault[_i / CUTS].text;
    for (int k = 0; k < STEPS; k++) {
        exchange((uint64_t)k * STEP + 1, fault[_i / CUTS].limit_ms * RIG_MS, cuts[_i % CUTS]);
    }
    ck_assert_uint_gt(at.met, STEPS / 4);
}
END_TEST

static const struct {
    const char *text[2];
    uint64_t limit_ms;
} two[] = {
    {{"h0:n0 down", "h0:n1 down"}, 5},
    {{"h0:n0 down", "h1:n1 down"}, 5},
    {{"h1:n0 qp-error", "h0:n1 qp-error"}, 5},
    {{"*:n0 down", "*:n1 down"}, 5},
    {{"h0:n0 qp-error", "h1:n1 fatal"}, 150},
    {{"h1:n0 fatal", "h0:n1 fatal"}, 150},
    {{"h0:n0 blackhole-tx", "h1:n1 blackhole-tx"}, 400},
};
#define TWOS (int)(sizeof(two) / sizeof(two[0]))

/* The first one in the middle of the exchange, the second at each instant of its settlement. */
START_TEST(second_fault_at_each_instant_of_a_settlement)
{
    memset(&at, 0, sizeof(at));
    at.text[0] = two[_i / CUTS].text[0];
    at.text[1] = two[_i / CUTS].text[1];
    for (int k = 0; k < STEPS; k++) {
        at.second = (uint64_t)k * STEP / 2 + 1;
        exchange(25 * RIG_US, two[_i / CUTS].limit_ms * RIG_MS, cuts[_i % CUTS]);
    }
    ck_assert_uint_eq(at.met, STEPS);
}
END_TEST

static void abort_now(void *arg)
{
    int s = arg != NULL;

    at.met += !rig_all_done(rig);
    at.fired++;
    rig_dereg(rig, s, s ? r_mr : s_mr);
    slots_taken_away = s;
    rig_close(rig, s);
}

static int stayed;
static int other_end_knows(struct rig *r)
{
    return r->side[stayed].status != R2_OK || r->side[stayed].head == r->side[stayed].tail;
}

/* One end aborts at each instant of an exchange, with a path given up in its middle. */
START_TEST(abort_at_each_instant)
{
    memset(&at, 0, sizeof(at));
    at.text[0] = _i / 2 ? "h0:n0 down" : "h1:n0 qp-error";
    stayed = !(_i % 2);
    for (int k = 0; k < STEPS; k++) {
        uint64_t began;

        start(3, plain);
        messages(2, 1000);
        rig_run(rig, 100 * RIG_MS);
        fire("*:* rate 2GB/s");
        recv_burst(MSGS, SIZE);
        fire_at(10 * RIG_US);
        ck_assert_uint_ne(fab_inproc_at(rig->f, rig_now(rig) + (uint64_t)k * STEP + 1, abort_now,
                                        stayed ? NULL : &at),
                          0);
        send_burst(MSGS);
        rig_run(rig, RIG_MS);
        ck_assert_uint_eq(at.fired, 2);
        began = rig_now(rig);
        if (stayed && rig->side[1].status == R2_OK) { /* it wants more than there is */
            rig_irecv1(rig, in[SLOTS - 1], 100, 0, r_mr);
        }
        ck_assert(rig_until(rig, other_end_knows, 500 * RIG_MS));
        /* R's NIC may refuse what comes after its abort before R's word is there */
        ck_assert_msg(rig->side[stayed].status == R2_OK ||
                          rig->side[stayed].status == R2_ERR_PEER ||
                          (!stayed && strstr(comm(0)->fo.why, "remote access error")),
                      "%s", comm(stayed)->fo.why);
        ck_assert_int_eq(rig->side[!stayed].status, R2_OK);
        rig_dereg(rig, stayed, stayed ? r_mr : s_mr);
        rig_close(rig, stayed);
        while (rig_comms(rig, 0) + rig_comms(rig, 1) > 0) {
            ck_assert_uint_lt(rig_now(rig) - began, 2 * RIG_S);
            rig_run(rig, RIG_MS);
        }
        ck_assert_uint_eq(ghost_writes, 0);
        teardown();
    }
    ck_assert_uint_gt(at.met, STEPS / 2);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, fault_at_each_instant, 0, CUTS * FAULTS);
    tcase_add_loop_test(t, abort_at_each_instant, 0, 4);
    tcase_add_loop_test(t, second_fault_at_each_instant_of_a_settlement, 0, CUTS * TWOS);
}

int main(void)
{
    return run_suite("races: sweep", add);
}
