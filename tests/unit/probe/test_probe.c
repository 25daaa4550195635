/* The watchdog's pure parts (probe_watch) and its records on the wire. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/control/fo_proto.h"
#include "plugin/probe/probe_watch.h"
#include "tests/support/times.h"

/* --- pure: rate, expected time, limits, back-off --- */

#define T_S (30 * MS)

START_TEST(expected_time_of_what_is_outstanding)
{
    static const struct {
        uint64_t rate, posted, done, expect;
    } row[] = {
        {0, 0, 0, 0},
        {0, 1000, 1000, 0},
        {0, 10000000, 0, S}, /* not measured: 10 MB/s */
        {0, 999, 1000, 0},   /* read apart from each other */
        {100000000, 1000000, 0, 10 * MS},
        {1, 2000000, 0, S}, /* never below 2 MB/s */
        {PROBE_RATE_MIN, 2000000, 0, S},
        {UINT64_MAX, 1000, 0, 0},
        {0, UINT64_MAX, UINT64_MAX - 10000000, S},
        {0, UINT64_MAX, 0, UINT64_MAX / 16},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct probe_watch w = {.rate = row[i].rate};
        struct probe_pulse s = {.posted = row[i].posted, .done = row[i].done};

        ck_assert_msg(probe_watch_expect(&w, &s) == row[i].expect, "row %u: %llu", i,
                      (unsigned long long)probe_watch_expect(&w, &s));
    }
}
END_TEST

START_TEST(limits_cover_what_may_be_in_the_way)
{
    ck_assert_uint_eq(probe_limit(T_S, 0, 0, false), T_S);
    ck_assert_uint_eq(probe_limit(T_S, 5 * MS, 3 * MS, false), T_S + 22 * MS);
    ck_assert_uint_eq(probe_limit(T_S, 5 * MS, 3 * MS, true), T_S + 22 * MS + PROBE_TCP_NS);
    ck_assert_uint_gt(probe_limit(T_S, UINT64_MAX / 16, S, true), UINT64_MAX / 16); /* no wrap */
    ck_assert_uint_eq(probe_stuck_limit(2 * S, 14, 0), 2 * S);
    ck_assert_uint_eq(probe_stuck_limit(2 * S, 20, 0),
                      2 * (4096ull << 20)); /* twice the RC time-out */
    ck_assert_uint_eq(probe_stuck_limit(2 * S, 14, S), 4 * S);
    ck_assert_uint_eq(probe_stuck_limit(1, 31, 0), 2 * (4096ull << 31));
    ck_assert_uint_eq(probe_stuck_limit(1, 200, 0), 2 * (4096ull << 31));
    ck_assert_uint_gt(2 * probe_stuck_limit(1, 14, UINT64_MAX / 16), UINT64_MAX / 16);
}
END_TEST

