/* A hub of four ranks, each on a host, and what they say (test_place_job*.c). */
#ifndef PLACE_JOB_RIG_H
#define PLACE_JOB_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "place/place_job.h"
#include "tests/unit/suite.h"

#define RIG static __attribute__((unused))

#define RANKS 4

static const struct place_job_conf conf = {.no_ring = true,
                                           .settle_ns = 100,
                                           .make_ns = 1000,
                                           .wait_ns = 50,
                                           .pause_ns = 200,
                                           .repeat_ns = 10};
RIG const uint8_t id[PLACE_ID_BYTES] = {7};

static void *memory;
static struct place_job *j;
static struct place_facts facts[RANKS];
static uint64_t now;
static struct place_note sent;

RIG void job_begin(const struct place_job_conf *c)
{
    free(memory);
    memory = malloc(place_job_size(RANKS));
    now = 1000;
    j = place_job_init(memory, RANKS, c, now);
    for (int r = 0; r < RANKS; r++) {
        facts[r] = (struct place_facts){.seq = 1,
                                        .rank = (uint32_t)r,
                                        .ranks = RANKS,
                                        .mbps = 50000,
                                        .host = 1 + (uint64_t)r,
                                        .nics = 8,
                                        .usable = 8,
                                        .used = 8,
                                        .can = PLACE_CAN};
    }
}

RIG void setup(void)
{
    job_begin(&conf);
}

RIG void teardown(void)
{
    free(memory);
    memory = NULL;
}

RIG const char *says(int rank)
{
    struct place_note n = {.kind = PLACE_NOTE_FACTS, .facts = facts[rank]};
    const char *wrong = place_job_take(j, rank, &n, now);

    place_job_tick(j, now);
    return wrong;
}

RIG void all_say(void)
{
    for (int r = 0; r < RANKS; r++) {
        ck_assert(says(r) == NULL);
    }
}

/* Sends all that is due to @rank; `sent` is the last of those that confirm nothing. How many. */
RIG int due(int rank)
{
    struct place_note n;
    int count = 0;

    memset(&n, 0, sizeof(n));
    while (place_job_due(j, rank, now, &n)) {
        if (n.kind != PLACE_NOTE_HEARD) {
            sent = n;
            count++;
        }
    }
    return count;
}

RIG void after(uint64_t ns)
{
    now += ns;
    place_job_tick(j, now);
}

RIG void is(enum place_job_state state)
{
    ck_assert_str_eq(place_job_state_name(place_job_state_get(j)), place_job_state_name(state));
}

RIG void has(int rank, int slot, uint32_t comm, enum place_held_state state)
{
    facts[rank].seq++;
    facts[rank].held[slot].comm = comm;
    facts[rank].held[slot].state = (uint8_t)state;
    ck_assert(says(rank) == NULL);
}

RIG void answers(enum place_kind kind, enum place_answer answer)
{
    for (int r = 0; r < RANKS; r++) {
        struct place_note n = {.kind = PLACE_NOTE_MSG};

        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_MSG);
        n.msg = sent.msg;
        n.msg.kind = (uint8_t)kind;
        n.msg.answer = (uint8_t)answer;
        ck_assert(place_job_take(j, r, &n, now) == NULL);
    }
    place_job_tick(j, now);
}

RIG void host_loses(int rank)
{
    facts[rank].seq++;
    facts[rank].usable = 4;
    ck_assert(says(rank) == NULL);
}

/* All are asked for communicator @comm, and promise it. */
RIG void promises(int slot, uint32_t comm)
{
    is(PLACE_JOB_ASKING);
    ck_assert_uint_eq(place_job_to(j), comm);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_ASK);
        ck_assert_uint_eq(sent.comm, comm);
        is(PLACE_JOB_ASKING);
        has(r, slot, comm, PLACE_HELD_PROMISED);
    }
    is(PLACE_JOB_MAKING);
}

/* Communicator 1 is being made. */
RIG void to_making(void)
{
    host_loses(1);
    after(conf.settle_ns);
    promises(0, 1);
}

RIG void to_switching(void)
{
    all_say();
    to_making();
    place_job_id(j, id, now);
    for (int r = 0; r < RANKS; r++) {
        has(r, 0, 1, PLACE_HELD_READY);
    }
    is(PLACE_JOB_SWITCHING);
}

#endif
