/* Hubs of a process over an out-of-band channel that keeps what is sent. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_time.h"
#include "coll/coll_hub.h"
#include "tests/unit/suite.h"

#define RANKS 2
#define SENT  64

/* A peer: which process it is, references, and what was sent to it. */
struct r2_oob_peer {
    int refs, n;
    struct place_note sent[SENT];
};

static struct r2_oob_peer peer[3];
static struct coll_hubs *hubs;
static uint64_t key, now;
static struct place_facts facts[RANKS];
static int ids;

static void peer_ref(struct r2_oob_peer *p)
{
    p->refs++;
}

static void peer_put(struct r2_oob_peer *p)
{
    ck_assert_int_gt(p->refs, 0);
    p->refs--;
}

static int send_to(struct r2_oob_peer *p, const void *msg, size_t len)
{
    ck_assert_int_lt(p->n, SENT);
    ck_assert(place_note_parse(msg, len, &p->sent[p->n++]) == NULL);
    return 0;
}

static const struct r2_oob_ops ops = {.peer_ref = peer_ref, .peer_put = peer_put, .send = send_to};
static struct r2_oob oob = {&ops};

static int id_make(uint8_t id[PLACE_ID_BYTES])
{
    memset(id, ++ids, PLACE_ID_BYTES);
    return 0;
}

static void setup(void)
{
    static const struct coll_hub_conf conf = {
        .job = {.settle_ns = 100, .make_ns = 1000, .wait_ns = 50, .pause_ns = 200, .repeat_ns = 10},
        .oob = &oob,
        .id_make = id_make};

    memset(peer, 0, sizeof(peer));
    ids = 0;
    now = 1000;
    hubs = coll_hubs_new(&conf);
    key = coll_hub_key(hubs);
    for (int r = 0; r < RANKS; r++) {
        facts[r] = (struct place_facts){.seq = 1,
                                        .rank = (uint32_t)r,
                                        .ranks = RANKS,
                                        .mbps = 1000,
                                        .host = 1 + (uint64_t)r,
                                        .nics = 2,
                                        .usable = 2,
                                        .used = 2,
                                        .can = PLACE_CAN};
    }
}

static void teardown(void)
{
    coll_hubs_free(hubs);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(peer[i].refs, 0);
    }
}

static const char *says(int rank, struct r2_oob_peer *from)
{
    struct place_note n = {
        .kind = PLACE_NOTE_FACTS, .rank = (uint32_t)rank, .key = key, .facts = facts[rank]};

    return coll_hub_take(hubs, from, &n, now);
}

/* The last note to @p since it was last asked; its kind, 0: none. */
static int last(struct r2_oob_peer *p)
{
    int n = p->n;

    p->n = 0;
    return n > 0 ? p->sent[n - 1].kind : 0;
}

START_TEST(keys)
{
    struct place_note n = {.kind = PLACE_NOTE_FACTS, .facts = facts[0]};

    ck_assert_uint_ne(key, 0);
    ck_assert_uint_ne(coll_hub_key(hubs), key);
    n.key = key + 1;
    ck_assert_str_eq(coll_hub_take(hubs, &peer[0], &n, now), "a key that is none of ours");
    ck_assert(coll_hub_job(hubs, key) == NULL);
    ck_assert(coll_hub_turn(hubs, now) == UINT64_MAX);
}
END_TEST

START_TEST(facts_are_confirmed)
{
    ck_assert(says(0, &peer[0]) == NULL);
    ck_assert_int_eq(peer[0].refs, 1);
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(peer[0].n, 1);
    ck_assert_int_eq(peer[0].sent[0].kind, PLACE_NOTE_HEARD);
    ck_assert_uint_eq(peer[0].sent[0].key, key);
    ck_assert_uint_eq(peer[0].sent[0].rank, 0);
    ck_assert_int_eq(place_job_state_get(coll_hub_job(hubs, key)), PLACE_JOB_GATHERING);
    ck_assert(says(1, &peer[1]) == NULL);
    ck_assert(coll_hub_turn(hubs, now) != UINT64_MAX);
    ck_assert_int_eq(place_job_state_get(coll_hub_job(hubs, key)), PLACE_JOB_RESTING);
}
END_TEST

