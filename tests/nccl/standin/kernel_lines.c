/* The protocols whose data carries its own flags: LL and LL128. */
#include "tests/nccl/standin/kernel.h"

#define LL_LINE_WORDS 2
#define SLICE_WORDS   256 /* of LL128: what a warp writes at once, 16 lines */
#define SLICE_DATA    240 /* words of it that are data */
#define LINE_WORDS    16

/* What both protocols do with a chunk. */
struct chunk {
    size_t bytes;
    const char *src; /* NULL: nothing of this rank's */
    char *dst;       /* NULL: not kept here */
    bool own;        /* src is the user's input */
};

static struct chunk chunk_of(const struct prims *p, int what, ssize_t in_at, ssize_t out_at,
                             ssize_t n)
{
    struct chunk c = {.bytes = (n < 0 ? 0 : (size_t)n) * p->elt, .own = (what & PRIM_IN) != 0};

    if (what & PRIM_IN) {
        c.src = p->in + (size_t)in_at * p->elt;
    } else if (what & PRIM_OUT_SRC) {
        c.src = p->out + (size_t)in_at * p->elt;
    }
    if (what & PRIM_OUT) {
        c.dst = p->out + (size_t)out_at * p->elt;
    }
    return c;
}

static void input_load(const struct prims *p, const struct chunk *c, void *acc, size_t at,
                       size_t len)
{
    if (c->src == NULL) {
        return;
    }
    memcpy(acc, c->src + at, len);
    if (c->own) {
        kernel_pre_op(p->op, p->type, p->arg, acc, len / p->elt);
    }
}

/* Room for this step at all receivers; a proxy is told how many bytes come. */
static void room_wait(struct prims *p, struct end *e, size_t bytes)
{
    block_wait_step(p->b, e, e->c->head, STEPS, e->step + 1);
    if (e->c->fifo) {
        __atomic_store_n(&e->c->fifo[e->step % STEPS].size, (ssize_t)bytes, __ATOMIC_RELEASE);
    }
}

static void credit_give(struct prims *p, int what)
{
    for (int j = 0; (what & PRIM_RECV) && j < p->recvs; j++) {
        struct end *e = &p->recv[j];

        __atomic_store_n(e->c->head, ++e->step, __ATOMIC_RELEASE);
    }
}

/* --- LL: lines of 16 bytes, 8 of data, each half with a flag of its step --- */

static uint64_t *ll_line(const struct prims *p, const struct end *e, size_t line)
{
    size_t step_lines = (size_t)p->b->comm->buff_sizes[PROTO_LL] / STEPS / 16;

    return (uint64_t *)(e->c->buffs[PROTO_LL]) +
           (e->step % STEPS * step_lines + line) * LL_LINE_WORDS;
}

/* Flags wrap; before they do, every line of a step is written, so that none keeps a flag that comes
 * again. */
static bool ll_cleans(const struct end *e)
{
    return (e->step & LL_CLEAN_MASK) == LL_CLEAN_MASK;
}

static void ll_receive(struct prims *p, struct end *e, size_t at, uint64_t *to, size_t lines)
{
    const uint64_t *line = ll_line(p, e, at);
    uint32_t flag = (uint32_t)(e->step + 1);

    for (size_t i = 0; i < lines; i++) {
        uint64_t lo, hi;
        unsigned spins = 0;

        do {
            lo = __atomic_load_n(&line[2 * i], __ATOMIC_ACQUIRE);
            hi = __atomic_load_n(&line[2 * i + 1], __ATOMIC_ACQUIRE);
        } while ((lo >> 32 != flag || hi >> 32 != flag) && block_waits(p->b, &spins));
        to[i] = (lo & 0xffffffffu) | hi << 32;
    }
}

static void ll_send(struct prims *p, struct end *e, size_t at, const uint64_t *from, size_t lines)
{
    uint64_t *line = ll_line(p, e, at), flag = (uint64_t)(uint32_t)(e->step + 1) << 32;

    for (size_t i = 0; i < lines; i++) {
        __atomic_store_n(&line[2 * i], (from[i] & 0xffffffffu) | flag, __ATOMIC_RELEASE);
        __atomic_store_n(&line[2 * i + 1], from[i] >> 32 | flag, __ATOMIC_RELEASE);
    }
}

static void ll_step_sent(struct prims *p, struct end *e, size_t lines)
{
    size_t step_lines = (size_t)p->b->comm->buff_sizes[PROTO_LL] / STEPS / 16;
    uint64_t flag = (uint64_t)(uint32_t)(e->step + 1) << 32;

    for (size_t i = lines; ll_cleans(e) && i < step_lines; i++) {
        uint64_t *line = ll_line(p, e, i);

        line[0] = line[1] = flag;
    }
    e->step++;
}

