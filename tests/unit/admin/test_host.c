/* The run directory of a host (docs/control.md): drain files, and what other processes of the
 * host say. */
#include "tests/unit/drain_rig.h"

#include <sys/resource.h>

#include "plugin/probe/diagnosis/r2_gossip.h"

/* What an administrator wrote beside a name. */
START_TEST(the_words_beside_a_name)
{
    static const struct {
        const char *text, *name, *note, *reason;
    } row[] = {
        {"fab0 # since 2026-11-23T10:00:00+0000: a: b\n", "fab0",
         "since 2026-11-23T10:00:00+0000: a: b", "a: b"},
        {"fab0 # since 2026-11-23T10:00:00+0000\n", "fab0", "since 2026-11-23T10:00:00+0000", ""},
        {"fab0 # since Monday: cable \t\n", "fab0", "since Monday: cable", "since Monday: cable"},
        {" fab0\t#x", "fab0", "x", "x"},
        {"fab0 # old\nfab0#new\r\n", "fab0", "new", "new"},
        {"fab00 # x\nfab0:1 # y\n", "fab0", "", ""},
        {"fab0:1 # y\n", "fab0:1", "y", "y"},
        {"# fab0 x\nfab0\n", "fab0", "", ""},
        {"fab0 # a\033[2Jb\n", "fab0", "a?[2Jb", "a?[2Jb"},
        {"", "fab0", "", ""},
    };
    char note[R2_RUNDIR_NOTE], small[4];

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        r2_rundir_drain_note(row[i].text, strlen(row[i].text), row[i].name, note, sizeof(note));
        ck_assert_str_eq(note, row[i].note);
        ck_assert_str_eq(r2_rundir_drain_reason(note), row[i].reason);
    }
    r2_rundir_drain_note("fab0 # long", 11, "fab0", small, sizeof(small));
    ck_assert_str_eq(small, "lon");
}
END_TEST

START_TEST(the_file_is_obeyed)
{
    struct r2_inst *inst;

    start(2, NULL);
    host_dir(0);
    inst = rig->side[0].inst;
    file_write("# cable is changed\nfab0:1  # since Monday\n\nmlx5_7\n", 0644);
    wait_settled(0);
    ck_assert_uint_eq(inst->drain.nics, 1);
    messages(2);
    file_write("fab1\n", 0666);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drain.nics,
                      1); /* anybody could have written it: what was drained stays */
    ck_assert(strstr(rig->last_warn[0], "written by others") != NULL);
    file_write("fab1, fab0\n", 0644);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drain.nics,
                      1); /* not a line of this format: named, and not half obeyed */
    ck_assert(strstr(rig->last_warn[0], "line 1") != NULL);
    file_write("", 0644);
    wait_up(0, 2);
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
        r2_drain_poll(rig->side[0].inst);
        ck_assert_uint_eq(rig->side[0].inst->drain.nics, 1u << nic);
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
        {"mlx5_0:x", NULL},
        {"mlx5_0:0", NULL},
        {"mlx5_0:256", NULL},
        {"mlx5_0:70000", NULL},
        {"mlx5_0:1:2", NULL},
        {"mlx5_0:", NULL},
        {":1", NULL},
        {":", NULL},
        {"mlx5_0:255", "=mlx5_0:255"},
        {"a_name_of_more_than_sixty_characters_which_no_device_of_linux_has_", NULL},
        {"ok\nm\xc3\xbcx", NULL},
    };
    char list[64], why[128];

    start(1, NULL);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        int rc = r2_rundir_drain_parse(row[i].text, strlen(row[i].text), list, sizeof(list), why,
                                       sizeof(why));

        ck_assert_int_eq(rc, row[i].list ? 0 : -1);
        if (row[i].list) {
            ck_assert_str_eq(list, row[i].list);
        }
    }
    ck_assert_int_eq(r2_rundir_drain_parse("a\0b", 3, list, sizeof(list), why, sizeof(why)), -1);
    for (size_t room = 1; room < 12; room++) { /* never beyond its room */
        memset(list, 'x', sizeof(list));
        ck_assert_int_eq(
            r2_rundir_drain_parse("mlx5_0\nmlx5_1\n", 14, list, room, why, sizeof(why)), -1);
        ck_assert_int_eq(list[room], 'x');
    }
}
END_TEST

