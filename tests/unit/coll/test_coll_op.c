/* Operations and groups over a NCCL, and a driver of CUDA's, that write down what they are told. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "coll/coll_op.h"
#include "tests/unit/suite.h"

static struct coll_user u, other;
static char told[1024];        /* a letter and what it is for, each */
static coll_status fails_with; /* the next all_reduce or, if it ends one, group */
static bool group_fails, captures;
static int opened;
static struct place_note reply;

__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...)
{
    size_t used = strlen(told);
    va_list args;

    va_start(args, fmt);
    vsnprintf(told + used, sizeof(told) - used, fmt, args);
    va_end(args);
}

/* --- NCCL: all_reduce on communicator a, b, ..., groups as brackets --- */

static coll_status reduce(const void *send, void *recv, size_t count, int type, int op, void *comm,
                          void *stream)
{
    coll_status rc = fails_with;

    tell("%s%s ", (const char *)comm, (const char *)stream);
    fails_with = COLL_SUCCESS;
    group_fails = group_fails || (rc != COLL_SUCCESS && opened > 0);
    return rc;
}

static coll_status start(void)
{
    opened++;
    tell("[ ");
    return COLL_SUCCESS;
}

static coll_status end(void)
{
    coll_status rc = group_fails ? COLL_INVALID_ARGUMENT : COLL_SUCCESS;

    tell("] ");
    group_fails = --opened > 0 && group_fails;
    return rc;
}

static coll_status simulate(struct coll_sim *sim)
{
    opened--;
    tell("? ");
    return COLL_SUCCESS;
}

static coll_status abort_comm(void *comm)
{
    coll_status rc = fails_with;

    tell("!%s ", (const char *)comm);
    fails_with = COLL_SUCCESS;
    return rc;
}

static const struct coll_real real = {.group_start = start,
                                      .group_end = end,
                                      .group_simulate_end = simulate,
                                      .all_reduce = reduce,
                                      .abort = abort_comm};

/* --- CUDA: +event on a stream, -event waited for by a stream --- */

static int capturing(void *stream, int *status)
{
    *status = captures;
    return 0;
}

static int wait_event(void *stream, void *event, unsigned flags)
{
    tell("-%s%s ", (const char *)event, (const char *)stream);
    return 0;
}

static int record_event(void *event, void *stream)
{
    tell("+%s%s ", (const char *)event, (const char *)stream);
    return 0;
}

const struct coll_cuda *coll_cuda_get(void)
{
    static const struct coll_cuda cuda = {.stream_is_capturing = capturing,
                                          .stream_wait_event = wait_event,
                                          .event_record = record_event};

    return &cuda;
}

void coll_ctl_put(struct coll_user *user)
{
    user->refs--;
}

/* Its shadows are being aborted; and are freed. */
bool coll_ctl_abort(struct coll_user *user)
{
    bool first = !user->aborted;

    user->aborted = true;
    tell(first ? "!" : "=");
    return first;
}

void coll_ctl_leave(struct coll_user *user, bool abort)
{
    tell("%s%s ", abort ? "x" : "-", (const char *)user->comm.user);
}

/* --- communicators: the user's is a (the other user's: c), its shadow b --- */

static void kick(void)
{
}

static void user_init(struct coll_user *user, const char *own, const char *const mark[3])
{
    static const struct place_meet meet = {.key = 42};

    memset(user, 0, sizeof(*user));
    coll_comm_init(&user->comm, (void *)own, &meet, 0, 2, 7, kick);
    for (int i = 0; i < 3; i++) {
        user->mark[i].event = (void *)mark[i];
    }
}

static void setup(void)
{
    static const char *const mark[3] = {"a", "b", "b2"}, *const second[3] = {"c", "d", "d2"};

    user_init(&u, "a", mark);
    user_init(&other, "c", second);
    told[0] = '\0';
    fails_with = COLL_SUCCESS;
    group_fails = captures = false;
    opened = 0;
}

static void teardown(void)
{
    ck_assert_int_eq(u.refs, 0);
    ck_assert_int_eq(other.refs, 0);
    for (int i = 0; i < PLACE_HELD; i++) {
        ck_assert_uint_eq(u.comm.held.slot[i].busy, 0);
    }
    coll_comm_close(&u.comm);
    coll_comm_close(&other.comm);
}

static void take(struct place_note note)
{
    coll_comm_take(&u.comm, &note, &reply);
}

