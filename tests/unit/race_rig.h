/*
 * What the suites of races share: a connection on the two-instance rig, numbered messages in slots
 * that are used again, faults at an instant or at a record, a channel that misbehaves, and an
 * oracle at every write of a device.
 *
 * Message number n is the n-th receive and the n-th send of the connection (one tag), and its bytes
 * are a function of n that no other message has: bytes that are right mean that it came once,
 * whole, in order, and that nothing older landed over it. A device that writes into a slot whose
 * receive was reported is caught at the write.
 *
 * RACE_WITHOUT=RULE in the environment switches a protocol rule off (plugin/base/r2_rules.h): to
 * see which test needs it.
 */
#ifndef RACE_RIG_H
#define RACE_RIG_H

#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_log.h"
#include "plugin/base/r2_rules.h"
#include "tests/fabric/model/fab_fault.h"

#define SLOTS  64
#define BIG    65536
#define POISON 0xee

struct race_slot {
    struct rig *rig; /* whose receive it is */
    uint64_t number; /* of the message that is, or was last, received here */
    size_t size;
    int r_op, s_op;  /* -1: none */
    uint64_t landed; /* bytes that devices wrote here since the receive was posted */
};

static struct rig *rig;
static struct fab_nic_cfg race_nic; /* how devices are built that race_create() makes from now on */
/* Whole pages: registered memory is kept from a forked child, page by page (test_fork). */
static uint8_t out[SLOTS][BIG] __attribute__((aligned(4096)));
static uint8_t in[SLOTS][BIG] __attribute__((aligned(4096)));
static struct race_slot slot[SLOTS];
static struct ib_mr *s_mr, *r_mr;
static uint64_t posted, sent;       /* messages, by receives and by sends */
static uint64_t ghost_writes;       /* into slots that nobody may write */
static int slots_taken_away;        /* R has taken its registration away */
static uint64_t retransmitted_base; /* S's count when retransmitted() was last asked */

static inline struct r2_comm *comm(int side)
{
    return rig->side[side].comm;
}
static inline struct fo_path *path_at(int side, int p)
{
    return &comm(side)->fo.path[p];
}
static inline int is_up(int side, int p)
{
    return ib_conn_up(&comm(side)->conn, p);
}
static inline uint32_t inc(int side, int p)
{
    return comm(side)->conn.path[p].inc;
}
static inline struct fab_counters *counters(int host, int nic)
{
    return &fab_inproc_nic(rig->f, host, nic)->cnt;
}

/* --- birth and death --- */

static inline void wrote(void *arg, int host, int nic, uint32_t qpn, void *addr, uint32_t len)
{
    uintptr_t at = (uintptr_t)addr - (uintptr_t)in;
    struct race_slot *t = &slot[at / BIG % SLOTS];

    if (at >= sizeof(in)) {
        return; /* a ring */
    }
    if (t->rig == NULL || t->rig->side[1].comm == NULL ||
        rig_done(t->rig, 1, t->r_op)) { /* closed, reported, ... */
        ghost_writes++;
    }
    t->landed += len;
}

static inline void race_create_on(const struct fab_inproc_opts *opts, int nics,
                                  const char *const *options)
{
    const char *without = getenv("RACE_WITHOUT");

    if (without) {
        ck_assert_int_ge(r2_rule_parse(without), 0);
        r2_rules_off = 1u << r2_rule_parse(without);
    }
    posted = sent = ghost_writes = retransmitted_base = 0;
    slots_taken_away = 0;
    memset(in, POISON, sizeof(in));
    for (int i = 0; i < SLOTS; i++) {
        slot[i] = (struct race_slot){.r_op = -1, .s_op = -1};
    }
    rig = rig_create_on(opts, nics, 0, options);
}

static inline void race_create(int nics, const char *const *options)
{
    race_create_on(&(struct fab_inproc_opts){.on_memory_write = wrote, .nic = race_nic}, nics,
                   options);
}

