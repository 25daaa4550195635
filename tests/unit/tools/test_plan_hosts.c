/* What r2_plan takes from statistics of hosts, and from what r2_stat --json prints of them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"
#include "tools/r2_plan/hosts.c"
#include "tools/r2_plan/hosts_job.c"
#include "tools/r2_plan/hosts_json.c"
#include "tools/r2_plan/job.c"
#include "tools/shared/json_in.c"
#include "tools/shared/sources_json.c"
#include "tools/shared/stat_nic.c"

static struct hosts h;
static struct job j;
static struct r2_stat_view v;
static char why[400];

static void setup(void)
{
    memset(&h, 0, sizeof(h));
    j = (struct job){.gpus = 8, .gbps = 400, .bytes = 1 << 30};
}

static void teardown(void)
{
    hosts_free(&h);
}

/* A process of @host with @nics NICs on rails from 0 on. */
static void process(const char *host, int64_t pid, int nics)
{
    memset(&v, 0, sizeof(v));
    snprintf(v.who.host, sizeof(v.who.host), "%s", host);
    snprintf(v.who.job, sizeof(v.who.job), "7");
    v.who.pid = pid;
    v.who.nics = (uint32_t)nics;
    for (int i = 0; i < nics; i++) {
        snprintf(v.nic[i].name, sizeof(v.nic[i].name), "mlx5_%d", i);
        v.nic[i].port = 1;
        v.nic[i].rail = i;
        v.nic[i].over = 2;
        v.nic[i].speed_mbps = 400000;
    }
}

START_TEST(processes_of_a_host_are_joined)
{
    process("a", 1, 3);
    v.nic[1].moved = 2; /* this process has left it, the other has not */
    v.nic[1].over = 0;
    v.nic[2].over = 0; /* nothing was there to leave it */
    hosts_view(&h, 0, &v);
    process("a", 2, 4);
    v.nic[0].state = R2_STAT_NIC_DOWN;
    snprintf(v.nic[0].why, sizeof(v.nic[0].why), "cable");
    hosts_view(&h, 0, &v);
    process("a", 3, 1);
    hosts_view(&h, 0, &v);
    hosts_sort(&h);
    ck_assert_int_eq(h.fault, HOSTS_WELL);
    ck_assert_int_eq(h.hosts, 1);
    ck_assert_int_eq(h.host[0]->processes, 3);
    ck_assert_int_eq(h.host[0]->nics, 4);
    ck_assert_int_eq(host_usable(h.host[0]), 3);
    ck_assert_str_eq(host_nic_word(&h.host[0]->nic[0]), "down");
    ck_assert_str_eq(h.host[0]->nic[0].why, "cable");
    ck_assert_str_eq(host_nic_word(&h.host[0]->nic[1]), "partly");
    ck_assert_str_eq(host_nic_word(&h.host[0]->nic[2]), "up");
}
END_TEST

/* A NIC that was left is good only when every process left it for a fault of the other end. */
START_TEST(a_nic_that_was_left)
{
    static const struct {
        int theirs[2], usable;
    } cases[] = {{{1, 1}, 2}, {{1, 0}, 1}, {{0, 1}, 1}, {{0, 0}, 1}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setup();
        for (int p = 0; p < 2; p++) {
            process("a", p, 2);
            v.nic[1].moved = 1;
            v.nic[1].over = 0;
            v.nic[1].theirs = (uint8_t)cases[i].theirs[p];
            hosts_view(&h, 0, &v);
        }
        ck_assert_int_eq(host_usable(h.host[0]), cases[i].usable);
        hosts_free(&h);
    }
    setup();
}
END_TEST

/* Rails that a host lacks are the bits that are not set, whatever its other NICs. */
START_TEST(rails_keep_their_numbers)
{
    for (int host = 0; host < 3; host++) {
        process(host == 0 ? "a" : host == 1 ? "b" : "c", 1, 4);
        if (host == 1) {
            memset(&v.nic[1], 0, sizeof(v.nic[1])); /* it was never there */
        }
        if (host == 2) {
            v.nic[3].drained = 1;
        }
        hosts_view(&h, host, &v);
    }
    hosts_sort(&h);
    ck_assert_msg(hosts_job(&h, &j, why, sizeof(why)), "%s", why);
    ck_assert_int_eq(j.nodes, 3);
    ck_assert_int_eq(j.nics, 4);
    ck_assert(!j.is_counted);
    ck_assert_uint_eq(j.rails[0], 0xf);
    ck_assert_uint_eq(j.rails[1], 0xd);
    ck_assert_uint_eq(j.rails[2], 0x7);
    ck_assert_double_eq(j.b[1], 0.75);
    ck_assert_int_eq(j.rate_by, RATE_READ);
}
END_TEST

