/* The TCP device's streams: what a network, a stranger or a broken peer does to them. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/unit/suite.h"
#include "tests/unit/tcpdev_proxy.h"

#define PART  (1u << 20)
#define CROWD 64
#define COUNT 48

static uint8_t *from, *to;
static struct ibv_mr *from_mr, *to_mr;
static struct proxy proxy;

static void begin(void)
{
    rig_open(0);
    proxy_start(&proxy);
    rig_qp(0, 20);
    rig_qp(1, 20);
    rig_connect(0, proxy.port, 20);
    rig_connect(1, rig[0].lid, 20);
    from = malloc((size_t)COUNT * PART);
    to = calloc(COUNT, PART);
    rig_fill(from, (size_t)COUNT * PART, 3);
    from_mr = v.reg_mr(rig[0].pd, from, (size_t)COUNT * PART, IBV_ACCESS_LOCAL_WRITE);
    to_mr = v.reg_mr(rig[1].pd, to, (size_t)COUNT * PART, RIG_ACCESS);
    for (uint64_t i = 0; i < COUNT; i++) {
        ck_assert_int_eq(rig_recv(1, i, NULL, 0, 0), 0);
    }
}

static void end(void)
{
    proxy_stop(&proxy);
    v.dereg_mr(from_mr);
    v.dereg_mr(to_mr);
    free(from);
    free(to);
    rig_close();
}

static void post(uint64_t i)
{
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE_WITH_IMM, i, from + i * PART, PART,
                              from_mr->lkey, to + i * PART, to_mr->rkey, IBV_SEND_SIGNALED),
                     0);
}

/* Each message once, whole, in order. i: the stream is cut; a byte of it is turned; both, often. */
START_TEST(all_arrives_once)
{
    begin();
    for (uint64_t i = 0; i < COUNT; i++) {
        post(i);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        struct ibv_wc r = rig_wait(1), s;

        ck_assert_int_eq(r.status, IBV_WC_SUCCESS);
        ck_assert_uint_eq(r.imm_data, i);
        ck_assert_uint_eq(r.byte_len, PART);
        s = rig_wait(0);
        ck_assert_int_eq(s.status, IBV_WC_SUCCESS);
        ck_assert_uint_eq(s.wr_id, i);
        if (_i == 0 ? i == 10 : _i == 2 && i % 6 == 1) {
            proxy.cut = 1;
        }
        if (_i == 1 ? i == 10 : _i == 2 && i % 6 == 4) {
            proxy.garble = 1;
        }
    }
    if (_i != 1) {
        ck_assert_int_gt(proxy.cuts, 0);
    }
    if (_i != 0) {
        ck_assert_int_gt(proxy.garbled, 0);
    }
    ck_assert_int_gt(proxy.carried, 1);
    ck_assert_mem_eq(from, to, (size_t)COUNT * PART);
    end();
}
END_TEST

/* A network that swallows all ends what waits in its time, and only that. */
START_TEST(silence_has_an_end)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
    struct ibv_wc wc;

    begin();
    post(0); /* the stream stands before time is short */
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    proxy.stall = 1;
    ck_assert_int_eq(v.modify_qp(rig[0].qp, &a, IBV_QP_STATE), 0);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .qp_access_flags = RIG_ACCESS};
    ck_assert_int_eq(v.modify_qp(rig[0].qp, &a, IBV_QP_STATE), 0);
    rig_connect(0, proxy.port, 15); /* 2 * 134 ms */
    for (uint64_t i = 1; i < 40; i++) {
        post(i);
    }
    do {
        wc = rig_wait(0);
    } while (wc.status == IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
    end();
}
END_TEST

/* Says what is no hello, or not the right one; until it is thrown out. */
static void stranger(int kind)
{
    uint8_t bytes[200] = "R2TCP";
    int fd = proxy_connect(rig[1].lid);
    ssize_t n;

    ck_assert_int_ge(fd, 0);
    bytes[6] = kind == 2 ? 9 : 1;
    if (kind == 0) {
        memset(bytes, 0xa5, sizeof(bytes));
    }
    ck_assert_int_eq(send(fd, bytes, kind == 3 ? 10 : 24, MSG_NOSIGNAL), kind == 3 ? 10 : 24);
    if (kind == 3) {
        shutdown(fd, SHUT_WR);
    }
    if (kind == 1) { /* it answers, and a wrong proof ends it */
        ck_assert_int_eq(recv(fd, bytes, 32, MSG_WAITALL), 32);
        memset(bytes, 0, 8);
        ck_assert_int_eq(send(fd, bytes, 8, MSG_NOSIGNAL), 8);
    }
    do {
        n = recv(fd, bytes, sizeof(bytes), 0);
    } while (n > 0);
    close(fd);
}