START_TEST(what_is_no_drain_file)
{
    char name[128], other[128], text[R2_RUNDIR_TEXT_MAX + 2], list[64], reason[300];

    start(1, NULL);
    host_dir(0);
    snprintf(name, sizeof(name), "%s/drain", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
    ck_assert_int_eq(
        r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), 0);
    ck_assert_str_eq(list, ""); /* none is one that drains nothing */
    memset(text, '#', sizeof(text));
    text[R2_RUNDIR_TEXT_MAX + 1] = '\0';
    for (int more = 1; more >= 0; more--) {
        text[R2_RUNDIR_TEXT_MAX + more] = '\0';
        file_write_at(name, text, 0644);
        ck_assert_int_eq(
            r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)),
            more ? -1 : 0);
    }
    ck_assert_int_eq(rename(name, other), 0);
    ck_assert_int_eq(symlink(other, name), 0);
    ck_assert_int_eq(
        r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), -1);
    unlink(name);
    ck_assert_int_eq(mkfifo(name, 0600), 0); /* whoever opens it must not wait for a writer */
    ck_assert_int_eq(
        r2_rundir_drain_read(name, geteuid(), list, sizeof(list), reason, sizeof(reason)), -1);
    host_dir_remove();
    stop();
}
END_TEST

/* --- other processes of the host --- */

static const struct r2_host_registry_who neighbour = {
    .command = "neighbour", .host = "h0", .pid = 1, .since = 1};
static char why[600];

/* Both processes have the same registry, though they are on two hosts: each only heeds what is said
 * of its own NICs. */
static struct r2_host_registry *registry_start(void)
{
    struct r2_host_registry *b;

    host_dir(0);
    for (int side = 0; side < 2; side++) {
        rig_enter(&rig->side[side]);
        r2_host_share_open(rig->side[side].inst, dir);
        ck_assert_ptr_nonnull(rig->side[side].inst->share.registry);
    }
    b = r2_host_registry_open(dir, &neighbour, why, sizeof(why));
    ck_assert_msg(b != NULL, "%s", why);
    return b;
}

/* Who rings wants the files looked at, whenever the next look at the ports is due. */
START_TEST(the_bell_is_for_the_files_too)
{
    struct r2_inst *inst;
    struct r2_host_registry *b;

    start(2, (const char *[]){"NCCL_R2_LOOK=60000", NULL});
    b = registry_start();
    inst = rig->side[0].inst;
    rig_run(rig, 5 * RIG_S);
    file_write("fab0\n", 0644);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drain.nics, 0); /* not due */
    rig_enter(&rig->side[0]);
    r2_host_share_rung(inst);
    rig_kick(&rig->side[0]);
    wait_settled(0);
    file_write("", 0644);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(inst->drain.nics, 1); /* one ring, one look */
    r2_host_registry_close(b);
    stop();
    host_dir_remove();
}
END_TEST

static void neighbour_says(struct r2_host_registry *b, enum r2_host_registry_kind kind, int nic,
                           int peer_nic, uint64_t when)
{
    struct r2_inst *inst = rig->side[0].inst;
    struct r2_host_registry_event e = {.kind = kind,
                                       .guid = inst->nics.nic[nic].guid,
                                       .port = inst->nics.nic[nic].port,
                                       .when = when};
    struct r2_pair *pair = inst->index.pairs;

    for (; pair && !(pair->nic == nic && pair->peer_nic == peer_nic); pair = pair->next) {
    }
    if (pair) {
        memcpy(e.gid, pair->far.addr.port.gid, sizeof(e.gid));
        e.lid = pair->far.addr.port.lid;
    }
    r2_host_registry_post(b, &e);
    rig_enter(&rig->side[0]);
    r2_host_share_rung(inst);
    rig_kick(&rig->side[0]);
}

static int event_count(struct r2_host_registry *b, enum r2_host_registry_kind kind)
{
    struct r2_host_registry_event e;
    int n = 0;

    while (r2_host_registry_next(b, &e, NULL)) {
        n += e.kind == kind;
    }
    return n;
}

static int pairs_ready(struct rig *r)
{
    int n = 0;

    for (struct r2_pair *pair = r->side[0].inst->index.pairs; pair; pair = pair->next) {
        n += pair->probe.last_ok != 0 && r2_pair_ready(pair);
    }
    return n == comm(0)->conn.npaths;
}

/* A silence that another process of the host has found moves the traffic here at once, though
 * nothing was posted that could have noticed. */
