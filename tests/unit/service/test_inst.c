/*
 * An instance with its threads on devices made by hand, one of which keeps whoever reads its port:
 * events are taken and the instance is taken down without waiting for it, and what its driver still
 * uses stays.
 */
#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin/core/r2_inst.h"
#include "tests/support/fake_verbs.h"

#define LIMIT_MS 60000

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct r2_inst *inst;
static int (*port_read)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
static _Atomic int stuck;  /* number of the device whose driver does not return, +1 */
static sem_t inside, hold; /* its call: is there; may go on */

/* Allocations: the one that brings @left to 0 fails. */
static _Atomic int left;

static int fails(void)
{
    return atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t size)
{
    errno = ENOMEM;
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    errno = ENOMEM;
    return fails() ? NULL : __real_calloc(n, size);
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int s = atomic_load(&stuck);

    if (s && ctx == &fake_dev[s - 1].ctx) {
        sem_post(&inside);
        sem_wait(&hold);
    }
    return port_read(ctx, port, attr);
}

static struct r2_oob *oob_create(void *arg, const struct r2_oob_events *ev, char *why,
                                 size_t why_len)
{
    struct r2_oob_tcp_config tcp = {
        .ifname = "lo", .family = "", .hello_timeout_ns = 1000000000, .keepalive_ns = 1000000000};

    return r2_oob_tcp_create(&tcp, ev, why, why_len);
}

static struct r2_inst *make(char *why, size_t why_len)
{
    struct r2_inst_params p = {.cfg = &cfg, .oob_create = oob_create, .verbs = &verbs, .host = "h"};
    struct r2_env env;
    struct r2_job job;

    r2_env_default(&env);
    memset(&job, 0, sizeof(job));
    p.env = &env;
    p.job = &job;
    return r2_inst_create(&p, why, why_len);
}

static void setup(void)
{
    char why[256] = "";

    sem_init(&inside, 0, 0);
    sem_init(&hold, 0, 0);
    atomic_store(&stuck, 0);
    fake_reset();
    fake_table(&verbs);
    port_read = verbs.query_port;
    verbs.query_port = query_port;
    r2_config_defaults(&cfg);
    cfg.t_exit_ms = 50;
    fake_add("a0");
    fake_add("a1");
    inst = make(why, sizeof(why));
    ck_assert_msg(inst != NULL, "%s", why);
    ck_assert_int_eq(inst->nics.count, 2);
}

static void pause_ms(void)
{
    struct timespec ts = {.tv_nsec = 1000000};

    nanosleep(&ts, NULL);
}

/* States have no event for a test. */
static int comes_to(int nic, enum ib_nic_state s)
{
    for (int i = 0; i < LIMIT_MS && ib_nic_state_get(&inst->nics.nic[nic]) != s; i++) {
        pause_ms();
    }
    return ib_nic_state_get(&inst->nics.nic[nic]) == s;
}

/* An event that asks for a look at NIC 0, and the worker stays in it. */
static void look_hangs(enum ibv_event_type type)
{
    struct timespec ts;

    atomic_store(&stuck, 1);
    fake_event(&fake_dev[0], type, 1, NULL);
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += LIMIT_MS / 1000;
    ck_assert_msg(sem_timedwait(&inside, &ts) == 0, "nobody reads the port");
}

/* The service thread goes on while a driver keeps the one who reads a port; what was read counts
 * when it returns. */
START_TEST(events_do_not_wait_for_a_driver)
{
    static const enum ibv_event_type type[] = {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE,
                                               IBV_EVENT_LID_CHANGE};

    fake_dev[0].port[1].attr.state = IBV_PORT_DOWN;
    look_hangs(type[_i]);
    fake_event(&fake_dev[1], IBV_EVENT_PORT_ERR, 1, NULL);
    ck_assert_msg(comes_to(1, IB_NIC_DOWN), "the service thread waits for the driver");
    ck_assert_int_eq(ib_nic_state_get(&inst->nics.nic[0]), IB_NIC_UP);
    atomic_store(&stuck, 0);
    sem_post(&hold);
    ck_assert_msg(comes_to(0, IB_NIC_DOWN), "what was read is not taken up");
    r2_inst_destroy(inst);
    ck_assert_int_eq(fake_dev[0].opened + fake_dev[1].opened, 0);
}
END_TEST