/* Looks of a path that is silent from @from on, ticked every quarter of T_suspect. */
/* When a queue pair that stands still is taken to have lost its last packet. */
START_TEST(last_packet)
{
    static const struct {
        struct probe_tail t;
        uint64_t left;
    } row[] = {
        /* 50 ms of silence, T_suspect behind the answer */
        {{.silent = 30 * MS, .answered = 0}, 30 * MS},
        {{.silent = 30 * MS, .answered = 25 * MS}, 20 * MS},
        {{.silent = 50 * MS, .answered = 20 * MS}, 10 * MS},
        {{.silent = 50 * MS, .answered = 30 * MS}, 0},
        {{.silent = 2000 * MS, .answered = 29 * MS}, 1 * MS},
        /* 8 answer times */
        {{.silent = 60 * MS, .answered = 30 * MS, .answer = 5 * MS}, 10 * MS},
        /* RC's own time-out, if it is short */
        {{.silent = 60 * MS, .answered = 30 * MS, .rto = 67 * MS}, 74 * MS},
        {{.silent = 60 * MS, .answered = 30 * MS, .rto = 10 * MS}, 0},
        {{.silent = 60 * MS, .answered = 30 * MS, .rto = 134 * MS}, 0},
        /* bytes of the path, bytes of both NICs */
        {{.silent = 60 * MS, .answered = 50 * MS, .expect = 10 * MS}, 30 * MS},
        {{.silent = 60 * MS, .answered = 50 * MS, .queued = 10 * MS}, 10 * MS},
        {{.silent = 60 * MS, .answered = 50 * MS, .queued = UINT64_MAX}, 8530 * MS},
        {{.silent = 60 * MS, .answered = 50 * MS, .expect = UINT64_MAX}, 8530 * MS},
        /* in a row */
        {{.silent = 60 * MS, .answered = 60 * MS, .rows = 3}, 0},
        {{.silent = 60 * MS, .answered = 60 * MS, .rows = 4}, 40 * MS},
        {{.silent = 60 * MS, .answered = 60 * MS, .rows = 8}, 140 * MS},
        {{.silent = 60 * MS, .answered = 1000 * S, .rows = UINT32_MAX}, 8530 * MS},
        {{.silent = 8590 * MS, .answered = 1000 * S, .rows = UINT32_MAX}, 0},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct probe_tail t = row[i].t;
        uint64_t left;

        t.t_suspect = 30 * MS;
        t.most = 8590 * MS;
        left = probe_tail_left(&t);
        ck_assert_msg(left == row[i].left, "row %u: %llu us", i, (unsigned long long)left / 1000);
    }
}
END_TEST

START_TEST(looks_back_off_and_start_anew)
{
    static const uint64_t expect[] = {30,  60,  120,  240,
                                      480, 960, 1920, 2920}; /* ms of silence; back-off to 1 s */
    struct probe_watch w = {0};
    struct probe_pulse s = {.moved = 7};
    uint64_t step = T_S / 4, now = 0;
    unsigned n = 0;

    for (int round = 0; round < 2; round++) {
        uint64_t from;

        s.moved++;
        now += step;
        from = now;
        ck_assert_int_eq(probe_watch_tick(&w, now, &s, T_S), 0);
        for (n = 0; n < sizeof(expect) / sizeof(expect[0]);) {
            now += step;
            if (probe_watch_tick(&w, now, &s, T_S)) {
                ck_assert_msg(
                    now - from >= expect[n] * MS && now - from < expect[n] * MS + 8 * step,
                    "look %u after %llu us", n, (unsigned long long)((now - from) / 1000));
                ck_assert_uint_eq(probe_watch_silence(&w, now), now - from);
                n++;
            }
        }
    }
    probe_watch_rest(&w);
    ck_assert_uint_eq(probe_watch_silence(&w, now), 0);
    ck_assert_int_eq(probe_watch_tick(&w, now + S, &s, T_S), 0); /* rest is no silence */
    ck_assert_int_eq(probe_watch_tick(&w, now + S + T_S - 1, &s, T_S), 0);
    ck_assert_int_eq(probe_watch_tick(&w, now + S + T_S, &s, T_S), 1);
}
END_TEST

/* A path is not suspected while its bytes may take that long. */
START_TEST(bytes_under_way_give_time)
{
    struct probe_watch w = {.rate = 100000000};
    struct probe_pulse s = {.moved = 1, .posted = 10000000};
    uint64_t now = S, end = S + T_S + 2 * 100 * MS;

    ck_assert_int_eq(probe_watch_tick(&w, now, &s, T_S), 0);
    for (now += MS; now < end; now += MS) {
        ck_assert_int_eq(probe_watch_tick(&w, now, &s, T_S), 0);
    }
    ck_assert_int_eq(probe_watch_tick(&w, end, &s, T_S), 1);
}
END_TEST

static void run_at(struct probe_watch *w, uint64_t *now, struct probe_pulse *s, uint64_t bytes,
                   int ticks, int idle)
{
    for (int i = 0; i < ticks; i++) {
        *now += 10 * MS;
        s->done += bytes;
        s->posted = s->done + (idle ? 0 : 1);
        s->moved++;
        if (idle) {
            probe_watch_idle(w, *now, s);
        } else {
            probe_watch_tick(w, *now, s, T_S);
        }
    }
}

