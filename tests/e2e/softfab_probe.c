/*
 * What each fault of the fabric does to a program, seen from a small verbs program with a peer on
 * another host.
 *
 *   softfab exec --host 0 -- softfab_probe [CHECK...]      all checks without names
 *
 * The program is on host 0; for each check it starts a peer on host 1, connects one queue pair over
 * NIC 0 and applies faults to the fabric itself, so that it can measure from the instant of the
 * fault. One line per check: "ok NAME (what was seen)" or "FAIL NAME: why". Exit status: 0 if none
 * failed.
 */
#include "tests/e2e/softfab_probe.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- checks: each starts with a connected queue pair that has carried one word --- */

static bool check_down_up(void)
{
    unsigned down_us, up_us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 down") || !expect_event(IBV_EVENT_PORT_ERR, t, &down_us) ||
        !expect_port(IBV_PORT_DOWN) || !post(2, 8)) {
        return false;
    }
    t = seg_now();
    if (!fault("h0:n0 up") || !expect_event(IBV_EVENT_PORT_ACTIVE, t, &up_us) ||
        !expect_port(IBV_PORT_ACTIVE)) {
        return false;
    }
    snprintf(saw, sizeof(saw), "PORT_ERR after %u us, PORT_ACTIVE after %u us", down_us, up_us);
    /* Shorter than the retries last: the write goes through. */
    return expect_completion(IBV_WC_SUCCESS, HANG_LIMIT) && write_ok(3);
}

static bool check_down_event_time(void)
{
    unsigned best = UINT32_MAX, us;

    /* Nothing else would wake the NIC's thread: an event that comes was rung for. The best is
     * shown: what the fabric needs when the machine has a core for it. */
    for (int i = 0; i < 20; i++) {
        uint64_t t = seg_now();
        if (!fault("h0:n0 down") || !expect_event(IBV_EVENT_PORT_ERR, t, &us)) {
            return false;
        }
        best = us < best ? us : best;
        if (!fault("h0:n0 up") || !expect_event(IBV_EVENT_PORT_ACTIVE, t, &us)) {
            return false;
        }
    }
    snprintf(saw, sizeof(saw), "best of 20: %u us", best);
    return true;
}

static bool dead_path(const char *text)
{
    uint64_t t = seg_now();

    if (!fault(text) || !post(2, 8) || !post(3, 8) ||
        !expect_completion(IBV_WC_RETRY_EXC_ERR, HANG_LIMIT)) {
        return false;
    }
    unsigned ms = (unsigned)((seg_now() - t) / MS);
    snprintf(saw, sizeof(saw), "RETRY_EXC after %u ms, then flushed", ms);
    if (!expect_completion(IBV_WC_WR_FLUSH_ERR, HANG_LIMIT) || !expect_no_event() ||
        !expect_port(IBV_PORT_ACTIVE)) {
        return false;
    }
    return ms >= 30 ? true
                    : because("the error came after %u ms, before the retries were over", ms);
}

static bool check_blackhole(void)
{
    return dead_path("h0:n0 blackhole") &&
           (peer_word() == 1 || because("a word passed a black hole"));
}

static bool check_blackhole_tx(void)
{
    return dead_path("h0:n0 blackhole-tx") &&
           (peer_word() == 1 || because("a word passed a black hole"));
}

static bool check_blackhole_rx(void)
{
    return dead_path("h0:n0 blackhole-rx") &&
           (peer_word() == 3 || because("requests were lost, expected answers only"));
}

static bool check_ack_lost(void)
{
    return dead_path("h1:n0 ack-lost") && (peer_word() == 3 || because("the data did not arrive"));
}

static bool check_far_down(void)
{
    return dead_path("h1:n0 down");
}

static bool check_cut(void)
{
    return dead_path("h1:n0 cut h0:n0") && (peer_word() == 1 || because("a word passed a cut"));
}

static bool check_cut_tx(void)
{
    return dead_path("h1:n0 cut-tx h0:n0") &&
           (peer_word() == 3 || because("requests were lost, expected answers only"));
}

