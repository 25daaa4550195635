/*
 * r2_stat --prom, run as a program over statistics files made by hand: every byte by Prometheus'
 * text format as node_exporter's textfile collector takes it (a parser here, strict where
 * Prometheus is lenient), every counter as
 * --json has it, and none that goes backwards when a process ends.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/prom_rig.h"
#include "tests/unit/suite.h"

static char json[TEXT];

/* The parser itself: what it must not take. */
START_TEST(the_parser_refuses)
{
    static const char *const good =
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total{d=\"\\\\\\\"\\n\"} 1\nr2_a_total{d=\"2\"} 1.5\n";
    static const char *const times =
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 3\nr2_a_seconds_sum{d=\"1\"} 1.5\nr2_a_seconds_count{d=\"1\"} 3\n";
    static const char *const bad[] = {
        "",
        "r2_a_total 1\n",
        "# HELP r2_a_total x\nr2_a_total 1\n",
        "# TYPE r2_a_total counter\n# HELP r2_a_total x\nr2_a_total 1\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total 1 1795314285\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total 1\nr2_a_total 1\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total 1",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total -1\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total{d=\"\\x\"} 1\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total{d=\"1\",} 1\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\nr2_a_total{1=\"1\"} 1\n",
        "# HELP r2_a_total x\n# TYPE r2_a_total counter\n\nr2_a_total 1\n",
        "# HELP r2_a x\n# TYPE r2_a counter\nr2_a 1\n",
        "# HELP r2_a_ms x\n# TYPE r2_a_ms gauge\nr2_a_ms 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\n",
        "# HELP r2_a x\n# TYPE r2_a gauge\nr2_a 1\n# HELP r2_b x\n# TYPE r2_b gauge\nr2_b 1\nr2_a{c=\"1\"} 1\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 0\nr2_a_seconds_sum{d=\"1\"} 1.5\nr2_a_seconds_count{d=\"1\"} 3\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_sum{d=\"1\"} 1.5\nr2_a_seconds_count{d=\"1\"} 3\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 3\nr2_a_seconds_count{d=\"1\"} 3\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 3\nr2_a_seconds_sum{d=\"1\"} 1.5\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 3\nr2_a_seconds_sum{d=\"1\"} 1.5\nr2_a_seconds_count{d=\"1\"} 4\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 3\nr2_a_seconds_sum{d=\"2\"} 1.5\nr2_a_seconds_count{d=\"1\"} 3\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_bucket{d=\"2\",le=\"+Inf\"} 3\nr2_a_seconds_sum{d=\"1\"} 1.5\nr2_a_seconds_count{d=\"1\"} 3\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds_bucket{d=\"1\",le=\"+Inf\"} 3\nr2_a_seconds_bucket{d=\"1\",le=\"0.5\"} 1\nr2_a_seconds_sum{d=\"1\"} 1.5\nr2_a_seconds_count{d=\"1\"} 3\n",
        "# HELP r2_a_seconds x\n# TYPE r2_a_seconds histogram\nr2_a_seconds{d=\"1\"} 3\n",
        "# HELP r2_a x\n# TYPE r2_a histogram\nr2_a_sum 1\n",
        "# HELP r2_a x\n# TYPE r2_a gauge\nr2_a 1\n# HELP r2_a x\n# TYPE r2_a gauge\nr2_a 1\n",
    };

    ck_assert_msg(doc_read(good) == 0, "%s", doc.why);
    ck_assert_msg(doc_read(times) == 0, "%s", doc.why);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(doc_read(bad[i]) != 0, "%s", bad[i]);
    }
}
END_TEST

/* --- the program --- */

static void to_file(void)
{
    char arguments[160];
    struct stat st;

    snprintf(arguments, sizeof(arguments), "--prom %s", prom_file);
    ck_assert_msg(tool(arguments, text) == 0, "%s", errors);
    ck_assert_str_eq(text, "");
    file_get(prom_file, text);
    ck_assert_msg(doc_read(text) == 0, "%s", doc.why);
    ck_assert_int_eq(stat(prom_file, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0644); /* node_exporter is another user */
    ck_assert_int_eq(stat(counters_file, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
}

/* Sum of all "KEY": N of the JSON. */
static double json_sum(const char *key)
{
    char what[64];
    double sum = 0;
    int n = 0;

    snprintf(what, sizeof(what), "\"%s\":", key);
    for (const char *p = strstr(json, what); p; p = strstr(p + 1, what)) {
        sum += strtod(p + strlen(what), NULL);
        n++;
    }
    ck_assert_msg(n > 0, "no %s in --json", key);
    return sum;
}

/* @k: how far the process is; every counter has another value. */
static void put(int i, uint64_t k)
{
    uint64_t x = k * (unsigned)(i + 1);
    struct r2_stat_who who = {.command = "test",
                              .host = "h0",
                              .pid = 4711 + i,
                              .nics = 2,
                              .peers = 1,
                              .cuda_dev = -1,
                              .capacity_up = 1,
                              .faults = 1 * x,
                              .switches = 2 * x,
                              .failbacks = 3 * x,
                              .drains = 4 * x,
                              .giveups = 5 * x,
                              .verdicts = 6 * x,
                              .replayed_bytes = 7 * x,
                              .events_lost = 8 * x,
                              .oob_strangers = 9 * x,
                              .oob_bad_frames = 12 * x,
                              .oob_bad_messages = 13 * x,
                              .stalls = 14 * x,
                              .kept = 15 * x,
                              .stall_max_ns = 1500000 * x};
    struct r2_stat_peer peer = {
        .host = "odd\"host\\1",
        .transfer[R2_BAND_1M] = {.times = 9, .p50_ns = 1000 * (unsigned)(i + 1), .p99_ns = 9000}};
    struct timespec ts;
    struct r2_stat_nic nic[2] = {{.name = "odd\"name\\1",
                                  .device = "odd\"name\\1",
                                  .port = 1,
                                  .pci = "0000:01:00.0",
                                  .guid = 1,
                                  .sent = 10 * x,
                                  .received = 20 * x,
                                  .work_requests = 30 * x,
                                  .lost = 40 * x,
                                  .stalls = 50 * x,
                                  .over = 3,
                                  .primary = 3,
                                  .since = 5000000000},
                                 {.name = "mlx5_1",
                                  .device = "mlx5_1",
                                  .port = 2,
                                  .guid = 2,
                                  .state = R2_STAT_NIC_DOWN,
                                  .sent = 11 * x,
                                  .received = 21 * x,
                                  .work_requests = 31 * x,
                                  .lost = 41 * x,
                                  .stalls = 51 * x,
                                  .moved = 4,
                                  .since = 6000000000}};

    who.stall_times[R2_STAT_STALL_FAULT].n[0] = 6 * x;
    who.stall_times[R2_STAT_STALL_FAULT].n[r2_hist_bucket(65000)] = 1 * x;
    who.stall_times[R2_STAT_STALL_FAULT].n[r2_hist_bucket(70000)] = 2 * x;
    who.stall_times[R2_STAT_STALL_FAULT].n[R2_HIST_BUCKETS - 1] = 3 * x;
    who.stall_times[R2_STAT_STALL_FAULT].sum_ns = 2500000000 * x;
    who.stall_times[R2_STAT_STALL_OTHER].n[r2_hist_bucket(600000000)] = 4 * x;
    who.stall_times[R2_STAT_STALL_OTHER].sum_ns = 600000000 * x;
    nic[0].sends[R2_SEND_SMALL].n[0] = 2 * x;
    nic[0].sends[R2_SEND_SMALL].n[r2_hist_bucket(1500)] = 3 * x;
    nic[0].sends[R2_SEND_SMALL].n[r2_hist_bucket(1100)] = 4 * x;
    nic[0].sends[R2_SEND_SMALL].sum_ns = 1500000000 * x;
    nic[1].sends[R2_SEND_LARGE].n[R2_HIST_BUCKETS - 1] = 5 * x;
    nic[1].sends[R2_SEND_LARGE].n[R2_HIST_BUCKETS - 2] = 6 * x;
    clock_gettime(CLOCK_REALTIME, &ts);
    peer.transfer[R2_BAND_1M].at = (uint64_t)ts.tv_sec * 1000000000;
    r2_stat_begin(proc[i]);
    ck_assert_int_eq(r2_stat_put_nic(proc[i], 0, &nic[0]), 1);
    ck_assert_int_eq(r2_stat_put_nic(proc[i], 1, &nic[1]), 1);
    ck_assert_int_eq(r2_stat_put_peer(proc[i], 0, &peer), 1);
    ck_assert_int_eq(r2_stat_put_who(proc[i], &who), 1);
    r2_stat_end(proc[i]);
}

/* NULL: processes and NICs have figures of one name there. */
static const char *const counters[][2] = {{"r2_faults_total", "faults"},
                                          {"r2_switches_total", "switches"},
                                          {"r2_failbacks_total", "failbacks"},
                                          {"r2_drains_total", "drains"},
                                          {"r2_giveups_total", "giveups"},
                                          {"r2_verdicts_total", "verdicts"},
                                          {"r2_replayed_bytes_total", "replayed_bytes"},
                                          {"r2_events_dropped_total", "events_lost"},
                                          {"r2_oob_strangers_total", "oob_strangers"},
                                          {"r2_oob_bad_frames_total", "oob_bad_frames"},
                                          {"r2_oob_bad_messages_total", "oob_bad_messages"},
                                          {"r2_registrations_kept_total", "registrations_kept"},
                                          {"r2_stalls_total", NULL},
                                          {"r2_nic_stalls_total", NULL},
                                          {"r2_nic_sent_bytes_total", "sent_bytes"},
                                          {"r2_nic_received_bytes_total", "received_bytes"},
                                          {"r2_nic_work_requests_total", "work_requests"},
                                          {"r2_nic_lives_lost_total", "lives_lost"},
                                          {"r2_stall_seconds_count", NULL},
                                          {"r2_stall_seconds_bucket", NULL},
                                          {"r2_stall_seconds_sum", NULL},
                                          {"r2_nic_send_seconds_count", NULL},
                                          {"r2_nic_send_seconds_bucket", NULL},
                                          {"r2_nic_send_seconds_sum", NULL}};
#define COUNTERS (int)(sizeof(counters) / sizeof(counters[0]))

static void equal_to_json(void)
{
    ck_assert_msg(tool("--json", json) == 0, "%s", errors);
    ck_assert(prom_sum("r2_stalls_total") > 0 && prom_sum("r2_nic_stalls_total") > 0);
    ck_assert(prom_sum("r2_stalls_total") + prom_sum("r2_nic_stalls_total") == json_sum("stalls"));
    for (int i = 0; i < COUNTERS; i++) {
        if (counters[i][1] == NULL) {
            continue;
        }
        ck_assert_msg(json_sum(counters[i][1]) > 0 &&
                          prom_sum(counters[i][0]) == json_sum(counters[i][1]),
                      "%s %.0f, %s %.0f", counters[i][0], prom_sum(counters[i][0]), counters[i][1],
                      json_sum(counters[i][1]));
    }
}

START_TEST(counters_equal_those_of_json)
{
    put(0, 1000);
    put(1, 1000);
    ck_assert_msg(tool("--prom", text) == 0, "%s", errors);
    ck_assert_msg(doc_read(text) == 0, "%s", doc.why);
    equal_to_json();
    to_file();
    equal_to_json();
    ck_assert(value_of("r2_nic_sent_bytes_total{device=\"odd\\\"name\\\\1\",port=\"1\"}") == 30000);
    ck_assert(value_of("r2_nic_sent_bytes_total{device=\"mlx5_1\",port=\"2\"}") == 33000);
    ck_assert(value_of("r2_nic_stalls_total{device=\"mlx5_1\",port=\"2\"}") == 51 * 3000);
    ck_assert(value_of("r2_stalls_total") == 14 * 3000);
    ck_assert(value_of("r2_registrations_kept_total") == 15 * 3000);
    ck_assert(value_of("r2_processes") == 2);
    ck_assert(value_of("r2_capacity_ratio") == 0.5);
    ck_assert_msg(tool("", json) == 0, "%s", errors);
    ck_assert_msg(
        strstr(json,
               "out-of-band channel: strangers 27000, bad frames 36000, bad messages 39000\n"),
        "%s", json);
    ck_assert_msg(strstr(json, "\nregistrations kept 45000: a driver did not let go of memory\n"),
                  "%s", json);
    put(0, 0);
    put(1, 0);
    ck_assert_msg(tool("", json) == 0, "%s", errors);
    ck_assert_msg(strstr(json, "out-of-band") == NULL, "%s", json);
    ck_assert_msg(strstr(json, "registrations kept") == NULL, "%s", json);
    ck_assert(value_of("r2_longest_stall_seconds") == 3);
    ck_assert(value_of("r2_nic_state{device=\"mlx5_1\",port=\"2\",state=\"down\"}") == 1);
    ck_assert(value_of("r2_nic_state{device=\"mlx5_1\",port=\"2\",state=\"up\"}") == 0);
    ck_assert(value_of("r2_nic_state_change_timestamp_seconds{device=\"mlx5_1\",port=\"2\"}") == 6);
    ck_assert(value_of("r2_nic_connections_moved{device=\"mlx5_1\",port=\"2\"}") == 8);
    ck_assert(value_of("r2_collector_success") == 1);
    ck_assert(
        value_of("r2_peer_transfer_seconds{peer=\"odd\\\"host\\\\1\",size=\"1M\",level=\"0.5\"}") ==
        2e-6);
    ck_assert(value_of("r2_peer_transfer_outside{peer=\"odd\\\"host\\\\1\",size=\"1M\"}") == 0);
    ck_assert(prom_sum("r2_nic_state") == 2); /* one state each */
}
END_TEST

#define FIRST  "{device=\"odd\\\"name\\\\1\",port=\"1\",size=\"small\""
#define SECOND "{device=\"mlx5_1\",port=\"2\",size=\"large\""

static void are_counted(double x)
{
    ck_assert(value_of("r2_nic_send_seconds_bucket" FIRST ",le=\"0.000001024\"}") == 2 * x);
    ck_assert(value_of("r2_nic_send_seconds_bucket" FIRST ",le=\"0.000002048\"}") == 9 * x);
    ck_assert(value_of("r2_nic_send_seconds_bucket" FIRST ",le=\"137.438953472\"}") == 9 * x);
    ck_assert(value_of("r2_nic_send_seconds_sum" FIRST "}") == 1.5 * x);
    ck_assert(value_of("r2_nic_send_seconds_count" FIRST "}") == 9 * x);
    ck_assert(value_of("r2_nic_send_seconds_bucket" SECOND ",le=\"68.719476736\"}") == 0);
    ck_assert(value_of("r2_nic_send_seconds_bucket" SECOND ",le=\"137.438953472\"}") == 6 * x);
    ck_assert(value_of("r2_nic_send_seconds_bucket" SECOND ",le=\"+Inf\"}") == 11 * x);
    ck_assert(prom_sum("r2_nic_send_seconds_count") == 20 * x); /* and nothing of other sizes */
}

/* Times of sends: bounds, counts from the first one on, and the memory of them. */
START_TEST(times_of_sends)
{
    put(0, 0);
    put(1, 0);
    to_file();
    ck_assert(strstr(text, "r2_nic_send_seconds") == NULL); /* none yet */
    put(0, 1000);
    put(1, 1000);
    to_file();
    are_counted(3000);
    to_file();
    are_counted(3000);
    r2_stat_remove(proc[0]);
    proc[0] = NULL;
    to_file();
    are_counted(3000);
    put(1, 2000);
    to_file();
    are_counted(5000);
}
END_TEST

/* @x: of both processes; @old: more of the ended. */
static void stalls_are_counted(double x, double old)
{
    ck_assert(value_of("r2_stall_seconds_bucket{fault=\"yes\",le=\"0.000065536\"}") == 7 * x);
    ck_assert(value_of("r2_stall_seconds_bucket{fault=\"yes\",le=\"0.000131072\"}") == 9 * x + old);
    ck_assert(value_of("r2_stall_seconds_bucket{fault=\"yes\",le=\"137.438953472\"}") ==
              9 * x + old);
    ck_assert(value_of("r2_stall_seconds_bucket{fault=\"yes\",le=\"+Inf\"}") == 12 * x + old);
    ck_assert(value_of("r2_stall_seconds_count{fault=\"yes\"}") == 12 * x + old);
    ck_assert(value_of("r2_stall_seconds_sum{fault=\"yes\"}") == 2.5 * x + old);
    ck_assert(value_of("r2_stall_seconds_bucket{fault=\"no\",le=\"0.536870912\"}") == 0);
    ck_assert(value_of("r2_stall_seconds_bucket{fault=\"no\",le=\"1.073741824\"}") == 4 * x);
    ck_assert(value_of("r2_stall_seconds_count{fault=\"no\"}") == 4 * x);
    ck_assert(strstr(text, "r2_stall_seconds_bucket{fault=\"yes\",le=\"0.000032768\"") == NULL);
}

/* Stalls: there before the first one, counted on from process to process, and with the memory. */
START_TEST(times_of_stalls)
{
    FILE *f;

    put(0, 0);
    put(1, 0);
    to_file();
    stalls_are_counted(0, 0);
    put(0, 1000);
    put(1, 1000);
    to_file();
    stalls_are_counted(3000, 0);
    r2_stat_remove(proc[0]);
    proc[0] = NULL;
    to_file();
    stalls_are_counted(3000, 0);
    put(1, 2000);
    to_file();
    to_file();
    stalls_are_counted(5000, 0);
    f = fopen(counters_file, "w");
    fputs(
        "r2.prom/5\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nstalls 0 9000000000 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        f);
    fclose(f);
    to_file();
    stalls_are_counted(4000, 9);
    ck_assert_msg(tool("--json", json) == 0, "%s", errors);
    ck_assert_msg(strstr(json, "\"stall_times\":{\"fault\":{\"samples\":48000,") != NULL, "%s",
                  json);
    ck_assert_msg(strstr(json, "\"no_fault\":{\"samples\":16000,\"mean_ns\":150000000,") != NULL,
                  "%s", json);
}
END_TEST

/* A process that ends takes nothing away, one that goes on is counted on, the same look twice
 * counts once. */
START_TEST(counters_do_not_go_backwards)
{
    double before[COUNTERS];

    put(0, 1000);
    put(1, 1000);
    to_file();
    for (int i = 0; i < COUNTERS; i++) {
        before[i] = prom_sum(counters[i][0]);
    }
    r2_stat_remove(proc[0]);
    proc[0] = NULL;
    for (int again = 0; again < 3; again++) {
        to_file();
        ck_assert(value_of("r2_processes") == 1);
        for (int i = 0; i < COUNTERS; i++) {
            ck_assert_msg(prom_sum(counters[i][0]) == before[i], "%s: %.0f, then %.0f",
                          counters[i][0], before[i], prom_sum(counters[i][0]));
        }
    }
    put(1, 1001);
    to_file();
    ck_assert(value_of("r2_faults_total") == before[0] + 2);
    r2_stat_remove(proc[1]);
    proc[1] = NULL;
    to_file();
    ck_assert(value_of("r2_faults_total") == before[0] + 2);
    ck_assert(value_of("r2_nic_lives_lost_total{device=\"mlx5_1\",port=\"2\"}") ==
              41 * (1000 + 2 * 1001));
    ck_assert(value_of("r2_processes") == 0);
    ck_assert(strstr(text, "r2_nic_state{") == NULL); /* nobody says */
}
END_TEST

/* The memory of a version before: what it did not count begins at zero. */
START_TEST(an_older_memory_is_taken_over)
{
    static const struct {
        const char *text;
        int strangers; /* known to it */
    } row[] = {
        {"r2.prom/4\nended 100000 0 0 0 0 0 0 7 11 0 0 0 0\nprocess 1 5 1 0 0 0 0 0 0 0 2 0 0 0 0\nnic mlx5_1 2 1 2 3 4 0\nend\n",
         13},
        {"r2.prom/1\nended 100000 0 0 0 0 0 0 7\nprocess 1 5 1 0 0 0 0 0 0 0\nnic mlx5_1 2 1 2 3 4\nend\n",
         0},
        {"r2.prom/2\nended 100000 0 0 0 0 0 0 7 11 0 0\nprocess 1 5 1 0 0 0 0 0 0 0 2 0 0\nnic mlx5_1 2 1 2 3 4\nend\n",
         13},
        {"r2.prom/3\nended 100000 0 0 0 0 0 0 7 11 0 0 0 0\nprocess 1 5 1 0 0 0 0 0 0 0 2 0 0 0 0\nnic mlx5_1 2 1 2 3 4 0\nend\n",
         13}};
    FILE *f;

    put(0, 1000);
    put(1, 1000);
    f = fopen(counters_file, "w");
    fputs(row[_i].text, f);
    fclose(f);
    to_file();
    ck_assert(value_of("r2_faults_total") == 100001 + 3000);
    ck_assert(value_of("r2_events_dropped_total") == 7 + 8 * 3000);
    ck_assert(value_of("r2_oob_strangers_total") == row[_i].strangers + 9 * 3000);
    ck_assert(value_of("r2_stalls_total") == 14 * 3000);
    ck_assert(value_of("r2_nic_stalls_total{device=\"mlx5_1\",port=\"2\"}") == 51 * 3000);
    ck_assert(value_of("r2_nic_lives_lost_total{device=\"mlx5_1\",port=\"2\"}") == 4 + 41 * 3000);
    to_file(); /* written as this version does */
    ck_assert(value_of("r2_faults_total") == 100001 + 3000);
    ck_assert(value_of("r2_oob_strangers_total") == row[_i].strangers + 9 * 3000);
    ck_assert(value_of("r2_registrations_kept_total") == 15 * 3000);
    are_counted(3000);
}
END_TEST

/* What is remembered is not in order: said, nothing written, nothing guessed. */
START_TEST(a_damaged_memory_is_an_error)
{
    static const char *const bad[] = {
        "",
        "r2.prom/6\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/5\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nstalls 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/5\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nstalls 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/5\nstalls 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/4\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nstalls 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/4\nended 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/4\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nsends a 1 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/4\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nsends a 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/4\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nsends a 1 0 0\nend\n",
        "r2.prom/4\nsends a 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/3\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nsends a 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/3\nended 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/3\nended 0 0 0 0 0 0 0 0 0 0 0 0 0\nnic a 1 1 2 3 4\nend\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0 0 0 0\nnic a 1 1 2 3 4 5\nend\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0 0 0 0\n",
        "r2.prom/2\nnic a 1 1 1 1 1\nend\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0 0 0 -1\nend\n",
        "r2.prom/2\nwhat\nend\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0 0 0 99999999999999999999\nend\n",
        "r2.prom/1\nended 0 0 0 0 0 0 0 0 0 0 0\nend\n",
        "r2.prom/1\nended 0 0 0 0 0 0 0\nend\n",
        "r2.prom/1\nended 0 0 0 0 0 0 0 0\n",
        "r2.prom/2\nended 0 0 0 0 0 0 0 0 0 0 0\nend\nmore\n"};
    char arguments[160], is[TEXT];

    put(0, 1000);
    put(1, 1000);
    to_file();
    snprintf(arguments, sizeof(arguments), "--prom=%s", prom_file);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        FILE *f = fopen(counters_file, "w");

        fputs(bad[i], f);
        fclose(f);
        ck_assert_int_eq(tool(arguments, is), 1);
        ck_assert_msg(strstr(errors, counters_file) != NULL, "%s", errors);
        file_get(prom_file, is);
        ck_assert_str_eq(is, text);
        file_get(counters_file, is);
        ck_assert_str_eq(is, bad[i]);
    }
}
END_TEST

START_TEST(a_file_that_cannot_be_written)
{
    put(0, 1000);
    put(1, 1000);
    ck_assert_int_eq(tool("--prom /nowhere/r2.prom", text), 1);
    ck_assert_msg(strstr(errors, "/nowhere/r2.prom") != NULL, "%s", errors);
    ck_assert_int_eq(tool("--prom --json", text), 2);
    ck_assert_int_eq(tool("--prom --check", text), 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prom");
    TCase *t = tcase_create("prom");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, prom_setup, prom_teardown);
    tcase_add_test(t, the_parser_refuses);
    tcase_add_test(t, counters_equal_those_of_json);
    tcase_add_test(t, times_of_sends);
    tcase_add_test(t, times_of_stalls);
    tcase_add_test(t, counters_do_not_go_backwards);
    tcase_add_loop_test(t, an_older_memory_is_taken_over, 0, 4);
    tcase_add_test(t, a_damaged_memory_is_an_error);
    tcase_add_test(t, a_file_that_cannot_be_written);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
