/* Several registrations of the same memory: each is one of its own, and an abort begins with the
 * last one that a connection has (P27). */
#include "tests/unit/race_rig.h"
#include "tests/unit/second_conn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/fabric/verbs/fab_ibv_priv.h"

#define LEN 20000

static int calloc_fails; /* the next one */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    if (calloc_fails) {
        calloc_fails = 0;
        return NULL;
    }
    return __real_calloc(n, size);
}

static int realloc_fails; /* the next one */
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_realloc(void *p, size_t size)
{
    if (realloc_fails) {
        realloc_fails = 0;
        return NULL;
    }
    return __real_realloc(p, size);
}

static uint8_t elsewhere[3 * 4096]; /* its middle is in no page of the slots */

static uint8_t *mem(int side)
{
    return side ? in[0] : out[0];
}

static struct ib_mr_stats stats(int side)
{
    struct ib_mr_stats s;

    ib_mr_cache_stats(rig->side[side].inst->mem.mrs, &s);
    return s;
}

static int failed(int side)
{
    return comm(side)->fo.posting_stopped || comm(side)->fo.error != R2_OK;
}

static void begin(void)
{
    race_create(2, NULL);
    rig_connect(rig, 0, 0);
}

/* A message is under way, from slot 1 to slot 1, its requests with @s and @r. */
static void under_way(struct ib_mr *s, struct ib_mr *r)
{
    s_mr = s;
    r_mr = r;
    recv_post(1, LEN);
    send_post(1);
    ck_assert(!rig_all_done(rig));
}

static enum r2_status dereg(int side, struct ib_mr *mr)
{
    rig_enter(&rig->side[side]);
    return r2_net_dereg(comm(side), mr);
}

/* The same range twice: end @_i releases one handle while a request uses the other, goes on, and
 * releases that one when nothing is under way. */
START_TEST(one_of_two_is_released_under_a_request)
{
    struct ib_mr *mr[2][2];

    begin();
    for (int i = 0; i < 4; i++) {
        mr[i & 1][i / 2] = rig_reg(rig, i & 1, mem(i & 1), sizeof(in));
    }
    under_way(mr[0][1], mr[1][1]);
    rig_dereg(rig, _i, mr[_i][0]);
    ck_assert(!failed(_i));
    finish(0, RIG_S);
    slot_is_right(1);
    messages(3, LEN);
    rig_dereg(rig, _i, mr[_i][1]);
    ck_assert(!failed(_i));
    ck_assert_int_eq(stats(_i).live, 0);
    rig_dereg(rig, !_i, mr[!_i][0]);
    rig_dereg(rig, !_i, mr[!_i][1]);
}
END_TEST

/* ... and the last one is an abort as ever, after which both ends have an error. */
START_TEST(the_last_is_released_under_a_request)
{
    struct ib_mr *mr[2][2];

    begin();
    for (int i = 0; i < 4; i++) {
        mr[i & 1][i / 2] = rig_reg(rig, i & 1, mem(i & 1), sizeof(in));
    }
    under_way(mr[0][1], mr[1][1]);
    rig_dereg(rig, _i, mr[_i][1]);
    ck_assert(!failed(_i));
    rig_dereg(rig, _i, mr[_i][0]);
    ck_assert(comm(_i)->fo.posting_stopped);
    ck_assert_int_eq(comm(_i)->fo.error, R2_ERR_ARG);
    ck_assert_int_eq(stats(_i).live, 0);
    rig_close(rig, _i);
    if (_i) {
        slots_taken_away = 1;
    }
    rig_run(rig, 100 * RIG_MS);
    ck_assert(rig->side[!_i].status != R2_OK ||
              rig->side[!_i].head == rig->side[!_i].tail); /* what was on its way may arrive */
}
END_TEST

/* A part of memory that is registered as a whole has the whole one's keys: either may be released
 * first, and what is left carries on. */
START_TEST(part_of_a_larger_registration)
{
    int side = _i & 1, part_first = _i / 2;
    struct ib_mr *whole[2], *part[2];

    begin();
    for (int i = 0; i < 2; i++) {
        whole[i] = rig_reg(rig, i, mem(i), sizeof(in));
        part[i] = rig_reg(rig, i, mem(i) + BIG, BIG);
    }
    ck_assert_ptr_eq(whole[side], part[side]);
    under_way(part[0], part[1]);
    rig_dereg(rig, side, part_first ? part[side] : whole[side]);
    ck_assert_ptr_ne(rig_reg(rig, side, mem(side), sizeof(in)), whole[side]); /* it may be gone */
    ck_assert(!failed(side));
    finish(0, RIG_S);
    slot_is_right(1);
    recv_post(1, LEN);
    send_post(1);
    rig_dereg(rig, side, part_first ? whole[side] : part[side]);
    ck_assert(comm(side)->fo.posting_stopped);
    ck_assert_int_eq(comm(side)->fo.error, R2_ERR_ARG);
}
END_TEST