static bool check_cut_others(void)
{
    return fault("h0:n0 cut *:n1") && fault("h0:n0 cut-tx h0:n0") == false &&
           fault("*:n1 cut *:n1") && write_ok(2);
}

/* Of faults that concern the link, a queue pair that is connected to itself sees nothing. */
static bool check_loop_link(void)
{
    static const char *const faults[] = {"h0:n0 blackhole",  "h0:n0 loss 100%", "h0:n0 dup 100%",
                                         "h0:n0 delay 100s", "h0:n0 ack-lost",  "h0:n0 cut *:*",
                                         "h0:n0 rate 10B/s", "h1:n0 down"};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (!fault(faults[i]) || !write_ok(2 + i) || !fault("*:* restore")) {
            return false;
        }
    }
    return true;
}

/* The NIC serves itself while the program calls nothing. */
static bool check_loop_alone(void)
{
    for (uint64_t i = 0; i < 50; i++) {
        uint64_t end = seg_now() + 2000 * MS;
        if (!post(10 + i, 1u << 16)) {
            return false;
        }
        while (peer_word() != 10 + i && seg_now() < end) {
        }
        if (peer_word() != 10 + i) {
            return because("write %llu did not land within 2 s", (unsigned long long)i);
        }
    }
    return true;
}

static bool check_loop_down(void)
{
    return fault("h0:n0 down") && post(2, 8) &&
           expect_completion(IBV_WC_RETRY_EXC_ERR, HANG_LIMIT) && peer_word() == 1;
}

static bool check_loop_hang(void)
{
    return fault("h0:n0 hang") && post(2, 8) && expect_completion(-1, 100 * MS) &&
           peer_word() == 1 && fault("h0:n0 unhang") &&
           expect_completion(IBV_WC_SUCCESS, HANG_LIMIT) && peer_word() == 2;
}

static uint64_t drops(int host)
{
    return atomic_load(&seg_nic_at(probe_map.seg, host, 0)->count.drops);
}

static bool stream(uint32_t n, uint32_t len)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!post(100 + i, len) || !expect_completion(IBV_WC_SUCCESS, HANG_LIMIT)) {
            return false;
        }
    }
    return peer_word() == 99 + n ? true : because("the peer has another word than the last one");
}

static bool lossy(const char *text)
{
    uint64_t before = drops(0);

    if (!fault(text) || !stream(300, 64)) {
        return false;
    }
    uint64_t lost = drops(0) - before;
    snprintf(saw, sizeof(saw), "300 writes, %llu packets lost", (unsigned long long)lost);
    return lost > 0 ? true : because("nothing was lost");
}

static bool check_loss(void)
{
    return lossy("h0:n0 loss 5%");
}

static bool check_corrupt(void)
{
    return lossy("h0:n0 corrupt 5%");
}

static bool check_dup(void)
{
    uint64_t before = atomic_load(&seg_nic_at(probe_map.seg, 1, 0)->count.rx_packets);

    if (!fault("h0:n0 dup 50%") || !stream(300, 64)) {
        return false;
    }
    uint64_t got = atomic_load(&seg_nic_at(probe_map.seg, 1, 0)->count.rx_packets) - before;
    snprintf(saw, sizeof(saw), "300 writes, %llu packets arrived", (unsigned long long)got);
    return got > 350 ? true : because("only %llu packets arrived", (unsigned long long)got);
}

static bool check_delay(void)
{
    if (!fault("h0:n0 delay 3ms")) {
        return false;
    }
    uint64_t t = seg_now();
    if (!write_ok(2)) {
        return false;
    }
    unsigned us = (unsigned)((seg_now() - t) / 1000);
    snprintf(saw, sizeof(saw), "a write took %u us", us);
    return us >= 3000 ? true : because("a write took %u us", us);
}

