/* Planned drains (docs/design-host.md): traffic leaves a healthy NIC without a replay, and comes back. What other processes of the host say. */
#include "tests/unit/failback_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/r2_drain.h"
#include "plugin/r2_host.h"
#include "plugin/r2_pair.h"
#include "plugin/r2_rundir.h"

/* As if the administrator had said so: bit per NIC. */
static void drain(int side, uint32_t nics)
{
    struct r2_inst *inst = rig->side[side].inst;
    int n = 0;

    inst->cfg.drain[0] = '\0';
    for (uint32_t m = nics; m; m &= m - 1) {
        n += snprintf(inst->cfg.drain + n, sizeof(inst->cfg.drain) - (size_t)n, "%sfab%d", n ? "," : "=", __builtin_ctz(m));
    }
    rig_enter(&rig->side[side]);
    r2_drain_look(inst);
    ck_assert_uint_eq(inst->drained, nics);
    rig_kick(&rig->side[side]);
}

static uint64_t posted(int side)
{
    uint64_t n = 0;

    for (int p = 0; p < comm(side)->link.npaths; p++) {
        n += comm(side)->link.path[p].wrs;
    }
    return n;
}

/* Drained at either end, under traffic: what is on the way ends there, nothing is posted twice, the life ends, undrained it returns. */
START_TEST(traffic_leaves_and_comes_back)
{
    uint64_t s, wrs;

    start(3, NULL);
    messages(4);
    begin_message();
    drain(_i, 1);
    end_message();
    wait_settled(0);
    s = carried(0, 0);
    wrs = posted(0);
    messages(8);
    ck_assert_uint_eq(carried(0, 0), s);
    ck_assert_uint_eq(posted(0) - wrs, 16); /* two paths, one part each, nothing twice */
    ck_assert_int_eq(comm(0)->fo.path[0].why.fault, IB_FAULT_ADMIN);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    rig_run(rig, RIG_S);
    ck_assert(!is_up(0, 0) && !is_up(1, 0)); /* it does not return by itself */
    ck_assert_uint_eq(life(1, 0), 1);
    drain(_i, 0);
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

/* NCCL calls neither end: the drain must not wait for it. */
START_TEST(an_idle_connection_is_drained)
{
    start(2, NULL);
    messages(2);
    rig->side[0].asleep = rig->side[1].asleep = 1;
    drain(_i, 2);
    want_path = 1;
    ck_assert(rig_until(rig, settled, RIG_S));
    rig->side[0].asleep = rig->side[1].asleep = 0;
    messages(2);
    stop();
}
END_TEST

static int lose_questions(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_SUSPECT && type != FO_MSG_PROBE;
}

/* What is not acknowledged is under way, even when the sender has its completion: the life ends after it, and nothing goes twice. */
START_TEST(what_is_under_way_arrives_first)
{
    start(2, NULL);
    messages(2);
    rig->filter = lose_questions;
    begin_message();
    rig->side[0].asleep = rig->side[1].asleep = 1; /* the receiver is not called: it acknowledges nothing */
    ck_assert_int_gt(ib_send_live_parts(comm(0)->tx, 0, 1), 0);
    drain(_i, 1);
    rig_run(rig, 100 * RIG_MS);
    ck_assert(is_up(0, 0) && is_up(1, 0));
    rig->side[0].asleep = rig->side[1].asleep = 0;
    end_message();
    wait_settled(0);
    ck_assert_uint_eq(comm(0)->tx->replayed_parts, 0);
    messages(2);
    stop();
}
END_TEST

/* The bits are the NICs of who drains, whatever number they have at the other end. */
START_TEST(each_end_numbers_its_own_nics)
{
    const char *options[] = {"NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100", "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128", NULL};
    int other;

    rig = rig_create(2, 1, options);
    count = 0;
    rig_connect(rig, 0, 1);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    ck_assert_int_ne(comm(0)->link.path[0].nic, comm(0)->link.path[0].peer_nic); /* or this test tells nothing */
    messages(2);
    drain(_i, 1u << comm(_i)->link.path[0].nic);
    wait_settled(0);
    for (other = 1; other < comm(0)->link.npaths && comm(_i)->link.path[other].nic == comm(_i)->link.path[0].nic; other++) {
    }
    ck_assert_int_lt(other, comm(0)->link.npaths);
    ck_assert(is_up(0, other) && is_up(1, other));
    ck_assert_uint_eq(life(0, other), 1);
    messages(2);
    stop();
}
END_TEST

static int lost_left;
static int lose_drains(struct rig *r, int from, int type, union fo_body *body)
{
    int lost = (type == FO_MSG_DRAIN || type == FO_MSG_DRAIN_OK) && lost_left > 0;

    lost_left -= lost;
    return !lost;
}

START_TEST(the_word_is_said_until_it_is_answered)
{
    start(2, NULL);
    rig->filter = lose_drains;
    lost_left = 5;
    drain(1, 1);
    wait_settled(0);
    rig_run(rig, RIG_S);
    ck_assert_int_eq(lost_left, 0);
    ck_assert_uint_ge(rig_count(rig, 1, FO_MSG_DRAIN), 4);
    lost_left = (int)rig_count(rig, 1, FO_MSG_DRAIN);
    rig_run(rig, 5 * RIG_S);
    ck_assert_int_eq(lost_left, (int)rig_count(rig, 1, FO_MSG_DRAIN)); /* answered: not said any more */
    stop();
}
END_TEST

START_TEST(late_words_change_nothing)
{
    union fo_body first = {.drain = {.nics = 1, .gen = 1}};

    start(2, NULL);
    drain(1, 1);
    wait_settled(0);
    drain(1, 0);
    wait_up(0, 2);
    rig_inject(rig, 0, FO_MSG_DRAIN, &first);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].inst->peers->drained, 0);
    carries(0);
    /* an answer to an older word does not stop the present one */
    rig->filter = lose_drains;
    lost_left = 1000;
    drain(1, 2);
    first.drain.gen = 2;
    rig_inject(rig, 1, FO_MSG_DRAIN_OK, &first);
    rig_run(rig, 10 * RIG_MS);
    lost_left = 0;
    wait_settled(1);
    stop();
}
END_TEST