START_TEST(rate_rises_at_once_and_falls_slowly)
{
    struct probe_watch w = {0};
    struct probe_pulse s = {0};
    uint64_t now = S;

    run_at(&w, &now, &s, 0, 1, 0);
    run_at(&w, &now, &s, 1000000, 1, 0);
    ck_assert_uint_eq(w.rate, 100000000);
    run_at(&w, &now, &s, 500000, 1, 0);
    ck_assert_uint_eq(w.rate, 100000000 - 50000000 / 8);
    run_at(&w, &now, &s, 500000, 100, 0);
    ck_assert_uint_lt(w.rate, 50100000);
    run_at(&w, &now, &s, 2000000, 1, 0);
    ck_assert_uint_eq(w.rate, 200000000);
    run_at(&w, &now, &s, 1000, 60, 0); /* less than a sample: goes on until it is one */
    ck_assert_uint_eq(w.rate, 200000000);
    run_at(&w, &now, &s, 1000, 6, 0);
    ck_assert_uint_lt(w.rate, 200000000);
}
END_TEST

/* Idle time bounds a rate from below: it may raise it, and never takes it down. */
START_TEST(idle_time_is_no_slowness)
{
    struct probe_watch w = {0};
    struct probe_pulse s = {0};
    uint64_t now = S;

    run_at(&w, &now, &s, 0, 1, 1);
    run_at(&w, &now, &s, 1000000, 1, 1);
    ck_assert_uint_eq(w.rate, 100000000);
    run_at(&w, &now, &s, 100000, 50, 1);
    ck_assert_uint_eq(w.rate, 100000000);
    run_at(&w, &now, &s, 0, 1000, 1);
    run_at(&w, &now, &s, 2000000, 1, 1);
    ck_assert_uint_eq(w.rate, 200000000); /* ten idle seconds are not counted in */
    run_at(&w, &now, &s, 0, 1000, 1);
    run_at(&w, &now, &s, 100000, 1, 0); /* the interval began idle */
    ck_assert_uint_eq(w.rate, 200000000);
    run_at(&w, &now, &s, 100000, 1, 0);
    ck_assert_uint_lt(w.rate, 200000000);
}
END_TEST

/* --- records --- */

static size_t packed(enum fo_type type, const union fo_body *b, uint8_t *msg)
{
    size_t n = fo_pack(type, b, msg, FO_MAX_RECORD);

    ck_assert_uint_gt(n, 4);
    return n;
}

static int unpacked(const uint8_t *msg, size_t n, union fo_body *b)
{
    struct r2_reader r = {.p = msg, .end = msg + n};
    const char *why = NULL;

    memset(b, 0xaa, sizeof(*b));
    return fo_unpack(&r, b, &why);
}

