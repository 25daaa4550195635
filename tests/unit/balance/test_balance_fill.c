/* How flows are divided: against bounds that are found independently, and on the cases that
 * failures make. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "balance/balance_fill.h"
#include "tests/unit/suite.h"

#define PATHS 2048

static struct balance_path path[PATHS];
static struct balance_flow flow[256];
static uint32_t mbps[512], rate[PATHS], weight[PATHS];
static struct balance_net net;
static struct balance_result result;

static void begin(void)
{
    memset(path, 0, sizeof(path));
    net = (struct balance_net){.mbps = mbps, .path = path, .flow = flow};
}

static void flow_add(unsigned share)
{
    flow[net.flows++] = (struct balance_flow){.share = (uint16_t)share, .first = net.paths};
}

/* A path of the last flow over these resources, ended by -1. */
static void path_add(const int *res)
{
    struct balance_path *p = &path[net.paths++];

    for (; *res >= 0; res++) {
        p->res[p->n++] = (uint16_t)*res;
    }
    flow[net.flows - 1].n++;
}
#define PATH(...) path_add((const int[]){__VA_ARGS__, -1})

static uint64_t flow_rate(unsigned f)
{
    uint64_t sum = 0;

    for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
        sum += rate[p];
    }
    return sum;
}

/* What must hold of every result. */
static void fill(void)
{
    size_t size = balance_fill_size(&net);
    void *work = malloc(size);

    ck_assert(size > 0 && work != NULL);
    ck_assert_int_eq(balance_fill(&net, work, rate, weight, &result), 0);
    free(work);
    for (uint32_t r = 0; r < net.resources; r++) {
        uint64_t used = 0;

        for (uint32_t p = 0; p < net.paths; p++) {
            for (int i = 0; i < path[p].n; i++) {
                used += path[p].res[i] == r ? rate[p] : 0;
            }
        }
        ck_assert_msg(used <= mbps[r], "resource %u has %u, gives %lu", r, mbps[r],
                      (unsigned long)used);
    }
    for (uint32_t f = 0; f < net.flows; f++) {
        uint64_t sum = 0;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            sum += weight[p];
            /* weights are the rates' ratio, up to their rounding */
            if (flow_rate(f) > 100000) {
                ck_assert(labs((long)(weight[p] * flow_rate(f) / BALANCE_ONE) - (long)rate[p]) <=
                          (long)(flow_rate(f) / 16384 + 2));
            }
        }
        ck_assert_uint_eq(sum, BALANCE_ONE);
    }
    ck_assert(result.least <= result.bound * 1.000001);
}

static double least_get(void)
{
    double least = 1e18;

    for (uint32_t f = 0; f < net.flows; f++) {
        double one = (double)flow_rate(f) / flow[f].share;

        least = one < least ? one : least;
    }
    return least;
}

/* What nobody can exceed, from one set of prices of the resources: what everything costs by what
 * each flow pays at least. */
static double price_bound(const int *price)
{
    double all = 0, pay = 0;

    for (uint32_t r = 0; r < net.resources; r++) {
        all += (double)price[r] * mbps[r];
    }
    for (uint32_t f = 0; f < net.flows; f++) {
        int least = 1 << 20;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            int cost = 0;

            for (int i = 0; i < path[p].n; i++) {
                cost += price[path[p].res[i]];
            }
            least = cost < least ? cost : least;
        }
        pay += (double)least * flow[f].share;
    }
    return pay > 0 ? all / pay : 1e18;
}

/* The lowest bound of all prices 0 to @top. */
static double bound_get(int top)
{
    int price[8] = {0};
    double best = 1e18;

    for (;;) {
        uint32_t r = 0;
        double b;

        while (r < net.resources && price[r] == top) {
            price[r++] = 0;
        }
        if (r == net.resources) {
            return best;
        }
        price[r]++;
        b = price_bound(price);
        best = b < best ? b : best;
    }
}

static void random_net(unsigned seed)
{
    srandom(seed);
    begin();
    net.resources = 2 + (uint32_t)random() % 5;
    for (uint32_t r = 0; r < net.resources; r++) {
        mbps[r] = 50000 * (1 + (uint32_t)random() % 8);
    }
    for (int f = 1 + (int)(random() % 5); f > 0; f--) {
        flow_add(1 + (random() % 4 == 0));
        for (int k = 1 + (int)(random() % 4); k > 0; k--) {
            int res[4] = {-1, -1, -1, -1}, n = 0, want = 1 + (int)(random() % 3);

            for (uint32_t r = 0; r < net.resources && n < want; r++) {
                if (random() % 2 || net.resources - r <= (uint32_t)(want - n)) {
                    res[n++] = (int)r;
                }
            }
            path_add(res);
        }
    }
}

