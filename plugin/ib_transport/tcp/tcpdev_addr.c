/*
 * Where a TCP device listens, as its GIDs have it. Of IPv4: "r2", secret, address. Of IPv6, whose
 * addresses fill a GID: "r6", secret, four bytes 0; and the address as the second one.
 */
#include "tcpdev_addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/r2_siphash.h"

#define SECRET_AT 2
#define ADDR_AT   (SECRET_AT + TCPDEV_SECRET_SIZE)

bool tcpdev_addr_is_6(const struct tcpdev_params *p)
{
    return !IN6_IS_ADDR_UNSPECIFIED(&p->addr6);
}

void tcpdev_addr_ours(const struct tcpdev_params *p, union tcpdev_at *out)
{
    memset(out, 0, sizeof(*out));
    if (tcpdev_addr_is_6(p)) {
        out->in6 = (struct sockaddr_in6){
            .sin6_family = AF_INET6, .sin6_addr = p->addr6, .sin6_scope_id = p->scope};
    } else {
        out->in4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = p->addr};
    }
}

socklen_t tcpdev_at_len(const union tcpdev_at *at)
{
    return at->any.sa_family == AF_INET6 ? sizeof(at->in6) : sizeof(at->in4);
}

uint16_t tcpdev_at_port(const union tcpdev_at *at)
{
    return ntohs(at->any.sa_family == AF_INET6 ? at->in6.sin6_port : at->in4.sin_port);
}

bool tcpdev_at_same(const union tcpdev_at *a, const union tcpdev_at *b)
{
    if (a->any.sa_family != b->any.sa_family || tcpdev_at_port(a) != tcpdev_at_port(b)) {
        return false;
    }
    return a->any.sa_family == AF_INET6
               ? memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0
               : a->in4.sin_addr.s_addr == b->in4.sin_addr.s_addr;
}

int tcpdev_addr_gids(const struct tcpdev_params *p)
{
    return tcpdev_addr_is_6(p) ? 2 : 1;
}

void tcpdev_addr_gid(const struct tcpdev_params *p, int index, uint8_t out[16])
{
    if (index == 1) {
        memcpy(out, &p->addr6, 16);
        return;
    }
    memset(out, 0, 16);
    out[0] = 'r';
    out[1] = tcpdev_addr_is_6(p) ? '6' : '2';
    memcpy(out + SECRET_AT, p->secret, TCPDEV_SECRET_SIZE);
    if (!tcpdev_addr_is_6(p)) {
        memcpy(out + ADDR_AT, &p->addr, sizeof(p->addr));
    }
}

int tcpdev_addr_read(const struct tcpdev_params *ours, const uint8_t gid[16],
                     const uint8_t second[16], uint16_t port, union tcpdev_at *out,
                     uint8_t secret[TCPDEV_SECRET_SIZE])
{
    struct tcpdev_params peer = {.scope = ours->scope};
    bool six = tcpdev_addr_is_6(ours);

    if (gid[0] != 'r' || gid[1] != (six ? '6' : '2') || port == 0) {
        return EINVAL; /* no address of such a device, or none that ours reaches */
    }
    if (six) {
        memcpy(&peer.addr6, second, sizeof(peer.addr6));
    } else {
        memcpy(&peer.addr, gid + ADDR_AT, sizeof(peer.addr));
    }
    if (six != tcpdev_addr_is_6(&peer) || IN6_IS_ADDR_MULTICAST(&peer.addr6)) {
        return EINVAL;
    }
    tcpdev_addr_ours(&peer, out);
    if (six) {
        out->in6.sin6_port = htons(port);
    } else {
        out->in4.sin_port = htons(port);
    }
    memcpy(secret, gid + SECRET_AT, TCPDEV_SECRET_SIZE);
    return 0;
}

uint64_t tcpdev_addr_guid(const struct tcpdev_params *p, uint16_t port)
{
    const struct r2_siphash_key key = {0, 0};
    uint8_t at[18] = {(uint8_t)port, (uint8_t)(port >> 8)};

    if (!tcpdev_addr_is_6(p)) {
        return (uint64_t)p->addr.s_addr << 32 | port;
    }
    memcpy(at + 2, &p->addr6, 16);
    return r2_siphash(key, at, sizeof(at));
}