/* Bits for NICs that there are not. */
START_TEST(a_peer_may_say_anything)
{
    union fo_body b = {.drain = {.nics = 0xfffffffe, .gen = 0xffffffff}};

    start(2, NULL);
    rig_inject(rig, 0, FO_MSG_DRAIN, &b);
    wait_settled(1);
    b.drain = (struct fo_drain){.nics = 0, .gen = 0}; /* numbers wrap */
    rig_inject(rig, 0, FO_MSG_DRAIN, &b);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].inst->peers->drained, 0);
    messages(4);
    stop();
}
END_TEST

START_TEST(a_last_path_stays)
{
    start(2, NULL);
    drain(_i, 3);
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(__builtin_popcount(comm(0)->link.up), 2); /* both are drained, neither is worse */
    messages(4);
    drain(_i, 1);
    wait_settled(0);
    drain(_i, 3);
    rig_run(rig, 2 * RIG_S);
    ck_assert(is_up(0, 1));
    messages(4);
    stop();
}
END_TEST

/* The other NICs fail: the drained one carries on, without waiting out any hold time. */
START_TEST(drained_is_better_than_none)
{
    start(2, (const char *[]){"NCCL_R2_T_RETURN=1000", NULL});
    drain(0, 1);
    wait_settled(0);
    rig_fault(rig, "h1:n1 down");
    wait_up(0, 2);
    messages(4);
    rig_fault(rig, "h1:n1 up");
    wait_up(1, 2);
    wait_settled(0); /* and is drained again */
    messages(4);
    stop();
}
END_TEST

START_TEST(not_below_the_fewest_paths)
{
    uint64_t s, r;
    uint8_t turn;

    start(2, (const char *[]){"NCCL_R2_MIN_NICS=2", NULL});
    messages(2);
    drain(0, 1);
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0)); /* its life goes on */
    s = carried(0, 0);
    r = comm(1)->link.path[0].wrs;
    messages(4);
    ck_assert_uint_eq(carried(0, 0), s); /* unused, */
    ck_assert_uint_eq(comm(1)->link.path[0].wrs, r); /* by control writes, too */
    turn = comm(0)->tx->turn;
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(comm(0)->tx->turn, turn); /* and nobody waits for what cannot be */
    stop();
}
END_TEST

START_TEST(without_failover_nothing_ends)
{
    start(1, (const char *[]){"NCCL_R2_FAILOVER=off", NULL});
    drain(0, 1);
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0));
    messages(4);
    stop();
}
END_TEST

