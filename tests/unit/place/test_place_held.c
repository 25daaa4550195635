/* The shadows of one rank. */
#include <check.h>

#include "place/place_held.h"
#include "tests/unit/suite.h"

START_TEST(shadows_of_a_rank)
{
    struct place_held h = {0};
    struct place_member m = {0};
    struct place_held_slot *s = place_held_promise(&h, 3);

    ck_assert(s != NULL && s->state == PLACE_HELD_PROMISED);
    ck_assert(place_held_promise(&h, 3) == NULL && place_held_promise(&h, 2) == NULL);
    ck_assert(place_held_find(&h, 3) == s && place_held_find(&h, 0) == NULL);
    ck_assert(place_held_make(&h, 2) == NULL && place_held_make(&h, 3) == s);
    ck_assert(place_held_make(&h, 3) == NULL);
    ck_assert(place_held_drop(&h, 3));
    ck_assert(!place_held_drop(&h, 3));         /* that was known */
    ck_assert(place_held_free(&h, &m) == NULL); /* it is being made */
    ck_assert(!place_held_move(s, PLACE_HELD_NOT));
    ck_assert(place_held_move(s, PLACE_HELD_FAILED));
    ck_assert(place_held_free(&h, &m) == s);
    ck_assert(place_held_move(s, PLACE_HELD_NOT));
    ck_assert(place_held_find(&h, 3) == NULL && place_held_free(&h, &m) == NULL);

    place_held_promise(&h, 4);
    s = place_held_make(&h, 4);
    place_held_move(s, PLACE_HELD_READY);
    ck_assert(place_held_free(&h, &m) == NULL); /* somebody wants it */
    place_held_drop(&h, 4);
    s->busy = 1;
    ck_assert(place_held_free(&h, &m) == NULL);
    s->busy = 0;
    m.now = 4;
    ck_assert(place_held_free(&h, &m) == NULL);
    m.now = 0;
    ck_assert(place_held_free(&h, &m) == s);
}
END_TEST

START_TEST(promises_of_a_rank)
{
    struct place_held h = {0};
    struct place_member m = {0};
    struct place_held_slot *s, *t;

    place_held_drop(&h, 3); /* the question comes later */
    ck_assert(place_held_promise(&h, 3) == NULL);
    s = place_held_promise(&h, 4);
    t = place_held_promise(&h, 5);
    ck_assert(s != NULL && t != NULL && place_held_promise(&h, 6) == NULL); /* no place ... */
    place_held_drop(&h, 4);
    ck_assert_int_eq(s->state, PLACE_HELD_NOT);
    ck_assert(place_held_promise(&h, 6) == s); /* ... and asked again */
    place_held_make(&h, 6);
    place_held_move(s, PLACE_HELD_READY);
    place_held_drop_all(&h);
    ck_assert(place_held_free(&h, &m) == s);
    place_held_move(s, PLACE_HELD_NOT);
    ck_assert(place_held_promise(&h, 7) == NULL);
    ck_assert(place_held_make(&h, 5) == t); /* a promise is kept ... */
    ck_assert(place_held_free(&h, &m) == NULL);
    place_held_move(t, PLACE_HELD_READY);
    t->taken = true;
    ck_assert(place_held_free(&h, &m) == NULL);
    t->taken = false;
    ck_assert(place_held_free(&h, &m) == t); /* ... and no more */
    t->drop = false;
    place_held_move(t, PLACE_HELD_NOT);
    h.latest = 5;
    ck_assert(place_held_promise(&h, 8) != NULL);
    place_held_drop_all(&h);
    ck_assert(place_held_drop(&h, 8)); /* not needed: that is news, whatever was known */
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, shadows_of_a_rank);
    tcase_add_test(t, promises_of_a_rank);
}

int main(void)
{
    return suite_run("place_held", 60, NULL, NULL, add);
}
