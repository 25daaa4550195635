/* Transfer times of a peer: whole instances over the fabric, in virtual time. What the fabric is
 * made to take longer is in the row, within 5 %, and jitter is no event. */
#include "tests/unit/report_rig.h"

#include <math.h>

#include "telemetry/r2_transfer.h"

#define SIZE R2_BAND_128K /* of the rig's messages */

/* @seconds of messages, each of them timed, 20 in a second; @delay of the link, ms, for each anew
 * by up to @jitter percent more or less. */
static void traffic(unsigned seconds, double delay, unsigned jitter)
{
    for (unsigned i = 0; i < 20 * seconds; i++) {
        double by = 1 + (2 * drand48() - 1) * jitter / 100;
        char fault[48];

        if (delay > 0 && (i == 0 || jitter)) {
            snprintf(fault, sizeof(fault), "h0:n0 delay %.0fus", delay * by * 1000);
            rig_fault(rig, fault);
        }
        comm(0)->timed.left = 1;
        messages(1);
        rig_run(rig, 40 * RIG_MS);
    }
}

static const struct r2_stat_transfer *row(void)
{
    const struct r2_stat_view *v = look(0);

    ck_assert_uint_eq(v->who.peers, 1);
    ck_assert_uint_eq(v->who.peers_all, 1);
    return &v->peer[0].transfer[SIZE];
}

static const struct r2_stat_event *event_last(enum r2_event_kind kind)
{
    const struct r2_stat_event *e = NULL;

    for (int i = 0; i < view.events; i++) {
        e = view.event[i].kind == kind ? &view.event[i] : e;
    }
    return e;
}

static int events_of(enum r2_event_kind kind)
{
    int n = 0;

    for (int i = 0; i < view.events; i++) {
        n += view.event[i].kind == kind;
    }
    return n;
}

START_TEST(a_delay_of_the_link_is_in_it)
{
    static const double delay[] = {10, 20, 30}; /* ms */
    const struct r2_stat_transfer *t;
    double p50;

    begin(1, NULL);
    traffic(2, 0, 0);
    t = row();
    p50 = (double)t->p50_ns / 1e6;
    ck_assert(p50 > 0 && p50 < 0.2);
    traffic(3, delay[_i], 0);
    t = row();
    ck_assert_msg(fabs((double)t->p50_ns / 1e6 - delay[_i]) <= 0.05 * delay[_i], "%.3f ms",
                  (double)t->p50_ns / 1e6);
    ck_assert_msg(fabs((double)t->p99_ns / 1e6 - delay[_i]) <= 0.05 * delay[_i], "%.3f ms",
                  (double)t->p99_ns / 1e6);
    ck_assert_uint_eq(t->state, R2_BAND_LEARNS);
    ck_assert_uint_eq(t->times, 100);
    ck_assert_uint_gt(t->n, R2_BAND_TIMES);
    for (int s = 0; s < R2_BAND_SIZES; s++) {
        ck_assert(s == SIZE || view.peer[0].transfer[s].times == 0);
    }
    ck_assert_uint_ne(view.peer[0].host[0], 0);
    ck_assert_uint_eq(look(1)->who.peers, 0); /* a receiver */
    end();
}
END_TEST

/* The event when it leaves the band, and when it is back; in the file, too. */
START_TEST(an_event_when_it_leaves_its_band)
{
    const struct r2_stat_event *e;
    const struct r2_stat_transfer *t;
    const char *line;

    begin(1, NULL);
    traffic(15, 0, 0);
    t = row();
    ck_assert_uint_eq(t->state, R2_BAND_INSIDE);
    ck_assert_uint_gt(t->high_ns, RIG_MS);
    ck_assert_int_eq(events_of(R2_EVENT_TRANSFER), 0);
    traffic(6, 20, 0);
    t = row();
    ck_assert_uint_eq(t->state, R2_BAND_ABOVE);
    ck_assert_int_eq(events_of(R2_EVENT_TRANSFER), 1);
    e = event_last(R2_EVENT_TRANSFER);
    ck_assert_str_eq(e->cause, "slower");
    ck_assert_int_eq(e->severity, R2_EVENT_INFO);
    ck_assert_str_eq(e->peer_host, view.peer[0].host);
    ck_assert_msg(strstr(e->text, ", size 128K, take longer than usual: p50 20.0 ms, p99 2"), "%s",
                  e->text);
    rig_fault(rig, "h0:n0 delay 0ms");
    traffic(40, 0, 0);
    t = row();
    ck_assert_uint_eq(t->state, R2_BAND_INSIDE);
    ck_assert_int_eq(events_of(R2_EVENT_TRANSFER), 2);
    ck_assert_str_eq(event_last(R2_EVENT_TRANSFER)->cause, "back");
    line = strstr(lines(), "\"transfer\":{\"size\":\"128K\",\"p50_us\":20");
    ck_assert_msg(line != NULL, "%s", events);
    ck_assert_ptr_nonnull(strstr(line, ",\"band_us\":[0,10"));
    end();
}
END_TEST

