#include "probe_verdict.h"

#include <stddef.h>

/* Sets of outcomes and of port states, a bit each. */
enum {
    NA = 1 << PROBE_NA,
    OK = 1 << PROBE_OK,
    REFUSED = 1 << PROBE_ERROR,
    SILENT = 1 << PROBE_TIMEOUT,
    FAIL = REFUSED | SILENT,
    ANY = NA | OK | FAIL,
    P_NA = 1 << PROBE_PORT_NA,
    UP = 1 << PROBE_PORT_UP,
    DOWN = 1 << PROBE_PORT_DOWN,
    GONE = 1 << PROBE_PORT_GONE,
};

struct end_row {
    uint8_t port, loop, aux;
};

/*
 * A way in which a component fails, alone: the outcomes that each fact can have then. NA is in
 * nearly every set, since nobody may have asked; a set without it needs the fact. Rows speak of our
 * end; those of its NIC and its link are the same with the ends exchanged.
 */
struct row {
    uint8_t blame;
    uint8_t direct, peer, others;
    struct end_row local, remote;
};

#define WELL                                                                                       \
    {                                                                                              \
        P_NA | UP, NA | OK, NA | OK                                                                \
    }
/* The channel may ride on what broke, so that no word comes. */
#define REPORT_MAY_COME (NA | OK | SILENT)

/* clang-format off */
static const struct row rows[] = {
    /* It answers, or nobody has tried. Whoever else does not answer is no matter of these two NICs ... */
    {PROBE_BLAME_NONE, NA | OK, NA | OK, ANY, {P_NA | UP, NA | OK, ANY}, {P_NA | UP, NA | OK, ANY}},
    /* ... and a loop that does not is a queue pair alone, unless nothing else that the NIC asks is answered either. */
    {PROBE_BLAME_NONE, OK, NA | OK, NA | OK, {P_NA | UP, ANY, NA | OK}, {P_NA | UP, ANY, NA | OK}},
    /* Removed or fatal. What calls do then differs: on Soft-RoCE even the loop goes on. */
    {PROBE_BLAME_LOCAL_NIC, NA | FAIL, REPORT_MAY_COME, NA | OK, {GONE, ANY, NA | FAIL}, WELL},
    /* Driver or firmware hangs: the port is still said to be up, nothing completes. */
    {PROBE_BLAME_LOCAL_NIC, NA | FAIL, REPORT_MAY_COME, NA | OK, {P_NA | UP, NA | FAIL, NA | FAIL}, WELL},
    /* The same, but it still acknowledges what the other end asks. */
    {PROBE_BLAME_LOCAL_NIC, OK, OK, NA | OK, {P_NA | UP, FAIL, NA | FAIL}, WELL},
    {PROBE_BLAME_LOCAL_NIC, OK, OK, NA | OK, {P_NA | UP, NA | FAIL, FAIL}, WELL},
    /* A device that says so is alive. Whether the loop passes a port that is down differs by NIC, and by how it went down. */
    {PROBE_BLAME_LOCAL_LINK, NA | FAIL, REPORT_MAY_COME, NA | OK, {P_NA | DOWN, ANY, NA | FAIL}, WELL},
    /* In one direction or both: a write needs its acknowledgement. */
    {PROBE_BLAME_LOCAL_LINK, NA | FAIL, REPORT_MAY_COME, NA | OK, {P_NA | UP, NA | OK, NA | FAIL}, WELL},
    /* These two NICs alone. */
    {PROBE_BLAME_PATH, NA | FAIL, REPORT_MAY_COME, NA | OK, WELL, WELL},
    /* The plane, or all there is. */
    {PROBE_BLAME_PATH, NA | FAIL, REPORT_MAY_COME, ANY, {P_NA | UP, NA | OK, NA | FAIL}, {P_NA | UP, NA | OK, NA | FAIL}},
    /* The switch that both are in lost its power, or one cable joins them. */
    {PROBE_BLAME_PATH, NA | FAIL, REPORT_MAY_COME, ANY, {DOWN, ANY, NA | FAIL}, {P_NA | DOWN, ANY, NA | FAIL}},
    {PROBE_BLAME_PATH, NA | FAIL, REPORT_MAY_COME, ANY, {P_NA | DOWN, ANY, NA | FAIL}, {DOWN, ANY, NA | FAIL}},
    /* Killed: its queue pairs went with it, perhaps just after one had answered; auxiliary ports may be its own. */
    {PROBE_BLAME_PEER, ANY, REFUSED, ANY, {P_NA | UP, NA | OK, ANY}, {P_NA | UP, NA | OK, ANY}},
    /* Stopped, or the channel alone is lost: its NICs answer. */
    {PROBE_BLAME_PEER, OK, SILENT, NA | OK, WELL, WELL},
    {PROBE_BLAME_PEER, NA, NA | SILENT, NA | OK, WELL, WELL},
    /* Its host is dead or cut off, or it was killed and nobody says so. */
    {PROBE_BLAME_PEER, NA | FAIL, NA | SILENT, NA | FAIL, {P_NA | UP, NA | OK, ANY}, {P_NA | UP, NA | OK, ANY}},
};
/* clang-format on */

static const char *const names[PROBE_BLAMES] = {
    [PROBE_BLAME_NONE] = "nothing",
    [PROBE_BLAME_LOCAL_NIC] = "our NIC",
    [PROBE_BLAME_LOCAL_LINK] = "our port or cable",
    [PROBE_BLAME_REMOTE_NIC] = "its NIC",
    [PROBE_BLAME_REMOTE_LINK] = "its port or cable",
    [PROBE_BLAME_PATH] = "the path between",
    [PROBE_BLAME_PEER] = "the peer's process or host",
    [PROBE_BLAME_UNKNOWN] = "unknown",
};