/* --- a second connection between the same processes --- */

static struct ib_mr *second_reg(int side)
{
    struct ib_mr *mr;

    rig_enter(&rig->side[side]);
    ck_assert_int_eq(r2_net_reg(second[side], mem(side), sizeof(in), IB_PTR_HOST, 0, -1, &mr),
                     R2_OK);
    return mr;
}

/* Handles of another connection are not this one's: neither does their release end it, nor do they
 * keep it from ending. */
START_TEST(connections_that_share_a_registration)
{
    struct ib_mr *mr[2], *other[2];

    begin();
    second_connect();
    for (int i = 0; i < 2; i++) {
        mr[i] = rig_reg(rig, i, mem(i), sizeof(in));
        other[i] = second_reg(i);
        ck_assert_ptr_eq(mr[i], other[i]);
    }
    under_way(mr[0], mr[1]);
    rig_enter(&rig->side[_i]);
    ck_assert_int_eq(r2_net_dereg(second[_i], other[_i]), R2_OK);
    ck_assert(!failed(_i));
    ck_assert_int_eq(second[_i]->fo.error, R2_OK);
    other[_i] = second_reg(_i);
    rig_dereg(rig, _i, mr[_i]);
    ck_assert(comm(_i)->fo.posting_stopped);
    ck_assert_int_eq(comm(_i)->fo.error, R2_ERR_ARG);
    ck_assert_int_eq(second[_i]->fo.error, R2_OK);
    ck_assert_int_eq(stats(_i).live, 1);
    rig_enter(&rig->side[_i]);
    ck_assert_int_eq(r2_net_dereg(second[_i], other[_i]), R2_OK);
    ck_assert_int_eq(stats(_i).live, 0);
    second_close();
}
END_TEST

/* NCCL 2.20 to 2.23: the whole on one connection, and by operation a part of it on another one. */
START_TEST(parts_by_operation)
{
    struct ib_mr *whole;

    begin();
    second_connect();
    whole = second_reg(_i);
    for (int i = 0; i < 4; i++) {
        ck_assert_ptr_eq(rig_reg(rig, _i, mem(_i) + BIG, BIG), whole);
        rig_dereg(rig, _i, whole);
    }
    ck_assert_uint_eq(stats(_i).hits, 4);
    rig_enter(&rig->side[_i]);
    ck_assert_int_eq(r2_net_dereg(second[_i], whole), R2_OK);
    ck_assert_int_eq(stats(_i).live, 0);
    second_close();
}
END_TEST

/* What is left at close stays as it is, may be used on another connection, and is released there,
 * each handle once. */
START_TEST(closed_with_handles_left)
{
    struct ib_mr *mr, *alone, *other;

    begin();
    second_connect();
    mr = rig_reg(rig, _i, mem(_i), sizeof(in));
    ck_assert_ptr_eq(rig_reg(rig, _i, mem(_i) + BIG, BIG), mr);
    alone = rig_reg(rig, _i, elsewhere + 4096, 8);
    ck_assert_ptr_ne(alone, mr);
    other = second_reg(_i);
    ck_assert_ptr_eq(other, mr);
    ck_assert_int_eq(mr->refs, 3);
    ck_assert_int_eq(stats(_i).live, 2);
    rig_close(rig, _i);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, _i), 1);
    ck_assert_int_eq(stats(_i).live, 2);
    other = second_reg(_i); /* the memory may be another by now */
    ck_assert_ptr_ne(other, mr);
    ck_assert_int_eq(stats(_i).live, 3);
    rig_enter(&rig->side[_i]);
    ck_assert_int_eq(r2_net_dereg(second[_i], other), R2_OK);
    for (int refs = 3; refs > 0; refs--) {
        ck_assert_int_eq(mr->refs, refs);
        ck_assert_int_eq(r2_net_dereg(second[_i], mr), R2_OK);
    }
    ck_assert_int_eq(stats(_i).live, 1);
    ck_assert_int_eq(r2_net_dereg(second[_i], mr), R2_ERR_ARG);
    ck_assert_int_eq(r2_net_dereg(second[_i], alone), R2_OK);
    ck_assert_int_eq(stats(_i).live, 0);
    ck_assert_int_eq(r2_net_dereg(second[_i], alone), R2_ERR_ARG);
    second_close();
}
END_TEST

