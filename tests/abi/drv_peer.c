/* The other side on another machine: one TCP connection per case. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/abi/drv.h"

#define MEET_MS                                                                                    \
    30000 /* the other machine is as far in the list of cases as we are, or still starting */

/* Host and port of "HOST:PORT"; an empty host is this one. -1 when @text is something else. */
static int address_get(const char *text, int passive, struct addrinfo **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    const char *colon = strrchr(text, ':');
    char host[256];

    if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
        return -1;
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    return getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, out) == 0 ? 0 : -1;
}

int drv_peer_listen(const char *address)
{
    struct addrinfo *a;
    int fd, on = 1;

    if (address_get(address, 1, &a) != 0) {
        return -1;
    }
    fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
                    bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1) != 0)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(a);
    return fd;
}

int drv_peer_accept(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};

    return poll(&p, 1, MEET_MS) == 1 ? accept(listener, NULL, NULL) : -1;
}

int drv_peer_connect(const char *address)
{
    uint64_t end = drv_now_ms() + MEET_MS;
    struct addrinfo *a;
    int fd = -1;

    if (address_get(address, 0, &a) != 0) {
        return -1;
    }
    while (fd < 0 && drv_now_ms() < end) {
        fd = socket(a->ai_family, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
            poll(NULL, 0, 50); /* nobody listens there yet: TCP has no event for that */
        }
    }
    freeaddrinfo(a);
    return fd;
}
