/* Both ends dial at once; channels that are lost and come back. */
#include "tests/unit/oob_rig.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t real_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

#define BURST 150
static size_t
    burst_len; /* 60000: more than the sockets take, so that a channel given up still has a queue */

static void send_burst(struct ep *e, struct r2_oob_peer *p)
{
    static const uint8_t msg[60000];

    for (int i = 0; i < BURST && e->oob->ops->send(p, msg, burst_len) == 0; i++) {
        e->said++;
    }
    ck_assert_int_ge(e->said, 20);
}

/* Whatever the order of the turns: one channel stays, it is the smaller one's, and nothing of what
 * was sent is lost. */
START_TEST(simultaneous_dial)
{
    unsigned seed = (unsigned)_i * 7919u + 1;
    struct ep *a, *b;
    struct r2_oob_peer *pa, *pb;

    ep_pair(&a, &b, 1);
    burst_len = _i % 4 == 3 ? 60000 : 10;
    a->on_up = b->on_up = send_burst;
    pa = dial(a, &b->name);
    pb = dial(b, &a->name);
    for (int i = 0; i < 12; i++) {
        struct ep *e = rand_r(&seed) % 2 ? a : b;
        e->oob->ops->progress(e->oob, clock_ns);
    }
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    UNTIL(a->got, b->said);
    UNTIL(b->got, a->said);
    send_burst(a, pa);
    send_burst(b, pb);
    UNTIL(a->got, b->said);
    UNTIL(b->got, a->said);
    settle();
    ck_assert_int_eq(a->up, 1);
    ck_assert_int_eq(b->up, 1);
    ck_assert_int_eq(a->down + b->down, 0);
    ck_assert_int_eq(a->got, b->said);
    ck_assert_int_eq(b->got, a->said);
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_uint_eq(inside(a)->chans->id, inside(b)->chans->id);
    ck_assert_uint_eq(counters(a).strangers + counters(a).bad_frames + counters(a).reconnects, 0);
    ck_assert_uint_eq(counters(b).strangers + counters(b).bad_frames + counters(b).reconnects, 0);
    /* whenever both dials went all the way the smaller uuid's stayed; if one was given up, the
     * other is in use on both ends */
    ck_assert_int_ne(inside(a)->chans->by_us, inside(b)->chans->by_us);
}
END_TEST

/* Both dials are forced all the way before either end is told of the other's: then the rule
 * decides, not the luck. */
START_TEST(simultaneous_dial_is_decided_by_uuid)
{
    struct ep *a, *b;

    ep_pair(&a, &b, 1);
    dial(a, &b->name);
    dial(b, &a->name);
    /* in step: connect and hello, answers, AUTH of both cross, and both accept */
    for (int i = 0; i < 20 && (a->up == 0 || b->up == 0); i++) {
        a->oob->ops->progress(a->oob, clock_ns);
        b->oob->ops->progress(b->oob, clock_ns);
        poll_all(20);
    }
    settle();
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_int_eq(inside(a)->chans->by_us + inside(b)->chans->by_us, 1);
    ck_assert_uint_eq(inside(a)->chans->id, inside(b)->chans->id);
}
END_TEST

/* A peer made by hand that both dials and is dialled: what it says to our dial, and on its own. */
static struct {
    struct hand theirs;   /* dialled by it, to us */
    int ours;             /* our dial */
    struct oob_keys keys; /* of that */
    int accepts;          /* ours, before it leaves its own */
} both;

/* Takes our dial so far that its word alone is awaited. */
static void answer_dial(struct ep *a, struct r2_oob_name *n, int lfd)
{
    struct oob_hello h = {.version = OOB_VERSION, .kind = OOB_HELLO_ANSWER, .nonce = {3}};
    uint8_t dialled[OOB_HELLO_SIZE], answer[OOB_HELLO_SIZE], auth[OOB_FRAME_HEAD + OOB_FRAME_MAC];

    dial(a, n);
    settle();
    both.ours = accept(lfd, NULL, NULL);
    ck_assert_int_ge(both.ours, 0);
    read_exactly(both.ours, dialled, sizeof(dialled));
    memcpy(h.from, n->uuid, sizeof(h.from));
    memcpy(h.to, a->name.uuid, sizeof(h.to));
    oob_hello_pack(&h, answer);
    oob_keys_derive(n->secret, dialled, answer, &both.keys);
    write_all(both.ours, answer, sizeof(answer));
    read_exactly(both.ours, auth, sizeof(auth));
}

/*
 * We have taken its dial in this turn, and its socket is one of those that this turn looks at
 * again: so the end of it is seen before the acceptance of our dial, though that was said first.
 */
