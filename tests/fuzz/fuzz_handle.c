/*
 * Handles of NCCL's bootstrap that somebody has changed: connect with them, again and again, beside
 * a connection that is all right. A connection is handed out once, and only for the handle it was
 * begun with.
 */
#include "fuzz_rig.h"

#include "plugin/base/r2_fnv.h"
#include "plugin/base/r2_log.h"

#define HANDLES   4
#define GIVEN_MAX 32
#define CHECK_AT  72 /* of the check in a handle; the token follows */

struct run {
    struct fuzz_in in;
    struct rig *rig;
    uint8_t right[R2_NET_HANDLE_SIZE]; /* as listen gave it */
    uint8_t handle[HANDLES][R2_NET_HANDLE_SIZE];
    struct r2_comm *given[GIVEN_MAX]; /* open connections that connect has handed out */
    unsigned givens;
    int begun;
};

/* Who can change a handle can do that, too. */
static void check_mend(uint8_t *h)
{
    uint32_t x = r2_fnv_add(R2_FNV_BASIS, h, CHECK_AT);

    memcpy(h + CHECK_AT, &x, sizeof(x));
}

static void op_edit(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    uint8_t *h = r->handle[how % HANDLES];

    if (how & 4) {
        memcpy(h, r->right, R2_NET_HANDLE_SIZE);
    }
    if (how & 8) {
        fuzz_edit(&r->in, h, CHECK_AT);
    }
    if (how & 16) {
        uint32_t token = fuzz_u8(&r->in);

        memcpy(h + CHECK_AT + 4, &token, sizeof(token));
    }
    if (how & 32) {
        memcpy(h, r->handle[how >> 6], R2_NET_HANDLE_SIZE);
    } else if (how & 64) {
        fuzz_edit(&r->in, h, R2_NET_HANDLE_SIZE);
    }
    if (!(how & 128)) {
        check_mend(h);
    }
}

static void op_connect(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    int dev = how & 128 ? (int8_t)fuzz_u8(&r->in) : (int)(how >> 2 & 1);
    struct r2_comm *c;
    enum r2_status st;

    if (r->givens == GIVEN_MAX || r->begun > 40) {
        return; /* a machine has no memory for more either */
    }
    r->begun++;
    rig_enter(&r->rig->side[0]);
    st = r2_net_connect(r->rig->side[0].inst, dev, r->handle[how % HANDLES], &c);
    FUZZ_CHECK(st == R2_OK || c == NULL);
    if (c == NULL) {
        return;
    }
    FUZZ_CHECK(c != r->rig->side[0].comm && c->is_send && c->dev == dev);
    for (unsigned i = 0; i < r->givens; i++) {
        FUZZ_CHECK(r->given[i] != c);
    }
    r->given[r->givens++] = c;
}

static void op_close(struct run *r)
{
    unsigned i = fuzz_u8(&r->in);
    struct r2_comm *c = NULL;

    if (i & 1) {
        rig_enter(&r->rig->side[1]);
        (void)r2_net_accept(r->rig->listen, &c);
        r2_net_close(c);
    } else if (r->givens) {
        i %= r->givens;
        rig_enter(&r->rig->side[0]);
        r2_net_close(r->given[i]);
        r->given[i] = r->given[--r->givens];
    }
}

static void op_run(struct run *r)
{
    static const uint64_t steps[] = {10 * RIG_US, 100 * RIG_US, RIG_MS, 10 * RIG_MS};

    fuzz_rig_run(r->rig, steps[fuzz_u8(&r->in) & 3]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ops[])(struct run *) = {op_connect, op_connect, op_run,  op_edit,
                                                op_connect, op_run,     op_edit, op_close};
    struct run *r = calloc(1, sizeof(*r));

    FUZZ_CHECK(r != NULL);
    r->in = (struct fuzz_in){data, data + size};
    r->rig = rig_create(2, 0, (const char *[]){"NCCL_R2_CONNECT=200", NULL});
    r->rig->hostile = 1;
    rig_connect_begin(r->rig, 0, 0);
    memcpy(r->right, r->rig->handle, sizeof(r->right));
    memset(r->right + CHECK_AT + 4, 0, 4);
    for (int i = 0; i < HANDLES; i++) {
        memcpy(r->handle[i], r->right, sizeof(r->right));
    }
    for (int done = 0; !done;) {
        FUZZ_CHECK(rig_connect_turn(r->rig, 0, &done) == R2_OK);
    }
    while (fuzz_more(&r->in)) {
        ops[fuzz_pick(&r->in, sizeof(ops) / sizeof(ops[0]))](r);
    }
    fuzz_rig_run(r->rig, 10 * RIG_MS);
    while (r->givens) {
        rig_enter(&r->rig->side[0]);
        r2_net_close(r->given[--r->givens]);
    }
    fuzz_rig_destroy(r->rig);
    free(r);
    return 0;
}
