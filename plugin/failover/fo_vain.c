/* Incarnations that stand and carry nothing, one after the other: their NIC pairs answer, and
 * nothing that the connection posts gets through. */
#include "fo_internal.h"

/* S: a part arrived. R: a control write did, which the watchdog's tick asks of each path that has
 * some unsignaled; what ends with the incarnation is not counted yet. */
static bool has_carried(const struct fo_conn *fc, int p)
{
    const struct ib_path *path = &fc->conn->path[p];

    return fc->tx ? path->count.bytes_done > 0 : path->count.cqes > 0;
}

bool fo_vain_on_lost(struct fo_conn *fc, int p, uint64_t now)
{
    bool carried = has_carried(fc, p);
    bool had_work = fc->conn->path[p].sq.used > 0 || fc->path[p].why.fault == IB_FAULT_WC;
    uint64_t got = fo_got_through(fc);

    if (fc->vain.at != got || carried) {
        fc->vain.at = got;
        fc->vain.since = 0;
    }
    if (carried || !had_work) {
        return 0;
    }
    if (fc->vain.since == 0) {
        fc->vain.since = now;
    }
    return 1;
}

uint64_t fo_vain_since(const struct fo_conn *fc)
{
    if (fc->vain.at != fo_got_through(fc)) {
        return 0;
    }
    for (uint32_t m = fc->conn->up; m; m &= m - 1) {
        if (has_carried(fc, __builtin_ctz(m))) {
            return 0;
        }
    }
    return fc->vain.since;
}
