#include "balance_room.h"

#define LEAST 32 /* of this many parts of a port one is always left */

/* Whether @a is a part of @b, 1 of @parts or more. */
static bool is_part(uint64_t a, uint64_t b, uint64_t parts)
{
    return a >= b / parts + (b % parts != 0);
}

/* --- S --- */

static bool is_bound(const struct balance_room_facts *f)
{
    return f->home < BALANCE_ROOM_LEAST ? f->is_making
                                        : is_part(f->bound, f->home, f->is_making ? 64 : 16);
}

static bool is_taken(uint32_t first, uint32_t now, bool was)
{
    return first > now && now != 0 && is_part(first - now, first, was ? 16 : 8);
}

bool balance_room_is_bound(uint64_t all, uint64_t bound, bool is_used)
{
    return bound > 0 && is_part(bound, all, is_used ? 16 : 64);
}

bool balance_room_wants(const struct balance_room_facts *f)
{
    bool here = f->some_stand_in && is_bound(f), emptier = f->elsewhere < f->home - f->home / 5;

    return (here && (f->is_making || emptier)) || is_taken(f->first, f->now, f->is_making);
}

/* --- R --- */

static double load(const struct balance_in *in, uint64_t bytes)
{
    return (double)bytes / in->mbps;
}

/* Whether some NIC of @nics has less than four fifths of what NIC @k has. */
static bool has_emptier(const struct balance_in *in, int n, uint32_t nics, int k)
{
    for (int i = 0; i < n; i++) {
        if (i != k && (nics >> i & 1) && in[i].mbps &&
            load(&in[i], in[i].all) < 0.8 * load(&in[k], in[k].all)) {
            return true;
        }
    }
    return false;
}

uint32_t balance_room_crowded(const struct balance_in *in, int n, uint32_t nics, uint32_t was)
{
    uint32_t crowded = 0;

    for (int i = 0; i < n; i++) {
        bool is = was >> i & 1;

        if (in[i].mbps == 0) {
            is = false;
        } else if (in[i].all >= BALANCE_ROOM_LEAST) {
            is =
                is_part(in[i].bound, in[i].all, is ? 32 : 8) && (is || has_emptier(in, n, nics, i));
        }
        crowded |= (uint32_t)is << i;
    }
    return crowded;
}

/* NICs that have more than the level take nothing: it rises with each that is left out. */
double balance_room_level(const struct balance_in *in, uint32_t nics, uint64_t move)
{
    double level = 0;

    for (uint32_t taking = move ? nics : 0, next; taking; taking = next) {
        double bytes = (double)move, mbps = 0;

        next = 0;
        for (uint32_t m = taking; m; m &= m - 1) {
            const struct balance_in *i = &in[__builtin_ctz(m)];

            bytes += i->mbps ? (double)i->fixed : 0;
            mbps += i->mbps;
        }
        level = mbps > 0 ? bytes / mbps : 0;
        for (uint32_t m = taking; m && level > 0; m &= m - 1) {
            const struct balance_in *i = &in[__builtin_ctz(m)];

            next |= i->mbps && load(i, i->fixed) < level ? m & -m : 0;
        }
        if (next == taking) {
            break;
        }
    }
    return level;
}

/* What the sender would have of a NIC at that level, by its rate. */
static double room(const struct balance_in *in, double level, double part, uint64_t own)
{
    double free = level - load(in, in->fixed);

    return (free > 0 ? free * part : 0) + load(in, own);
}

void balance_room_left(const struct balance_in *in, int n, uint32_t nics, uint32_t crowded,
                       double level, const struct balance_room_sender *s, uint32_t *left)
{
    double most = 0;

    for (int i = 0; i < n; i++) {
        double r = (nics >> i & 1) && in[i].mbps ? room(&in[i], level, s->part, s->own[i]) : 0;

        most = r > most ? r : most;
    }
    for (int i = 0; i < n; i++) {
        left[i] = in[i].mbps;
        if ((crowded >> i & 1) && in[i].mbps && level > 0 && s->part > 0 && most > 0) {
            double part = room(&in[i], level, s->part, s->own[i]) / most;
            uint32_t least = in[i].mbps / LEAST + (in[i].mbps % LEAST != 0);

            left[i] = part < 1 ? (uint32_t)(in[i].mbps * part) : in[i].mbps;
            left[i] = left[i] > least ? left[i] : least;
        }
    }
}

bool balance_room_is_news(uint32_t told, uint32_t left, uint32_t mbps)
{
    uint32_t differ = told > left ? told - left : left - told;

    return differ != 0 && (left == mbps || is_part(differ, mbps, 10));
}
