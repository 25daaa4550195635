/* What a process says of itself: whole instances over the fabric, and what stands in their
 * statistics and events after each thing that happens to them; checkpoints are in
 * test_report_checkpoint.c. */
#include "tests/unit/report_rig.h"
#include "service/r2_conn.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_gossip.h"

/* --- healthy --- */

START_TEST(traffic_is_counted)
{
    const struct r2_stat_view *v;

    begin(2, NULL);
    messages(10);
    v = look(0);
    ck_assert_uint_eq(v->who.nics, 2);
    ck_assert_uint_eq(v->who.capacity_up, 2);
    ck_assert_uint_eq(v->who.conns_all, 1);
    ck_assert_int_eq(v->conns, 1);
    ck_assert_int_eq(v->conn[0].is_send, 1);
    ck_assert_uint_eq(v->conn[0].messages, 10);
    ck_assert_uint_eq(v->conn[0].bytes, 10 * sizeof(out[0]));
    ck_assert_uint_eq(v->nic[0].sent + v->nic[1].sent, 10 * sizeof(out[0]));
    ck_assert_uint_gt(v->nic[1].sent, 0); /* cut over both */
    ck_assert_uint_eq(v->nic[0].received, 0);
    ck_assert_str_eq(v->nic[0].name, "fab0");
    ck_assert_str_eq(v->conn[0].path[0].peer_name, "fab0");
    ck_assert_uint_eq(v->conn[0].path[0].share + v->conn[0].path[1].share, 100);
    ck_assert_int_eq(v->events, 0);
    ck_assert_uint_eq(v->nic[0].over, 1);
    ck_assert_uint_eq(v->nic[0].last, 0);
    v = look(1);
    ck_assert_uint_eq(v->nic[0].received + v->nic[1].received, 10 * sizeof(out[0]));
    ck_assert_uint_eq(v->conn[0].messages, 10);
    end();
}
END_TEST

static void oob_counters(struct r2_oob *oob, struct r2_oob_counters *c)
{
    *c = (struct r2_oob_counters){.sent = 1, .strangers = 5, .bad_frames = 6};
}

/* What the out-of-band channel dropped. */
START_TEST(what_was_dropped_is_counted)
{
    struct r2_oob_ops ops;
    const struct r2_oob_ops *own;
    const struct r2_stat_view *v;
    struct r2_inst *inst;

    begin(1, NULL);
    inst = rig->side[0].inst;
    v = look(0);
    ck_assert_uint_eq(v->who.oob_strangers + v->who.oob_bad_frames + v->who.oob_bad_messages, 0);
    own = inst->oob->ops;
    ops = *own;
    ops.counters = oob_counters;
    inst->oob->ops = &ops;
    inst->refused.bad_messages = 7;
    v = look(0);
    ck_assert_uint_eq(v->who.oob_strangers, 5);
    ck_assert_uint_eq(v->who.oob_bad_frames, 6);
    ck_assert_uint_eq(v->who.oob_bad_messages, 7);
    inst->oob->ops = own;
    end();
}
END_TEST

/* What a driver did not let go of: buffers, and memory of our own. */
START_TEST(what_is_kept_is_counted)
{
    static _Alignas(4096) uint8_t page[4096];
    struct r2_inst *inst;
    struct ib_mr *mr;

    begin(1, NULL);
    inst = rig->side[_i].inst;
    ck_assert_uint_eq(look(_i)->who.kept, 0);
    rig_enter(&rig->side[_i]);
    mr = ib_mr_get(inst->mem.mrs, page, sizeof(page), IB_PTR_HOST, 0, -1, 1);
    ck_assert_ptr_nonnull(mr);
    ib_mr_keep(inst->mem.mrs, mr);
    inst->nics.kept = 2;
    ck_assert_uint_eq(look(_i)->who.kept, 3);
    ck_assert_uint_eq(look(!_i)->who.kept, 0);
    ib_mr_put(inst->mem.mrs, mr);
    end();
}
END_TEST

