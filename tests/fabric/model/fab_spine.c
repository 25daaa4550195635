/* The ways of a rail. */
#include "fab_spine.h"

#include <string.h>

#define SPORT_MIN 0xC000u

uint16_t fab_udp_sport(uint32_t label, uint32_t qpn, uint32_t peer_qpn)
{
    if (!label) {
        uint64_t v = (uint64_t)qpn * peer_qpn;

        v ^= v >> 20;
        v ^= v >> 40;
        label = (uint32_t)(v & 0xfffff);
    }
    return (uint16_t)(((label & 0x03fff) ^ ((label & 0xfc000) >> 14)) | SPORT_MIN);
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t address(const struct fab_addr *a)
{
    return (uint64_t)a->epoch << 32 | (uint64_t)a->host << 16 | a->nic;
}

uint64_t fab_spine_hash(const struct fab_hdr *h, enum fab_hash how)
{
    uint64_t a = address(&h->src), b = address(&h->dst);
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    uint64_t flow = (uint64_t)h->sport << 32 | (how == FAB_HASH_QP ? h->dst_qpn : 0);

    if (h->dlid) {
        return mix(h->dlid + 0x9e3779b97f4a7c15ull);
    }
    return mix(mix(mix(low + 0x9e3779b97f4a7c15ull) + high) + flow);
}

int fab_spine_pick(uint64_t hash, int spines, uint64_t down)
{
    int k = fab_spine_home(hash, spines);
    uint64_t all = spines == 64 ? UINT64_MAX : (1ull << spines) - 1, left = all & ~down;

    if (left >> k & 1) {
        return k;
    }
    if (!left) {
        return -1;
    }
    for (uint64_t n = mix(hash) % (uint64_t)__builtin_popcountll(left); n; n--) {
        left &= left - 1;
    }
    return __builtin_ctzll(left);
}

bool fab_spine_drops(bool blackhole, uint32_t loss_ppm, uint64_t rnd)
{
    return blackhole || (loss_ppm && (rnd & 0xffffffff) * 1000000ull >> 32 < loss_ppm);
}

static void spine_fault(struct fab_rail *r, int k, const struct fab_fault *fault)
{
    uint64_t bit = 1ull << k;

    switch (fault->kind) {
    case FAB_FAULT_DOWN:
        r->down |= bit;
        break;
    case FAB_FAULT_BLACKHOLE:
        r->blackhole |= bit;
        break;
    case FAB_FAULT_LOSS:
        r->loss_ppm[k] = (uint32_t)fault->value;
        break;
    case FAB_FAULT_RATE:
        r->rate[k] = fault->value;
        break;
    case FAB_FAULT_RESTORE:
        r->loss_ppm[k] = 0;
        r->rate[k] = 0;
        r->down &= ~bit;
        r->blackhole &= ~bit;
        break;
    case FAB_FAULT_UP:
        r->down &= ~bit;
        r->blackhole &= ~bit;
        break;
    default:
        break;
    }
}

void fab_rail_fault(struct fab_rail *r, int spines, const struct fab_fault *fault)
{
    bool all = fault->at == FAB_AT_NIC ? fault->kind == FAB_FAULT_RESTORE && fault->host < 0
                                       : fault->spine < 0;

    if (!all && fault->at == FAB_AT_NIC) {
        return;
    }
    for (int k = 0; k < spines; k++) {
        if (all || fault->spine == k) {
            spine_fault(r, k, fault);
        }
    }
}