/* No assignment gives the one that gets least more than a few percent more: shown by bounds that
 * owe nothing to the code under test. */
START_TEST(nobody_could_get_more)
{
    int far = 0;

    for (unsigned seed = 0; seed < 400; seed++) {
        double bound;

        random_net(seed);
        fill();
        bound = bound_get(3);
        ck_assert_msg(least_get() <= bound * 1.0001, "seed %u: more than there is", seed);
        ck_assert_msg(least_get() >= result.least * 0.999, "seed %u: promised %g, gives %g", seed,
                      result.least, least_get());
        ck_assert_msg(least_get() >= bound * 0.9, "seed %u: %g of %g", seed, least_get(), bound);
        far += least_get() < bound * 0.975;
    }
    ck_assert_msg(far <= 12, "%d of 400 nets are more than 2.5 %% below", far);
}
END_TEST

/* 4 NICs, 3 left: each flow gets three quarters of what it had, and a third of it on each. */
START_TEST(one_nic_of_four_lost)
{
    for (int left = 4; left >= 3; left--) {
        begin();
        net.resources = 8;
        for (int n = 0; n < 4; n++) {
            mbps[n] = mbps[4 + n] = n < left ? 400000 : 0;
        }
        for (int f = 0; f < 4; f++) {
            flow_add(1);
            for (int n = 0; n < 4; n++) {
                PATH(n, 4 + n);
            }
        }
        fill();
        ck_assert(least_get() >= 0.98 * 100000 * left);
        for (uint32_t p = 0; p < net.paths; p++) {
            ck_assert_uint_le(
                weight[p],
                (uint32_t)(p % 4 < (uint32_t)left ? BALANCE_ONE / left + BALANCE_ONE / 50 : 0));
        }
    }
}
END_TEST

/* NICs of 400 and 200, of which one shares its uplink with another flow: in proportion to what each
 * can still take. */
START_TEST(unequal_paths)
{
    begin();
    net.resources = 2;
    mbps[0] = 400000, mbps[1] = 200000;
    flow_add(1);
    PATH(0);
    PATH(1);
    fill();
    ck_assert_uint_eq(rate[0] / 1000, 399); /* all that is all but full counts as full */
    ck_assert_uint_ge(rate[1], 199000);
    ck_assert_int_le(abs((int)weight[0] - 43691), 200);
    /* PIX 400 and PHB 234: equal parts would give 468 in all */
    mbps[1] = 234000;
    fill();
    ck_assert_uint_ge(rate[0] + rate[1], 620000);
}
END_TEST

/* Two flows that can both use NIC 1 share it so that the one that has nothing else loses nothing.
 */
START_TEST(the_rich_give_way)
{
    begin();
    net.resources = 2;
    mbps[0] = mbps[1] = 100000;
    flow_add(1);
    PATH(0);
    PATH(1);
    flow_add(1);
    PATH(1);
    fill();
    ck_assert(least_get() >= 98000);
    ck_assert_uint_le(weight[1], BALANCE_ONE / 40);
}
END_TEST

/* A link of 176 between sockets that three NICs are behind carries 176 altogether. */
START_TEST(shared_link)
{
    begin();
    net.resources = 5;
    for (int n = 0; n < 4; n++) {
        mbps[n] = 400000;
    }
    mbps[4] = 176000;
    flow_add(1);
    PATH(0);
    PATH(1, 4);
    PATH(2, 4);
    PATH(3, 4);
    fill();
    ck_assert(flow_rate(0) >= 565000 && flow_rate(0) <= 576000);
    ck_assert_uint_ge(rate[0], 395000);
}
END_TEST

START_TEST(leftovers_are_used)
{
    begin();
    net.resources = 3;
    mbps[0] = 10000, mbps[1] = 400000, mbps[2] = 400000;
    flow_add(1);
    PATH(0);
    flow_add(1);
    PATH(1);
    PATH(2);
    fill();
    ck_assert(flow_rate(0) >= 9990 && flow_rate(1) >= 790000);
}
END_TEST

