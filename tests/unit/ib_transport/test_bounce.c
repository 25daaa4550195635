/* Bounce ring (docs/balance.md): directed cases, and random incarnations against a list of who
 * uses which bytes. */
#include "ib_transport/ib_bounce.h"
#include "tests/unit/suite.h"
#include "tests/unit/unmarked.h"

#include <string.h>

#define RING 4096u

static struct ib_bounce st;

START_TEST(one_part)
{
    struct ib_bounce_entry *e;

    ib_bounce_init(&st, RING + 100);
    ck_assert_uint_eq(st.size, RING);
    e = ib_bounce_begin(&st, 7, 3, 1000);
    ck_assert_ptr_nonnull(e);
    ck_assert_uint_eq(e->off, 0);
    ck_assert_ptr_eq(ib_bounce_reading(&st), e);
    ck_assert_ptr_null(ib_bounce_next(&st)); /* its data is not there yet */
    ib_bounce_copied(&st, e);
    ck_assert_ptr_null(ib_bounce_reading(&st));
    ck_assert_ptr_eq(ib_bounce_next(&st), e);
    ib_bounce_posted(&st, e);
    ck_assert_ptr_null(ib_bounce_next(&st));
    ck_assert(!ib_bounce_idle(&st));
    ck_assert_int_eq(ib_bounce_sent(&st), 0);
    ck_assert(ib_bounce_idle(&st));
    ck_assert_int_eq(ib_bounce_sent(&st), -1);
}
END_TEST

/* Copies of one stream end in order, but nobody has promised it: posts are in the order of the
 * parts all the same. */
START_TEST(copies_that_end_in_any_order)
{
    struct ib_bounce_entry *a, *b;

    ib_bounce_init(&st, RING);
    a = ib_bounce_begin(&st, 1, 0, 10);
    b = ib_bounce_begin(&st, 1, 1, 10);
    ib_bounce_copied(&st, b);
    ck_assert_ptr_null(ib_bounce_next(&st));
    ib_bounce_copied(&st, a);
    ck_assert_ptr_eq(ib_bounce_next(&st), a);
    ib_bounce_posted(&st, a);
    ck_assert_ptr_eq(ib_bounce_next(&st), b);
}
END_TEST

START_TEST(a_full_ring)
{
    struct ib_bounce_entry *e;

    ib_bounce_init(&st, RING);
    ck_assert_ptr_null(ib_bounce_begin(&st, 0, 0, 0));
    ck_assert_ptr_null(ib_bounce_begin(&st, 0, 0, RING + 1));
    e = ib_bounce_begin(&st, 0, 0, RING - IB_BOUNCE_ALIGN);
    ck_assert_ptr_nonnull(e);
    ck_assert_ptr_null(ib_bounce_begin(&st, 1, 0, IB_BOUNCE_ALIGN + 1));
    ck_assert_ptr_nonnull(ib_bounce_begin(&st, 1, 0, IB_BOUNCE_ALIGN));
    ck_assert_ptr_null(ib_bounce_begin(&st, 2, 0, 1));
    ib_bounce_copied(&st, e);
    ib_bounce_posted(&st, e);
    ck_assert_int_eq(ib_bounce_sent(&st), 0);
    e = ib_bounce_begin(&st, 2, 0, 1);
    ck_assert_ptr_nonnull(e);
    ck_assert_uint_eq(e->off, 0);
}
END_TEST

/* As large as the ring, wherever the last part ended. */
START_TEST(an_empty_ring_has_all_its_room)
{
    ib_bounce_init(&st, RING);
    for (unsigned i = 0; i < 4; i++) {
        struct ib_bounce_entry *e = ib_bounce_begin(&st, i, 0, i % 2 ? RING : RING / 2 + 1);

        ck_assert_ptr_nonnull(e);
        ib_bounce_copied(&st, e);
        ib_bounce_posted(&st, e);
        ck_assert_int_eq(ib_bounce_sent(&st), 0);
    }
}
END_TEST

START_TEST(more_parts_than_entries)
{
    ib_bounce_init(&st, IB_BOUNCE_ALIGN * (IB_BOUNCE_ENTRIES + 1));
    for (unsigned i = 0; i < IB_BOUNCE_ENTRIES; i++) {
        ck_assert_ptr_nonnull(ib_bounce_begin(&st, i, 0, 1));
    }
    ck_assert_ptr_null(ib_bounce_begin(&st, 99, 0, 1));
}
END_TEST

/* An incarnation ends: what is not posted never is, what the NIC may still read stays until the
 * incarnation is closed, copies that run are waited for. */