static inline void race_register(void)
{
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static inline void start(int nics, const char *const *options)
{
    race_create(nics, options);
    rig_connect(rig, 0, 0);
    race_register();
}

static inline void teardown(void)
{
    if (rig) {
        rig_destroy(rig);
        rig = NULL;
    }
}

/* --- messages --- */

static inline uint8_t byte_of(uint64_t number, size_t at)
{
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15ull + at / 8 * 0xd1342543de82ef95ull;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return (uint8_t)(x >> at % 8 * 7);
}

static inline void fill(uint8_t *to, uint64_t number, size_t size)
{
    for (size_t k = 0; k < size; k++) {
        to[k] = byte_of(number, k);
    }
}

/* The next receive, into slot @i; its message will have @size bytes. */
static inline void recv_post(int i, size_t size)
{
    struct race_slot *t = &slot[i];

    ck_assert(t->r_op < 0 || rig_done(rig, 1, t->r_op));
    memset(in[i], POISON, BIG);
    t->rig = rig;
    t->number = posted++;
    t->size = size;
    t->landed = 0;
    t->r_op = rig_irecv1(rig, in[i], size, 0, r_mr);
    for (int n = 0; t->r_op < 0 && n < 50; n++) { /* "not now", at the instant of a failure */
        ck_assert_int_eq(rig->side[1].status, R2_OK);
        rig_turn(rig, RIG_US);
        t->r_op = rig_irecv1(rig, in[i], size, 0, r_mr);
    }
    ck_assert_int_ge(t->r_op, 0);
}

/* The next send, for the receive in slot @i. */
static inline void send_post(int i)
{
    ck_assert(slot[i].s_op < 0 || rig_done(rig, 0, slot[i].s_op));
    ck_assert_uint_eq(slot[i].number, sent);
    fill(out[i], sent++, slot[i].size);
    slot[i].s_op = rig_send_wait(rig, out[i], slot[i].size, 0, s_mr);
}

/* Receives of messages 0..n-1 of a burst, in slots 0..n-1; their CTS are there when it returns. */
static inline void recv_burst(int n, size_t size)
{
    for (int i = 0; i < n; i++) {
        recv_post(i, size);
    }
    rig_run(rig, 20 * RIG_US);
}
static inline void send_burst(int n)
{
    for (int i = 0; i < n; i++) {
        send_post(i);
    }
}

/* Slot @i holds its message and nothing behind it. */
static inline void slot_is_right(int i)
{
    size_t k = 0;

    while (k < BIG && in[i][k] == (k < slot[i].size ? byte_of(slot[i].number, k) : POISON)) {
        k++;
    }
    ck_assert_msg(k == BIG, "slot %d, message %llu: byte %zu of %zu is %02x", i,
                  (unsigned long long)slot[i].number, k, slot[i].size, k < BIG ? in[i][k] : 0);
}

static inline void nothing_twice(void)
{
    const struct ib_recv *rx = comm(1)->rx;

    ck_assert_msg(ghost_writes == 0, "%llu writes into slots that nobody may write",
                  (unsigned long long)ghost_writes);
    ck_assert_uint_eq(rx->count.duplicates, 0);
    ck_assert_uint_eq(rx->count.bad_arrivals, 0);
    ck_assert_uint_eq(comm(0)->tx->count.bad_cts, 0);
    ck_assert_uint_eq(comm(0)->tx->count.bad_ack, 0);
}

/* All requests end within @limit, each once, with the right size; the first @n slots are right.
 * Returns how long it took. */
static inline uint64_t finish(int n, uint64_t limit)
{
    uint64_t from = rig_now(rig);

    ck_assert_msg(rig_until(rig, rig_all_done, limit),
                  "not done in %.3f ms, %u sends and %u receives are left", (double)limit / 1e6,
                  rig->side[0].tail - rig->side[0].head, rig->side[1].tail - rig->side[1].head);
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    for (int i = 0; i < n; i++) {
        ck_assert_uint_eq(rig_size(rig, 0, slot[i].s_op, 0), slot[i].size);
        ck_assert_uint_eq(rig_size(rig, 1, slot[i].r_op, 0), slot[i].size);
        slot_is_right(i);
    }
    ck_assert_uint_eq(comm(1)->rx->ledger.rdone, posted);
    nothing_twice();
    return rig_now(rig) - from;
}

/* @n more messages, one after the other through one slot. */
static inline void messages(int n, size_t size)
{
    for (int i = 0; i < n; i++) {
        recv_post(SLOTS - 1, size);
        send_post(SLOTS - 1);
        finish(0, 10 * RIG_S);
        slot_is_right(SLOTS - 1);
    }
}

/* Eight messages at once; how long they took. */
static inline uint64_t eight_messages(uint64_t limit)
{
    for (int i = 0; i < 8; i++) {
        recv_post(i, 3000);
    }
    for (int i = 0; i < 8; i++) {
        send_post(i);
    }
    return finish(8, limit);
}

/* What is left over: still right, then the end. */
static inline void stop(void)
{
    rig->filter = NULL;
    messages(4, 1000);
    rig_run(rig, 10 * RIG_MS);
    nothing_twice();
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

static inline uint64_t acked(void)
{
    return comm(1)->rx->ledger.acked;
}
/* Parts posted again since this was asked last. */
static inline uint64_t retransmitted(void)
{
    uint64_t n = comm(0)->tx->count.retransmitted_parts - retransmitted_base;

    retransmitted_base += n;
    return n;
}

/* --- faults --- */

/* A fault; rig_fault sees to it that it fired. */
static inline void fire(const char *text)
{
    rig_fault(rig, text);
}

/* @side gives path @p up by itself, as an administrator would have it. */
static inline void give_up_path(int side, int p)
{
    ck_assert(is_up(side, p));
    rig_enter(&rig->side[side]);
    fo_fault(&comm(side)->fo, p, &(struct ib_fault_info){.fault = IB_FAULT_ADMIN});
    ck_assert(!is_up(side, p));
    ck_assert_int_eq(path_at(side, p)->why.fault, IB_FAULT_ADMIN);
}

/* Completions of path @p at @side are there and do not show yet; NULL path: they do. */
static struct {
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
    const struct ibv_cq *cq;
} late_cq;

static inline int poll_cq_late(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    return cq == late_cq.cq ? 0 : late_cq.poll_cq(cq, n, wc);
}

static inline void hold_completions(int side, int p)
{
    const struct ib_path *path = &comm(side)->conn.path[p];
    struct ibv_context_ops *ops = &rig->side[side].inst->nics.nic[path->nic].ctx->ops;

    late_cq.poll_cq = ops->poll_cq;
    late_cq.cq = path->cq;
    ops->poll_cq = poll_cq_late;
}

static inline void show_completions(void)
{
    late_cq.cq = NULL;
}

static int want_path;

static inline int path_settled(struct rig *r)
{
    const struct fo_path *s = path_at(0, want_path), *d = path_at(1, want_path);

    return s->state == FO_FENCED && s->settled && d->state == FO_FENCED && d->settled;
}
static inline void wait_settled(int p)
{
    want_path = p;
    ck_assert_msg(rig_until(rig, path_settled, 5 * RIG_S), "path %d is not settled", p);
}

static uint32_t want_incarnation;

static inline int path_returned(struct rig *r)
{
    return is_up(0, want_path) && is_up(1, want_path) && inc(0, want_path) >= want_incarnation &&
           inc(0, want_path) == inc(1, want_path);
}
static inline void wait_returned(int p, uint32_t at_least)
{
    want_path = p;
    want_incarnation = at_least;
    ck_assert_msg(rig_until(rig, path_returned, 60 * RIG_S),
                  "path %d incarnation %u does not return: %u and %u", p, at_least, inc(0, p),
                  inc(1, p));
}

static inline int sends_done(struct rig *r)
{
    return r->side[0].head == r->side[0].tail;
}

static inline int somebody_failed(struct rig *r)
{
    return r->side[0].status != R2_OK || r->side[1].status != R2_OK;
}

static uint64_t want_acked;
static inline int acked_so_far(struct rig *r)
{
    return acked() >= want_acked;
}
static inline void wait_acked(uint64_t n, uint64_t limit)
{
    want_acked = n;
    ck_assert_msg(rig_until(rig, acked_so_far, limit), "R has %llu messages, not %llu",
                  (unsigned long long)acked(), (unsigned long long)n);
}

/* --- the channel --- */

/* What happens at a record: the first of @type that process @from says (-1: either). */
static struct {
    int type, from;
    void (*act)(void);
    const char *fault;
    int lose; /* that record does not get through */
    unsigned fired;
} at_record;

/* What the channel does to records from each process: 0 nothing. */
static struct {
    uint64_t late_ns;   /* comes so much later, */
    uint64_t spread_ns; /* ... and up to this much more, each by itself: order is lost */
    int copies;         /* comes so many times more */
    int first_at_once;  /* ... but the first copy comes as ever */
    int silent;         /* is lost, and neither end is told */
    uint64_t seen, late, doubled, lost;
} channel[2];

struct held_record {
    struct rig *r;
    int to, type;
    union fo_body body;
};

static inline void held_record_due(void *arg)
{
    struct held_record *h = arg;

    if (h->r->side[h->to].oob) {
        rig_inject(h->r, h->to, (enum fo_type)h->type, &h->body);
    }
    free(h);
}

static inline void record_later(struct rig *r, int from, int type, const union fo_body *body)
{
    struct held_record *h = malloc(sizeof(*h));
    uint64_t wait = channel[from].late_ns;

    ck_assert_ptr_nonnull(h);
    *h = (struct held_record){.r = r, .to = !from, .type = type, .body = *body};
    wait += channel[from].spread_ns ? fab_inproc_random(r->f) % channel[from].spread_ns : 0;
    fab_inproc_at(r->f, rig_now(r) + wait, held_record_due, h);
}

static inline int race_filter(struct rig *r, int from, int type, union fo_body *body)
{
    if (type == at_record.type && (at_record.from < 0 || at_record.from == from) &&
        at_record.fired++ == 0) {
        if (at_record.fault) {
            rig_fault(r, at_record.fault);
        }
        if (at_record.act) {
            at_record.act();
        }
        if (at_record.lose) {
            return 0;
        }
    }
    channel[from].seen++;
    if (channel[from].silent) {
        channel[from].lost++;
        return 0;
    }
    if (channel[from].late_ns == 0 && channel[from].spread_ns == 0) {
        return 1;
    }
    for (int i = channel[from].first_at_once; i <= channel[from].copies; i++) {
        record_later(r, from, type, body);
    }
    channel[from].doubled += (unsigned)channel[from].copies;
    channel[from].late += !channel[from].first_at_once;
    return channel[from].first_at_once;
}

static inline void channel_hook(void)
{
    memset(&at_record, 0, sizeof(at_record));
    memset(channel, 0, sizeof(channel));
    rig->filter = race_filter;
}

static inline void when_said(int type, int from, void (*act)(void), const char *fault)
{
    channel_hook();
    at_record.type = type;
    at_record.from = from;
    at_record.act = act;
    at_record.fault = fault;
}

/* --- the suite --- */

static inline int run_suite(const char *name, void (*add)(TCase *t))
{
    return suite_run(name, 240, NULL, teardown, add);
}

#endif
