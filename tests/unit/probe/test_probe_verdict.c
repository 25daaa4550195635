/* probe_verdict(): over all combinations of facts, and against a small world that breaks in one or
 * two places (verdict_world.h). Situations by name are in test_probe_verdict_named.c. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/suite.h"
#include "tests/unit/verdict_world.h"

/* As ck_assert_msg(), which notes its place each time: too slow for millions. */
#define hold(cond, ...)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

static const struct fault faults[] = {
    {ALL_WELL, 0, 0},
    {NIC_GONE, HA, 0},
    {NIC_GONE, HB, 0},
    {NIC_HANGS, HA, 0},
    {NIC_HANGS, HB, 0},
    {NIC_HALF_HANGS, HA, 0},
    {NIC_HALF_HANGS, HB, 0},
    {LINK_DOWN, HA, 0},
    {LINK_DOWN, HB, 0},
    {LINK_CUT, HA, 0},
    {LINK_CUT, HB, 0},
    {PAIR_CUT, 0, 0},
    {PLANE_CUT, 0, 0},
    {PLANE_CUT, 0, 1},
    {FABRIC_CUT, 0, 0},
    {SWITCH_OFF, 0, 0},
    {SWITCH_OFF, 1, 0},
    {SWITCH_OFF, 0, 1},
    {PROCESS_STOPPED, HA, 0},
    {PROCESS_STOPPED, HB, 0},
    {PROCESS_KILLED, HA, 0},
    {PROCESS_KILLED, HB, 0},
    {PROCESS_KILLED_LATE, HA, 0},
    {PROCESS_KILLED_LATE, HB, 0},
    {PROCESS_KILLED_SILENT, HA, 0},
    {PROCESS_KILLED_SILENT, HB, 0},
    {HOST_DEAD, HA, 0},
    {HOST_DEAD, HB, 0},
    {HOST_DEAD, HC, 0},
    {CHANNEL_CUT, 0, 0},
    {NIC_HANGS, HA, 1},
    {NIC_GONE, HB, 1},
    {LINK_CUT, HB, 2},
    {NIC_HALF_HANGS, HC, 0},
    {LINK_DOWN, HC, 0},
    {LINK_CUT, HD, 0},
    /* From here on alone, never the second of two: a queue pair of the loop that broke is made anew
     * before it counts (probe_verdict.h), and the others are many faults. */
    {LOOP_QP_BROKEN, HA, 0},
    {LOOP_QP_BROKEN, HB, 0},
    {OTHER_RAILS, 0, 0},
    {THIRD_HOSTS, 0, 0},
};
#define N_FAULTS  (sizeof(faults) / sizeof(faults[0]))
#define N_DOUBLES (N_FAULTS - 4)

/* The observer is there to observe. */
static int observes(struct fault f, int self)
{
    return f.host != self || f.kind < PROCESS_STOPPED || f.kind > HOST_DEAD;
}

/* Every view, numbered. */
static const unsigned view_sizes[] = {2, 2, 2, 2, 2, 3, 2, AUX_LAYOUTS, AUX_LAYOUTS, 3, 2, 4};
static int view_at(unsigned i, struct view *v)
{
    static const uint8_t loops_down[][2] = {{PROBE_OK, PROBE_OK},
                                            {PROBE_ERROR, PROBE_ERROR},
                                            {PROBE_OK, PROBE_TIMEOUT},
                                            {PROBE_TIMEOUT, PROBE_OK}};
    unsigned d[sizeof(view_sizes) / sizeof(view_sizes[0])];

    for (unsigned k = 0; k < sizeof(d) / sizeof(d[0]); k++) {
        d[k] = i % view_sizes[k];
        i /= view_sizes[k];
    }
    *v = (struct view){
        .self = (uint8_t)d[0],
        .ports = {(uint8_t)d[1], (uint8_t)d[2]},
        .loops = {(uint8_t)d[3], (uint8_t)d[4]},
        .direct = (uint8_t)d[5],
        .peer = (uint8_t)d[6],
        .aux = {(uint8_t)d[7], (uint8_t)d[8]},
        .others = (uint8_t)d[9],
        .channel_rides = (uint8_t)d[10],
        .down_loop = {loops_down[d[11]][0], loops_down[d[11]][1]},
    };
    return i == 0;
}

