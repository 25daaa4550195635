/* NCCL_R2_ACK=cqe: a send is done when R's NIC has acknowledged it. Where that NIC dies before R's
 * process has it, nothing can be sent again, and both ends end with an error, soon. */
#include "tests/unit/race_rig.h"

#define LEN 20000

static const char *const cqe[] = {"0:NCCL_R2_ACK=cqe", "NCCL_R2_GIVE_UP=2000", NULL};
static const char *const e2e[] = {"NCCL_R2_GIVE_UP=2000", NULL};
static const char *const last[] = {"0:NCCL_R2_ACK=cqe", "NCCL_R2_GIVE_UP=2000",
                                   "NCCL_R2_FAILBACK=never", NULL};

static struct ibv_cq *hidden; /* stays empty */
static int (*true_poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    return cq == hidden ? 0 : true_poll_cq(cq, n, wc);
}

/* What R's NIC 0 has acknowledged stays behind it. */
static void completions_stop(void)
{
    struct ibv_context_ops *ops = &rig->side[1].inst->nics.nic[0].ctx->ops;

    hidden = comm(1)->conn.path[0].cq;
    true_poll_cq = ops->poll_cq;
    ops->poll_cq = poll_cq;
}

static void completions_go_on(void)
{
    hidden = NULL;
}

static int send_done(struct rig *r)
{
    return r->side[0].head == r->side[0].tail;
}

/* The message is done at S, and R's process has nothing of it. */
static void acknowledged(int nics, const char *const *options)
{
    start(nics, options);
    messages(4, LEN);
    recv_post(0, LEN);
    rig_run(rig, RIG_MS);
    completions_stop();
    send_post(0);
    ck_assert(rig_until(rig, send_done, 5 * RIG_MS));
    ck_assert_uint_lt(acked(), posted);
    rig_run(rig, RIG_MS);
}

/* Both ends have an error that says why, within @limit. S's NCCL hears of it with its next request.
 */
static void both_end_within(uint64_t limit)
{
    uint64_t until = rig_now(rig) + limit;
    struct r2_req *req;

    while (rig_now(rig) < until && (comm(0)->fo.error == R2_OK || rig->side[1].status == R2_OK)) {
        rig_turn(rig, 20 * RIG_US);
    }
    ck_assert_int_eq(comm(0)->fo.error, R2_ERR_COMM);
    ck_assert_ptr_nonnull(strstr(comm(0)->fo.why, "NCCL_R2_ACK=cqe"));
    ck_assert_int_eq(rig->side[1].status, R2_ERR_PEER);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_isend(comm(0), out[1], LEN, 0, s_mr, &req), R2_ERR_COMM);
    ck_assert_ptr_null(req);
}

static const char *const end[] = {"h1:n0 fatal", "h1:n0 remove", "h1:n0 down", "h1:n0 qp-error"};

START_TEST(lost_behind_the_nic_that_acknowledged)
{
    acknowledged(2, cqe);
    rig_fault(rig, end[_i]);
    both_end_within(100 * RIG_MS);
    ck_assert(is_up(1, 1));
}
END_TEST

/* ... with the channel away when R's ledger is to be told, and back; and with S's word of it lost
 * twice. */
static int drop_bye(struct rig *r, int from, int type, union fo_body *body)
{
    return !(from == 0 && (type == FO_MSG_BYE || type == FO_MSG_SETTLED)) || r->filter_count++ >= 4;
}

START_TEST(the_word_of_it_is_repeated)
{
    acknowledged(2, cqe);
    if (_i) {
        rig->filter = drop_bye;
    } else {
        rig_oob_cut(rig, 1);
    }
    rig_fault(rig, "h1:n0 fatal");
    rig_run(rig, 200 * RIG_MS);
    if (!_i) {
        ck_assert_int_eq(rig->side[1].status, R2_OK);
        rig_oob_cut(rig, 0);
    }
    both_end_within(500 * RIG_MS);
    ck_assert(!_i || rig->filter_count > 4);
}
END_TEST

/* What R's process has polled, and what e2e has not reported, is no loss. */
START_TEST(nothing_lost)
{
    acknowledged(2, cqe);
    completions_go_on();
    ck_assert(rig_until(rig, rig_all_done, RIG_MS));
    rig_fault(rig, end[_i]);
    finish(1, 5 * RIG_S);
    messages(4, LEN);
    stop();
}
END_TEST

