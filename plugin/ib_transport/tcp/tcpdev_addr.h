/*
 * Where a TCP device listens: IPv4 or IPv6, and how that goes to a peer, in GIDs and the LID, which
 * is the port. Pure.
 */
#ifndef TCPDEV_ADDR_H
#define TCPDEV_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "tcpdev.h"
#include "tcpdev_frame.h"

union tcpdev_at {
    struct sockaddr any;
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
};

bool tcpdev_addr_is_6(const struct tcpdev_params *p);
/* To bind to; port 0. */
void tcpdev_addr_ours(const struct tcpdev_params *p, union tcpdev_at *out);
socklen_t tcpdev_at_len(const union tcpdev_at *at);
uint16_t tcpdev_at_port(const union tcpdev_at *at); /* host order */
/* Whether both are one listener. */
bool tcpdev_at_same(const union tcpdev_at *a, const union tcpdev_at *b);

/* GIDs of the device, and the one with @index, which is below that. */
int tcpdev_addr_gids(const struct tcpdev_params *p);
void tcpdev_addr_gid(const struct tcpdev_params *p, int index, uint8_t out[16]);
/*
 * A peer's listener and its secret, as its GIDs and @port (host order) say; @second: zero where it
 * has one GID. A link-local address is on the link of our interface. EINVAL: it is no address of
 * such a device, or not of our family.
 */
int tcpdev_addr_read(const struct tcpdev_params *ours, const uint8_t gid[16],
                     const uint8_t second[16], uint16_t port, union tcpdev_at *out,
                     uint8_t secret[TCPDEV_SECRET_SIZE]);
/* Of the device that listens on @port. */
uint64_t tcpdev_addr_guid(const struct tcpdev_params *p, uint16_t port);

#endif
