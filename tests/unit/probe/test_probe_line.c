/* The operator's line: its two forms at their limits, names from a hostile peer, and the code of
 * every verdict. */
#include <stdio.h>
#include <string.h>

#include "plugin/probe/probe_line.h"
#include "plugin/probe/probe_seen.h"
#include "tests/unit/suite.h"

static char full[PROBE_LINE_SIZE + 8], brief[PROBE_SHORT_SIZE + 8];

/* Both forms, with what lies behind their buffers guarded. */
static void both(const struct probe_line *l)
{
    memset(full, '#', sizeof(full));
    memset(brief, '#', sizeof(brief));
    ck_assert_int_eq(probe_line_full(full, l), (int)strlen(full));
    ck_assert_int_eq(probe_line_short(brief, l), (int)strlen(brief));
    ck_assert_uint_lt(strlen(full), PROBE_LINE_SIZE);
    ck_assert_uint_le(strlen(brief), 80);
    ck_assert_mem_eq(full + PROBE_LINE_SIZE, "########", 8);
    ck_assert_mem_eq(brief + PROBE_SHORT_SIZE, "########", 8);
}

/* The value of @key, to the next space; "" when it is not there. */
static const char *value(const char *key)
{
    static char text[PROBE_LINE_SIZE];
    char at[32];
    const char *p;

    snprintf(at, sizeof(at), " %s=", key);
    p = strstr(full, at);
    text[0] = '\0';
    if (p != NULL) {
        ck_assert_ptr_null(strstr(p + 1, at)); /* once */
        p += strlen(at);
        snprintf(text, sizeof(text), "%.*s", (int)strcspn(p, " "), p);
    }
    return text;
}

START_TEST(everything_known)
{
    struct probe_line l = {.code = PROBE_CODE_L02,
                           .host = "n17",
                           .nic = "mlx5_3/1",
                           .pci = "0000:9c:00.0",
                           .peer_host = "n18",
                           .peer_nic = "mlx5_3/1",
                           .how = "time-out,link_downed:+1",
                           .to = "mlx5_2,mlx5_4",
                           .job = "slurm:81233",
                           .rail1 = 4,
                           .fate = PROBE_FATE_CONTINUES,
                           .since_ms = 50531204ull + 20000ull * 86400000ull,
                           .seen_by = 3,
                           .seen_of = 3,
                           .stall_us = 1800,
                           .moved = 24,
                           .capacity = 7,
                           .capacity_of = 8};

    both(&l);
    ck_assert_str_eq(
        full,
        "R2-L02 host=n17 nic=mlx5_3/1 peer=n18:mlx5_3/1 rail=3 pci=0000:9c:00.0 blame=cable-or-switch-port "
        "since=14:02:11.204Z how=time-out,link_downed:+1 seen_by=3/3 stall=1.800ms moved=24 to=mlx5_2,mlx5_4 "
        "capacity=7/8 job=slurm:81233 fate=continues do=drain-after-job");
    ck_assert_str_eq(brief,
                     "R2-L02 mlx5_3/1 cable or switch port; job continues at 7/8; drain after job");
    l.capacity = 1024;
    l.capacity_of = 2048;
    both(&l); /* 82 characters: capacity goes */
    ck_assert_str_eq(brief, "R2-L02 mlx5_3/1 cable or switch port; job continues; drain after job");
    l.nic = "a_very_long_name_of_a_nic/1";
    both(&l);
    ck_assert_str_eq(brief,
                     "R2-L02 a_very_long_name_of_a_nic/1 cable or switch port; drain after job");
    l.nic = "a_very_long_name_of_a_nic_of_36_bytes/1";
    both(&l);
    ck_assert_str_eq(
        brief, "R2-L02 a_very_long_name_of_a_nic_of_36_by~ cable or switch port; drain after job");
    l.fate = PROBE_FATE_NA, l.capacity = 7, l.capacity_of = 8, l.nic = "mlx5_3/1";
    both(&l);
    ck_assert_str_eq(brief, "R2-L02 mlx5_3/1 cable or switch port; 7/8; drain after job");
    l.blame = "port", l.action = "check-link"; /* of this case */
    both(&l);
    ck_assert_str_eq(brief, "R2-L02 mlx5_3/1 cable or switch port; 7/8; check link");
    ck_assert_ptr_nonnull(strstr(full, " blame=port since="));
    ck_assert_str_eq(full + strlen(full) - strlen(" do=check-link"), " do=check-link");
}
END_TEST

