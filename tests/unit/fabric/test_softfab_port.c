/* One direction of a rated port under users that poll, sleep, come late, stop and die; the clock is
 * the test's. */
#include "tests/fabric/shm/seg_port.h"

#include "tests/support/times.h"
#include "tests/unit/suite.h"

#include <string.h>

#define T0    (50 * 1000 * MS)
#define USERS 5
#define LOG   40000

static struct seg_port port;
static uint32_t seed;

/* A process that has something to send from @from to @until; it asks when the port says, up to
 * @late ns late, or every
 * @every ns whatever the port says. */
struct user {
    uint64_t from, until, dur, late, every;
    uint64_t next, used;
};

/* What was taken: when, for how long. */
static struct {
    uint64_t at, dur;
} taken[LOG];
static int ntaken;
static bool progress; /* "later" was later each time */

static uint32_t rnd(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)seed * below >> 32);
}

static void setup(void)
{
    memset(&port, 0, sizeof(port));
    ntaken = 0;
    progress = true;
    seed = 7;
}

static uint64_t take(int u, uint64_t now, uint64_t dur)
{
    uint64_t end = seg_port_take(&port, u, seg_port_floor(&port, u, now), dur);

    if (ntaken == LOG) {
        ck_abort_msg("more packets than time");
    }
    taken[ntaken].at = now;
    taken[ntaken++].dur = dur;
    return end;
}

/* One turn of a user: packets until the port says no. */
static void turn(struct user *w, int u, uint64_t now)
{
    uint64_t again;

    if (now >= w->until) {
        seg_port_leave(&port, u);
        w->next = UINT64_MAX;
        return;
    }
    while ((again = seg_port_ask(&port, u, now, SEG_PORT_AHEAD_NS)) == 0) {
        take(u, now, w->dur);
        w->used += w->dur;
    }
    progress &= again > now;
    w->next = w->every != 0 ? now + w->every : again + (w->late != 0 ? rnd((uint32_t)w->late) : 0);
}

/* Runs the users until @end, whoever is next first. */
static void run(struct user *w, int n, uint64_t end)
{
    for (;;) {
        int next = 0;
        for (int u = 1; u < n; u++) {
            next = w[u].next < w[next].next ? u : next;
        }
        if (w[next].next >= end) {
            return;
        }
        turn(&w[next], next, w[next].next);
    }
}

static void users_start(struct user *w, int n)
{
    for (int u = 0; u < n; u++) {
        w[u].next = w[u].from;
        w[u].used = 0;
    }
}

/* In every interval: no more than fits into it and into the stated burst. */
static void bound_check(uint64_t longest)
{
    uint64_t most = 0;

    for (int i = 0; i < ntaken; i++) {
        uint64_t sum = 0;
        for (int k = i; k < ntaken; k++) {
            sum += taken[k].dur;
            uint64_t wide = taken[k].at - taken[i].at;
            most = sum > wide && sum - wide > most ? sum - wide : most;
        }
    }
    ck_assert(progress);
    ck_assert_msg(most <= SEG_PORT_AHEAD_NS + SEG_PORT_CREDIT_NS + longest,
                  "%llu ns more than its time", (unsigned long long)most);
    ck_assert_uint_gt(most, SEG_PORT_AHEAD_NS / 2); /* the bound was put to the test */
}

static uint64_t used(const struct user *w, int n)
{
    uint64_t sum = 0;

    for (int u = 0; u < n; u++) {
        sum += w[u].used;
    }
    return sum;
}

START_TEST(rate_holds_however_late_users_wake)
{
    static const uint64_t late[] = {0, 100 * US, 1 * MS, 5 * MS, 40 * MS};
    struct user w[USERS];

    seed = (uint32_t)_i + 1;
    for (int u = 0; u < USERS; u++) {
        w[u] = (struct user){.from = T0 + rnd(3000) * US,
                             .until = T0 + 400 * MS + rnd(90000) * US,
                             .dur = (1 + rnd(40)) * 10 * US,
                             .late = late[(_i + u) % 5],
                             .every = u == 4 ? 20 * US : 0};
    }
    users_start(w, USERS);
    run(w, USERS, T0 + 500 * MS);
    bound_check(400 * US);
    ck_assert_uint_gt(used(w, USERS), 300 * MS);
}
END_TEST

/* One polls, others sleep until the port says and wake up late; packets of one size and of several.
 */
