/*
 * Ports. By default nothing is lost: a frame for which the other port's queue has no room stays
 * where it is, and its sender is not read until there is, so that the sender's NIC stands still as
 * behind a pause frame. Frames are dropped only where a real network would:
 *  - behind a rate or a delay there is a switch's queue with a bound in bytes, and a tail drop;
 *  - a NIC that takes nothing for STUCK_NS (its VM is frozen) is dropped for until it takes
 * something again, as a switch's pause watchdog does: else one frozen VM would stop every sender of
 * its rail.
 */
#include "tests/lab/lab_switch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/base/r2_time.h"

/* A few bursts of a virtio queue; what is above stays in the VM. */
#define QUEUE_BYTES (512u * 1024u)
/* rxe sends up to 128 packets of 4.2 kB per queue pair before it waits for an acknowledgement: 537
 * kB. A switch's queue that is smaller loses packets of a single queue pair, and with go-back-N the
 * flow collapses to a fraction of the rate. Eight queue pairs fit. At 20 Mbit/s that is up to 1.8 s
 * of queue, so tests at such rates need a transport timeout above it (18: 1.07 s, with retries). */
#define RATED_BYTES (4600u * 1000u)
/* One second at 64 MB/s, more than an emulated NIC sends. */
#define DELAYED_BYTES (64u * 1024u * 1024u)
/* Well below the 5 s after which virtio_net calls a transmit queue dead. */
#define STUCK_NS (1 * LAB_NS_PER_S)

static const char *const count_name[LAB_COUNTS] = {
    "out_frames",  "out_bytes",     "in_frames",     "in_bytes",        "out_drop_cut",
    "in_drop_cut", "out_drop_loss", "in_drop_loss",  "duplicated",      "corrupted",
    "delayed",     "in_drop_queue", "in_drop_stuck", "in_drop_no_link",
};

const char *lab_count_name(enum lab_count c)
{
    return count_name[c];
}

static void port_hangup(struct lab_port *p)
{
    struct lab_frame *f;

    lab_watch_close(&p->conn);
    lab_buf_free(&p->rx);
    while ((f = p->head) != NULL) {
        p->head = f->next;
        free(f);
    }
    p->tail = NULL;
    p->queued = p->sent = p->macs = 0;
    p->full_since = 0;
    p->readable = p->held = p->stuck = p->write_blocked = false;
}

static bool frame_known(const struct lab_port *p, const uint8_t mac[6])
{
    unsigned i;

    for (i = 0; i < p->macs && i < LAB_MACS; i++) {
        if (memcmp(p->mac[i], mac, 6) == 0) {
            return true;
        }
    }
    return false;
}

/* The ports that are to get a frame of @src: the one behind which its address was seen, else all
 * others of the segment.
 */
static int frame_targets(const struct lab_port *src, const uint8_t *frame,
                         struct lab_port *to[LAB_HOSTS_MAX])
{
    struct lab_port *p;
    int n = 0;

    for (p = lab_sw.port; p < lab_sw.port + lab_sw.ports; p++) {
        if (p->segment == src->segment && p != src) {
            if ((frame[0] & 1) == 0 && frame_known(p, frame)) {
                to[0] = p;
                return 1;
            }
            to[n++] = p;
        }
    }
    return n;
}

static size_t queue_limit(const struct lab_port *p, uint64_t delay)
{
    return p->im[LAB_IN].rate > 0 ? RATED_BYTES : delay > 0 ? DELAYED_BYTES : QUEUE_BYTES;
}

/* Whether a frame for @p has to wait where it is. */
static bool port_must_wait(struct lab_port *p, size_t len, uint64_t delay, uint64_t now)
{
    bool lossless = p->im[LAB_IN].rate == 0 && delay == 0;

    if (p->conn.fd < 0 || !lossless || p->queued + len <= QUEUE_BYTES) {
        p->full_since = 0;
        return false;
    }
    if (p->full_since == 0) {
        p->full_since = now;
    }
    p->stuck = p->stuck || now - p->full_since >= STUCK_NS;
    return !p->stuck;
}

/* Queued by due time: what was delayed before and is due later is overtaken, as on a real network
 * whose delay changes.
 */
static void port_enqueue(struct lab_port *p, const uint8_t *frame, size_t len, uint64_t due,
                         bool corrupt)
{
    struct lab_frame *f = malloc(sizeof(*f) + 4 + len), **at = &p->head;
    uint32_t head = htonl((uint32_t)len);

    if (f == NULL) {
        p->count[LAB_N_TAIL]++;
        return;
    }
    f->due = due;
    f->size = (uint32_t)len + 4;
    memcpy(f->bytes, &head, 4);
    memcpy(f->bytes + 4, frame, len);
    if (corrupt) {
        lab_frame_corrupt(f->bytes + 4, len, &lab_sw.rng);
        p->count[LAB_N_CORRUPT]++;
    }
    if (p->tail != NULL && p->tail->due <= due) {
        at = &p->tail->next;
    } else if (p->sent > 0) {
        at = &p->head->next; /* the head is half on the wire */
    }
    while (*at != NULL && (*at)->due <= due) {
        at = &(*at)->next;
    }
    f->next = *at;
    *at = f;
    if (f->next == NULL) {
        p->tail = f;
    }
    p->queued += f->size;
}