/* Another host's NIC: without the host's name its reader looks at his own. */
START_TEST(a_nic_of_another_host)
{
    static const struct {
        const char *host, *nic, *brief;
    } row[] = {
        {"h1", "fab1/1",
         "R2-L02 h1:fab1/1 cable or switch port; job continues at 7/8; drain after job"},
        {"ip-10-0-77-1", "mlx5_3/1",
         "R2-L02 ip-10-0-77-1:mlx5_3/1 cable or switch port; drain after job"},
        {"a-host-with-a-name-of-34-characters", "mlx5_3/1",
         "R2-L02 a-host-with-a-name-of-34-~:mlx5_3/1 cable or switch port; drain after job"},
        {"h1", "a_nic_with_a_name_of_35_characters",
         "R2-L02 h1:a_nic_with_a_name_of_35_charact~ cable or switch port; drain after job"},
        {"a-host-with-a-long-name", "a_nic_with_a_long_name",
         "R2-L02 a-host-with-a-lo~:a_nic_with_a_lon~ cable or switch port; drain after job"},
        {"h1", "", "R2-L02 h1 cable or switch port; job continues at 7/8; drain after job"},
        {"", "fab1", "R2-L02 fab1 cable or switch port; job continues at 7/8; drain after job"},
    };
    struct probe_line l = {.code = PROBE_CODE_L02,
                           .fate = PROBE_FATE_CONTINUES,
                           .capacity = 7,
                           .capacity_of = 8,
                           .elsewhere = 1};

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        l.host = row[i].host;
        l.nic = row[i].nic;
        both(&l);
        ck_assert_str_eq(brief, row[i].brief);
    }
}
END_TEST

START_TEST(nothing_known)
{
    struct probe_line l = {.code = PROBE_CODE_P01};

    both(&l);
    ck_assert_str_eq(full, "R2-P01 host=- nic=- blame=process do=restart-job");
    ck_assert_str_eq(brief, "R2-P01 - process gone; restart job");
    l.host = "n18", l.nic = "", l.job = "", l.fate = 200;
    both(&l);
    ck_assert_str_eq(full, "R2-P01 host=n18 nic=- blame=process do=restart-job");
    ck_assert_str_eq(brief, "R2-P01 n18 process gone; restart job");
    l.code = (enum probe_code)99;
    both(&l);
    ck_assert_str_eq(full, "R2-000 host=n18 nic=- blame=unknown do=read-the-log");
}
END_TEST

START_TEST(parts_of_what_is_known)
{
    struct probe_line l = {.code = PROBE_CODE_F03,
                           .suspects = 1 << PROBE_BLAME_LOCAL_LINK | 1 << PROBE_BLAME_REMOTE_LINK |
                                       1 << PROBE_BLAME_PATH};

    both(&l);
    ck_assert_str_eq(value("suspects"), "our-link,its-link,path");
    l.suspects = 255;
    both(&l);
    ck_assert_str_eq(value("suspects"), "nothing,our-nic,our-link,its-nic,its-link,path,peer");
    l.suspects = 0;
    both(&l);
    ck_assert_str_eq(value("suspects"), "");
    l.code = PROBE_CODE_N01, l.suspects = 1 << PROBE_BLAME_LOCAL_NIC;
    both(&l);
    ck_assert_str_eq(value("suspects"), "");
    l.peer_nic = "mlx5_0";
    both(&l);
    ck_assert_str_eq(value("peer"), "mlx5_0");
    l.peer_host = "n1";
    both(&l);
    ck_assert_str_eq(value("peer"), "n1:mlx5_0");
    l.rail1 = 1, l.seen_of = 2, l.stall_us = 7, l.since_ms = 86399999;
    both(&l);
    ck_assert_str_eq(value("rail"), "0");
    ck_assert_str_eq(value("seen_by"), "0/2");
    ck_assert_str_eq(value("stall"), "0.007ms");
    ck_assert_str_eq(value("since"), "23:59:59.999Z");
    ck_assert_str_eq(value("revises"), "");
    l.revises = PROBE_CODE_F03, l.revises_ms = 50531204;
    both(&l);
    ck_assert_str_eq(value("revises"), "R2-F03@14:02:11.204Z");
}
END_TEST

