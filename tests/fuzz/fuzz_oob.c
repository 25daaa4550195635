/*
 * The TCP out-of-band channel against whoever connects, and against whoever is found where a peer
 * was: bytes before the hello, hellos, frames before and after the proof of the secret, cut at any
 * byte, in any order, on several channels at once. Sockets are UNIX pairs (connect() is replaced at
 * link time), time is the input's, random bytes are none: nothing leaves the process.
 *
 * What must hold: a message is handed up only when a process that knows a secret of ours, or whose
 * secret we know, has sent it whole.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oob/tcp/oob_tcp.h"
#include "base/r2_log.h"
#include "tests/support/times.h"

#define LINES 6
#define UUIDS 4 /* 0: ours */

/* A channel as its other end sees it. */
struct line {
    int fd;             /* -1: none */
    uint8_t dialled;    /* by the endpoint */
    uint8_t hello_sent; /* ours is out */
    uint8_t keyed;
    uint8_t wrong; /* the keys are of a secret that is nobody's */
    uint64_t tx_seq;
    uint8_t ours[OOB_HELLO_SIZE], theirs[OOB_HELLO_SIZE];
    size_t have; /* of theirs */
    struct oob_keys keys;
};

struct run {
    struct fuzz_in in;
    struct r2_oob *oob;
    struct tcp_oob *o;
    struct line line[LINES];
    struct r2_oob_peer *peer[16]; /* references held */
    unsigned peers;
    unsigned chop; /* bytes per write, 0: all at once */
    uint64_t now;
    uint64_t said, heard; /* DATA frames that may be handed up; messages that were */
};

static struct run *running;

/* --- the world --- */

static int line_free(const struct run *r)
{
    for (int i = 0; i < LINES; i++) {
        if (r->line[i].fd < 0) {
            return i;
        }
    }
    return -1;
}

/* In place of the socket that was dialled: one end of a pair. Or nobody is there. */
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
    int i = line_free(running), sv[2];

    if (i < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) != 0) {
        errno = ECONNREFUSED;
        return -1;
    }
    dup2(sv[0], fd);
    close(sv[0]);
    running->line[i] = (struct line){.fd = sv[1], .dialled = 1};
    errno = EINPROGRESS;
    return -1;
}

static void random_none(void *arg, void *out, unsigned len)
{
    static uint8_t next;

    memset(out, ++next, len);
}

static uint64_t now_ns(void *arg)
{
    return running->now += MS; /* time passes while the endpoint waits for last words */
}

static void uuid_make(unsigned i, uint64_t out[2])
{
    out[0] = 0x1000 + i;
    out[1] = 0x2000;
}

static void secret_make(unsigned i, uint8_t out[16])
{
    memset(out, (int)(0x40 + i), 16);
}

static void hold(struct run *r, struct r2_oob_peer *p)
{
    if (r->peers < sizeof(r->peer) / sizeof(r->peer[0])) {
        r->oob->ops->peer_ref(p);
        r->peer[r->peers++] = p;
    }
}

static void let_go(struct run *r, unsigned i)
{
    if (i < r->peers) {
        struct r2_oob_peer *p = r->peer[i];

        r->peer[i] = r->peer[--r->peers];
        r->oob->ops->peer_put(p);
    }
}

/* Upcalls: what the layers above do from inside of one. */
static void message(void *arg, struct r2_oob_peer *p, const void *msg, size_t len)
{
    struct run *r = arg;
    const uint8_t *b = msg;
    volatile uint8_t sum = 0;

    FUZZ_CHECK(len <= R2_OOB_MAX_MESSAGE);
    for (size_t i = 0; i < len; i++) {
        sum = (uint8_t)(sum + b[i]);
    }
    if (oob_uuid_compare(r->oob->ops->peer_uuid(p), r->o->name.uuid) != 0) {
        r->heard++;
    }
    FUZZ_CHECK(r->heard <= r->said);
    (void)r->oob->ops->peer_str(p);
    if (len && b[0] & 1) {
        hold(r, p);
    }
    if (len && b[0] & 2) {
        r->oob->ops->send(p, msg, len);
    }
    if (len && b[0] & 4) {
        let_go(r, b[0] >> 4);
    }
}

