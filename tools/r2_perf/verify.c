#include "tools/r2_perf/verify.h"

#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

#define VERIFY_TABLE_BYTES (VERIFY_PERIOD * 8)

struct verify {
    int nranks;
    char *input;   /* nranks tables: the values of each rank */
    char *reduced; /* what a reduction of all of them gives */
    uint64_t serial;
    size_t made; /* elements valid in the tables of this serial */
    enum type_id type;
    enum type_redop redop;
    bool reduces;
};

struct verify *verify_open(int nranks)
{
    struct verify *v = util_mem_alloc(1, sizeof(*v));
    v->nranks = nranks;
    v->input = util_mem_alloc((size_t)nranks, VERIFY_TABLE_BYTES);
    v->reduced = util_mem_alloc(1, VERIFY_TABLE_BYTES);
    v->serial = UINT64_MAX;
    return v;
}

void verify_close(struct verify *v)
{
    if (v) {
        free(v->input);
        free(v->reduced);
        free(v);
    }
}

static char *verify_table_get(struct verify *v, int rank)
{
    return v->input + (size_t)rank * VERIFY_TABLE_BYTES;
}

/* Tables for operation @c; small operations need, and get, only as many entries as they have
 * elements. */
static void verify_tables_make(struct verify *v, const struct verify_case *c)
{
    const struct algo_info *info = algo_info_get(c->op);
    size_t ts = type_id_size(c->type);
    size_t need = util_size_min(util_size_max(c->counts.send, c->counts.recv), VERIFY_PERIOD);
    enum type_redop redop = info->reduces ? c->redop : REDOP_SUM;
    if (v->serial == c->serial && v->made >= need && v->type == c->type && v->redop == redop) {
        return;
    }
    for (int r = 0; r < v->nranks; r++) {
        char *table = verify_table_get(v, r);
        uint64_t key = util_hash64(c->serial * 1024 + (uint64_t)r);
        for (size_t i = 0; i < need; i++) {
            type_value_make(c->type, redop, util_hash64(key + i), info->reduces ? v->nranks : 1,
                            table + i * ts);
        }
    }
    if (info->reduces) {
        memcpy(v->reduced, v->input, need * ts);
        for (int r = 1; r < v->nranks; r++) {
            type_vec_reduce(c->type, redop, v->reduced, v->reduced, verify_table_get(v, r), need);
        }
        type_vec_finish(c->type, redop, v->reduced, need, v->nranks);
    }
    v->serial = c->serial;
    v->made = need;
    v->type = c->type;
    v->redop = redop;
}

/* A stretch of a buffer whose element i is table[(first + i) mod VERIFY_PERIOD]. */
struct verify_part {
    const char *table;
    size_t first, n;
};

typedef uint64_t (*verify_block_t)(char *data, const char *want, size_t n, size_t ts);

static uint64_t verify_block_write(char *data, const char *want, size_t n, size_t ts)
{
    memcpy(data, want, n * ts);
    return 0;
}

static uint64_t verify_block_poison(char *data, const char *want, size_t n, size_t ts)
{
    size_t bytes = n * ts, i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t w;
        memcpy(&w, want + i, 8);
        w = ~w;
        memcpy(data + i, &w, 8);
    }
    for (; i < bytes; i++) {
        data[i] = (char)~want[i];
    }
    return 0;
}

static uint64_t verify_block_compare(char *data, const char *want, size_t n, size_t ts)
{
    uint64_t wrong = 0;
    if (memcmp(data, want, n * ts) == 0) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        wrong += memcmp(data + i * ts, want + i * ts, ts) != 0;
    }
    return wrong;
}

/* The same, against the complement: counts elements that somebody wrote. */
static uint64_t verify_block_untouched(char *data, const char *want, size_t n, size_t ts)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        bool same = true;
        for (size_t k = 0; k < ts; k++) {
            same = same && (uint8_t)(data[i * ts + k] ^ want[i * ts + k]) == 0xff;
        }
        wrong += !same;
    }
    return wrong;
}

static uint64_t verify_part_apply(char *data, const struct verify_part *p, size_t ts,
                                  verify_block_t block)
{
    uint64_t wrong = 0;
    size_t at = p->first % VERIFY_PERIOD;
    for (size_t i = 0; i < p->n;) {
        size_t run = util_size_min(VERIFY_PERIOD - at, p->n - i);
        wrong += block(data + i * ts, p->table + at * ts, run, ts);
        i += run;
        at = 0;
    }
    return wrong;
}

/* The @i-th stretch of the expected result; false after the last. */
static bool verify_expected_get(struct verify *v, const struct verify_case *c, int i,
                                struct verify_part *out)
{
    size_t n = c->counts.recv, base = c->counts.param, rank = (size_t)c->rank;
    switch (c->op) {
    case ALGO_ALL_REDUCE:
        *out = (struct verify_part){v->reduced, 0, n};
        return i < 1;
    case ALGO_REDUCE:
        *out = (struct verify_part){v->reduced, 0, n};
        return i < 1 && (c->rank == c->root || !c->in_place);
    case ALGO_GATHER:
        *out = (struct verify_part){verify_table_get(v, i % c->nranks), 0, base};
        return i < c->nranks && (c->rank == c->root || !c->in_place);
    case ALGO_SCATTER:
        *out = (struct verify_part){verify_table_get(v, c->root), rank * base, base};
        return i < 1;
    case ALGO_REDUCE_SCATTER:
        *out = (struct verify_part){v->reduced, rank * base, n};
        return i < 1;
    case ALGO_BROADCAST:
        *out = (struct verify_part){verify_table_get(v, c->root), 0, n};
        return i < 1;
    case ALGO_SENDRECV:
        *out =
            (struct verify_part){verify_table_get(v, (c->rank + c->nranks - 1) % c->nranks), 0, n};
        return i < 1;
    case ALGO_ALL_GATHER:
    case ALGO_ALLTOALL:
    default:
        *out = (struct verify_part){verify_table_get(v, i % c->nranks),
                                    c->op == ALGO_ALLTOALL ? rank * base : 0, base};
        return i < c->nranks;
    }
}

static uint64_t verify_expected_apply(struct verify *v, const struct verify_case *c, char *recv,
                                      verify_block_t block)
{
    size_t ts = type_id_size(c->type);
    uint64_t wrong = 0;
    struct verify_part part;
    for (int i = 0; verify_expected_get(v, c, i, &part); i++) {
        wrong += verify_part_apply(recv, &part, ts, block);
        recv += part.n * ts;
    }
    return wrong;
}

void verify_data_fill(struct verify *v, const struct verify_case *c, void *send, void *recv)
{
    verify_tables_make(v, c);
    verify_expected_apply(v, c, (char *)recv, verify_block_poison);
    struct verify_part mine = {verify_table_get(v, c->rank), 0, c->counts.send};
    bool has_input = (c->op != ALGO_BROADCAST && c->op != ALGO_SCATTER) || c->rank == c->root;
    if (has_input) {
        verify_part_apply(send, &mine, type_id_size(c->type), verify_block_write);
    }
}

uint64_t verify_data_check(struct verify *v, const struct verify_case *c, const void *recv)
{
    if (c->in_place && !algo_info_get(c->op)->in_place_ok) {
        return 0;
    }
    verify_tables_make(v, c);
    bool bystander = (c->op == ALGO_REDUCE || c->op == ALGO_GATHER) && c->rank != c->root;
    return verify_expected_apply(v, c, (char *)recv,
                                 bystander ? verify_block_untouched : verify_block_compare);
}