const char *probe_blame_name(enum probe_blame b)
{
    return (unsigned)b < PROBE_BLAMES ? names[b] : names[PROBE_BLAME_UNKNOWN];
}

enum probe_blame probe_blame_mirror(enum probe_blame b)
{
    switch (b) {
    case PROBE_BLAME_LOCAL_NIC:
        return PROBE_BLAME_REMOTE_NIC;
    case PROBE_BLAME_LOCAL_LINK:
        return PROBE_BLAME_REMOTE_LINK;
    case PROBE_BLAME_REMOTE_NIC:
        return PROBE_BLAME_LOCAL_NIC;
    case PROBE_BLAME_REMOTE_LINK:
        return PROBE_BLAME_LOCAL_LINK;
    default:
        return b;
    }
}

struct probe_facts probe_facts_mirror(const struct probe_facts *f)
{
    struct probe_facts m = *f;

    m.local = f->remote;
    m.remote = f->local;
    return m;
}

static uint8_t outcome_of(uint8_t o)
{
    return o < PROBE_OUTCOMES ? o : PROBE_NA;
}

static uint8_t outcome_of_several(uint8_t o, uint8_t n)
{
    o = outcome_of(o);
    return o == PROBE_OK || n >= PROBE_SEVERAL ? o : PROBE_NA;
}

static struct probe_end end_of(const struct probe_end *e)
{
    return (struct probe_end){
        .port = e->port < PROBE_PORTS ? e->port : PROBE_PORT_NA,
        .loop = outcome_of(e->loop),
        .aux = outcome_of_several(e->aux, e->aux_n),
    };
}

/* What counts. */
static struct probe_facts facts_of(const struct probe_facts *f)
{
    return (struct probe_facts){
        .direct = outcome_of(f->direct),
        .peer = outcome_of(f->peer),
        .others = outcome_of_several(f->others, f->others_n),
        .local = end_of(&f->local),
        .remote = end_of(&f->remote),
    };
}

static unsigned known(const struct probe_facts *f)
{
    return (f->direct != PROBE_NA) + (f->peer != PROBE_NA) + (f->others != PROBE_NA) +
           (f->local.port != PROBE_PORT_NA) + (f->local.loop != PROBE_NA) +
           (f->local.aux != PROBE_NA) + (f->remote.port != PROBE_PORT_NA) +
           (f->remote.loop != PROBE_NA) + (f->remote.aux != PROBE_NA);
}

static unsigned end_misfits(const struct end_row *r, const struct probe_end *e)
{
    return !(r->port >> e->port & 1) + !(r->loop >> e->loop & 1) + !(r->aux >> e->aux & 1);
}

/* How many facts @b cannot produce, in that way of failing which fits best. */
static unsigned misfits(enum probe_blame b, const struct probe_facts *facts)
{
    int far = b == PROBE_BLAME_REMOTE_NIC || b == PROBE_BLAME_REMOTE_LINK;
    struct probe_facts f = far ? probe_facts_mirror(facts) : *facts;
    unsigned best = UINT8_MAX;

    b = far ? probe_blame_mirror(b) : b;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        unsigned n;

        if (r->blame != b) {
            continue;
        }
        n = !(r->direct >> f.direct & 1) + !(r->peer >> f.peer & 1) + !(r->others >> f.others & 1) +
            end_misfits(&r->local, &f.local) + end_misfits(&r->remote, &f.remote);
        if (n < best) {
            best = n;
        }
    }
    return best;
}

static unsigned proved_at(const struct probe_end *e, uint8_t direct, enum probe_blame nic,
                          enum probe_blame link)
{
    if (e->port == PROBE_PORT_DOWN) {
        return 1u << link;
    }
    if (e->port == PROBE_PORT_GONE) {
        return 1u << nic;
    }
    if (e->port == PROBE_PORT_UP && (FAIL >> e->loop & 1) && direct != PROBE_OK &&
        e->aux != PROBE_OK) {
        return 1u << nic;
    }
    return 0;
}

static unsigned proved(const struct probe_facts *f)
{
    return proved_at(&f->local, f->direct, PROBE_BLAME_LOCAL_NIC, PROBE_BLAME_LOCAL_LINK) |
           proved_at(&f->remote, f->direct, PROBE_BLAME_REMOTE_NIC, PROBE_BLAME_REMOTE_LINK) |
           (f->peer == PROBE_ERROR ? 1u << PROBE_BLAME_PEER : 0);
}

static int single(unsigned set)
{
    return set != 0 && (set & (set - 1)) == 0;
}

struct probe_verdict probe_verdict(const struct probe_facts *facts)
{
    struct probe_facts f = facts_of(facts);
    unsigned left = 0, n = known(&f), sure = proved(&f), wrong;
    struct probe_verdict v = {.blame = PROBE_BLAME_UNKNOWN};

    for (enum probe_blame b = PROBE_BLAME_NONE; b < PROBE_BLAME_UNKNOWN; b++) {
        if (misfits(b, &f) == 0) {
            left |= 1u << b;
        }
    }
    v.several = left == 0;
    v.suspects = (uint8_t)(single(sure) ? sure : left | sure);
    if (!single(v.suspects)) {
        return v;
    }
    v.blame = (uint8_t)__builtin_ctz(v.suspects);
    wrong = misfits((enum probe_blame)v.blame, &f);
    v.confidence = (uint8_t)(100 * (n - wrong + 1) / (n + 2));
    return v;
}