START_TEST(what_is_refused)
{
    struct place_note msg = {.kind = PLACE_NOTE_MSG, .rank = 1, .key = key};

    ck_assert_str_eq(coll_hub_take(hubs, &peer[0], &msg, now), "a rank that has not spoken");
    says(0, &peer[0]);
    ck_assert_str_eq(says(0, &peer[2]), "a rank that another process is");
    ck_assert_str_eq(coll_hub_take(hubs, &peer[0], &msg, now), "a rank that has not spoken");
    msg.rank = RANKS;
    ck_assert_str_eq(coll_hub_take(hubs, &peer[0], &msg, now), "a rank that has not spoken");
    facts[1].ranks = 3;
    ck_assert_str_eq(says(1, &peer[1]), "facts of another communicator");
    key = coll_hub_key(hubs);
    facts[1].ranks = PLACE_RANKS_MAX;
    ck_assert_str_eq(says(1, &peer[1]), "more ranks than a hub takes");
    ck_assert(coll_hub_job(hubs, key) == NULL);
    ck_assert_int_eq(peer[2].refs, 0);
}
END_TEST

/* Two ranks of one process are one peer. */
START_TEST(ranks_of_one_process)
{
    ck_assert(says(0, &peer[0]) == NULL && says(1, &peer[0]) == NULL);
    ck_assert_int_eq(peer[0].refs, 2);
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(peer[0].n, 2);
    ck_assert_uint_eq(peer[0].sent[1].rank, 1);
}
END_TEST

/* With two hosts all orders are the same. */
START_TEST(nothing_to_gain)
{
    says(0, &peer[0]);
    says(1, &peer[1]);
    facts[1].seq++;
    facts[1].usable = 1;
    says(1, &peer[1]);
    coll_hub_turn(hubs, now);
    now += 100;
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(place_job_state_get(coll_hub_job(hubs, key)), PLACE_JOB_RESTING);
    ck_assert_int_eq(place_job_plan(coll_hub_job(hubs, key))->verdict, PLACE_PLAN_STAY);
    ck_assert_int_eq(ids, 0);
}
END_TEST

START_TEST(a_rank_is_lost)
{
    says(0, &peer[0]);
    says(1, &peer[1]);
    coll_hub_turn(hubs, now);
    coll_hub_down(hubs, &peer[1], false, now); /* the channel: it comes back */
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(place_job_state_get(coll_hub_job(hubs, key)), PLACE_JOB_RESTING);
    coll_hub_down(hubs, &peer[1], true, now);
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(place_job_state_get(coll_hub_job(hubs, key)), PLACE_JOB_OVER);
}
END_TEST

/* Its channel is not kept up once its last facts are confirmed, and repeated ones are confirmed
 * again. */
START_TEST(ranks_leave)
{
    says(0, &peer[0]);
    says(1, &peer[1]);
    coll_hub_turn(hubs, now);
    last(&peer[0]);
    facts[0].seq++;
    facts[0].can = PLACE_HAS_LEFT;
    says(0, &peer[0]);
    ck_assert_int_eq(peer[0].refs, 1);
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(last(&peer[0]), PLACE_NOTE_HEARD);
    ck_assert_int_eq(peer[0].refs, 0);
    ck_assert(says(0, &peer[0]) == NULL);
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(last(&peer[0]), PLACE_NOTE_HEARD);
    facts[1].seq++;
    facts[1].can = PLACE_HAS_LEFT;
    says(1, &peer[1]);
    coll_hub_turn(hubs, now);
    ck_assert(coll_hub_job(hubs, key) == NULL);
    ck_assert(says(1, &peer[1]) == NULL);
    coll_hub_turn(hubs, now);
    ck_assert_int_eq(last(&peer[1]), PLACE_NOTE_HEARD);
    ck_assert_int_eq(peer[1].refs, 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, keys);
    tcase_add_test(t, facts_are_confirmed);
    tcase_add_test(t, what_is_refused);
    tcase_add_test(t, ranks_of_one_process);
    tcase_add_test(t, nothing_to_gain);
    tcase_add_test(t, a_rank_is_lost);
    tcase_add_test(t, ranks_leave);
}

int main(void)
{
    return suite_run("coll_hub", 60, setup, teardown, add);
}
