/* A proxy before end 1's device, which cuts, stalls and garbles: for test_tcpdev_stream.c. */
#ifndef TCPDEV_PROXY_H
#define TCPDEV_PROXY_H

#include <netinet/tcp.h>

#include "tests/unit/tcpdev_rig.h"

struct proxy {
    pthread_t thread;
    int listen_fd;
    uint16_t port;
    _Atomic int stop, cut, stall, deaf, shared, garble,
        pieces; /* orders; cut: each connection, once; garble: a byte of
           what the listener answers, which is heads alone */
    _Atomic int carried, cuts, garbled, dropped;
    _Atomic uint64_t bytes;
    _Atomic uint64_t stall_at; /* stalls by itself behind so many bytes; 0: by order alone */
};

static int proxy_connect(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* One connection until it ends; true: by order. */
static void proxy_carry(struct proxy *p, int a, int b)
{
    static _Thread_local uint8_t buf[16384];
    struct pollfd f[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};

    while (!p->stop) {
        if (atomic_exchange(&p->cut, 0)) {
            struct linger hard = {1, 0};

            setsockopt(a, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
            setsockopt(b, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
            if (p->shared) { /* a child has them, too */
                shutdown(a, SHUT_RDWR);
                shutdown(b, SHUT_RDWR);
            }
            p->cuts++;
            return;
        }
        if (p->stall || poll(f, 2, 1) <= 0) {
            poll(NULL, 0, 1);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            ssize_t n = f[i].revents ? recv(f[i].fd, buf, sizeof(buf), 0) : 1, put = 0;

            if (n <= 0) {
                return;
            }
            if (!f[i].revents) {
                continue;
            }
            if (i == 1 && atomic_exchange(&p->garble, 0)) {
                buf[n / 2] ^= 0x40;
                p->garbled++;
            }
            p->bytes += (uint64_t)n;
            if (p->stall_at && p->bytes >= p->stall_at) {
                p->stall = 1;
                p->stall_at = 0;
            }
            if (i == 1 && p->deaf) { /* what the listener answers is lost */
                p->dropped += (int)n;
                continue;
            }
            while (put < n) {
                size_t most =
                    p->pieces && n - put > p->pieces ? (size_t)p->pieces : (size_t)(n - put);
                ssize_t m = send(f[!i].fd, buf + put, most, MSG_NOSIGNAL);

                if (m <= 0) {
                    return;
                }
                put += m;
            }
        }
    }
}

static void *proxy_run(void *arg)
{
    struct proxy *p = arg;
    int a, b;

    while (!p->stop) {
        struct pollfd f = {.fd = p->listen_fd, .events = POLLIN};

        if (poll(&f, 1, 1) <= 0 || (a = accept(p->listen_fd, NULL, NULL)) < 0) {
            continue;
        }
        b = proxy_connect(rig[1].lid);
        p->carried++;
        if (b >= 0) {
            proxy_carry(p, a, b);
            close(b);
        }
        close(a);
    }
    return NULL;
}

static void proxy_start(struct proxy *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);

    memset(p, 0, sizeof(*p));
    p->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(p->listen_fd, (struct sockaddr *)&a, len), 0);
    ck_assert_int_eq(listen(p->listen_fd, 16), 0);
    ck_assert_int_eq(getsockname(p->listen_fd, (struct sockaddr *)&a, &len), 0);
    p->port = ntohs(a.sin_port);
    ck_assert_int_eq(pthread_create(&p->thread, NULL, proxy_run, p), 0);
}

static void proxy_stop(struct proxy *p)
{
    p->stop = 1;
    pthread_join(p->thread, NULL);
    close(p->listen_fd);
}

#endif
