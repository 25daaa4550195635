/* What two ends of a NIC pair tell each other, heard late and twice: control messages go by more
 * than one way, and not all ways are equally fast. */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include "plugin/probe/health/r2_pair_int.h"

static int nothing_from_process_0(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_PROBE || from != 0;
}

/* All that process 1 said of NIC 0 before it was connected, once more. */
static void first_words_again(void)
{
    unsigned n = 0, count = rig->sent_count;

    for (unsigned i = 0; i < count; i++) {
        const struct rig_sent *m = &rig->sent[i];

        if (m->from == 1 && m->type == FO_MSG_PROBE && m->body.probe.nic == 0 &&
            m->body.probe.for_inc == 0) {
            rig_inject(rig, 0, FO_MSG_PROBE, &m->body);
            n++;
        }
    }
    ck_assert_uint_gt(n, 0);
}

/* The peer's queue pair serves one that we have no more, and it has said so. What it said before
 * that comes once more: it is not taken up. */
START_TEST(late_word_of_one_that_serves_another)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rig->filter = nothing_from_process_0;
    rig_enter(&rig->side[0]);
    r2_pair_rebuild(pair_of(0, 0));
    rig_run(rig, 20 * RIG_US);
    ck_assert_int_eq(pair_of(0, 0)->build.state, R2_PAIR_OPEN);
    first_words_again();
    rig_run(rig, 20 * RIG_US);
    ck_assert_int_eq(pair_of(0, 0)->build.state, R2_PAIR_OPEN);
    rig->filter = NULL;
    ck_assert(rig_until(rig, probes_stand, RIG_S));
    nothing_moved();
    messages(2, 100);
    stop();
}
END_TEST

static int is_open(struct rig *r)
{
    return pair_of(1, 0)->build.state == R2_PAIR_OPEN;
}

static int is_broken(struct rig *r)
{
    return pair_of(1, 0)->build.state == R2_PAIR_BROKEN;
}

static int are_ready(struct rig *r)
{
    return r2_pair_ready(pair_of(0, 0)) && r2_pair_ready(pair_of(1, 0));
}

/* It breaks while it waits to hear whom it serves, and cannot be connected then: that is no driver
 * that refuses, which would be left alone for longer each time. */
START_TEST(one_that_breaks_while_it_waits_is_made_anew)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    fire("h1:n0 down");
    rig_run(rig, 50 * RIG_MS);
    rig->filter = nothing_from_process_0;
    rig_enter(&rig->side[1]);
    r2_pair_rebuild(pair_of(1, 0));
    fire("h1:n0 up");
    ck_assert(rig_until(rig, is_open, RIG_S));
    rig_run(rig, 500 * RIG_MS);
    ck_assert(is_open(rig));
    probe_break(1, 0);
    rig->filter = NULL;
    ck_assert(rig_until(rig, is_broken, RIG_S));
    ck_assert(rig_until(rig, are_ready, 700 * RIG_MS));
    rig_run(rig, 2 * RIG_S);
    messages(2, 100);
    stop();
}
END_TEST

static uint64_t slower; /* ns, the second way */

struct heard {
    int to;
    union fo_body body;
};

static void arrives_again(void *arg)
{
    struct heard *h = arg;

    rig_inject(rig, h->to, FO_MSG_PROBE, &h->body);
    free(h);
}

static int heard_twice(struct rig *r, int from, int type, union fo_body *body)
{
    struct heard *h = type == FO_MSG_PROBE ? malloc(sizeof(*h)) : NULL;

    if (h) {
        *h = (struct heard){!from, *body};
        fab_inproc_at(r->f, rig_now(r) + slower, arrives_again, h);
    }
    return 1;
}

/* Two ends that build anew, one a while behind the other, while every word is heard twice: they do
 * not chase each other. */
START_TEST(announcements_by_two_ways)
{
    unsigned before;

    slower = (unsigned)(_i % 16) * RIG_US / 2;
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rig->filter = heard_twice;
    before = rig->sent_count;
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_pair_rebuild(pair_of(s, 0));
        rig_run(rig, (unsigned)(_i / 16 + 12) * RIG_US / 2);
    }
    rig_run(rig, 5 * RIG_MS);
    ck_assert_uint_le(rig->sent_count - before, 60);
    ck_assert(rig_until(rig, probes_stand, RIG_S));
    rig->filter = NULL;
    nothing_moved();
    messages(2, 100);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, late_word_of_one_that_serves_another);
    tcase_add_test(t, one_that_breaks_while_it_waits_is_made_anew);
    tcase_add_loop_test(t, announcements_by_two_ways, 0, 16 * 16);
}

int main(void)
{
    return suite_run("words of NIC pairs, by several ways", 60, NULL, teardown, add);
}
