/* How a connection ends that a failure has ended: the last warning of each end, which frameworks
 * show, has the code of what broke (R2-...). */
#include "tests/unit/failback_rig.h"

#include <stdbool.h>

#include "plugin/base/r2_log.h"
#include "plugin/probe/diagnosis/r2_verdict.h"

static const struct ending {
    const char *fault, *code;
} endings[] = {
    {"h0:* down", "R2-L01"},      {"h1:* down", "R2-L01"},   {"*:* down", "R2-"},
    {"h0:* fatal", "R2-N01"},     {"h1:* remove", "R2-N01"}, {"*:* blackhole", "R2-"},
    {"h0:* blackhole-tx", "R2-"}, {"h1:* hang", "R2-"},
};
#define ENDINGS (int)(sizeof(endings) / sizeof(endings[0]))

static int first;

static int one_failed(struct rig *r)
{
    for (int s = 0; s < 2; s++) {
        if (r->side[s].status != R2_OK) {
            first = s;
            return 1;
        }
    }
    return 0;
}

static int other_failed(struct rig *r)
{
    return r->side[!first].status != R2_OK;
}

static void has_code(int s, const char *code)
{
    const char *last = rig->last_warn[s];

    r2_log_flush();
    ck_assert_msg(strstr(last, code) != NULL && strstr(last, " ends: ") == NULL,
                  "end %d: no %s in '%s'", s, code, last);
}

/* Whoever ends first closes with requests outstanding, as NCCL's abort does; the other hears of it,
 * or has ended by itself. */
static void end_with(const char *fault, const char *code, const char *const *options,
                     uint64_t within)
{
    rig = rig_create(2, 0, options);
    join();
    messages(4);
    rig_run(rig, RIG_S);
    begin_message();
    rig_fault(rig, fault);
    ck_assert_msg(rig_until(rig, one_failed, within), "%s: nobody ends", fault);
    has_code(first, code);
    if (!other_failed(rig)) {
        rig_dereg(rig, first, first ? r_mr : s_mr);
        rig_close(rig, first);
        ck_assert_msg(rig_until(rig, other_failed, within), "%s: the other one does not end",
                      fault);
        rig_dereg(rig, !first, first ? s_mr : r_mr);
    } else {
        rig_dereg(rig, 0, s_mr);
        rig_dereg(rig, 1, r_mr);
    }
    has_code(!first, code);
}

static bool names_a_part(int s)
{
    const char *found = strstr(rig->last_warn[s], ". Found: ");

    return found && strstr(found, "fab");
}

/* What was found stands until the end, which comes GIVE_UP later or more: one end at least says
 * which part it is, and not its kind alone. */
static void a_part_is_named(void)
{
    ck_assert_msg(names_a_part(0) || names_a_part(1), "no part in '%s' nor '%s'", rig->last_warn[0],
                  rig->last_warn[1]);
}

START_TEST(every_ending_has_its_code)
{
    end_with(endings[_i].fault, endings[_i].code, (const char *[]){NULL}, 300 * RIG_S);
    a_part_is_named();
}
END_TEST

START_TEST(also_where_it_is_soon)
{
    end_with(endings[_i].fault, endings[_i].code, (const char *[]){"NCCL_R2_GIVE_UP=1500", NULL},
             100 * RIG_S);
    a_part_is_named();
}
END_TEST

START_TEST(also_before_anybody_could_find_out)
{
    end_with(endings[_i].fault, "R2-", (const char *[]){"NCCL_R2_GIVE_UP=100", NULL}, 100 * RIG_S);
}
END_TEST

/* This process ends for what a third one has to do with; the peer, to which nothing has happened,
 * hears why. */
