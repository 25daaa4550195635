/* In-process engine: clock, user events, determinism, description, cost. */
#include "plugin/base/r2_time.h"
#include "tests/unit/test_fabric_pair.h"

#include <arpa/inet.h>
#include <time.h>

struct order {
    int seen[8];
    int n;
    struct fab_inproc *f;
    uint64_t victim;
};

static struct order o;

static void note(void *arg)
{
    o.seen[o.n++] = (int)(intptr_t)arg;
}

static void cancel_victim(void *arg)
{
    note(arg);
    fab_inproc_cancel(o.f, o.victim);
    ck_assert_uint_ne(fab_inproc_at(o.f, 0, note, (void *)9), 0); /* the past is now */
}

static struct fab_inproc *small(uint64_t seed)
{
    struct fab_desc d;
    struct fab_inproc *f;

    ck_assert_int_eq(fab_desc_init(&d, 2, 4, 0, 1000, NULL, 0), 0);
    f = fab_inproc_create(&d, seed, NULL);
    ck_assert_ptr_nonnull(f);
    return f;
}

START_TEST(user_events)
{
    static const int want[] = {1, 2, 6, 7, 3, 9, 5};
    uint64_t id;

    memset(&o, 0, sizeof o);
    o.f = small(1);
    ck_assert_int_eq(fab_inproc_step(o.f), 0);
    ck_assert_uint_eq(fab_inproc_next_event_time(o.f), UINT64_MAX);
    fab_inproc_at(o.f, 300, note, (void *)5);
    id = fab_inproc_at(o.f, 100, note, (void *)1);
    fab_inproc_at(o.f, 100, note, (void *)2);
    fab_inproc_at(o.f, 200, cancel_victim, (void *)3);
    o.victim = fab_inproc_at(o.f, 250, note, (void *)4);
    ck_assert_uint_eq(fab_inproc_next_event_time(o.f), 100);
    fab_inproc_run_until(o.f, 150);
    ck_assert_int_eq(o.n, 2);
    ck_assert_uint_eq(fab_inproc_now(o.f), 150);
    fab_inproc_at(o.f, 160, note, (void *)6);
    fab_inproc_at(o.f, 170, note, (void *)7);
    fab_inproc_cancel(o.f, id); /* ran already: not the event that has its record now */
    while (fab_inproc_step(o.f))
        ;
    ck_assert_int_eq(o.n, 7);
    ck_assert_int_eq(memcmp(o.seen, want, sizeof want), 0);
    ck_assert_uint_eq(fab_inproc_now(o.f), 300);
    fab_inproc_at(o.f, 400, note, NULL);
    fab_inproc_skip(o.f, 1000);
    ck_assert_uint_eq(fab_inproc_next_event_time(o.f), 1300);
    fab_inproc_step(o.f);
    ck_assert_uint_eq(fab_inproc_now(o.f), 1300);
    fab_inproc_destroy(o.f);
}
END_TEST

/* A run with faults, loss, late copies and all delays. Its digest, and a hash of the memory at the
 * end. */
static uint64_t wild_run(uint64_t seed, uint64_t *events)
{
    struct pair_cfg c = {.seed = seed,
                         .timeout = 10,
                         .retry = 7,
                         .wr = 128,
                         .cqe = 1024,
                         .opts = {.jitter_ns = 5 * PAIR_US,
                                  .dma_ns = 5 * PAIR_US,
                                  .cqe_ns = 3 * PAIR_US,
                                  .ghost_ppm = 10000,
                                  .ghost_ns = 3 * PAIR_MS}};
    uint64_t hash;
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, &c);
    pair_fault(&p, "*:n0 loss 1%");
    pair_fault(&p, "h0:n0 dup 1%");
    for (uint32_t i = 0; i < 100; i++) {
        pair_recv(&p, 1, i, 0, 64);
        pair_post(&p, 0, i & 1 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, i, 0, 5000,
                  i & 1 ? 20000 : 64, 0);
    }
    pair_run_for(&p, (20 + fab_inproc_random(p.f) % 100) * PAIR_US);
    pair_fault(&p, "h1:n0 down");
    pair_run_for(&p, PAIR_MS);
    pair_fault(&p, "h1:n0 up");
    pair_run(&p);
    hash = fab_inproc_digest(p.f) ^ fab_inproc_now(p.f);
    for (int side = 0; side < 2; side++) {
        while (pair_poll(&p, side, &wc) == 1) {
            hash = hash * 31 + wc.wr_id + (uint64_t)wc.status;
        }
    }
    *events = fab_inproc_events(p.f);
    for (int i = 0; i < 2; i++) {
        struct ibv_async_event ev;

        while (p.v.get_async_event(p.s[i].ctx, &ev) == 0) {
            p.v.ack_async_event(&ev);
        }
    }
    pair_close(&p);
    return hash;
}

