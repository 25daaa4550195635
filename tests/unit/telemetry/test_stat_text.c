/*
 * r2_stat's tables and its --check, run as a program over a statistics file made by hand: what an
 * operator has to read in them, whole, in 100 and in 80 columns.
 */
#include <check.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/telemetry/r2_stat.h"
#include "tests/unit/suite.h"

static char dir[64], text[16384];
static struct r2_stat *stat_file[2];
static struct r2_stat_nic nic[3];
static struct r2_stat_conn conn;
static uint32_t peers[2]; /* records of each file ... */
static uint32_t unlisted; /* ... and peers for which there was none */
static uint64_t now;

/* r2_stat ARGUMENTS on what stands there; its exit status. */
static int tool(const char *arguments)
{
    char self[PATH_MAX] = "", command[PATH_MAX + 200];
    size_t n;
    FILE *f;
    int rc;

    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
    snprintf(command, sizeof(command), "%s/../../r2_stat --run-dir %s %s 2>&1", dirname(self), dir,
             arguments);
    f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    rc = pclose(f);
    for (char *p = text, *end; strncmp(arguments, "--", 2) != 0 && (end = strchr(p, '\n')) != NULL;
         p = end + 1) { /* a table */
        ck_assert_msg(end - p <= 100, "%d columns: %.3000s", (int)(end - p), text);
    }
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static void has(const char *what)
{
    ck_assert_msg(strstr(text, what) != NULL, "no '%s' in:\n%.3000s", what, text);
}

static void put(int i)
{
    struct r2_stat_who who = {.command = "test",
                              .host = "h0",
                              .pid = 4711 + i,
                              .start = now,
                              .nics = 3,
                              .cuda_dev = -1,
                              .capacity_up = 3,
                              .conns_all = 1,
                              .peers = peers[i],
                              .peers_all = peers[i] + unlisted,
                              .conns = 1};

    r2_stat_begin(stat_file[i]);
    for (unsigned k = 0; k < 3; k++) {
        ck_assert_int_eq(r2_stat_put_nic(stat_file[i], k, &nic[k]), 1);
    }
    ck_assert_int_eq(r2_stat_put_conn(stat_file[i], 0, &conn), 1);
    ck_assert_int_eq(r2_stat_put_who(stat_file[i], &who), 1);
    r2_stat_end(stat_file[i]);
}

static void setup(void)
{
    struct timespec ts;
    char why[700];

    clock_gettime(CLOCK_REALTIME, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000;
    snprintf(dir, sizeof(dir), "/tmp/r2-text-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (unsigned i = 0; i < 2; i++) {
        stat_file[i] = r2_stat_create(dir, geteuid(), 7 + i, why, sizeof(why));
        ck_assert_msg(stat_file[i] != NULL, "%s", why);
    }
    for (unsigned i = 0; i < 3; i++) {
        nic[i] = (struct r2_stat_nic){
            .port = 1, .guid = 100 + i, .since = now, .over = 4, .why = "as found at the start"};
        snprintf(nic[i].name, sizeof(nic[i].name), "fab%u", i);
        memcpy(nic[i].device, nic[i].name, sizeof(nic[i].device));
    }
    peers[0] = peers[1] = unlisted = 0;
    conn =
        (struct r2_stat_conn){.id = 1, .is_send = 1, .npaths = 5, .standing = 1, .peer_host = "h1"};
}

static void teardown(void)
{
    for (int i = 0; i < 2; i++) {
        r2_stat_remove(stat_file[i]);
    }
    ck_assert_msg(rmdir(dir) == 0, "something is left in %s", dir);
}

/* NIC 1: all or some have left it. */
static void moved(const char *trouble, const char *blamed, int theirs)
{
    nic[1].moved = 4;
    nic[1].over = 0;
    nic[1].theirs = (uint8_t)theirs;
    nic[1].trouble_at = now;
    snprintf(nic[1].trouble, sizeof(nic[1].trouble), "%s", trouble);
    snprintf(nic[1].blamed, sizeof(nic[1].blamed), "%s", blamed);
    nic[1].blamed_at =
        blamed[0] ? now - 1000000 : 0; /* as of the fault, which was noted a moment later */
}

#define BRIEF "R2-L02 fab1 cable or switch port; job continues at 2/3; drain after job"

START_TEST(a_verdict_with_its_code_and_without_the_nic)
{
    moved("stall: no answer", BRIEF, 0);
    put(0);
    ck_assert_int_eq(tool(""), 0);
    has("  R2-L02 cable or switch port\n");
    ck_assert_int_eq(tool("--check"), 1);
    ck_assert_str_eq(text, BRIEF "\n");
    nic[1].blamed_at = now - 2000000000; /* that was another one */
    put(0);
    tool("");
    has("  stall: no answer\n");
    ck_assert_int_eq(tool("--check"), 1);
    has("fab1/1 avoided since ");
    nic[1].moved = 0;
    nic[1].state = R2_STAT_NIC_DOWN;
    snprintf(nic[1].blamed, sizeof(nic[1].blamed),
             "R2-L01 fab1 port down; job continues at 2/3; check link");
    nic[1].blamed_at = now - 1000000;
    put(0);
    tool("");
    has("  R2-L01 port down\n");
}
END_TEST

/* Of a NIC with the longest name, of yesterday, with large figures, and a reason that is as long as
 * it can be. */
START_TEST(a_long_reason_is_whole)
{
    char reason[96], *at;

    memset(reason, 'r', sizeof(reason) - 1);
    reason[85] = '\0';
    moved(reason, "", 0);
    snprintf(nic[1].name, sizeof(nic[1].name), "rocep193s0f0np0");
    nic[1].trouble_at -= 86400000000000;
    nic[1].sent = nic[1].received = 999900000000;
    nic[1].lost = 1234567;
    nic[1].moved = 2048;
    put(0);
    tool("");
    at = strstr(text, reason);
    ck_assert_msg(at != NULL, "%s", text);
    ck_assert_int_eq(at[-14], '\n');
    ck_assert_int_eq(at[85], '\n');
}
END_TEST

START_TEST(what_is_the_peers_is_no_problem_here)
{
    moved("h1:fab1 port or cable", "", 1);
    put(0);
    put(1);
    ck_assert_int_eq(tool("--check"), 0);
    ck_assert_str_eq(text,
                     "2 processes, NICs here are well; fab1 avoided for h1:fab1 port or cable\n");
    tool("--json");
    has("\"fault_at_peer\":1");
    tool("--prom");
    has("r2_nic_fault_at_peer{device=\"fab1\",port=\"1\"} 1\n");
    has("r2_nic_fault_at_peer{device=\"fab0\",port=\"1\"} 0\n");
    /* one process of two knows another reason: that one counts, in whatever order they come */
    moved("stall: no answer", "", 0);
    put(_i);
    ck_assert_int_eq(tool("--check"), 1);
    has(": stall: no answer\n");
    tool("");
    has("  stall: no answer\n");
    moved("h1:fab1 port or cable", "", 1);
    put(_i);
    nic[2].state =
        R2_STAT_NIC_DOWN; /* a NIC that is our own is a problem, whatever else there is */
    put(0);
    ck_assert_int_eq(tool("--check"), 1);
    has("fab2/1 down ");
}
END_TEST

static void path_put(int i, int from, const char *to, int state, int share, uint64_t bytes)
{
    conn.path[i] = (struct r2_stat_path){
        .nic = (uint8_t)from, .state = (uint8_t)state, .share = (uint8_t)share, .bytes = bytes};
    snprintf(conn.path[i].peer_name, sizeof(conn.path[i].peer_name), "%s", to);
}

START_TEST(paths_are_told_apart)
{
    path_put(0, 0, "fab0", R2_STAT_PATH_UP, 70, 5);
    path_put(1, 0, "fab1", R2_STAT_PATH_FENCED, 0, 5);
    path_put(2, 1, "fab0", R2_STAT_PATH_UP, 0, 5);
    path_put(3, 1, "", R2_STAT_PATH_NONE, 0, 0);
    path_put(4, 2, "mlx5_7", R2_STAT_PATH_UP, 30, 5);
    conn.path[0].way = 7;
    conn.path[0].udp_port = 49671;
    put(0);
    tool("-c");
    has("fab0 70% way 7, fab0>fab1 down, fab1>fab0 ready, fab1 never, fab2>mlx5_7 30%\n");
}
END_TEST

START_TEST(a_receiver_shows_what_carries)
{
    conn.is_send = 0;
    path_put(0, 0, "fab0", R2_STAT_PATH_UP, 0, 86400000);
    path_put(1, 1, "fab1", R2_STAT_PATH_DOWN, 0, 7);
    path_put(2, 2, "fab2", R2_STAT_PATH_UP, 0, 0);
    conn.npaths = 3;
    put(0);
    tool("-c");
    has("fab0 86.4 MB, fab1 down, fab2 ready\n");
}
END_TEST

/* @n sends of @size over NIC @i that took @ns each. */
static void sent(int i, int size, uint64_t n, uint64_t ns)
{
    nic[i].sends[size].n[r2_hist_bucket(ns)] += n;
    nic[i].sends[size].sum_ns += n * ns;
}

START_TEST(times_of_sends)
{
    sent(0, R2_SEND_SMALL, 1000, 3000);
    sent(2, R2_SEND_LARGE, 98, 1024);
    sent(2, R2_SEND_LARGE, 1, 20000000);
    sent(2, R2_SEND_LARGE, 1, 3000000000);
    r2_stat_times_of(&nic[2].sends[R2_SEND_LARGE], &conn.sends[R2_SEND_LARGE]);
    put(0);
    put(1);
    tool("");
    ck_assert_msg(strstr(text, "P99") == NULL, "%s", text);
    tool("-l");
    has("\nNIC          SENDS          TIMED      MEAN       P50       P99     P99.9\n");
    has("\nfab0         to 16 KiB       2000    3.0 us    2.8 us    3.1 us    3.1 us\n");
    has("\nfab2         larger           200   30.2 ms    1.2 us   19.6 ms     3.0 s\n");
    has("\nall          to 16 KiB       2000    3.0 us ");
    has("\nall          larger           200   30.2 ms ");
    ck_assert_msg(strstr(text, "\nfab1         to") == NULL, "%s", text); /* none of it */
    tool("-l -c");
    has("\n               larger: mean 30.2 ms, p50 1.2 us, p99 18.9 ms, p99.9 3.0 s, 100 timed\n");
    tool("--json");
    has("\"send_times\":{\"small\":null,\"large\":{\"samples\":100,\"mean_ns\":30201003,");
    has("\"buckets\":[[1024,98],[16777216,1],[2684354560,1]]}}");
    has("\"send_times\":{\"small\":{\"samples\":1000,\"mean_ns\":3000,\"p50_ns\":2815,");
    has("\"send_times\":{\"small\":null,\"large\":null}");
}
END_TEST

static void transfer_put(struct r2_stat_peer *p, const char *host, int size, uint64_t p50,
                         int state)
{
    snprintf(p->host, sizeof(p->host), "%s", host);
    p->transfer[size] = (struct r2_stat_transfer){.times = 512,
                                                  .n = 16,
                                                  .p50_ns = p50,
                                                  .p99_ns = 2 * p50,
                                                  .at = now,
                                                  .since = now,
                                                  .low_ns = 6000000,
                                                  .high_ns = 15000000,
                                                  .state = (uint8_t)state};
}

/* By process in JSON and text; by host, of two processes the later one, in Prometheus'. */
START_TEST(transfers_to_peers)
{
    struct r2_stat_peer peer = {.address = "10.0.0.2:4711"};

    transfer_put(&peer, "h1", R2_BAND_128K, 20000000, R2_BAND_ABOVE);
    transfer_put(&peer, "h1", R2_BAND_MORE, 3000, R2_BAND_LEARNS);
    peer.transfer[R2_BAND_MORE].high_ns = 0;
    peers[0] = 1;
    ck_assert_int_eq(r2_stat_put_peer(stat_file[0], 0, &peer), 1);
    ck_assert_int_eq(r2_stat_put_peer(stat_file[0], R2_STAT_PEERS, &peer), 0);
    unlisted = 3;
    put(0);
    unlisted = 0;
    memset(&peer, 0, sizeof(peer));
    transfer_put(&peer, "h1", R2_BAND_128K, 10000000, R2_BAND_INSIDE);
    transfer_put(&peer, "h1", R2_BAND_MORE, 4000, R2_BAND_BELOW);
    ck_assert_int_eq(r2_stat_put_peer(stat_file[1], 0, &peer), 1);
    memset(&peer, 0, sizeof(peer));
    transfer_put(&peer, "h\"2", R2_BAND_1M, 10000000, R2_BAND_INSIDE);
    peer.transfer[R2_BAND_1M].at -= 120000000000; /* of two minutes ago */
    ck_assert_int_eq(r2_stat_put_peer(stat_file[1], 1, &peer), 1);
    peers[1] = 2;
    put(1);
    tool("-l");
    has("\n    4711 h1                       128K        512   20.0 ms   40.0 ms  6.0 ms to 15.0 ms    above\n");
    has("\n    4711 h1                       more        512    3.0 us    6.0 us  -                    learning\n");
    has("\n    4712 h1                       128K        512   10.0 ms   20.0 ms  6.0 ms to 15.0 ms    inside\n");
    ck_assert_msg(strstr(text, " 16K ") == NULL, "%s", text); /* none was timed */
    tool("--json");
    has("\"peers\":[{\"host\":\"h1\",\"address\":\"10.0.0.2:4711\",\"transfer\":{\"16K\":null,\"128K\":{\"timed\":512,\"samples\":16,\"at\":\"20");
    has("\"p50_ns\":20000000,\"p99_ns\":40000000,\"band_ns\":[6000000,15000000],\"state\":\"above\",\"since\":\"20");
    has("\"band_ns\":null,\"state\":\"learning\"");
    has("\"peers_not_listed\":3");
    has("\"peers_not_listed\":0");
    tool("--prom");
    has("r2_peer_transfer_seconds{peer=\"h1\",size=\"128K\",level=\"0.5\"} 0.020000000\n");
    has("r2_peer_transfer_seconds{peer=\"h1\",size=\"128K\",level=\"0.99\"} 0.040000000\n");
    has("r2_peer_transfer_outside{peer=\"h1\",size=\"128K\"} 1\n");
    has("r2_peer_transfer_outside{peer=\"h1\",size=\"more\"} 1\n"); /* shorter */
    ck_assert_msg(strstr(text, "size=\"1M\"") == NULL, "%s", text);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_verdict_with_its_code_and_without_the_nic);
    tcase_add_test(t, a_long_reason_is_whole);
    tcase_add_loop_test(t, what_is_the_peers_is_no_problem_here, 0, 2);
    tcase_add_test(t, paths_are_told_apart);
    tcase_add_test(t, a_receiver_shows_what_carries);
    tcase_add_test(t, times_of_sends);
    tcase_add_test(t, transfers_to_peers);
}

int main(void)
{
    return suite_run("stat_text", 60, setup, teardown, add);
}