static int all_in_error(const struct r2_comm *c)
{
    int n = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        n += fab_ibv_qp(c->conn.path[p].qp)->state == IBV_QPS_ERR;
    }
    return n == c->conn.npaths;
}

/*
 * The last handle is released on another connection, under a request: whose request it is aborts
 * as if it had been released there.
 */
START_TEST(released_elsewhere_under_a_request)
{
    struct ib_mr *mr[2];

    begin();
    second_connect();
    for (int i = 0; i < 2; i++) {
        mr[i] = rig_reg(rig, i, mem(i), sizeof(in));
    }
    under_way(mr[0], mr[1]);
    slots_taken_away = _i;
    rig_enter(&rig->side[_i]);
    ck_assert_int_eq(r2_net_dereg(second[_i], mr[_i]), R2_OK);
    ck_assert(comm(_i)->fo.posting_stopped);
    ck_assert(all_in_error(comm(_i)));
    ck_assert_int_eq(stats(_i).live, 0);
    ck_assert_uint_eq(stats(_i).kept, 0);
    ck_assert_int_eq(second[_i]->fo.error, R2_OK);
    ck_assert(!all_in_error(second[_i]));
    second_close();
}
END_TEST

/*
 * Left at an aborting close, and released on another connection while the driver has not moved
 * the queue pairs: kept. Later: let go.
 */
START_TEST(left_under_a_request)
{
    const int stuck = _i / 2, side = _i & 1;
    struct ib_mr *mr[2];

    begin();
    second_connect();
    for (int i = 0; i < 2; i++) {
        mr[i] = rig_reg(rig, i, mem(i), sizeof(in));
    }
    under_way(mr[0], mr[1]);
    slots_taken_away = side;
    rig_oob_cut(rig, 1); /* the connection stays until the peer has heard */
    rig->side[side].worker_armed |= stuck ? 1 : 0;
    rig_close(rig, side);
    ck_assert_int_eq(stats(side).live, 1);
    rig_enter(&rig->side[side]);
    ck_assert_int_eq(r2_net_dereg(second[side], mr[side]), R2_OK);
    ck_assert_int_eq(stats(side).live, stuck);
    ck_assert_uint_eq(stats(side).kept, (uint64_t)stuck);
    ck_assert_int_eq(second[side]->fo.error, R2_OK);
    rig->side[side].worker_armed &= ~1u;
    rig_enter(&rig->side[side]);
    while (r2_inst_worker_step(rig->side[side].inst, 0)) {
    }
    rig_oob_cut(rig, 0);
    rig_kick(&rig->side[side]);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, side), 1);
    second_close();
}
END_TEST

/* --- several connections with requests under one registration --- */

#define USERS 4

static struct r2_comm *user[USERS][2];
static struct r2_listen *user_listen[USERS];
static uint64_t job_ns;            /* what a slow device takes for each job of R's */
static unsigned jobs, up_at_first; /* how many it has done; connections of which some path was up
                                      when it did the first */

static void slow_worker(void *arg)
{
    struct rig_side *s = &rig->side[1];

    if (jobs == 0) {
        for (int i = 0; i < USERS; i++) {
            up_at_first += user[i][1]->conn.up != 0;
        }
    }
    rig_enter(s);
    if (r2_inst_worker_step(s->inst, 0)) {
        jobs++;
        fab_inproc_at(rig->f, rig_now(rig) + job_ns, slow_worker, NULL);
    } else { /* fast again */
        s->worker_armed &= ~1u;
    }
    rig_kick(s);
}

static void users_begin(struct ib_mr *mr)
{
    for (int i = 0; i < USERS; i++) {
        struct r2_req *req = NULL;
        void *data = in[i];

        second_connect();
        user_listen[i] = second_listen;
        memcpy(user[i], second, sizeof(second));
        rig_enter(&rig->side[1]);
        ck_assert_int_eq(r2_net_irecv(user[i][1], 1, &data, &(size_t){LEN}, &(int){0}, &mr, &req),
                         R2_OK);
        ck_assert_ptr_nonnull(req);
    }
    rig_run(rig, RIG_MS);
}

