/*
 * Strangers at out-of-band ports of a running job (tests/e2e/strangers.sh): intruder SECONDS
 * PORT...
 *
 * For every port a process of each kind, at the same time, all of them on 127.0.0.1, until the time
 * is over or nobody listens there any more. In the end a line "KIND PORT COUNT" each: what was
 * delivered, which is for
 *
 *   garbage  bytes of another protocol
 *   silent   connections that say nothing and stay, SILENT of them at a time
 *   secret   a hello to the right process, then a proof by a wrong secret
 *   half     half a hello, or a hello and half an AUTH, then closed
 *   storm    connections that are closed at once
 *
 * The uuid that a hello must have is no secret: a hello for another process is refused by name.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "oob/oob_wire.h"

#define PORTS 8
#define SILENT                                                                                     \
    80 /* more than the 64 places of an endpoint with 512 descriptors: it throws the oldest out */
#define PAUSE 4000 /* us between two of a kind: the job needs the processors, too */

enum kind { GARBAGE, SECRET, HALF, QUIET, STORM, KINDS };
static const char *const names[KINDS] = {"garbage", "secret", "half", "silent", "storm"};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* -1: nobody listens there. */
static int dial(int port)
{
    struct sockaddr_in s = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 3};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    s.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
                    connect(fd, (struct sockaddr *)&s, sizeof(s)) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int tell(int fd, const void *data, size_t len)
{
    return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* The other end has closed, within the time limit of the socket. */
static int is_thrown_out(int fd)
{
    char byte;
    ssize_t n;

    do {
        n = recv(fd, &byte, 1, 0);
    } while (n > 0);
    return n == 0 || errno == ECONNRESET;
}

static int hello_get(int fd, uint8_t bytes[OOB_HELLO_SIZE], struct oob_hello *h)
{
    return recv(fd, bytes, OOB_HELLO_SIZE, MSG_WAITALL) == OOB_HELLO_SIZE &&
           oob_hello_parse(bytes, OOB_HELLO_SIZE, h) == OOB_PARSE_OK;
}

static void hello_make(uint8_t bytes[OOB_HELLO_SIZE], const uint64_t to[2])
{
    struct oob_hello h = {.version = OOB_VERSION,
                          .kind = OOB_HELLO_DIAL,
                          .from = {7, (uint64_t)getpid()},
                          .nonce = {1}};

    memcpy(h.to, to, sizeof(h.to));
    oob_hello_pack(&h, bytes);
}

/* Who listens there, by its refusal. 1; 0: not this time; -1: nobody. */
static int uuid_learn(int port, uint64_t uuid[2])
{
    static const uint64_t nobody[2] = {1, 1};
    uint8_t bytes[OOB_HELLO_SIZE];
    struct oob_hello h;
    int fd = dial(port), ok;

    if (fd < 0) {
        return -1;
    }
    hello_make(bytes, nobody);
    ok = tell(fd, bytes, sizeof(bytes)) && hello_get(fd, bytes, &h) &&
         h.code == OOB_HELLO_WRONG_UUID;
    if (ok) {
        memcpy(uuid, h.from, sizeof(h.from));
    }
    close(fd);
    return ok;
}

/* Hello, its answer, then @bytes of an AUTH with a tag by a guessed secret. */
static int prove(int fd, const uint64_t uuid[2], size_t bytes)
{
    static const uint8_t guess[16] = {0xde, 0xad};
    uint8_t dialled[OOB_HELLO_SIZE], answer[OOB_HELLO_SIZE], frame[64];
    struct oob_keys keys;
    struct oob_hello h;

    hello_make(dialled, uuid);
    if (!tell(fd, dialled, sizeof(dialled)) || !hello_get(fd, answer, &h) ||
        h.code != OOB_HELLO_OK) {
        return 0;
    }
    oob_keys_derive(guess, dialled, answer, &keys);
    oob_frame_pack(frame, OOB_AUTH, NULL, 0, 0, keys.dialler);
    return tell(fd, frame, bytes);
}

static int once(enum kind kind, int fd, const uint64_t uuid[2], unsigned n)
{
    uint8_t bytes[OOB_HELLO_SIZE];

    switch (kind) {
    case GARBAGE:
        memset(bytes, (int)n * 37, sizeof(bytes));
        return (n % 2 ? tell(fd, "GET / HTTP/1.0\r\n\r\n", 18) : tell(fd, bytes, sizeof(bytes))) &&
               is_thrown_out(fd);
    case SECRET:
        return prove(fd, uuid, OOB_FRAME_HEAD + OOB_FRAME_MAC) && is_thrown_out(fd);
    case HALF:
        hello_make(bytes, uuid);
        return n % 2 ? tell(fd, bytes, sizeof(bytes) / 2) : prove(fd, uuid, OOB_FRAME_HEAD / 2);
    default:
        return 1;
    }
}

static void one_by_one(enum kind kind, int port, double end, unsigned *count)
{
    uint64_t uuid[2] = {0};

    for (int rc = 0; rc == 0 && (kind == SECRET || kind == HALF);) {
        rc = uuid_learn(port, uuid);
        if (rc < 0 || now() >= end) {
            return;
        }
    }
    for (unsigned n = 0; now() < end; n++) {
        int fd = dial(port);

        if (fd < 0) {
            return;
        }
        *count += once(kind, fd, uuid, n) != 0;
        close(fd);
        usleep(PAUSE);
    }
}

/* What is thrown out comes again. */
static void stay(int port, double end, unsigned *count)
{
    struct pollfd p[SILENT];

    for (int i = 0; i < SILENT; i++) {
        p[i].fd = -1;
    }
    while (now() < end) {
        for (int i = 0; i < SILENT; i++) {
            if (p[i].fd >= 0 && p[i].revents == 0) {
                continue;
            }
            if (p[i].fd >= 0) {
                close(p[i].fd);
            }
            p[i] = (struct pollfd){.fd = dial(port), .events = POLLIN};
            if (p[i].fd < 0) {
                return;
            }
            ++*count;
        }
        poll(p, SILENT, 100);
        usleep(PAUSE);
    }
}

int main(int argc, char **argv)
{
    double end = now() + (argc > 1 ? atof(argv[1]) : 0);
    unsigned *count = mmap(NULL, sizeof(unsigned[PORTS][KINDS]), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (argc < 3 || argc > 2 + PORTS || count == MAP_FAILED) {
        fprintf(stderr, "usage: intruder SECONDS PORT... (at most %d)\n", PORTS);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < (argc - 2) * KINDS; i++) {
        int port = atoi(argv[2 + i / KINDS]);
        enum kind kind = (enum kind)(i % KINDS);
        pid_t pid = fork();

        if (pid < 0) {
            return 1;
        }
        if (pid > 0) {
            continue;
        }
        if (kind == QUIET) {
            stay(port, end, &count[i]);
        } else {
            one_by_one(kind, port, end, &count[i]);
        }
        _exit(0);
    }
    while (wait(NULL) > 0) {
    }
    for (int i = 0; i < (argc - 2) * KINDS; i++) {
        printf("%s %s %u\n", names[i % KINDS], argv[2 + i / KINDS], count[i]);
    }
    return 0;
}
