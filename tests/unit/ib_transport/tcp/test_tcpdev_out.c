/* What the TCP device sends from where it lies: the bytes are those of a copy, whatever the socket
 * takes at a time; and memory is its owner's alone again when the call that ends its use returns.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "ib_transport/tcp/tcpdev_int.h"
#include "tests/unit/suite.h"
#include "tests/unit/tcpdev_proxy.h"

#define LARGE (4u << 20)
#define OLD   0x3c
#define NEW   0xee

/* --- the device's calls of sendmsg(): held before the kernel reads what they name --- */

static _Atomic int hold, held;

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    while (hold && msg->msg_iovlen > 1) {
        held = 1;
        usleep(100);
    }
    return syscall(SYS_sendmsg, fd, msg, flags);
}

/* --- one stream over a pair of sockets, without its thread --- */

#define QPS   3
#define BYTES (16u << 20)

static struct {
    struct tcpdev *d;
    struct tcpdev_stream *s;
    int far;
    uint8_t *expected, *got;
    size_t said, heard;
    struct tcpdev_qp qp[QPS];
    struct tcpdev_mr mr[QPS];
    uint8_t *mem[QPS]; /* TCPDEV_CHUNK each; those that wait are not rewritten */
    uint32_t msn[QPS];
    uint64_t x;
} m;

static uint32_t draw(uint32_t n)
{
    m.x = m.x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m.x >> 33) % n;
}

static void model_begin(uint64_t seed)
{
    int fd[2], small = 8192;

    memset(&m, 0, sizeof(m));
    m.x = seed;
    m.d = calloc(1, sizeof(*m.d));
    m.s = calloc(1, sizeof(*m.s));
    pthread_mutex_init(&m.d->lock, NULL);
    tcpdev_out_setup(m.d);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    m.s->dev = m.d;
    m.s->fd = fd[0];
    m.s->dialled = true;
    m.s->state = TCPDEV_UP;
    m.far = fd[1];
    m.expected = malloc(BYTES);
    m.got = malloc(BYTES);
    for (int i = 0; i < QPS; i++) {
        m.qp[i].dev = m.d;
        m.qp[i].stream = m.s;
        m.mem[i] = malloc(TCPDEV_CHUNK);
    }
}

/* A frame of queue pair @i, whose payload goes from where it lies if it may. */
static void model_put(int i)
{
    struct tcpdev_frame f = {.op = TCPDEV_WRITE, .msn = m.msn[i]};
    struct tcpdev_direct p = {.qp = &m.qp[i], .mr = &m.mr[i], .msn = m.msn[i]};
    uint8_t *to;
    bool direct;

    f.len = draw(4) ? draw(TCPDEV_CHUNK + 1) : draw(9000);
    p.len = f.len;
    p.from = m.mem[i] + draw(TCPDEV_CHUNK + 1 - f.len);
    m.msn[i] += draw(2);
    tcpdev_frame_pack(&f, m.s->keys.requests, m.s->sent, m.expected + m.said);
    to = tcpdev_stream_put(m.s, &f);
    ck_assert_ptr_nonnull(to);
    memcpy(m.expected + m.said + TCPDEV_FRAME_SIZE, p.from, f.len);
    m.said += TCPDEV_FRAME_SIZE + f.len;
    direct = tcpdev_out_direct(m.s, &p);
    if (!direct) {
        memcpy(to, p.from, f.len);
    }
}

static void model_hear(size_t most)
{
    ssize_t n = recv(m.far, m.got + m.heard, most, 0);

    m.heard += n > 0 ? (size_t)n : 0;
}

/* Its memory is the owner's. */
static void model_rewrite(int i)
{
    static uint8_t pattern[2 * TCPDEV_CHUNK];

    if (pattern[1] == 0) {
        rig_fill(pattern, sizeof(pattern), 5);
    }
    memcpy(m.mem[i], pattern + draw(TCPDEV_CHUNK), TCPDEV_CHUNK);
}

static void model_step(void)
{
    int i = (int)draw(QPS);

    switch (draw(12)) {
    case 0:
        tcpdev_out_settle(m.d, &m.qp[i], NULL);
        model_rewrite(i);
        break;
    case 1:
        tcpdev_out_settle(m.d, NULL, &m.mr[i]);
        model_rewrite(i);
        break;
    case 2:
        tcpdev_out_acked(&m.qp[i], m.msn[i]);
        model_rewrite(i);
        break;
    case 3:
        m.qp[i].end.leaving = true; /* what the socket has not taken is copied first */
        tcpdev_out_write(m.s);
        m.qp[i].end.leaving = false;
        model_rewrite(i);
        break;
    case 4:
    case 5:
        model_hear(1 + draw(100000));
        break;
    case 6:
    case 7:
        tcpdev_out_write(m.s);
        break;
    default:
        if (tcpdev_stream_waiting(m.s) < TCPDEV_TX_ROOM) {
            model_put(i);
        }
    }
}