START_TEST(an_abort_says_why)
{
    static const struct {
        uint8_t code;
        const char *says;
    } row[] = {{PROBE_CODE_L01, ". Found: R2-L01 port down, says host"},
               {PROBE_CODE_P03, ". Found: R2-P03 "},
               {PROBE_CODE_NONE, "aborted"}};
    int from = _i & 1;

    rig = rig_create(2, 0, (const char *[]){NULL});
    join();
    messages(4);
    begin_message();
    ck_assert_int_ge(rig_irecv1(rig, in[1], sizeof(in[1]), 0, r_mr), 0);
    rig->side[from].inst->diagnosis.verdicts->ended_code = row[_i / 2].code;
    rig_dereg(rig, from, from ? r_mr : s_mr);
    rig_close(rig, from);
    first = from;
    ck_assert(rig_until(rig, other_failed, 10 * RIG_S));
    r2_log_flush();
    ck_assert_msg(row[_i / 2].code == PROBE_CODE_NONE
                      ? strstr(rig->last_warn[!from], "R2-") == NULL
                      : strstr(rig->last_warn[!from], row[_i / 2].says) != NULL,
                  "%s", rig->last_warn[!from]);
    rig_dereg(rig, !from, from ? s_mr : r_mr);
}
END_TEST

/* A code that is none, or in a BYE that is no abort, means nothing. */
START_TEST(a_bye_with_a_code_that_is_none)
{
    union fo_body b = {
        .fenced = {.flags = _i ? 0 : FO_FLAG_ABORT, .inc = _i ? PROBE_CODE_L01 : 0xffffff00}};

    rig = rig_create(2, 0, (const char *[]){NULL});
    rig->hostile = 1;
    join();
    messages(4);
    ck_assert_int_ge(rig_irecv1(rig, in[1], sizeof(in[1]), 0, r_mr), 0);
    b.fenced.dst = comm(1)->id;
    b.fenced.src = comm(0)->id;
    b.fenced.acked = 4;
    rig_inject(rig, 1, FO_MSG_BYE, &b);
    first = 0;
    ck_assert(rig_until(rig, other_failed, 10 * RIG_S));
    r2_log_flush();
    ck_assert_ptr_null(strstr(rig->last_warn[1], "R2-"));
}
END_TEST

static int hear_nothing(struct rig *r, int from, int type, union fo_body *body)
{
    return from == 1;
}

/* connect() to a process that is gone: nothing is known of it but its address, and that is what is
 * named. */
START_TEST(a_dead_process_is_named_by_its_address)
{
    enum r2_status st = R2_OK;
    int done = 0;

    rig = rig_create(2, 0, (const char *[]){NULL});
    rig->filter = hear_nothing;
    rig_connect_begin(rig, 0, 0);
    rig_run(rig, 20 * RIG_MS);
    ck_assert_ptr_nonnull(rig->side[0].inst->index.peers);
    rig_enter(&rig->side[0]);
    rig->side[0].inst->index.peers->refused_since = r2_now(rig->side[0].inst);
    rig_kick(&rig->side[0]);
    for (uint64_t end = rig_now(rig) + 10 * RIG_S; st == R2_OK && rig_now(rig) < end;) {
        st = rig_connect_turn(rig, 0, &done);
    }
    ck_assert_int_eq(st, R2_ERR_COMM);
    r2_log_flush();
    ck_assert_ptr_null(strstr(rig->side[0].inst->diagnosis.verdicts->found.brief, "host0"));
    ck_assert_msg(strstr(rig->last_warn[0], ". Found: R2-P01 process%201 process gone") != NULL,
                  "%s", rig->last_warn[0]);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, every_ending_has_its_code, 0, ENDINGS);
    tcase_add_loop_test(t, also_where_it_is_soon, 0, ENDINGS);
    tcase_add_loop_test(t, also_before_anybody_could_find_out, 0, ENDINGS);
    tcase_add_loop_test(t, an_abort_says_why, 0, 6);
    tcase_add_loop_test(t, a_bye_with_a_code_that_is_none, 0, 2);
    tcase_add_test(t, a_dead_process_is_named_by_its_address);
}

int main(void)
{
    return run_suite("endings", add);
}