START_TEST(end_to_end_sends_it_again)
{
    start(2, e2e);
    messages(4, LEN);
    recv_post(0, LEN);
    rig_run(rig, RIG_MS);
    completions_stop();
    send_post(0);
    ck_assert(!rig_until(rig, send_done, 5 * RIG_MS));
    rig_fault(rig, end[_i]);
    finish(1, 5 * RIG_S);
    ck_assert_uint_eq(retransmitted(), 1);
    stop();
}
END_TEST

/* The NIC goes on answering: S claims what was acknowledged, also where its done was reported. */
START_TEST(lost_by_a_nic_that_lives)
{
    acknowledged(2, cqe);
    both_end_within(RIG_S);
}
END_TEST

/* A message in parts of which one is lost. */
START_TEST(one_part_of_a_message)
{
    start(2,
          (const char *[]){"0:NCCL_R2_ACK=cqe", "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=4096", NULL});
    messages(4, LEN);
    recv_post(0, LEN);
    rig_run(rig, RIG_MS);
    completions_stop();
    send_post(0);
    ck_assert_int_eq(comm(0)->tx->msg[(posted - 1) % R2_LEDGER_WINDOW].nparts, 2);
    ck_assert(rig_until(rig, send_done, 5 * RIG_MS));
    rig_run(rig, RIG_MS);
    rig_fault(rig, "h1:n0 fatal");
    both_end_within(100 * RIG_MS);
}
END_TEST

static int receiver_failed(struct rig *r)
{
    return r->side[1].status != R2_OK;
}

/* S has closed in order by then: R finds out alone, at once where no path is left that it could
 * come by, else after NCCL_R2_GIVE_UP. */
START_TEST(lost_after_the_sender_has_closed)
{
    uint64_t from;

    acknowledged(2, last);
    rig_close(rig, 0);
    rig_run(rig, 5 * RIG_MS);
    ck_assert_int_eq(comm(1)->fo.bye.peer, FO_BYE_ORDERLY);
    from = rig_now(rig);
    if (_i) {
        rig_fault(rig, "h1:* fatal");
    }
    ck_assert(rig_until(rig, receiver_failed, 3 * RIG_S));
    ck_assert_int_eq(rig->side[1].status, R2_ERR_PEER);
    ck_assert_ptr_nonnull(strstr(comm(1)->fo.why, "NCCL_R2_ACK=cqe"));
    ck_assert_int_eq(rig_now(rig) - from < 100 * RIG_MS, _i);
}
END_TEST

/* ... and what comes in that time counts: R ends with what was never sent, not before. */
START_TEST(late_after_the_sender_has_closed)
{
    acknowledged(2, last);
    rig_close(rig, 0);
    rig->side[1].asleep = 1;
    rig_run(rig, RIG_S);
    ck_assert_int_eq(comm(1)->fo.error, R2_OK);
    completions_go_on();
    rig_run(rig, 2 * RIG_S);
    rig->side[1].asleep = 0;
    ck_assert(rig_until(rig, rig_all_done, RIG_MS));
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    slot_is_right(0);
}
END_TEST

/* S hears of the loss, and closes before its word is through: it is an abort all the same. */
START_TEST(closed_with_the_loss_known)
{
    acknowledged(2, cqe);
    rig_fault(rig, "h1:n0 fatal");
    rig->filter = drop_bye;
    rig->filter_count = -1000;
    for (int i = 0; i < 1000 && comm(0)->fo.error == R2_OK; i++) {
        rig_turn(rig, 20 * RIG_US);
    }
    ck_assert_int_eq(comm(0)->fo.error, R2_ERR_COMM);
    rig_close(rig, 0);
    rig->filter = NULL;
    ck_assert(rig_until(rig, receiver_failed, 200 * RIG_MS));
    ck_assert_int_eq(comm(1)->fo.bye.peer, FO_BYE_ABORT);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, lost_behind_the_nic_that_acknowledged, 0, 4);
    tcase_add_loop_test(t, the_word_of_it_is_repeated, 0, 2);
    tcase_add_loop_test(t, nothing_lost, 0, 4);
    tcase_add_loop_test(t, end_to_end_sends_it_again, 0, 4);
    tcase_add_test(t, lost_by_a_nic_that_lives);
    tcase_add_test(t, one_part_of_a_message);
    tcase_add_loop_test(t, lost_after_the_sender_has_closed, 0, 2);
    tcase_add_test(t, late_after_the_sender_has_closed);
    tcase_add_test(t, closed_with_the_loss_known);
}

int main(void)
{
    return run_suite("acknowledgement by the NIC", add);
}
