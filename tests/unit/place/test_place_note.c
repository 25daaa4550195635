/* What travels in an ncclUniqueId and in messages between ranks and hub, as bytes. */
#include <check.h>
#include <string.h>

#include "place/place_meet.h"
#include "place/place_note.h"
#include "tests/unit/suite.h"

static const struct place_meet here = {
    .hub = {.uuid = {0x1122334455667788u, 0x99aabbccddeeff00u},
            .secret = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
            .family = 6,
            .port = 0x1234,
            .scope = 0xa1b2c3d4,
            .addr = {0xfe, 0x80, [15] = 7}},
    .key = 0x0102030405060708u};

/* --- in the id --- */

START_TEST(an_address_travels_in_the_id)
{
    uint8_t id[PLACE_ID_BYTES] = {9, 8, 7}, before[PLACE_ID_BYTES];
    struct place_meet got;

    memcpy(before, id, sizeof(id));
    ck_assert(!place_meet_get(id, &got));
    ck_assert(place_meet_put(id, &here));
    ck_assert_mem_eq(id, before, PLACE_MEET_AT);
    ck_assert(place_meet_get(id, &got));
    ck_assert_uint_eq(got.key, here.key);
    ck_assert_mem_eq(got.hub.uuid, here.hub.uuid, sizeof(here.hub.uuid));
    ck_assert_mem_eq(got.hub.secret, here.hub.secret, sizeof(here.hub.secret));
    ck_assert_mem_eq(got.hub.addr, here.hub.addr, sizeof(here.hub.addr));
    ck_assert_uint_eq(got.hub.scope, here.hub.scope);
    ck_assert_uint_eq(got.hub.port, here.hub.port);
    ck_assert_uint_eq(got.hub.family, here.hub.family);
}
END_TEST

/* A release of NCCL, or another library, that uses this part of the id keeps it. */
START_TEST(what_is_there_stays)
{
    for (int i = PLACE_MEET_AT; i < PLACE_ID_BYTES; i++) {
        uint8_t id[PLACE_ID_BYTES] = {0}, before[PLACE_ID_BYTES];

        id[i] = 1;
        memcpy(before, id, sizeof(id));
        ck_assert(!place_meet_put(id, &here));
        ck_assert_mem_eq(id, before, sizeof(id));
    }
}
END_TEST

START_TEST(what_is_no_address)
{
    static const struct {
        int at;
        uint8_t is;
    } row[] = {{PLACE_MEET_AT, 'R'}, {PLACE_MEET_AT + 7, 2}, {126, 5}};
    struct place_meet got, none = here;

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        uint8_t id[PLACE_ID_BYTES] = {0};

        ck_assert(place_meet_put(id, &here));
        id[row[i].at] = row[i].is;
        ck_assert_msg(!place_meet_get(id, &got), "row %u", i);
    }
    none.hub.port = 0;
    {
        uint8_t id[PLACE_ID_BYTES] = {0};

        ck_assert(place_meet_put(id, &none));
        ck_assert(!place_meet_get(id, &got));
    }
    none = here;
    none.key = 0;
    {
        uint8_t id[PLACE_ID_BYTES] = {0};

        ck_assert(place_meet_put(id, &none));
        ck_assert(!place_meet_get(id, &got));
    }
}
END_TEST

/* --- notes --- */

static struct place_note note_of(enum place_note_kind kind)
{
    struct place_note n;