/* By the option, before any connection is made. */
START_TEST(drained_from_the_start)
{
    create(2, (const char *[]){_i ? "1:NCCL_R2_DRAIN==fab0" : "0:NCCL_R2_DRAIN==fab0", NULL});
    join();
    ck_assert_uint_eq(rig->side[_i].inst->drained, 1);
    wait_settled(0);
    messages(4);
    ck_assert_uint_eq(carried(0, 0), 0);
    stop();
}
END_TEST

/* A second connection, to a process that was told long ago. */
START_TEST(a_later_connection_knows)
{
    start(2, NULL);
    drain(1, 1);
    wait_settled(0);
    rig_run(rig, RIG_S);
    stop();
    rig_close(rig, 0);
    rig_close(rig, 1);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    rig_run(rig, 40 * RIG_S); /* tombstones and peers are forgotten */
    ck_assert_int_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
    count = 0;
    join();
    wait_settled(0);
    messages(2);
    stop();
}
END_TEST

/* --- the drain file --- */

static char dir[64];

static void file_write_at(const char *tmp, const char *text, unsigned mode)
{
    FILE *f = fopen(tmp, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fchmod(fileno(f), mode), 0);
    fclose(f);
}

static void file_publish(const char *tmp)
{
    char name[128];

    snprintf(name, sizeof(name), "%s/nccl-net-r2.%u.drain", dir, (unsigned)geteuid());
    ck_assert_int_eq(rename(tmp, name), 0);
}

static void file_write(const char *text, unsigned mode)
{
    char tmp[128];

    snprintf(tmp, sizeof(tmp), "%s/tmp", dir);
    file_write_at(tmp, text, mode);
    file_publish(tmp);
}

static void host_dir(int side)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-drain-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(rig->side[side].inst->run_dir, sizeof(rig->side[side].inst->run_dir), "%s", dir);
}

static void host_dir_remove(void)
{
    char cmd[128];

    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    ck_assert_int_eq(system(cmd), 0);
}

START_TEST(the_file_is_obeyed)
{
    struct r2_inst *inst;

    start(2, NULL);
    host_dir(0);
    inst = rig->side[0].inst;
    file_write("# cable is changed\nfab0:1  # since Monday\n\nmlx5_7\n", 0644);
    wait_settled(0);
    ck_assert_uint_eq(inst->drained, 1);
    messages(2);
    file_write("fab1\n", 0666);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drained, 0); /* anybody could have written it */
    wait_up(0, 2);
    file_write("fab1, fab0\n", 0644);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drained, 0); /* not a line of this format: named, and not half obeyed */
    ck_assert(strstr(rig->last_warn[0], "line 1") != NULL);
    file_write("fab1\n", 0644);
    wait_settled(1);
    file_write("", 0644);
    wait_up(1, 2);
    host_dir_remove();
    stop();
}
END_TEST

/* Replaced by one of the same length and time, as by a copy that keeps times. */
START_TEST(a_file_of_the_same_time_is_another)
{
    struct timespec when[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char name[128];

    start(2, NULL);
    host_dir(0);
    for (unsigned nic = 0; nic < 2; nic++) {
        snprintf(name, sizeof(name), "%s/next", dir);
        file_write_at(name, nic ? "fab1\n" : "fab0\n", 0644);
        ck_assert_int_eq(utimensat(AT_FDCWD, name, when, 0), 0);
        file_publish(name);
        rig_enter(&rig->side[0]);
        r2_drain_look(rig->side[0].inst);
        ck_assert_uint_eq(rig->side[0].inst->drained, 1u << nic);
    }
    host_dir_remove();
    stop();
}
END_TEST

START_TEST(what_a_file_may_say)
{
    static const struct {
        const char *text, *list;
    } row[] = {
        {"", ""},
        {"\n\n# nothing\n", ""},
        {"mlx5_0", "=mlx5_0"},
        {"mlx5_0\nmlx5_1:2\n", "=mlx5_0,mlx5_1:2"},
        {"  mlx5_0\t because\r\n#x\nbnxt_re-bond0.1", "=mlx5_0,bnxt_re-bond0.1"},
        {"mlx5_0,mlx5_1", NULL},
        {"^mlx5_0", NULL},
        {"=mlx5_0", NULL},
        {"ok\nm\xc3\xbcx", NULL},
    };
    char list[64], why[128];

    start(1, NULL);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        int rc = r2_rundir_drain_parse(row[i].text, strlen(row[i].text), list, sizeof(list), why, sizeof(why));

        ck_assert_int_eq(rc, row[i].list ? 0 : -1);
        if (row[i].list) {
            ck_assert_str_eq(list, row[i].list);
        }
    }
    ck_assert_int_eq(r2_rundir_drain_parse("a\0b", 3, list, sizeof(list), why, sizeof(why)), -1);
    for (size_t room = 1; room < 12; room++) { /* never beyond its room */
        memset(list, 'x', sizeof(list));
        ck_assert_int_eq(r2_rundir_drain_parse("mlx5_0\nmlx5_1\n", 14, list, room, why, sizeof(why)), -1);
        ck_assert_int_eq(list[room], 'x');
    }
}
END_TEST