/* Facts as a number, with what says the same made the same: a probe refused or unanswered, and one
 * to a single port that is silent. */
#define KEYS (4 * 3 * 3 * 36 * 36)
static unsigned said(unsigned outcome)
{
    return outcome == PROBE_ERROR     ? PROBE_TIMEOUT - 1
           : outcome == PROBE_TIMEOUT ? PROBE_TIMEOUT - 1
                                      : outcome;
}

static unsigned said_by(unsigned outcome, unsigned n)
{
    return outcome == PROBE_OK || n >= 2 ? said(outcome) : PROBE_NA;
}

static unsigned end_key(const struct probe_end *e)
{
    return (e->port * 3 + said(e->loop)) * 3 + said_by(e->aux, e->aux_n);
}

static unsigned key_of(const struct probe_facts *f)
{
    return (((f->peer * 3 + said(f->direct)) * 3 + said_by(f->others, f->others_n)) * 36 +
            end_key(&f->local)) *
               36 +
           end_key(&f->remote);
}

/* What single faults give these facts: sets of enum probe_blame. */
static uint8_t must[KEYS], may[KEYS];

static int is_single(uint32_t set)
{
    return set != 0 && (set & (set - 1)) == 0;
}

/* The pair answers, and nobody was asked who could show what is broken beside: "nothing" is right,
 * too. */
static int silent(const struct probe_end *e)
{
    return e->aux == PROBE_TIMEOUT && e->aux_n >= 2;
}

static int unseen(struct fault t, const struct probe_facts *f)
{
    if (f->direct != PROBE_OK) {
        return 0;
    }
    return t.kind == NIC_HALF_HANGS
               ? f->local.loop != PROBE_TIMEOUT && f->remote.loop != PROBE_TIMEOUT &&
                     !silent(&f->local) && !silent(&f->remote)
               : t.kind >= PROCESS_STOPPED && t.kind <= CHANNEL_CUT && !f->peer;
}

/* Confidence where every fact that is known fits. */
static unsigned sure(const struct probe_facts *f)
{
    unsigned n =
        (f->direct != PROBE_NA) + (f->peer != PROBE_NA) + (said_by(f->others, f->others_n) != 0);

    for (int far = 0; far < 2; far++) {
        const struct probe_end *e = far ? &f->remote : &f->local;

        n += (e->port != PROBE_PORT_NA) + (e->loop != PROBE_NA) + (said_by(e->aux, e->aux_n) != 0);
    }
    return 100 * (n + 1) / (n + 2);
}

static int asked(const struct view *v)
{
    return v->direct == 1 || (v->direct == 2 && v->peer);
}

static void singles_learn(void)
{
    struct view v;

    for (unsigned i = 0; view_at(i, &v); i++) {
        for (unsigned k = 0; k < N_FAULTS; k++) {
            struct world w = {0};
            struct probe_facts f;
            uint32_t truth = truth_of(faults[k], v.self);
            uint8_t *to;

            if (!observes(faults[k], v.self) || (!asked(&v) && faults[k].kind == LOOP_QP_BROKEN)) {
                continue;
            }
            world_break(&w, faults[k]);
            f = facts_seen(&w, &v);
            to = must;
            /* A switch that is off breaks three things. */
            if (!is_single(truth) || unseen(faults[k], &f)) {
                to = may;
            }
            to[key_of(&f)] |= (uint8_t)truth;
        }
    }
}

/* Every single fault, from every point of view: the component, or unknown, and then only where
 * another single fault looks the same. */