static void accept_and_leave(struct ep *a, struct r2_oob_peer *p)
{
    static const uint8_t code = OOB_AUTH_ACCEPT;
    uint8_t f[128];
    size_t n;

    a->on_up = NULL;
    if (both.accepts) {
        n = oob_frame_pack(f, OOB_AUTH, &code, 1, 0, both.keys.listener);
        n += oob_frame_pack(f + n, OOB_DATA, "there", 5, 1, both.keys.listener);
        write_all(both.ours, f, (ssize_t)n);
    }
    shutdown(both.theirs.fd, SHUT_WR);
}

/* The peer's dial is taken, ours is accepted and stays by the rule, and the peer's is left: one
 * channel after the other, and none is lost. Where ours is not accepted, leaving is a loss. */
START_TEST(left_for_our_dial)
{
    struct ep *a = ep_new();
    struct r2_oob_name n = a->name;
    int port, lfd = listen_new(&port);
    uint8_t f[64];

    n.uuid[0] = UINT64_MAX; /* ours is smaller, so our dial stays */
    n.uuid[1] = 7;
    n.secret[0] ^= 1;
    n.port = (uint16_t)port;
    memset(&both, 0, sizeof(both));
    both.theirs.number = n.uuid[0];
    both.accepts = _i == 0;
    answer_dial(a, &n, lfd);
    hand_dial(&both.theirs, a, OOB_VERSION);
    a->on_up = accept_and_leave;
    write_all(both.theirs.fd, f, (ssize_t)hand_frame(&both.theirs, f, OOB_AUTH, ""));
    UNTIL(a->up, 1);
    settle();
    ck_assert_int_eq(a->up, 1);
    ck_assert_int_eq(a->down, !both.accepts);
    ck_assert_int_eq(a->got, both.accepts);
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(inside(a)->peers->cur != NULL, both.accepts);
    ck_assert_uint_eq(counters(a).bad_frames + counters(a).strangers, 0);
    close(both.theirs.fd);
    close(both.ours);
    close(lfd);
}
END_TEST

/* ---- loss and return ---- */

START_TEST(cut_and_redialled)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    struct r2_oob_peer *p = dial(a, &n);

    for (int i = 1; i <= 5; i++) {
        UNTIL(a->up, i);
        UNTIL(b->up, i);
        ck_assert_int_eq(say(a, p, "x"), 0);
        UNTIL(b->got, i);
        proxy_cut();
        UNTIL(a->down, i);
        UNTIL(b->down, i);
        ck_assert_int_eq(say(a, p, "y"), -1);
    }
    UNTIL(a->up, 6);
    ck_assert_uint_eq(counters(a).reconnects, 5);
    ck_assert_uint_eq(counters(a).strangers + counters(a).bad_frames, 0);
}
END_TEST

/* Only the dialler's side breaks: the listener's channel looks healthy and must give way to the
 * dialler's new one. */
START_TEST(dialler_lost_it_alone)
{
    struct ep *a, *b;
    struct r2_oob_name n;

    ep_pair(&a, &b, _i);
    n = proxied(b);
    dial(a, &n);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    pipe_cut(0, 0);
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
    ck_assert_int_eq(b->down, 1);
    settle();
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_int_eq(say(a, a->peer, "new"), 0);
    UNTIL(b->got, 1);
}
END_TEST

/* The listener's side alone breaks, and it dials back, with the secret it was dialled with. */
START_TEST(listener_lost_it_alone)
{
    struct ep *a, *b;
    struct r2_oob_name n;

    ep_pair(&a, &b, _i);
    n = proxied(b);
    dial(a, &n);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    b->oob->ops->peer_ref(b->peer);
    pipe_cut(0, 1);
    UNTIL(b->up, 2);
    UNTIL(a->up, 2);
    settle();
    ck_assert_int_eq(a->down, 1);
    ck_assert_int_eq(b->down, 1);
    ck_assert_int_eq(live_channels(a), 1);
    ck_assert_int_eq(live_channels(b), 1);
    ck_assert_int_eq(inside(b)->chans->by_us, 1);
    ck_assert_int_eq(say(b, b->peer, "back"), 0);
    UNTIL(a->got, 1);
    ck_assert_uint_eq(counters(a).strangers, 0);
}
END_TEST

/* Nothing arrives, nothing is refused: both ends notice, the dialler comes back when it can. */
START_TEST(half_open)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    uint64_t start;

    dial(a, &n);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    settle();
    run_for(10 * SEC); /* silence alone is no reason: PING and PONG */
    ck_assert_int_eq(a->down + b->down, 0);
    proxy.frozen = 1;
    start = clock_ns;
    UNTIL(a->down, 1);
    UNTIL(b->down, 1);
    ck_assert_uint_ge(clock_ns - start, 2 * SEC);
    ck_assert_uint_le(clock_ns - start, 4 * SEC);
    proxy_cut();
    proxy.frozen = 0;
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
}
END_TEST

/* A process with a forked child (a DataLoader) is killed: its channels must close, whatever the
 * time, and its port refuse, or nobody ever learns that it has gone. In real time. */