START_TEST(what_is_no_drain_file)
{
    char name[128], other[128], text[R2_RUNDIR_DRAIN_MAX + 2], list[64], reason[300];

    start(1, NULL);
    host_dir(0);
    snprintf(name, sizeof(name), "%s/drain", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
    ck_assert_int_eq(r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), 0);
    ck_assert_str_eq(list, ""); /* none is one that drains nothing */
    memset(text, '#', sizeof(text));
    text[R2_RUNDIR_DRAIN_MAX + 1] = '\0';
    for (int more = 1; more >= 0; more--) {
        text[R2_RUNDIR_DRAIN_MAX + more] = '\0';
        file_write_at(name, text, 0644);
        ck_assert_int_eq(r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), more ? -1 : 0);
    }
    ck_assert_int_eq(rename(name, other), 0);
    ck_assert_int_eq(symlink(other, name), 0);
    ck_assert_int_eq(r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), -1);
    unlink(name);
    ck_assert_int_eq(mkfifo(name, 0600), 0); /* whoever opens it must not wait for a writer */
    ck_assert_int_eq(r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), -1);
    host_dir_remove();
    stop();
}
END_TEST

/* --- other processes of the host --- */

static const struct r2_board_who neighbour = {.command = "neighbour", .host = "h0", .pid = 1, .since = 1};
static char why[600];

/* Both processes have the same board, though they are on two hosts: each only heeds what is said of its own NICs. */
static struct r2_board *board_start(void)
{
    struct r2_board *b;

    host_dir(0);
    for (int side = 0; side < 2; side++) {
        rig_enter(&rig->side[side]);
        r2_host_open(rig->side[side].inst, dir);
        ck_assert_ptr_nonnull(rig->side[side].inst->board);
    }
    b = r2_board_open(dir, &neighbour, why, sizeof(why));
    ck_assert_msg(b != NULL, "%s", why);
    return b;
}

/* Who rings wants the files looked at, whenever the next look at the ports is due. */
START_TEST(the_bell_is_for_the_files_too)
{
    struct r2_inst *inst;
    struct r2_board *b;

    start(2, (const char *[]){"NCCL_R2_LOOK=60000", NULL});
    b = board_start();
    inst = rig->side[0].inst;
    rig_run(rig, 5 * RIG_S);
    file_write("fab0\n", 0644);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drained, 0); /* not due */
    rig_enter(&rig->side[0]);
    r2_host_rung(inst);
    rig_kick(&rig->side[0]);
    wait_settled(0);
    file_write("", 0644);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drained, 1); /* one ring, one look */
    r2_board_close(b);
    stop();
    host_dir_remove();
}
END_TEST

static void neighbour_says(struct r2_board *b, enum r2_board_kind kind, int nic, int peer_nic, uint64_t when)
{
    struct r2_inst *inst = rig->side[0].inst;
    struct r2_board_event e = {.kind = kind, .guid = inst->nics.nic[nic].guid, .port = inst->nics.nic[nic].port, .when = when};
    struct r2_pair *pair = inst->pairs;

    for (; pair && !(pair->nic == nic && pair->peer_nic == peer_nic); pair = pair->next) {
    }
    if (pair) {
        memcpy(e.gid, pair->peer_addr.port.gid, sizeof(e.gid));
        e.lid = pair->peer_addr.port.lid;
    }
    r2_board_post(b, &e);
    rig_enter(&rig->side[0]);
    r2_host_rung(inst);
    rig_kick(&rig->side[0]);
}

static int event_count(struct r2_board *b, enum r2_board_kind kind)
{
    struct r2_board_event e;
    int n = 0;

    while (r2_board_next(b, &e, NULL)) {
        n += e.kind == kind;
    }
    return n;
}

static int pairs_ready(struct rig *r)
{
    int n = 0;

    for (struct r2_pair *pair = r->side[0].inst->pairs; pair; pair = pair->next) {
        n += pair->last_ok != 0 && r2_pair_ready(pair);
    }
    return n == comm(0)->link.npaths;
}

