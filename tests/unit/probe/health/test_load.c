/* What the NICs of both ends move while a probe goes unanswered: the pure parts (probe_load), the
 * words about it between processes of a host (registry) and of a connection (LOAD). In instances:
 * test_congest.c. */
#include "tests/support/times.h"
#include "tests/unit/registry_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#include "plugin/control/fo_proto.h"
#include "plugin/probe/probe_load.h"
#include "plugin/probe/probe_watch.h"

#define MB 1000000ull

/* --- rate --- */

START_TEST(the_best_rate_is_kept)
{
    static const struct {
        uint64_t at, moved, rate; /* ms, MB, MB/s after it */
    } step[] = {
        {1000, 5, 0},      {1050, 50, 0},   {1100, 15, 100}, /* of 100 ms, not of its best half */
        {1300, 16, 100},   {1400, 96, 800}, {1500, 96, 800},
        {1600, 3, 800}, /* a process has gone: begins anew */
        {1700, 103, 1000},
    };
    struct probe_peak p = {0};

    for (unsigned i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
        probe_peak_take(&p, step[i].at * MS, step[i].moved * MB);
        ck_assert_msg(p.rate == step[i].rate * MB, "step %u: %llu", i, (unsigned long long)p.rate);
    }
    probe_peak_take(&p, 2 * S, UINT64_MAX);
    ck_assert_uint_gt(p.rate, 1000 * MB);
}
END_TEST

START_TEST(time_of_what_is_queued)
{
    static const struct {
        uint64_t queued, rate, ns;
    } row[] = {
        {0, 0, 0},
        {0, UINT64_MAX, 0},
        {10 * MB, 0, S}, /* not measured: 10 MB/s */
        {2 * MB, 1, S},  /* never below 2 MB/s */
        {50 * MB, 100 * MB, S / 2},
        {250 * MB, 100 * MB, 5 * S / 2},
        {UINT64_MAX, 1ull << 40, S}, /* what cannot be is not believed */
        {UINT64_MAX, UINT64_MAX, 0},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct probe_load l = {.queued = row[i].queued, .rate = row[i].rate};
        uint64_t ns = probe_load_expect(&l, l.queued);

        ck_assert_msg(ns <= row[i].ns + 1000 && ns + 1000 >= row[i].ns, "row %u: %llu", i,
                      (unsigned long long)ns);
    }
    ck_assert_uint_lt(probe_load_expect(&(struct probe_load){.rate = 1}, UINT64_MAX),
                      UINT64_MAX / 8);
}
END_TEST

/* --- one end --- */

static struct probe_load load_of(uint64_t at_ms, uint64_t moved, uint64_t rate, uint64_t age_ms)
{
    return (struct probe_load){
        .at = S + at_ms * MS, .moved = moved, .rate = rate, .age = age_ms * MS};
}

#define FRESH (50 * MS)
#define T0    (100 * S)