START_TEST(a_neighbours_silence_is_ours)
{
    struct r2_host_registry *b;
    uint64_t since;

    start(3, NULL);
    b = registry_start();
    messages(2);
    ck_assert(rig_until(rig, pairs_ready, 5 * RIG_S));
    rig_fault(rig, "h0:n1 blackhole");
    rig_run(rig, 100 * RIG_MS);
    ck_assert(is_up(0, 1)); /* idle: it cannot know */
    since = rig_now(rig);
    neighbour_says(b, R2_HOST_REGISTRY_PAIR_SILENT, 1, 1, since - 60 * RIG_MS);
    rig_run(rig, RIG_MS);
    ck_assert(!is_up(0, 1));
    ck_assert(is_up(0, 0) && is_up(0, 2));
    messages(4);
    rig_fault(rig, "h0:n1 restore");
    wait_up(1, 2);
    ck_assert_int_ge(event_count(b, R2_HOST_REGISTRY_PAIR_GOOD), 1); /* and it says so */
    r2_host_registry_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* What it found out is older than an answer of ours: it is asked again, and nothing moves. */
START_TEST(our_own_answer_counts_more)
{
    struct r2_host_registry *b;

    start(2, NULL);
    b = registry_start();
    messages(2);
    ck_assert(rig_until(rig, pairs_ready, 5 * RIG_S));
    rig_run(rig, RIG_S); /* the time 200 ms ago has to be one */
    for (struct r2_pair *pair = rig->side[0].inst->index.pairs; pair; pair = pair->next) {
        pair->probe.last_ok = rig->side[0].inst->watch.clock; /* as if it had been asked just now */
    }
    neighbour_says(b, R2_HOST_REGISTRY_PAIR_SILENT, 1, 1, rig_now(rig) - 200 * RIG_MS);
    rig_run(rig, 500 * RIG_MS);
    ck_assert(is_up(0, 1) && is_up(1, 1));
    ck_assert_uint_eq(comm(0)->fo.switches, 0); /* it has not come back: it was never away */
    messages(2);
    r2_host_registry_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* A last path, other NICs, other remote ports, times that cannot be. */
START_TEST(what_a_neighbour_cannot_do)
{
    struct r2_host_registry_event e = {
        .kind = R2_HOST_REGISTRY_PAIR_SILENT, .guid = 12345, .port = 1};
    struct r2_host_registry *b;

    start(2, NULL);
    b = registry_start();
    messages(2);
    ck_assert(rig_until(rig, pairs_ready, 5 * RIG_S));
    rig_run(rig, RIG_S);
    r2_host_registry_post(b, &e);
    neighbour_says(b, R2_HOST_REGISTRY_PAIR_SILENT, 1, 7, rig_now(rig) - RIG_MS);
    neighbour_says(b, R2_HOST_REGISTRY_PAIR_SILENT, 1, 1, rig_now(rig) + RIG_S);
    neighbour_says(b, R2_HOST_REGISTRY_NIC_DOWN, 1, 1, rig_now(rig));
    for (int k = 0; k < 3; k++) { /* the right ports but for one of: our port, its LID, our NIC */
        struct r2_inst *inst = rig->side[0].inst;
        struct r2_pair *pair = inst->index.pairs;

        for (; pair->nic != 1; pair = pair->next) {
        }
        e = (struct r2_host_registry_event){.kind = R2_HOST_REGISTRY_PAIR_SILENT,
                                            .guid = inst->nics.nic[k != 2].guid,
                                            .port = (uint8_t)(1 + (k == 0)),
                                            .lid = (uint16_t)(pair->far.addr.port.lid + (k == 1)),
                                            .when = rig_now(rig) - RIG_MS};
        memcpy(e.gid, pair->far.addr.port.gid, sizeof(e.gid));
        r2_host_registry_post(b, &e);
        rig_enter(&rig->side[0]);
        r2_host_share_rung(inst);
        rig_kick(&rig->side[0]);
        rig_run(rig, 100 * RIG_MS);
    }
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0) && is_up(0, 1));
    ck_assert_uint_eq(comm(0)->fo.switches, 0); /* nothing has gone and come back */
    neighbour_says(b, R2_HOST_REGISTRY_PAIR_SILENT, 0, 0, rig_now(rig) - RIG_MS);
    neighbour_says(b, R2_HOST_REGISTRY_PAIR_SILENT, 1, 1, rig_now(rig) - RIG_MS);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_eq(__builtin_popcount(comm(0)->conn.up), 1);
    messages(2);
    r2_host_registry_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* An event that this process lost: another one's word makes it look. */
START_TEST(a_neighbours_event_makes_us_look)
{
    struct r2_host_registry *b;

    start(2, (const char *[]){"NCCL_R2_LOOK=60000", NULL});
    b = registry_start();
    messages(2);
    event_count(b, R2_HOST_REGISTRY_NONE);
    rig_fault(rig, "h0:n1 remove");
    rig_run(rig, RIG_S);
    neighbour_says(b, R2_HOST_REGISTRY_NIC_DOWN, 1, 1, rig_now(rig));
    want_path = 1;
    ck_assert(rig_until(rig, settled, RIG_S));
    ck_assert_int_eq(event_count(b, R2_HOST_REGISTRY_NIC_DOWN), 0); /* no echo */
    neighbour_says(b, R2_HOST_REGISTRY_NIC_UP, 0, 0, rig_now(rig));
    rig_run(rig, 2 * RIG_S);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(event_count(b, R2_HOST_REGISTRY_NIC_DOWN),
                     1); /* what happens here later is no echo */
    r2_host_registry_close(b);
    stop();
    host_dir_remove();
}
END_TEST

/* What this process finds out is in the registry, with its rows. */
/* Killed between what he says and the bell, or where there is none: heard with the looks at the
 * ports, each of which asks those who are known, and one in four all. */
START_TEST(who_does_not_ring_is_heard)
{
    struct r2_host_registry *b;
    struct r2_host_registry_event e = {.kind = R2_HOST_REGISTRY_NIC_UP};
    struct r2_inst *inst;

    start(2, (const char *[]){"NCCL_R2_LOOK=250", NULL});
    b = registry_start();
    inst = rig->side[0].inst;
    e.guid = inst->nics.nic[0].guid;
    e.port = inst->nics.nic[0].port;
    r2_host_registry_post(b, &e);
    rig_run(rig, 1010 * RIG_MS);
    ck_assert_uint_ne(inst->share.heard_at[0], 0);
    for (int i = 0; i < 5; i++) { /* known by now */
        inst->share.heard_at[0] = 0;
        r2_host_registry_post(b, &e);
        rig_run(rig, 260 * RIG_MS);
        ck_assert_uint_ne(inst->share.heard_at[0], 0);
    }
    r2_host_registry_close(b);
    stop();
    host_dir_remove();
}
END_TEST

START_TEST(what_we_find_out_is_said)
{
    struct r2_host_registry_nic row;
    struct r2_host_registry_who who;
    struct r2_host_registry_event e;
    struct r2_host_registry *b;
    uint64_t when = 0;

    start(2, (const char *[]){"NCCL_IB_TIMEOUT=20", NULL});
    b = registry_start();
    rig_run(rig, RIG_S);
    ck_assert_int_eq(r2_host_registry_slot(b, 0, &who), 1);
    ck_assert_int_eq(r2_host_registry_slot_nic(b, 0, 1, &row), 1);
    ck_assert_str_eq(row.name, "fab1");
    ck_assert(row.usable == 1 && row.last == 0 && row.lost == 0);
    rig_fault(rig, "h0:n0 blackhole");
    messages(2);
    rig_run(rig, RIG_S);
    while (r2_host_registry_next(b, &e, NULL)) {
        when = e.kind == R2_HOST_REGISTRY_PAIR_SILENT ? e.when : when;
    }
    ck_assert_uint_gt(when, 0); /* by the end that asked first, */
    ck_assert_uint_lt(when + 10 * RIG_MS,
                      comm(0)->fo.path[0].down_since); /* with the time since when it was silent */
    r2_host_registry_slot_nic(b, 0, 0, &row);
    ck_assert(row.usable == 0 && row.lost == 1);
    r2_host_registry_slot_nic(b, 0, 1, &row);
    ck_assert(row.usable == 1 && row.last == 1);
    rig_fault(rig, "h0:n1 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(event_count(b, R2_HOST_REGISTRY_NIC_DOWN), 1);
    rig_fault(rig, "h0:n1 up");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(event_count(b, R2_HOST_REGISTRY_NIC_UP), 1);
    drain(0, 2);
    rig_run(rig, 10 * RIG_MS);
    r2_host_registry_slot_nic(b, 0, 1, &row);
    ck_assert_int_eq(row.drained, 1);
    r2_host_registry_close(b);
    host_dir_remove();
}
END_TEST

static int posted_events(struct r2_host_registry *b)
{
    struct r2_host_registry_event e;
    int n = 0;

    while (r2_host_registry_next(b, &e, NULL)) {
        n++;
    }
    return n;
}

/* What the registry itself has brought is not put there again, nor is a device said twice that
 * failed first and then went. */
START_TEST(what_is_in_the_registry_is_not_posted_again)
{
    struct r2_host_registry *b;
    struct probe_report w;
    struct r2_inst *inst;

    start(2, (const char *[]){"NCCL_IB_TIMEOUT=20", NULL});
    b = registry_start();
    rig_run(rig, RIG_S);
    posted_events(b);
    inst = rig->side[0].inst;
    rig_enter(&rig->side[0]);
    memset(&w, 0, sizeof(w));
    w.blame = PROBE_BLAME_LOCAL_NIC;
    w.origin = 4711;
    w.subject = r2_subject_nic(inst, 1);
    snprintf(w.host, sizeof(w.host), "host0");
    snprintf(w.nic, sizeof(w.nic), "fab1");
    probe_gossip_next_version(inst->diagnosis.gossip, &w);
    r2_gossip_heard(inst, &w, "pid 7");
    ck_assert_ptr_nonnull(probe_gossip_find(inst->diagnosis.gossip, &w.subject));
    ck_assert_int_eq(posted_events(b), 0);
    ck_assert_int_eq(r2_gossip_clear(inst, &w.subject), 1); /* ours */
    ck_assert_int_eq(posted_events(b), 1);
    r2_host_share_subscriber.on_nic(inst, 0, R2_NIC_FATAL);
    ck_assert_int_eq(posted_events(b), 1);
    r2_host_share_subscriber.on_nic(inst, 0, R2_NIC_REMOVED);
    ck_assert_int_eq(posted_events(b), 0);
    r2_host_registry_close(b);
    host_dir_remove();
}
END_TEST

/* Its owner mends the mode and touches nothing else. */
START_TEST(a_mended_mode_is_a_change)
{
    char name[128];

    start(2, NULL);
    host_dir(0);
    file_write("fab0\n", 0666);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(rig->side[0].inst->drain.nics, 0);
    snprintf(name, sizeof(name), "%s/nccl-net-r2.%u.drain", dir, (unsigned)geteuid());
    ck_assert_int_eq(chmod(name, 0644), 0);
    wait_settled(0);
    host_dir_remove();
    stop();
}
END_TEST

/* No descriptor is left while the file changes: what is drained stays, it is said once, and the
 * change is taken up later. */
START_TEST(a_file_that_cannot_be_read_now)
{
    struct rlimit old, none;
    int lowest;

    start(2, NULL);
    host_dir(0);
    file_write("fab0\n", 0644);
    wait_settled(0);
    file_write("fab1\n", 0644);
    lowest = dup(0);
    ck_assert_int_ge(lowest, 0);
    close(lowest);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = (rlim_t)lowest;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    rig_run(rig, 400 * RIG_MS);
    ck_assert_msg(strstr(rig->last_warn[0], "Too many open files") != NULL, "%s",
                  rig->last_warn[0]);
    rig->last_warn[0][0] = '\0';
    rig_run(rig, 2 * RIG_S);
    ck_assert_str_eq(rig->last_warn[0], "");
    ck_assert_uint_eq(rig->side[0].inst->drain.nics, 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    wait_settled(1);
    wait_up(0, 2);
    host_dir_remove();
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_words_beside_a_name);
    tcase_add_test(t, a_mended_mode_is_a_change);
    tcase_add_test(t, a_file_that_cannot_be_read_now);
    tcase_add_test(t, the_file_is_obeyed);
    tcase_add_test(t, a_file_of_the_same_time_is_another);
    tcase_add_test(t, the_bell_is_for_the_files_too);
    tcase_add_test(t, what_a_file_may_say);
    tcase_add_test(t, what_is_no_drain_file);
    tcase_add_test(t, a_neighbours_silence_is_ours);
    tcase_add_test(t, our_own_answer_counts_more);
    tcase_add_test(t, what_a_neighbour_cannot_do);
    tcase_add_test(t, a_neighbours_event_makes_us_look);
    tcase_add_test(t, who_does_not_ring_is_heard);
    tcase_add_test(t, what_we_find_out_is_said);
    tcase_add_test(t, what_is_in_the_registry_is_not_posted_again);
}

int main(void)
{
    return run_suite("host", add);
}