START_TEST(users_share_alike)
{
    struct user w[4] = {
        {.from = T0, .until = UINT64_MAX - 1, .dur = 80 * US, .every = 5 * US},
        {.from = T0 + 3 * MS, .until = UINT64_MAX - 1, .dur = 80 * US, .late = 250 * US},
        {.from = T0 + 1 * MS,
         .until = UINT64_MAX - 1,
         .dur = _i ? 300 * US : 80 * US,
         .late = 100 * US},
        {.from = T0 + 2 * MS, .until = UINT64_MAX - 1, .dur = _i ? 20 * US : 80 * US, .late = 1}};
    uint64_t before[4];

    users_start(w, 4);
    run(w, 4, T0 + 20 * MS);
    for (int u = 0; u < 4; u++) {
        before[u] = w[u].used;
    }
    for (int k = 1; k <= 20; k++) {
        run(w, 4, T0 + (uint64_t)(20 + 10 * k) * MS);
        for (int u = 1; u < 4; u++) {
            int64_t d = (int64_t)(w[u].used - before[u]) - (int64_t)(w[0].used - before[0]);
            ck_assert_msg(llabs(d) <= (int64_t)(2 * SEG_PORT_LEAD_NS + 300 * US),
                          "user %d is %lld us apart after %d ms", u, (long long)d / 1000, 10 * k);
        }
    }
    bound_check(300 * US);
    /* The port was busy: whoever let others go first found them there. */
    ck_assert_uint_ge(used(w, 4), 219 * MS);
}
END_TEST

/* Packets so long that who is refused is told to come back after more than STALE: it is waited for
 * all the same. */
START_TEST(who_was_told_when_to_come_is_waited_for)
{
    struct user w[2] = {{.from = T0, .until = UINT64_MAX - 1, .dur = 4 * MS, .every = 5 * US},
                        {.from = T0, .until = UINT64_MAX - 1, .dur = 4 * MS, .late = 50 * US}};

    users_start(w, 2);
    run(w, 2, T0 + 400 * MS);
    ck_assert_uint_ge(used(w, 2), 396 * MS);
    ck_assert_msg(llabs((int64_t)(w[0].used - w[1].used)) <= (int64_t)(SEG_PORT_LEAD_NS + 8 * MS),
                  "%llu and %llu us", (unsigned long long)w[0].used / 1000,
                  (unsigned long long)w[1].used / 1000);
}
END_TEST

/*
 * A ring of slow links: user 0 always sends to this port; user 1 to another, and to this one its
 * credits. Its own port is free for an instant between two packets. Returns for how long user 0 had
 * the port within 800 ms.
 */
static uint64_t beside_credits(uint64_t ahead, uint64_t dur)
{
    static struct seg_port out[2], other;
    uint64_t had = 0, data = 0, credits = 0, end = T0 + 800 * MS;

    memset(out, 0, sizeof(out));
    memset(&other, 0, sizeof(other));
    for (uint64_t now = T0; now < end; now += 10 * US) {
        if (seg_port_ask(&out[0], 0, now, SEG_PORT_AHEAD_NS) == 0 &&
            seg_port_ask(&port, 0, now, ahead) == 0) {
            uint64_t sent = seg_port_take(&out[0], 0, seg_port_floor(&out[0], 0, now), dur);

            seg_port_take(&port, 0, sent - dur, dur);
            had += dur;
        }
        if (seg_port_ask(&out[1], 1, now, SEG_PORT_AHEAD_NS) != 0) {
            continue;
        }
        if (credits < data / 4 && seg_port_ask(&port, 1, now, ahead) == 0) {
            uint64_t sent = seg_port_take(&out[1], 1, seg_port_floor(&out[1], 1, now), 20 * US);

            seg_port_take(&port, 1, sent - 20 * US, 20 * US);
            credits++;
        } else if (seg_port_ask(&other, 1, now, ahead) == 0) {
            uint64_t sent = seg_port_take(&out[1], 1, seg_port_floor(&out[1], 1, now), dur);

            seg_port_take(&other, 1, sent - dur, dur);
            data++;
        }
    }
    ck_assert_uint_gt(credits, 0);
    return had;
}

/* Room for packets before a receiver: nobody stands idle for one that is busy elsewhere. */
START_TEST(receiver_is_not_kept_idle_by_who_is_busy)
{
    static const uint64_t dur[] = {820 * US, 4 * MS};
    uint64_t with = beside_credits(SEG_PORT_AHEAD_PKTS * dur[_i], dur[_i]), without;

    setup();
    without = beside_credits(SEG_PORT_AHEAD_NS, dur[_i]);
    ck_assert_msg(with >= 776 * MS, "%llu us", (unsigned long long)with / 1000);
    ck_assert_msg(without < with - 20 * MS, "%llu us: this is not what it shows",
                  (unsigned long long)without / 1000);
}
END_TEST

/* A user that stops or dies while it waits holds nobody up; when it is back it makes up for the
 * lead alone. */
START_TEST(absent_user_is_not_waited_for)
{
    struct user w[2] = {{.from = T0, .until = UINT64_MAX - 1, .dur = 80 * US, .every = 5 * US},
                        {.from = T0, .until = UINT64_MAX - 1, .dur = 80 * US, .late = 50 * US}};

    users_start(w, 2);
    run(w, 2, T0 + 10 * MS);
    ck_assert(atomic_load(&port.waiting) & 2);
    w[1].next = T0 + 110 * MS;
    uint64_t alone = w[0].used;
    run(w, 2, T0 + 110 * MS);
    /* Until it is given up it costs the port what cannot be made up for. */
    ck_assert_uint_ge(w[0].used - alone, 100 * MS - SEG_PORT_STALE_NS);
    uint64_t other = w[1].used;
    alone = w[0].used;
    run(w, 2, T0 + 210 * MS);
    uint64_t a = w[0].used - alone, b = w[1].used - other;
    ck_assert_uint_le(b, a + 2 * SEG_PORT_LEAD_NS + 160 * US);
    ck_assert_uint_ge(b + 2 * SEG_PORT_LEAD_NS + 160 * US, a);
    ck_assert_uint_ge(a + b, 99 * MS);
}
END_TEST

