/* Strangers, attackers and other versions at the TCP out-of-band channel. */
#include "tests/unit/oob_rig.h"

/* ---- strangers ---- */

/* One line so far, and none at WARN: @who with @why. */
static void expect_said(const char *who, const char *why)
{
    ck_assert_msg(lines_with(infos, who) == 1 && lines_with(infos, why) == 1,
                  "not one line '%s', '%s' in: %s", who, why, infos);
    ck_assert_str_eq(warns, "");
}

START_TEST(garbage_is_dropped_and_counted)
{
    struct ep *b = ep_new();

    for (unsigned n = 1; n <= 4; n++) {
        int fd = connect_to(b->name.port);
        char byte;

        write_all(fd, (const uint8_t *)"GET / HTTP/1.0\r\n\r\n", 18);
        settle();
        ck_assert_uint_eq(counters(b).strangers, n);
        ck_assert_int_eq(live_channels(b), 0);
        errno = 0;
        ck_assert_int_le((int)recv(fd, &byte, 1, MSG_DONTWAIT), 0);
        ck_assert_int_ne(errno, EAGAIN); /* closed, not waiting */
        ck_assert_int_eq(b->up + b->down + b->got, 0);
        close(fd);
        expect_said("stranger 127.0.0.1:", "its first bytes are not of this protocol");
    }
}
END_TEST

START_TEST(silence_is_timed_out)
{
    struct ep *b = ep_new();

    for (unsigned n = 1; n <= 3; n++) {
        int fd = connect_to(b->name.port);

        settle();
        ck_assert_int_eq(live_channels(b), 1);
        run_for(1900 * MS);
        ck_assert_int_eq(live_channels(b), 1);
        run_for(200 * MS);
        ck_assert_int_eq(live_channels(b), 0);
        ck_assert_uint_eq(counters(b).strangers, n);
        close(fd);
        expect_said("stranger", "it sends no hello");
    }
}
END_TEST

/* A port scanner that says nothing and goes is no stranger worth a count; half a hello is. */
START_TEST(half_a_hello)
{
    struct ep *b = ep_new();
    struct oob_hello h = {.version = OOB_VERSION, .kind = OOB_HELLO_DIAL, .from = {1, 1}};
    uint8_t bytes[OOB_HELLO_SIZE];
    int fd = connect_to(b->name.port);

    settle();
    close(fd);
    settle();
    ck_assert_uint_eq(counters(b).strangers, 0);
    oob_hello_pack(&h, bytes);
    for (unsigned n = 1; n <= 3; n++) {
        fd = connect_to(b->name.port);
        write_all(fd, bytes, 60);
        settle();
        close(fd);
        settle();
        ck_assert_uint_eq(counters(b).strangers, n);
        ck_assert_int_eq(live_channels(b), 0);
        expect_said("stranger", "it closed in the middle of its hello");
    }
}
END_TEST

START_TEST(crowd_of_strangers_keeps_nobody_out)
{
    struct ep *a = ep_new(), *b = ep_new();
    int places = inside(b)->door.places, n = places + 90, fd[OOB_PLACES_MAX + 90];

    for (int i = 0; i < n; i++) {
        fd[i] = connect_to(b->name.port);
    }
    settle();
    ck_assert_int_eq(live_channels(b), places);
    dial(a, &b->name);
    ck_assert(run_until(&a->up, 1, 1900 * MS));
    ck_assert_uint_ge(counters(b).strangers, (unsigned)(n - places));
    expect_said("stranger", "too many send no hello");
    for (int i = 0; i < n; i++) {
        close(fd[i]);
    }
}
END_TEST

START_TEST(wrong_secret)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = b->name;

    n.secret[7] ^= 4;
    dial(a, &n);
    for (int i = 1; i <= 4; i++) {
        UNTIL(a->down, i);
        ck_assert_uint_eq(counters(b).strangers, (unsigned)i);
        ck_assert_int_eq(live_channels(b), 0);
        expect_said("stranger", "its secret is wrong");
    }
    ck_assert_int_eq(a->up + b->up + b->down, 0);
    ck_assert_int_eq(a->refused, 0);
}
END_TEST

/* "I use your process's own secret that I learned from you": only if we ever gave a name of that
 * process. */