START_TEST(hosts_are_in_the_order_of_sources)
{
    static const char *const name[] = {"a", "b10", "b9", "z"};
    static const int at[] = {2, 1, 1, 0};

    for (int i = 0; i < 4; i++) { /* over ssh they answer in any order */
        process(name[i], 1, 2);
        hosts_view(&h, at[i], &v);
    }
    hosts_sort(&h);
    ck_assert_str_eq(h.host[0]->name, "z");
    ck_assert_str_eq(h.host[1]->name, "b9");
    ck_assert_str_eq(h.host[2]->name, "b10");
    ck_assert_str_eq(h.host[3]->name, "a");
}
END_TEST

/* A process twice, though its host may be in several sources of single processes. */
START_TEST(twice)
{
    process("a", 1, 2);
    hosts_view(&h, 0, &v);
    process("a", 2, 2);
    hosts_view(&h, 1, &v);
    ck_assert_int_eq(h.fault, HOSTS_WELL);
    hosts_view(&h, 2, &v);
    ck_assert_int_eq(h.fault, HOSTS_TWICE);
    ck_assert_int_eq(h.where[0], 1);
    ck_assert_int_eq(h.where[1], 2);
}
END_TEST

/* No text of another user steers the terminal that it is printed to. */
START_TEST(texts_are_printable)
{
    process("a\033[2J b", 1, 1);
    snprintf(v.who.job, sizeof(v.who.job), "7\n8");
    snprintf(v.nic[0].why, sizeof(v.nic[0].why), "port \033]0;x\a");
    snprintf(v.nic[0].name, sizeof(v.nic[0].name), "m\xc3\xa4");
    v.nic[0].state = R2_STAT_NIC_DOWN;
    hosts_view(&h, 0, &v);
    process("b", 2, 1);
    snprintf(v.who.job, sizeof(v.who.job), "7\n8");
    hosts_view(&h, 1, &v);
    ck_assert_int_eq(h.fault, HOSTS_WELL);
    ck_assert_str_eq(h.job.id, "7?8");
    ck_assert_str_eq(h.host[0]->name, "a?[2J?b");
    ck_assert_str_eq(h.host[0]->nic[0].name, "m??");
    ck_assert_str_eq(h.host[0]->nic[0].why, "port ?]0;x?");
}
END_TEST

/* Any bytes in the place of others: taken, or refused, and never out of bounds. */
START_TEST(damaged_json_is_taken_or_refused)
{
    static const char good[] =
        "{\"schema\":\"r2.stat/1\",\"jobs\":[{\"user\":\"u\",\"uid\":1,\"id\":\"7\",\"processes\":["
        "{\"host\":\"a\",\"pid\":5,\"command\":\"x\",\"peers\":[{\"host\":\"b\"}],\"nics\":["
        "{\"device\":\"m0\",\"port\":1,\"rail\":0,\"speed_mbps\":400000,\"port_state\":\"up\","
        "\"why\":null,\"drained\":0,\"connections\":1,\"moved\":0}]}]}]}";
    uint64_t seed = 9;
    int taken = 0;

    ck_assert_int_eq(hosts_json(&h, 0, good), 0);
    ck_assert_int_eq(h.hosts, 1);
    ck_assert_int_eq(host_usable(h.host[0]), 1);
    ck_assert(hosts_is_missing(&h, 0));
    for (int round = 0; round < plan_rounds(20000); round++) {
        char text[sizeof(good)];

        hosts_free(&h);
        setup();
        memcpy(text, good, sizeof(text));
        for (int i = 0; i < 2; i++) {
            text[plan_random(&seed, sizeof(good) - 1)] = (char)(1 + plan_random(&seed, 255));
        }
        taken += hosts_json(&h, 0, text) == 0;
        hosts_sort(&h);
        for (int i = 0; i < h.hosts; i++) {
            ck_assert_int_le(h.host[i]->nics, 2);
        }
    }
    ck_assert_int_gt(taken, 0);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, processes_of_a_host_are_joined);
    tcase_add_test(t, a_nic_that_was_left);
    tcase_add_test(t, rails_keep_their_numbers);
    tcase_add_test(t, hosts_are_in_the_order_of_sources);
    tcase_add_test(t, twice);
    tcase_add_test(t, texts_are_printable);
    tcase_add_test(t, damaged_json_is_taken_or_refused);
}

int main(void)
{
    return suite_run("plan_hosts", plan_limit_s(), setup, teardown, tests_add);
}
