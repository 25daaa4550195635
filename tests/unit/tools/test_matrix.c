/* The judge of the confusion matrix (tests/matrix): what is right to say of a case, and what lines
 * say. */
#include "tests/matrix/matrix_line.c"
#include "tests/matrix/matrix_table.c"
#include "tests/matrix/matrix_truth.c"

#include <check.h>
#include <stdlib.h>

static struct mx_case of(enum mx_kind kind, int hosts)
{
    return (struct mx_case){.kind = kind,
                            .hosts = hosts,
                            .nics = 3,
                            .host = 1,
                            .nic = 2,
                            .far = kind == MX_PATH_CUT ? 0 : -1};
}

static enum mx_judgement judged(enum mx_kind kind, enum mx_blame blame, int host, int nic)
{
    struct mx_case c = of(kind, 3);
    struct mx_verdict v = {blame, host, nic, -1, -1, kind == MX_PLANE_CUT};

    return mx_judge(&c, &v);
}

START_TEST(kind_and_place_must_be_right)
{
    ck_assert_int_eq(judged(MX_HANG, MX_NIC, 1, 2), MX_RIGHT);
    ck_assert_int_eq(judged(MX_HANG, MX_NIC, 1, 1), MX_WRONG);
    ck_assert_int_eq(judged(MX_HANG, MX_NIC, 0, 2), MX_WRONG);
    ck_assert_int_eq(judged(MX_HANG, MX_LINK, 1, 2), MX_WRONG);
    ck_assert_int_eq(judged(MX_HANG, MX_UNKNOWN, -1, -1), MX_CANNOT_TELL);
    ck_assert_int_eq(judged(MX_BLACKHOLE_TX, MX_LINK, 1, 2), MX_RIGHT);
    ck_assert_int_eq(judged(MX_BLACKHOLE_TX, MX_PATH, 1, 2), MX_WRONG);
    ck_assert_int_eq(judged(MX_PLANE_CUT, MX_PATH, 2, 2), MX_RIGHT);
    ck_assert_int_eq(judged(MX_PLANE_CUT, MX_PATH, 2, 0), MX_WRONG);
    ck_assert_int_eq(judged(MX_PATH_CUT, MX_PATH, 0, 2), MX_RIGHT);
    ck_assert_int_eq(judged(MX_PATH_CUT, MX_PATH, 2, 2), MX_WRONG);
    ck_assert_int_eq(judged(MX_KILLED, MX_PROCESS, 1, -1), MX_RIGHT);
    ck_assert_int_eq(judged(MX_KILLED, MX_PROCESS, 0, -1), MX_WRONG);
    ck_assert_int_eq(judged(MX_LOSS, MX_LINK, 1, 2), MX_WRONG);
    ck_assert_int_eq(judged(MX_CALM, MX_PROCESS, 1, -1), MX_WRONG);
}
END_TEST

START_TEST(both_ends_of_a_path_count)
{
    struct mx_case c = of(MX_PATH_CUT, 3);

    ck_assert_int_eq(mx_judge(&c, &(struct mx_verdict){MX_PATH, 1, 2, 0, 2}), MX_RIGHT);
    ck_assert_int_eq(mx_judge(&c, &(struct mx_verdict){MX_PATH, 0, 2, 1, 2}), MX_RIGHT);
    ck_assert_int_eq(mx_judge(&c, &(struct mx_verdict){MX_PATH, 1, 2, 2, 2}), MX_WRONG);
    ck_assert_int_eq(mx_judge(&c, &(struct mx_verdict){MX_PATH, 1, 2, 0, 1}), MX_WRONG);
}
END_TEST

START_TEST(a_way_is_not_its_plane)
{
    struct mx_case path = of(MX_PATH_CUT, 3), plane = of(MX_PLANE_CUT, 3);
    struct mx_verdict f01 = {MX_PATH, 1, 2, 0, 2, 0}, f02 = {MX_PATH, 1, 2, 0, 2, 1};

    ck_assert_int_eq(mx_judge(&path, &f01), MX_RIGHT);
    ck_assert_int_eq(mx_judge(&path, &f02), MX_WRONG);
    ck_assert_int_eq(mx_judge(&plane, &f01), MX_WRONG);
    ck_assert_int_eq(mx_judge(&plane, &f02), MX_RIGHT);
    path.hosts = plane.hosts = 2; /* it is all there is of the plane */
    ck_assert_int_eq(mx_judge(&path, &f02), MX_RIGHT);
    ck_assert_int_eq(mx_judge(&plane, &f01), MX_RIGHT);
}
END_TEST