START_TEST(same_seed_same_run)
{
    uint64_t first[30], e1, e2, differ = 0;

    for (uint64_t seed = 0; seed < 30; seed++) {
        first[seed] = wild_run(seed, &e1);
        ck_assert_uint_eq(wild_run(seed, &e2), first[seed]);
        ck_assert_uint_eq(e1, e2);
        differ += seed > 0 && first[seed] != first[seed - 1];
    }
    ck_assert_uint_eq(differ, 29); /* and another seed another run */
}
END_TEST

START_TEST(description)
{
    static const char text[] =
        "# a fabric\nhosts 3\nnics 2   # per host\nrate 100MB/s\nlatency 10us\r\ncrossrail\n\n"
        "nic 1 rate 50MB/s numa 1\nhost 2 nic 1 pci pci0000:00/0000:00:01.0 latency 2us";
    struct fab_desc d;
    char err[200];

    ck_assert_msg(fab_desc_parse(&d, text, err, sizeof err) == 0, "%s", err);
    ck_assert_int_eq(d.hosts, 3);
    ck_assert_int_eq(d.nics, 2);
    ck_assert(d.crossrail);
    ck_assert_uint_eq(d.nic[0][0].rate, 100000000);
    ck_assert_uint_eq(d.nic[0][0].latency_ns, 10000);
    ck_assert_uint_eq(d.nic[1][1].rate, 50000000);
    ck_assert_int_eq(d.nic[1][1].numa, 1);
    ck_assert_str_eq(d.nic[2][1].pci, "pci0000:00/0000:00:01.0");
    ck_assert_uint_eq(d.nic[2][1].latency_ns, 2000);
    ck_assert_str_ne(d.nic[1][1].pci, d.nic[2][1].pci);
    ck_assert_str_ne(d.nic[0][0].pci, d.nic[0][1].pci);
}
END_TEST

START_TEST(bad_description)
{
    static const char *const bad[][2] = {
        {"nics 4", "hosts and nics"},
        {"hosts 33\nnics 1", "hosts 33"},
        {"hosts 2\nnics x", "nics x"},
        {"hosts 2\nnics", "nics"},
        {"hosts 2\nnics 4\nfoo", "line 3: foo"},
        {"hosts 2\nnics 4\nrate 5", "rate 5"},
        {"hosts 2\nnics 4\nnic 4 numa 0", "nic 4"},
        {"hosts 2\nnics 4\nnic 1 numa", "numa"},
        {"hosts 2\nnics 4\nnic 1 rate 1", "rate 1"},
        {"hosts 2\nnics 4\nhost 2 nic 1 numa 0", "host 2"},
        {"hosts 2\nnics 4\nhost 1 numa 0", "numa"},
        {"hosts 2\nnics 4\nnic 1 numa 0\nrate 5MB/s", "line 4: rate"},
        {"hosts 2 3\nnics 4", "3"},
    };
    struct fab_desc d;
    char err[200];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(fab_desc_parse(&d, bad[i][0], err, sizeof err) == -1, "taken: %s", bad[i][0]);
        ck_assert_msg(strstr(err, bad[i][1]) != NULL, "'%s' does not name '%s'", err, bad[i][1]);
    }
}
END_TEST