static void users_close(void)
{
    for (int i = 0; i < USERS; i++) {
        second_listen = user_listen[i];
        memcpy(second, user[i], sizeof(second));
        second_close();
    }
}

/*
 * All of them are on their way to ERR before one is waited for, and the wait is one: T_dead for the
 * queue of the device and ten T_fence for its last call, however many they are. Row: all are
 * stopped in time; the device is too slow for that.
 */
START_TEST(several_connections_on_a_slow_device)
{
    const uint64_t dead = 500 * RIG_MS, call = 200 * RIG_MS;
    struct r2_comm *idle[2];
    struct r2_listen *listen;
    uint64_t from;

    race_create(1, (const char *[]){"NCCL_R2_T_DEAD=500", "NCCL_R2_WATCHDOG=off", NULL});
    rig_connect(rig, 0, 0);
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    users_begin(r_mr);
    second_connect();
    memcpy(idle, second, sizeof(idle));
    listen = second_listen;
    jobs = up_at_first = 0;
    job_ns = (_i ? 190 : 60) * RIG_MS;
    rig->side[1].worker_armed |= 1;
    fab_inproc_at(rig->f, rig_now(rig) + job_ns, slow_worker, NULL);
    slots_taken_away = 1;
    from = rig_now(rig);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_dereg(idle[1], r_mr), R2_OK);
    ck_assert_uint_ge(jobs, 2);
    ck_assert_uint_eq(up_at_first, 0);
    ck_assert_uint_lt(rig_now(rig) - from, dead + call + 10 * RIG_MS);
    for (int i = 0; i < USERS; i++) {
        ck_assert(user[i][1]->fo.posting_stopped);
        ck_assert_int_eq(user[i][1]->list.visits, 0);
        ck_assert(_i || all_in_error(user[i][1]));
    }
    ck_assert_int_eq(idle[1]->fo.error, R2_OK);
    ck_assert_uint_eq(stats(1).kept, (uint64_t)_i);
    ck_assert_int_eq(stats(1).live, _i);
    rig_run(rig, 5 * RIG_S); /* the device catches up */
    memcpy(second, idle, sizeof(second));
    second_listen = listen;
    second_close();
    users_close();
}
END_TEST

/* Who aborts and cannot be noted cannot be waited for: all abort, and the registration stays. */
START_TEST(no_memory_to_wait_for_an_abort)
{
    struct r2_comm *idle[2];
    struct r2_listen *listen;

    race_create(1, (const char *[]){"NCCL_R2_WATCHDOG=off", NULL});
    rig_connect(rig, 0, 0);
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    users_begin(r_mr);
    second_connect();
    memcpy(idle, second, sizeof(idle));
    listen = second_listen;
    rig_enter(&rig->side[1]);
    realloc_fails = 1;
    ck_assert_int_eq(r2_net_dereg(idle[1], r_mr), R2_OK);
    ck_assert_int_eq(realloc_fails, 0);
    ck_assert_uint_eq(stats(1).kept, 1);
    ck_assert_int_eq(stats(1).live, 1);
    for (int i = 0; i < USERS; i++) {
        ck_assert(user[i][1]->fo.posting_stopped);
        ck_assert_int_eq(user[i][1]->list.visits, 0);
    }
    rig_run(rig, RIG_S);
    memcpy(second, idle, sizeof(second));
    second_listen = listen;
    second_close();
    users_close();
}
END_TEST

/* Requests outstanding and no registration released before: the close does not touch the driver,
 * and the other end hears of the end. */
START_TEST(aborted_with_handles_left)
{
    begin();
    race_register();
    under_way(s_mr, r_mr);
    slots_taken_away = 1;
    rig_close(rig, _i);
    ck_assert_int_eq(stats(_i).live, 1);
    rig_run(rig, 100 * RIG_MS);
    ck_assert(rig->side[!_i].status != R2_OK ||
              rig->side[!_i].head == rig->side[!_i].tail); /* what was on its way may arrive */
    ck_assert_int_eq(rig_comms(rig, _i), 0);
}
END_TEST

/* --- threads --- */

static struct ib_mr *other_mr;
static _Atomic int other_ended;

static void *other_registers(void *side)
{
    int i = (int)(intptr_t)side;

    ck_assert_int_eq(r2_net_reg(comm(i), mem(i), sizeof(in), IB_PTR_HOST, 0, -1, &other_mr), R2_OK);
    other_ended = 1;
    return NULL;
}

