/* The shared segment: rings, slots, faults and directories, with processes that are killed at any
 * moment. */
#include "tests/fabric/shm/seg.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[SEG_PATH_MAX], why[512];

static struct fab_desc d;

static void fabric_make(void)
{

    snprintf(dir, sizeof(dir), "/tmp/softfab-test-%d", (int)getpid());
    ck_assert_int_eq(seg_dir_remove(dir), 0);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_msg(fab_desc_init(&d, 2, 2, 0, 0, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(seg_file_create(dir, "test", &d, why, sizeof(why)) == 0, "%s", why);
}

static void fabric_remove(void)
{
    ck_assert_int_eq(seg_dir_remove(dir), 0);
    ck_assert_int_ne(access(dir, F_OK), 0);
}

static void inhabit(struct seg_map *m)
{
    ck_assert_msg(seg_file_open(m, dir, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(seg_slot_attach(m, 0, why, sizeof(why)) == 0, "%s", why);
}

/* A child that is in the fabric once this returns. It runs @body and exits; its slot is returned
 * through *slot_p. */
static pid_t child_start(void (*body)(struct seg_map *m), int *slot_p)
{
    int fd[2];

    ck_assert_int_eq(pipe(fd), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct seg_map m;
        if (seg_file_open(&m, dir, why, sizeof(why)) != 0 ||
            seg_slot_attach(&m, 1, why, sizeof(why)) != 0 ||
            write(fd[1], &m.slot, sizeof(m.slot)) != (ssize_t)sizeof(m.slot)) {
            _exit(99);
        }
        body(&m);
        _exit(0);
    }
    ck_assert_int_eq(read(fd[0], slot_p, sizeof(*slot_p)), (ssize_t)sizeof(*slot_p));
    close(fd[0]);
    close(fd[1]);
    return pid;
}

static void child_kill(pid_t pid)
{
    int st;

    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &st, 0), pid);
    ck_assert(WIFSIGNALED(st));
}

static void child_join(pid_t pid)
{
    int st;

    ck_assert_int_eq(waitpid(pid, &st, 0), pid);
    ck_assert_msg(WIFEXITED(st) && WEXITSTATUS(st) == 0, "child ended with status %x",
                  (unsigned)st);
}

static void rest(struct seg_map *m)
{
    for (;;) {
        pause();
    }
}

/* ---- rings
 * ------------------------------------------------------------------------------------------------------------------
 */

/* Record @n of a stream: its length, and bytes that depend on both number and place. */
static uint32_t stream_len(uint32_t n)
{
    return 8 + (n * 2654435761u) % 5000;
}

static bool stream_put(struct seg_map *m, int dst, uint32_t n)
{
    uint32_t len = stream_len(n);
    struct seg_rec *r = seg_ring_reserve(m, dst, len);

    if (r == NULL) {
        return false;
    }
    memcpy(r->body, &n, sizeof(n));
    for (uint32_t i = 4; i < len; i++) {
        r->body[i] = (uint8_t)(n + i * 7);
    }
    seg_ring_publish(m, dst, r);
    return true;
}

/* The number of the record, which must be whole. */
static uint32_t stream_check(const struct seg_rec *r)
{
    uint32_t n, len = r->len - (uint32_t)sizeof(*r);

    memcpy(&n, r->body, sizeof(n));
    ck_assert_uint_eq(len, stream_len(n));
    uint32_t wrong = 0;
    for (uint32_t i = 4; i < len; i++) {
        wrong += r->body[i] != (uint8_t)(n + i * 7);
    }
    ck_assert_msg(wrong == 0, "record %u has %u wrong bytes", n, wrong);
    return n;
}

START_TEST(ring_order_and_wrap)
{
    struct seg_map m;
    uint32_t put = 0, got = 0;

    fabric_make();
    inhabit(&m);
    /* Many times around, with every fill level. */
    while (got < 20000) {
        while (put < 20000 && stream_put(&m, m.slot, put)) {
            put++;
        }
        for (uint32_t i = 0; i < 1 + got % 97 && got < put; i++) {
            struct seg_rec *r = seg_ring_peek(&m, m.slot);
            ck_assert_ptr_nonnull(r);
            ck_assert_uint_eq(stream_check(r), got);
            seg_ring_pop(&m, m.slot, r);
            got++;
        }
    }
    ck_assert(seg_ring_empty(&m, m.slot));
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

START_TEST(ring_full_sets_starved_and_pop_clears)
{
    struct seg_map m;
    uint32_t n = 0;

    fabric_make();
    inhabit(&m);
    struct seg_slot *self = &m.seg->slot[m.slot];
    errno = 0;
    while (stream_put(&m, m.slot, n)) {
        n++;
    }
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_uint_eq(atomic_load(&self->starved), 1ull << m.slot);
    uint32_t ticket = seg_bell_prepare(&m, UINT64_MAX);
    seg_ring_pop(&m, m.slot, seg_ring_peek(&m, m.slot));
    ck_assert_uint_eq(atomic_load(&self->starved), 0);
    ck_assert_uint_ne(atomic_load(&self->bell), ticket);
    ck_assert_ptr_null(seg_ring_reserve(&m, m.slot, SEG_REC_MAX));
    ck_assert_int_eq(errno, EMSGSIZE);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

START_TEST(ring_unpublished_is_invisible)
{
    struct seg_map m;

    fabric_make();
    inhabit(&m);
    struct seg_rec *r = seg_ring_reserve(&m, m.slot, 100);
    memset(r->body, 0xff, 100);
    ck_assert_ptr_null(seg_ring_peek(&m, m.slot));
    ck_assert(stream_put(&m, m.slot, 5));
    ck_assert_uint_eq(stream_check(seg_ring_peek(&m, m.slot)), 5);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

/* ---- producers that die
 * -------------------------------------------------------------------------------------------------------
 */

#define STREAM 30000u

/* Sends the stream to slot 0; waits on its own bell when the ring is full. */
static void producer(struct seg_map *m)
{
    for (uint32_t n = 0; n < STREAM;) {
        uint32_t ticket = seg_bell_prepare(m, UINT64_MAX);
        if (stream_put(m, 0, n)) {
            seg_bell_cancel(m);
            if (n % 64 == 0) {
                sched_yield(); /* a late bell, for a record that may be gone by now */
            }
            seg_bell_ring(m->seg, 0, 0);
            n++;
        } else if (errno == EAGAIN) {
            seg_bell_wait(m, ticket, UINT64_MAX);
        } else {
            _exit(98);
        }
    }
}

/* Consumes until every slot in @want (a mask) has reached STREAM; @victim is killed when its stream
 * is at @kill_at, and done with then. */
static void consume(struct seg_map *m, uint64_t want, int victim_slot, pid_t victim,
                    uint32_t kill_at, uint32_t *next)
{
    uint64_t quiet_until = seg_now() + 30 * SEG_NSEC_PER_SEC;

    while (want != 0) {
        uint32_t ticket = seg_bell_prepare(m, UINT64_MAX);
        uint64_t bits = atomic_exchange(&m->seg->slot[m->slot].pending, 0);
        if (bits == 0) {
            /* A bell may be late: it is for a record that the last turn took already. Only time
             * tells a wedge. */
            ck_assert_msg(seg_now() < quiet_until, "nothing came for 30 s: the rings are wedged");
            seg_bell_wait(m, ticket, quiet_until);
            continue;
        }
        quiet_until = seg_now() + 30 * SEG_NSEC_PER_SEC;
        for (; bits != 0; bits &= bits - 1) {
            int src = __builtin_ctzll(bits);
            struct seg_rec *r;
            while ((r = seg_ring_peek(m, src)) != NULL) {
                ck_assert_uint_eq(stream_check(r), next[src]);
                next[src]++;
                seg_ring_pop(m, src, r);
                if (src == victim_slot && next[src] == kill_at) {
                    child_kill(victim);
                    want &= ~(1ull << src);
                }
            }
            if (next[src] == STREAM) {
                want &= ~(1ull << src);
            }
        }
    }
}

START_TEST(producers_one_killed)
{
    struct seg_map m;
    pid_t pid[4];
    int slot[4];
    uint32_t next[SEG_SLOTS] = {0};
    uint64_t want = 0;

    fabric_make();
    inhabit(&m);
    ck_assert_int_eq(m.slot, 0);
    for (int i = 0; i < 4; i++) {
        pid[i] = child_start(producer, &slot[i]);
        want |= 1ull << slot[i];
    }
    consume(&m, want, slot[0], pid[0], 100 + (uint32_t)_i * 997, next);
    for (int i = 1; i < 4; i++) {
        child_join(pid[i]);
    }
    /* What the victim had published is whole; then its slot serves the next process from the start.
     */
    struct seg_rec *r;
    while ((r = seg_ring_peek(&m, slot[0])) != NULL) {
        ck_assert_uint_eq(stream_check(r), next[slot[0]]);
        next[slot[0]]++;
        seg_ring_pop(&m, slot[0], r);
    }
    ck_assert_uint_lt(next[slot[0]], STREAM);
    int again;
    memset(next, 0, sizeof(next));
    pid_t p = child_start(producer, &again);
    ck_assert_int_eq(again, slot[0]);
    consume(&m, 1ull << again, -1, 0, 0, next);
    child_join(p);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

/* ---- receivers that die
 * ----------------------------------------------------------------------------------------------------------
 */

START_TEST(receiver_killed_with_full_ring)
{
    struct seg_map m;
    int slot, slot2;
    uint32_t n = 0;

    fabric_make();
    inhabit(&m);
    pid_t pid = child_start(rest, &slot);
    while (stream_put(&m, slot, n)) {
        n++;
    }
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert(!seg_slot_bury(&m, slot));
    child_kill(pid);
    ck_assert(seg_slot_bury(&m, slot));
    ck_assert(!stream_put(&m, slot, n));
    ck_assert_int_eq(errno, ECONNREFUSED);
    /* The next owner of the slot makes room and sees none of the records for its predecessor. */
    pid = child_start(rest, &slot2);
    ck_assert_int_eq(slot2, slot);
    ck_assert_uint_eq(atomic_load(&m.seg->index[m.slot][slot].head),
                      atomic_load(&m.seg->index[m.slot][slot].tail));
    ck_assert(stream_put(&m, slot, 0));
    child_kill(pid);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

/* ---- slots
 * --------------------------------------------------------------------------------------------------------------------
 */

START_TEST(slot_liveness_follows_the_process)
{
    struct seg_map m;
    int slot, slot2;
    pid_t who = 0;

    fabric_make();
    ck_assert_int_eq(seg_dir_inhabitant(dir), 0);
    pid_t pid = child_start(rest, &slot);
    ck_assert_msg(seg_file_open(&m, dir, why, sizeof(why)) == 0, "%s", why);
    ck_assert(seg_slot_alive(&m, slot, &who));
    ck_assert_int_eq(who, pid);
    ck_assert_int_eq(seg_dir_inhabitant(dir), pid);
    uint32_t incarnation = atomic_load(&m.seg->slot[slot].incarnation);
    ck_assert_uint_eq(incarnation & 1, 1);
    child_kill(pid);
    ck_assert(!seg_slot_alive(&m, slot, &who));
    ck_assert_int_eq(seg_dir_inhabitant(dir), 0);
    pid = child_start(rest, &slot2);
    ck_assert_int_eq(slot2, slot);
    ck_assert_uint_eq(atomic_load(&m.seg->slot[slot].incarnation), incarnation + 2);
    child_kill(pid);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

START_TEST(slot_numbers_name_their_owner)
{
    struct seg_map m;
    int slot;

    fabric_make();
    pid_t pid = child_start(rest, &slot); /* occupies slot 0 */
    inhabit(&m);
    ck_assert_int_eq(m.slot, 1);
    uint32_t first = seg_slot_qpn_next(&m), last = first;
    for (int i = 0; i < 1000; i++) {
        uint32_t qpn = seg_slot_qpn_next(&m);
        ck_assert_int_eq(seg_qpn_slot(qpn), 1);
        ck_assert_uint_gt(qpn, last);
        ck_assert_uint_lt(qpn, 1u << 24);
        last = qpn;
    }
    seg_slot_detach(&m);
    ck_assert_msg(seg_slot_attach(&m, 0, why, sizeof(why)) == 0, "%s", why);
    ck_assert_uint_gt(seg_slot_qpn_next(&m), last);
    child_kill(pid);
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

START_TEST(slot_bad_host_is_named)
{
    struct seg_map m;

    fabric_make();
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), 0);
    ck_assert_int_eq(seg_slot_attach(&m, 2, why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "0 to 1"));
    seg_file_close(&m);
    fabric_remove();
}
END_TEST

/* ---- faults
 * --------------------------------------------------------------------------------------------------------------------
 */

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

/* ---- directories
 * ----------------------------------------------------------------------------------------------------------------
 */

START_TEST(dir_stale_is_replaced_lived_in_is_not)
{
    char tmp[SEG_PATH_MAX + 8];
    struct stat before, after;
    int slot;

    fabric_make();
    snprintf(tmp, sizeof(tmp), "%s.x", dir);
    pid_t pid = child_start(rest, &slot);
    ck_assert_int_eq(stat(dir, &before), 0);
    ck_assert_int_eq(mkdir(tmp, 0700), 0);
    ck_assert_int_eq(seg_dir_install(tmp, dir, why, sizeof(why)), -1);
    char text[32];
    snprintf(text, sizeof(text), "%d", (int)pid);
    ck_assert_msg(strstr(why, text) != NULL, "'%s' does not name process %s", why, text);
    ck_assert_int_eq(stat(dir, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    child_kill(pid);
    ck_assert_msg(seg_dir_install(tmp, dir, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(stat(dir, &after), 0);
    ck_assert_uint_ne(before.st_ino, after.st_ino);
    ck_assert_int_ne(access(tmp, F_OK), 0);
    fabric_remove();
}
END_TEST

START_TEST(dir_leftovers_go)
{
    char left[SEG_PATH_MAX + 32], tmp[SEG_PATH_MAX + 8];

    fabric_make();
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    snprintf(left, sizeof(left), "%s.new.%d", dir, (int)pid);
    ck_assert_int_eq(mkdir(left, 0700), 0);
    snprintf(tmp, sizeof(tmp), "%s.x", dir);
    ck_assert_int_eq(mkdir(tmp, 0700), 0);
    ck_assert_int_eq(seg_dir_install(tmp, dir, why, sizeof(why)), 0);
    ck_assert_int_ne(access(left, F_OK), 0);
    fabric_remove();
}
END_TEST

START_TEST(dir_names_are_checked)
{
    char path[SEG_PATH_MAX];

    ck_assert_int_eq(seg_dir_path("../x", path, sizeof(path), why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "../x"));
    ck_assert_int_eq(seg_dir_path("", path, sizeof(path), why, sizeof(why)), -1);
    ck_assert_int_eq(seg_dir_path("a-b_9", path, sizeof(path), why, sizeof(why)), 0);
}
END_TEST

START_TEST(file_of_another_version_is_refused)
{
    struct seg_map m;
    char path[SEG_PATH_MAX + 16];

    fabric_make();
    snprintf(path, sizeof(path), "%s/segment", dir);
    ck_assert_int_eq(truncate(path, 4096), 0);
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "version"));
    fabric_remove();
    ck_assert_int_eq(seg_file_open(&m, dir, why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "no fabric"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("softfab_seg");
    TCase *tc = tcase_create("seg");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, ring_order_and_wrap);
    tcase_add_test(tc, ring_full_sets_starved_and_pop_clears);
    tcase_add_test(tc, ring_unpublished_is_invisible);
    tcase_add_loop_test(tc, producers_one_killed, 0, 6);
    tcase_add_test(tc, receiver_killed_with_full_ring);
    tcase_add_test(tc, slot_liveness_follows_the_process);
    tcase_add_test(tc, slot_numbers_name_their_owner);
    tcase_add_test(tc, slot_bad_host_is_named);
    tcase_add_test(tc, fault_words_and_log);
    tcase_add_test(tc, removed_devices_leave_the_tree);
    tcase_add_test(tc, fault_cuts);
    tcase_add_test(tc, fault_writers_take_turns);
    tcase_add_test(tc, dir_stale_is_replaced_lived_in_is_not);
    tcase_add_test(tc, dir_leftovers_go);
    tcase_add_test(tc, dir_names_are_checked);
    tcase_add_test(tc, file_of_another_version_is_refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
