/* Faults in the shared segment: what they do, who may write them. */
#include "tests/unit/seg_rig.h"
#include "tests/unit/suite.h"

static void fault(struct seg_map *m, const char *text)
{
    struct fab_fault f;

    ck_assert_msg(fab_fault_parse(text, &f, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(seg_fault_apply(m, &f, why, sizeof(why)) == 0, "%s", why);
}

/* "node_guid" of the device, by a directory of its own that was opened before. */
static int has_left(int device)
{
    return faccessat(device, "node_guid", F_OK, 0) != 0 && errno == ENOENT;
}

/* A removed device leaves the tree of its host, as a real one leaves sysfs; what comes back is
 * another one. */
START_TEST(removed_devices_leave_the_tree)
{
    char path[512];
    struct seg_map m;
    int device, other;

    fabric_make();
    ck_assert_msg(seg_sysfs_write(dir, &d, false, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), 0);
    snprintf(path, sizeof(path), "%s/host1/sys/class/infiniband/fab0", dir);
    ck_assert_int_ge(device = open(path, O_RDONLY | O_DIRECTORY), 0);
    fault(&m, "h1:n0 fatal");
    fault(&m, "h1:n0 restore");
    fault(&m, "h1:n0 unplug");
    fault(&m, "h1:n0 restore");
    fault(&m, "h1:n1 remove");
    ck_assert(!has_left(device));
    fault(&m, "h1:n0 remove");
    ck_assert(has_left(device));
    ck_assert_int_eq(access(path, F_OK), -1);
    fault(&m, "h1:n0 restore");
    ck_assert(has_left(device));
    ck_assert_int_ge(other = open(path, O_RDONLY | O_DIRECTORY), 0);
    ck_assert(!has_left(other));
    ck_assert_int_eq(faccessat(other, "ports/1/gids/0", F_OK, 0), 0);
    close(device);
    close(other);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

START_TEST(fault_words_and_log)
{
    struct seg_map m;
    struct fab_link l;
    struct fab_fault f;

    fabric_make();
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), 0);
    struct seg_nic *n = seg_nic_at(m.seg, 1, 0);
    fault(&m, "h1:n0 loss 2%");
    fault(&m, "*:n0 down");
    fault(&m, "h1:n0 remove");
    seg_link_read(n, &l);
    ck_assert_uint_eq(l.loss_ppm, 20000);
    ck_assert_uint_eq(l.down, 1);
    ck_assert_uint_eq(atomic_load(&n->fault_seq), 3);
    ck_assert_uint_eq(atomic_load(&n->gone), FAB_FAULT_REMOVE + 1);
    ck_assert_uint_eq(atomic_load(&seg_nic_at(m.seg, 0, 0)->fault_seq), 1);
    ck_assert_uint_eq(atomic_load(&seg_nic_at(m.seg, 1, 1)->fault_seq), 0);
    ck_assert(seg_fault_read(n, 1, &f));
    ck_assert_int_eq(f.kind, FAB_FAULT_LOSS);
    ck_assert_uint_eq(f.value, 20000);
    ck_assert(seg_fault_read(n, 2, &f));
    ck_assert_int_eq(f.kind, FAB_FAULT_DOWN);
    fault(&m, "h1:n0 restore");
    seg_link_read(n, &l);
    ck_assert_uint_eq(l.down + l.loss_ppm + atomic_load(&n->gone), 0);
    fault(&m, "h1:n0 send-error");
    fault(&m, "h1:n0 unplug");
    fault(&m, "h1:n0 retry7-forever");
    fault(&m, "h1:n0 recv-kept");
    fault(&m, "h1:n0 silent-death");
    fault(&m, "h1:n0 mr-hang");
    fault(&m, "h1:n0 send-stuck");
    fault(&m, "h1:n0 up"); /* routes are back, the device is not */
    seg_link_read(n, &l);
    ck_assert_uint_eq(l.send_error, 0);
    ck_assert_uint_eq(atomic_load(&n->gone), FAB_FAULT_UNPLUG + 1);
    ck_assert_uint_eq(atomic_load(&n->retry7) + atomic_load(&n->recv_kept) +
                          atomic_load(&n->silent_death) + atomic_load(&n->mr_hang),
                      4);
    ck_assert_uint_eq(atomic_load(&n->send_stucks), 1);
    fault(&m, "h1:n0 restore");
    ck_assert_uint_eq(atomic_load(&n->gone) + atomic_load(&n->retry7) + atomic_load(&n->recv_kept) +
                          atomic_load(&n->silent_death) + atomic_load(&n->mr_hang),
                      0);
    fault(&m, "h1:n0 fatal");
    fault(&m, "h1:n0 up");
    ck_assert_uint_eq(atomic_load(&n->gone), 0);
    for (int i = 0; i < SEG_FAULT_LOG; i++) {
        fault(&m, "h1:n0 qp-error");
    }
    ck_assert(!seg_fault_read(n, 4, &f));
    ck_assert(seg_fault_read(n, SEG_FAULT_LOG + 14, &f));
    ck_assert_uint_eq(atomic_load(&n->qp_errors), SEG_FAULT_LOG);
    f = (struct fab_fault){.host = 2, .nic = 0, .kind = FAB_FAULT_DOWN};
    ck_assert_int_eq(seg_fault_apply(&m, &f, why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "h2:n0"));
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

/* Each end has its part of a cut; whoever is restored is cut from nobody, and nobody else hears of
 * that. */
START_TEST(fault_cuts)
{
    struct seg_map m;
    struct fab_link l;
    struct fab_fault f;

    fabric_make();
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), 0);
    struct seg_nic *a = seg_nic_at(m.seg, 0, 1), *b = seg_nic_at(m.seg, 1, 1),
                   *c = seg_nic_at(m.seg, 1, 0);
    fault(&m, "h0:n1 cut h1:n1");
    seg_link_read(a, &l);
    ck_assert_uint_eq(l.cut[1], 2);
    seg_link_read(b, &l);
    ck_assert_uint_eq(l.cut[0], 2);
    ck_assert(seg_fault_read(b, 1, &f));
    ck_assert_int_eq(f.kind, FAB_FAULT_CUT);
    ck_assert_uint_eq(f.value, fab_ports(0, 1));
    ck_assert_uint_eq(atomic_load(&c->fault_seq), 0);
    fault(&m, "h0:n1 restore");
    seg_link_read(b, &l);
    ck_assert_uint_eq(l.cut[0], 0);
    ck_assert_uint_eq(atomic_load(&b->fault_seq), 2);
    fault(&m, "h0:n1 restore");
    ck_assert_uint_eq(atomic_load(&b->fault_seq), 2);
    fault(&m, "h0:n1 delay-to h1:n1");
    seg_link_read(a, &l);
    ck_assert_uint_eq(l.late[1], 2);
    ck_assert_int_eq(l.late_some, 1);
    fault(&m, "h0:n1 restore");
    seg_link_read(a, &l);
    ck_assert_uint_eq(l.late[1], 0);
    ck_assert_int_eq(l.late_some, 0);
    fault(&m, "h0:n1 cut-tx *:n1");
    seg_link_read(b, &l);
    ck_assert_uint_eq(l.cut[0], 0);
    ck_assert_uint_eq(atomic_load(&a->link.cut[1]), 2);
    fault(&m, "h1:n1 restore");
    ck_assert_uint_eq(atomic_load(&a->link.cut[1]), 0);
    f = (struct fab_fault){.host = 0, .nic = 0, .kind = FAB_FAULT_CUT, .value = fab_ports(7, 1)};
    ck_assert_int_eq(seg_fault_apply(&m, &f, why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "h7:n1"));
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

static const char *refused(struct seg_map *m, const char *text)
{
    struct fab_fault f;

    ck_assert_msg(fab_fault_parse(text, &f, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(seg_fault_apply(m, &f, why, sizeof(why)), -1);
    return why;
}

/* A packet from one host to the other on rail 1, over the spine that it takes. */
static bool spine_pass(struct seg *seg, struct fab_hdr *h, int *k, uint64_t *when)
{
    *k = seg_spine_choose(seg, h);
    return *k >= 0 && seg_spine_pass(seg, 1, *k, h->len, 0, when);
}

START_TEST(fault_spines)
{
    struct fab_hdr h = {
        .src = {.nic = 1}, .dst = {.host = 1, .nic = 1}, .sport = 0xC005, .len = 936};
    struct fab_spine_count c;
    struct seg_map m;
    struct fab_rail r;
    uint64_t when = 0;
    char text[40];
    int k, other;

    fabric_make();
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), 0);
    ck_assert_ptr_nonnull(strstr(refused(&m, "spine 0 down"), "no spine 0"));
    m.seg->head.desc.spines = 3;
    ck_assert_ptr_nonnull(strstr(refused(&m, "spine 3 down"), "no spine 3"));
    ck_assert_ptr_nonnull(strstr(refused(&m, "rail 2 spine 0 down"), "no rail 2"));
    ck_assert(spine_pass(m.seg, &h, &k, &when));
    ck_assert_uint_eq(when, 0);
    snprintf(text, sizeof(text), "rail 1 spine %d blackhole", k);
    fault(&m, text);
    ck_assert_uint_eq(atomic_load(&seg_nic_at(m.seg, 0, 1)->fault_seq), 0);
    ck_assert(!spine_pass(m.seg, &h, &k, &when));
    fault(&m, "*:n0 restore");
    ck_assert(!spine_pass(m.seg, &h, &k, &when));
    fault(&m, "*:n1 restore");
    snprintf(text, sizeof(text), "spine %d rate 1MB/s", k);
    fault(&m, text);
    seg_rail_read(&m.seg->rail[0], &r);
    ck_assert_uint_eq(r.rate[k], 1000000);
    for (uint64_t i = 1; i <= 3; i++) { /* 1000 bytes with their headers */
        when = 5000000;
        ck_assert(spine_pass(m.seg, &h, &k, &when));
        ck_assert_uint_eq(when, 5000000 + i * 1000000);
    }
    atomic_store(&m.seg->rail[1].spine[k].free_at, 5000001 + FAB_SPINE_QUEUE_NS);
    when = 5000000;
    ck_assert(!spine_pass(m.seg, &h, &k, &when));
    snprintf(text, sizeof(text), "spine %d down", k);
    fault(&m, text);
    when = 0;
    ck_assert(spine_pass(m.seg, &h, &other, &when));
    ck_assert_int_ne(other, k);
    seg_spine_count_read(&m.seg->rail[1].spine[k], &c);
    ck_assert_uint_eq(c.packets, 7);
    ck_assert_uint_eq(c.bytes, 7 * 936);
    ck_assert_uint_eq(c.dropped, 3);
    ck_assert_uint_eq(c.queued, 2);
    ck_assert_uint_eq(c.moved, 1);
    fault(&m, "spine * down");
    ck_assert(!spine_pass(m.seg, &h, &other, &when));
    ck_assert_int_eq(other, -1);
    fault(&m, "*:* restore");
    seg_rail_read(&m.seg->rail[1], &r);
    ck_assert_uint_eq(r.down + r.rate[k], 0);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

static void fault_writer(struct seg_map *m)
{
    struct fab_fault f = {.host = 0, .nic = 0, .kind = FAB_FAULT_QP_ERROR};

    for (int i = 0; i < 500; i++) {
        if (seg_fault_apply(m, &f, why, sizeof(why)) != 0) {
            _exit(97);
        }
    }
}

START_TEST(fault_writers_take_turns)
{
    struct seg_map m;
    pid_t pid[3];
    int slot;

    fabric_make();
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), 0);
    pid_t victim = child_start(fault_writer, &slot);
    for (int i = 0; i < 3; i++) {
        pid[i] = child_start(fault_writer, &slot);
    }
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    for (int i = 0; i < 3; i++) {
        child_join(pid[i]);
    }
    /* Every fault has its number; a writer that was killed holds up nobody. */
    uint32_t seq = atomic_load(&seg_nic_at(m.seg, 0, 0)->fault_seq);
    ck_assert_uint_ge(seq, 1500);
    ck_assert_uint_le(seq, 2000);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, fault_words_and_log);
    tcase_add_test(tc, removed_devices_leave_the_tree);
    tcase_add_test(tc, fault_cuts);
    tcase_add_test(tc, fault_spines);
    tcase_add_test(tc, fault_writers_take_turns);
}

int main(void)
{
    return suite_run("softfab_seg_fault", 60, NULL, NULL, add);
}
