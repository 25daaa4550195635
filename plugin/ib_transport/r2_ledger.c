#include "r2_ledger.h"

#include <string.h>

static const char *const result_names[] = {"new",
                                           "complete",
                                           "duplicate",
                                           "out of window",
                                           "bad part",
                                           "beyond capacity",
                                           "with another part's size record",
                                           "over a path that, by S's list, carries none of it"};

const char *r2_ledger_result_name(enum r2_ledger_result r)
{
    return (unsigned)r < sizeof(result_names) / sizeof(result_names[0]) ? result_names[r] : "?";
}

void r2_ledger_init(struct r2_ledger *l)
{
    memset(l, 0, sizeof(*l));
}

enum r2_ledger_result r2_ledger_see(struct r2_ledger *l, uint16_t low, unsigned k, unsigned nparts)
{
    uint64_t seq = r2_ledger_seq(l, low);
    struct r2_ledger_entry *e;

    if (seq == UINT64_MAX) {
        return R2_LEDGER_WINDOW_ERR;
    }
    e = &l->entry[seq % R2_LEDGER_WINDOW];
    if (nparts == 0 || nparts > R2_MAX_PARTS || k >= nparts ||
        (e->nparts != 0 && e->nparts != nparts)) {
        return R2_LEDGER_PART_ERR;
    }
    if ((e->mask | e->seen) & (1u << k)) {
        return R2_LEDGER_DUPLICATE;
    }
    e->nparts = (uint8_t)nparts;
    e->seen |= (uint16_t)(1u << k);
    return R2_LEDGER_NEW;
}

void r2_ledger_unsee(struct r2_ledger *l, uint64_t seq, unsigned k)
{
    l->entry[seq % R2_LEDGER_WINDOW].seen &= (uint16_t) ~(1u << k);
}

unsigned r2_ledger_snapshot(const struct r2_ledger *l, uint64_t *base, uint16_t *mask, unsigned max)
{
    unsigned n = 0;

    *base = l->acked;
    for (uint64_t seq = l->acked; seq < l->rpost && n < max; seq++) {
        const struct r2_ledger_entry *e = &l->entry[seq % R2_LEDGER_WINDOW];

        mask[n++] = e->mask;
    }
    return n;
}
