/* The shared segment: rings, slots and directories, with processes that are killed at any moment.
 */
#include "tests/unit/seg_rig.h"
#include "tests/unit/suite.h"

/* --- rings --- */

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

/* --- producers that die --- */

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

/* --- receivers that die --- */

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

/* --- slots --- */

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

/* --- directories --- */

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

static void add(TCase *tc)
{
    tcase_add_test(tc, ring_order_and_wrap);
    tcase_add_test(tc, ring_full_sets_starved_and_pop_clears);
    tcase_add_test(tc, ring_unpublished_is_invisible);
    tcase_add_loop_test(tc, producers_one_killed, 0, 6);
    tcase_add_test(tc, receiver_killed_with_full_ring);
    tcase_add_test(tc, slot_liveness_follows_the_process);
    tcase_add_test(tc, slot_numbers_name_their_owner);
    tcase_add_test(tc, slot_bad_host_is_named);
    tcase_add_test(tc, dir_stale_is_replaced_lived_in_is_not);
    tcase_add_test(tc, dir_leftovers_go);
    tcase_add_test(tc, dir_names_are_checked);
    tcase_add_test(tc, file_of_another_version_is_refused);
}

int main(void)
{
    /* consume() itself finds rings that are wedged; how long a stream takes is the scheduler's */
    return suite_run("softfab_seg", 300, NULL, NULL, add);
}
