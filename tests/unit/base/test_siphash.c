#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_siphash.h"

/* Results of the algorithm's authors for the key 00 01 .. 0f and the text 00 01 .. (length - 1). */
static const struct {
    size_t len;
    uint64_t want;
} known[] = {
    {0, 0x726fdb47dd0e0e31u},  {1, 0x74f839c593dc67fdu},  {2, 0x0d6c8009d9a94f5au},
    {3, 0x85676696d7fb7e2du},  {4, 0xcf2794e0277187b7u},  {5, 0x18765564cd99a68du},
    {6, 0xcbc9466e58fee3ceu},  {7, 0xab0200f58b01d137u},  {8, 0x93f5f5799a932462u},
    {15, 0xa129ca6149be45e5u}, {63, 0x958a324ceb064572u},
};

static struct r2_siphash_key counting_key(void)
{
    uint8_t bytes[16];

    for (int i = 0; i < 16; i++) {
        bytes[i] = (uint8_t)i;
    }
    return r2_siphash_key(bytes);
}

START_TEST(known_answers)
{
    uint8_t text[64];

    for (int i = 0; i < 64; i++) {
        text[i] = (uint8_t)i;
    }
    ck_assert_uint_eq(r2_siphash(counting_key(), text, known[_i].len), known[_i].want);
}
END_TEST

START_TEST(empty_text_without_memory)
{
    ck_assert_uint_eq(r2_siphash(counting_key(), NULL, 0), known[0].want);
}
END_TEST

/* Every bit of text, key and length matters. */
START_TEST(one_bit_changes_it)
{
    uint8_t text[40] = {0};
    struct r2_siphash_key key = counting_key(), other;
    uint64_t h = r2_siphash(key, text, sizeof(text));

    for (unsigned bit = 0; bit < 8 * sizeof(text); bit++) {
        text[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_uint_ne(r2_siphash(key, text, sizeof(text)), h);
        text[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (unsigned bit = 0; bit < 64; bit++) {
        other = key;
        other.k0 ^= 1ull << bit;
        ck_assert_uint_ne(r2_siphash(other, text, sizeof(text)), h);
        other = key;
        other.k1 ^= 1ull << bit;
        ck_assert_uint_ne(r2_siphash(other, text, sizeof(text)), h);
    }
    ck_assert_uint_ne(r2_siphash(key, text, sizeof(text) - 1), h);
}
END_TEST

/* The text need not be aligned. */
START_TEST(any_alignment)
{
    uint8_t room[64 + 8], text[64];

    for (int i = 0; i < 64; i++) {
        text[i] = (uint8_t)(i * 7);
    }
    for (int shift = 0; shift < 8; shift++) {
        memcpy(room + shift, text, sizeof(text));
        ck_assert_uint_eq(r2_siphash(counting_key(), room + shift, sizeof(text)),
                          r2_siphash(counting_key(), text, sizeof(text)));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("siphash");
    TCase *t = tcase_create("siphash");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, known_answers, 0, sizeof(known) / sizeof(known[0]));
    tcase_add_test(t, empty_text_without_memory);
    tcase_add_test(t, one_bit_changes_it);
    tcase_add_test(t, any_alignment);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