/* The service thread is at the instant of a return at which a path is not written to its end:
 * NCCL's thread waits to see its NIC. */
START_TEST(registered_while_a_path_returns)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    struct ib_path *path;
    pthread_t other;
    uint8_t nic;

    begin();
    path = &comm(_i)->conn.path[1];
    nic = path->nic;
    rig_enter(&rig->side[_i]);
    other_ended = 0;
    r2_gate_setup(1);
    r2_gate_visit(&comm(_i)->gate);
    path->nic = 0;
    ck_assert_int_eq(pthread_create(&other, NULL, other_registers, (void *)(intptr_t)_i), 0);
    for (int i = 0; i < 50 && !other_ended; i++) {
        nanosleep(&ms, NULL);
    }
    ck_assert(!other_ended);
    path->nic = nic;
    r2_gate_unvisit(&comm(_i)->gate);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    r2_gate_setup(0);
    ck_assert_int_ne(nic, 0);
    ck_assert_uint_ne(ib_mr_lkey(other_mr, nic), 0);
    ck_assert_uint_ne(ib_mr_lkey(other_mr, 0), 0);
    rig_dereg(rig, _i, other_mr);
}
END_TEST

/* --- what cannot be --- */

/* A handle may be released on another connection, as with NCCL's own transport; not twice. */
START_TEST(released_on_another_connection)
{
    struct ib_mr *mr;
    int side = _i & 1;

    begin();
    second_connect();
    mr = rig_reg(rig, side, mem(side), sizeof(in));
    rig_enter(&rig->side[side]);
    ck_assert_int_eq(r2_net_dereg(second[side], mr), R2_OK);
    ck_assert_int_eq(stats(side).live, 0);
    ck_assert_int_eq(r2_net_dereg(second[side], mr), R2_ERR_ARG);
    if (_i & 2) { /* who had it releases it as well: nothing is left to release, and nothing is
                     touched that is gone */
        ck_assert_int_eq(dereg(side, mr), R2_OK);
        ck_assert_int_eq(dereg(side, mr), R2_ERR_ARG);
    }
    ck_assert(!failed(side));
    second_close();
}
END_TEST

/* Without memory for the count there is no handle either. */
START_TEST(no_memory_to_count_a_handle)
{
    struct ib_mr *mr, *again;

    begin();
    rig_enter(&rig->side[_i]);
    calloc_fails = 1;
    ck_assert_int_eq(r2_net_reg(comm(_i), mem(_i), sizeof(in), IB_PTR_HOST, 0, -1, &mr),
                     R2_ERR_SYSTEM);
    ck_assert_int_eq(calloc_fails, 0);
    ck_assert_ptr_null(mr);
    ck_assert_int_eq(stats(_i).live, 0);
    mr = rig_reg(rig, _i, mem(_i), sizeof(in));
    rig_enter(&rig->side[_i]);
    calloc_fails = 1;
    ck_assert_int_eq(r2_net_reg(comm(_i), mem(_i), sizeof(in), IB_PTR_HOST, 0, -1, &again),
                     R2_ERR_SYSTEM);
    ck_assert_int_eq(mr->refs, 1);
    rig_dereg(rig, _i, mr);
    ck_assert_int_eq(stats(_i).live, 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, one_of_two_is_released_under_a_request, 0, 2);
    tcase_add_loop_test(t, the_last_is_released_under_a_request, 0, 2);
    tcase_add_loop_test(t, part_of_a_larger_registration, 0, 4);
    tcase_add_loop_test(t, connections_that_share_a_registration, 0, 2);
    tcase_add_loop_test(t, parts_by_operation, 0, 2);
    tcase_add_loop_test(t, closed_with_handles_left, 0, 2);
    tcase_add_loop_test(t, released_elsewhere_under_a_request, 0, 2);
    tcase_add_loop_test(t, left_under_a_request, 0, 4);
    tcase_add_loop_test(t, several_connections_on_a_slow_device, 0, 2);
    tcase_add_test(t, no_memory_to_wait_for_an_abort);
    tcase_add_loop_test(t, aborted_with_handles_left, 0, 2);
    tcase_add_loop_test(t, registered_while_a_path_returns, 0, 2);
    tcase_add_loop_test(t, released_on_another_connection, 0, 4);
    tcase_add_loop_test(t, no_memory_to_count_a_handle, 0, 2);
}

int main(void)
{
    return run_suite("registrations: handles", add);
}