/* A peer's name can neither end the line, nor forge a key, nor confuse a terminal. */
START_TEST(odd_names)
{
    struct probe_line l = {.code = PROBE_CODE_L01,
                           .host = "a b\nc\td=e\"f\\g%h\x1b[1m\x7f\xc3\xa9",
                           .nic = "x do=nothing"};
    char all[256], name[11];

    both(&l);
    ck_assert_str_eq(value("host"), "a%20b%0Ac%09d%3De%22f%5Cg%25h%1B[1m%7F%C3%A9");
    ck_assert_str_eq(value("nic"), "x%20do%3Dnothing");
    ck_assert_str_eq(value("do"), "check-link");
    for (unsigned from = 1; from < 256; from += 10) {
        memset(name, 0, sizeof(name));
        for (unsigned c = 0; c < 10 && from + c < 256; c++) {
            name[c] = (char)(from + c);
        }
        l.host = l.nic = l.job = l.to = l.peer_host = l.how = l.pci = name;
        both(&l);
        for (const char *p = full; *p != '\0'; p++) {
            ck_assert_msg(*p >= ' ' && *p < 0x7f, "byte %d in the line", *p);
        }
        for (const char *p = brief; *p != '\0'; p++) {
            ck_assert_msg(*p >= ' ' && *p < 0x7f, "byte %d in the short line", *p);
        }
    }
    memset(all, ' ', sizeof(all) - 1);
    all[255] = '\0';
    l = (struct probe_line){.code = PROBE_CODE_L01, .host = all};
    both(&l);
    ck_assert_uint_le(strlen(value("host")), 48);
    ck_assert_str_eq(value("do"), "check-link");
}
END_TEST

/* Values at, below and above their limits: cut with a mark, never longer, an escape never in parts.
 */
START_TEST(values_are_cut)
{
    static const char *const makes[] = {"a", " ", "ab ", "\xff-c"};
    struct probe_line l = {.code = PROBE_CODE_N02};
    char text[400];

    for (unsigned m = 0; m < sizeof(makes) / sizeof(makes[0]); m++) {
        for (unsigned n = 1; n < 120; n++) {
            const char *v;

            text[0] = '\0';
            for (unsigned i = 0; i < n; i++) {
                strcat(text, makes[m]);
            }
            l.host = text;
            both(&l);
            v = value("host");
            ck_assert_uint_le(strlen(v), 48);
            for (const char *p = strchr(v, '%'); p != NULL; p = strchr(p + 1, '%')) {
                ck_assert_uint_eq(strspn(p + 1, "0123456789ABCDEF") >= 2, 1);
            }
            if (m == 0) {
                ck_assert_uint_eq(strlen(v), n < 48 ? n : 48);
                ck_assert_int_eq(v[strlen(v) - 1] == '~', n > 48);
            }
        }
    }
    /* Of a value without an end, no more is read than its limit needs. */
    l.host = "n", l.how = full; /* any memory of at least 161 bytes */
    memset(text, 'x', sizeof(text));
    text[170] = '\0';
    l.how = text;
    both(&l);
    ck_assert_uint_eq(strlen(value("how")), 160);
}
END_TEST