START_TEST(secret_of_an_unknown_process)
{
    struct ep *b = ep_new();
    struct oob_hello h = {.version = OOB_VERSION,
                          .kind = OOB_HELLO_DIAL,
                          .secret_of = OOB_SECRET_DIALLER,
                          .from = {7, 7}};
    uint8_t bytes[OOB_HELLO_SIZE];
    int fd = connect_to(b->name.port);

    memcpy(h.to, b->name.uuid, 16);
    oob_hello_pack(&h, bytes);
    write_all(fd, bytes, sizeof(bytes));
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(live_channels(b), 0);
    close(fd);
}
END_TEST

/* Of each kind one line: a port scan does not hide who tries secrets. */
START_TEST(each_kind_has_its_line)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = b->name;

    for (int i = 0; i < 2; i++) {
        int fd = connect_to(b->name.port);

        write_all(fd, (const uint8_t *)"SSH-2.0-OpenSSH\r\n", 17);
        settle();
        close(fd);
    }
    n.secret[0] ^= 1;
    dial(a, &n);
    UNTIL(a->down, 2);
    ck_assert_uint_eq(counters(b).strangers, 4);
    ck_assert_int_eq(lines_with(infos, "stranger"), 2);
    ck_assert_int_eq(lines_with(infos, "its first bytes are not of this protocol"), 1);
    ck_assert_int_eq(lines_with(infos, "its secret is wrong"), 1);
}
END_TEST

/* Somebody else has the port of a process that is gone. */
START_TEST(wrong_process)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = b->name;

    n.uuid[1] ^= 1;
    dial(a, &n);
    UNTIL(a->down, 1);
    ck_assert_int_eq(a->refused, 1);
    ck_assert_int_eq(a->up + b->up, 0);
    ck_assert_uint_eq(counters(b).strangers, 1);
}
END_TEST

START_TEST(nobody_listens)
{
    struct ep *a = ep_new(), *b = ep_new();
    uint64_t start = clock_ns;

    dial(a, &b->name);
    UNTIL(a->up, 1);
    ep_kill(b);
    UNTIL(a->refused, 12);
    /* 10, 20, .. 640 ms, then 1 s each, at least half of it */
    ck_assert_uint_ge(clock_ns - start, 2500 * MS);
    ck_assert_uint_le(clock_ns - start, 10 * SEC);
    ck_assert_int_eq(a->down, 13);
}
END_TEST

/* ---- an attacker who has the secret (or a peer gone mad): frames made by hand ---- */

static void hand_up(struct hand *h, struct ep *to)
{
    int up = to->up, got = to->got;
    uint8_t b[64];

    hand_dial(h, to, OOB_VERSION);
    write_all(h->fd, b, (ssize_t)hand_frame(h, b, OOB_AUTH, ""));
    UNTIL(to->up, up + 1);
    write_all(h->fd, b, (ssize_t)hand_frame(h, b, OOB_DATA, "good"));
    UNTIL(to->got, got + 1);
}

/* The same once and again: counted each time, said once, as @why. */
#define TIMES 4
static void attack(void (*frame)(struct hand *h), const char *why)
{
    struct ep *b = ep_new();

    for (int n = 1; n <= TIMES; n++) {
        struct hand h = {0};

        hand_up(&h, b);
        frame(&h);
        settle();
        ck_assert_uint_eq(counters(b).bad_frames, (unsigned)n);
        ck_assert_uint_eq(counters(b).strangers, 0);
        ck_assert_int_eq(live_channels(b), 0);
        ck_assert_int_eq(b->got, n); /* whole or not at all */
        ck_assert_int_eq(b->down, n);
        close(h.fd);
        ck_assert_msg(lines_with(warns, "") == 1 && lines_with(warns, "bad frame from ") == 1, "%s",
                      warns);
        ck_assert_msg(lines_with(warns, "(process 0000000000000007) dropped") == 1, "%s", warns);
        ck_assert_msg(lines_with(warns, why) == 1, "%s", warns);
    }
}

/* The frame that was just taken, bit for bit. */
static void replay(struct hand *h)
{
    uint8_t f[64];

    h->seq--;
    write_all(h->fd, f, (ssize_t)hand_frame(h, f, OOB_DATA, "good"));
}