void prims_ll(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n)
{
    struct chunk c = chunk_of(p, what, in_at, out_at, n);
    size_t lines = size_div_up(c.bytes, 8),
           step_lines = (size_t)p->b->comm->buff_sizes[PROTO_LL] / STEPS / 16;
    int recvs = what & PRIM_RECV ? p->recvs : 0, sends = what & PRIM_SEND ? p->sends : 0;

    for (int j = 0; j < sends; j++) {
        room_wait(p, &p->send[j], (ll_cleans(&p->send[j]) ? step_lines : lines) * 16);
    }
    for (size_t at = 0; at < lines; at += TILE / 8) {
        uint64_t acc[TILE / 8] = {0}, x[TILE / 8];
        size_t k = size_min(TILE / 8, lines - at), len = size_min(k * 8, c.bytes - at * 8);
        bool have = c.src != NULL;

        input_load(p, &c, acc, at * 8, len);
        for (int j = 0; j < recvs; j++) {
            ll_receive(p, &p->recv[j], at, have ? x : acc, k);
            if (have) {
                kernel_combine(p->op, p->type, p->arg, acc, x, len / p->elt);
            }
            have = true;
        }
        if (what & PRIM_POST) {
            kernel_post_op(p->op, p->type, p->arg, acc, len / p->elt);
        }
        for (int j = 0; j < sends; j++) {
            ll_send(p, &p->send[j], at, acc, k);
        }
        if (c.dst) {
            memcpy(c.dst + at * 8, acc, len);
        }
    }
    credit_give(p, what);
    for (int j = 0; j < sends; j++) {
        ll_step_sent(p, &p->send[j], lines);
    }
}

/* --- LL128: lines of 16 words, the last a flag --- */

/*
 * A warp's 240 words of data lie in an order that follows from who loads what: thread 7 of every 8
 * holds the flag, and gives half of what it loaded to another line. By word of data, the word on
 * the wire.
 */
static unsigned char ll128_word[SLICE_DATA];
static pthread_once_t ll128_once = PTHREAD_ONCE_INIT;

static void ll128_layout(void)
{
    for (int i = 0; i < 4 * 32; i++) {
        int g = i / 32, t = i % 32;
        int pack = g * 32 - 4 * (g / 2) + t - g % 2 * (t / 8), wire = g * 64 + 2 * t;

        if (t % 8 != 7) {
            ll128_word[2 * pack] = (unsigned char)wire;
            ll128_word[2 * pack + 1] = (unsigned char)(wire + 1);
        } else if (g % 2 == 0) {
            ll128_word[2 * pack] = (unsigned char)wire;
            ll128_word[2 * pack + 1] = (unsigned char)(wire + 64);
        }
    }
}

static uint64_t *ll128_slice(const struct prims *p, const struct end *e, size_t slice)
{
    size_t step_words = (size_t)p->b->comm->buff_sizes[PROTO_LL128] / STEPS / 8;

    return (uint64_t *)(e->c->buffs[PROTO_LL128]) + e->step % STEPS * step_words +
           slice * SLICE_WORDS;
}

static void ll128_receive(struct prims *p, const struct end *e, size_t slice, uint64_t *to)
{
    const uint64_t *wire = ll128_slice(p, e, slice);

    for (int l = 0; l < SLICE_WORDS / LINE_WORDS; l++) {
        const uint64_t *flag = &wire[l * LINE_WORDS + LINE_WORDS - 1];
        unsigned spins = 0;

        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != e->step + 1 &&
               block_waits(p->b, &spins)) {
        }
    }
    for (int i = 0; i < SLICE_DATA; i++) {
        to[i] = __atomic_load_n(&wire[ll128_word[i]], __ATOMIC_ACQUIRE);
    }
}

static void ll128_send(struct prims *p, const struct end *e, size_t slice, const uint64_t *from)
{
    uint64_t *wire = ll128_slice(p, e, slice);

    for (int i = 0; i < SLICE_DATA; i++) {
        __atomic_store_n(&wire[ll128_word[i]], from[i], __ATOMIC_RELAXED);
    }
    for (int l = 0; l < SLICE_WORDS / LINE_WORDS; l++) {
        __atomic_store_n(&wire[l * LINE_WORDS + LINE_WORDS - 1], e->step + 1, __ATOMIC_RELEASE);
    }
}

/* Always whole slices. */
void prims_ll128(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n)
{
    struct chunk c = chunk_of(p, what, in_at, out_at, n);
    size_t slices = size_div_up(c.bytes, SLICE_DATA * 8);
    int recvs = what & PRIM_RECV ? p->recvs : 0, sends = what & PRIM_SEND ? p->sends : 0;

    pthread_once(&ll128_once, ll128_layout);
    for (int j = 0; j < sends; j++) {
        room_wait(p, &p->send[j], slices * SLICE_WORDS * 8);
    }
    for (size_t s = 0; s < slices; s++) {
        uint64_t acc[SLICE_DATA] = {0}, x[SLICE_DATA];
        size_t at = s * SLICE_DATA * 8, len = size_min(SLICE_DATA * 8, c.bytes - at);
        bool have = c.src != NULL;

        input_load(p, &c, acc, at, len);
        for (int j = 0; j < recvs; j++) {
            ll128_receive(p, &p->recv[j], s, have ? x : acc);
            if (have) {
                kernel_combine(p->op, p->type, p->arg, acc, x, len / p->elt);
            }
            have = true;
        }
        if (what & PRIM_POST) {
            kernel_post_op(p->op, p->type, p->arg, acc, len / p->elt);
        }
        for (int j = 0; j < sends; j++) {
            ll128_send(p, &p->send[j], s, acc);
        }
        if (c.dst) {
            memcpy(c.dst + at, acc, len);
        }
    }
    for (int j = 0; j < sends; j++) {
        struct end *e = &p->send[j];

        e->step++;
        if (e->c->fifo) {
            __atomic_store_n(e->c->tail, e->step, __ATOMIC_SEQ_CST);
        }
    }
    credit_give(p, what);
}
