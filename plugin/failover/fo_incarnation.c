#include "fo_incarnation.h"

static const char *const names[FO_STATE_COUNT] = {"NONE", "UP", "DOWN", "FENCED"};

/* Row: from. A path that could not be built goes to FENCED at once: nothing was ever posted on it.
 */
static const unsigned char legal[FO_STATE_COUNT][FO_STATE_COUNT] = {
    [FO_NONE] = {[FO_UP] = 1, [FO_FENCED] = 1},
    [FO_UP] = {[FO_DOWN] = 1},
    [FO_DOWN] = {[FO_FENCED] = 1},
    [FO_FENCED] = {0},
};

const char *fo_state_name(enum fo_state s)
{
    return (unsigned)s < FO_STATE_COUNT ? names[s] : "?";
}

int fo_incarnation_move(enum fo_state *s, enum fo_state to)
{
    if ((unsigned)to >= FO_STATE_COUNT || !legal[*s][to]) {
        return 0;
    }
    *s = to;
    return 1;
}
