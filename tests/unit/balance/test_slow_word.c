/*
 * What a process says of its NIC to a host at the other end of a slow way (docs/health.md, "Whose
 * it is"): an instance that sends to five hosts over two NICs. What moves, and which ways are slow,
 * is the test's.
 */
#include "tests/unit/slowness_world.h"
#include "tests/unit/suite.h"

#include "plugin/balance/r2_slow.h"
#include "plugin/balance/r2_slow_whose.h"
#include "plugin/control/fo_proto.h"

static enum balance_slow_state state[FLOWS][2]; /* of the way to a host over a NIC */

enum balance_slow_state __wrap_r2_slow_state(const struct r2_pair *pair);
enum balance_slow_state __wrap_r2_slow_state(const struct r2_pair *pair)
{
    for (int i = 0; i < FLOWS; i++) {
        if (pair->peer == &flow[i].peer) {
            return pair->nic < 2 ? state[i][pair->nic] : BALANCE_SLOW_NO;
        }
    }
    return BALANCE_SLOW_NO;
}

/* What is said to the host of flow 0 of the first NIC. */
static unsigned said_of_it(void)
{
    static struct r2_slow_whose whose;
    struct r2_slow_claim claim = {0};
    struct r2_reader r;
    union fo_body b;
    const char *why = NULL;

    memset(&whose, 0, sizeof(whose));
    r2_slow_whose_claim(&whose, &flow[0].pair[0], &claim, now);
    r = (struct r2_reader){.p = flow[0].peer.out.buf,
                           .end = flow[0].peer.out.buf + flow[0].peer.out.len};
    ck_assert_int_eq(fo_unpack(&r, &b, &why), FO_MSG_LOAD);
    ck_assert_int_eq(fo_unpack(&r, &b, &why), 0);
    flow[0].peer.out.len = 0;
    ck_assert_uint_eq(b.load.nic, 0);
    ck_assert_uint_eq(b.load.at, 0); /* else older processes take the numbers */
    ck_assert_uint_eq(b.load.flags & FO_LOAD_SLOW, FO_LOAD_SLOW);
    return b.load.flags & ~(unsigned)FO_LOAD_SLOW;
}

/* What was sent to the host of flow @i over @nic arrived @ago. */
static void moved(int i, int nic, uint64_t ago)
{
    flow[i].comm->watch->load.moved_at[nic] = inst->watch.clock - ago;
}

static void start(void)
{
    memset(state, 0, sizeof(state));
    begin();
    inst->watch.clock = 100 * S;
    for (int i = 0; i < FLOWS; i++) {
        snprintf(flow[i].comm->far.host, sizeof(flow[i].comm->far.host), "%s", flow[i].peer.host);
        for (int n = 0; n < 2; n++) {
            flow[i].pair[n].next = inst->index.pairs;
            inst->index.pairs = &flow[i].pair[n];
        }
    }
    moved(0, 0, 0);
}

/* It carries for another host: over this NIC, lately, and what is no host of its own. */
START_TEST(what_it_carries)
{
    start();
    ck_assert_uint_eq(said_of_it(), 0);
    moved(1, 1, 0);
    ck_assert_uint_eq(said_of_it(), 0);
    moved(1, 0, BALANCE_WHOSE_FRESH + 1);
    ck_assert_uint_eq(said_of_it(), 0);
    moved(1, 0, BALANCE_WHOSE_FRESH);
    ck_assert_uint_eq(said_of_it(), FO_LOAD_WELL);
    snprintf(flow[1].comm->far.host, sizeof(flow[1].comm->far.host), "%s", inst->self.host);
    ck_assert_uint_eq(said_of_it(), 0);
    snprintf(flow[1].comm->far.host, sizeof(flow[1].comm->far.host), "%s", flow[0].peer.host);
    ck_assert_uint_eq(said_of_it(), 0);
    snprintf(flow[1].comm->far.host, sizeof(flow[1].comm->far.host), "%s", flow[1].peer.host);
    ck_assert_uint_eq(said_of_it(), FO_LOAD_WELL);
    flow[1].comm->conn.touched = 0; /* nothing is under way any more */
    ck_assert_uint_eq(said_of_it(), FO_LOAD_WELL);
    atomic_store(&flow[1].comm->state.close, R2_CLOSE_OPEN + 1);
    ck_assert_uint_eq(said_of_it(), 0);
    atomic_store(&flow[1].comm->state.close, R2_CLOSE_OPEN);
    end();
}
END_TEST

/* A way to another host is suspected; or it was slow when it carried last, and after a rest nobody
 * has spoken of it yet. */
START_TEST(a_way_that_is_not_well)
{
    enum balance_slow_state how = _i ? BALANCE_SLOW_YES : BALANCE_SLOW_SUSPECT;

    start();
    moved(1, 0, 0);
    state[0][0] = BALANCE_SLOW_YES; /* the way that is spoken of */
    state[1][1] = how;              /* another NIC's */
    ck_assert_uint_eq(said_of_it(), FO_LOAD_WELL);
    state[1][0] = how;
    ck_assert_uint_eq(said_of_it(), FO_LOAD_OTHERS);
    state[1][0] = BALANCE_SLOW_NO;
    state[2][0] = how;
    ck_assert_uint_eq(said_of_it(), FO_LOAD_OTHERS);
    snprintf(flow[2].peer.host, sizeof(flow[2].peer.host), "%s", flow[0].peer.host);
    ck_assert_uint_eq(said_of_it(), FO_LOAD_WELL); /* another process of that host */
    end();
}
END_TEST

/* A host without a name is nobody to tell apart: it is told nothing. */
START_TEST(a_host_without_a_name)
{
    static struct r2_slow_whose whose;
    struct r2_slow_claim claim = {0};

    start();
    flow[0].peer.host[0] = '\0';
    r2_slow_whose_claim(&whose, &flow[0].pair[0], &claim, now);
    r2_slow_whose_on(&whose, &flow[0].pair[0], NULL, FO_LOAD_SLOW | FO_LOAD_WELL, now);
    snprintf(flow[0].peer.host, sizeof(flow[0].peer.host), "%s", inst->self.host);
    r2_slow_whose_on(&whose, &flow[0].pair[0], NULL, FO_LOAD_SLOW | FO_LOAD_WELL, now);
    ck_assert_uint_eq(flow[0].peer.out.len, 0);
    ck_assert(!balance_whose_has_others(&whose.nic[0], 0, now));
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_it_carries);
    tcase_add_loop_test(t, a_way_that_is_not_well, 0, 2);
    tcase_add_test(t, a_host_without_a_name);
}

int main(void)
{
    return suite_run("slow: word", 60, NULL, NULL, add);
}