START_TEST(an_incarnation_that_ends)
{
    struct ib_bounce_entry *posted, *ready, *copying;

    ib_bounce_init(&st, RING);
    posted = ib_bounce_begin(&st, 1, 0, 100);
    ready = ib_bounce_begin(&st, 2, 0, 100);
    copying = ib_bounce_begin(&st, 3, 0, 100);
    ib_bounce_copied(&st, posted);
    ib_bounce_posted(&st, posted);
    ib_bounce_copied(&st, ready);
    ib_bounce_stop(&st);
    ck_assert_ptr_null(ib_bounce_next(&st));
    ck_assert_ptr_null(ib_bounce_begin(&st, 4, 0, 100));
    ck_assert_ptr_eq(ib_bounce_reading(&st), copying);
    ib_bounce_closed(&st);
    ck_assert(!ib_bounce_idle(&st)); /* the engine still writes */
    ib_bounce_copied(&st, copying);
    ck_assert(ib_bounce_idle(&st));
    ck_assert_ptr_null(ib_bounce_next(&st));
    ib_bounce_init(&st, RING);
    ck_assert_ptr_nonnull(ib_bounce_begin(&st, 5, 0, 100));
}
END_TEST

/* --- random incarnations --- */

static uint64_t seed;
static uint32_t dice(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

/* Plain: who uses which bytes. */
static struct use {
    struct ib_bounce_entry *e;
    uint64_t seq;
    uint32_t off, len;
    int reads, ready, posted, over;
} use[IB_BOUNCE_ENTRIES];
static unsigned uses;

static void uses_drop(void)
{
    while (uses && use[0].over && !use[0].reads) {
        memmove(use, use + 1, --uses * sizeof(use[0]));
    }
}

static void take(uint64_t seq)
{
    uint32_t len = 1 + dice(dice(4) ? 600 : RING);
    struct ib_bounce_entry *e = ib_bounce_begin(&st, seq, dice(16), len);

    if (e == NULL) {
        /* it would have fitted an empty ring: somebody is in it, or the incarnation is over */
        ck_assert(uses > 0 || st.stopped);
        return;
    }
    ck_assert_uint_lt(uses, IB_BOUNCE_ENTRIES);
    ck_assert_uint_le((uint64_t)e->off + len, RING);
    for (unsigned i = 0; i < uses; i++) {
        ck_assert_msg(e->off + len <= use[i].off || use[i].off + use[i].len <= e->off,
                      "bytes in use twice");
        ck_assert_ptr_ne(use[i].e, e);
    }
    use[uses++] = (struct use){.e = e, .seq = seq, .off = e->off, .len = len, .reads = 1};
}

static void post(void)
{
    struct ib_bounce_entry *e = ib_bounce_next(&st);
    unsigned i = 0;

    while (i < uses && (use[i].posted || use[i].over)) {
        i++;
    }
    ck_assert((e != NULL) == (i < uses && use[i].ready && !st.stopped));
    if (e) {
        ck_assert_ptr_eq(e, use[i].e);
        ib_bounce_posted(&st, e);
        use[i].posted = 1;
    }
}

static void copied(void)
{
    unsigned i = uses ? dice(uses) : 0;

    if (uses == 0 || !use[i].reads) {
        return;
    }
    ib_bounce_copied(&st, use[i].e);
    use[i].reads = 0;
    use[i].ready = 1;
}

static void sent(void)
{
    unsigned i = 0;

    while (i < uses && !(use[i].posted && !use[i].over)) {
        i++;
    }
    ck_assert_int_eq(ib_bounce_sent(&st), i < uses ? 0 : -1);
    if (i < uses) {
        use[i].over = 1;
    }
}

static void ends(int closed)
{
    if (closed) {
        ib_bounce_closed(&st);
    } else {
        ib_bounce_stop(&st);
    }
    for (unsigned i = 0; i < uses; i++) {
        use[i].over |= closed || !use[i].posted;
    }
}

static void compare(void)
{
    const struct ib_bounce_entry *oldest = NULL; /* whose copy runs */

    uses_drop();
    for (unsigned i = 0; i < uses; i++) {
        oldest = oldest == NULL && use[i].reads ? use[i].e : oldest;
        ck_assert_uint_eq(use[i].e->seq, use[i].seq);
        ck_assert_uint_eq(use[i].e->off, use[i].off);
    }
    ck_assert_ptr_eq(ib_bounce_reading(&st), oldest);
    ck_assert_int_eq(ib_bounce_idle(&st), uses == 0);
}

START_TEST(random_incarnations)
{
    seed = (uint64_t)_i;
    ib_bounce_init(&st, RING);
    st.first = st.post = st.last = (uint32_t)-20; /* the numbers wrap */
    uses = 0;
    for (unsigned n = 0; n < 20000; n++) {
        uint32_t what = dice(100);

        if (what < 40) {
            take(n / 3);
        } else if (what < 60) {
            copied();
        } else if (what < 80) {
            post();
        } else if (what < 99) {
            sent();
        } else if (dice(10) == 0) {
            ends((int)dice(2));
        }
        compare();
        if (st.stopped && ib_bounce_idle(&st)) {
            uint32_t at = st.last;

            ib_bounce_init(&st, RING);
            st.first = st.post = st.last = at;
        }
    }
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, one_part);
    tcase_add_test(t, copies_that_end_in_any_order);
    tcase_add_test(t, a_full_ring);
    tcase_add_test(t, an_empty_ring_has_all_its_room);
    tcase_add_test(t, more_parts_than_entries);
    tcase_add_test(t, an_incarnation_that_ends);
    tcase_add_loop_test(t, random_incarnations, 0, 12);
}

int main(void)
{
    return suite_run("stage", 60, NULL, NULL, tests_add);
}