START_TEST(nothing_left)
{
    begin();
    net.resources = 2;
    mbps[0] = 0, mbps[1] = 100000;
    flow_add(1);
    PATH(0);
    PATH(0, 1);
    PATH(0);
    flow_add(1);
    PATH(1);
    PATH(0);
    fill();
    ck_assert_uint_eq(flow_rate(0), 0);
    ck_assert_uint_eq(weight[0] / 10, 2184);
    ck_assert_uint_eq(weight[2] / 10, 2184);
    ck_assert_uint_eq(weight[3], BALANCE_ONE);
    ck_assert_uint_eq(weight[4], 0);
    mbps[1] = 0;
    fill();
    ck_assert_uint_eq(weight[3], BALANCE_ONE / 2);
    ck_assert(result.least == 0);
}
END_TEST

START_TEST(nets_that_cannot_be)
{
    begin();
    net.resources = 2;
    mbps[0] = mbps[1] = 5;
    flow_add(1);
    PATH(0, 1);
    ck_assert_uint_gt(balance_fill_size(&net), 0);
    path[0].res[1] = 2;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    ck_assert_int_eq(balance_fill(&net, rate, rate, weight, NULL), -1);
    path[0].res[1] = 0;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    path[0].res[1] = 1;
    flow[0].n = 2;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    flow[0].n = 0;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    flow[0].n = 1, flow[0].first = 1;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    flow[0].first = 0, flow[0].share = 0;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    flow[0].share = 1, mbps[0] = BALANCE_MBPS_MAX + 1;
    ck_assert_uint_eq(balance_fill_size(&net), 0);
    mbps[0] = BALANCE_MBPS_MAX;
    fill();
}
END_TEST

/* The largest net there may be stays within the sums' 64 bits. */
START_TEST(extremes)
{
    begin();
    net.resources = 3;
    mbps[0] = BALANCE_MBPS_MAX, mbps[1] = 1, mbps[2] = BALANCE_MBPS_MAX;
    for (int f = 0; f < 256; f++) {
        flow_add(f % 2 ? 256 : 1);
        for (int k = 0; k < 6; k++) {
            if (k % 3 == 0) {
                PATH(0);
            } else if (k % 3 == 1) {
                PATH(1, 2);
            } else {
                PATH(2);
            }
        }
    }
    fill();
    ck_assert(least_get() >= 0.95 * 2 * BALANCE_MBPS_MAX / (128 + 128 * 256));
}
END_TEST

START_TEST(plans_are_not_changed_for_little)
{
    static const uint32_t now[] = {40000, 25536, 0};

    ck_assert(!balance_weights_differ(now, (const uint32_t[]){40000, 25536, 0}, 3, 10));
    ck_assert(!balance_weights_differ(now, (const uint32_t[]){42000, 23536, 0}, 3, 10));
    ck_assert(balance_weights_differ(now, (const uint32_t[]){43000, 22536, 0}, 3, 10));
    ck_assert(!balance_weights_differ(now, (const uint32_t[]){40000, 25535, 1}, 3, 10));
    ck_assert(!balance_weights_differ(
        now, (const uint32_t[]){40000, 25536 - BALANCE_LITTLE, BALANCE_LITTLE}, 3, 10));
    ck_assert(balance_weights_differ(
        now, (const uint32_t[]){40000, 25536 - 2 * BALANCE_LITTLE, 2 * BALANCE_LITTLE}, 3, 10));
    ck_assert(!balance_weights_differ((const uint32_t[]){65396, 131, 9},
                                      (const uint32_t[]){65413, 116, 7}, 3, 10));
    ck_assert(balance_weights_differ(now, (const uint32_t[]){65536, 0, 0}, 3, 99));
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, nobody_could_get_more);
    tcase_add_test(c, one_nic_of_four_lost);
    tcase_add_test(c, unequal_paths);
    tcase_add_test(c, the_rich_give_way);
    tcase_add_test(c, shared_link);
    tcase_add_test(c, leftovers_are_used);
    tcase_add_test(c, nothing_left);
    tcase_add_test(c, nets_that_cannot_be);
    tcase_add_test(c, extremes);
    tcase_add_test(c, plans_are_not_changed_for_little);
}

int main(void)
{
    return suite_run("balance_fill", 120, NULL, NULL, add);
}
