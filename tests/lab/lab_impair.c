#include "tests/lab/lab_impair.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/lab/lab_util.h"

/* Ethernet 14, IPv4 20, UDP 8, BTH 12. */
#define HEADERS_LEN   54u
#define PACE_SLACK_NS (2 * LAB_NS_PER_MS)

uint64_t lab_rng_next(uint64_t *rng)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15ULL; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static bool chance(double p, uint64_t *rng)
{
    return p > 0 && (double)(lab_rng_next(rng) >> 11) * 0x1p-53 < p;
}

struct lab_verdict lab_impair_decide(const struct lab_impair *im, uint64_t *rng)
{
    struct lab_verdict v = {.what = LAB_PASS, .delay_ns = im->delay_ns};

    if (im->cut) {
        v.what = LAB_DROP_CUT;
        return v;
    }
    if (chance(im->loss, rng)) {
        v.what = LAB_DROP_LOSS;
        return v;
    }
    v.twice = chance(im->dup, rng);
    v.corrupt = chance(im->corrupt, rng);
    return v;
}

void lab_frame_corrupt(uint8_t *frame, size_t len, uint64_t *rng)
{
    size_t from = len > HEADERS_LEN ? HEADERS_LEN : 0;
    uint64_t bit;

    if (len > 0) {
        bit = lab_rng_next(rng) % ((len - from) * 8);
        frame[from + bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

void lab_pace_take(struct lab_pace *p, uint64_t now, size_t len, uint64_t rate)
{
    uint64_t start = p->free_at;

    if (start + PACE_SLACK_NS < now) {
        start = now;
    }
    p->free_at = rate == 0 ? 0 : start + (uint64_t)len * 8 * LAB_NS_PER_S / rate;
}

static const char *const dir_name[LAB_DIRS] = {"out", "in"};

/* Which directions the last word names. Returns how many words that took, or -1. */
static int dirs_parse(const char *word, bool dir[LAB_DIRS])
{
    dir[LAB_OUT] = word == NULL || strcmp(word, "both") == 0 || strcmp(word, "out") == 0;
    dir[LAB_IN] = word == NULL || strcmp(word, "both") == 0 || strcmp(word, "in") == 0;
    return word == NULL ? 0 : dir[LAB_OUT] || dir[LAB_IN] ? 1 : -1;
}

static void impair_set(struct lab_impair *im, const char *verb, double value)
{
    if (strcmp(verb, "cut") == 0) {
        im->cut = true;
    } else if (strcmp(verb, "loss") == 0) {
        im->loss = value / 100;
    } else if (strcmp(verb, "dup") == 0) {
        im->dup = value / 100;
    } else if (strcmp(verb, "corrupt") == 0) {
        im->corrupt = value / 100;
    } else if (strcmp(verb, "delay") == 0) {
        im->delay_ns = (uint64_t)(value * (double)LAB_NS_PER_MS);
    } else {
        im->rate = (uint64_t)(value * 1e6);
    }
}

const char *lab_impair_parse(char *const *word, int n, struct lab_impair im[LAB_DIRS])
{
    static const struct {
        const char *verb;
        double max; /* of its value; 0: it has none */
        const char *what;
    } row[] = {
        {"cut", 0, "cut [both|in|out]"},
        {"loss", 100, "loss PERCENT [both|in|out], 0 to 100"},
        {"dup", 100, "dup PERCENT [both|in|out], 0 to 100"},
        {"corrupt", 100, "corrupt PERCENT [both|in|out], 0 to 100"},
        {"delay", 10000, "delay MS [both|in|out], 0 to 10000"},
        {"rate", 100000, "rate MBIT [both|in|out], 0 (no limit) to 100000"},
    };
    bool dir[LAB_DIRS];
    double value = 0;
    int with, d;
    size_t i;

    if (n == 1 && strcmp(word[0], "heal") == 0) {
        memset(im, 0, LAB_DIRS * sizeof(im[0]));
        return NULL;
    }
    for (i = 0; n > 0 && i < sizeof(row) / sizeof(row[0]); i++) {
        if (strcmp(word[0], row[i].verb) != 0) {
            continue;
        }
        with = row[i].max > 0;
        if (n < 1 + with || n > 2 + with ||
            (with && lab_real_parse(word[1], 0, row[i].max, &value) != 0) ||
            dirs_parse(n == 2 + with ? word[1 + with] : NULL, dir) < 0) {
            return row[i].what;
        }
        for (d = 0; d < LAB_DIRS; d++) {
            if (dir[d]) {
                impair_set(&im[d], row[i].verb, value);
            }
        }
        return NULL;
    }
    return "cut, loss, dup, corrupt, delay, rate or heal";
}

__attribute__((format(printf, 3, 4))) static void text_add(char *out, size_t size, const char *fmt,
                                                           ...)
{
    size_t n = strlen(out);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(out + n, size - n, fmt, ap);
    va_end(ap);
}

static void percent_add(char *out, size_t size, const char *what, double p)
{
    if (p > 0) {
        text_add(out, size, " %s %g%%", what, p * 100);
    }
}

void lab_impair_print(const struct lab_impair im[LAB_DIRS], char *out, size_t size)
{
    int d;

    out[0] = '\0';
    for (d = 0; d < LAB_DIRS; d++) {
        char text[160] = "";
        if (im[d].cut) {
            text_add(text, sizeof(text), " cut");
        }
        percent_add(text, sizeof(text), "loss", im[d].loss);
        percent_add(text, sizeof(text), "dup", im[d].dup);
        percent_add(text, sizeof(text), "corrupt", im[d].corrupt);
        if (im[d].delay_ns > 0) {
            text_add(text, sizeof(text), " delay %gms",
                     (double)im[d].delay_ns / (double)LAB_NS_PER_MS);
        }
        if (im[d].rate > 0) {
            text_add(text, sizeof(text), " rate %gMbit", (double)im[d].rate / 1e6);
        }
        if (text[0] != '\0') {
            text_add(out, size, "%s%s%s", out[0] != '\0' ? ", " : "", dir_name[d], text);
        }
    }
    if (out[0] == '\0') {
        text_add(out, size, "healthy");
    }
}
