/* What r2_report makes of events: of any text, and of what happened to a job. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/times.h"
#include "tests/unit/suite.h"
#include "tools/shared/json_in.c"
#include "tools/r2_report/story.c"
#include "tools/r2_report/story_less.c"
#include "tools/r2_report/story_line.c"
#include "tools/r2_report/story_rate.c"

static struct story s;
static char seen[4000];

static void teardown(void)
{
    story_free(&s);
    seen[0] = '\0';
}

/* --- JSON --- */

static void see(void *arg, const char *path, const char *text)
{
    size_t n = strlen(seen);

    (void)arg;
    snprintf(seen + n, sizeof(seen) - n, "%s=%s|", path, text);
}

START_TEST(values_with_their_paths)
{
    ck_assert_int_eq(json_in_walk("{}", see, NULL), 0);
    ck_assert_str_eq(seen, "");
    ck_assert_int_eq(
        json_in_walk(" { \"a\" : 1 , \"b\":{\"c\":\"x\",\"d\":[true,null,[-2.5e3]]},\"e\":[]}\n",
                     see, NULL),
        0);
    ck_assert_str_eq(seen, "a=1|b.c=x|b.d=true|b.d=null|b.d=-2.5e3|");
    seen[0] = '\0';
    ck_assert_int_eq(
        json_in_walk("{\"a\":\"\\\"\\\\\\/\\n\\u0041\\u00e4\\u20ac\\ud800\"}", see, NULL), 0);
    ck_assert_str_eq(seen, "a=\"\\/\nA\xc3\xa4\xe2\x82\xac?|");
}
END_TEST

START_TEST(what_is_no_json)
{
    static const char *const bad[] = {"",
                                      "1",
                                      "[]",
                                      "{",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1",
                                      "{\"a\":1,}",
                                      "{\"a\":1}x",
                                      "{\"a\":tru}",
                                      "{a:1}",
                                      "{\"a\":\"x}",
                                      "{\"a\":+-x}",
                                      "{\"a\":\"\\q\"}",
                                      "{\"a\":\"\\u12\"}",
                                      "{\"a\":\"\\u0000\"}",
                                      "{\"a\":[1}",
                                      "{\"a\":\"\t\"}",
                                      "{\"a\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}"};
    char cut[400];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(json_in_walk(bad[i], see, NULL) != 0, "%s", bad[i]);
    }
    /* any line that is cut short is refused, and read no further than it goes */
    for (size_t n = 0; n < 60; n++) {
        char *line = strdup("{\"a\":{\"b\":[\"x\\u00e4\",1,true]},\"c\":\"0123456789012345\"}");

        snprintf(cut, sizeof(cut), "%.*s", (int)n, line);
        ck_assert_int_eq(json_in_walk(cut, see, NULL) == 0, n >= strlen(line));
        free(line);
    }
}
END_TEST

START_TEST(long_texts_are_cut)
{
    static char line[5000];
    int n = snprintf(line, sizeof(line), "{\"%0200d\":{\"%0200d\":\"", 1, 2);

    memset(line + n, 'x', 3000);
    strcpy(line + n + 3000, "\"},\"b\":1}");
    ck_assert_int_eq(json_in_walk(line, see, NULL), 0);
    ck_assert_uint_lt(strlen(seen), JSON_IN_TEXT + JSON_IN_PATH + 10);
    ck_assert_ptr_nonnull(strstr(seen, "|b=1|"));
}
END_TEST

START_TEST(times)
{
    ck_assert_uint_eq(story_time("1970-01-01T00:00:01Z"), 1000000000);
    ck_assert_uint_eq(story_time("2026-11-27T00:26:04.5Z"), 1795739164500000000ull);
    ck_assert_uint_eq(story_time("2026-11-27T00:26:04.123456789Z"), 1795739164123456789ull);
    ck_assert_uint_eq(story_time("2026-11-27 00:26:04Z"), 0);
    ck_assert_uint_eq(story_time("2026-11-27T00:26:04"), 0);
    ck_assert_uint_eq(story_time("soon"), 0);
}
END_TEST

/* --- events --- */