/* What three processes say, in turn: a letter of "NRUW" each, nothing, right, undecided, wrong;
 * lower case: the process has not heard of it. */
static struct mx_sums summed(const struct mx_case *c, const char *said)
{
    struct mx_tally t = {0};
    struct mx_sums s = {0};
    unsigned informed = 0;

    for (int i = 0; said[i]; i++) {
        struct mx_verdict v = {MX_UNKNOWN, c->host, c->nic, -1, -1, 0};

        informed |= said[i] < 'a' ? 1u << i % 3 : 0;
        if (said[i] == 'R') {
            v.blame = mx_case_blame(c);
        } else if (said[i] == 'W') {
            v.blame = MX_PROCESS;
        }
        if (strchr("RUWu", said[i])) {
            mx_tally_add(&t, c, i % 3, &v);
        }
    }
    mx_tally_sum(&t, c, 7, informed, 1, 1, &s);
    return s;
}

START_TEST(what_is_not_told_as_it_could_be_fails)
{
    struct mx_case link = of(MX_BLACKHOLE, 3), two = of(MX_BLACKHOLE, 2), calm = of(MX_LOSS, 3);
    struct mx_sums none = {0};
    static const struct {
        const char *said, *worse;
    } row[] = {{"NRN", NULL},     {"RRR", NULL},         {"URN", "undecided"}, {"URNR", NULL},
               {"URNRU", NULL},   {"URNU", "undecided"}, {"NRW", "wrong"},     {"UUU", "missed"},
               {"NNN", "silent"}, {"NRn", "not told"},   {"nnn", "silent"}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct mx_sums s = summed(&link, row[i].said);
        const char *worse = mx_sums_worse(&s, &none, link.kind);

        ck_assert_msg(row[i].worse ? worse && strcmp(worse, row[i].worse) == 0 : worse == NULL,
                      "%s: %s", row[i].said, worse ? worse : "-");
        ck_assert_int_eq(mx_sums_bad(&s) != 0, row[i].worse != NULL);
    }
    none = summed(&two, "UUN");
    ck_assert_uint_eq(mx_sums_bad(&none), 0); /* nobody could tell */
    none = summed(&calm, "UNN");
    ck_assert_uint_eq(mx_sums_bad(&none), 1); /* nothing has failed */
    none = summed(&link, "NRN");
    none.stayed[link.kind] = 1;
    ck_assert_uint_eq(mx_sums_bad(&none), 1);
    ck_assert_str_eq(mx_sums_worse(&none, &(struct mx_sums){0}, link.kind), "stayed");
}
END_TEST

/* Where rails reach each other, a rail's switch is every NIC's only way: its link, to a pair across
 * rails. */
START_TEST(a_switch_that_all_passes_is_the_link)
{
    struct mx_case plane = of(MX_PLANE_CUT, 3), link = of(MX_BLACKHOLE, 2),
                   stopped = of(MX_STOPPED, 2);
    struct mx_verdict v = {MX_LINK, 0, 2, -1, -1, 0};
    char text[48];

    ck_assert_str_eq(mx_case_fault(&plane, 0, text), "*:n2 cut *:n2");
    ck_assert_int_eq(mx_judge(&plane, &v), MX_WRONG);
    plane.crossrail = link.crossrail = stopped.crossrail = 1;
    ck_assert_str_eq(mx_case_fault(&plane, 0, text), "*:n2 cut *:*");
    ck_assert_int_eq(mx_judge(&plane, &v), MX_RIGHT);
    v.nic = 1;
    ck_assert_int_eq(mx_judge(&plane, &v), MX_WRONG);
    ck_assert_int_eq(mx_judge(&plane, &(struct mx_verdict){MX_PATH, 1, 2, 0, 2, 1}), MX_RIGHT);
    ck_assert(mx_case_can_tell(&link));
    ck_assert(!mx_case_can_tell(&stopped));
    link.nics = 1;
    ck_assert(!mx_case_can_tell(&link));
}
END_TEST