static void up(void *arg, struct r2_oob_peer *p)
{
    struct run *r = arg;

    FUZZ_CHECK(r->oob->ops->peer_is_up(p));
    if (r->now & MS) {
        r->oob->ops->send(p, "up", 2);
    }
}

static void down(void *arg, struct r2_oob_peer *p, int refused)
{
    struct run *r = arg;

    if (r->now & (2 * MS)) {
        let_go(r, 0);
    }
}

/* --- the other ends --- */

static void turn(struct run *r, uint64_t ns)
{
    r->now += ns;
    r->oob->ops->progress(r->oob, r->now);
}

/* Bytes to the endpoint, in pieces. What the socket does not take is lost, and the channel with it.
 */
static void put(struct run *r, struct line *l, const uint8_t *b, size_t n)
{
    unsigned pieces = 0;

    while (n > 0 && l->fd >= 0) {
        size_t one = r->chop && r->chop < n && ++pieces < 300 ? r->chop : n;
        ssize_t w = send(l->fd, b, one, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (w < 0 && errno == EAGAIN) {
            turn(r, 0);
            w = send(l->fd, b, one, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (w <= 0) {
            close(l->fd);
            l->fd = -1;
            return;
        }
        b += w;
        n -= (size_t)w;
        if (r->chop) {
            turn(r, 0);
        }
    }
}

/* What the endpoint wrote; its hello is kept. */
static void take(struct line *l)
{
    uint8_t b[4096];
    ssize_t n;

    while (l->fd >= 0 && l->have < OOB_HELLO_SIZE &&
           (n = recv(l->fd, l->theirs + l->have, OOB_HELLO_SIZE - l->have, MSG_DONTWAIT)) > 0) {
        l->have += (size_t)n;
    }
    while (l->fd >= 0 && recv(l->fd, b, sizeof(b), MSG_DONTWAIT) > 0) {
    }
}

/* Both hellos are here: the keys, by the right secret or another. */
static void key(struct run *r, struct line *l, unsigned secret)
{
    uint8_t s[16];

    take(l);
    if (l->have < OOB_HELLO_SIZE || !l->hello_sent || l->keyed) {
        return;
    }
    secret_make(secret, s);
    l->wrong = !l->dialled && l->ours[13] == OOB_SECRET_LISTENER && secret != 0;
    oob_keys_derive(s, l->dialled ? l->theirs : l->ours, l->dialled ? l->ours : l->theirs,
                    &l->keys);
    l->keyed = 1;
}

static void open_line(struct run *r, struct line *l)
{
    int sv[2];

    if (l->fd >= 0 ||
        r->o->door.pending >= r->o->door.places || /* the listener would not take it either */
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) != 0) {
        return;
    }
    *l = (struct line){.fd = sv[1]};
    oob_chan_create(r->o, sv[0], NULL, CHAN_HELLO);
}

static void say_hello(struct run *r, struct line *l)
{
    unsigned how = fuzz_u8(&r->in), from = how & 3;
    struct oob_hello h = {.version = OOB_VERSION,
                          .kind = l->dialled ? OOB_HELLO_ANSWER : OOB_HELLO_DIAL,
                          .secret_of = l->dialled ? 0 : how >> 2 & 1,
                          .family = 4,
                          .port = 9,
                          .addr = {127, 0, 0, 1}};

    if (l->hello_sent) {
        return;
    }
    uuid_make(from, h.from);
    uuid_make(0, h.to);
    take(l);
    if (how & 8) { /* has seen the channel that stands now */
        h.lost_id = l->dialled || r->line[0].fd < 0 ? 0 : r->line[0].keys.id;
    }
    memset(h.nonce, (int)how, sizeof(h.nonce));
    oob_hello_pack(&h, l->ours);
    for (unsigned i = 0; i < (how >> 4 & 3); i++) {
        fuzz_edit(&r->in, l->ours, sizeof(l->ours));
    }
    l->hello_sent = 1;
    put(r, l, l->ours, how & 64 ? fuzz_pick(&r->in, OOB_HELLO_SIZE + 1) : OOB_HELLO_SIZE);
    turn(r, 0);
}

static void say_frame(struct run *r, struct line *l)
{
    static uint8_t out[OOB_FRAME_MAX], right[OOB_FRAME_MAX];
    static const uint8_t filler[R2_OOB_MAX_MESSAGE];
    unsigned how = fuzz_u8(&r->in), type = how & 8 ? fuzz_u8(&r->in) : 1 + (how & 3);
    const uint8_t *payload;
    size_t len = fuzz_bytes(&r->in, how & 4 ? 40 : type == OOB_AUTH && l->dialled, &payload), n;
    uint64_t seq = l->tx_seq;

    if (how & 16 && how & 32) {
        len = (size_t)fuzz_get(&r->in, 3) % (R2_OOB_MAX_MESSAGE + 1);
        payload = filler;
    }
    key(r, l, how >> 6);
    if (!l->keyed) {
        return;
    }
    if (type == OOB_AUTH && l->dialled && len == 0) {
        payload = filler;
        len = 1;
    }
    if (how & 16 && !(how & 32)) {
        seq += fuzz_number(&r->in);
    }
    n = oob_frame_pack(out, (uint8_t)type, payload, len, seq,
                       l->dialled ? l->keys.listener : l->keys.dialler);
    memcpy(right, out, n);
    if (how & 32 && !(how & 16)) {
        fuzz_edit(&r->in, out, n);
    }
    r->said += !l->wrong && type == OOB_DATA && seq == l->tx_seq && memcmp(right, out, n) == 0;
    l->tx_seq++;
    put(r, l, out, n);
    turn(r, 0);
}

/* --- the program --- */

static void op_line(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    struct line *l = &r->line[how % LINES];
    const uint8_t *b;
    size_t n;

    switch (how / LINES % 8) {
    case 0:
        open_line(r, l);
        break;
    case 1:
        say_hello(r, l);
        break;
    case 2:
    case 3:
    case 4:
        say_frame(r, l);
        break;
    case 5:
        n = fuzz_bytes(&r->in, fuzz_u8(&r->in), &b);
        put(r, l, b, n);
        break;
    case 6:
        if (l->fd >= 0) {
            shutdown(l->fd, how & 128 ? SHUT_RDWR : SHUT_WR);
        }
        break;
    default:
        if (l->fd >= 0) {
            close(l->fd);
        }
        l->fd = -1;
        break;
    }
}

/* The shortest way to a channel that stands: what most of the rest needs. */
static void op_stand(struct run *r)
{
    static const uint8_t none[1];
    unsigned how = fuzz_u8(&r->in);
    struct line *l = &r->line[how % LINES];
    struct oob_hello h = {.version = OOB_VERSION,
                          .kind = OOB_HELLO_DIAL,
                          .family = 4,
                          .port = 9,
                          .addr = {127, 0, 0, 1}};
    uint8_t frame[64];

    if (l->fd < 0) {
        open_line(r, l);
    }
    if (l->hello_sent) {
        return;
    }
    uuid_make(1 + how / LINES % 3, h.from);
    uuid_make(0, h.to);
    h.kind = l->dialled ? OOB_HELLO_ANSWER : OOB_HELLO_DIAL;
    turn(r, 0);
    take(l);
    if (l->dialled && l->have == OOB_HELLO_SIZE) { /* who is looked for */
        memcpy(&h.from, l->theirs + 32, 16);
        memcpy(&h.to, l->theirs + 16, 16);
    }
    oob_hello_pack(&h, l->ours);
    l->hello_sent = 1;
    put(r, l, l->ours, OOB_HELLO_SIZE);
    turn(r, 0);
    if (how / LINES / 3 % 4 == 3) {
        key(r, l, 1); /* an impostor */
    } else {
        key(r, l,
            l->dialled && l->have == OOB_HELLO_SIZE && l->theirs[13] == 0
                ? (unsigned)(h.from[0] & 3)
                : 0);
    }
    if (!l->keyed) {
        return;
    }
    put(r, l, frame,
        oob_frame_pack(frame, OOB_AUTH, none, l->dialled, l->tx_seq++,
                       l->dialled ? l->keys.listener : l->keys.dialler));
    turn(r, 0);
}

static void op_peer(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    struct r2_oob_name n = {.family = 4, .port = 9, .addr = {127, 0, 0, 1}};
    static const uint8_t text[R2_OOB_MAX_MESSAGE + 1] = {7};
    struct r2_oob_peer *p;

    uuid_make(how & 3, n.uuid);
    secret_make(how & 3, n.secret);
    if (how & 4) {
        fuzz_edit(&r->in, (uint8_t *)&n, sizeof(n));
    }
    if (how & 8) {
        let_go(r, how >> 4);
    } else if (how & 16) {
        if (r->peers) {
            r->oob->ops->send(r->peer[how % r->peers], text,
                              (size_t)fuzz_get(&r->in, 3) % (sizeof(text) + 1));
        }
    } else if (r->peers < sizeof(r->peer) / sizeof(r->peer[0])) {
        p = r->oob->ops->peer_get(r->oob, &n);
        if (p) {
            r->peer[r->peers++] = p;
        }
    }
}

static void op_time(struct run *r)
{
    static const uint64_t steps[] = {0,         MS,        20 * MS,   300 * MS,
                                     1000 * MS, 2500 * MS, 6000 * MS, 11000 * MS};
    unsigned how = fuzz_u8(&r->in);

    for (unsigned i = 0; i <= how >> 6; i++) {
        turn(r, steps[how & 7]);
    }
    r->chop = how & 32 ? fuzz_u8(&r->in) : r->chop;
}

static void op_crowd(struct run *r)
{
    struct line l = {.fd = -1};

    for (unsigned n = fuzz_u8(&r->in) % 80; n > 0; n--) { /* they come and go at once */
        open_line(r, &l);
        if (l.fd >= 0) {
            close(l.fd);
        }
        l.fd = -1;
    }
}

static struct run *start(const uint8_t *data, size_t size)
{
    struct run *r = calloc(1, sizeof(*r));
    struct r2_oob_events ev = {r, message, up, down};
    struct r2_oob_tcp_config cfg = {.ifname = "lo",
                                    .family = "AF_INET",
                                    .hello_timeout_ns = 2000 * MS,
                                    .keepalive_ns = 1000 * MS};
    char why[256] = "";

    FUZZ_CHECK(r != NULL);
    r->in = (struct fuzz_in){data, data + size};
    for (int i = 0; i < LINES; i++) {
        r->line[i].fd = -1;
    }
    running = r;
    r->oob = r2_oob_tcp_create(&cfg, &ev, why, sizeof(why));
    if (r->oob == NULL) {
        fprintf(stderr, "no endpoint: %s\n", why);
        abort();
    }
    r->o = (struct tcp_oob *)r->oob;
    r->o->env.random = random_none;
    r->o->env.now_ns = now_ns;
    uuid_make(0, r->o->name.uuid);
    secret_make(0, r->o->name.secret);
    r->now = 1000 * MS;
    turn(r, 0);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ops[])(struct run *) = {
        op_line, op_line, op_line, op_line, op_stand, op_peer, op_time, op_peer,
        op_line, op_line, op_line, op_line, op_stand, op_peer, op_time, op_crowd};
    struct r2_oob_counters count;
    struct run *r = start(data, size);

    while (fuzz_more(&r->in)) {
        ops[fuzz_pick(&r->in, sizeof(ops) / sizeof(ops[0]))](r);
        for (int i = 0; i < LINES; i++) {
            take(&r->line[i]);
        }
    }
    turn(r, 0);
    r->oob->ops->counters(r->oob, &count);
    FUZZ_CHECK(count.received >= r->heard);
    FUZZ_CHECK(r->o->door.pending >= 0 && r->o->door.pending <= r->o->door.places);
    if (size & 1) {
        r->oob->ops->drain(r->oob, 3 * MS);
    }
    while (r->peers) {
        let_go(r, 0);
    }
    turn(r, 20000 * MS);
    turn(r, 20000 * MS);
    r->oob->ops->destroy(r->oob);
    for (int i = 0; i < LINES; i++) {
        if (r->line[i].fd >= 0) {
            close(r->line[i].fd);
        }
    }
    free(r);
    return 0;
}