START_TEST(single_faults)
{
    unsigned long named = 0, undecided = 0;
    struct view v;

    singles_learn();
    for (unsigned i = 0; view_at(i, &v); i++) {
        for (unsigned k = 0; k < N_FAULTS; k++) {
            struct world w = {0};
            struct probe_facts f;
            struct probe_verdict got;
            uint32_t truth = truth_of(faults[k], v.self), same;

            if (!observes(faults[k], v.self) || (!asked(&v) && faults[k].kind == LOOP_QP_BROKEN)) {
                continue;
            }
            world_break(&w, faults[k]);
            f = facts_seen(&w, &v);
            got = probe_verdict(&f);
            same = must[key_of(&f)] | may[key_of(&f)];
            hold((got.suspects & truth) || (unseen(faults[k], &f) && got.blame == PROBE_BLAME_NONE),
                 "%s at %u: %s", fault_names[faults[k].kind], faults[k].host, show(&f));
            hold(!got.several, "%s at %u: %s", fault_names[faults[k].kind], faults[k].host,
                 show(&f));
            if (got.blame == PROBE_BLAME_UNKNOWN) {
                undecided++;
                hold(!is_single(same), "%s at %u alone looks like this: %s",
                     fault_names[faults[k].kind], faults[k].host, show(&f));
            } else {
                named++;
                hold(!is_single(truth) || got.confidence == sure(&f), "%s at %u, confidence %u: %s",
                     fault_names[faults[k].kind], faults[k].host, got.confidence, show(&f));
            }
            hold((must[key_of(&f)] & ~got.suspects) == 0 && (got.suspects & ~same) == 0,
                 "%s at %u, single faults that look like this: %02x: %s",
                 fault_names[faults[k].kind], faults[k].host, same, show(&f));
        }
    }
    printf("single faults: %lu named, %lu that look like others\n", named, undecided);
    ck_assert_uint_gt(named, 0);
    ck_assert_uint_gt(undecided, 0);
}
END_TEST

/*
 * Both ends of the pair fail silently at once: so it looks when their plane does, and nobody can
 * tell. Where ports and loops are known, that is left to two cables alone.
 */
static int like_a_plane(struct fault a, struct fault b, const struct view *v)
{
    uint32_t ends =
        BIT(NIC_GONE) | BIT(NIC_HANGS) | BIT(NIC_HALF_HANGS) | BIT(LINK_DOWN) | BIT(LINK_CUT);

    if (v->loops[0] && v->loops[1]) {
        ends = BIT(LINK_CUT);
    }
    return (ends & BIT(a.kind)) && (ends & BIT(b.kind)) && a.host + b.host == HA + HB &&
           a.rail + b.rail == 0;
}

/* Every pair of faults: what is blamed is broken, or nothing is blamed, or one fault looks exactly
 * like these two. */
START_TEST(double_faults)
{
    unsigned long named = 0, undecided = 0, several = 0, twins = 0, cables = 0;
    struct view v;

    singles_learn();
    for (unsigned i = 0; view_at(i, &v); i++) {
        if (v.self == HB || v.direct == 2 || !v.peer || v.others == 1) {
            continue; /* HB: the faults of either end are all there; one other pair says no more
                         than none */
        }
        for (unsigned k = 0; k < N_DOUBLES * N_DOUBLES; k++) {
            struct fault a = faults[k / N_DOUBLES], b = faults[k % N_DOUBLES];
            struct world w = {0};
            struct probe_facts f;
            struct probe_verdict got;

            if (k % N_DOUBLES <= k / N_DOUBLES || !observes(a, v.self) || !observes(b, v.self)) {
                continue;
            }
            world_break(&w, a);
            world_break(&w, b);
            f = facts_seen(&w, &v);
            got = probe_verdict(&f);
            several += got.several;
            if (got.blame == PROBE_BLAME_UNKNOWN) {
                undecided++;
                continue;
            }
            named++;
            if (((truth_of(a, v.self) | truth_of(b, v.self)) & BIT(got.blame)) ||
                (got.blame == PROBE_BLAME_NONE && f.direct == PROBE_OK)) {
                continue;
            }
            hold(like_a_plane(a, b, &v) && got.blame == PROBE_BLAME_PATH &&
                     must[key_of(&f)] == B_(PATH),
                 "%s at %u.%u and %s at %u.%u: %s", fault_names[a.kind], a.host, a.rail,
                 fault_names[b.kind], b.host, b.rail, show(&f));
            twins++;
            cables += v.loops[0] && v.loops[1];
        }
    }
    printf(
        "double faults: %lu named, %lu not, %lu known to be several, %lu like a plane, %lu of them cables\n",
        named, undecided, several, twins, cables);
    ck_assert_uint_gt(cables, 0);
    ck_assert_uint_gt(several, 0);
}
END_TEST

