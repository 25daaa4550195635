#include "ib_speed.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Per lane, by bit: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR. Rounded as NCCL rounds, so that
 * both rank NICs alike. */
static const int lane_mbps[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000};
/* Lanes, by bit. */
static const int lanes[] = {1, 4, 8, 12, 2};

static int table_at(const int *table, size_t n, int bits)
{
    int i = ffs(bits) - 1;

    return i >= 0 && (size_t)i < n ? table[i] : 0;
}

int ib_speed_mbps(int active_speed, int active_width)
{
    return table_at(lane_mbps, sizeof(lane_mbps) / sizeof(lane_mbps[0]), active_speed) *
           table_at(lanes, sizeof(lanes) / sizeof(lanes[0]), active_width);
}

int ib_name_trailing_number(const char *name)
{
    size_t end = strlen(name), i = end;
    int v = 0;

    while (i > 0 && name[i - 1] >= '0' && name[i - 1] <= '9') {
        i--;
    }
    if (i == end || end - i > 6) {
        return -1;
    }
    for (; i < end; i++) {
        v = v * 10 + (name[i] - '0');
    }
    return v;
}