/* An event of process 7 of @host, @at seconds after the start; @more: the rest, from a comma on. */
static void event(const char *host, int at, const char *kind, const char *more)
{
    char line[2000];

    snprintf(
        line, sizeof(line),
        "{\"schema\":\"r2.event/1\",\"ts\":\"2026-11-27T00:00:%02d.000000000Z\",\"mono_ns\":%d,"
        "\"host\":\"%s\",\"job\":{\"scheduler\":\"slurm\",\"id\":\"5\"},\"pid\":7,\"kind\":\"%s\"%s}",
        at, at, host, kind, more);
    ck_assert_int_eq(story_line_add(&s, line, NULL), 0);
}

static const struct story_span *span_of(const char *host, const char *device, int i)
{
    const struct story_nic *n = story_nic_at(&s, host, device);

    ck_assert_msg(n->spans > i, "%s %s has %d spans", host, device, n->spans);
    return &n->span[i];
}

static const struct story_cost *cost_of(const char *host)
{
    return cost_at(&s, host);
}

static double length(const struct story_span *span)
{
    return (double)(span->to - span->from) / 1e9;
}

#define NIC  ",\"nic\":{\"device\":\"mlx5_1\"}"
#define PEER ",\"peer\":{\"host\":\"h1\",\"device\":\"mlx5_1\"}"

/* h1's cable breaks and is mended: at h1 the NIC is lost, at h0 it is the other end's. */
static void one_cable(void)
{
    event("h0", 0, "start", ",\"capacity\":[4,4]");
    event("h1", 0, "start", ",\"capacity\":[4,4]");
    event("h1", 10, "fault", NIC ",\"cause\":{\"how\":\"stall\"},\"text\":\"mlx5_1: no answer\"");
    event("h0", 10, "fault", NIC PEER ",\"cause\":{\"how\":\"stall\"}");
    event("h0", 11, "switch", NIC ",\"stall_us\":1500,\"replayed_bytes\":100");
    event("h0", 12, "switch", NIC ",\"stall_us\":700,\"replayed_bytes\":50");
    event("h1", 12, "verdict",
          NIC ",\"severity\":\"critical\",\"code\":\"R2-L02\",\"evidence\":[\"a\",\"b\"],"
              "\"since\":\"2026-11-27T00:00:10Z\",\"confidence\":90,"
              "\"text\":\"mlx5_1 cable or switch port; drain after job\"");
    event("h0", 13, "verdict",
          PEER ",\"severity\":\"critical\",\"code\":\"R2-L02\","
               "\"text\":\"h1:mlx5_1/1 cable or switch port; drain after job\"");
    event("h0", 20, "failback", NIC);
    event("h1", 20, "failback", NIC);
    event("h0", 40, "stop", "");
    event("h1", 40, "stop", "");
}

START_TEST(a_cable_that_breaks)
{
    one_cable();
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(s.events, 12);
    ck_assert_int_eq(s.processes, 2);
    ck_assert_int_eq(s.nics, 2);
    ck_assert_int_eq(span_of("h1", "mlx5_1", 0)->why, STORY_LOST);
    ck_assert_int_eq(span_of("h0", "mlx5_1", 0)->why, STORY_PEERS);
    ck_assert_double_eq(length(span_of("h1", "mlx5_1", 0)), 10);
    ck_assert(!span_of("h1", "mlx5_1", 0)->open);
    /* both say the same, and the first one has it */
    ck_assert_int_eq(s.verdicts, 1);
    ck_assert_int_eq(s.verdict[0].said, 2);
    ck_assert_str_eq(s.verdict[0].e->host, "h1");
    ck_assert_int_eq(s.verdict[0].e->evidences, 2);
    ck_assert_uint_eq(s.verdict[0].e->since, s.from + 10000000000);
    ck_assert_uint_eq(cost_of("h0")->stall_us, 1500);
    ck_assert_uint_eq(cost_of("h0")->replayed, 150);
    ck_assert_int_eq(cost_of("h0")->faults, 1);
    ck_assert_double_eq(cost_of("h0")->nic_s, 160);
    ck_assert_double_eq(cost_of("h0")->lost_s, 0); /* it is h1's */
    ck_assert_double_eq(cost_of("h1")->lost_s, 10);
}
END_TEST

START_TEST(a_nic_that_does_not_come_back)
{
    event("h1", 0, "start", ",\"capacity\":[4,4]");
    event("h1", 10, "fault", NIC ",\"cause\":{\"how\":\"fatal\"}");
    event("h1", 11, "fault", NIC ",\"cause\":{\"how\":\"fatal\"}"); /* of more connections */
    event("h1", 30, "stop", "");
    event("h0", 40, "stop", "");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(story_nic_at(&s, "h1", "mlx5_1")->spans, 1);
    ck_assert(span_of("h1", "mlx5_1", 0)->open);
    ck_assert_double_eq(length(span_of("h1", "mlx5_1", 0)), 20); /* its process ended */
}
END_TEST