static const uint8_t counts[] = {1, 2};

/* Every combination of facts: 2 million. */
static int facts_at(unsigned i, struct probe_facts *f)
{
    unsigned d[12];
    static const unsigned sizes[] = {4, 4, 4, 2, 4, 4, 4, 2, 4, 4, 4, 2};

    for (unsigned k = 0; k < 12; k++) {
        d[k] = i % sizes[k];
        i /= sizes[k];
    }
    *f = (struct probe_facts){
        .direct = (uint8_t)d[0],
        .peer = (uint8_t)d[1],
        .others = (uint8_t)d[2],
        .others_n = counts[d[3]],
        .local = {(uint8_t)d[4], (uint8_t)d[5], (uint8_t)d[6], counts[d[7]]},
        .remote = {(uint8_t)d[8], (uint8_t)d[9], (uint8_t)d[10], counts[d[11]]},
    };
    return i == 0;
}

static uint8_t mirrored(uint8_t suspects)
{
    uint8_t m = 0;

    for (enum probe_blame b = PROBE_BLAME_NONE; b < PROBE_BLAME_UNKNOWN; b++) {
        if (suspects & BIT(b)) {
            m |= (uint8_t)BIT(probe_blame_mirror(b));
        }
    }
    return m;
}

START_TEST(all_facts_seen_from_both_ends)
{
    unsigned blamed[PROBE_BLAMES] = {0}, several = 0;
    struct probe_facts f;

    for (unsigned i = 0; facts_at(i, &f); i++) {
        struct probe_facts m = probe_facts_mirror(&f), back = probe_facts_mirror(&m);
        struct probe_verdict v = probe_verdict(&f), o = probe_verdict(&m);

        if (memcmp(&back, &f, sizeof(f)) != 0 ||
            o.blame != probe_blame_mirror((enum probe_blame)v.blame) ||
            o.suspects != mirrored(v.suspects) || o.confidence != v.confidence ||
            o.several != v.several) {
            ck_abort_msg("the other end says otherwise: %s", show(&f));
        }
        if ((v.blame == PROBE_BLAME_UNKNOWN) == is_single(v.suspects) ||
            (v.blame == PROBE_BLAME_UNKNOWN) != (v.confidence == 0) || v.confidence > 100 ||
            (v.blame != PROBE_BLAME_UNKNOWN && v.suspects != BIT(v.blame)) ||
            (v.suspects & BIT(PROBE_BLAME_UNKNOWN)) || v.blame >= PROBE_BLAMES) {
            ck_abort_msg("blame, suspects and confidence %u do not fit: %s", v.confidence,
                         show(&f));
        }
        blamed[v.blame]++;
        several += v.several;
    }
    for (unsigned b = 0; b < PROBE_BLAMES; b++) {
        printf("%s: %u of all combinations\n", probe_blame_name((enum probe_blame)b), blamed[b]);
        ck_assert_uint_gt(blamed[b], 0);
    }
    ck_assert_uint_gt(several, 0);
}
END_TEST

/* A peer that said nothing has not said what it found, and who has tried its loop has looked at its
 * port. */
static int can_be(const struct probe_facts *f)
{
    return (f->peer == PROBE_OK || !(f->remote.port | f->remote.loop | f->remote.aux)) &&
           (f->local.port || !f->local.loop) && (f->remote.port || !f->remote.loop);
}

