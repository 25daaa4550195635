/* One connection under traffic: a window of receives and sends, the oldest tested in each turn.
 * Posted and tested as NCCL does it, through the table. */
#include "tests/bench/bench.h"

#include "plugin/nccl/net_abi_v12.h"

#include <stdlib.h>
#include <string.h>

#define FLOW_HANG_NS (20000 * DUO_MS)

extern const struct nccl_net_v12 ncclNetPlugin_v12;

static uint8_t *slot(uint8_t *base, const struct bench_flow *f, uint64_t i)
{
    return base + (size_t)(i % BENCH_WINDOW) * f->stride;
}

/* First and last word name the message: what is received is checked by them. */
static void message_fill(const struct bench_flow *f, uint8_t *at, uint64_t i)
{
    if (f->size >= sizeof(i)) {
        memcpy(at, &i, sizeof(i));
        memcpy(at + f->size - sizeof(i), &i, sizeof(i));
    }
}

static void message_check(const struct bench_flow *f, const uint8_t *at, uint64_t i, size_t got)
{
    if (got != f->size ||
        (got >= sizeof(i) && (memcmp(at, &i, sizeof(i)) != 0 ||
                              memcmp(at + f->size - sizeof(i), &i, sizeof(i)) != 0))) {
        bench_die("message %llu of %zu bytes arrived wrong, %zu bytes", (unsigned long long)i,
                  f->size, got);
    }
}

void bench_flow_open(struct bench_flow *f, struct duo *d, int dev, size_t size)
{
    memset(f, 0, sizeof(*f));
    f->d = d;
    f->size = size;
    f->stride = (size + 4095) / 4096 * 4096 + 4096;
    f->step_ns = 300;
    f->limit = UINT64_MAX;
    f->out = aligned_alloc(4096, f->stride * BENCH_WINDOW);
    f->in = aligned_alloc(4096, f->stride * BENCH_WINDOW);
    if (!f->out || !f->in) {
        bench_die("no memory for messages of %zu bytes", size);
    }
    memset(f->out, 0, f->stride * BENCH_WINDOW);
    memset(f->in, 0xff, f->stride * BENCH_WINDOW);
    if (duo_connect(d, dev, &f->tx, &f->rx) != 0) {
        bench_die("no connection over device %d", dev);
    }
    if (r2_net_reg(f->tx, f->out, f->stride * BENCH_WINDOW, IB_PTR_HOST, 0, -1, &f->tx_mr) !=
            R2_OK ||
        r2_net_reg(f->rx, f->in, f->stride * BENCH_WINDOW, IB_PTR_HOST, 0, -1, &f->rx_mr) !=
            R2_OK) {
        bench_die("no registration");
    }
    f->r_done_at = duo_now(d);
}

void bench_flow_close(struct bench_flow *f)
{
    r2_net_dereg(f->tx, f->tx_mr);
    r2_net_dereg(f->rx, f->rx_mr);
    r2_net_close(f->tx);
    r2_net_close(f->rx);
    duo_run(f->d, 100 * DUO_MS);
    free(f->out);
    free(f->in);
}

static __attribute__((noinline)) void recv_post(struct bench_flow *f)
{
    void *data = slot(f->in, f, f->r_posted), *mr = f->rx_mr, *req;
    size_t size = f->size;
    int tag = 1;

    if (ncclNetPlugin_v12.irecv(f->rx, 1, &data, &size, &tag, &mr, NULL, &req) != NCCL_SUCCESS) {
        bench_die("irecv failed: %s", f->rx->fo.why);
    }
    if (req) {
        f->r_req[f->r_posted++ % BENCH_WINDOW] = req;
    }
}

static __attribute__((noinline)) void send_post(struct bench_flow *f)
{
    uint8_t *at = slot(f->out, f, f->s_posted);
    void *req;

    message_fill(f, at, f->s_posted);
    if (ncclNetPlugin_v12.isend(f->tx, at, f->size, 1, f->tx_mr, NULL, &req) != NCCL_SUCCESS) {
        bench_die("isend failed: %s", f->tx->fo.why);
    }
    if (req) {
        f->s_req[f->s_posted++ % BENCH_WINDOW] = req;
    }
}

static void pause_note(struct bench_flow *f)
{
    uint64_t now = duo_now(f->d);

    if (now - f->r_done_at > f->longest_pause) {
        f->longest_pause = now - f->r_done_at;
    }
    f->r_done_at = now;
}

void bench_call_recv(struct bench_flow *f)
{
    int size = 0, done = 0;

    if (f->r_posted < f->limit && f->r_posted - f->r_done < BENCH_WINDOW) {
        recv_post(f);
    }
    if (f->r_posted == f->r_done) {
        return;
    }
    f->r_tests++;
    if (ncclNetPlugin_v12.test(f->r_req[f->r_done % BENCH_WINDOW], &done, &size) != NCCL_SUCCESS) {
        bench_die("test of a receive failed: %s", f->rx->fo.why);
    }
    if (done) {
        message_check(f, slot(f->in, f, f->r_done), f->r_done, (size_t)size);
        f->r_done++;
        pause_note(f);
    }
}

void bench_call_send(struct bench_flow *f)
{
    int done = 0;

    if (f->s_posted < f->limit && f->s_posted - f->s_done < BENCH_WINDOW) {
        send_post(f);
    }
    if (f->s_posted == f->s_done) {
        return;
    }
    f->s_tests++;
    if (ncclNetPlugin_v12.test(f->s_req[f->s_done % BENCH_WINDOW], &done, NULL) != NCCL_SUCCESS) {
        bench_die("test of a send failed: %s", f->tx->fo.why);
    }
    f->s_done += (unsigned)done;
}

void bench_flow_turn(struct bench_flow *f)
{
    bench_host = 1;
    bench_call_recv(f);
    bench_host = 0;
    bench_call_send(f);
    duo_run(f->d, f->step_ns);
}

void bench_flow_run(struct bench_flow *f, uint64_t messages)
{
    uint64_t last = f->r_done_at = duo_now(f->d), seen = f->r_done;

    while (f->r_done < messages || f->s_done < messages) {
        bench_flow_turn(f);
        if (f->r_done + f->s_done != seen) {
            seen = f->r_done + f->s_done;
            last = duo_now(f->d);
        } else if (duo_now(f->d) - last > FLOW_HANG_NS) {
            bench_die("nothing moves: %llu of %llu messages", (unsigned long long)f->r_done,
                      (unsigned long long)messages);
        }
    }
}

void bench_flow_pass(struct bench_flow *f, uint64_t ns)
{
    uint64_t end = duo_now(f->d) + ns;

    while (duo_now(f->d) < end) {
        bench_flow_turn(f);
    }
}