START_TEST(records_come_out_as_they_went_in)
{
    union fo_body a, b;
    uint8_t msg[FO_MAX_RECORD];

    for (int i = 0; i < 2; i++) {
        memset(&a, 0, sizeof(a));
        a.probe = (struct fo_probe){
            .nic = i ? FO_MAX_NICS - 1 : 0,
            .peer_nic = i ? FO_MAX_NICS - 1 : 0,
            .flags = i ? FO_PROBE_REQUEST : 0,
            .inc = i ? UINT32_MAX : 1,
            .for_inc = i ? UINT32_MAX : 0,
            .addr = {.qpn = 0xffffff, .psn = 0xffffff, .port = {.mtu = IBV_MTU_4096}},
            .guid = i ? UINT64_MAX : 0,
            .port = i ? PROBE_GOSSIP_PROCESS - 1 : 0};
        memset(a.probe.name, 'n', i ? FO_NIC_NAME - 1 : 0);
        memset(a.probe.addr.port.gid, 0x5a, 16);
        ck_assert_int_eq(unpacked(msg, packed(FO_MSG_PROBE, &a, msg), &b), FO_MSG_PROBE);
        ck_assert_int_eq(b.probe.nic, a.probe.nic);
        ck_assert_int_eq(b.probe.peer_nic, a.probe.peer_nic);
        ck_assert_int_eq(b.probe.flags, a.probe.flags);
        ck_assert_uint_eq(b.probe.inc, a.probe.inc);
        ck_assert_uint_eq(b.probe.for_inc, a.probe.for_inc);
        ck_assert_uint_eq(b.probe.addr.qpn, 0xffffff);
        ck_assert_uint_eq(b.probe.addr.psn, 0xffffff);
        ck_assert_uint_eq(b.probe.guid, a.probe.guid);
        ck_assert_uint_eq(b.probe.port, a.probe.port);
        ck_assert_str_eq(b.probe.name, a.probe.name);
        ck_assert_int_eq(memcmp(&b.probe.addr.port.gid, &a.probe.addr.port.gid, 16), 0);
        a.delivery_query = (struct fo_delivery_query){.dst = 1,
                                                      .src = UINT32_MAX,
                                                      .inc = 7,
                                                      .path = i ? IB_MAX_PATHS - 1 : 0,
                                                      .mask = i ? 0xffff : 1,
                                                      .seq = i ? UINT64_MAX : 0};
        ck_assert_int_eq(unpacked(msg, packed(FO_MSG_DELIVERY_QUERY, &a, msg), &b),
                         FO_MSG_DELIVERY_QUERY);
        ck_assert_int_eq(memcmp(&b.delivery_query.dst, &a.delivery_query.dst, 12), 0);
        ck_assert_int_eq(b.delivery_query.path, a.delivery_query.path);
        ck_assert_int_eq(b.delivery_query.mask, a.delivery_query.mask);
        ck_assert_uint_eq(b.delivery_query.seq, a.delivery_query.seq);
    }
}
END_TEST

/* Every field that could be an index or a divisor, and every length but the right one. */
START_TEST(records_with_lies_are_refused)
{
    static const struct {
        uint8_t type, at, value;
    } lie[] = {
        {FO_MSG_PROBE, 4 + 0, FO_MAX_NICS}, /* nic */
        {FO_MSG_PROBE, 4 + 1, FO_MAX_NICS}, /* peer_nic */
        {FO_MSG_PROBE, 4 + 1, 255},
        {FO_MSG_PROBE, 4 + 3, 0},       /* inc */
        {FO_MSG_PROBE, 4 + 11 + 3, 1},  /* qpn of more than 24 bits */
        {FO_MSG_PROBE, 4 + 11 + 7, 1},  /* psn */
        {FO_MSG_PROBE, 4 + 11 + 25, 0}, /* mtu */
        {FO_MSG_PROBE, 4 + 11 + 25, 6},
        {FO_MSG_PROBE, 4 + 11 + 28, IB_LMC_MAX + 1},
        {FO_MSG_PROBE, 4 + 11 + 69, IB_WAYS_MAX + 1},
        {FO_MSG_PROBE, 4 + 11 + 70 + 8, PROBE_GOSSIP_PROCESS},
        {FO_MSG_DELIVERY_QUERY, 4 + 12, IB_MAX_PATHS},
        {FO_MSG_DELIVERY_QUERY, 4 + 12, 255},
    };
    uint8_t msg[FO_MAX_RECORD + 1];
    union fo_body a, b;
    size_t n;

    for (unsigned i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
        memset(&a, 0, sizeof(a));
        if (lie[i].type == FO_MSG_PROBE) {
            a.probe = (struct fo_probe){.inc = 1, .addr = {.qpn = 5, .port = {.mtu = IBV_MTU_256}}};
        }
        n = packed((enum fo_type)lie[i].type, &a, msg);
        ck_assert_int_eq(unpacked(msg, n, &b), lie[i].type);
        ck_assert_int_ne(msg[lie[i].at], lie[i].value);
        msg[lie[i].at] = lie[i].value;
        ck_assert_msg(unpacked(msg, n, &b) == -1, "lie %u was believed", i);
        for (size_t len = 1; len <= n; len++) { /* cut short, and one byte more inside */
            n = packed((enum fo_type)lie[i].type, &a, msg);
            msg[n] = 0;
            msg[2] = (uint8_t)(len == n ? n - 4 + 1 : len > 4 ? len - 4 : 0);
            ck_assert_int_eq(unpacked(msg, len == n ? n + 1 : len, &b),
                             len == n || len < n ? -1 : 0);
        }
    }
}
END_TEST