/* A silence that another process of the host has found moves the traffic here at once, though nothing was posted that could have noticed. */
START_TEST(a_neighbours_silence_is_ours)
{
    struct r2_board *b;
    uint64_t since;

    start(3, NULL);
    b = board_start();
    messages(2);
    ck_assert(rig_until(rig, pairs_ready, 5 * RIG_S));
    rig_fault(rig, "h0:n1 blackhole");
    rig_run(rig, 100 * RIG_MS);
    ck_assert(is_up(0, 1)); /* idle: it cannot know */
    since = rig_now(rig);
    neighbour_says(b, R2_BOARD_PAIR_SILENT, 1, 1, since - 60 * RIG_MS);
    rig_run(rig, RIG_MS);
    ck_assert(!is_up(0, 1));
    ck_assert(is_up(0, 0) && is_up(0, 2));
    messages(4);
    rig_fault(rig, "h0:n1 restore");
    wait_up(1, 2);
    ck_assert_int_ge(event_count(b, R2_BOARD_PAIR_GOOD), 1); /* and it says so */
    r2_board_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* What it found out is older than an answer of ours: it is asked again, and nothing moves. */
START_TEST(our_own_answer_counts_more)
{
    struct r2_board *b;

    start(2, NULL);
    b = board_start();
    messages(2);
    ck_assert(rig_until(rig, pairs_ready, 5 * RIG_S));
    rig_run(rig, RIG_S); /* the time 200 ms ago has to be one */
    for (struct r2_pair *pair = rig->side[0].inst->pairs; pair; pair = pair->next) {
        pair->last_ok = rig->side[0].inst->watch_clock; /* as if it had been asked just now */
    }
    neighbour_says(b, R2_BOARD_PAIR_SILENT, 1, 1, rig_now(rig) - 200 * RIG_MS);
    rig_run(rig, 500 * RIG_MS);
    ck_assert(is_up(0, 1) && is_up(1, 1));
    ck_assert_uint_eq(comm(0)->fo.switches, 0); /* it has not come back: it was never away */
    messages(2);
    r2_board_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* A last path, other NICs, other remote ports, times that cannot be. */
START_TEST(what_a_neighbour_cannot_do)
{
    struct r2_board_event e = {.kind = R2_BOARD_PAIR_SILENT, .guid = 12345, .port = 1};
    struct r2_board *b;

    start(2, NULL);
    b = board_start();
    messages(2);
    ck_assert(rig_until(rig, pairs_ready, 5 * RIG_S));
    rig_run(rig, RIG_S);
    r2_board_post(b, &e);
    neighbour_says(b, R2_BOARD_PAIR_SILENT, 1, 7, rig_now(rig) - RIG_MS);
    neighbour_says(b, R2_BOARD_PAIR_SILENT, 1, 1, rig_now(rig) + RIG_S);
    neighbour_says(b, R2_BOARD_NIC_DOWN, 1, 1, rig_now(rig));
    for (int k = 0; k < 3; k++) { /* the right ports but for one of: our port, its LID, our NIC */
        struct r2_inst *inst = rig->side[0].inst;
        struct r2_pair *pair = inst->pairs;

        for (; pair->nic != 1; pair = pair->next) {
        }
        e = (struct r2_board_event){.kind = R2_BOARD_PAIR_SILENT, .guid = inst->nics.nic[k != 2].guid, .port = (uint8_t)(1 + (k == 0)),
                                    .lid = (uint16_t)(pair->peer_addr.port.lid + (k == 1)), .when = rig_now(rig) - RIG_MS};
        memcpy(e.gid, pair->peer_addr.port.gid, sizeof(e.gid));
        r2_board_post(b, &e);
        rig_enter(&rig->side[0]);
        r2_host_rung(inst);
        rig_kick(&rig->side[0]);
        rig_run(rig, 100 * RIG_MS);
    }
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0) && is_up(0, 1));
    ck_assert_uint_eq(comm(0)->fo.switches, 0); /* nothing has gone and come back */
    neighbour_says(b, R2_BOARD_PAIR_SILENT, 0, 0, rig_now(rig) - RIG_MS);
    neighbour_says(b, R2_BOARD_PAIR_SILENT, 1, 1, rig_now(rig) - RIG_MS);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_eq(__builtin_popcount(comm(0)->link.up), 1);
    messages(2);
    r2_board_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* An event that this process lost: another one's word makes it look. */
START_TEST(a_neighbours_event_makes_us_look)
{
    struct r2_board *b;

    start(2, (const char *[]){"NCCL_R2_LOOK=60000", NULL});
    b = board_start();
    messages(2);
    event_count(b, R2_BOARD_NONE);
    rig_fault(rig, "h0:n1 remove");
    rig_run(rig, RIG_S);
    neighbour_says(b, R2_BOARD_NIC_DOWN, 1, 1, rig_now(rig));
    want_path = 1;
    ck_assert(rig_until(rig, settled, RIG_S));
    ck_assert_int_eq(event_count(b, R2_BOARD_NIC_DOWN), 0); /* no echo */
    neighbour_says(b, R2_BOARD_NIC_UP, 0, 0, rig_now(rig));
    rig_run(rig, 2 * RIG_S);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(event_count(b, R2_BOARD_NIC_DOWN), 1); /* what happens here later is no echo */
    r2_board_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* What this process finds out is on the board, with its rows. */
START_TEST(what_we_find_out_is_said)
{
    struct r2_board_nic row;
    struct r2_board_who who;
    struct r2_board_event e;
    struct r2_board *b;
    uint64_t when = 0;

    start(2, (const char *[]){"NCCL_IB_TIMEOUT=20", NULL});
    b = board_start();
    rig_run(rig, RIG_S);
    ck_assert_int_eq(r2_board_slot(b, 0, &who), 1);
    ck_assert_int_eq(r2_board_slot_nic(b, 0, 1, &row), 1);
    ck_assert_str_eq(row.name, "fab1");
    ck_assert(row.lives == 1 && row.last == 0 && row.lost == 0);
    rig_fault(rig, "h0:n0 blackhole");
    messages(2);
    rig_run(rig, RIG_S);
    while (r2_board_next(b, &e, NULL)) {
        when = e.kind == R2_BOARD_PAIR_SILENT ? e.when : when;
    }
    ck_assert_uint_gt(when, 0); /* by the end that asked first, */
    ck_assert_uint_lt(when + 10 * RIG_MS, comm(0)->fo.path[0].down_since); /* with the time since when it was silent */
    r2_board_slot_nic(b, 0, 0, &row);
    ck_assert(row.lives == 0 && row.lost == 1);
    r2_board_slot_nic(b, 0, 1, &row);
    ck_assert(row.lives == 1 && row.last == 1);
    rig_fault(rig, "h0:n1 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(event_count(b, R2_BOARD_NIC_DOWN), 1);
    rig_fault(rig, "h0:n1 up");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(event_count(b, R2_BOARD_NIC_UP), 1);
    drain(0, 2);
    rig_run(rig, 10 * RIG_MS);
    r2_board_slot_nic(b, 0, 1, &row);
    ck_assert_int_eq(row.drained, 1);
    r2_board_close(b);
    host_dir_remove();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, traffic_leaves_and_comes_back, 0, 2);
    tcase_add_loop_test(t, an_idle_connection_is_drained, 0, 2);
    tcase_add_loop_test(t, what_is_under_way_arrives_first, 0, 2);
    tcase_add_loop_test(t, each_end_numbers_its_own_nics, 0, 2);
    tcase_add_test(t, the_word_is_said_until_it_is_answered);
    tcase_add_test(t, late_words_change_nothing);
    tcase_add_test(t, a_peer_may_say_anything);
    tcase_add_loop_test(t, a_last_path_stays, 0, 2);
    tcase_add_test(t, drained_is_better_than_none);
    tcase_add_test(t, not_below_the_fewest_paths);
    tcase_add_test(t, without_failover_nothing_ends);
    tcase_add_loop_test(t, drained_from_the_start, 0, 2);
    tcase_add_test(t, a_later_connection_knows);
    tcase_add_test(t, the_file_is_obeyed);
    tcase_add_test(t, a_file_of_the_same_time_is_another);
    tcase_add_test(t, the_bell_is_for_the_files_too);
    tcase_add_test(t, what_a_file_may_say);
    tcase_add_test(t, what_is_no_drain_file);
    tcase_add_test(t, a_neighbours_silence_is_ours);
    tcase_add_test(t, our_own_answer_counts_more);
    tcase_add_test(t, what_a_neighbour_cannot_do);
    tcase_add_test(t, a_neighbours_event_makes_us_look);
    tcase_add_test(t, what_we_find_out_is_said);
}

int main(void)
{
    return run_suite("drain", add);
}