START_TEST(bytes_are_those_of_a_copy)
{
    model_begin((uint64_t)_i + 1);
    for (int i = 0; i < QPS; i++) {
        model_rewrite(i);
    }
    while (m.said < BYTES - 2 * TCPDEV_CHUNK) {
        model_step();
    }
    while (m.heard < m.said) {
        tcpdev_out_write(m.s);
        model_hear(BYTES - m.heard);
    }
    ck_assert_mem_eq(m.got, m.expected, m.said);
    ck_assert_int_eq(m.s->out.directs, 0);
    ck_assert_ptr_null(m.d->outs.list);
}
END_TEST

/* Only what is done is copied: what goes on is read from where it lies. */
START_TEST(acked_ends_what_is_done)
{
    uint8_t *payload;

    model_begin(1);
    for (uint32_t k = 0; k < 2; k++) {
        struct tcpdev_frame f = {.op = TCPDEV_WRITE, .msn = 0xffffffff + k, .len = TCPDEV_CHUNK};
        struct tcpdev_direct p = {
            .len = f.len, .from = m.mem[k], .qp = &m.qp[0], .mr = &m.mr[0], .msn = f.msn};

        memset(m.mem[k], OLD, TCPDEV_CHUNK);
        ck_assert_ptr_nonnull(tcpdev_stream_put(m.s, &f));
        ck_assert(tcpdev_out_direct(m.s, &p));
    }
    tcpdev_out_acked(&m.qp[0], 0xffffffff);
    ck_assert_int_eq(m.s->out.directs, 1);
    ck_assert_uint_eq(m.s->out.direct[0].msn, 0);
    payload = m.s->out.bytes + TCPDEV_FRAME_SIZE;
    ck_assert_mem_eq(payload, m.mem[0], TCPDEV_CHUNK);
    tcpdev_out_drop(m.s);
    ck_assert_ptr_null(m.d->outs.list);
}
END_TEST

/* --- devices --- */

static uint8_t *from, *to;
static struct ibv_mr *from_mr, *to_mr;
static struct proxy proxy;

/* @timeout: of end 0, as verbs count. */
static void begin(int timeout)
{
    hold = held = 0;
    rig_open(0);
    proxy_start(&proxy);
    rig_qp(0, 20);
    rig_qp(1, 20);
    rig_connect(0, proxy.port, timeout);
    rig_connect(1, rig[0].lid, 20);
    from = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    to = calloc(1, LARGE);
    memset(from, OLD, LARGE);
    from_mr = v.reg_mr(rig[0].pd, from, LARGE, IBV_ACCESS_LOCAL_WRITE);
    to_mr = v.reg_mr(rig[1].pd, to, LARGE, RIG_ACCESS);
}

static void write_post(uint64_t id, uint32_t len)
{
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, id, from, len, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
}

static size_t count(uint8_t b)
{
    size_t n = 0;

    for (size_t i = 0; i < LARGE; i++) {
        n += __atomic_load_n(&to[i], __ATOMIC_RELAXED) == b;
    }
    return n;
}

static _Atomic int ended; /* 1 + what the call said; 0: it has not returned */

static void *end_run(void *arg)
{
    const int what = *(const int *)arg;
    struct ibv_qp_attr a = {.qp_state = what == 0 ? IBV_QPS_ERR : IBV_QPS_RESET};
    int rc = 0;

    if (what < 2) {
        rc = v.modify_qp(rig[0].qp, &a, IBV_QP_STATE);
    } else if (what == 2) {
        rc = v.destroy_qp(rig[0].qp);
    } else if (what == 3) {
        rc = v.dereg_mr(from_mr);
    } else {
        tcpdev_exit();
    }
    ended = rc + 1;
    return NULL;
}

/* The memory is not read any more: new bytes in it come nowhere, and it may go. */
static void owner_again(int what)
{
    ck_assert_int_eq(ended, 1);
    memset(from, NEW, LARGE);
    proxy.stall = 0;
    poll(NULL, 0, 100);
    ck_assert_uint_eq(count(NEW), 0);
    ck_assert_int_eq(munmap(from, LARGE), 0);
    poll(NULL, 0, 20);
    if (what == 2) {
        ck_assert_int_eq(v.destroy_cq(rig[0].cq), 0);
        rig[0].qp = NULL;
    }
    if (what == 3) {
        struct ibv_wc wc;

        do {
            wc = rig_wait(0);
        } while (wc.status == IBV_WC_SUCCESS);
        ck_assert_int_eq(wc.status, IBV_WC_LOC_PROT_ERR);
    }
    proxy_stop(&proxy);
    rig_close();
}