/* Full and empty, and what differs in one place only. */
static void report_fill(struct probe_report *w, int full)
{
    memset(w, 0, sizeof(*w));
    w->subject = full ? (struct probe_subject){UINT64_MAX - 1, UINT64_MAX, 254, 253}
                      : (struct probe_subject){.a = 1};
    w->version = full ? PROBE_GOSSIP_VERSION_MAX : 1;
    w->origin = full ? UINT64_MAX : 0;
    w->since_ms = full ? UINT64_MAX : 0;
    w->blame = full ? PROBE_BLAMES - 1 : 0;
    w->confidence = full ? 100 : 0;
    memset(w->gid, full ? 0xfe : 0, sizeof(w->gid));
    memset(w->host, full ? 'h' : 0, sizeof(w->host) - 1);
    memset(w->nic, full ? '~' : 0, sizeof(w->nic) - 1);
}

START_TEST(health_reports_come_out_as_they_went_in)
{
    union fo_body a, b;
    uint8_t msg[FO_MAX_RECORD];

    for (int i = 0; i < 2; i++) {
        report_fill(&a.report, i);
        ck_assert_uint_eq(packed(FO_MSG_REPORT, &a, msg), 4 + 124);
        ck_assert_int_eq(unpacked(msg, 4 + 124, &b), FO_MSG_REPORT);
        ck_assert_int_eq(memcmp(&a.report, &b.report, sizeof(a.report)), 0);
        memset(&a, 0, sizeof(a));
        a.report_ok = i ? (struct fo_report_ok){{1, 2, 3, 4}, PROBE_GOSSIP_VERSION_MAX, UINT64_MAX}
                        : (struct fo_report_ok){{1, 0, 0, 0}, 1, 0};
        ck_assert_uint_eq(packed(FO_MSG_REPORT_OK, &a, msg), 4 + 34);
        ck_assert_int_eq(unpacked(msg, 4 + 34, &b), FO_MSG_REPORT_OK);
        ck_assert_int_eq(memcmp(&a.report_ok.subject, &b.report_ok.subject, 18), 0);
        ck_assert_uint_eq(b.report_ok.version, a.report_ok.version);
        ck_assert_uint_eq(b.report_ok.origin, a.report_ok.origin);
        a.locate =
            i ? (struct fo_locate){FO_MAX_NICS - 1,
                                   FO_MAX_NICS - 2,
                                   FO_LOCATE_REQUEST | FO_LOCATE_FINAL,
                                   UINT32_MAX,
                                   7,
                                   {PROBE_PORTS - 1, PROBE_OUTCOMES - 1, PROBE_OUTCOMES - 2, 255},
                                   PROBE_OUTCOMES - 1,
                                   FO_LOCATE_AUX,
                                   {{1, 2, 1}, {3, 4, 2}, {5, 6, 3}, {UINT64_MAX, 255, 0}}}
              : (struct fo_locate){.id = 1};
        ck_assert_uint_eq(packed(FO_MSG_LOCATE, &a, msg), 4 + 57);
        ck_assert_int_eq(unpacked(msg, 4 + 57, &b), FO_MSG_LOCATE);
        ck_assert(b.locate.nic == a.locate.nic && b.locate.peer_nic == a.locate.peer_nic &&
                  b.locate.flags == a.locate.flags);
        ck_assert(b.locate.id == a.locate.id && b.locate.for_id == a.locate.for_id);
        ck_assert_int_eq(memcmp(&b.locate.end, &a.locate.end, sizeof(b.locate.end)), 0);
        ck_assert(b.locate.direct == a.locate.direct && b.locate.n_aux == a.locate.n_aux);
        for (int j = 0; j < FO_LOCATE_AUX; j++) {
            ck_assert(b.locate.aux[j].guid == a.locate.aux[j].guid &&
                      b.locate.aux[j].port == a.locate.aux[j].port &&
                      b.locate.aux[j].outcome == a.locate.aux[j].outcome);
        }
    }
    ck_assert_str_eq(fo_type_name(FO_MSG_REPORT), "REPORT");
    ck_assert_str_eq(fo_type_name(FO_MSG_REPORT_OK), "REPORT_OK");
    ck_assert_str_eq(fo_type_name(FO_MSG_LOCATE), "LOCATE");
    ck_assert_str_eq(fo_type_name(FO_MSG_END), "?");
}
END_TEST