/* i: garbage; a wrong proof; another version; a hello that is cut. The stream beside it goes on. */
START_TEST(strangers_are_not_let_in)
{
    begin();
    post(0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    for (int k = 0; k < 100; k++) {
        stranger(_i);
    }
    post(1);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_int_eq(proxy.carried, 1);
    ck_assert_mem_eq(from, to, 2 * PART);
    end();
}
END_TEST

/* Who says nothing has no place for long where others want it. */
START_TEST(a_crowd_of_strangers)
{
    int fd[CROWD], left = 0;
    char byte;

    begin();
    for (int i = 0; i < CROWD; i++) {
        fd[i] = proxy_connect(rig[1].lid);
        ck_assert_int_ge(fd[i], 0);
    }
    post(0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_mem_eq(from, to, PART);
    for (int i = 0; i < CROWD; i++) { /* those that were not in the way have their time */
        left += recv(fd[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
        close(fd[i]);
    }
    ck_assert_int_ge(left, CROWD / 2);
    end();
}
END_TEST

/* Whoever listens there now and does not know the secret gets no frame. */
START_TEST(another_listener_gets_nothing)
{
    uint8_t got[65536];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0), c;
    ssize_t n, all = 0;

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    rig_open(0);
    rig_qp(0, 18);
    rig_qp(1, 18);
    rig_connect(0, ntohs(a.sin_port), 18);
    from = malloc(PART);
    from_mr = v.reg_mr(rig[0].pd, from, PART, 0);
    ck_assert_int_eq(
        rig_post(0, IBV_WR_RDMA_WRITE, 1, from, PART, from_mr->lkey, from, 1, IBV_SEND_SIGNALED),
        0);
    c = accept(fd, NULL, NULL);
    ck_assert_int_eq(recv(c, got, 24, MSG_WAITALL), 24);
    ck_assert_int_eq(send(c, got, 24, MSG_NOSIGNAL), 24); /* its own hello back, and a guess */
    ck_assert_int_eq(send(c, got, 8, MSG_NOSIGNAL), 8);
    while ((n = recv(c, got, sizeof(got), 0)) > 0) {
        all += n;
    }
    ck_assert_int_eq(all, 0);
    close(c);
    close(fd);
    v.dereg_mr(from_mr);
    free(from);
    rig_close();
}
END_TEST

/*
 * What was done and not answered is asked again. i: a read, whose bytes have to come again; a write
 * whose receive was taken: once.
 */
START_TEST(answers_that_are_lost)
{
    struct ibv_wc wc;

    begin();
    post(0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(rig_wait(1).imm_data, 0);
    proxy.deaf = 1;
    if (_i == 0) {
        memset(from + PART, 0x5a, 1000);
        memset(to + PART, 0xc3, 1000);
        ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_READ, 1, from + PART, 1000, from_mr->lkey,
                                  to + PART, to_mr->rkey, IBV_SEND_SIGNALED),
                         0);
    } else {
        post(1);
    }
    while (!proxy.dropped) {
        usleep(100);
    }
    proxy.deaf = 0;
    proxy.cut = 1;
    wc = rig_wait(0);
    ck_assert(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
    if (_i == 0) {
        ck_assert_mem_eq(from + PART, to + PART, 1000);
    } else {
        ck_assert_uint_eq(rig_wait(1).imm_data, 1);
    }
    post(2);
    ck_assert_uint_eq(rig_wait(1).imm_data, 2);
    ck_assert_int_eq(ibv_poll_cq(rig[1].cq, 1, &wc), 0);
    ck_assert_int_eq(proxy.cuts, 1);
    end();
}
END_TEST

static uint64_t cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A child has the sockets, too: a stream that ends is no stream to watch, and its peer hears of it.
 */
START_TEST(a_child_keeps_nothing_alive)
{
    uint64_t began;
    pid_t child;

    begin();
    post(0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    proxy.shared = 1;
    proxy.cut = 1;
    while (!proxy.cuts) {
        usleep(100);
    }
    usleep(20000);
    began = cpu_ms();
    usleep(300000);
    ck_assert_uint_lt(cpu_ms() - began, 200); /* one that turns in a circle takes all of it */
    post(1);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ck_assert_mem_eq(from, to, 2 * PART);
    end();
}
END_TEST

/* No descriptor is left for who dials: he waits, and nobody turns in a circle. */
START_TEST(no_descriptor_for_a_dialler)
{
    struct rlimit was, few;
    uint64_t began;
    int fd, last;

    begin();
    post(0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    fd = proxy_connect(rig[1].lid);
    close(fd);
    usleep(50000);
    last = dup(0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = (rlim_t)(fd > last ? fd : last) + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons(rig[1].lid)};

        ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    }
    usleep(20000);
    began = cpu_ms();
    usleep(300000);
    ck_assert_uint_lt(cpu_ms() - began, 200);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    {
        uint8_t hello[24] = "R2TCP", got[32];

        hello[6] = 1;
        ck_assert_int_eq(send(fd, hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
        ck_assert_int_eq(recv(fd, got, sizeof(got), MSG_WAITALL), sizeof(got)); /* let in */
    }
    close(fd);
    close(last);
    end();
}
END_TEST

#define LINES 520 /* of 128 bytes: a chunk and a little */
#define WORDS (LINES * 16)

static _Atomic int reader_stop;
static _Atomic uint64_t reader_saw, reader_wrong;

/* As who polls for an acknowledgement, or for the flag that ends a line: a word is whole, and what
 * stands before a flag is as new. Numbers grow, and all bytes of one are alike. */
static void *reader(void *arg)
{
    const uint64_t *w = arg, ones = 0x0101010101010101;

    while (!reader_stop) {
        for (int line = 0; line < LINES; line++) {
            uint64_t flag = __atomic_load_n(&w[16 * line + 15], __ATOMIC_ACQUIRE);

            reader_wrong += flag != (flag & 0xff) * ones;
            for (int i = 0; i < 15; i++) {
                reader_wrong += __atomic_load_n(&w[16 * line + i], __ATOMIC_ACQUIRE) < flag;
            }
            reader_saw += flag != 0;
        }
    }
    return NULL;
}

/*
 * i: bytes that come at a time, 0: as they come; and how many stand before the words, so that no
 * chunk begins with one.
 */
START_TEST(a_poller_sees_whole_words_in_order)
{
    static const struct {
        int pieces;
        uint32_t before;
        uint64_t rounds; /* a piece is a system call at each end */
    } c[] = {{0, 0, 250}, {5, 0, 40}, {1003, 0, 250}, {0, 5, 250}, {1003, 3, 250}};
    uint64_t *src, *dst;
    pthread_t t;

    begin();
    proxy.pieces = c[_i].pieces;
    src = (uint64_t *)(from + 8);
    dst = (uint64_t *)(to + 8);
    reader_stop = 0;
    reader_saw = reader_wrong = 0;
    ck_assert_int_eq(pthread_create(&t, NULL, reader, dst), 0);
    for (uint64_t k = 1; k < c[_i].rounds; k++) {
        for (int i = 0; i < WORDS; i++) {
            src[i] = k * 0x0101010101010101;
        }
        ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, k, from + 8 - c[_i].before,
                                  c[_i].before + 8 * WORDS, from_mr->lkey, to + 8 - c[_i].before,
                                  to_mr->rkey, IBV_SEND_SIGNALED),
                         0);
        ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    }
    reader_stop = 1;
    pthread_join(t, NULL);
    ck_assert_uint_gt(reader_saw, 0);
    ck_assert_uint_eq(reader_wrong, 0);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, all_arrives_once, 0, 3);
    tcase_add_test(t, silence_has_an_end);
    tcase_add_loop_test(t, answers_that_are_lost, 0, 2);
    tcase_add_test(t, a_child_keeps_nothing_alive);
    tcase_add_test(t, no_descriptor_for_a_dialler);
    tcase_add_loop_test(t, a_poller_sees_whole_words_in_order, 0, 5);
    tcase_add_loop_test(t, strangers_are_not_let_in, 0, 4);
    tcase_add_test(t, a_crowd_of_strangers);
    tcase_add_test(t, another_listener_gets_nothing);
}

int main(void)
{
    return suite_run("tcpdev_stream", 120, NULL, NULL, add);
}
