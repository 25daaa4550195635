/* How many barriers the service thread pays for its visits, and when gates are strict. */
#include "tests/support/times.h"
#include "tests/unit/suite.h"

#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin/core/r2_registry.h"
#include "plugin/core/r2_visit.h"

#define COMMS 1000

static unsigned barriers;
static uint64_t now;

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

/* Nothing else of what runs here calls it: membarrier(cmd, flags, cpu). */
long __wrap_syscall(long nr, ...)
{
    va_list ap;
    long cmd;

    va_start(ap, nr);
    cmd = va_arg(ap, int);
    va_end(ap);
    ck_assert_int_eq(nr, __NR_membarrier);
    barriers += cmd == MEMBARRIER_CMD_PRIVATE_EXPEDITED;
    return __real_syscall(nr, cmd, 0, 0);
}

static uint64_t now_ns(void *arg)
{
    return now;
}

static struct r2_inst *inst;
static struct r2_comm *comm[COMMS + 1];
static int n;

static struct r2_comm *enter(void)
{
    struct r2_comm *c = calloc(1, sizeof(*c));

    c->inst = inst;
    r2_gate_init(&c->gate);
    r2_comm_enter(c);
    return comm[n++] = c;
}

static void setup(void)
{
    r2_gate_setup(1);
    inst = calloc(1, sizeof(*inst));
    inst->env.threads = 1;
    inst->env.now_ns = now_ns;
    pthread_mutex_init(&inst->lock, NULL);
    now = 1000 * S;
    n = 0;
    for (int i = 0; i < COMMS; i++) {
        enter();
    }
    barriers = 0;
}

static void teardown(void)
{
    for (int i = 0; i < n; i++) {
        r2_gate_destroy(&comm[i]->gate);
        free(comm[i]);
    }
    pthread_mutex_destroy(&inst->lock);
    free(inst);
}

/* Gates are strict for ever where a race detector looks on: there is nothing to count. */
static int always_strict(void)
{
    struct r2_gate g;
    int word;

    r2_gate_init(&g);
    word = atomic_load(&g.word);
    r2_gate_destroy(&g);
    return word != 0;
}

static void visit(struct r2_comm *c)
{
    r2_comm_visit(c);
    ck_assert_int_eq(atomic_load(&c->gate.word) & R2_GATE_VISITOR, R2_GATE_VISITOR);
    ck_assert_int_eq(r2_gate_enter(&c->gate), 0);
    r2_comm_unvisit(c);
    ck_assert_int_eq(r2_gate_enter(&c->gate), 1);
    r2_gate_leave(&c->gate);
}

static void visit_all(void)
{
    for (int i = 0; i < n; i++) {
        visit(comm[i]);
    }
}

static int count(int word)
{
    int found = 0;

    for (int i = 0; i < n; i++) {
        found += atomic_load(&comm[i]->gate.word) == word;
    }
    return found;
}

/* Time passes, in ticks of the watch. */
static void pass(uint64_t ns)
{
    for (uint64_t end = now + ns; now < end; now += 7 * MS) {
        r2_visits_step(inst, now);
    }
}

START_TEST(rare_visits_pay_for_their_barriers)
{
    unsigned visits = 0;

    for (uint64_t end = now + 10 * S; now < end; visits++) {
        visit(comm[visits % COMMS]);
        pass(20 * MS);
        ck_assert(always_strict() || count(0) == COMMS);
    }
    ck_assert_uint_eq(barriers, always_strict() ? 0 : visits);
}
END_TEST

START_TEST(a_thousand_visits_pay_for_one_more_than_a_burst)
{
    pass(S);
    visit_all();
    ck_assert_uint_eq(barriers, always_strict() ? 0 : R2_VISIT_BURST + 1);
    ck_assert_int_eq(count(R2_GATE_STRICT | R2_GATE_FREE), COMMS);
    visit_all();
    ck_assert_uint_eq(barriers, always_strict() ? 0 : R2_VISIT_BURST + 1);
}
END_TEST

START_TEST(who_is_entered_meanwhile_is_strict_and_all_become_loose)
{
    struct r2_comm *c;

    visit_all();
    c = enter();
    ck_assert_int_eq(atomic_load(&c->gate.word), R2_GATE_STRICT | R2_GATE_FREE);
    pass(2 * S);
    ck_assert(always_strict() || count(0) == COMMS + 1);
    c = comm[0];
    visit(c);
    ck_assert_uint_eq(barriers, always_strict() ? 0 : R2_VISIT_BURST + 2);
}
END_TEST

/* Who has just paid for strict gates keeps them for a while. */
START_TEST(strict_gates_last)
{
    for (int i = 0; i < R2_VISIT_BURST + 2; i++) {
        visit(comm[i]);
    }
    pass(R2_VISIT_TICK_NS - 10 * MS);
    ck_assert_int_eq(count(R2_GATE_STRICT | R2_GATE_FREE), COMMS);
    pass(R2_VISIT_TICK_NS);
    ck_assert(always_strict() || count(0) == COMMS);
}
END_TEST

/* Gates that are visited all the time stay strict. */
START_TEST(a_storm_that_lasts_pays_once)
{
    for (uint64_t end = now + 10 * S; now < end;) {
        for (int i = 0; i < 3; i++) {
            visit(comm[rand() % COMMS]);
        }
        pass(7 * MS);
    }
    ck_assert_uint_le(barriers, R2_VISIT_BURST + 2 * R2_VISIT_RATE);
    ck_assert_int_eq(count(R2_GATE_STRICT | R2_GATE_FREE), COMMS);
}
END_TEST

/* Storms that come and go, of any length and distance. */
START_TEST(barriers_in_a_second_are_bound)
{
    static const uint64_t apart[] = {5 * MS, 50 * MS, 101 * MS, 210 * MS, S};
    uint64_t from = now;

    for (uint64_t end = now + 20 * S; now < end;) {
        for (int i = 0; i < 1 + _i * 40; i++) {
            visit(comm[i]);
        }
        pass(apart[_i]);
    }
    ck_assert_uint_le(barriers, R2_VISIT_BURST + R2_VISIT_RATE * (now - from) / S * 4 / 3);
    ck_assert(always_strict() || barriers > 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, rare_visits_pay_for_their_barriers);
    tcase_add_test(t, a_thousand_visits_pay_for_one_more_than_a_burst);
    tcase_add_test(t, who_is_entered_meanwhile_is_strict_and_all_become_loose);
    tcase_add_test(t, strict_gates_last);
    tcase_add_test(t, a_storm_that_lasts_pays_once);
    tcase_add_loop_test(t, barriers_in_a_second_are_bound, 0, 5);
}

int main(void)
{
    return suite_run("visit", 60, setup, teardown, add);
}