/* A byte that makes a field a lie, in a record that is right otherwise; the same lie cannot be
 * packed. */
START_TEST(health_reports_with_lies_are_refused)
{
    enum { WORD = 4, HOST = WORD + 60, NIC = HOST + PROBE_GOSSIP_HOST, OK = 4, LOC = 4 };
    static const struct {
        uint8_t type, at, value;
    } lie[] = {
        {FO_MSG_REPORT, WORD + 0, 0},    /* subject all zero */
        {FO_MSG_REPORT, WORD + 16, 255}, /* one half of it a process */
        {FO_MSG_REPORT, WORD + 17, 255},
        {FO_MSG_REPORT, WORD + 17, 1},     /* a path, the larger end first */
        {FO_MSG_REPORT, WORD + 18, 0},     /* version 0 */
        {FO_MSG_REPORT, WORD + 18 + 6, 1}, /* 1 << 48 */
        {FO_MSG_REPORT, WORD + 18 + 7, 255},
        {FO_MSG_REPORT, WORD + 42, PROBE_BLAMES}, /* blame */
        {FO_MSG_REPORT, WORD + 42, 255},
        {FO_MSG_REPORT, WORD + 43, 101},
        {FO_MSG_REPORT, HOST, '\n'},
        {FO_MSG_REPORT, HOST, 0xff},
        {FO_MSG_REPORT, HOST + 1, 'x'}, /* behind its end */
        {FO_MSG_REPORT, NIC - 1, 'x'},
        {FO_MSG_REPORT, NIC, 0x1f},
        {FO_MSG_REPORT, NIC, 0x7f},
        {FO_MSG_REPORT, NIC + PROBE_GOSSIP_NIC - 1, 'x'},
        {FO_MSG_REPORT_OK, OK + 0, 0},
        {FO_MSG_REPORT_OK, OK + 16, 255},
        {FO_MSG_REPORT_OK, OK + 18, 0},
        {FO_MSG_REPORT_OK, OK + 24, 1},
        {FO_MSG_LOCATE, LOC + 0, FO_MAX_NICS},
        {FO_MSG_LOCATE, LOC + 1, FO_MAX_NICS},
        {FO_MSG_LOCATE, LOC + 11, PROBE_PORTS},
        {FO_MSG_LOCATE, LOC + 12, PROBE_OUTCOMES},
        {FO_MSG_LOCATE, LOC + 13, PROBE_OUTCOMES},
        {FO_MSG_LOCATE, LOC + 13, 255},
        {FO_MSG_LOCATE, LOC + 15, PROBE_OUTCOMES},
        {FO_MSG_LOCATE, LOC + 16, FO_LOCATE_AUX + 1},
        {FO_MSG_LOCATE, LOC + 26, PROBE_OUTCOMES},
        {FO_MSG_LOCATE, LOC + 56, PROBE_OUTCOMES},
    };
    uint8_t msg[FO_MAX_RECORD + 1];
    union fo_body a, b;

    for (unsigned i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
        size_t n;

        memset(&a, 0, sizeof(a));
        if (lie[i].type == FO_MSG_REPORT) {
            report_fill(&a.report, 0);
        } else if (lie[i].type == FO_MSG_REPORT_OK) {
            a.report_ok = (struct fo_report_ok){.subject = {.a = 1}, .version = 1};
        }
        n = packed((enum fo_type)lie[i].type, &a, msg);
        ck_assert_int_eq(unpacked(msg, n, &b), lie[i].type);
        ck_assert_int_ne(msg[lie[i].at], lie[i].value);
        msg[lie[i].at] = lie[i].value;
        ck_assert_msg(unpacked(msg, n, &b) == -1, "lie %u was believed", i);
        for (size_t len = 1; len <= n; len++) {
            n = packed((enum fo_type)lie[i].type, &a, msg);
            msg[n] = 0;
            msg[2] = (uint8_t)(len == n ? n - 4 + 1 : len > 4 ? len - 4 : 0);
            ck_assert_int_eq(unpacked(msg, len == n ? n + 1 : len, &b), -1);
        }
    }
    report_fill(&a.report, 1);
    a.report.host[PROBE_GOSSIP_HOST - 1] = 'h'; /* not terminated */
    ck_assert_uint_eq(fo_pack(FO_MSG_REPORT, &a, msg, sizeof(msg)), 0);
    memset(&a, 0, sizeof(a));
    ck_assert_uint_eq(fo_pack(FO_MSG_REPORT, &a, msg, sizeof(msg)), 0);
    ck_assert_uint_eq(fo_pack(FO_MSG_REPORT_OK, &a, msg, sizeof(msg)), 0);
    a.locate.end.loop = PROBE_OUTCOMES;
    ck_assert_uint_eq(fo_pack(FO_MSG_LOCATE, &a, msg, sizeof(msg)), 0);
}
END_TEST