START_TEST(replayed_frame)
{
    attack(replay, "replayed");
}
END_TEST

/* A line for each process, but not for as many as somebody with the secret can be. */
START_TEST(lines_are_bounded)
{
    struct ep *b = ep_new();

    for (unsigned n = 1; n <= 2 * OOB_LOGGED_MAX; n++) {
        struct hand h = {.number = 100 + n};

        hand_up(&h, b);
        replay(&h);
        settle();
        ck_assert_uint_eq(counters(b).bad_frames, n);
        ck_assert_int_eq(lines_with(warns, "bad frame from "),
                         n < OOB_LOGGED_MAX ? (int)n : OOB_LOGGED_MAX);
        close(h.fd);
    }
}
END_TEST

/* A whole channel recorded and played again: the nonce of the listener is another. */
START_TEST(replayed_channel)
{
    struct ep *b = ep_new();
    struct hand h = {0}, again = {0};
    uint8_t f[64];

    hand_up(&h, b);
    hand_dial(&again, b, OOB_VERSION);
    again.keys = h.keys;
    write_all(again.fd, f, (ssize_t)hand_frame(&again, f, OOB_AUTH, ""));
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(b->up, 1);
    ck_assert_int_eq(b->down, 0);
    ck_assert_int_eq(live_channels(b), 1);
    close(h.fd);
    close(again.fd);
}
END_TEST

static void truncate_frame(struct hand *h)
{
    uint8_t f[64];
    size_t n = hand_frame(h, f, OOB_DATA, "cut short");

    write_all(h->fd, f, (ssize_t)n - 1);
    settle();
    shutdown(h->fd, SHUT_WR);
}

START_TEST(truncated_frame)
{
    attack(truncate_frame, "it is truncated");
}
END_TEST

static void oversize(struct hand *h)
{
    uint8_t f[64];

    hand_frame(h, f, OOB_DATA, "");
    f[0] = 1; /* 65537 */
    f[2] = 1;
    write_all(h->fd, f, OOB_FRAME_HEAD); /* found by the head alone: no room is made for it */
}

START_TEST(oversized_frame)
{
    attack(oversize, "its length cannot be");
}
END_TEST

START_TEST(oversized_before_the_secret)
{
    struct ep *b = ep_new();
    struct hand h = {0};
    uint8_t f[256];
    char big[OOB_AUTH_MAX + 2];

    memset(big, 'x', sizeof(big));
    big[OOB_AUTH_MAX + 1] = '\0';
    hand_dial(&h, b, OOB_VERSION);
    write_all(h.fd, f, (ssize_t)hand_frame(&h, f, OOB_AUTH, big));
    settle();
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(b->up, 0);
    ck_assert_int_eq(live_channels(b), 0);
    close(h.fd);
}
END_TEST

static void unknown_type(struct hand *h)
{
    uint8_t f[64];

    write_all(h->fd, f, (ssize_t)hand_frame(h, f, 99, "what"));
}

START_TEST(frame_of_no_known_type)
{
    attack(unknown_type, "its type is not one that may come now");
}
END_TEST

static void auth_again(struct hand *h)
{
    uint8_t f[64];

    write_all(h->fd, f, (ssize_t)hand_frame(h, f, OOB_AUTH, ""));
}

START_TEST(second_auth)
{
    attack(auth_again, "its type is not one that may come now");
}
END_TEST

static void change_a_bit(struct hand *h)
{
    uint8_t f[64];
    size_t n = hand_frame(h, f, OOB_DATA, "tampered");

    f[OOB_FRAME_HEAD + 2] ^= 1;
    write_all(h->fd, f, (ssize_t)n);
}

START_TEST(wrong_tag)
{
    attack(change_a_bit, "its tag is wrong");
}
END_TEST

/* Data before AUTH, even with the right key, is not data. */
START_TEST(data_first)
{
    struct ep *b = ep_new();
    struct hand h = {0};
    uint8_t f[64];

    hand_dial(&h, b, OOB_VERSION);
    write_all(h.fd, f, (ssize_t)hand_frame(&h, f, OOB_DATA, "early"));
    settle();
    ck_assert_int_eq(b->got + b->up, 0);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    ck_assert_int_eq(live_channels(b), 0);
    ck_assert_int_eq(lines_with(warns, "bad frame from 127.0.0.1:"),
                     1); /* its own port: it has no peer yet */
    ck_assert_int_eq(lines_with(warns, "its type is not one that may come now"), 1);
    close(h.fd);
}
END_TEST