START_TEST(killed_with_a_child)
{
    struct ep *a;
    struct r2_oob_name name;
    int pipefd[2], waits = 0;
    pid_t parent, child = 0;
    uint64_t at = 0;

    ck_assert_int_eq(pipe(pipefd), 0);
    parent = fork();
    if (parent == 0) { /* the process with the plugin */
        struct ep *b = ep_new();
        pid_t c;

        (void)!write(pipefd[1], &b->name, sizeof(b->name));
        while (!b->up) {
            b->oob->ops->progress(b->oob, real_ns());
            usleep(1000);
        }
        c = fork();
        if (c == 0) { /* its DataLoader */
            for (;;) {
                pause();
            }
        }
        (void)!write(pipefd[1], &c, sizeof(c));
        for (;;) {
            b->oob->ops->progress(b->oob, real_ns());
            usleep(1000);
        }
    }
    ck_assert_int_eq(read(pipefd[0], &name, sizeof(name)), sizeof(name));
    a = ep_new();
    dial(a, &name);
    while (!a->up && waits++ < 5000) {
        at = real_ns();
        a->oob->ops->progress(a->oob, at);
        usleep(1000);
    }
    ck_assert_int_eq(a->up, 1);
    ck_assert_int_eq(read(pipefd[0], &child, sizeof(child)), sizeof(child));
    ck_assert_int_eq(a->down, 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    for (waits = 0; !a->down && waits < 20000; waits++) {
        a->oob->ops->progress(a->oob, at); /* no silence is too long */
        usleep(1000);
    }
    ck_assert_msg(a->down, "20 s after the kill the channel stands");
    for (waits = 0; !a->refused && waits < 20000; waits++) {
        a->oob->ops->progress(a->oob, real_ns());
        usleep(1000);
    }
    kill(child, SIGKILL);
    ck_assert_msg(a->refused, "20 s after the kill nobody refuses: down %d", a->down);
}
END_TEST

/* A child between fork() and exec(), of posix_spawn() for example, has all descriptors: no handler
 * of pthread_atfork() runs in it. */
static pid_t child_with_all(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    while (pid == 0) {
        syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
    }
    return pid;
}

/* A socket that a child has, too, is closed: the other end sees that, and no event of it comes
 * afterwards, when there is no channel any more. */
START_TEST(closed_while_a_child_has_it)
{
    struct ep *b = ep_new();
    int fd = connect_to(b->name.port);
    struct pollfd left = {.fd = b->oob->ops->fd(b->oob), .events = POLLIN};
    pid_t child;
    char byte;

    settle();
    ck_assert_int_eq(live_channels(b), 1);
    child = child_with_all();
    ck_assert_int_gt(child, 0);
    write_all(fd, (const uint8_t *)"GET / HTTP/1.0\r\n\r\n", 18);
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(live_channels(b), 0);
    errno = 0;
    ck_assert_int_le((int)recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    ck_assert_int_ne(errno, EAGAIN);
    close(fd);
    settle();
    ck_assert_int_eq(poll(&left, 1, 0), 0);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* Nobody is let in any more while an endpoint ends, though a child has its port, too. */
START_TEST(the_port_is_closed_while_a_child_has_it)
{
    struct ep *b = ep_new();
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(b->name.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    pid_t child = child_with_all();

    ck_assert_int_gt(child, 0);
    b->oob->ops->drain(b->oob, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), -1);
    ck_assert_int_eq(errno, ECONNREFUSED);
    close(fd);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

#define PEERS (R2_LOG_FIRST + 8)

/* All peers of a job go at once, as at its end: the first are named, the others counted. */
START_TEST(channels_lost_together_are_counted)
{
    struct ep *a = ep_new(), *b[PEERS];

    for (int i = 0; i < PEERS; i++) {
        b[i] = ep_new();
        dial(b[i], &a->name);
    }
    UNTIL(a->up, PEERS);
    r2_log_flush();
    infos[0] = '\0';
    for (int i = 0; i < PEERS; i++) {
        ep_kill(b[i]);
    }
    UNTIL(a->down, PEERS);
    r2_log_many_over();
    r2_log_flush();
    ck_assert_int_eq(lines_with(infos, "out-of-band channel to "), R2_LOG_FIRST);
    ck_assert_int_eq(lines_with(infos, " 8 more out-of-band channels lost"), 1);
}
END_TEST

int main(void)
{
    static const TTest **const cases[] = {
        &channels_lost_together_are_counted,
        &killed_with_a_child,
        &closed_while_a_child_has_it,
        &the_port_is_closed_while_a_child_has_it,
        &simultaneous_dial_is_decided_by_uuid,
        &cut_and_redialled,
        &half_open,
    };
    static const struct rig_loop loops[] = {
        {&simultaneous_dial, 40},
        {&left_for_our_dial, 2},
        {&dialler_lost_it_alone, 2},
        {&listener_lost_it_alone, 2},
    };

    return rig_main("oob_tcp_loss", cases, COUNT(cases), loops, COUNT(loops));
}
