#include "fuzz_flow.h"

#define POISON 0xee
#define BYTES  ((size_t)FUZZ_FLOW_SLOTS * FUZZ_FLOW_ROOM)

static uint8_t *slot_mem(const struct fuzz_flow *f, int side, uint64_t number)
{
    return f->mem[side] + number % FUZZ_FLOW_SLOTS * FUZZ_FLOW_ROOM;
}

static uint8_t byte_of(uint64_t number, size_t at)
{
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15ull + at * 0xd1342543de82ef95ull;

    return (uint8_t)(x >> 32 ^ x >> 57);
}

void fuzz_flow_init(struct fuzz_flow *f, struct rig *rig, int strict)
{
    *f = (struct fuzz_flow){.rig = rig, .strict = strict};
    for (int i = 0; i < 2; i++) {
        f->mem[i] = aligned_alloc(4096, BYTES);
        FUZZ_CHECK(f->mem[i] != NULL);
        memset(f->mem[i], POISON, BYTES);
        f->mr[i] = rig_reg(rig, i, f->mem[i], BYTES);
    }
}

void fuzz_flow_post(struct fuzz_flow *f, size_t size)
{
    unsigned s = f->posted % FUZZ_FLOW_SLOTS;
    int op;

    if (f->posted - f->taken == FUZZ_FLOW_SLOTS || f->posted - f->sent == FUZZ_FLOW_SLOTS ||
        (f->posted >= FUZZ_FLOW_SLOTS && !rig_done(f->rig, 0, f->slot[s].s_op))) {
        return;
    }
    for (size_t k = 0; k < size; k++) {
        slot_mem(f, 0, f->posted)[k] = byte_of(f->posted, k);
    }
    op = rig_irecv1(f->rig, slot_mem(f, 1, f->posted), FUZZ_FLOW_ROOM, 0, f->mr[1]);
    if (op < 0) {
        return;
    }
    f->slot[s].size = size;
    f->slot[s].r_op = op;
    f->slot[s].s_op = -1;
    f->posted++;
}

static void is_poison(const uint8_t *b, size_t n)
{
    FUZZ_CHECK(n == 0 || (b[0] == POISON && memcmp(b, b + 1, n - 1) == 0));
}

static void take(struct fuzz_flow *f)
{
    unsigned s = f->taken % FUZZ_FLOW_SLOTS;
    uint8_t *b = slot_mem(f, 1, f->taken);

    if (f->strict) {
        FUZZ_CHECK(rig_size(f->rig, 1, f->slot[s].r_op, 0) == f->slot[s].size);
        for (size_t k = 0; k < f->slot[s].size; k++) {
            FUZZ_CHECK(b[k] == byte_of(f->taken, k));
        }
        is_poison(b + f->slot[s].size, FUZZ_FLOW_ROOM - f->slot[s].size);
        memset(b, POISON, FUZZ_FLOW_ROOM);
    }
    f->taken++;
}

void fuzz_flow_step(struct fuzz_flow *f)
{
    struct rig *r = f->rig;

    while (f->sent < f->posted) {
        unsigned s = f->sent % FUZZ_FLOW_SLOTS;

        f->slot[s].s_op = rig_isend(r, slot_mem(f, 0, f->sent), f->slot[s].size, 0, f->mr[0]);
        if (f->slot[s].s_op < 0) {
            break;
        }
        f->sent++;
    }
    while (f->taken < f->posted && rig_done(r, 1, f->slot[f->taken % FUZZ_FLOW_SLOTS].r_op)) {
        take(f);
    }
    if (!f->strict) {
        return;
    }
    FUZZ_CHECK(r->side[0].status == R2_OK && r->side[1].status == R2_OK);
    for (uint64_t n = f->posted; n < f->taken + FUZZ_FLOW_SLOTS;
         n++) { /* received long ago, or never */
        is_poison(slot_mem(f, 1, n), FUZZ_FLOW_ROOM);
    }
}

void fuzz_flow_run(struct fuzz_flow *f, uint64_t ns)
{
    for (int i = 0; i < 4; i++) {
        fuzz_rig_run(f->rig, ns / 4);
        fuzz_flow_step(f);
    }
}

int fuzz_flow_done(const struct fuzz_flow *f)
{
    return f->taken == f->posted && rig_all_done(f->rig);
}

void fuzz_flow_end(struct fuzz_flow *f)
{
    for (int i = 0; i < 2; i++) {
        rig_dereg(f->rig, i, f->mr[i]);
    }
}

void fuzz_flow_free(struct fuzz_flow *f)
{
    free(f->mem[0]);
    free(f->mem[1]);
}