START_TEST(what_an_end_does)
{
    static const struct {
        const char *what;
        struct {
            uint64_t at, moved, rate, age; /* ms; bytes; bytes/s; ms */
        } say[4];                          /* heard at these times */
        uint64_t now;                      /* ms */
        enum probe_activity end;
    } row[] = {
        {"nothing is said", {{0}}, 30, PROBE_ACTIVITY_UNKNOWN},
        {"long silent", {{1, 5 * MB, MB, 90}, {30, 5 * MB, MB, 119}}, 30, PROBE_ACTIVITY_SILENT},
        {"never moved",
         {{1, 0, 0, UINT64_MAX / MS}, {30, 0, 0, UINT64_MAX / MS}},
         30,
         PROBE_ACTIVITY_SILENT},
        {"silent since",
         {{1, 5 * MB, 10 * MB, 1}, {30, 5 * MB, 10 * MB, 30}},
         52,
         PROBE_ACTIVITY_SILENT},
        {"not long enough",
         {{1, 5 * MB, 10 * MB, 1}, {30, 5 * MB, 10 * MB, 30}},
         49,
         PROBE_ACTIVITY_MOVES},
        {"moves", {{1, 0, 100 * MB, 1}, {41, 800000, 100 * MB, 1}}, 41, PROBE_ACTIVITY_MOVES},
        {"busy", {{1, 0, 100 * MB, 1}, {41, 1200000, 100 * MB, 1}}, 41, PROBE_ACTIVITY_BUSY},
        {"busy, and silent since",
         {{1, 0, 100 * MB, 1}, {41, 1200000, 100 * MB, 1}},
         92,
         PROBE_ACTIVITY_SILENT},
        {"rate unknown, little", {{1, 0, 0, 1}, {41, 65535, 0, 1}}, 41, PROBE_ACTIVITY_MOVES},
        {"rate unknown", {{1, 0, 0, 1}, {41, 65536, 0, 1}}, 41, PROBE_ACTIVITY_BUSY},
        {"was busy at first",
         {{1, 0, 100 * MB, 1},
          {62, 6 * MB, 100 * MB, 1},
          {130, 6 * MB + 1, 100 * MB, 1},
          {195, 6 * MB + 2, 100 * MB, 1}},
         195,
         PROBE_ACTIVITY_MOVES},
        {"a process has gone",
         {{1, 9 * MB, 100 * MB, 1}, {30, 3 * MB, 100 * MB, 1}},
         30,
         PROBE_ACTIVITY_MOVES},
        {"late word",
         {{41, 1200000, 100 * MB, 60}, {1, 0, 100 * MB, 1}},
         41,
         PROBE_ACTIVITY_SILENT},
        {"one moment", {{1, 0, 1, 0}, {1, 5 * MB, 1, 0}}, 1, PROBE_ACTIVITY_MOVES},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct probe_track t = {0};
        enum probe_activity e;

        for (int k = 0; k < 4 && row[i].say[k].at; k++) {
            struct probe_load l = load_of(row[i].say[k].at, row[i].say[k].moved, row[i].say[k].rate,
                                          row[i].say[k].age);

            probe_track_take(&t, &l, T0 + row[i].say[k].at * MS);
        }
        e = probe_track_end(&t, T0 + row[i].now * MS, FRESH);
        ck_assert_msg(e == row[i].end, "%s: %s", row[i].what, probe_activity_name(e));
    }
}
END_TEST

/* --- the verdict --- */

#define U PROBE_ACTIVITY_UNKNOWN
#define Q PROBE_ACTIVITY_SILENT
#define M PROBE_ACTIVITY_MOVES
#define B PROBE_ACTIVITY_BUSY

START_TEST(when_silence_is_a_fault)
{
    static const struct {
        unsigned limit, most, done; /* ms; done: after the question, 0: none */
        enum probe_activity here, there;
        unsigned queue_here, queue_there, expect;
    } row[] = {
        {35, 2000, 0, U, U, 0, 0, 35},
        {35, 2000, 0, Q, Q, 900, 900, 35}, /* a queue that does not move is no congestion */
        {35, 2000, 0, U, Q, 900, 900, 35},
        {35, 2000, 0, M, Q, 20, 900, 75},
        {35, 2000, 0, Q, M, 900, 30, 95},
        {35, 2000, 0, M, M, 20, 30, 135},
        {35, 2000, 0, M, M, 1500, 0, 2000}, /* never beyond T_stuck */
        {35, 2000, 0, B, Q, 0, 0, 120},
        {35, 2000, 0, Q, B, 0, 0, 120},
        {35, 2000, 0, U, B, 0, 0, 120},
        {200, 2000, 0, Q, B, 0, 0, 200}, /* it had to wait for so long anyway */
        {35, 2000, 0, Q, B, 0, 100, 235},
        {35, 2000, 0, B, M, 0, 0, 2000},
        {35, 2000, 0, M, B, 0, 0, 2000},
        {35, 2000, 0, B, B, 500, 500, 2000},
        {35, 2000, 30, Q, Q, 0, 0, 65}, /* data between the two ports is an answer */
        {35, 2000, 500, Q, Q, 0, 0, 535},
        {35, 2000, 1990, Q, Q, 0, 0, 2000},
        {300, 100, 0, B, B, 0, 0, 300}, /* T_stuck below the limit means nothing */
        {35, 2000, 80, Q, M, 0, 10, 115},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct probe_case c = {.from = T0,
                               .t_probe = 30 * MS,
                               .limit = row[i].limit * MS,
                               .most = row[i].most * MS,
                               .done_at = row[i].done ? T0 + row[i].done * MS : T0 - S,
                               .here = row[i].here,
                               .there = row[i].there,
                               .queue_here = row[i].queue_here * MS,
                               .queue_there = row[i].queue_there * MS};
        uint64_t at = probe_case_deadline(&c) - T0;

        ck_assert_msg(at == row[i].expect * MS, "row %u: %.3f ms", i, (double)at / 1e6);
    }
}
END_TEST

/* --- words --- */

