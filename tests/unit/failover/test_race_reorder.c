/*
 * Plain writes of one queue pair that overtake each other, as adaptive routing lets them: R's
 * lone acknowledgements and CTS (P14, P10), in health. A burst whose last acknowledgement S does
 * not see ends only when S has asked, tens of milliseconds later.
 */
#include "tests/unit/race_rig.h"

#define ON     "NCCL_IB_ADAPTIVE_ROUTING=1"
#define BURSTS 2000
#define LATE   (30 * RIG_US)

static struct ibv_qp *(*true_create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

static struct ibv_qp *create_qp_plain(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (attr->cap.max_inline_data) {
        errno = EINVAL;
        return NULL;
    }
    return true_create_qp(pd, attr);
}

static void start_reordering(int nics, const char *const *options, int no_inline)
{
    struct fab_inproc_opts opts = {
        .on_memory_write = wrote, .nic = {.reorder_ns = LATE}, .jitter_ns = RIG_US};

    race_create_on(&opts, nics, options);
    true_create_qp = rig->side[0].inst->v.create_qp;
    for (int i = 0; no_inline && i < 2; i++) {
        rig->side[i].inst->v.create_qp = create_qp_plain;
    }
    rig_connect(rig, 0, 0);
    race_register();
}

/* Sends of different lengths, so that the acknowledgements of a burst are several. */
static uint64_t burst(int n)
{
    for (int i = 0; i < n; i++) {
        recv_post(i, 200);
    }
    for (int i = 0; i < n; i++) {
        send_post(i);
        rig_run(rig, (uint64_t)(i * 7 % 5) * RIG_US / 2);
    }
    return finish(n, 10 * RIG_S);
}

/* Row: whether control writes go inline, and by how many paths. */
START_TEST(no_burst_waits_for_its_last_acknowledgement)
{
    unsigned slow = 0;

    start_reordering(_i / 2 + 1, (const char *[]){ON, "NCCL_R2_SPREAD=on", NULL}, _i % 2);
    for (int i = 0; i < BURSTS; i++) {
        slow += burst(2 + i % 15) > RIG_MS;
    }
    ck_assert_msg(slow == 0, "%u of %d bursts waited", slow, BURSTS);
    ck_assert_uint_gt(counters(0, 0)->overtaken, BURSTS / 2);
    ck_assert_uint_gt(comm(1)->rx->count.acks_alone, BURSTS);
    stop();
}
END_TEST

/* A word that S's NIC acknowledged and lost does not keep S from those behind it. */
START_TEST(a_word_that_never_comes_is_passed_over)
{
    struct ib_path *s;

    start_reordering(1, (const char *[]){ON, NULL}, 0);
    s = &comm(0)->conn.path[0];
    for (int i = 0; i < 200; i++) {
        burst(1 + i % 3);
    }
    recv_burst(2, 200);
    send_burst(1);
    rig->side[0].asleep = 1;
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(s->mem.ring->ack[s->ack.at], s->ack.alone);
    s->mem.ring->ack[s->ack.at] = 0;
    rig->side[0].asleep = 0;
    send_post(1);
    ck_assert_uint_lt(finish(2, RIG_S), RIG_MS);
    ck_assert_uint_lt(burst(4), RIG_MS);
    stop();
}
END_TEST

/* How much of an entry has come: writes are placed in pieces. */
enum { WHOLE, FIRST_HALF, SECOND_HALF, SEQ_ALONE, PIECES };

static void place(struct ib_cts *at, const struct ib_cts *late, int piece)
{
    size_t from = piece == SECOND_HALF ? sizeof(*at) / 2 : 0;
    size_t len = piece == WHOLE       ? sizeof(*at)
                 : piece == SEQ_ALONE ? sizeof(at->seq)
                                      : sizeof(*at) / 2;

    memcpy((uint8_t *)at + from, (const uint8_t *)late + from, len);
}

/*
 * A repeated CTS is placed when its slot has gone on to the message 256 later (P10): S takes the
 * slot's bytes for neither of the two, asks, and is told again. Row: how much of it comes, and
 * whether S has read the slot before.
 */
START_TEST(a_repeated_cts_that_comes_late)
{
    int piece = _i % PIECES, read_before = _i / PIECES;
    struct ib_cts *at, late, now;
    uint64_t seq;

    start_reordering(1, (const char *[]){ON, NULL}, 0);
    messages(77, 200);
    seq = posted;
    at = &comm(0)->conn.path[0].mem.ring->entry[seq % R2_LEDGER_WINDOW];
    recv_burst(1, 200);
    rig_run(rig, RIG_MS);
    late = *at;
    ck_assert(ib_cts_valid(&late, seq));
    send_post(0);
    finish(1, RIG_S);
    messages(R2_LEDGER_WINDOW - 1, 200);
    ck_assert_uint_eq(posted, seq + R2_LEDGER_WINDOW);
    recv_post(1, 300);
    rig->side[0].asleep = 1;
    rig_run(rig, RIG_MS);
    now = *at;
    ck_assert(ib_cts_valid(&now, posted - 1) && now.addr != late.addr);
    if (read_before) {
        rig->side[0].asleep = 0;
        send_post(1);
        ck_assert_uint_eq(comm(0)->tx->cts_seen, posted);
    }
    place(at, &late, piece);
    if (!read_before) {
        rig->side[0].asleep = 0;
        send_post(1);
    }
    finish(2, RIG_S);
    ck_assert_int_eq(rig_count(rig, 0, FO_MSG_CTS_REQUEST) != 0, !read_before);
    ck_assert_uint_eq(comm(0)->fo.switches, 0);
    ck_assert_uint_lt(burst(4), RIG_MS);
    stop();
}
END_TEST

/* Words of an incarnation begin with the first one, whatever the incarnation before has come to. */
START_TEST(the_next_incarnation_begins_with_the_first_word)
{
    unsigned slow = 0;

    start_reordering(2, (const char *[]){ON, NULL}, 0);
    for (int i = 0; i < 77; i++) {
        burst(1 + i % 3);
    }
    ck_assert_uint_ne(comm(0)->conn.path[0].ack.at, 0);
    fire("h0:n0 qp-error");
    messages(4, 200);
    wait_returned(0, 2);
    for (int i = 0; i < 300; i++) {
        slow += burst(1 + i % 3) > RIG_MS;
    }
    ck_assert_uint_eq(slow, 0);
    ck_assert_uint_ne(comm(0)->conn.path[0].ack.at, 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, no_burst_waits_for_its_last_acknowledgement, 0, 4);
    tcase_add_test(t, a_word_that_never_comes_is_passed_over);
    tcase_add_loop_test(t, a_repeated_cts_that_comes_late, 0, 2 * PIECES);
    tcase_add_test(t, the_next_incarnation_begins_with_the_first_word);
}

int main(void)
{
    return run_suite("races: overtaken writes", add);
}