/* Who sends now and then is not behind those who always do, and saves nothing up. */
START_TEST(idle_time_gives_nothing)
{
    for (int i = 0; i < 10; i++) {
        uint64_t now = T0 + (uint64_t)i * 20 * MS;
        ck_assert_uint_eq(seg_port_ask(&port, 3, now, SEG_PORT_AHEAD_NS), 0);
        ck_assert_uint_eq(take(3, now, 100 * US), now + 100 * US);
        seg_port_leave(&port, 3);
    }
    struct user w[2] = {
        {.from = T0 + 200 * MS, .until = UINT64_MAX - 1, .dur = 80 * US, .every = 5 * US},
        {.from = T0 + 300 * MS, .until = UINT64_MAX - 1, .dur = 80 * US, .every = 5 * US}};
    users_start(w, 2);
    run(w, 2, T0 + 300 * MS);
    uint64_t a = w[0].used;
    run(w, 2, T0 + 400 * MS);
    a = w[0].used - a;
    ck_assert_uint_le(w[1].used, a + 2 * SEG_PORT_LEAD_NS);
    ck_assert_uint_ge(w[1].used + 2 * SEG_PORT_LEAD_NS, a);
}
END_TEST

/* Who waited and comes late makes up for it, up to the credit. */
START_TEST(lateness_is_made_up_for)
{
    static const uint64_t late[] = {200 * US, 900 * US, 5 * MS};
    uint64_t now = T0, again, lost;

    while ((again = seg_port_ask(&port, 0, now, SEG_PORT_AHEAD_NS)) == 0) {
        take(0, now, 100 * US);
    }
    uint64_t busy = atomic_load(&port.free_at);
    now = busy + late[_i];
    ck_assert_uint_eq(seg_port_ask(&port, 0, now, SEG_PORT_AHEAD_NS), 0);
    uint64_t end = take(0, now, 100 * US);
    lost = late[_i] > SEG_PORT_CREDIT_NS ? late[_i] - SEG_PORT_CREDIT_NS : 0;
    ck_assert_uint_eq(end, busy + lost + 100 * US);
    /* A user that did not wait has no part in that, and an empty packet takes nothing away. */
    ck_assert_uint_eq(seg_port_take(&port, 1, seg_port_floor(&port, 1, now), 0),
                      now > end ? now : end);
    ck_assert_uint_eq(atomic_load(&port.free_at), end);
    while ((again = seg_port_ask(&port, 0, now, SEG_PORT_AHEAD_NS)) == 0) {
        take(0, now, 100 * US);
    }
    ck_assert_uint_le(atomic_load(&port.free_at), now + SEG_PORT_AHEAD_NS + 100 * US);
    ck_assert_uint_gt(atomic_load(&port.free_at), now + SEG_PORT_AHEAD_NS - 100 * US);
    bound_check(100 * US);
}
END_TEST

/*
 * A user that was refused once and has since sent nothing but empty packets (acknowledgements), or
 * cannot use the port's yes (its receiver's ring is full), again and again: who is ahead of it
 * sends on.
 */
START_TEST(who_takes_no_time_holds_nobody_up)
{
    struct user w[1] = {{.from = T0, .until = UINT64_MAX - 1, .dur = 80 * US, .every = 5 * US}};
    uint64_t refused = 0, passed = 0;

    users_start(w, 1);
    for (uint64_t now = T0; now < T0 + 200 * MS; now += 20 * US) {
        run(w, 1, now);
        if (seg_port_ask(&port, 1, now, SEG_PORT_AHEAD_NS) != 0) {
            refused++;
        } else if (_i) {
            seg_port_yield(&port, 1);
            passed++;
        } else {
            seg_port_take(&port, 1, seg_port_floor(&port, 1, now), 0);
            passed++;
        }
    }
    ck_assert(atomic_load(&port.waiting) & 2);
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_gt(passed, 1000);
    ck_assert_uint_ge(w[0].used, 199 * MS);
    bound_check(80 * US);
}
END_TEST

static void cases(TCase *t)
{
    tcase_add_loop_test(t, rate_holds_however_late_users_wake, 0, 20);
    tcase_add_loop_test(t, users_share_alike, 0, 2);
    tcase_add_test(t, who_was_told_when_to_come_is_waited_for);
    tcase_add_loop_test(t, receiver_is_not_kept_idle_by_who_is_busy, 0, 2);
    tcase_add_test(t, absent_user_is_not_waited_for);
    tcase_add_test(t, idle_time_gives_nothing);
    tcase_add_loop_test(t, lateness_is_made_up_for, 0, 3);
    tcase_add_loop_test(t, who_takes_no_time_holds_nobody_up, 0, 2);
}

int main(void)
{
    return suite_run("softfab_port", 60, setup, NULL, cases);
}
