#include "probe_seen.h"

/* Where the component is near: what must answer, what must not, what says nothing. */
static const char expected[PROBE_CODES][PROBE_POINTS + 1] = {
    [PROBE_CODE_N01] = "---+++", [PROBE_CODE_N02] = "---+++", [PROBE_CODE_L01] = "-+-+++",
    [PROBE_CODE_L02] = "-+-+++", [PROBE_CODE_F01] = "-+++++", [PROBE_CODE_F02] = "-+-+-+",
    [PROBE_CODE_P02] = "+++  +", [PROBE_CODE_P03] = "-++  -",
};

static enum probe_point mirror(enum probe_point p)
{
    switch (p) {
    case PROBE_POINT_NEAR_LOOP:
        return PROBE_POINT_FAR_LOOP;
    case PROBE_POINT_NEAR_AUX:
        return PROBE_POINT_FAR_AUX;
    case PROBE_POINT_FAR_LOOP:
        return PROBE_POINT_NEAR_LOOP;
    case PROBE_POINT_FAR_AUX:
        return PROBE_POINT_NEAR_AUX;
    default:
        return p;
    }
}

void probe_seen_add(struct probe_seen *s, enum probe_code code, enum probe_blame blame,
                    enum probe_point point, uint8_t outcome)
{
    int far = blame == PROBE_BLAME_REMOTE_NIC || blame == PROBE_BLAME_REMOTE_LINK;
    char want;

    if ((unsigned)code >= PROBE_CODES || (unsigned)point >= PROBE_POINTS || outcome == PROBE_NA ||
        outcome >= PROBE_OUTCOMES) {
        return;
    }
    want = expected[code][far ? mirror(point) : point];
    if (want != '+' && want != '-') {
        return;
    }
    s->of++;
    s->by += (outcome == PROBE_OK) == (want == '+');
}
