/*
 * Control records from a hostile peer process. First byte 0: fo_unpack() and fo_pack() alone. Else
 * two instances of the plugin on the in-process fabric with a connection between them, brought into
 * a state (set-up, open, failed over, returning, closing), and a program of records to either of
 * them, mixed with traffic, faults, time and close. A record begins as a right one for the state
 * that its receiver is in; then some of its fields, or bytes, are others. Beside the sanitizers the
 * numbers of every connection are checked after each step: that nothing from a peer became an index
 * or a bound.
 */
#include "fuzz_word.h"

#define MEM      16384
#define TIME_MAX (150 * RIG_S) /* of a program: a second costs milliseconds */

struct run {
    struct fuzz_in in;
    struct rig *rig;
    uint8_t *mem[2];
    struct ib_mr *mr[2];
    uint8_t msg[16384]; /* records gathered for @to */
    size_t len;
    int to;
    uint32_t drop[2]; /* bit per type: records that process 0, 1 says in vain */
    uint64_t said;    /* records, by both */
};

static struct run *running;

/* --- the bytes alone --- */

/* What was understood can be said, and is then understood alike. */
static void unpack_run(struct fuzz_in *in)
{
    static union fo_body a, b;
    static uint8_t one[FO_MAX_RECORD], two[FO_MAX_RECORD];
    struct r2_reader r = {.p = in->p, .end = in->end};
    const char *why = NULL;
    int type;

    while ((memset(&a, 0, sizeof(a)), type = fo_unpack(&r, &a, &why)) > 0) {
        size_t n = fo_pack((enum fo_type)type, &a, one, sizeof(one));
        struct r2_reader again = {.p = one, .end = one + n};

        FUZZ_CHECK(n > 0);
        memset(&b, 0, sizeof(b));
        FUZZ_CHECK(fo_unpack(&again, &b, &why) == type && again.p == again.end);
        FUZZ_CHECK(fo_pack((enum fo_type)type, &b, two, sizeof(two)) == n &&
                   memcmp(one, two, n) == 0);
    }
    FUZZ_CHECK(type == 0 || why != NULL);
}

/* --- records --- */

static void flush(struct run *r)
{
    if (r->len) {
        rig_inject_bytes(r->rig, r->to, r->msg, r->len);
    }
    r->len = 0;
}

static void gather(struct run *r, int to, const uint8_t *b, size_t n)
{
    if (to != r->to || r->len + n > sizeof(r->msg)) {
        flush(r);
    }
    r->to = to;
    memcpy(r->msg + r->len, b, n);
    r->len += n;
}

static void op_say(struct run *r)
{
    uint8_t rec[FO_MAX_RECORD];
    int to;
    size_t n = fuzz_word_say(&r->in, r->rig, &to, rec);

    gather(r, to, rec, n);
}

static void op_again(struct run *r)
{
    uint8_t rec[FO_MAX_RECORD];
    int to;
    size_t n = fuzz_word_again(&r->in, r->rig, &to, rec);

    if (n) {
        gather(r, to, rec, n);
    }
}

static void op_raw(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    const uint8_t *b;
    size_t n = fuzz_bytes(&r->in, how >> 1, &b);

    flush(r);
    rig_inject_bytes(r->rig, how & 1, n ? b : (const uint8_t *)"", n);
}

/* --- the rest of the world --- */

static int filter(struct rig *rig, int from, int type, union fo_body *body)
{
    running->said++;
    return !(running->drop[from] >> type & 1);
}

static void op_run(struct run *r)
{
    static const uint64_t steps[] = {RIG_US,     10 * RIG_US,  100 * RIG_US, RIG_MS,
                                     3 * RIG_MS, 10 * RIG_MS,  40 * RIG_MS,  10 * RIG_US,
                                     RIG_MS,     200 * RIG_MS, 10 * RIG_MS,  RIG_S,
                                     RIG_US,     40 * RIG_MS,  6 * RIG_S,    100 * RIG_S};
    uint64_t step;
    int done;

    flush(r);
    if (r->rig->side[0].comm == NULL && r->rig->listen && r->rig->handle[0]) {
        (void)rig_connect_turn(r->rig, 0, &done);
    }
    step = steps[fuzz_u8(&r->in) & 15];
    if (rig_now(r->rig) + step > TIME_MAX) {
        step = RIG_US;
    }
    fuzz_rig_run(r->rig, step);
}

static void op_fault(struct run *r)
{
    static const char *const faults[] = {
        "h0:n0 down",      "h0:n0 up",         "h1:n1 down",     "h1:n1 up",
        "h0:n1 blackhole", "h0:n1 up",         "h0:n0 hang",     "h0:n0 restore",
        "h1:n0 fatal",     "h1:n1 qp-error",   "h1:n0 ack-lost", "*:* restore",
        "h0:n0 down",      "h0:n0 gid-change", "h0:n1 down",     "h1:n0 blackhole"};

    flush(r);
    rig_fault(r->rig, faults[fuzz_u8(&r->in) & 15]);
}

static void reg(struct run *r, int side)
{
    if (r->rig->side[side].comm && r->mr[side] == NULL) {
        r->mr[side] = rig_reg(r->rig, side, r->mem[side], MEM);
    }
}