/* A frame that left @src healthy or as @v says arrives at the queue of @p. */
static void port_deliver(struct lab_port *p, const uint8_t *frame, size_t len,
                         const struct lab_verdict *v, uint64_t now)
{
    struct lab_verdict w = lab_impair_decide(&p->im[LAB_IN], &lab_sw.rng);
    uint64_t delay = v->delay_ns + w.delay_ns;
    int copies = 1 + v->twice + w.twice;

    if (w.what != LAB_PASS) {
        p->count[w.what == LAB_DROP_CUT ? LAB_N_CUT_IN : LAB_N_LOSS_IN]++;
        return;
    }
    if (p->conn.fd < 0 || p->stuck) {
        p->count[p->stuck ? LAB_N_STUCK : LAB_N_NO_LINK]++;
        return;
    }
    p->count[LAB_N_DUP] += (unsigned)copies - 1;
    p->count[LAB_N_DELAYED] += delay > 0;
    for (; copies > 0; copies--) {
        if (p->queued + len > queue_limit(p, delay) && (p->im[LAB_IN].rate > 0 || delay > 0)) {
            p->count[LAB_N_TAIL]++;
        } else {
            port_enqueue(p, frame, len, delay > 0 ? now + delay : 0, v->corrupt || w.corrupt);
        }
    }
}

static bool port_is_cut(const struct lab_port *src, const struct lab_port *to)
{
    return (src->cut_to >> to->host & 1) != 0;
}

/* Whether its spine swallows a frame of rail @segment; counts it. */
static bool spine_swallows(int segment, const uint8_t *frame, size_t len)
{
    int k = segment < LAB_RAILS ? lab_spine_of(frame, len) : -1;
    struct lab_spine *s = k >= 0 ? &lab_sw.spine[segment][k] : NULL;

    if (s == NULL) {
        return false;
    }
    s->frames++;
    s->dropped += s->cut;
    return s->cut;
}

/* Passes one frame on. Returns false when it has to wait for room; nothing was decided or counted
 * then. */
static bool frame_forward(struct lab_port *src, const uint8_t *frame, size_t len, uint64_t now)
{
    struct lab_port *to[LAB_HOSTS_MAX];
    struct lab_verdict v;
    int n = frame_targets(src, frame, to), i;

    for (i = 0; i < n; i++) {
        if (!port_is_cut(src, to[i]) &&
            port_must_wait(to[i], len, src->im[LAB_OUT].delay_ns + to[i]->im[LAB_IN].delay_ns,
                           now)) {
            return false;
        }
    }
    if ((frame[6] & 1) == 0 && !frame_known(src, frame + 6)) {
        memcpy(src->mac[src->macs++ % LAB_MACS], frame + 6, 6);
    }
    src->count[LAB_N_OUT]++;
    src->count[LAB_N_OUT_BYTES] += len;
    v = lab_impair_decide(&src->im[LAB_OUT], &lab_sw.rng);
    if (v.what != LAB_PASS) {
        src->count[v.what == LAB_DROP_CUT ? LAB_N_CUT_OUT : LAB_N_LOSS_OUT]++;
        return true;
    }
    if (n > 0 && spine_swallows(src->segment, frame, len)) {
        return true;
    }
    for (i = 0; i < n; i++) {
        if (port_is_cut(src, to[i])) {
            src->count[LAB_N_CUT_OUT]++;
        } else {
            port_deliver(to[i], frame, len, &v, now);
        }
    }
    return true;
}

/* Passes on what the NIC sent, reads more when that is used up. Returns whether anything moved. */
static bool port_pump(struct lab_port *p, uint64_t now)
{
    bool moved = false;

    while (p->conn.fd >= 0) {
        uint32_t len = 0;
        if (lab_buf_len(&p->rx) >= 4) {
            memcpy(&len, p->rx.mem + p->rx.head, 4);
            len = ntohl(len);
            if (len < 14 || len > LAB_FRAME_MAX) {
                lab_complain("%s: a frame of %u bytes: connection closed", p->name, len);
                port_hangup(p);
                return true;
            }
        }
        if (len == 0 || lab_buf_len(&p->rx) < 4 + len) {
            ssize_t n;
            if (!p->readable) {
                break;
            }
            p->readable =
                false; /* one read per turn: no port can keep the others and the clock waiting */
            n = recv(p->conn.fd, lab_buf_room(&p->rx, LAB_FRAME_MAX + 4), LAB_FRAME_MAX + 4, 0);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                port_hangup(p);
                return true;
            }
            if (n < 0) {
                break;
            }
            p->rx.tail += (size_t)n;
            continue;
        }
        /* A NIC with a rate: its own wire is busy, so its ring waits and nothing is lost. */
        if (p->im[LAB_OUT].rate > 0 && !lab_pace_ready(&p->pace[LAB_OUT], now)) {
            break;
        }
        p->held = !frame_forward(p, (uint8_t *)p->rx.mem + p->rx.head + 4, len, now);
        if (p->held) {
            break;
        }
        lab_pace_take(&p->pace[LAB_OUT], now, len, p->im[LAB_OUT].rate);
        lab_buf_take(&p->rx, 4 + len);
        moved = true;
    }
    return moved;
}