START_TEST(others_loads_are_added_up)
{
    struct r2_host_registry *b[3];
    struct r2_host_registry_nic nic = {.name = "mlx5_0", .guid = 77, .port = 1};
    struct r2_host_registry_load sum = {.moved = 1, .queued = 2, .moved_at = 3};

    for (int i = 0; i < 3; i++) {
        struct r2_host_registry_load l = {.moved = 1000u << (8 * i),
                                          .queued = 10u << i,
                                          .front = 1u << i,
                                          .moved_at = 100 - (unsigned)i};

        b[i] = must_open();
        r2_host_registry_nic_set(b[i], i, &nic); /* each counts its NICs in its own order */
        r2_host_registry_load_set(b[i], i, &l);
        r2_host_registry_load_set(b[i], R2_HOST_REGISTRY_NICS, &l);
        r2_host_registry_load_set(b[i], -1, &l);
    }
    r2_host_registry_load_add(b[0], 77, 2, 0, &sum);
    r2_host_registry_load_add(b[0], 78, 1, 0, &sum);
    ck_assert(sum.moved == 1 && sum.queued == 2 && sum.moved_at == 3);
    r2_host_registry_load_add(b[0], 77, 1, 0,
                              &sum); /* of the others: what this one has moved it knows itself */
    ck_assert_uint_eq(sum.moved, 1 + 256000 + 65536000);
    ck_assert_uint_eq(sum.queued, 2 + 20 + 40);
    ck_assert_uint_eq(sum.front, 2 + 4);
    ck_assert_uint_eq(sum.moved_at, 99);
    r2_host_registry_close(b[2]);
    sum = (struct r2_host_registry_load){.moved_at = 1000};
    r2_host_registry_load_add(b[0], 77, 1, 0, &sum);
    ck_assert(sum.moved == 256000 && sum.queued == 20 && sum.moved_at == 1000);
    sum = (struct r2_host_registry_load){0};
    r2_host_registry_load_add(b[0], 77, 1, 99 + R2_HOST_REGISTRY_STALE, &sum);
    ck_assert(sum.moved == 256000 && sum.queued == 0 &&
              sum.front == 0); /* it stands still for too long */
    b[2] = must_open();        /* who takes the slot has moved nothing */
    r2_host_registry_nic_set(b[2], 2, &nic);
    sum = (struct r2_host_registry_load){0};
    r2_host_registry_load_add(b[0], 77, 1, 0, &sum);
    ck_assert_uint_eq(sum.moved, 256000);
    for (int i = 0; i < 3; i++) {
        r2_host_registry_close(b[i]);
    }
}
END_TEST

/* The fastest that others have said lately; nothing of this process, of another NIC, of long ago,
 * of the future. */
START_TEST(tempo_of_others)
{
    struct r2_host_registry *b[3] = {must_open(), must_open(), must_open()};
    const struct r2_host_registry_nic nic = {.name = "n", .guid = 77, .port = 1};
    struct r2_host_registry_tempo t;

    for (int i = 0; i < 3; i++) {
        r2_host_registry_nic_set(b[i], i, &nic);
    }
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 1000, 500, &t),
                     0); /* nobody has said any */
    r2_host_registry_tempo_set(
        b[0], 0, &(struct r2_host_registry_tempo){.rate = 90, .least = 80, .at = 900});
    r2_host_registry_tempo_set(
        b[1], 1,
        &(struct r2_host_registry_tempo){
            .rate = 50, .least = 40, .wait_us = 3, .busy = 1024, .parts = 65535, .at = 900});
    r2_host_registry_tempo_set(
        b[2], 2, &(struct r2_host_registry_tempo){.rate = 60, .least = 30, .at = 950});
    r2_host_registry_tempo_set(
        b[2], R2_HOST_REGISTRY_NICS,
        &(struct r2_host_registry_tempo){.rate = 99, .least = 99, .at = 950});
    r2_host_registry_tempo_set(
        b[2], -1, &(struct r2_host_registry_tempo){.rate = 99, .least = 99, .at = 950});
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 2, 1000, 500, &t), 0);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 78, 1, 1000, 500, &t), 0);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 1000, 500, &t), 1);
    ck_assert(t.rate == 50 && t.least == 40 && t.wait_us == 3 && t.busy == 1024 &&
              t.parts == 65535 && t.at == 900);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 1000, 60, &t),
                     1); /* the other is older */
    ck_assert_uint_eq(t.rate, 60);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 1000, 20, &t), 0);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 899, 500, &t), 0);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[1], 77, 1, 1000, 500, &t), 1);
    ck_assert_uint_eq(t.rate, 90);
    r2_host_registry_close(b[1]);
    b[1] = must_open(); /* in the same slot: what the one before said is not its */
    r2_host_registry_nic_set(b[1], 1, &nic);
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 1000, 500, &t), 1);
    ck_assert_uint_eq(t.rate, 60);
    r2_host_registry_tempo_set(
        b[1], 2,
        &(struct r2_host_registry_tempo){
            .rate = 70, .least = 10, .at = 950}); /* nor is it when this one says something */
    ck_assert_int_eq(r2_host_registry_tempo_best(b[0], 77, 1, 1000, 500, &t), 1);
    ck_assert_uint_eq(t.rate, 60);
    for (int i = 0; i < 3; i++) {
        r2_host_registry_close(b[i]);
    }
}
END_TEST

