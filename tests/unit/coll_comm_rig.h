/* A communicator at rank 1 of 4, and what its hub says (test_coll_comm.c, test_coll_break.c). */
#ifndef COLL_COMM_RIG_H
#define COLL_COMM_RIG_H

#include <check.h>
#include <string.h>

#include "coll/coll_comm.h"
#include "tests/unit/suite.h"

#define RIG static __attribute__((unused))

static struct coll_comm c;
RIG int user, shadow; /* stand for ncclComm_t */
RIG _Atomic int kicks;
RIG struct place_note reply;

RIG void kick(void)
{
    kicks++;
}

RIG void setup(void)
{
    static const struct place_meet meet = {.key = 42};

    memset(&c, 0, sizeof(c));
    coll_comm_init(&c, &user, &meet, 1, 4, 7, kick);
}

RIG void teardown(void)
{
    coll_comm_close(&c);
}

RIG bool takes(struct place_note note)
{
    memset(&reply, 0, sizeof(reply));
    return coll_comm_take(&c, &note, &reply);
}

RIG void takes_comm(enum place_note_kind kind, uint32_t comm)
{
    ck_assert(!takes((struct place_note){.kind = (uint8_t)kind, .comm = comm}));
}

RIG void takes_make(uint32_t comm, uint32_t rank)
{
    ck_assert(
        !takes((struct place_note){.kind = PLACE_NOTE_MAKE, .make = {.comm = comm, .rank = rank}}));
}

RIG struct place_facts facts(void)
{
    struct place_note n;

    coll_comm_facts(&c, &n);
    return n.facts;
}

RIG void is_held(int slot, enum place_held_state state)
{
    ck_assert_int_eq(facts().held[slot].state, state);
}

/* Communicator @comm is being made, in slot 0. */
RIG void to_making(uint32_t comm)
{
    int slot = -1;

    takes_comm(PLACE_NOTE_ASK, comm);
    is_held(0, PLACE_HELD_PROMISED);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
    takes_make(comm, 3);
    is_held(0, PLACE_HELD_MAKING);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_MAKE);
    ck_assert_int_eq(slot, 0);
    ck_assert_int_eq(c.shadow[0].rank, 3);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE); /* once */
}

#endif