/* From operation @at on u's are for its shadow, or for its own communicator again. */
static void switches(uint32_t attempt, uint32_t to, uint64_t at)
{
    struct place_note n = {.kind = PLACE_NOTE_MSG,
                           .msg = {.kind = PLACE_PREPARE, .attempt = attempt, .to = to, .at = at}};

    take(n);
    ck_assert_int_eq(reply.msg.answer, PLACE_YES);
    n.msg.kind = PLACE_COMMIT;
    take(n);
}

static void to_shadow(uint64_t at)
{
    int slot;

    take((struct place_note){.kind = PLACE_NOTE_ASK, .comm = 1});
    take((struct place_note){.kind = PLACE_NOTE_MAKE, .make = {.comm = 1}});
    ck_assert_int_eq(coll_comm_work(&u.comm, &slot), COLL_WORK_MAKE);
    coll_comm_done(&u.comm, slot, (void *)"b");
    switches(1, 1, at);
}

static coll_status reduces(struct coll_user *user, const char *stream)
{
    static const struct coll_reduce what;

    user->refs++;
    return coll_op_reduce(&real, user, &what, (void *)stream);
}

static void stays(const char *stream, coll_status rc)
{
    u.refs++;
    ck_assert(coll_op_before(&u, (void *)stream));
    tell("a%s ", stream);
    coll_op_after(&u, (void *)stream, rc);
}

static void was_told(const char *what)
{
    ck_assert_str_eq(told, what);
    told[0] = '\0';
}

static void has_begun(uint64_t n)
{
    ck_assert_uint_eq(u.comm.member.begun, n);
}

START_TEST(each_waits_for_the_one_before)
{
    to_shadow(2);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "2"), COLL_SUCCESS);
    was_told("a1 +a1 a2 +a2 "); /* NCCL sees to that */
    ck_assert_int_eq(reduces(&u, "3"), COLL_SUCCESS);
    was_told("-a3 b3 +b3 ");
    ck_assert_int_eq(reduces(&u, "3"), COLL_SUCCESS);
    was_told("b3 +b3 ");
    stays("4", COLL_SUCCESS);
    was_told("-b4 a4 +a4 ");
    ck_assert_int_eq(reduces(&u, "3"), COLL_SUCCESS);
    was_told("-a3 b3 +b3 ");
    has_begun(5);
}
END_TEST

START_TEST(what_nccl_refuses)
{
    fails_with = COLL_INVALID_ARGUMENT;
    ck_assert_int_eq(reduces(&u, "1"), COLL_INVALID_ARGUMENT);
    stays("1", COLL_INVALID_ARGUMENT);
    was_told("a1 a1 ");
    has_begun(0);
}
END_TEST

START_TEST(shadows_behind_the_group)
{
    to_shadow(1);
    ck_assert_int_eq(coll_group_start(&real), COLL_SUCCESS);
    ck_assert(coll_group_is_open());
    ck_assert_int_eq(coll_group_start(&real), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&other, "2"), COLL_SUCCESS);
    stays("1", COLL_SUCCESS);
    ck_assert_int_eq(coll_group_end(&real), COLL_SUCCESS);
    was_told("[ [ a1 c2 a1 ] ");
    ck_assert_int_eq(coll_group_end(&real), COLL_SUCCESS);
    was_told("] +a1 +c2 +a1 [ -a1 b1 ] +b1 ");
    ck_assert(!coll_group_is_open());
    has_begun(2);
}
END_TEST

/* NCCL drops all of a group that one operation fails in. */
START_TEST(none_of_a_group)
{
    to_shadow(3);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    coll_group_start(&real);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    fails_with = COLL_INVALID_ARGUMENT;
    ck_assert_int_eq(reduces(&u, "1"), COLL_INVALID_ARGUMENT);
    ck_assert_int_eq(reduces(&other, "1"), COLL_SUCCESS);
    ck_assert_int_eq(coll_group_end(&real), COLL_INVALID_ARGUMENT);
    was_told("a1 +a1 [ a1 a1 c1 ] ");
    has_begun(1);
    ck_assert_uint_eq(other.comm.member.begun, 0);
}
END_TEST

START_TEST(nor_those_on_the_shadow)
{
    to_shadow(0);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    coll_group_start(&real);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    fails_with = COLL_INVALID_ARGUMENT;
    ck_assert_int_eq(coll_group_end(&real), COLL_INVALID_ARGUMENT);
    has_begun(1);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    has_begun(2);
}
END_TEST

/* Some have happened, on one communicator, and those on the other one have not. */
START_TEST(half_of_a_group)
{
    to_shadow(1);
    coll_group_start(&real);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    fails_with = COLL_SUCCESS;
    was_told("[ a1 ");
    fails_with = COLL_INVALID_ARGUMENT;
    ck_assert_int_eq(coll_group_end(&real), COLL_INVALID_ARGUMENT);
    ck_assert_int_eq(reduces(&u, "1"), COLL_REMOTE_ERROR);
    ck_assert_int_eq(u.comm.facts.can, PLACE_CAN_NOT);
}
END_TEST