/* The slot of somebody who does not know of flows has those of the one before; they have another
 * incarnation. */
START_TEST(flows_are_of_who_holds_the_slot)
{
    struct r2_host_registry *b[2] = {must_open(), must_open()};
    struct r2_host_registry_flow flow = {.conns = 3, .rows = 5, .demand = 1000000}, got;
    uint64_t later;
    int fd;

    ck_assert(!r2_host_registry_slot_flow(b[0], 1, 2, &got)); /* nothing said */
    r2_host_registry_flow_set(b[1], 2, &flow);
    r2_host_registry_flow_set(b[1], R2_HOST_REGISTRY_NICS, &flow);
    r2_host_registry_flow_set(b[1], -1, &flow);
    ck_assert(r2_host_registry_slot_alive(b[0], 1) && !r2_host_registry_slot_alive(b[0], 0) &&
              !r2_host_registry_slot_alive(b[0], 2));
    ck_assert(!r2_host_registry_slot_alive(b[0], -1) &&
              !r2_host_registry_slot_alive(b[0], R2_HOST_REGISTRY_SLOTS));
    ck_assert(r2_host_registry_slot_flow(b[0], 1, 2, &got));
    ck_assert(got.conns == 3 && got.rows == 5 && got.demand == 1000000);
    ck_assert(!r2_host_registry_slot_flow(b[0], 1, 1, &got));
    ck_assert(!r2_host_registry_slot_flow(b[1], 1, 2, &got)); /* its own */
    ck_assert(!r2_host_registry_slot_flow(b[0], R2_HOST_REGISTRY_SLOTS, 2, &got) &&
              !r2_host_registry_slot_flow(b[0], 1, R2_HOST_REGISTRY_NICS, &got));
    fd = open(path, O_RDWR);
    ck_assert(fd >= 0 && pread(fd, &later, 8, 4096 + 8192) == 8);
    later += 2;
    ck_assert(pwrite(fd, &later, 8, 4096 + 8192) == 8);
    ck_assert(!r2_host_registry_slot_flow(b[0], 1, 2, &got));
    close(fd);
    r2_host_registry_close(b[1]);
    b[1] = must_open();
    ck_assert(!r2_host_registry_slot_flow(b[0], 1, 2, &got));
    r2_host_registry_close(b[0]);
    r2_host_registry_close(b[1]);
}
END_TEST

/* Each number within a thousandth, and never more than it was. */
START_TEST(rooms_are_of_who_holds_the_slot)
{
    struct r2_host_registry *b[2] = {must_open(), must_open()};
    struct r2_host_registry_room said, got;

    memset(&said, 0, sizeof(said));
    ck_assert(!r2_host_registry_slot_room(b[0], 1, &got)); /* nothing said */
    said.move = UINT64_MAX;
    said.move_rows = 0x80000001;
    said.hosts = 1ull << 63;
    said.stands[_i % 2] = true;
    for (int i = 0; i < R2_HOST_REGISTRY_NICS; i++) {
        uint64_t v = (3ull << (2 * i)) + (uint64_t)_i * (UINT64_MAX >> (63 - 2 * i));

        said.nic[i] = (struct r2_host_registry_room_nic){.rows = 1u << i,
                                                         .demand = v,
                                                         .out = v + 1,
                                                         .out_bound = v / 3,
                                                         .in = UINT64_MAX - v,
                                                         .in_bound = 0,
                                                         .in_fixed = v / 7};
    }
    r2_host_registry_room_set(b[1], &said);
    ck_assert(!r2_host_registry_slot_room(b[1], 1, &got)); /* its own */
    ck_assert(!r2_host_registry_slot_room(b[0], -1, &got) &&
              !r2_host_registry_slot_room(b[0], R2_HOST_REGISTRY_SLOTS, &got));
    ck_assert(r2_host_registry_slot_room(b[0], 1, &got));
    ck_assert(got.move == said.move && got.move_rows == said.move_rows && got.hosts == said.hosts &&
              got.stands[_i % 2] && !got.stands[!(_i % 2)]);
    for (int i = 0; i < R2_HOST_REGISTRY_NICS; i++) {
        const uint64_t *is = &got.nic[i].demand, *was = &said.nic[i].demand;

        ck_assert_uint_eq(got.nic[i].rows, said.nic[i].rows);
        for (int k = 0; k < 6; k++) {
            ck_assert_uint_le(is[k], was[k]);
            ck_assert_uint_le(was[k] - is[k], was[k] / 1024 + 1);
        }
    }
    r2_host_registry_room_set(b[1], NULL);
    ck_assert(!r2_host_registry_slot_room(b[0], 1, &got));
    r2_host_registry_room_set(b[1], &said);
    r2_host_registry_close(b[1]);
    b[1] = must_open();
    ck_assert(!r2_host_registry_slot_room(b[0], 1, &got));
    r2_host_registry_close(b[0]);
    r2_host_registry_close(b[1]);
}
END_TEST

