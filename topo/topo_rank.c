#include "topo_rank.h"

static bool same_slot(const struct topo *t, int a, int b)
{
    const struct topo_pci *p, *q;

    if (a < 0 || b < 0 || t->nic[a].pci < 0 || t->nic[b].pci < 0) {
        return false;
    }
    p = &t->pci[t->nic[a].pci];
    q = &t->pci[t->nic[b].pci];
    return p->domain == q->domain && p->bus == q->bus && p->dev == q->dev;
}

/* topo_finish() has put the NICs into the order of their stable keys: the last word is the index.
 */
static bool better(const struct topo *t, int failed, const struct topo_choice *a,
                   const struct topo_choice *b)
{
    bool slot_a = same_slot(t, a->nic, failed), slot_b = same_slot(t, b->nic, failed);

    if (a->mbps != b->mbps) {
        return a->mbps > b->mbps;
    }
    if (a->class != b->class) {
        return a->class < b->class;
    }
    return slot_a != slot_b ? slot_b : a->nic < b->nic;
}

int topo_rank(const struct topo *t, struct topo_end from, int failed,
              struct topo_choice choices[TOPO_NICS_MAX])
{
    int n = 0;

    for (int nic = 0; nic < t->nics; nic++) {
        struct topo_choice c = {.nic = (int16_t)nic};
        struct topo_path path;
        int at = n;

        if (nic == failed) {
            continue;
        }
        if (topo_path_find(t, from, nic, &path) != 0) {
            return 0;
        }
        c.class = path.class;
        c.mbps = topo_path_nic_mbps(t, &path, nic);
        for (; at > 0 && better(t, failed, &c, &choices[at - 1]); at--) {
            choices[at] = choices[at - 1];
        }
        choices[at] = c;
        n++;
    }
    return n;
}