START_TEST(events_that_end_in_the_middle)
{
    event("h1", 0, "start", ",\"capacity\":[4,4]");
    event("h1", 10, "fault", NIC);
    event("h0", 50, "start", ",\"capacity\":[4,4]");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_double_eq(length(span_of("h1", "mlx5_1", 0)), 40);
    ck_assert_double_eq(cost_of("h1")->nic_s, 200);
}
END_TEST

START_TEST(news_say_whose_it_is)
{
    event("h0", 1, "fault", NIC);
    event("h0", 2, "news", NIC PEER ",\"text\":\"h1:mlx5_1 port or cable, says h2\"");
    event("h1", 1, "fault", NIC ",\"cause\":{\"how\":\"peer\"}");
    event("h1", 2, "news", NIC PEER ",\"text\":\"h1:mlx5_1 port or cable, says h2\"");
    event("h2", 1, "fault", NIC);
    event("h2", 2, "news", NIC PEER ",\"text\":\"h1:mlx5_1 good again\"");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(span_of("h0", "mlx5_1", 0)->why, STORY_PEERS);
    ck_assert_int_eq(span_of("h1", "mlx5_1", 0)->why, STORY_LOST);
    ck_assert_int_eq(span_of("h2", "mlx5_1", 0)->why, STORY_LOST);
}
END_TEST

/* Who hears of the fault from the other end first has the NIC at fault all the same. */
START_TEST(verdicts_say_whose_it_is)
{
    event("h1", 1, "fault", NIC PEER ",\"cause\":{\"how\":\"peer\"}");
    event("h1", 2, "verdict",
          NIC ",\"severity\":\"critical\",\"code\":\"R2-L02\",\"text\":\"mlx5_1 cable\"");
    event("h2", 1, "fault", NIC ",\"cause\":{\"how\":\"peer\"}");
    event("h2", 2, "verdict",
          NIC ",\"severity\":\"warning\",\"code\":\"R2-F01\",\"text\":\"mlx5_1 path\"");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(span_of("h1", "mlx5_1", 0)->why, STORY_LOST);
    ck_assert_int_eq(span_of("h2", "mlx5_1", 0)->why, STORY_PEERS);
}
END_TEST

START_TEST(administrators_are_no_fault)
{
    event("h1", 0, "start", ",\"capacity\":[4,4]");
    event("h1", 1, "drain",
          NIC ",\"action\":\"drain\",\"cause\":{\"how\":\"admin\",\"detail\":\"x\"}");
    event("h1", 3, "drain", NIC ",\"cause\":{\"how\":\"admin\"}"); /* connections have left it */
    event("h1", 5, "drain", NIC ",\"action\":\"undrain\",\"cause\":{\"how\":\"admin\"}");
    event("h1", 6, "failback", NIC);
    event("h1", 7, "drain",
          NIC ",\"action\":\"drain\",\"cause\":{\"how\":\"admin\",\"detail\":\"rehearsal\"}");
    event("h1", 7, "fault", NIC ",\"cause\":{\"how\":\"rehearsal\"}");
    event("h1", 9, "drain", NIC ",\"action\":\"undrain\"");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(story_nic_at(&s, "h1", "mlx5_1")->spans, 2);
    ck_assert_int_eq(span_of("h1", "mlx5_1", 0)->why, STORY_DRAINED);
    ck_assert_double_eq(length(span_of("h1", "mlx5_1", 0)), 4);
    ck_assert_int_eq(span_of("h1", "mlx5_1", 1)->why, STORY_REHEARSED);
    ck_assert_double_eq(length(span_of("h1", "mlx5_1", 1)), 2);
    ck_assert_int_eq(cost_of("h1")->faults, 0);
    ck_assert_double_eq(cost_of("h1")->lost_s, 0);
}
END_TEST