static bool check_late_data(void)
{
    /* Longer than the retries: the sender gives up, the data lands after that. */
    if (!fault("h0:n0 delay 2s") || !post(77, 8) ||
        !expect_completion(IBV_WC_RETRY_EXC_ERR, HANG_LIMIT)) {
        return false;
    }
    if (peer_word() != 1) {
        return because("the data was there before its time");
    }
    for (uint64_t end = seg_now() + HANG_LIMIT; seg_now() < end;) {
        if (peer_word() == 77) {
            snprintf(saw, sizeof(saw), "landed after the sender's error");
            return true;
        }
    }
    return because("the late data never landed");
}

static bool check_rate(void)
{
    const uint32_t len = 2u << 20;

    if (!fault("h0:n0 rate 20MB/s")) {
        return false;
    }
    uint64_t t = seg_now();
    for (uint64_t i = 0; i < 4; i++) {
        if (!post(2 + i, len)) {
            return false;
        }
    }
    for (int i = 0; i < 4; i++) {
        if (!expect_completion(IBV_WC_SUCCESS, HANG_LIMIT)) {
            return false;
        }
    }
    double rate = 4.0 * len / ((double)(seg_now() - t) * 1e-3);
    snprintf(saw, sizeof(saw), "%.2f MB/s", rate);
    /* Above, the burst that the link allows (fabric/shm/README.md); below, what a machine without a
     * free core still does. */
    return rate > 2 && rate < 20.1 ? true : because("8 MiB at 20 MB/s went with %.2f MB/s", rate);
}

static bool check_hang(void)
{
    if (!fault("h0:n0 hang") || !post(2, 8) || !expect_completion(-1, 100 * MS) ||
        !expect_no_event() || !expect_port(IBV_PORT_ACTIVE)) {
        return false;
    }
    return fault("h0:n0 unhang") && expect_completion(IBV_WC_SUCCESS, HANG_LIMIT) &&
           peer_word() == 2;
}

static bool check_fatal(void)
{
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 fatal") || !expect_event(IBV_EVENT_DEVICE_FATAL, t, &us)) {
        return false;
    }
    snprintf(saw, sizeof(saw), "DEVICE_FATAL after %u us", us);
    if (post(2, 8)) {
        return because("post_send succeeded on a dead device");
    }
    if (device_open("fab0") != NULL) {
        return because("a dead device could be opened");
    }
    end_close(&me);
    peer_stop(0);
    return fault("h0:n0 restore") && end_open(&me, "fab0") && peer_start() && write_ok(9);
}

static bool check_call_error(void)
{
    struct ibv_port_attr a;

    if (!fault("h0:n0 call-error")) {
        return false;
    }
    int rc = ibv_query_port(me.ctx, 1, &a);
    if (rc != EIO) {
        return because("query_port gave %d, expected EIO", rc);
    }
    if (!write_ok(1) || !fault("h0:n0 restore")) {
        return false;
    }
    rc = ibv_query_port(me.ctx, 1, &a);
    return rc == 0 ? true : because("query_port gave %d after it was restored", rc);
}

static bool check_remove(void)
{
    struct ibv_port_attr a;
    char guid[sizeof(me.ctx->device->ibdev_path) + 16];
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 remove") || !expect_event(IBV_EVENT_DEVICE_FATAL, t, &us)) {
        return false;
    }
    int rc = ibv_query_port(me.ctx, 1, &a);
    if (rc != EIO) {
        return because("query_port gave %d, expected EIO", rc);
    }
    snprintf(guid, sizeof(guid), "%s/node_guid", me.ctx->device->ibdev_path);
    if (access(guid, F_OK) == 0) {
        return because("a removed device is in sysfs");
    }
    if (device_open("fab0") != NULL || errno != ENODEV) {
        return because("a removed device is in the list");
    }
    end_close(&me);
    peer_stop(0);
    return fault("h0:n0 restore") && end_open(&me, "fab0") && peer_start() && write_ok(9);
}