/* What each end says of itself, in words of its own. */
static int shows_broken(const struct probe_facts *f, uint8_t blame)
{
    const struct probe_end *e =
        blame == PROBE_BLAME_LOCAL_NIC || blame == PROBE_BLAME_LOCAL_LINK ? &f->local : &f->remote;

    if (blame == PROBE_BLAME_PEER) {
        return f->peer == PROBE_ERROR;
    }
    if (blame == PROBE_BLAME_LOCAL_NIC || blame == PROBE_BLAME_REMOTE_NIC) {
        return e->port == PROBE_PORT_GONE ||
               (e->port == PROBE_PORT_UP && (e->loop == PROBE_ERROR || e->loop == PROBE_TIMEOUT) &&
                f->direct != PROBE_OK && e->aux != PROBE_OK);
    }
    return (blame == PROBE_BLAME_LOCAL_LINK || blame == PROBE_BLAME_REMOTE_LINK) &&
           e->port == PROBE_PORT_DOWN;
}

/*
 * Facts that no single fault gives: then nothing but what an end says of itself is blamed, and
 * never against what another says of itself; NONE, where the pair answers.
 */
START_TEST(facts_that_no_single_fault_gives)
{
    unsigned n = 0, proved = 0;
    struct probe_facts f;

    singles_learn();
    for (unsigned i = 0; facts_at(i, &f); i++) {
        struct probe_verdict v = probe_verdict(&f);
        unsigned shown = 0;

        for (uint8_t b = PROBE_BLAME_NONE; b < PROBE_BLAME_UNKNOWN; b++) {
            shown |= shows_broken(&f, b) ? BIT(b) : 0;
        }
        if (shown & ~(unsigned)v.suspects) {
            ck_abort_msg("a proof is overruled (%02x): %s", shown, show(&f));
        }
        if ((must[key_of(&f)] | may[key_of(&f)]) != 0 || !can_be(&f)) {
            continue;
        }
        n++;
        hold(v.several || (f.direct == PROBE_OK && (v.suspects & B_(NONE))) || process_ended(&f),
             "no single fault explains these facts: %s", show(&f));
        if (v.blame == PROBE_BLAME_UNKNOWN ||
            (v.blame == PROBE_BLAME_NONE && f.direct == PROBE_OK)) {
            continue;
        }
        if (shown != BIT(v.blame)) {
            ck_abort_msg("no fault explains these facts: %s", show(&f));
        }
        proved++;
    }
    printf("no single fault: %u, something proved in %u\n", n, proved);
    ck_assert_uint_gt(proved, 0);
}
END_TEST

/* How a probe fails says nothing, and neither does a single auxiliary port, or a number out of
 * range. */
START_TEST(what_says_the_same)
{
    struct probe_facts f;

    for (unsigned i = 0; facts_at(i, &f); i++) {
        struct probe_facts g = f;
        struct probe_verdict a = probe_verdict(&f), b;
        uint8_t *o[] = {&g.direct,    &g.others,      &g.local.loop,
                        &g.local.aux, &g.remote.loop, &g.remote.aux};

        for (unsigned k = 0; k < sizeof(o) / sizeof(o[0]); k++) {
            *o[k] = *o[k] == PROBE_ERROR ? PROBE_TIMEOUT
                    : *o[k] == PROBE_NA  ? PROBE_OUTCOMES + k
                                         : *o[k];
        }
        g.peer = f.peer == PROBE_NA ? 255 : f.peer;
        g.local.port = f.local.port == PROBE_PORT_NA ? PROBE_PORTS : f.local.port;
        g.remote.port = f.remote.port == PROBE_PORT_NA ? 255 : f.remote.port;
        g.others = f.others != PROBE_OK && f.others_n < 2 ? PROBE_NA : g.others;
        g.local.aux = f.local.aux != PROBE_OK && f.local.aux_n < 2 ? PROBE_NA : g.local.aux;
        g.remote.aux_n = f.remote.aux_n == 2 ? 255 : f.remote.aux_n;
        b = probe_verdict(&g);
        if (memcmp(&a, &b, sizeof(a)) != 0) {
            ck_abort_msg("not the same as with numbers out of range: %s", show(&f));
        }
    }
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, single_faults);
    tcase_add_test(t, facts_that_no_single_fault_gives);
    tcase_add_test(t, what_says_the_same);
    tcase_add_test(t, all_facts_seen_from_both_ends);
    tcase_add_test(t, double_faults);
}

int main(void)
{
    return suite_run("probe_verdict", 550, NULL, NULL, tests_add);
}