START_TEST(two_hosts_cannot_tell_all)
{
    struct mx_case c = of(MX_BLACKHOLE, 2);

    ck_assert_int_eq(mx_case_can_tell(&c), 0);
    c.hosts = 3;
    ck_assert_int_eq(mx_case_can_tell(&c), 1);
    c = of(MX_DOWN, 2);
    ck_assert_int_eq(mx_case_can_tell(&c), 1);
    c = of(MX_STOPPED, 2);
    ck_assert_int_eq(mx_case_can_tell(&c), 0);
    c.hosts = 3;
    ck_assert_int_eq(mx_case_can_tell(&c), 1);
}
END_TEST

START_TEST(every_kind_is_drawn_inside_the_fabric)
{
    unsigned seen = 0;
    char text[48];

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct fab_fault f;
        struct mx_case c;

        mx_case_draw(&c, seed, 2 + (int)(seed % 3), 1 + (int)(seed % 4), 8);
        seen |= 1u << c.kind;
        ck_assert(c.host >= 0 && c.host < c.hosts && c.nic >= 0 && c.nic < c.nics);
        ck_assert(c.kind != MX_PATH_CUT || (c.far != c.host && c.far >= 0 && c.far < c.hosts));
        for (int i = 0; mx_case_fault(&c, i, text); i++) {
            ck_assert_int_eq(fab_fault_parse(text, &f, NULL, 0), 0);
            ck_assert(fab_fault_fits(&f, c.hosts, c.nics));
            ck_assert(c.kind != MX_SPINE || (f.nic == c.nic && f.spine == c.spine));
        }
        ck_assert(c.kind != MX_SPINE || (c.spine >= 0 && c.spine < 8));
    }
    ck_assert_uint_eq(seen, (1u << MX_KINDS) - 1);
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct mx_case c;

        mx_case_draw(&c, seed, 2, 2, 1); /* one way: nothing can fail alone there */
        ck_assert_int_ne(c.kind, MX_SPINE);
    }
}
END_TEST

/* Whose packets it swallows is its rail's; of what has swallowed nothing nobody can know. */
START_TEST(a_spine)
{
    struct mx_case c = {.kind = MX_SPINE, .hosts = 3, .nics = 3, .host = 0, .nic = 2, .far = -1};
    struct mx_verdict right = {MX_WAY, 1, 2, 2, 2}, rail = {MX_WAY, 1, 1, 2, 1},
                      nic = {MX_NIC, 1, 2, -1, -1}, path = {MX_PATH, 1, 2, 2, 2};
    struct mx_sums s = {0};
    struct mx_tally t = {0};

    ck_assert_int_eq(mx_judge(&c, &right), MX_RIGHT);
    ck_assert_int_eq(mx_judge(&c, &rail), MX_WRONG);
    ck_assert_int_eq(mx_judge(&c, &nic), MX_WRONG);
    ck_assert_int_eq(mx_judge(&c, &path), MX_WRONG);
    mx_tally_sum(&t, &c, 7, 0, 0, 0, &s);
    ck_assert_uint_eq(mx_sums_bad(&s), 0);
    c.met = 1;
    mx_tally_sum(&t, &c, 7, 0, 0, 0, &s);
    ck_assert_uint_eq(s.silent[MX_SPINE], 1);
    ck_assert_uint_eq(s.missed[MX_SPINE], 1);
    memset(&s, 0, sizeof(s));
    mx_tally_add(&t, &c, 1, &right);
    mx_tally_sum(&t, &c, 7, 2, 10, 10, &s);
    ck_assert_uint_eq(mx_sums_bad(&s), 0); /* one knows: no health report goes round */
    mx_tally_add(&t, &c, 1, &nic);
    mx_tally_sum(&t, &c, 7, 2, 10, 10, &s);
    ck_assert_uint_eq(s.wrong[MX_SPINE], 1);
}
END_TEST

