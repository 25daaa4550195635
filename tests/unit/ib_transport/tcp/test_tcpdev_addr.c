/* Where a TCP device listens: how a peer is told, and streams over IPv6, link-local too. */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>

#include "ib_transport/tcp/tcpdev_addr.h"
#include "tests/unit/suite.h"
#include "tests/unit/tcpdev_rig.h"

static struct tcpdev_params params_of(const char *text, uint32_t scope)
{
    struct tcpdev_params p = {.scope = scope, .secret = {9, 8, 7, 6, 5, 4, 3, 2, 1, 10}};

    if (inet_pton(AF_INET, text, &p.addr) != 1) {
        ck_assert_int_eq(inet_pton(AF_INET6, text, &p.addr6), 1);
    }
    return p;
}

/* What @ours reads of where @peer listens. */
static int told(const struct tcpdev_params *ours, const struct tcpdev_params *peer, uint16_t port,
                union tcpdev_at *at, uint8_t secret[TCPDEV_SECRET_SIZE])
{
    uint8_t gid[16], second[16] = {0};

    tcpdev_addr_gid(peer, 0, gid);
    if (tcpdev_addr_gids(peer) > 1) {
        tcpdev_addr_gid(peer, 1, second);
    }
    return tcpdev_addr_read(ours, gid, second, port, at, secret);
}

static const struct {
    const char *ours, *peer;
    int rc;
} rows[] = {
    {"10.0.0.1", "10.0.0.2", 0},     {"fd00::1", "fd00::2", 0},
    {"fe80::1", "fe80::2", 0},       {"fd00::1", "fe80::2", 0},
    {"10.0.0.1", "fd00::2", EINVAL}, {"fd00::1", "10.0.0.2", EINVAL},
    {"fd00::1", "ff02::1", EINVAL},
};

START_TEST(a_peer_is_told)
{
    struct tcpdev_params ours = params_of(rows[_i].ours, 3), peer = params_of(rows[_i].peer, 8);
    uint8_t secret[TCPDEV_SECRET_SIZE];
    union tcpdev_at at, theirs;

    ck_assert_int_eq(told(&ours, &peer, 0xbeef, &at, secret), rows[_i].rc);
    ck_assert_int_eq(told(&ours, &peer, 0, &at, secret), EINVAL);
    if (rows[_i].rc) {
        return;
    }
    ck_assert_int_eq(told(&ours, &peer, 0xbeef, &at, secret), 0);
    ck_assert_mem_eq(secret, peer.secret, sizeof(secret));
    ck_assert_uint_eq(tcpdev_at_port(&at), 0xbeef);
    tcpdev_addr_ours(&peer, &theirs);
    ck_assert(!tcpdev_at_same(&at, &theirs)); /* which has no port */
    if (at.any.sa_family == AF_INET6) {
        theirs.in6.sin6_port = htons(0xbeef);
        ck_assert_uint_eq(at.in6.sin6_scope_id, 3); /* numbers of interfaces are a host's own */
    } else {
        theirs.in4.sin_port = htons(0xbeef);
    }
    ck_assert(tcpdev_at_same(&at, &theirs));
    ck_assert_uint_ne(tcpdev_addr_guid(&ours, 1), tcpdev_addr_guid(&peer, 1));
    ck_assert_uint_ne(tcpdev_addr_guid(&peer, 1), tcpdev_addr_guid(&peer, 2));
}
END_TEST

START_TEST(other_gids_are_refused)
{
    struct tcpdev_params ours = params_of("fd00::1", 1);
    uint8_t gid[16], second[16] = {0}, secret[TCPDEV_SECRET_SIZE];
    union tcpdev_at at;

    tcpdev_addr_gid(&ours, 0, gid);
    ck_assert_int_eq(tcpdev_addr_read(&ours, gid, second, 1, &at, secret), EINVAL); /* :: */
    tcpdev_addr_gid(&ours, 1, second);
    ck_assert_int_eq(tcpdev_addr_read(&ours, gid, second, 1, &at, secret), 0);
    gid[1] = '3';
    ck_assert_int_eq(tcpdev_addr_read(&ours, gid, second, 1, &at, secret), EINVAL);
}
END_TEST

/* --- devices --- */

/* Into the rig: ::1, or a link-local address of this host. False: there is none. */
static bool addr6_choose(bool link_local)
{
    struct ifaddrs *all;

    memset(&rig_addr6, 0, sizeof(rig_addr6));
    ck_assert_int_eq(getifaddrs(&all), 0);
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)(const void *)a->ifa_addr;

        if (s && s->sin6_family == AF_INET6 && (a->ifa_flags & IFF_UP) &&
            (link_local ? IN6_IS_ADDR_LINKLOCAL(&s->sin6_addr)
                        : IN6_IS_ADDR_LOOPBACK(&s->sin6_addr))) {
            rig_addr6 = s->sin6_addr;
            rig_scope = if_nametoindex(a->ifa_name);
        }
    }
    freeifaddrs(all);
    return !IN6_IS_ADDR_UNSPECIFIED(&rig_addr6);
}

#define LEN 300001

/* i: ::1; link-local */
START_TEST(streams_over_ip6)
{
    static uint8_t from[LEN], to[LEN];
    struct ibv_mr *mr[2];

    if (!addr6_choose(_i == 1)) {
        fprintf(stderr, "streams_over_ip6: skipped: this host has no %s address\n",
                _i ? "link-local IPv6" : "::1");
        return;
    }
    rig_pair(0);
    ck_assert_mem_eq(rig[0].second.raw, &rig_addr6, 16);
    rig_fill(from, LEN, 3);
    mr[0] = v.reg_mr(rig[0].pd, from, LEN, RIG_ACCESS);
    mr[1] = v.reg_mr(rig[1].pd, to, LEN, RIG_ACCESS);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 1, from, LEN, mr[0]->lkey, to, mr[1]->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_mem_eq(from, to, LEN);
    rig_fill(from, LEN, 4); /* the other end's requests have a stream of their own */
    ck_assert_int_eq(rig_post(1, IBV_WR_RDMA_READ, 2, to, 65536, mr[1]->lkey, from, mr[0]->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_wait(1).status, IBV_WC_SUCCESS);
    ck_assert_mem_eq(from, to, 65536);
    ck_assert_int_eq(v.dereg_mr(mr[0]), 0);
    ck_assert_int_eq(v.dereg_mr(mr[1]), 0);
    rig_close();
}
END_TEST

/* A device of IPv6 has no way to one of IPv4. */
START_TEST(families_do_not_mix)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .ah_attr = {.is_global = 1, .dlid = 1}};
    union ibv_gid four;

    rig_open(0);
    four = rig[1].gid;
    ck_assert_int_eq(v.query_gid(rig[0].ctx, 1, 1, &rig[0].second), EINVAL);
    rig_close();
    if (!addr6_choose(false)) {
        fprintf(stderr, "families_do_not_mix: skipped: this host has no ::1\n");
        return;
    }
    rig_open(0);
    rig_qp(0, 20);
    a.ah_attr.grh.dgid = four;
    ck_assert_int_eq(v.modify_qp(rig[0].qp, &a, IBV_QP_STATE), EINVAL);
    rig_close();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_peer_is_told, 0, sizeof(rows) / sizeof(rows[0]));
    tcase_add_test(t, other_gids_are_refused);
    tcase_add_loop_test(t, streams_over_ip6, 0, 2);
    tcase_add_test(t, families_do_not_mix);
}

int main(void)
{
    return suite_run("tcpdev_addr", 60, NULL, NULL, add);
}