/* Everything at its longest: all fields are there, in every code. */
START_TEST(longest)
{
    static const char *const keys[] = {"host",     "nic", "peer",    "rail",  "pci",    "blame",
                                       "since",    "how", "seen_by", "stall", "moved",  "to",
                                       "capacity", "job", "fate",    "do",    "revises"};
    char text[300];
    struct probe_line l = {.host = text,
                           .nic = text,
                           .pci = text,
                           .peer_host = text,
                           .peer_nic = text,
                           .how = text,
                           .to = text,
                           .job = text,
                           .rail1 = UINT32_MAX,
                           .suspects = 255,
                           .fate = PROBE_FATE_CONTINUES,
                           .since_ms = UINT64_MAX,
                           .revises = PROBE_CODE_F03,
                           .revises_ms = UINT64_MAX,
                           .seen_by = UINT32_MAX,
                           .seen_of = UINT32_MAX,
                           .stall_us = UINT64_MAX,
                           .moved = UINT32_MAX,
                           .capacity = UINT32_MAX,
                           .capacity_of = UINT32_MAX};
    size_t most = 0;

    l.elsewhere = (uint8_t)_i;
    memset(text, 'm', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (enum probe_code c = PROBE_CODE_NONE; c < PROBE_CODES; c++) {
        const struct probe_code_info *i = probe_code_info(c);

        l.code = c;
        both(&l);
        most = strlen(full) > most ? strlen(full) : most;
        for (unsigned k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            ck_assert_msg(*value(keys[k]) != '\0', "%s: no %s in %s", i->name, keys[k], full);
        }
        ck_assert_int_eq(strncmp(full, i->name, strlen(i->name)), 0);
        ck_assert_str_eq(value("blame"), i->blame);
        ck_assert_str_eq(value("do"), i->action);
        ck_assert_int_eq(strncmp(brief, i->name, strlen(i->name)), 0);
        ck_assert_ptr_nonnull(strstr(brief, i->text));
        ck_assert_uint_ge(strlen(brief), 6 + 1 + 22 + 1 + strlen(i->text) + 2 + strlen(i->action));
        ck_assert_str_eq(brief + strlen(brief) - 3,
                         full + strlen(full) - 3); /* the end of what to do */
    }
    printf("longest line: %zu bytes\n", most);
    ck_assert_uint_gt(most, 700);
}
END_TEST

START_TEST(table)
{
    static const char *const recommend[] = {"NONE",       "RESTART_APP",     "COMPONENT_RESET",
                                            "RESTART_BM", "CONTACT_SUPPORT", "REPLACE_VM"};

    for (enum probe_code c = PROBE_CODE_NONE; c < PROBE_CODES; c++) {
        const struct probe_code_info *i = probe_code_info(c);
        int found = 0;

        ck_assert_uint_eq(strlen(i->name), 6);
        ck_assert_uint_le(strlen(i->text), 26);
        ck_assert_uint_le(strlen(i->action), 21);
        ck_assert_ptr_null(strpbrk(i->blame, " =\""));
        ck_assert_ptr_null(strpbrk(i->action, " =\""));
        ck_assert_int_lt(i->severity, PROBE_SEVERITIES);
        ck_assert_uint_gt(strlen(probe_severity_name((enum probe_severity)i->severity)), 0);
        for (unsigned k = 0; k < sizeof(recommend) / sizeof(recommend[0]); k++) {
            found |= strcmp(i->recommend, recommend[k]) == 0;
        }
        ck_assert_msg(found, "%s: %s is no action that is known", i->name, i->recommend);
        for (enum probe_code d = PROBE_CODE_NONE; d < c; d++) {
            ck_assert_str_ne(i->name, probe_code_info(d)->name);
            ck_assert_str_ne(i->text, probe_code_info(d)->text);
        }
    }
    ck_assert_str_eq(probe_severity_name((enum probe_severity)77), "info");
}
END_TEST

START_TEST(code_of_a_verdict)
{
    static const struct {
        struct probe_facts f;
        const char *code;
    } row[] = {
        {{.direct = PROBE_TIMEOUT, .local = {.port = PROBE_PORT_GONE}}, "R2-N01"},
        {{.direct = PROBE_TIMEOUT, .peer = PROBE_OK, .remote = {.port = PROBE_PORT_GONE}},
         "R2-N01"},
        {{.direct = PROBE_TIMEOUT, .local = {PROBE_PORT_UP, PROBE_TIMEOUT, 0, 0}}, "R2-N02"},
        {{.direct = PROBE_TIMEOUT,
          .peer = PROBE_OK,
          .local = {.port = PROBE_PORT_UP},
          .remote = {PROBE_PORT_UP, PROBE_ERROR, 0, 0}},
         "R2-N02"},
        {{.direct = PROBE_TIMEOUT, .local = {.port = PROBE_PORT_DOWN}}, "R2-L01"},
        {{.direct = PROBE_TIMEOUT, .peer = PROBE_OK, .remote = {.port = PROBE_PORT_DOWN}},
         "R2-L01"},
        {{PROBE_TIMEOUT,
          PROBE_OK,
          PROBE_OK,
          2,
          {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2},
          {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}},
         "R2-L02"},
        {{PROBE_TIMEOUT,
          PROBE_OK,
          PROBE_OK,
          2,
          {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2},
          {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2}},
         "R2-L02"},
        {{PROBE_TIMEOUT,
          PROBE_OK,
          PROBE_OK,
          2,
          {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2},
          {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}},
         "R2-F01"},
        {{PROBE_TIMEOUT,
          PROBE_OK,
          PROBE_OK,
          2,
          {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2},
          {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2}},
         "R2-F02"},
        {{0}, "R2-F03"},
        {{.direct = PROBE_TIMEOUT, .peer = PROBE_ERROR}, "R2-P01"},
        {{.direct = PROBE_OK, .peer = PROBE_TIMEOUT, .others = PROBE_OK}, "R2-P02"},
        {{PROBE_TIMEOUT,
          PROBE_TIMEOUT,
          PROBE_TIMEOUT,
          3,
          {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2},
          {0}},
         "R2-P03"},
        {{.direct = PROBE_OK, .peer = PROBE_OK}, "R2-G01"},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct probe_verdict v = probe_verdict(&row[i].f);

        ck_assert_msg(strcmp(probe_code_info(probe_code_of(&row[i].f, &v))->name, row[i].code) == 0,
                      "row %u: %s", i, probe_code_info(probe_code_of(&row[i].f, &v))->name);
    }
    for (unsigned b = 0; b <= PROBE_BLAMES; b++) {
        enum probe_code c = probe_code_of(&row[10].f, &(struct probe_verdict){.blame = (uint8_t)b});

        ck_assert(c > PROBE_CODE_NONE && c < PROBE_CODE_O01);
    }
}
END_TEST

/* What each point has to find where the component is ours, and its mirror image; what a verdict
 * says nothing of is not counted. */
START_TEST(vantage_points)
{
    static const struct {
        enum probe_code code;
        enum probe_blame near, far;
        const char *agree; /* per point: o ok, t no answer, - not counted */
    } row[] = {
        {PROBE_CODE_N02, PROBE_BLAME_LOCAL_NIC, PROBE_BLAME_REMOTE_NIC, "tttooo"},
        {PROBE_CODE_N01, PROBE_BLAME_LOCAL_NIC, PROBE_BLAME_REMOTE_NIC, "tttooo"},
        {PROBE_CODE_L01, PROBE_BLAME_LOCAL_LINK, PROBE_BLAME_REMOTE_LINK, "totooo"},
        {PROBE_CODE_L02, PROBE_BLAME_LOCAL_LINK, PROBE_BLAME_REMOTE_LINK, "totooo"},
        {PROBE_CODE_F01, PROBE_BLAME_PATH, PROBE_BLAME_PATH, "tooooo"},
        {PROBE_CODE_F02, PROBE_BLAME_PATH, PROBE_BLAME_PATH, "tototo"},
        {PROBE_CODE_P02, PROBE_BLAME_PEER, PROBE_BLAME_PEER, "ooo--o"},
        {PROBE_CODE_P03, PROBE_BLAME_PEER, PROBE_BLAME_PEER, "too--t"},
        {PROBE_CODE_F03, PROBE_BLAME_UNKNOWN, PROBE_BLAME_UNKNOWN, "------"},
        {PROBE_CODE_G01, PROBE_BLAME_NONE, PROBE_BLAME_NONE, "------"},
        {PROBE_CODES, PROBE_BLAME_NONE, PROBE_BLAME_NONE, "------"},
    };
    static const enum probe_point mirror[PROBE_POINTS] = {
        PROBE_POINT_PAIR,      PROBE_POINT_FAR_LOOP, PROBE_POINT_FAR_AUX,
        PROBE_POINT_NEAR_LOOP, PROBE_POINT_NEAR_AUX, PROBE_POINT_OTHERS};

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        for (enum probe_point p = PROBE_POINT_PAIR; p < PROBE_POINTS; p++) {
            int swap = row[i].near != row[i].far;
            unsigned of = row[i].agree[p] != '-', ok = row[i].agree[p] == 'o';

            for (int o = PROBE_NA; o <= PROBE_OUTCOMES; o++) {
                struct probe_seen near = {3, 4}, far = {3, 4};
                unsigned asked = o != PROBE_NA && o != PROBE_OUTCOMES && of;

                probe_seen_add(&near, row[i].code, row[i].near, p, (uint8_t)o);
                probe_seen_add(&far, row[i].code, row[i].far, swap ? mirror[p] : p, (uint8_t)o);
                ck_assert_msg(near.of == 4 + asked &&
                                  near.by == 3u + (asked && (o == PROBE_OK) == (int)ok),
                              "row %u, point %d, outcome %d", i, p, o);
                ck_assert_uint_eq(far.of, near.of);
                ck_assert_uint_eq(far.by, near.by);
            }
        }
    }
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, everything_known);
    tcase_add_test(t, a_nic_of_another_host);
    tcase_add_test(t, nothing_known);
    tcase_add_test(t, parts_of_what_is_known);
    tcase_add_test(t, odd_names);
    tcase_add_test(t, values_are_cut);
    tcase_add_loop_test(t, longest, 0, 2);
    tcase_add_test(t, vantage_points);
    tcase_add_test(t, table);
    tcase_add_test(t, code_of_a_verdict);
}

int main(void)
{
    return suite_run("probe_line", 60, NULL, NULL, tests_add);
}