static void op_traffic(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    size_t size = how & 4 ? MEM : 64;

    reg(r, 0);
    reg(r, 1);
    for (unsigned i = 0; i <= how >> 6; i++) {
        if (how & 1 && r->mr[1] && r->rig->side[1].tail - r->rig->side[1].head < 64) {
            rig_irecv1(r->rig, r->mem[1], size, 0, r->mr[1]);
        }
        if (how & 2 && r->mr[0] && r->rig->side[0].tail - r->rig->side[0].head < 64) {
            rig_isend(r->rig, r->mem[0], size, 0, r->mr[0]);
        }
        rig_run(r->rig, how & 8 ? 20 * RIG_US : RIG_US);
    }
    r->rig->side[1].asleep = how >> 4 & 1;
}

static void end(struct run *r, int side)
{
    if (r->rig->side[side].comm == NULL) {
        return;
    }
    if (r->mr[side]) {
        rig_dereg(r->rig, side, r->mr[side]);
    }
    r->mr[side] = NULL;
    rig_close(r->rig, side);
}

static void op_end(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    struct r2_comm *c = NULL;

    flush(r);
    if (how < 32) {
        end(r, how & 1);
    } else if (how < 64) {
        rig_oob_cut(r->rig, how & 1);
    } else if (how < 128) {
        r->drop[how & 1] ^= 1u << (how >> 1 & 31);
    } else if (r->rig->listen) { /* what a REQ out of nowhere has made */
        rig_enter(&r->rig->side[1]);
        (void)r2_net_accept(r->rig->listen, &c);
        r2_net_close(c);
    }
}

/* --- states to begin in --- */

static int settled(struct rig *rig)
{
    return rig_count(rig, 0, FO_MSG_SETTLED) > 0;
}

static int opened(struct rig *rig)
{
    return rig_count(rig, 1, FO_MSG_OPEN) > 0;
}

static int opened_both(struct rig *rig)
{
    return rig_count(rig, 0, FO_MSG_OPEN_OK) > 0;
}

static void message(struct run *r)
{
    reg(r, 0);
    reg(r, 1);
    rig_irecv1(r->rig, r->mem[1], 64, 0, r->mr[1]);
    rig_send_wait(r->rig, r->mem[0], 64, 0, r->mr[0]);
}

static void fail_over(struct run *r)
{
    r->rig->side[1].asleep = 1;
    message(r);
    rig_fault(r->rig, "h0:n0 down");
    FUZZ_CHECK(rig_until(r->rig, settled, 3 * RIG_S));
    r->rig->side[1].asleep = 0;
}

static void begin(struct run *r, unsigned state)
{
    static const uint32_t step[] = {0, 1u << FO_MSG_REP, 1u << FO_MSG_CONF, 1u << FO_MSG_READY};

    if (state == 0) {
        r->drop[0] = r->drop[1] = step[fuzz_u8(&r->in) & 3]; /* set-up stops there */
        rig_connect_begin(r->rig, 0, 0);
        if (r->drop[0]) {
            fuzz_rig_run(r->rig, 100 * RIG_US);
        }
        return;
    }
    rig_connect(r->rig, 0, 0);
    message(r);
    FUZZ_CHECK(rig_until(r->rig, rig_all_done, RIG_S));
    if (state == 2 || state == 3 || state == 4) {
        fail_over(r);
    }
    if (state == 3 || state == 4) { /* the exchange stops where R, or S, has spoken */
        r->drop[state == 4] = 1u << (state == 3 ? FO_MSG_OPEN_OK : FO_MSG_OPEN_UP);
        rig_fault(r->rig, "h0:n0 up");
        FUZZ_CHECK(rig_until(r->rig, state == 3 ? opened : opened_both, 5 * RIG_S));
    } else if (state >= 5) {
        r->drop[0] = r->drop[1] = 1u << FO_MSG_BYE_OK;
        message(r);
        end(r, state == 6);
    }
}

static void instance_run(struct fuzz_in *in, unsigned state)
{
    static void (*const ops[])(struct run *) = {
        op_say, op_run,   op_say, op_again, op_say, op_traffic, op_run, op_raw,
        op_say, op_fault, op_say, op_again, op_say, op_end,     op_run, op_say};
    static const char *const options[] = {"NCCL_R2_T_RETURN=2", "NCCL_R2_T_PACKET=20", NULL};
    struct run *r = calloc(1, sizeof(*r));

    FUZZ_CHECK(r != NULL);
    running = r;
    r->in = *in;
    r->mem[0] = aligned_alloc(4096, MEM);
    r->mem[1] = aligned_alloc(4096, MEM);
    FUZZ_CHECK(r->mem[0] && r->mem[1]);
    memset(r->mem[0], 1, MEM);
    r->rig = rig_create(2, 0, options);
    r->rig->hostile = 1;
    r->rig->filter = filter;
    begin(r, state);
    while (fuzz_more(&r->in)) {
        ops[fuzz_pick(&r->in, sizeof(ops) / sizeof(ops[0]))](r);
        fuzz_rig_check(r->rig, r->said);
    }
    flush(r);
    rig_run(r->rig, RIG_MS);
    fuzz_rig_check(r->rig, r->said);
    for (int i = 0; i < 2; i++) {
        end(r, i);
    }
    r->rig->filter = NULL;
    fuzz_rig_destroy(r->rig);
    free(r->mem[0]);
    free(r->mem[1]);
    free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};
    unsigned state = fuzz_pick(&in, 8);

    if (state == 0) {
        unpack_run(&in);
    } else {
        instance_run(&in, state - 1);
    }
    return 0;
}