static bool check_qp_error(void)
{
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 hang") || !post(2, 8) || !fault("h0:n0 unhang") || !fault("h0:n0 qp-error") ||
        !expect_event(IBV_EVENT_QP_FATAL, t, &us)) {
        return false;
    }
    int first = completion(HANG_LIMIT);
    if (first != IBV_WC_WR_FLUSH_ERR && first != IBV_WC_SUCCESS) {
        return because("completion with status %d", first);
    }
    snprintf(saw, sizeof(saw), "QP_FATAL after %u us", us);
    return post(3, 8) && expect_completion(IBV_WC_WR_FLUSH_ERR, HANG_LIMIT);
}

static bool check_mr_fail(void)
{
    if (!fault("h0:n0 mr-fail 2")) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        errno = 0;
        struct ibv_mr *mr = ibv_reg_mr(me.pd, me.buf, 4096, 0);
        if ((mr != NULL) != (i == 2) || (mr == NULL && errno != ENOMEM)) {
            return because("registration %d: %s", i, mr != NULL ? "succeeded" : strerror(errno));
        }
        if (mr != NULL) {
            ibv_dereg_mr(mr);
        }
    }
    return write_ok(2);
}

static bool check_gid_change(void)
{
    union ibv_gid gid;
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 gid-change") || !expect_event(IBV_EVENT_GID_CHANGE, t, &us) ||
        ibv_query_gid(me.ctx, 1, 3, &gid) != 0) {
        return false;
    }
    if (memcmp(&gid, &me.self.gid, sizeof(gid)) == 0) {
        return because("the GID is the same");
    }
    return post(2, 8) && expect_completion(IBV_WC_RETRY_EXC_ERR, HANG_LIMIT);
}

static bool check_peer_killed(void)
{
    uint64_t t;

    /* Slow enough that most of it is still to be sent when the peer dies. */
    if (!fault("h0:n0 rate 20MB/s")) {
        return false;
    }
    for (uint32_t i = 0; i < 100; i++) {
        if (!post(i, 1u << 16)) {
            return false;
        }
    }
    kill(peer_pid, SIGKILL);
    t = seg_now();
    int status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS && me.done < me.posted) {
        status = completion(HANG_LIMIT);
    }
    if (status != IBV_WC_RETRY_EXC_ERR) {
        return because("status %d, not exceeded retries, after the peer was killed", status);
    }
    snprintf(saw, sizeof(saw), "%llu of 100 writes done, then %s after %llu ms",
             (unsigned long long)me.done, ibv_wc_status_str((enum ibv_wc_status)status),
             (unsigned long long)((seg_now() - t) / MS));
    peer_stop(SIGKILL);
    end_close(&me);
    /* The next peer takes the dead one's slot. */
    return end_open(&me, "fab0") && peer_start() && stream(200, 4096);
}

static bool check_many_peers_killed(void)
{
    for (int i = 0; i < 15; i++) {
        for (uint32_t k = 0; k < 20; k++) {
            if (!post(k, 1u << 16)) {
                return false;
            }
        }
        kill(peer_pid, SIGKILL);
        peer_stop(SIGKILL);
        end_close(&me);
        if (!end_open(&me, "fab0") || !peer_start()) {
            return false;
        }
    }
    return stream(100, 1u << 16);
}

/* Both NICs have something to send to one port all the time: neither waits for the other to end. */
static bool check_nics_share(void)
{
    enum { DEEP = 8, ALL = 240 };
    struct end *ends[2] = {&me, &second};
    unsigned long long done[2] = {0, 0};
    uint64_t end = seg_now() + HANG_LIMIT;

    while (done[0] + done[1] < ALL) {
        for (int i = 0; i < 2; i++) {
            struct end *e = ends[i];
            struct ibv_wc wc;

            while (e->posted - e->done < DEEP) {
                if (!end_post(e, 1, 1u << 16)) {
                    return false;
                }
            }
            while (ibv_poll_cq(e->cq, 1, &wc) == 1) {
                if (wc.status != IBV_WC_SUCCESS) {
                    return because("NIC %d: %s", i, ibv_wc_status_str(wc.status));
                }
                e->done++;
                done[i]++;
            }
        }
        if (seg_now() > end) {
            return because("%llu and %llu writes of %d", done[0], done[1], ALL);
        }
    }
    snprintf(saw, sizeof(saw), "%llu and %llu writes", done[0], done[1]);
    return done[0] >= ALL / 4 && done[1] >= ALL / 4
               ? true
               : because("one had %llu writes, the other %llu", done[0], done[1]);
}