START_TEST(what_is_only_estimated)
{
    struct coll_sim sim;

    to_shadow(4);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    coll_group_start(&real);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(coll_group_simulate_end(&real, &sim), COLL_SUCCESS);
    ck_assert(!coll_group_is_open());
    was_told("a1 +a1 [ a1 a1 ? ");
    has_begun(1);
}
END_TEST

/* The caller may look at the end of its group alone. */
START_TEST(what_cannot_begin)
{
    coll_group_start(&real);
    ck_assert_int_eq(reduces(&other, "1"), COLL_SUCCESS);
    ck_assert(!coll_comm_end(&u.comm, false, 1)); /* nobody hears of it */
    ck_assert_int_eq(reduces(&u, "1"), COLL_REMOTE_ERROR);
    ck_assert_int_eq(coll_group_end(&real), COLL_REMOTE_ERROR);
    coll_group_start(&real);
    ck_assert_int_eq(coll_group_end(&real), COLL_SUCCESS); /* once */
}
END_TEST

/* It happens when the graph is replayed, or never. */
START_TEST(what_is_captured)
{
    to_shadow(1);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    ck_assert_int_eq(reduces(&u, "1"), COLL_SUCCESS);
    was_told("a1 +a1 -a1 b1 +b1 ");
    captures = true;
    stays("2", COLL_SUCCESS);
    was_told("a2 ");
    ck_assert_int_eq(reduces(&u, "2"), COLL_SUCCESS);
    was_told("b2 ");
    ck_assert_int_eq(u.comm.facts.can, PLACE_CAN_NOT);
    has_begun(3);
}
END_TEST

/* All are told to stop before any is freed, by NCCL in its group's end, or by us behind that. */
START_TEST(aborts_stop_all_before_they_free)
{
    u.refs++;
    ck_assert_int_eq(coll_op_abort(&real, &u), COLL_SUCCESS);
    ck_assert_str_eq(told, "[ !a !] xa ");
    told[0] = '\0';
    u.aborted = false;
    u.refs++;
    other.refs++;
    coll_group_start(&real);
    coll_op_abort(&real, &u);
    coll_op_abort(&real, &other);
    ck_assert_str_eq(told, "[ [ !a !] [ !c !] ");
    coll_group_end(&real);
    ck_assert_str_eq(told, "[ [ !a !] [ !c !] ] xc xa ");
}
END_TEST

/* Once more, by whoever: NCCL is told, and nothing is left twice. */
START_TEST(one_is_aborted_twice)
{
    u.refs += 2;
    coll_group_start(&real);
    coll_op_abort(&real, &u);
    coll_op_abort(&real, &u);
    coll_group_end(&real);
    ck_assert_str_eq(told, "[ [ !a !] [ !a =] ] xa ");
}
END_TEST

/* NCCL says no: so does the call, and the shadows are freed all the same. */
START_TEST(an_abort_that_fails)
{
    u.refs++;
    fails_with = COLL_INVALID_ARGUMENT;
    ck_assert_int_eq(coll_op_abort(&real, &u), COLL_INVALID_ARGUMENT);
    ck_assert_str_eq(told, "[ !a !] xa ");
}
END_TEST

START_TEST(an_abort_in_a_group_that_is_only_estimated)
{
    struct coll_sim sim;

    u.refs++;
    coll_group_start(&real);
    coll_op_abort(&real, &u);
    coll_group_simulate_end(&real, &sim);
    ck_assert_str_eq(told, "[ [ !a !] ? xa ");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, each_waits_for_the_one_before);
    tcase_add_test(t, what_nccl_refuses);
    tcase_add_test(t, shadows_behind_the_group);
    tcase_add_test(t, none_of_a_group);
    tcase_add_test(t, nor_those_on_the_shadow);
    tcase_add_test(t, half_of_a_group);
    tcase_add_test(t, what_is_only_estimated);
    tcase_add_test(t, what_cannot_begin);
    tcase_add_test(t, what_is_captured);
    tcase_add_test(t, aborts_stop_all_before_they_free);
    tcase_add_test(t, one_is_aborted_twice);
    tcase_add_test(t, an_abort_that_fails);
    tcase_add_test(t, an_abort_in_a_group_that_is_only_estimated);
}

int main(void)
{
    return suite_run("coll_op", 60, setup, teardown, add);
}