START_TEST(addresses)
{
    struct ibv_gid_entry e;
    struct fab_addr a;
    struct fab_desc d;
    union ibv_gid gid;
    struct pair p;

    pair_open(&p, NULL);
    for (uint32_t i = 0; i < FAB_GIDS; i++) {
        ck_assert_int_eq(fab_ibv_query_gid_ex(p.s[1].ctx, 1, i, &e, 0, sizeof e), 0);
        ck_assert_uint_eq(e.gid_type, i & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
    }
    ck_assert_uint_eq(ntohl(((uint32_t *)e.gid.raw)[3]),
                      10u << 24 | 10u << 16 | 0u << 8 | 2u); /* 10.10.0.2 */
    ck_assert_uint_eq(ntohl(((uint32_t *)e.gid.raw)[2]), 0xffff);
    ck_assert_uint_ne(p.v.query_gid(p.s[1].ctx, 1, FAB_GIDS, &gid), 0);
    ck_assert_uint_ne(p.v.query_gid(p.s[1].ctx, 2, 0, &gid), 0);
    pair_close(&p);
    ck_assert_int_eq(fab_desc_init(&d, 32, 16, 0, 0, NULL, 0), 0);
    for (int i = 0; i < 32 * 16 * FAB_GIDS; i++) {
        int host = i / 64, nic = i / 4 % 16, index = i % 4;

        fab_gid_make(host, nic, 5, index, &gid);
        ck_assert_int_eq(fab_desc_resolve(&d, nic, &gid, &a), 0);
        ck_assert_int_eq(a.host, host);
        ck_assert_int_eq(a.nic, nic);
        ck_assert_uint_eq(a.epoch, 5);
        ck_assert_int_eq(fab_desc_resolve(&d, !nic, &gid, &a), ETIMEDOUT);
    }
}
END_TEST

START_TEST(devices)
{
    struct ibv_device **list;
    struct ibv_port_attr a;
    struct ibv_context *ctx;
    struct ib_verbs v;
    struct fab_inproc *f = small(1);
    int n;

    fab_inproc_verbs(f, 1, &v);
    list = v.get_device_list(&n);
    ck_assert_int_eq(n, 4);
    ck_assert_str_eq(v.get_device_name(list[3]), "fab3");
    ck_assert_uint_ne(v.get_device_guid(list[3]), v.get_device_guid(list[2]));
    ctx = v.open_device(list[2]);
    v.free_device_list(list);
    ck_assert_str_eq(ctx->device->name, "fab2"); /* stays with its context */
    /* what the inline call does: through the extended context */
    ck_assert_ptr_nonnull(verbs_get_ctx_op(ctx, query_port));
    ck_assert_int_eq(verbs_get_ctx(ctx)->query_port(ctx, 1, &a, sizeof a), 0);
    ck_assert_int_eq(a.link_layer, IBV_LINK_LAYER_ETHERNET);
    ck_assert_int_eq(a.active_mtu, IBV_MTU_4096);
    ck_assert_uint_eq(a.max_msg_sz, 1u << 30);
    ck_assert_uint_eq(a.lid, 0);
    ck_assert_int_eq(v.close_device(ctx), 0);
    fab_inproc_destroy(f);
}
END_TEST

static uint64_t cpu_ns(void)
{
    return r2_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* What a simulation of a thousand schedules can afford. The bounds are wide, for builds with
 * sanitizers and slow machines. */
START_TEST(cost)
{
    uint64_t start = cpu_ns(), events = 0, e;

    for (uint64_t i = 0; i < 100; i++) {
        fab_inproc_destroy(small(i));
    }
    ck_assert_uint_lt((cpu_ns() - start) / 100, 5 * PAIR_MS);
    start = cpu_ns();
    for (uint64_t i = 0; i < 20; i++) {
        wild_run(i, &e);
        events += e;
    }
    ck_assert_uint_lt((cpu_ns() - start) / events, 50 * PAIR_US);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_inproc");
    TCase *t = tcase_create("inproc");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, user_events);
    tcase_add_test(t, same_seed_same_run);
    tcase_add_test(t, description);
    tcase_add_test(t, bad_description);
    tcase_add_test(t, addresses);
    tcase_add_test(t, devices);
    tcase_add_test(t, cost);
    suite_add_tcase(s, t);
    return pair_main(s);
}