/* A process that has announced much waits with the next one for the rest of the span. */
START_TEST(announcements_of_a_process_are_bounded)
{
    struct r2_report *r;

    begin(1, NULL);
    traffic(15, 0, 0);
    r = rig->side[0].inst->telemetry.report;
    r->transfer.since = r2_now(rig->side[0].inst);
    r->transfer.said = R2_TRANSFER_MOST;
    traffic(8, 20, 0);
    ck_assert_uint_eq(row()->state, R2_BAND_ABOVE);
    ck_assert_int_eq(events_of(R2_EVENT_TRANSFER), 0);
    rig_run(rig, R2_TRANSFER_SPAN);
    ck_assert_uint_eq(row()->state, R2_BAND_ABOVE);
    ck_assert_int_eq(events_of(R2_EVENT_TRANSFER), 1);
    ck_assert_str_eq(event_last(R2_EVENT_TRANSFER)->cause, "slower");
    end();
}
END_TEST

START_TEST(jitter_of_the_link_is_no_event)
{
    begin(1, NULL);
    srand48(7);
    traffic(120, 10, 20);
    ck_assert_uint_eq(row()->state, R2_BAND_INSIDE);
    ck_assert_int_eq(events_of(R2_EVENT_TRANSFER), 0);
    ck_assert_int_eq(view.events, 0); /* nor of any other kind */
    end();
}
END_TEST

/* The window of the last ones ends after they did. */
START_TEST(what_was_before_the_traffic_stopped)
{
    begin(1, NULL);
    for (int i = 0; i < 10; i++) {
        comm(0)->timed.left = 1;
        messages(1);
    }
    ck_assert_uint_eq(row()->times, 10);
    ck_assert_uint_eq(row()->at, 0);
    rig_run(rig, R2_BAND_LONGEST + RIG_S);
    ck_assert_uint_eq(row()->n, 10);
    ck_assert_uint_ne(row()->at, 0);
    end();
}
END_TEST

/* A peer that is gone leaves no row. */
START_TEST(its_row_goes_with_the_peer)
{
    begin(1, NULL);
    traffic(2, 0, 0);
    row();
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig_close(rig, 0);
    rig_close(rig, 1);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(look(0)->who.peers, 0);
    r2_stat_view_free(&view);
    teardown();
    host_dir_remove();
}
END_TEST

/* @p becomes a peer to which a send took its time. */
static void time_to(struct r2_peer *p, int no)
{
    struct r2_comm *c = comm(0);
    struct r2_peer *real = c->peer;

    snprintf(p->host, sizeof(p->host), "p%d", no);
    p->oob = real->oob;
    while (p->transfer == NULL) {
        c->timed.left = 1;
        messages(1);
        c->peer = p;
        r2_transfer_take(c);
        c->peer = real;
    }
}

/* Rows of peers @from and its followers are written, and read. */
static void rows(struct r2_peer *from)
{
    struct r2_inst *inst = rig->side[0].inst;
    struct r2_stat *s = report(0)->stat;
    struct r2_peer *real = inst->index.peers;
    struct r2_stat_who who = {0};
    char why[600];

    inst->index.peers = from;
    r2_stat_begin(s);
    r2_transfer_write(report(0), &who);
    r2_stat_put_who(s, &who);
    r2_stat_end(s);
    inst->index.peers = real;
    r2_stat_view_free(&view);
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &view, why, sizeof(why)), 1);
}

/* More of them than rows; and each has its row where it stands when one comes before all, and goes
 * again. */
START_TEST(peers_without_number)
{
    enum { PEERS = R2_STAT_PEERS + 12 };
    struct r2_peer *p = calloc(PEERS, sizeof(*p));

    begin(1, NULL);
    for (int i = 0; i < PEERS; i++) {
        time_to(&p[i], i);
        p[i].next = i + 1 < PEERS ? &p[i + 1] : NULL;
    }
    for (int go = 0; go < 3; go++) {
        int first = go != 1;

        rows(&p[first]);
        ck_assert_uint_eq(view.who.peers, R2_STAT_PEERS);
        ck_assert_uint_eq(view.who.peers_all, (unsigned)(PEERS - first));
        for (int i = 0; i < R2_STAT_PEERS; i++) {
            ck_assert_str_eq(view.peer[i].host, p[first + i].host);
            ck_assert_uint_ge(view.peer[i].transfer[SIZE].times, 1);
        }
    }
    rows(&p[PEERS - 1]);
    ck_assert_uint_eq(view.who.peers, 1);
    ck_assert_uint_eq(view.who.peers_all, 1);
    ck_assert_str_eq(view.peer[0].host, p[PEERS - 1].host);
    for (int i = 0; i < PEERS; i++) {
        free(p[i].transfer);
    }
    free(p);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_delay_of_the_link_is_in_it, 0, 3);
    tcase_add_test(t, an_event_when_it_leaves_its_band);
    tcase_add_test(t, announcements_of_a_process_are_bounded);
    tcase_add_test(t, jitter_of_the_link_is_no_event);
    tcase_add_test(t, what_was_before_the_traffic_stopped);
    tcase_add_test(t, its_row_goes_with_the_peer);
    tcase_add_test(t, peers_without_number);
}

int main(void)
{
    return run_suite("transfer", add);
}