/* Some at a time, so that nothing waits for it; and all of them in the end, and their records are
 * free when they have gone. */
START_TEST(many_connections)
{
    static struct r2_comm *more[R2_STAT_CONNS];
    const struct r2_stat_view *v;
    int looks = 1;

    begin(1, NULL);
    for (int i = 0; i < R2_STAT_CONNS; i++) {
        more[i] = r2_comm_alloc(rig->side[0].inst, 1, 0);
        ck_assert_ptr_nonnull(more[i]);
        r2_report_comm(more[i]); /* as a step does */
    }
    v = look(0);
    ck_assert_uint_eq(v->who.conns_all, R2_STAT_CONNS + 1);
    ck_assert_int_lt(v->conns, 300);
    while (v->conns < R2_STAT_CONNS && looks < 100) {
        v = look(0);
        looks++;
    }
    ck_assert_int_eq(v->conns, R2_STAT_CONNS); /* and one for which there is no room */
    r2_comm_free(more[0]);
    v = look(0);
    v = look(0);
    ck_assert_int_eq(v->conns, R2_STAT_CONNS); /* it has that record now */
    for (int i = 1; i < R2_STAT_CONNS; i++) {
        r2_comm_free(more[i]);
    }
    messages(1);
    v = look(0);
    ck_assert_uint_eq(v->who.conns_all, 1);
    v = look(0);
    ck_assert_int_eq(v->conns, 1);
    ck_assert_int_eq(v->conn[0].standing, 1);
    end();
}
END_TEST

START_TEST(an_idle_process_is_not_woken)
{
    char why[600];
    struct r2_stat_view v;

    begin(1, NULL);
    messages(1);
    ck_assert_uint_eq(r2_report_step(rig->side[0].inst, rig_now(rig), 0), UINT64_MAX);
    stop();
    r2_net_close(comm(0));
    r2_net_close(comm(1));
    rig->side[0].comm = rig->side[1].comm = NULL;
    rig_run(rig, 5 * RIG_S);
    ck_assert_ptr_null(r2_comm_first(rig->side[0].inst));
    rig_enter(&rig->side[0]);
    ck_assert_uint_eq(r2_inst_service_step(rig->side[0].inst), UINT64_MAX);
    ck_assert_int_eq(r2_stat_read(r2_stat_path(report(0)->stat), geteuid(), &v, why, sizeof(why)),
                     1);
    ck_assert_int_eq(v.conns, 0);                     /* the record of what is gone is free */
    ck_assert_uint_eq(v.nic[0].sent, sizeof(out[0])); /* what it carried is not forgotten */
    r2_stat_view_free(&v);
    teardown();
    host_dir_remove();
}
END_TEST

/* --- failures --- */