START_TEST(verdicts_that_are_revised_or_over)
{
    event("h0", 1, "verdict",
          ",\"severity\":\"warning\",\"code\":\"R2-F03\",\"seq\":4,\"text\":\"h1:a pair\"");
    event("h0", 1, "verdict",
          ",\"severity\":\"warning\",\"code\":\"R2-F03\",\"seq\":5,\"text\":\"h2:a pair\"");
    event(
        "h0", 2, "verdict",
        ",\"severity\":\"critical\",\"code\":\"R2-L02\",\"revises\":{\"code\":\"R2-F03\",\"seq\":4},"
        "\"text\":\"h1:a cable\"");
    event("h0", 3, "verdict", ",\"severity\":\"info\",\"code\":\"R2-H01\",\"text\":\"h1 goes on\"");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(s.verdicts, 3);
    ck_assert(s.verdict[0].revised && !s.verdict[1].revised && !s.verdict[2].revised);
}
END_TEST

/* A NIC that fails twice is in the story twice, whoever says so. */
START_TEST(a_fault_that_comes_again)
{
    for (int at = 1; at < 40; at += 20) {
        event("h1", at, "verdict",
              NIC ",\"severity\":\"critical\",\"code\":\"R2-L01\",\"text\":\"mlx5_1 port\"");
        event("h0", at + 1, "verdict",
              PEER ",\"severity\":\"critical\",\"code\":\"R2-L01\",\"text\":\"h1:mlx5_1 port\"");
    }
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(s.verdicts, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(s.verdict[i].said, 2);
        ck_assert_uint_eq(s.verdict[i].e->when, s.from + (uint64_t)i * 20000000000);
    }
}
END_TEST

START_TEST(lines_that_are_no_events)
{
    static const char *const bad[] = {
        "\n",
        "x\n",
        "{\"schema\":\"r2.event/2\",\"ts\":\"2026-11-27T00:00:00Z\",\"host\":\"h\"}",
        "{\"schema\":\"r2.event/1\",\"ts\":\"now\",\"host\":\"h\"}",
        "{\"schema\":\"r2.event/1\",\"ts\":\"2026-11-27T00:00:00Z\"}",
        "{\"schema\":\"r2.event/1\",\"evidence\":[\"lost with it\"],"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(story_line_add(&s, bad[i], NULL), 0);
    }
    ck_assert_int_eq(s.wrong, 6);
    ck_assert_int_eq(s.events, 0);
    event("h0", 1, "a kind of later versions", "");
    ck_assert_int_eq(story_line_add(&s,
                                    "{\"schema\":\"r2.event/1\",\"ts\":\"2026-11-27T00:00:00Z\","
                                    "\"host\":\"h\",\"job\":{\"id\":\"6\"}}",
                                    "5"),
                     0); /* of another job */
    ck_assert_int_eq(s.events, 1);
    ck_assert_int_eq(s.wrong, 6);
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(s.event[0].kind, STORY_OTHER);
}
END_TEST

START_TEST(traffic_of_nics)
{
    ck_assert_int_eq(story_bytes_add(&s, "h0", "mlx5_1", 100, 200), 0);
    ck_assert_int_eq(story_bytes_add(&s, "h0", "mlx5_0", 1, 2), 0);
    ck_assert_int_eq(story_bytes_add(&s, "h0", "mlx5_1", 1000, 2000), 0);
    one_cable();
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(s.nics, 3); /* by host and name */
    ck_assert_str_eq(s.nic[0].device, "mlx5_0");
    ck_assert_uint_eq(s.nic[1].sent, 1100);
    ck_assert_uint_eq(s.nic[1].received, 2200);
    ck_assert(s.nic[1].counted && !s.nic[2].counted);
}
END_TEST

/* A picture's text goes through no escaping but that of XML. */

static double rates_sum(const struct story_nic *n)
{
    double sum = 0;

    for (int i = 0; i < s.rates.n; i++) {
        sum += n->rate[i].sent;
    }
    return sum;
}