static struct r2_host_registry *writes;
static _Atomic bool is_over;

static void *writer(void *arg)
{
    struct r2_host_registry_room r = {.stands[1] = true};

    (void)arg;
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        r.nic[i % R2_HOST_REGISTRY_NICS].out = i;
        r2_host_registry_room_set(writes, &r);
    }
    return NULL;
}

/* Who reads while it is written again does not take that for an end. */
START_TEST(a_room_stays_while_it_is_written)
{
    struct r2_host_registry *reads = must_open();
    struct r2_host_registry_room r = {.stands[1] = true};
    unsigned lost = 0;
    pthread_t t;

    writes = must_open();
    r2_host_registry_room_set(writes, &r);
    ck_assert_int_eq(pthread_create(&t, NULL, writer, NULL), 0);
    for (int i = 0; i < 100000; i++) {
        lost += !r2_host_registry_slot_room(reads, 1, &r) || !r.stands[1];
    }
    ck_assert_uint_eq(lost, 0);
    atomic_store(&is_over, true);
    pthread_join(t, NULL);
    r2_host_registry_close(reads);
    r2_host_registry_close(writes);
}
END_TEST

START_TEST(the_record)
{
    union fo_body a = {.load = {.nic = FO_MAX_NICS - 1,
                                .peer_nic = 3,
                                .flags = FO_LOAD_REQUEST,
                                .moved = UINT64_MAX,
                                .queued = 1ull << 40,
                                .front = 9,
                                .age = 7,
                                .rate = 1ull << 33,
                                .at = UINT64_MAX - 1}};
    uint8_t msg[FO_MAX_RECORD];
    size_t n = fo_pack(FO_MSG_LOAD, &a, msg, sizeof(msg));
    const char *reason = NULL;

    ck_assert_uint_gt(n, 4);
    for (int lie = 0; lie < 4; lie++) {
        struct r2_reader r = {.p = msg, .end = msg + n};
        union fo_body b;
        int type;

        memset(&b, 0xaa, sizeof(b));
        fo_pack(FO_MSG_LOAD, &a, msg, sizeof(msg));
        msg[4 + (lie == 2)] = lie == 1 || lie == 2 ? FO_MAX_NICS : msg[4];
        msg[2] = (uint8_t)(msg[2] - (lie == 3));
        type = fo_unpack(&r, &b, &reason);
        ck_assert_msg(type == (lie ? -1 : FO_MSG_LOAD), "lie %d was believed", lie);
        if (!lie) {
            ck_assert(b.load.nic == a.load.nic && b.load.peer_nic == 3 &&
                      b.load.flags == FO_LOAD_REQUEST && b.load.moved == UINT64_MAX);
            ck_assert(b.load.queued == a.load.queued && b.load.front == 9 && b.load.age == 7 &&
                      b.load.rate == a.load.rate && b.load.at == a.load.at);
        }
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_best_rate_is_kept);
    tcase_add_test(t, time_of_what_is_queued);
    tcase_add_test(t, what_an_end_does);
    tcase_add_test(t, when_silence_is_a_fault);
    tcase_add_test(t, others_loads_are_added_up);
    tcase_add_test(t, tempo_of_others);
    tcase_add_test(t, flows_are_of_who_holds_the_slot);
    tcase_add_loop_test(t, rooms_are_of_who_holds_the_slot, 0, 3);
    tcase_add_test(t, a_room_stays_while_it_is_written);
    tcase_add_test(t, the_record);
}

int main(void)
{
    return run_suite("load", add);
}