    memset(&n, 0, sizeof(n));
    n.kind = (uint8_t)kind;
    n.rank = 3;
    n.key = 0xfedcba9876543210u;
    switch (kind) {
    case PLACE_NOTE_FACTS:
        n.facts.seq = 5;
        n.facts.rank = 3;
        n.facts.ranks = 4;
        n.facts.mbps = 50000;
        n.facts.host = 0x1111222233334444u;
        n.facts.begun = 1ull << 40;
        n.facts.nics = 8;
        n.facts.usable = 7;
        n.facts.used = 6;
        n.facts.can = PLACE_CAN;
        n.facts.held[1].state = PLACE_HELD_READY;
        n.facts.held[1].comm = 0x01020304;
        break;
    case PLACE_NOTE_HEARD:
        n.heard = 0xaabbccdd;
        break;
    case PLACE_NOTE_MAKE:
        n.make.comm = 7;
        n.make.rank = 11;
        for (int i = 0; i < PLACE_ID_BYTES; i++) {
            n.make.id[i] = (uint8_t)~i;
        }
        break;
    case PLACE_NOTE_ASK:
    case PLACE_NOTE_DROP:
        n.comm = 7;
        break;
    default:
        n.msg = (struct place_msg){.kind = PLACE_ANSWER,
                                   .answer = PLACE_LATE,
                                   .attempt = 0x10203040,
                                   .to = 0x50607080,
                                   .at = 0x1122334455667788u};
    }
    return n;
}

static bool is_same(const struct place_note *a, const struct place_note *b)
{
    return a->kind == b->kind && a->rank == b->rank && a->key == b->key &&
           memcmp(a, b, sizeof(*a)) == 0;
}

START_TEST(each_note_arrives)
{
    static const size_t bytes[] = {0, 49, 4, 4, 136, 4, 20};

    for (int k = PLACE_NOTE_FACTS; k <= PLACE_NOTE_MSG; k++) {
        struct place_note n = note_of((enum place_note_kind)k), got;
        uint8_t out[PLACE_NOTE_MAX];
        size_t len = place_note_pack(&n, out);
        const char *wrong = place_note_parse(out, len, &got);

        ck_assert_uint_eq(len, PLACE_NOTE_HEAD + bytes[k]);
        ck_assert_msg(wrong == NULL, "kind %d: %s", k, wrong);
        ck_assert_msg(is_same(&n, &got), "kind %d", k);
        for (size_t cut = 0; cut < len; cut++) {
            wrong = place_note_parse(out, cut, &got);
            ck_assert_msg(wrong != NULL && strcmp(wrong, "too short") == 0, "kind %d of %zu: %s", k,
                          cut, wrong != NULL ? wrong : "taken");
        }
    }
}
END_TEST

static const char *wrong_with(enum place_note_kind kind, size_t at, uint8_t is)
{
    struct place_note n = note_of(kind), got;
    uint8_t out[PLACE_NOTE_MAX];
    size_t len = place_note_pack(&n, out);
    const char *wrong;

    out[at] = is;
    wrong = place_note_parse(out, len, &got);
    return wrong != NULL ? wrong : "nothing";
}

START_TEST(what_cannot_be_is_named)
{
    ck_assert_str_eq(wrong_with(PLACE_NOTE_DROP, 0, 2), "another version");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_DROP, 1, 0), "an unknown kind");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_DROP, 1, PLACE_NOTE_MSG + 1), "an unknown kind");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_MAKE, 1, PLACE_NOTE_DROP), "too long");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_MAKE, 16, 0), "a communicator without a number");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_ASK, 16, 0), "a communicator without a number");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_DROP, 16, 0), "a communicator without a number");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_MSG, 16, PLACE_KINDS), "a message of no kind");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_MSG, 17, PLACE_ANSWERS), "a message of no kind");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 16, 0), "facts that cannot be");   /* seq */
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 20, 4), "a rank that is none");    /* of 4 */
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 26, 0xff), "a rank that is none"); /* ranks */
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 52, 9), "facts that cannot be");   /* used */
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 50, 9), "facts that cannot be");   /* usable */
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 54, PLACE_CANS),
                     "facts that cannot be"); /* can */
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 55, 1), "a communicator in no state");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 60, 0), "a communicator in no state");
    ck_assert_str_eq(wrong_with(PLACE_NOTE_FACTS, 60, 9), "a communicator in no state");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, an_address_travels_in_the_id);
    tcase_add_test(t, what_is_there_stays);
    tcase_add_test(t, what_is_no_address);
    tcase_add_test(t, each_note_arrives);
    tcase_add_test(t, what_cannot_be_is_named);
}

int main(void)
{
    return suite_run("place_note", 60, NULL, NULL, add);
}