/* Time-out code 14 is 67 ms, with 2 retries an error comes after about 200 ms: processes that do
 * not run for a while on a busy machine are no failure. A slow link needs more than its queue
 * takes. */
static const struct check {
    const char *name;
    bool (*run)(void);
    uint8_t qp_timeout, qp_retries; /* 0: 14, 2 */
    bool loop;                      /* connected to itself */
    bool pair;                      /* needs --crossrail and a rate: runs when it is named */
} checks[] = {
    {"down-up", check_down_up},
    {"down-event-time", check_down_event_time},
    {"far-down", check_far_down},
    {"blackhole", check_blackhole},
    {"blackhole-tx", check_blackhole_tx},
    {"blackhole-rx", check_blackhole_rx},
    {"ack-lost", check_ack_lost},
    {"cut", check_cut},
    {"cut-tx", check_cut_tx},
    {"cut-others", check_cut_others},
    {"loop-link", check_loop_link, .loop = true},
    {"loop-alone", check_loop_alone, .loop = true},
    {"loop-down", check_loop_down, .loop = true},
    {"loop-hang", check_loop_hang, .loop = true},
    {"loss", check_loss, 14, 6},
    {"corrupt", check_corrupt, 14, 6},
    {"dup", check_dup},
    {"delay", check_delay},
    {"late-data", check_late_data},
    {"rate", check_rate, 16},
    {"hang", check_hang},
    {"fatal", check_fatal},
    {"remove", check_remove},
    {"call-error", check_call_error},
    {"qp-error", check_qp_error},
    {"mr-fail", check_mr_fail},
    {"gid-change", check_gid_change},
    {"peer-killed", check_peer_killed},
    {"many-peers-killed", check_many_peers_killed},
    {"nics-share", check_nics_share, 16, .pair = true},
};

static bool check_run(const struct check *c)
{
    saw[0] = reason[0] = '\0';
    qp_timeout = c->qp_timeout != 0 ? c->qp_timeout : 14;
    qp_retries = c->qp_retries != 0 ? c->qp_retries : 2;
    bool ok = fault("*:* restore") && end_open(&me, "fab0") &&
              (!c->pair || end_open(&second, "fab1")) && (c->loop ? loop_start() : peer_start()) &&
              write_ok(1) && c->run();
    fault("*:* restore");
    peer_stop(SIGKILL);
    end_close(&second);
    end_close(&me);
    if (ok) {
        printf("ok %s%s%s%s\n", c->name, *saw != '\0' ? " (" : "", saw, *saw != '\0' ? ")" : "");
    } else {
        printf("FAIL %s: %s\n", c->name, *reason != '\0' ? reason : "the step before the last");
    }
    fflush(stdout);
    return ok;
}

static bool wanted(const struct check *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], c->name) == 0) {
            return true;
        }
    }
    return argc == 1 && !c->pair;
}

int main(int argc, char **argv)
{
    const char *dir = getenv(SEG_ENV_DIR);
    char why[512];
    int run = 0, failed = 0;

    if (dir == NULL || seg_file_open(&probe_map, dir, why, sizeof(why)) != 0) {
        fprintf(stderr, "softfab_probe: %s\n", dir == NULL ? "not below softfab exec" : why);
        return 2;
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (wanted(&checks[i], argc, argv)) {
            failed += !check_run(&checks[i]);
            run++;
        }
    }
    if (run == 0) {
        fprintf(stderr, "softfab_probe: no check of that name\n");
        return 2;
    }
    return failed != 0;
}