/* What a row has is spread over its time; nothing is lost at the edges of parts. */
START_TEST(rates_of_nics)
{
    struct r2_traffic_cell more = {.sent = 100, .received = 50, .state = R2_TRAFFIC_DOWN};
    const struct story_nic *n;

    story_rates_begin(&s, 1000 * S, 1010 * S);
    ck_assert_int_eq(s.rates.n, 10);
    ck_assert_uint_eq(s.rates.width, S);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 1000 * S + S / 4, 1001 * S + S / 4, &more),
                     0);
    more.state = R2_TRAFFIC_UP;
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 1009 * S, 1010 * S, &more), 0);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 1001 * S, 1002 * S, &more), 0);
    n = story_nic_at(&s, "h0", "mlx5_0");
    ck_assert(n->rate[0].sent == 75 && n->rate[0].received == 37.5);
    ck_assert(n->rate[1].sent == 125 && n->rate[2].sent == 0 && n->rate[9].sent == 100);
    ck_assert_uint_eq(n->rate[0].state, R2_TRAFFIC_DOWN);
    ck_assert_uint_eq(n->rate[1].state, R2_TRAFFIC_DOWN); /* the worst */
    ck_assert_uint_eq(n->rate[9].state, R2_TRAFFIC_UP);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 0, 999 * S, &more), 0);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 2000 * S, 2001 * S, &more), 0);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 1005 * S, 1004 * S, &more), 0);
    ck_assert(rates_sum(n) == 300);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 999 * S, 1001 * S, &more), 0);
    ck_assert(rates_sum(n) == 350); /* what lies before is left out */
}
END_TEST

/* Long times: the last hour, in wider parts, which end where the rows do. */
START_TEST(rates_of_a_long_time)
{
    struct r2_traffic_cell more = {.sent = 1000};

    story_rates_begin(&s, 10000 * S, 100000 * S + 5);
    ck_assert_int_le(s.rates.n, STORY_RATES);
    ck_assert_uint_ge((uint64_t)s.rates.n * s.rates.width, STORY_RATES_NS);
    ck_assert_uint_eq(s.rates.from + (uint64_t)s.rates.n * s.rates.width, 100000 * S + 5);
    ck_assert_int_eq(story_rate_add(&s, "h0", "mlx5_0", 99000 * S, 100000 * S + 5, &more), 0);
    ck_assert(rates_sum(story_nic_at(&s, "h0", "mlx5_0")) > 999.99);
    ck_assert(rates_sum(story_nic_at(&s, "h0", "mlx5_0")) < 1000.01);
    story_free(&s);
    story_rates_begin(&s, 1000 * S, 1000 * S + S / 2); /* one short row */
    ck_assert_int_eq(s.rates.n, 1);
    ck_assert_uint_eq(s.rates.from, 999 * S + S / 2);
}
END_TEST

/* What was carried less, of parts of time: three before, two in which something was lost, one
 * behind. */
START_TEST(less_than_before)
{
    const double even[] = {100, 100, 100, 60, 70, 100}, worse[] = {90, 100, 400, 60, 70, 100};
    const double stops[] = {100, 100, 100, 60, 10, 0};
    const double idle[] = {0, 100, 0, 60, 70, 100}, none[] = {0, 0, 0, 60, 70, 100};
    const double more[] = {100, 100, 100, 130, 90, 100}, twice[] = {100, 50, 60, 110, 200, 10};
    const double lost[] = {0, 0, 0, 1, 1, 0}, never[6] = {0}, ends[] = {0, 0, 0, 1, 0.25, 0};
    const double in_two[] = {0, 1, 0, 0, 0, 1}, two[] = {90, 100, 60, 70};
    double many[30], late[30] = {0};

    ck_assert(story_less_of(even, lost, 6) == 70);
    ck_assert(story_less_of(even, never, 6) == 0);
    ck_assert(story_less_of(worse, lost, 6) == 70);        /* a median: one part is no rate */
    ck_assert(story_less_of(two, lost + 1, 4) == 35 + 25); /* of an even number: between two */
    ck_assert(story_less_of(idle, lost, 6) == 70);         /* nothing was to be carried then */
    ck_assert(story_less_of(none, lost, 6) == -1);
    ck_assert(story_less_of(even + 3, lost + 3, 3) == -1);
    ck_assert(story_less_of(more, lost, 6) == 0);          /* more is no gain of another failure */
    ck_assert(story_less_of(stops, ends, 6) == 40 + 15);   /* the job ended in a part */
    ck_assert(story_less_of(twice, in_two, 6) == 50 + 95); /* 100; 60, 100, 110, 200 */
    for (int i = 0; i < 30; i++) {
        many[i] = i < 15 ? 1000 : 100; /* long before is not before */
    }
    late[29] = 1;
    many[29] = 0;
    ck_assert(story_less_of(many, late, 30) == 100);
}
END_TEST