/* A port that is given up while it is being read: what was read may be of before that, and it is
 * read again. */
START_TEST(a_look_from_before_a_port_went_down_counts_for_nothing)
{
    look_hangs(IBV_EVENT_PORT_ACTIVE);
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ERR, 1, NULL);
    ck_assert(comes_to(0, IB_NIC_DOWN));
    sem_post(&hold); /* "ACTIVE" */
    sem_wait(&inside);
    ck_assert_int_eq(ib_nic_state_get(&inst->nics.nic[0]),
                     IB_NIC_DOWN); /* asked again, and not answered yet */
    atomic_store(&stuck, 0);
    sem_post(&hold);
    ck_assert(comes_to(0, IB_NIC_UP));
    r2_inst_destroy(inst);
    ck_assert_int_eq(fake_dev[0].opened + fake_dev[1].opened, 0);
}
END_TEST

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Taken down while a look is stuck: in time, the device stays open, and the driver may return at
 * any later time into memory that is still there. */
START_TEST(taken_down_under_a_driver_that_does_not_return)
{
    uint64_t begun = now_ms();

    look_hangs(IBV_EVENT_PORT_ACTIVE);
    r2_inst_destroy(inst);
    ck_assert_uint_lt(now_ms() - begun, LIMIT_MS);
    ck_assert_int_eq(fake_dev[0].opened, 1);
    ck_assert_int_eq(fake_dev[1].opened,
                     1); /* the instance stays whole: one job may reach all of it */
    ck_assert_ptr_eq(inst->nics.nic[0].ctx, &fake_dev[0].ctx);
    ck_assert_uint_eq(inst->nics.nic[0].addr.lid, 0);
    fake_dev[0].port[1].attr.lid = 77;
    atomic_store(&stuck, 0);
    sem_post(&hold);
    for (int i = 0; i < LIMIT_MS; i++) { /* the job's last write, under no lock that a test has */
        struct ib_addr addr;

        ib_nic_addr_get(&inst->nics, 0, &addr);
        if (addr.lid == 77) {
            return;
        }
        pause_ms();
    }
    ck_abort_msg("the job did not go on");
}
END_TEST

/* Each allocation of a start fails once: the start says so and leaves nothing open, or does without
 * what it was for. */
START_TEST(memory_ends_at_any_step_of_the_start)
{
    int refused = 0, went_on = 0;

    r2_inst_destroy(inst);
    for (int n = 1;; n++) {
        struct r2_inst *made;
        char why[256] = "";
        int over;

        atomic_store(&left, n);
        made = make(why, sizeof(why));
        over = atomic_exchange(&left, 0) > 0; /* it has fewer allocations than n */
        if (made) {
            went_on += !over;
            r2_inst_destroy(made);
        } else {
            ck_assert_msg(why[0] != '\0', "allocation %d: no reason", n);
            refused++;
        }
        ck_assert_msg(fake_dev[0].opened + fake_dev[1].opened == 0, "allocation %d", n);
        if (over) {
            ck_assert_ptr_nonnull(made);
            break;
        }
    }
    ck_assert_msg(refused >= 12, "%d starts refused, %d went on", refused, went_on);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("instance");
    TCase *t = tcase_create("a driver that does not return");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, events_do_not_wait_for_a_driver, 0, 3);
    tcase_add_test(t, a_look_from_before_a_port_went_down_counts_for_nothing);
    tcase_add_test(t, taken_down_under_a_driver_that_does_not_return);
    tcase_add_test(t, memory_ends_at_any_step_of_the_start);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
