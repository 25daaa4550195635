/*
 * Thousands of jobs that switch communicators, over a channel that loses, repeats and reorders,
 * with ranks that run ahead, are not ready, capture graphs, abort or are gone, and a leader that is
 * lost: no two ranks use different communicators for one operation, and none waits for ever.
 */
#include <check.h>
#include <string.h>

#include "place/place_leader.h"
#include "place/place_member.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"

#define RANKS   8
#define COMMS   6
#define OPS     4096
#define FLIGHT  256
#define SEEDS   10000
#define STEPS   1500
#define WAIT_NS 50

/* An assertion of Check's costs system calls, and these are millions. */
#define CHECK(what, ...)                                                                           \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

static struct {
    uint64_t seed;
    uint32_t run;
    int n, ahead; /* ranks; operations that one may be ahead of the last */
    uint64_t now;
    struct place_leader leader;
    struct place_rank rank[RANKS];
    struct place_member member[RANKS];
    bool ready[RANKS][COMMS]; /* that communicator, at that rank */
    bool failed[RANKS];       /* an operation of it has failed, or it is gone */
    bool gone[RANKS];
    bool leads; /* the leader's process lives */
    struct {
        struct place_msg msg;
        int rank;
        bool to_leader;
    } flight[FLIGHT];
    int flights;
    int8_t used[OPS]; /* communicator of each operation, by the rank that began it first; -1 */
} job;

static struct {
    int commits, switched, back, late, not_ready, never, timeout, behind, waits, lost_at_gate;
} seen;

static uint32_t draw(uint32_t n)
{
    return plan_random(&job.seed, n);
}

/* --- channel --- */

static void send(int rank, bool to_leader, const struct place_msg *msg)
{
    if (draw(8) == 0) {
        return; /* lost */
    }
    for (unsigned copies = 1 + (draw(8) == 0); copies && job.flights < FLIGHT; copies--) {
        job.flight[job.flights].msg = *msg;
        job.flight[job.flights].rank = rank;
        job.flight[job.flights++].to_leader = to_leader;
    }
}

static void member_takes(int rank, const struct place_msg *msg)
{
    struct place_msg reply;

    if (place_member_take(&job.member[rank], msg, job.ready[rank][msg->to], &reply)) {
        seen.late += reply.answer == PLACE_LATE;
        seen.not_ready += reply.answer == PLACE_NOT_READY;
        seen.never += reply.answer == PLACE_NEVER;
        seen.behind += reply.answer == PLACE_BEHIND;
        send(rank, true, &reply);
    }
}

/* Any of those that are under way. */
static void deliver(void)
{
    struct place_msg msg;
    int i, rank;
    bool to_leader;

    if (job.flights == 0) {
        return;
    }
    i = (int)draw((uint32_t)job.flights);
    msg = job.flight[i].msg;
    rank = job.flight[i].rank;
    to_leader = job.flight[i].to_leader;
    job.flight[i] = job.flight[--job.flights];
    if (job.gone[rank] || (to_leader && !job.leads)) {
        return;
    }
    if (to_leader) {
        uint8_t before = job.leader.state;

        place_leader_take(&job.leader, rank, &msg);
        seen.commits += before == PLACE_PREPARING && job.leader.state == PLACE_COMMITTING;
    } else {
        member_takes(rank, &msg);
    }
}

static void leader_sends(void)
{
    struct place_msg msg;

    for (int i = 0; job.leads && i < job.n; i++) {
        if (place_leader_due(&job.leader, i, &msg)) {
            send(i, false, &msg);
        }
    }
}

/* --- ranks --- */

/* Of those that are still there. */
static uint64_t least_begun(void)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < job.n; i++) {
        if (!job.gone[i] && job.member[i].begun < least) {
            least = job.member[i].begun;
        }
    }
    return least;
}

static void operation_note(int rank, uint64_t op, uint32_t use)
{
    CHECK(use < COMMS && job.ready[rank][use],
          "seed %u: operation %llu on %u, which rank %d does not have", job.run,
          (unsigned long long)op, use, rank);
    CHECK(job.used[op] < 0 || job.used[op] == (int8_t)use,
          "seed %u: operation %llu on %u at rank %d, on %d elsewhere", job.run,
          (unsigned long long)op, use, rank, job.used[op]);
    if (job.used[op] < 0 && op > 0 && job.used[op - 1] != (int8_t)use) {
        seen.switched++;
        seen.back += use == 0;
    }
    job.used[op] = (int8_t)use;
}

static void operation(int rank)
{
    struct place_member *m = &job.member[rank];
    uint64_t op = m->begun;
    uint32_t use = COMMS;

    if (op >= OPS || job.failed[rank] || op >= least_begun() + (uint64_t)job.ahead) {
        return;
    }
    switch (place_member_begin(m, &use)) {
    case PLACE_USE:
        operation_note(rank, op, use);
        return;
    case PLACE_WAIT:
        seen.waits++;
        CHECK(m->begun == op, "seed %u: what waits has begun", job.run);
        return;
    case PLACE_FAIL:
        seen.lost_at_gate += m->state == PLACE_LOST;
        CHECK(m->state == PLACE_LOST || m->state == PLACE_ENDED, "seed %u: it fails while %s",
              job.run, place_member_state_name((enum place_member_state)m->state));
        job.failed[rank] = true;
    }
}

