#include "r2_band.h"

#include <stdlib.h>
#include <string.h>

#include "base/r2_time.h"

#define FOLLOW 64 /* windows inside in which the middle goes to where they are */

enum r2_band_size r2_band_size(uint64_t bytes)
{
    return bytes <= 16 << 10    ? R2_BAND_16K
           : bytes <= 128 << 10 ? R2_BAND_128K
           : bytes <= 1 << 20   ? R2_BAND_1M
                                : R2_BAND_MORE;
}

const char *r2_band_size_name(unsigned size)
{
    static const char *const names[R2_BAND_SIZES] = {"16K", "128K", "1M", "more"};

    return size < R2_BAND_SIZES ? names[size] : "?";
}

const char *r2_band_state_name(unsigned state)
{
    static const char *const names[R2_BAND_STATES] = {"learning", "inside", "above", "below"};

    return state < R2_BAND_STATES ? names[state] : "?";
}

const char *r2_band_change_name(unsigned change)
{
    static const char *const names[R2_BAND_CHANGES] = {"none", "slower", "faster", "back", "usual"};

    return change < R2_BAND_CHANGES ? names[change] : "?";
}

/* Row: from. Nothing is outside of a band that is not learnt yet, and what has been outside for
 * long is learnt anew. */
bool r2_band_move(struct r2_band *b, enum r2_band_state to, uint64_t now)
{
    static const unsigned char legal[R2_BAND_STATES][R2_BAND_STATES] = {
        [R2_BAND_LEARNS] = {[R2_BAND_INSIDE] = 1},
        [R2_BAND_INSIDE] = {[R2_BAND_ABOVE] = 1, [R2_BAND_BELOW] = 1},
        [R2_BAND_ABOVE] = {[R2_BAND_LEARNS] = 1, [R2_BAND_INSIDE] = 1, [R2_BAND_BELOW] = 1},
        [R2_BAND_BELOW] = {[R2_BAND_LEARNS] = 1, [R2_BAND_INSIDE] = 1, [R2_BAND_ABOVE] = 1},
    };

    if (!legal[b->state][to]) {
        return false;
    }
    b->state = (uint8_t)to;
    b->since = now;
    b->row = 0;
    return true;
}

void r2_band_note(struct r2_band *b, uint64_t ns, uint64_t now)
{
    if (b->window.n == 0) {
        b->window.began = now;
    }
    b->window.ns[b->window.n++ % R2_BAND_KEEP] = ns;
    b->times++;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Half as much again, and never by less than the slack. */
void r2_band_bounds(const struct r2_band *b, uint64_t *low, uint64_t *high)
{
    uint64_t m = b->middle;

    *low = *high = 0;
    if (m) {
        uint64_t up = m / 2 > R2_BAND_SLACK ? m / 2 : R2_BAND_SLACK;
        uint64_t down = m / 3 > R2_BAND_SLACK ? m / 3 : R2_BAND_SLACK;

        *high = m + up;
        *low = m > down ? m - down : 0;
    }
}

/* Where @p50 is. Who is outside counts as inside again only half way back to the middle, so that
 * what is at the bound does not go to and fro. */
static enum r2_band_state place(const struct r2_band *b, uint64_t p50)
{
    uint64_t low, high;

    r2_band_bounds(b, &low, &high);
    if (b->state == R2_BAND_ABOVE) {
        high = b->middle + (high - b->middle) / 2;
    } else if (b->state == R2_BAND_BELOW) {
        low = b->middle - (b->middle - low) / 2;
    }
    return p50 > high ? R2_BAND_ABOVE : p50 < low ? R2_BAND_BELOW : R2_BAND_INSIDE;
}

static void learn(struct r2_band *b, uint64_t p50, uint64_t now)
{
    b->learnt[b->windows++] = p50;
    if (b->windows == R2_BAND_LEARN) {
        qsort(b->learnt, R2_BAND_LEARN, sizeof(b->learnt[0]), compare);
        b->middle = b->learnt[R2_BAND_LEARN / 2] ? b->learnt[R2_BAND_LEARN / 2] : 1;
        r2_band_move(b, R2_BAND_INSIDE, now);
    }
}

static void judge(struct r2_band *b, uint64_t p50, uint64_t now)
{
    enum r2_band_state is = place(b, p50);

    if (is == R2_BAND_INSIDE && b->state == R2_BAND_INSIDE) {
        b->middle = b->middle - b->middle / FOLLOW + p50 / FOLLOW;
    }
    if (is == b->state) {
        b->row = 0;
        return;
    }
    b->row = is == b->row_for ? (uint8_t)(b->row + 1) : 1;
    b->row_for = (uint8_t)is;
    if (b->row >= R2_BAND_ROW) {
        r2_band_move(b, is, now);
    }
}

static void window_end(struct r2_band *b, uint64_t now)
{
    uint32_t n = b->window.n < R2_BAND_KEEP ? b->window.n : R2_BAND_KEEP;

    qsort(b->window.ns, n, sizeof(b->window.ns[0]), compare);
    b->last.p50 = b->window.ns[(n - 1) / 2];
    b->last.p99 = b->window.ns[(99 * n + 99) / 100 - 1];
    b->last.n = n;
    b->last.at = now;
    b->window.n = 0;
    if (b->state == R2_BAND_LEARNS) {
        learn(b, b->last.p50, now);
    } else {
        judge(b, b->last.p50, now);
    }
}

static int window_due(const struct r2_band *b, uint64_t now)
{
    uint64_t age = r2_elapsed(now, b->window.began);

    return b->window.n >= R2_BAND_FEW &&
           age >= (b->window.n >= R2_BAND_TIMES ? R2_BAND_SHORTEST : R2_BAND_LONGEST);
}

/* It has been outside for so long that this is what it is now. */
static int is_usual(const struct r2_band *b, uint64_t now)
{
    return b->state > R2_BAND_INSIDE && r2_elapsed(now, b->since) >= R2_BAND_STAYS;
}

/* What the last announcement and the state make of each other. */
static enum r2_band_change due(const struct r2_band *b)
{
    switch (b->state) {
    case R2_BAND_ABOVE:
        return b->said == R2_BAND_ABOVE ? R2_BAND_NONE : R2_BAND_SLOWER;
    case R2_BAND_BELOW:
        return b->said == R2_BAND_BELOW ? R2_BAND_NONE : R2_BAND_FASTER;
    case R2_BAND_LEARNS:
        return R2_BAND_NONE;
    default:
        return b->said > R2_BAND_INSIDE ? R2_BAND_BACK : R2_BAND_NONE;
    }
}

enum r2_band_change r2_band_turn(struct r2_band *b, uint64_t now, int mute)
{
    enum r2_band_change change;

    if (window_due(b, now)) {
        window_end(b, now);
    }
    if (is_usual(b, now)) {
        change = b->said > R2_BAND_INSIDE ? R2_BAND_USUAL : R2_BAND_NONE;
        if (change && mute) {
            return R2_BAND_NONE;
        }
        r2_band_move(b, R2_BAND_LEARNS, now);
        b->windows = 0;
        b->middle = 0;
        b->said = R2_BAND_LEARNS;
        b->said_at = change ? now : b->said_at;
        return change;
    }
    change = due(b);
    if (change == R2_BAND_NONE || mute ||
        (b->said_at && r2_elapsed(now, b->said_at) < R2_BAND_PAUSE)) {
        return R2_BAND_NONE;
    }
    b->said = b->state;
    b->said_at = now;
    return change;
}