START_TEST(a_nic_goes_down_and_comes_back)
{
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;

    begin(2, NULL);
    messages(4);
    begin_message(); /* under way when it fails */
    rig_fault(rig, "h0:n0 down");
    end_message();
    wait_settled(0);
    v = look(0);
    ck_assert_int_eq(v->nic[0].state, R2_STAT_NIC_DOWN);
    ck_assert_str_eq(v->nic[0].why, "its port is not ACTIVE");
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->nic[0].over, 0);
    ck_assert_uint_eq(v->nic[1].last, 1);
    ck_assert_uint_eq(v->who.capacity_up, 1);
    ck_assert_uint_eq(v->who.faults, 1);
    ck_assert_uint_eq(v->who.switches, 1);
    e = event_find(v, R2_EVENT_FAULT);
    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(e->nic, "fab0");
    ck_assert_msg(strncmp(e->cause, "port_event", 10) == 0, "%s", e->cause);
    ck_assert_int_eq(e->connections, 1);
    e = event_find(v, R2_EVENT_SWITCH);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_gt(e->stall_ns, 0);
    ck_assert_int_lt(e->stall_ns, 20 * RIG_MS); /* virtual time */
    ck_assert_uint_eq(r2_hist_count(&v->who.stall_times[R2_STAT_STALL_FAULT]), 1);
    ck_assert_uint_eq(v->who.stall_times[R2_STAT_STALL_FAULT].sum_ns / 1000,
                      (uint64_t)e->stall_ns / 1000);
    ck_assert_uint_eq(r2_hist_count(&v->who.stall_times[R2_STAT_STALL_OTHER]), 0);
    ck_assert_int_gt(e->replayed_bytes, 0);
    ck_assert_uint_eq((uint64_t)e->replayed_bytes, comm(0)->tx->count.retransmitted_bytes);
    ck_assert_int_eq(e->capacity_up, 1);
    ck_assert_uint_gt(v->conn[0].stall_ns, 0);
    ck_assert_int_eq(v->conn[0].path[0].state, R2_STAT_PATH_FENCED);
    v = look(1); /* the other end */
    ck_assert_int_eq(v->nic[0].state, R2_STAT_NIC_UP);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    e = event_find(v, R2_EVENT_FAULT);
    ck_assert_ptr_nonnull(e);
    ck_assert_msg(strncmp(e->cause, "peer", 4) == 0, "%s", e->cause);
    rig_fault(rig, "h0:n0 up");
    wait_up(0, 2);
    messages(4);
    v = look(0);
    ck_assert_int_eq(v->nic[0].state, R2_STAT_NIC_UP);
    ck_assert_uint_eq(v->nic[0].moved, 0);
    ck_assert_uint_eq(v->nic[0].sent + v->nic[1].sent,
                      v->conn[0].bytes); /* the old incarnation's are in both */
    ck_assert_uint_eq(v->conn[0].path[0].inc, 2);
    ck_assert_ptr_nonnull(event_find(v, R2_EVENT_FAILBACK));
    ck_assert_uint_eq(v->who.capacity_up, 2);
    ck_assert_ptr_nonnull(strstr(lines(), "\"kind\":\"failback\""));
    ck_assert_ptr_nonnull(strstr(events, "\"kind\":\"switch\""));
    end();
}
END_TEST

START_TEST(a_blackhole_is_seen_though_the_port_is_up)
{
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;

    begin(2, NULL);
    messages(4);
    begin_message();
    rig_fault(rig, "h0:n0 blackhole");
    end_message();
    wait_settled(0);
    v = look(0);
    ck_assert_int_eq(v->nic[0].state, R2_STAT_NIC_UP);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->who.capacity_up, 1);
    ck_assert_msg(strncmp(v->nic[0].trouble, "stall", 5) == 0 ||
                      strncmp(v->nic[0].trouble, "peer", 4) == 0,
                  "%s", v->nic[0].trouble);
    e = event_find(v, R2_EVENT_SWITCH);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_ge(e->stall_ns, 15 * RIG_MS); /* at least what the watchdog waits for */
    end();
}
END_TEST

/* While the process has no processor no silence counts against a NIC; the job has waited all the
 * same. */
START_TEST(a_stall_is_real_time)
{
    const struct r2_stat_event *e;
    uint64_t from;

    begin(2, NULL);
    messages(4);
    begin_message();
    rig_fault(rig, "h0:n0 blackhole");
    rig_run(rig, 12 * RIG_MS); /* seen to be silent, and not yet a suspect */
    rig->side[0].still = 1;
    from = rig_now(rig);
    rig_run(rig, 80 * RIG_MS);
    rig->side[0].still = 0;
    rig_kick(&rig->side[0]);
    ck_assert(ib_conn_up(&rig->side[0].comm->conn, 0)); /* so far */
    end_message();
    wait_settled(0);
    e = event_find(look(0), R2_EVENT_SWITCH);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_ge(e->stall_ns, 80 * RIG_MS);
    ck_assert_int_le(e->stall_ns, (int64_t)(rig_now(rig) - from) + 13 * (int64_t)RIG_MS);
    end();
}
END_TEST