/* @host carries @bytes in the second that begins @at s after the events' hour. */
static void carries(const char *host, const char *device, int at, uint64_t bytes)
{
    uint64_t from = story_time("2026-11-27T00:00:00Z") + (uint64_t)at * S;
    struct r2_traffic_cell more = {.sent = bytes / 3, .received = bytes - bytes / 3 + 1};

    ck_assert_int_eq(story_rate_add(&s, host, device, from, from + S, &more), 0);
}

/* The cable of h1 is lost from 10 s to 20 s: h1 carries half of what it did, and so does h0, which
 * waits for it; of h2 nothing is known before. */
START_TEST(less_of_hosts)
{
    uint64_t hour = story_time("2026-11-27T00:00:00Z");

    story_rates_begin(&s, hour, hour + 40 * S);
    for (int i = 0; i < 40; i++) {
        bool is_lost = i >= 10 && i < 20;

        carries("h0", "mlx5_0", i, is_lost || i >= 30 ? 499 : 999);
        carries("h1", "mlx5_0", i, is_lost ? 499 : 499);
        carries("h1", "mlx5_1", i, is_lost ? 0 : 499);
        if (i >= 12) {
            carries("h2", "mlx5_0", i, 100);
        }
    }
    one_cable();
    event("h0", 30, "drain", NIC ",\"action\":\"drain\",\"cause\":{\"how\":\"admin\"}");
    event("h2", 0, "start", ",\"capacity\":[4,4]");
    event("h2", 40, "stop", "");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert(cost_of("h0")->less == 5000);
    ck_assert(cost_of("h1")->less == 10 * (1000 - 501));
    ck_assert(cost_of("h2")->less == -1);
}
END_TEST

/* It does not come back: until the job ends, in the middle of a part. */
START_TEST(less_until_the_end)
{
    uint64_t hour = story_time("2026-11-27T00:00:00Z");

    story_rates_begin(&s, hour + S / 2, hour + 20 * S + S / 2);
    for (int i = 0; i < 15; i++) {
        carries("h1", "mlx5_1", i, i < 10 ? 999 : 0);
    }
    event("h1", 0, "start", ",\"capacity\":[4,4]");
    event("h1", 10, "fault", NIC ",\"cause\":{\"how\":\"stall\"}");
    event("h1", 15, "stop", "");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert(cost_of("h1")->less > 4994.9 && cost_of("h1")->less < 4995.1);
    story_free(&s); /* no file of traffic */
    event("h1", 10, "fault", NIC ",\"cause\":{\"how\":\"stall\"}");
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert(cost_of("h1")->less == -1);
}
END_TEST

START_TEST(names_are_ascii)
{
    event("h\\u00e4\xff", 1, "fault", ",\"nic\":{\"device\":\"m\\u0001x\"}");
    ck_assert_int_eq(story_bytes_add(&s, "h\n", "m\xff", 1, 2), 0);
    ck_assert_int_eq(story_tell(&s), 0);
    ck_assert_int_eq(s.nics, 2);
    ck_assert_str_eq(s.nic[0].host, "h?");
    ck_assert_str_eq(s.nic[0].device, "m?");
    ck_assert_str_eq(s.nic[1].host, "h???");
    ck_assert_str_eq(s.nic[1].device, "m?x");
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, values_with_their_paths);
    tcase_add_test(t, what_is_no_json);
    tcase_add_test(t, long_texts_are_cut);
    tcase_add_test(t, times);
    tcase_add_test(t, a_cable_that_breaks);
    tcase_add_test(t, a_nic_that_does_not_come_back);
    tcase_add_test(t, events_that_end_in_the_middle);
    tcase_add_test(t, news_say_whose_it_is);
    tcase_add_test(t, verdicts_say_whose_it_is);
    tcase_add_test(t, administrators_are_no_fault);
    tcase_add_test(t, verdicts_that_are_revised_or_over);
    tcase_add_test(t, a_fault_that_comes_again);
    tcase_add_test(t, lines_that_are_no_events);
    tcase_add_test(t, traffic_of_nics);
    tcase_add_test(t, rates_of_nics);
    tcase_add_test(t, rates_of_a_long_time);
    tcase_add_test(t, less_than_before);
    tcase_add_test(t, less_of_hosts);
    tcase_add_test(t, less_until_the_end);
    tcase_add_test(t, names_are_ascii);
}

int main(void)
{
    return suite_run("report_story", 60, NULL, teardown, tests_add);
}