/* The network takes something, and then no more, however late this thread sees that. */
static void stall_wait(void)
{
    while (!proxy.stall || __atomic_load_n(&to[0], __ATOMIC_RELAXED) != OLD) {
        usleep(100);
    }
}

/* The network takes nothing: what waits for it is in memory that is given back. */
START_TEST(ends_do_not_wait_for_the_network)
{
    int what = _i;

    begin(20);
    proxy.stall_at = LARGE / 4;
    for (uint64_t k = 0; k < 10; k++) {
        write_post(k, LARGE);
    }
    stall_wait();
    poll(NULL, 0, 50);
    ended = 0;
    end_run(&what);
    owner_again(what);
}
END_TEST

/* As it is where nobody ends it, but time. */
START_TEST(a_queue_pair_that_fails)
{
    struct ibv_wc wc;

    begin(17); /* a second: not before the network stops, on a loaded machine, too */
    proxy.stall_at = LARGE / 4;
    for (uint64_t k = 0; k < 10; k++) {
        write_post(k, LARGE);
    }
    stall_wait();
    do {
        wc = rig_wait(0);
    } while (wc.status == IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
    ended = 1;
    owner_again(-1);
}
END_TEST

/* The socket is taking it: the call returns behind that. */
START_TEST(ends_wait_for_the_socket)
{
    int what = _i;
    pthread_t t;

    begin(20);
    hold = 1;
    write_post(1, LARGE);
    while (!held) {
        usleep(100);
    }
    ended = 0;
    ck_assert_int_eq(pthread_create(&t, NULL, end_run, &what), 0);
    usleep(20000);
    ck_assert_int_eq(ended, 0);
    hold = 0;
    pthread_join(t, NULL);
    owner_again(what);
}
END_TEST

/* A socket that takes long holds up no other queue pair's calls, and none of other memory. */
START_TEST(others_do_not_wait)
{
    struct rig_end one[2];
    struct ibv_mr *other;
    struct ibv_wc wc;

    begin(20);
    hold = 1;
    write_post(1, LARGE);
    while (!held) {
        usleep(100);
    }
    memcpy(one, rig, sizeof(one));
    rig_qp(0, 20);
    rig_connect(0, proxy.port, 20);
    other = v.reg_mr(rig[0].pd, to, 4096, RIG_ACCESS);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 2, to, 4096, other->lkey, to, to_mr->rkey, 0),
                     0);
    rig_error(0);
    wc = rig_wait(0);
    ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(v.dereg_mr(other), 0);
    rig_qp_end(0);
    hold = 0;
    memcpy(rig, one, sizeof(one));
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(count(OLD), LARGE);
    proxy_stop(&proxy);
    rig_close();
}
END_TEST

/* Memory that is registered and has gone: its queue pair fails, those beside it go on. */
START_TEST(memory_that_is_not_there)
{
    struct rig_end one[2];
    uint8_t *there;
    struct ibv_mr *mr;

    begin(20);
    write_post(1, LARGE);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    memcpy(one, rig, sizeof(one));
    for (int i = 0; i < 2; i++) {
        rig_qp(i, 20);
    }
    rig_connect(0, proxy.port, 20);
    rig_connect(1, rig[0].lid, 20);
    there = malloc(LARGE);
    memset(there, NEW, LARGE);
    mr = v.reg_mr(rig[0].pd, there, LARGE, 0);
    ck_assert_int_eq(munmap(from, LARGE), 0);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 2, there, LARGE / 2, mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(
        ibv_post_send(one[0].qp,
                      &(struct ibv_send_wr){.wr_id = 3,
                                            .sg_list = &(struct ibv_sge){.addr = (uintptr_t)from,
                                                                         .length = LARGE / 2,
                                                                         .lkey = from_mr->lkey},
                                            .num_sge = 1,
                                            .opcode = IBV_WR_RDMA_WRITE,
                                            .wr.rdma = {(uintptr_t)to + LARGE / 2, to_mr->rkey}},
                      &(struct ibv_send_wr *){NULL}),
        0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(count(NEW), LARGE / 2);
    memcpy(rig, one, sizeof(one));
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_LOC_PROT_ERR);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, bytes_are_those_of_a_copy, 0, 8);
    tcase_add_test(t, acked_ends_what_is_done);
    tcase_add_loop_test(t, ends_do_not_wait_for_the_network, 0, 5);
    tcase_add_test(t, a_queue_pair_that_fails);
    tcase_add_loop_test(t, ends_wait_for_the_socket, 0, 5);
    tcase_add_test(t, others_do_not_wait);
    tcase_add_test(t, memory_that_is_not_there);
}

int main(void)
{
    return suite_run("tcpdev_out", 120, NULL, NULL, add);
}