/* The sender's parts arrive over the other NIC at once; what the dead one may still write into is
 * kept from NCCL. */
START_TEST(what_a_hold_keeps_is_a_stall)
{
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;
    uint64_t took;

    begin(2, NULL);
    messages(4);
    begin_message();
    took = rig_now(rig);
    rig_fault(rig, "h1:n0 hang");
    end_message();
    took = rig_now(rig) - took;
    ck_assert_uint_gt(took, 150 * RIG_MS); /* it was held */
    v = look(1);
    e = event_find(v, R2_EVENT_SWITCH);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_le(e->stall_ns, (int64_t)took);
    ck_assert_int_ge(e->stall_ns,
                     (int64_t)(took / 2)); /* from the fault, which the watchdog had to find */
    ck_assert_uint_eq(v->who.stall_max_ns / 1000, (uint64_t)e->stall_ns / 1000);
    v = look(0);
    ck_assert_uint_lt(v->who.stall_max_ns, took / 2); /* the sender's is another */
    end();
}
END_TEST

static int both_say_f03(struct rig *r)
{
    for (int i = 0; i < 2; i++) {
        if (strncmp(r->side[i].inst->telemetry.report->nic[0].blamed, "R2-F03 ", 7) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Nobody can tell which part it is. Who was told of it says so within a second of who found it, and
 * no longer than until somebody can. */
START_TEST(a_part_that_is_not_known_has_its_code_at_both_ends)
{
    const struct r2_stat_view *v;
    struct probe_subject s;
    uint64_t from;

    begin(2, NULL);
    messages(4);
    rig_run(rig, RIG_S);
    begin_message();
    rig_fault(rig, _i ? "h0:n0 blackhole" : "h1:n0 blackhole");
    from = rig_now(rig);
    end_message();
    ck_assert(rig_until(rig, both_say_f03, 2 * RIG_S));
    ck_assert_msg(rig_now(rig) - from < 1200 * RIG_MS, "%llu ms",
                  (unsigned long long)((rig_now(rig) - from) / RIG_MS));
    for (int i = 0; i < 2; i++) {
        const struct r2_stat_event *e;

        v = look(i);
        e = event_find(v, R2_EVENT_VERDICT);
        ck_assert_ptr_nonnull(e);
        ck_assert_str_eq(e->code, "R2-F03");
        ck_assert_str_eq(e->nic, "fab0");
        ck_assert_int_eq(strncmp(v->nic[0].blamed, "R2-F03 ", 7), 0);
    }
    ck_assert((strstr(rig->last_warn[0], "R2-F03 ") == NULL) !=
              (strstr(rig->last_warn[1], "R2-F03 ") == NULL)); /* one warning */
    s = r2_subject_nic(rig->side[1].inst, 0);
    report_put(1, &s, PROBE_BLAME_LOCAL_LINK);
    v = look(1);
    ck_assert_str_eq(v->nic[0].blamed, "");
    ck_assert_str_eq(v->nic[0].trouble, "its port or cable");
    end();
}
END_TEST

/* The fabric loses what is under way, for most of a second, and RC or a tail probe has it repeated:
 * with failover off nothing has failed, and it is not nothing. */
START_TEST(a_stall_without_a_fault)
{
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;
    uint64_t from;

    begin(_i, (const char *[]){"NCCL_IB_TIMEOUT=18", "NCCL_R2_FAILOVER=off", NULL});
    messages(4);
    rig_run(rig, RIG_S);
    begin_message();
    rig_fault(rig, "h0:* blackhole");
    rig_run(rig, RIG_MS);
    from = rig_now(rig);
    v = look(0);
    ck_assert_int_eq(v->events, 0); /* too short by then */
    rig_run(rig, 600 * RIG_MS);
    v = look(0);
    ck_assert_uint_gt(v->nic[0].stall_ns, 500 * RIG_MS); /* it lasts, and shows */
    ck_assert_uint_eq(v->nic[0].stalls, 0);
    rig_run(rig, 350 * RIG_MS);
    rig_fault(rig, "h0:* restore");
    end_message();
    ck_assert_uint_gt(rig_now(rig) - from, 900 * RIG_MS);
    v = look(0);
    ck_assert_uint_eq(v->who.faults, 0);
    ck_assert_uint_ge(v->who.stalls, 1); /* of one NIC or, where the other carries, too, of both */
    ck_assert_uint_le(v->who.stalls, (unsigned)_i);
    ck_assert_uint_gt(v->who.stalls_max_ns, 900 * RIG_MS);
    ck_assert_uint_eq(r2_hist_count(&v->who.stall_times[R2_STAT_STALL_OTHER]), v->who.stalls);
    ck_assert_uint_ge(v->who.stall_times[R2_STAT_STALL_OTHER].sum_ns, v->who.stalls_max_ns);
    ck_assert_uint_eq(r2_hist_count(&v->who.stall_times[R2_STAT_STALL_FAULT]), 0);
    ck_assert_uint_eq(v->nic[0].stalls, 1);
    ck_assert_uint_gt(v->nic[0].stall_at, 0);
    e = event_find(v, R2_EVENT_STALL);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_gt(e->stall_ns, 900 * RIG_MS);
    ck_assert_msg(strstr(e->text, ": 1 connection stood still for ") != NULL, "%s", e->text);
    ck_assert_msg(strstr(rig->last_warn[0], " stood still for ") != NULL, "%s", rig->last_warn[0]);
    ck_assert_ptr_nonnull(strstr(lines(), "\"kind\":\"stall\""));
    end();
}
END_TEST

/* What waits for the other process is no stall: no receive is there; or it is, all is written, and
 * nobody looks at it. */
START_TEST(a_slow_process_is_no_stall)
{
    const struct r2_stat_view *v;

    begin(1, NULL);
    messages(4);
    if (_i) {
        begin_message();
    }
    rig->side[1].asleep = 1;
    rig_run(rig, 5 * RIG_S);
    rig->side[1].asleep = 0;
    if (_i) {
        end_message();
    }
    messages(2);
    for (int i = 0; i < 2; i++) {
        v = look(i);
        ck_assert_uint_eq(v->who.stalls, 0);
        ck_assert_uint_eq(v->nic[0].stall_at, 0);
    }
    end();
}
END_TEST

START_TEST(a_connection_that_is_given_up)
{
    static const char *const quick[] = {"NCCL_R2_GIVE_UP=200", NULL};
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;

    begin(1, quick);
    messages(2);
    begin_message();
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 2 * RIG_S);
    v = look(0);
    e = event_find(v, R2_EVENT_GIVEUP);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_eq(e->severity, R2_EVENT_CRITICAL);
    ck_assert_msg(strstr(e->text, "no path left") != NULL, "%s", e->text);
    ck_assert_int_eq(v->conn[0].standing, 0);
    ck_assert_int_ne(v->conn[0].error, 0);
    ck_assert_ptr_nonnull(event_find(v, R2_EVENT_FAULT));
    ck_assert_ptr_null(event_find(v, R2_EVENT_SWITCH)); /* it went nowhere */
    r2_stat_view_free(&view);
    teardown();
    host_dir_remove();
}
END_TEST

START_TEST(a_drain_is_no_fault)
{
    const struct r2_stat_view *v;

    begin(2, NULL);
    messages(4);
    drain(0, 1);
    wait_settled(0);
    v = look(0);
    ck_assert_int_eq(v->nic[0].drained, 1);
    ck_assert_str_eq(v->nic[0].why, "as NCCL_R2_DRAIN says");
    ck_assert_uint_eq(v->who.faults, 0);
    ck_assert_uint_eq(v->who.drains, 2); /* it was drained; it is free */
    ck_assert_ptr_nonnull(event_find(v, R2_EVENT_DRAIN));
    v = look(1);
    ck_assert_uint_eq(v->who.faults, 0);
    ck_assert_uint_eq(v->who.drains, 1);
    end();
}
END_TEST

/* What the administrator wrote beside the name is where the drain is. */
START_TEST(why_a_nic_is_drained)
{
    const struct r2_stat_view *v;
    const struct r2_stat_event *e;

    begin(2, NULL);
    messages(4);
    file_write("fab1 # not for us\nfab0:1 # since 2026-11-23T10:00:00+0000: new cable\n", 0644);
    rig_enter(&rig->side[0]);
    r2_drain_poll(rig->side[0].inst);
    rig_kick(&rig->side[0]);
    ck_assert_uint_eq(rig->side[0].inst->drain.nics, 3);
    rig_run(rig, RIG_S);
    v = look(0);
    ck_assert_str_eq(v->nic[0].why, "new cable; still in use"); /* the other one is drained, too */
    ck_assert_str_eq(v->nic[1].why, "not for us; still in use");
    e = event_find(v, R2_EVENT_DRAIN);
    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(e->text, "fab0: drained, new work avoids it: new cable");
    file_write("", 0644);
    rig_enter(&rig->side[0]);
    r2_drain_poll(rig->side[0].inst);
    rig_kick(&rig->side[0]);
    ck_assert_str_eq(look(0)->nic[0].why, "as found at the start");
    end();
}
END_TEST

/* --- switches --- */

START_TEST(switched_off)
{
    static const char *const off[] = {"NCCL_R2_STATS=off", "NCCL_R2_EVENT_FILE=off", NULL};

    create(2, off);
    host_dir(0);
    r2_report_open(rig->side[0].inst, NULL);
    ck_assert_ptr_null(rig->side[0].inst->telemetry.report);
    join();
    messages(2);
    rig_fault(rig, "h0:n0 down");
    messages(2);
    ck_assert_int_eq(rmdir(dir), 0); /* nothing was made */
    stop();
    teardown();
}
END_TEST

START_TEST(a_file_that_cannot_be_written_ends_nothing)
{
    static const char *const bad[] = {"NCCL_R2_EVENT_FILE=/nonexistent/events", NULL};
    const struct r2_stat_view *v;

    begin(2, bad);
    messages(2);
    begin_message();
    rig_fault(rig, "h0:n0 down");
    end_message();
    wait_settled(0);
    v = look(0);
    ck_assert_uint_gt(v->who.events_lost, 0);
    ck_assert_uint_eq(v->who.switches, 1);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, traffic_is_counted);
    tcase_add_test(t, what_was_dropped_is_counted);
    tcase_add_loop_test(t, what_is_kept_is_counted, 0, 2);
    tcase_add_test(t, many_connections);
    tcase_add_test(t, an_idle_process_is_not_woken);
    tcase_add_test(t, a_nic_goes_down_and_comes_back);
    tcase_add_test(t, a_blackhole_is_seen_though_the_port_is_up);
    tcase_add_test(t, a_stall_is_real_time);
    tcase_add_test(t, what_a_hold_keeps_is_a_stall);
    tcase_add_loop_test(t, a_part_that_is_not_known_has_its_code_at_both_ends, 0, 2);
    tcase_add_loop_test(t, a_stall_without_a_fault, 1, 3);
    tcase_add_loop_test(t, a_slow_process_is_no_stall, 0, 2);
    tcase_add_test(t, a_connection_that_is_given_up);
    tcase_add_test(t, a_drain_is_no_fault);
    tcase_add_test(t, why_a_nic_is_drained);
    tcase_add_test(t, switched_off);
    tcase_add_test(t, a_file_that_cannot_be_written_ends_nothing);
}

int main(void)
{
    return suite_run("report", 60, NULL, NULL, add);
}