static void leader_turn(void)
{
    uint8_t before = job.leader.state;

    job.now += draw(WAIT_NS / 5);
    if (!job.leads) {
        return;
    }
    place_leader_tick(&job.leader, job.now);
    seen.timeout += before == PLACE_PREPARING && job.leader.state == PLACE_ABORTING;
    if (job.leader.state == PLACE_IDLE && draw(4) == 0) {
        place_leader_begin(&job.leader, draw(COMMS), job.member[0].begun, job.now);
    }
    leader_sends();
}

/* What happens to a few of the jobs. */
static void mishap(void)
{
    int rank = (int)draw((uint32_t)job.n);

    switch (draw(4)) {
    case 0:
        place_member_never(&job.member[rank]);
        break;
    case 1:
        place_member_end(&job.member[rank]);
        break;
    case 2:
        job.leads = false;
        for (int i = 0; i < job.n; i++) {
            place_member_lost(&job.member[i]);
        }
        break;
    default:
        job.failed[rank] = job.gone[rank] = rank != 0;
        if (rank != 0) {
            place_leader_lost(&job.leader, rank);
        }
    }
}

static void step(bool mishaps)
{
    int rank = (int)draw((uint32_t)job.n);

    switch (draw(8)) {
    case 0:
        leader_turn();
        break;
    case 1:
    case 2:
    case 3:
        deliver();
        break;
    case 4:
        job.ready[rank][draw(COMMS)] = true;
        break;
    default:
        operation(rank);
    }
    if (mishaps && draw(600) == 0) {
        mishap();
    }
}

static void job_begin(uint32_t run)
{
    memset(&job, 0, sizeof(job));
    job.run = run;
    job.seed = run * 2654435761u + 1;
    job.n = 2 + (int)draw(RANKS - 1);
    job.ahead = 1 + (int)draw(40);
    job.leads = true;
    place_leader_init(&job.leader, job.rank, job.n, WAIT_NS);
    memset(job.used, -1, sizeof(job.used));
    for (int i = 0; i < job.n; i++) {
        for (int c = 0; c < COMMS; c++) {
            job.ready[i][c] = c == 0 || draw(4) != 0;
        }
    }
}

/* The decision that is open arrives, without a mishap; then every rank goes on. */
static void job_settle(void)
{
    uint64_t most;

    for (int turn = 0; turn < 400 && job.leads && job.leader.state != PLACE_IDLE; turn++) {
        job.now += WAIT_NS;
        place_leader_tick(&job.leader, job.now);
        leader_sends();
        for (int k = 0; k < FLIGHT && job.flights; k++) {
            deliver();
        }
    }
    most = least_begun() + 200;
    for (int turn = 0; turn < 5000 && least_begun() < most; turn++) {
        operation(turn % job.n);
    }
}

static void job_check(bool mishaps)
{
    bool failed = false;

    CHECK(!job.leads || job.leader.state == PLACE_IDLE, "seed %u: the leader is %s", job.run,
          place_leader_state_name((enum place_leader_state)job.leader.state));
    for (int i = 0; i < job.n; i++) {
        failed = failed || job.failed[i];
        CHECK(job.member[i].state != PLACE_PREPARED || job.gone[i],
              "seed %u: rank %d waits for a decision", job.run, i);
    }
    CHECK(mishaps || !failed, "seed %u: an operation failed", job.run);
    for (int i = 0; !failed && job.leads && i < job.n; i++) {
        CHECK(job.member[i].now == job.leader.now && job.member[i].state == PLACE_FREE,
              "seed %u: rank %d uses %u (%s), decided is %u", job.run, i, job.member[i].now,
              place_member_state_name((enum place_member_state)job.member[i].state),
              job.leader.now);
    }
}

static void jobs_run(bool mishaps)
{
    memset(&seen, 0, sizeof(seen));
    for (uint32_t run = 0; run < SEEDS; run++) {
        job_begin(run);
        for (int i = 0; i < STEPS; i++) {
            step(mishaps);
        }
        job_settle();
        job_check(mishaps);
    }
}

START_TEST(all_ranks_use_one_communicator)
{
    jobs_run(false);
    ck_assert_int_gt(seen.commits, SEEDS);
    ck_assert_int_gt(seen.switched, SEEDS);
    ck_assert_int_gt(seen.back, SEEDS / 10);
    ck_assert_int_gt(seen.late, SEEDS / 10);
    ck_assert_int_gt(seen.not_ready, SEEDS / 10);
    ck_assert_int_gt(seen.behind, 0);
    ck_assert_int_gt(seen.timeout, SEEDS / 10);
    ck_assert_int_gt(seen.waits, SEEDS / 10);
    ck_assert_int_eq(seen.never + seen.lost_at_gate, 0);
}
END_TEST

START_TEST(and_where_something_is_lost)
{
    jobs_run(true);
    ck_assert_int_gt(seen.commits, SEEDS / 4);
    ck_assert_int_gt(seen.never, SEEDS / 100);
    ck_assert_int_gt(seen.lost_at_gate, SEEDS / 100);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, all_ranks_use_one_communicator);
    tcase_add_test(t, and_where_something_is_lost);
}

int main(void)
{
    return suite_run("place_runs", 300, NULL, NULL, add);
}