static void port_pop(struct lab_port *p)
{
    struct lab_frame *f = p->head;

    p->count[LAB_N_IN]++;
    p->count[LAB_N_IN_BYTES] += f->size - 4;
    p->head = f->next;
    if (p->head == NULL) {
        p->tail = NULL;
    }
    p->queued -= f->size;
    p->sent = 0;
    free(f);
}

/* Hands frames to the NIC. Returns whether any was. */
static bool port_drain(struct lab_port *p, uint64_t now)
{
    bool moved = false;

    p->write_blocked = false;
    while (p->head != NULL) {
        struct lab_frame *f = p->head;
        ssize_t n;
        if (p->sent == 0 &&
            (f->due > now || (p->im[LAB_IN].rate > 0 && !lab_pace_ready(&p->pace[LAB_IN], now)))) {
            break;
        }
        n = send(p->conn.fd, f->bytes + p->sent, f->size - p->sent, MSG_NOSIGNAL);
        if (n < 0) {
            p->write_blocked = errno == EAGAIN || errno == EINTR;
            if (!p->write_blocked) {
                port_hangup(p);
            }
            break;
        }
        p->sent += (size_t)n;
        p->stuck = false;
        p->full_since = 0;
        if (p->sent == f->size) {
            lab_pace_take(&p->pace[LAB_IN], now, f->size, p->im[LAB_IN].rate);
            port_pop(p);
        }
        moved = true;
    }
    return moved;
}

/* When time alone moves something at this port. */
static uint64_t port_wake(const struct lab_port *p, uint64_t now)
{
    uint64_t at = UINT64_MAX, free_in = p->im[LAB_IN].rate > 0 ? p->pace[LAB_IN].free_at : 0;

    if (p->head != NULL && !p->write_blocked) {
        at = p->head->due > free_in ? p->head->due : free_in;
    }
    if (p->im[LAB_OUT].rate > 0 && !lab_pace_ready(&p->pace[LAB_OUT], now)) {
        at = r2_earlier(at, p->pace[LAB_OUT].free_at);
    }
    if (p->full_since != 0 && !p->stuck) {
        at = r2_earlier(at, p->full_since + STUCK_NS);
    }
    return at;
}

uint64_t lab_ports_settle(uint64_t now)
{
    struct lab_port *p, *end = lab_sw.port + lab_sw.ports;
    uint64_t wake = UINT64_MAX;
    bool moved;

    do {
        moved = false;
        for (p = lab_sw.port; p < end; p++) {
            moved |= p->conn.fd >= 0 && port_drain(p, now);
            moved |= port_pump(p, now);
        }
    } while (moved);
    for (p = lab_sw.port; p < end; p++) {
        bool busy = p->held || (p->im[LAB_OUT].rate > 0 && !lab_pace_ready(&p->pace[LAB_OUT], now));
        lab_watch_set(&p->conn, (busy ? 0u : (uint32_t)EPOLLIN) |
                                    (p->write_blocked ? (uint32_t)EPOLLOUT : 0u) | EPOLLRDHUP);
        wake = r2_earlier(wake, port_wake(p, now));
    }
    return wake;
}

static void conn_ready(struct lab_watch *w, uint32_t events)
{
    struct lab_port *p = (struct lab_port *)((char *)w - offsetof(struct lab_port, conn));

    p->readable = (events & EPOLLIN) != 0;
    if (!p->readable && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
        port_hangup(p);
    }
}

static void listener_ready(struct lab_watch *w, uint32_t events)
{
    struct lab_port *p = (struct lab_port *)((char *)w - offsetof(struct lab_port, listener));
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        port_hangup(p);
        p->conn.fd = fd;
    }
}

void lab_port_open(struct lab_port *p, int host, int segment)
{
    char path[16];

    memset(p, 0, sizeof(*p));
    p->host = host;
    p->segment = segment;
    snprintf(p->name, sizeof(p->name), "h%u:%s", (unsigned)host & 7, lab_nic_name(segment));
    snprintf(path, sizeof(path), "%s", p->name);
    path[2] = '.'; /* no colon: QEMU's options have a meaning for it */
    p->conn = (struct lab_watch){.ready = conn_ready, .fd = -1};
    p->listener = (struct lab_watch){.ready = listener_ready, .fd = lab_unix_listen(path)};
    if (p->listener.fd < 0) {
        lab_die(1, "switch: socket %s: %s", path, strerror(errno));
    }
    lab_watch_set(&p->listener, EPOLLIN);
}
