#include "ib_way.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/r2_fnv.h"

#define LOW_BITS  4 /* of the label: the way; the ten above it: the two ports */
#define HIGH_MASK 0x3ffu

/* Of IB_WAY_PORT_MIN, whose low 14 bits make label 0, which is none: the top bits take the lowest
 * away again. */
#define LABEL_OF_MIN 0x4001u

static bool net_has(const struct ib_way_net *net, const uint8_t gid[16])
{
    unsigned whole = net->bits / 8, rest = net->bits % 8;

    return memcmp(net->gid, gid, whole) == 0 &&
           (rest == 0 || (net->gid[whole] ^ gid[whole]) >> (8 - rest) == 0);
}

static const struct ib_way_rule *rule_find(const struct ib_ways *w, const uint8_t gid[16],
                                           const uint8_t peer_gid[16])
{
    for (unsigned i = 0; w && i < w->rules; i++) {
        const struct ib_way_net *end = w->rule[i].end;

        if ((net_has(&end[0], gid) && net_has(&end[1], peer_gid)) ||
            (net_has(&end[1], gid) && net_has(&end[0], peer_gid))) {
            return &w->rule[i];
        }
    }
    return NULL;
}

unsigned ib_ways_unnamed(const struct ib_ways *w)
{
    return w ? w->n : IB_WAYS_DEFAULT;
}

unsigned ib_ways_count(const struct ib_ways *w, const uint8_t gid[16], const uint8_t peer_gid[16])
{
    const struct ib_way_rule *rule = rule_find(w, gid, peer_gid);

    return rule ? rule->ports : ib_ways_unnamed(w);
}

unsigned ib_ways_most(const struct ib_ways *w, const uint8_t gid[16])
{
    unsigned most = ib_ways_unnamed(w);

    for (unsigned i = 0; w && i < w->rules; i++) {
        const struct ib_way_rule *r = &w->rule[i];

        if (r->ports > most && (net_has(&r->end[0], gid) || net_has(&r->end[1], gid))) {
            most = r->ports;
        }
    }
    return most;
}

/* Index into the rule's ports. */
static unsigned index_of(const struct ib_way_rule *rule, unsigned way)
{
    return way ? (way - 1) % rule->ports : 0;
}

unsigned ib_way_fold(const struct ib_ways *w, unsigned way, const uint8_t gid[16],
                     const uint8_t peer_gid[16])
{
    const struct ib_way_rule *rule = rule_find(w, gid, peer_gid);

    return rule ? index_of(rule, way) + 1 : way;
}

static uint32_t label_of_port(uint16_t port)
{
    return port == IB_WAY_PORT_MIN ? LABEL_OF_MIN : port & 0x3fffu;
}

static uint32_t label_of_hash(unsigned way, const uint8_t gid[16], const uint8_t peer_gid[16])
{
    uint8_t both[16];
    uint32_t high;

    if (way == 0 || way > IB_WAYS_MAX) {
        return 0;
    }
    for (int i = 0; i < 16; i++) {
        both[i] = (uint8_t)(gid[i] ^ peer_gid[i]);
    }
    high = r2_fnv_add(R2_FNV_BASIS, both, sizeof(both));
    high = (high ^ high >> 10 ^ high >> 20) & HIGH_MASK;
    return (high ? high : 1) << LOW_BITS | (way - 1);
}

uint32_t ib_way_label(const struct ib_ways *w, unsigned way, const uint8_t gid[16],
                      const uint8_t peer_gid[16])
{
    const struct ib_way_rule *rule = rule_find(w, gid, peer_gid);

    return rule ? label_of_port(rule->port[index_of(rule, way)])
                : label_of_hash(way, gid, peer_gid);
}

uint16_t ib_way_udp_port(uint32_t label)
{
    return label ? (uint16_t)(0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f))) : 0;
}