/* A record that this version does not know is skipped, and what follows is read. */
START_TEST(records_of_later_versions_are_skipped)
{
    uint8_t msg[64] = {FO_MSG_END,
                       FO_PROTO_VERSION,
                       3,
                       0,
                       1,
                       2,
                       3,
                       FO_MSG_CTS_REQUEST + 1,
                       FO_PROTO_VERSION + 1,
                       0,
                       0};
    union fo_body a = {.report_ok = {.subject = {.a = 1}, .version = 1}}, b;
    size_t n = fo_pack(FO_MSG_REPORT_OK, &a, msg + 11, sizeof(msg) - 11);

    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(unpacked(msg, 11 + n, &b), FO_MSG_REPORT_OK);
    ck_assert_uint_eq(b.report_ok.subject.a, 1);
    ck_assert_uint_eq(fo_foreign_version(msg, 11 + n), FO_PROTO_VERSION + 1);
    ck_assert_uint_eq(fo_foreign_version(msg, 7), 0);
    ck_assert_uint_eq(fo_foreign_version(msg, 9), 0); /* its head is not whole */
    ck_assert_uint_eq(fo_foreign_version(msg + 11, n), 0);
    msg[2] = 60; /* a length beyond the message: nothing behind it is believed */
    ck_assert_uint_eq(fo_foreign_version(msg, 11 + n), 0);
}
END_TEST

static TCase *new_case(Suite *s, const char *name)
{
    TCase *t = tcase_create(name);

    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return t;
}

static void add_pure(Suite *s)
{
    TCase *t = new_case(s, "pure");

    tcase_add_test(t, last_packet);
    tcase_add_test(t, expected_time_of_what_is_outstanding);
    tcase_add_test(t, limits_cover_what_may_be_in_the_way);
    tcase_add_test(t, looks_back_off_and_start_anew);
    tcase_add_test(t, bytes_under_way_give_time);
    tcase_add_test(t, rate_rises_at_once_and_falls_slowly);
    tcase_add_test(t, idle_time_is_no_slowness);
    tcase_add_test(t, records_come_out_as_they_went_in);
    tcase_add_test(t, records_with_lies_are_refused);
    tcase_add_test(t, health_reports_come_out_as_they_went_in);
    tcase_add_test(t, health_reports_with_lies_are_refused);
    tcase_add_test(t, records_of_later_versions_are_skipped);
}

int main(void)
{
    Suite *s = suite_create("probe");
    SRunner *r;
    int failed;

    add_pure(s);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