START_TEST(lines_are_read)
{
    static const struct {
        const char *line;
        enum mx_said said;
        struct mx_verdict v;
    } row[] = {
        {"WARN NET/R2 : R2-L02 host=h1 nic=fab2/1 rail=2 blame=cable-or-switch-port do=x",
         MX_SAID_VERDICT,
         {MX_LINK, 1, 2, -1, -1}},
        {"WARN NET/R2 : R2-N01 host=h0 nic=fab0 blame=nic",
         MX_SAID_VERDICT,
         {MX_NIC, 0, 0, -1, -1}},
        {"WARN NET/R2 : R2-F01 host=h0 nic=fab1 peer=h2:fab1 blame=path",
         MX_SAID_VERDICT,
         {MX_PATH, 0, 1, 2, 1, 0}},
        {"WARN NET/R2 : R2-F02 host=h0 nic=fab1 peer=h2:fab1 blame=plane",
         MX_SAID_VERDICT,
         {MX_PATH, 0, 1, 2, 1, 1}},
        {"WARN NET/R2 : R2-P01 host=h2 nic=- blame=process",
         MX_SAID_VERDICT,
         {MX_PROCESS, 2, -1, -1, -1}},
        {"WARN NET/R2 : R2-F04 host=h0 nic=fab1 peer=h2:fab1 rail=1 blame=way how=way-3:silent",
         MX_SAID_VERDICT,
         {MX_WAY, 0, 1, 2, 1}},
        {"WARN NET/R2 : R2-F03 host=h2 nic=fab0 blame=unknown",
         MX_SAID_VERDICT,
         {MX_UNKNOWN, 2, 0, -1, -1}},
        {"INFO NET/R2 : R2-G01 host=h2 nic=fab0 blame=slow", MX_SAID_OTHER, {0}},
        {"INFO NET/R2 : R2-L02: h2 fab0 port up, loop ok, 1 other ports no answer",
         MX_SAID_OTHER,
         {0}},
        {"WARN NET/R2 : NIC fab1 rail 1: UP -> DOWN: port down", MX_SAID_OTHER, {0}},
        {"INFO NET/R2 : news from h1: h2 fab0: our port or cable", MX_SAID_BAD_REPORT, {0}},
        {"INFO NET/R2 : news from h1: h2 fab0: good again", MX_SAID_GOOD_REPORT, {0}},
        {"INFO NET/R2 : send 7 h1/fab1 -> h0 path 1 life 1 UP -> DOWN: no answer, local NIC fab0",
         MX_SAID_PATH_DOWN,
         {0}},
        {"INFO NET/R2 : send 7 h1/fab1 -> h0 path 1 life 1 UP -> DOWN: closing, local NIC fab0",
         MX_SAID_OTHER,
         {0}},
        {"INFO NET/R2 : send 7 h1/fab1 -> h0 path 1 life 2 is up: its NIC pair is back",
         MX_SAID_PATH_UP,
         {0}},
        {"INFO NET/R2 : 38 more lives of paths went UP -> DOWN", MX_SAID_LEFT_OUT, {0}},
        {"INFO NET/R2 : 26 more paths are up again", MX_SAID_LEFT_OUT, {0}},
        {"# host 0: send to host 1 over NIC 0: test returned 6", MX_SAID_OTHER, {0}},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct mx_verdict v = {0};

        ck_assert_msg(mx_line_read(row[i].line, &v) == row[i].said, "%s", row[i].line);
        ck_assert_msg(memcmp(&v, &row[i].v, sizeof(v)) == 0, "%s: %d %d %d", row[i].line, v.blame,
                      v.host, v.nic);
    }
    ck_assert_str_eq(mx_line_who("WARN NET/R2 : R2-L02 host=h1 nic=fab2/1 rail=2"), "h1 fab2");
    ck_assert_str_eq(mx_line_who("INFO NET/R2 : news from h0: h1 fab2: good again"), "h1 fab2");
    ck_assert_str_eq(mx_line_who("WARN NET/R2 : R2-P01 host=h1 nic=-"), "h1 ");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("matrix");
    TCase *t = tcase_create("judge");
    SRunner *r;
    int failed;

    tcase_add_test(t, kind_and_place_must_be_right);
    tcase_add_test(t, both_ends_of_a_path_count);
    tcase_add_test(t, a_way_is_not_its_plane);
    tcase_add_test(t, what_is_not_told_as_it_could_be_fails);
    tcase_add_test(t, a_switch_that_all_passes_is_the_link);
    tcase_add_test(t, two_hosts_cannot_tell_all);
    tcase_add_test(t, every_kind_is_drawn_inside_the_fabric);
    tcase_add_test(t, a_spine);
    tcase_add_test(t, lines_are_read);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
