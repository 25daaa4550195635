/* Bytes a second of NICs, from looks made by hand. */
#include <check.h>

#include "tools/r2_stat/find.c"
#include "tools/r2_stat/rates.c"
#include "tools/shared/stat_nic.c"

#include "tests/unit/suite.h"

#define T0 1000000000000ull
#define S  1000000000ull

static struct stat_proc proc[2];
static struct stat_found found;
static struct rates all;

static void setup(void)
{
    memset(proc, 0, sizeof(proc));
    for (int i = 0; i < 2; i++) {
        proc[i].unique = 7 + (uint64_t)i;
        proc[i].v.who.nics = 2;
        proc[i].v.who.updated = T0;
        for (unsigned k = 0; k < 2; k++) {
            proc[i].v.nic[k] = (struct r2_stat_nic){.guid = k, .sent = 500, .received = 500};
            snprintf(proc[i].v.nic[k].name, sizeof(proc[i].v.nic[k].name), "mlx5_%u", k);
        }
        found.proc[i] = &proc[i];
    }
    found.procs = 2;
}

static void teardown(void)
{
    rates_free(&all);
}

static void look(uint64_t now)
{
    ck_assert_int_eq(rates_take(&all, &found, now), 0);
}

/* Process @i has written at @at. */
static void write_at(int i, uint64_t at, uint64_t sent, uint64_t received)
{
    proc[i].v.who.updated = at;
    proc[i].v.nic[0].sent += sent;
    proc[i].v.nic[0].received += received;
}

/* -1: not known. */
static double sent_of(int from, int n, int nic, double *in)
{
    double out;

    return rates_get(&all, &found.proc[from], n, &proc[0].v.nic[nic], &out, in) ? out : -1;
}

static double sent(int from, int n, int nic)
{
    double in;

    return sent_of(from, n, nic, &in);
}

START_TEST(of_all_processes)
{
    double in;

    look(T0);
    ck_assert(sent(0, 2, 0) == -1);
    write_at(0, T0 + 2 * S, 2000, 200);
    look(T0 + 3 * S);
    ck_assert(sent_of(0, 2, 0, &in) == 1000 && in == 100); /* of the one that is known */
    ck_assert(sent(1, 1, 0) == -1);
    write_at(1, T0 + 4 * S, 2000, 4000);
    write_at(0, T0 + 4 * S, 4000, 400);
    look(T0 + 4 * S);
    ck_assert(sent_of(0, 2, 0, &in) == 2500 && in == 1200);
    ck_assert(sent_of(1, 1, 0, &in) == 500 && in == 1000);
    ck_assert(sent_of(0, 2, 1, &in) == 0 && in == 0);
}
END_TEST

/* What has written nothing keeps its rates for a second. */
START_TEST(without_news)
{
    look(T0);
    write_at(0, T0 + S, 1000, 0);
    look(T0 + S);
    look(T0 + 2 * S - 1);
    ck_assert(sent(0, 1, 0) == 1000);
    look(T0 + 2 * S);
    ck_assert(sent(0, 1, 0) == 0);
    write_at(0, T0 + 5 * S, 1000, 0);
    look(T0 + 5 * S);
    ck_assert(sent(0, 1, 0) == 250);
}
END_TEST

START_TEST(clock_set_back)
{
    look(T0);
    write_at(0, T0 + S, 1000, 0);
    look(T0 + S);
    write_at(0, T0 - 100 * S, 1000, 0);
    look(T0 - 100 * S);
    ck_assert(sent(0, 1, 0) == -1); /* over what time, nobody knows */
    write_at(0, T0 - 99 * S, 3000, 0);
    look(T0 - 99 * S);
    ck_assert(sent(0, 1, 0) == 3000);
}
END_TEST

/* Its files name a process: another with the same number of another user is another. */
START_TEST(of_two_users)
{
    proc[1].unique = proc[0].unique;
    proc[1].uid = 1;
    write_at(1, T0, 1000000, 0);
    look(T0);
    write_at(0, T0 + S, 1000, 0);
    write_at(1, T0 + S, 5000, 0);
    look(T0 + S);
    ck_assert(sent(0, 1, 0) == 1000);
    ck_assert(sent(1, 1, 0) == 5000);
}
END_TEST

/* Counters that shrink are a liar's. */
START_TEST(smaller_counters)
{
    look(T0);
    write_at(0, T0 + S, (uint64_t)-400, 0);
    look(T0 + S);
    ck_assert(sent(0, 1, 0) == 0);
}
END_TEST

/* The record of a NIC could not be read once: what it had sent before is not sent at once. */
START_TEST(nic_not_read)
{
    struct r2_stat_nic nic = proc[0].v.nic[0];

    look(T0);
    memset(&proc[0].v.nic[0], 0, sizeof(nic));
    proc[0].v.who.updated = T0 + S;
    look(T0 + S);
    proc[0].v.nic[0] = nic;
    ck_assert(sent(0, 1, 0) == 0);
    proc[0].v.nic[0].sent += 1000000;
    proc[0].v.who.updated = T0 + 2 * S;
    look(T0 + 2 * S);
    ck_assert(sent(0, 1, 0) == 0);
    write_at(0, T0 + 3 * S, 1000, 0);
    look(T0 + 3 * S);
    ck_assert(sent(0, 1, 0) == 1000);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, of_all_processes);
    tcase_add_test(t, without_news);
    tcase_add_test(t, clock_set_back);
    tcase_add_test(t, of_two_users);
    tcase_add_test(t, smaller_counters);
    tcase_add_test(t, nic_not_read);
}

int main(void)
{
    return suite_run("stat_rates", 60, setup, teardown, add);
}