START_TEST(changed_on_the_way)
{
    struct ep *a = ep_new(), *b = ep_new();
    struct r2_oob_name n = proxied(b);
    struct r2_oob_peer *p = dial(a, &n);

    UNTIL(a->up, 1);
    settle();
    ck_assert_int_eq(say(a, p, "one"), 0);
    UNTIL(b->got, 1);
    proxy.corrupt_at = proxy.seen + OOB_FRAME_HEAD + 1;
    ck_assert_int_eq(say(a, p, "two"), 0);
    UNTIL(b->down, 1);
    ck_assert_int_eq(b->got, 1);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    UNTIL(a->up, 2); /* and it comes back */
    ck_assert_int_eq(say(a, p, "three"), 0);
    UNTIL(b->got, 2);
    ck_assert_mem_eq(b->keep, "onethree", 8);
    ck_assert_int_eq(lines_with(warns, "its tag is wrong"), 1);
    ck_assert_int_eq(lines_with(warns, "bad frame from "), 1);
}
END_TEST

/* ---- versions ---- */

START_TEST(dialler_of_another_version)
{
    struct ep *b = ep_new();
    struct hand h = {0};

    for (int i = 0; i < 3; i++) {
        hand_dial(&h, b, 7);
        ck_assert_uint_eq(h.answer.version, OOB_VERSION);
        ck_assert_uint_eq(h.answer.code, OOB_HELLO_VERSION);
        close(h.fd);
        settle();
    }
    r2_log_flush();
    ck_assert_ptr_nonnull(strstr(warns, "version 7"));
    ck_assert_ptr_nonnull(strstr(warns, "version 1"));
    ck_assert_ptr_eq(strchr(warns, '\n'), warns + strlen(warns) - 1); /* once */
    ck_assert_int_eq(live_channels(b), 0);
    ck_assert_int_eq(b->up, 0);
}
END_TEST

START_TEST(listener_of_another_version)
{
    struct ep *a = ep_new();
    struct r2_oob_name n = a->name;
    struct oob_hello h = {
        .version = 9, .kind = OOB_HELLO_ANSWER, .code = OOB_HELLO_VERSION, .from = {5, 5}};
    uint8_t bytes[OOB_HELLO_SIZE];
    int port, lfd = listen_new(&port), fd;

    n.uuid[0] = n.uuid[1] = 5;
    n.port = (uint16_t)port;
    dial(a, &n);
    for (int i = 0; i < 3; i++) {
        do {
            (void)run_until(&never, 1, 10 * MS);
            fd = accept(lfd, NULL, NULL);
        } while (fd < 0);
        read_exactly(fd, bytes, sizeof(bytes));
        memcpy(h.to, a->name.uuid, 16);
        oob_hello_pack(&h, bytes);
        write_all(fd, bytes, sizeof(bytes));
        UNTIL(a->down, i + 1);
        close(fd);
    }
    r2_log_flush();
    ck_assert_ptr_nonnull(strstr(warns, "speaks version 9, this process version 1"));
    ck_assert_ptr_eq(strchr(warns, '\n'), warns + strlen(warns) - 1);
    ck_assert_int_eq(a->up, 0);
    close(lfd);
}
END_TEST

int main(void)
{
    static const TTest **const cases[] = {
        &garbage_is_dropped_and_counted,
        &silence_is_timed_out,
        &half_a_hello,
        &crowd_of_strangers_keeps_nobody_out,
        &wrong_secret,
        &each_kind_has_its_line,
        &secret_of_an_unknown_process,
        &wrong_process,
        &nobody_listens,
        &replayed_frame,
        &lines_are_bounded,
        &replayed_channel,
        &truncated_frame,
        &oversized_frame,
        &oversized_before_the_secret,
        &frame_of_no_known_type,
        &second_auth,
        &wrong_tag,
        &data_first,
        &changed_on_the_way,
        &dialler_of_another_version,
        &listener_of_another_version,
    };

    return rig_main("oob_tcp_hostile", cases, COUNT(cases), NULL, 0);
}
