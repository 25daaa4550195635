/* probe_verdict(): a list of situations by name, what confidence counts, and the names of what is
 * blamed. */
#include "tests/unit/suite.h"
#include "tests/unit/verdict_world.h"

#define E(...)                                                                                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define NA  PROBE_NA
#define OK  PROBE_OK
#define ERR PROBE_ERROR
#define TMO PROBE_TIMEOUT
#define UP  PROBE_PORT_UP
#define DN  PROBE_PORT_DOWN
#define GN  PROBE_PORT_GONE

/* clang-format off */
static const struct {
    const char *what;
    struct probe_facts f; /* direct, peer, others, of how many, {port, loop, aux, of how many} of our end, of its */
    uint8_t blame, several;
    uint32_t suspects;    /* where unknown */
} list[] = {
    {"congestion: everything answers", {OK, OK, OK, 2, E(UP, OK, OK, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_NONE, 0, 0},
    {"a queue pair alone, two hosts with one NIC each", {OK, OK, NA, 0, E(UP, OK, NA, 0), E(UP, OK, NA, 0)}, PROBE_BLAME_NONE, 0, 0},
    {"the loop's queue pair alone", {OK, OK, OK, 2, E(UP, TMO, OK, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_NONE, 0, 0},
    {"the same, without loops", {OK, OK, NA, 0, E(UP, NA, NA, 0), E(UP, NA, NA, 0)}, PROBE_BLAME_NONE, 0, 0},
    {"the pair answers while third hosts are dead", {OK, OK, OK, 2, E(UP, OK, TMO, 4), E(UP, OK, TMO, 4)}, PROBE_BLAME_NONE, 0, 0},
    {"our device is fatal: every call fails", {ERR, OK, OK, 2, E(GN, ERR, ERR, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_LOCAL_NIC, 0, 0},
    {"our device was unplugged on Soft-RoCE: calls go on", {TMO, OK, OK, 2, E(GN, OK, TMO, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_LOCAL_NIC, 0, 0},
    {"its device is gone, it says", {TMO, OK, OK, 2, E(UP, OK, OK, 2), E(GN, ERR, ERR, 2)}, PROBE_BLAME_REMOTE_NIC, 0, 0},
    {"our driver hangs", {TMO, OK, OK, 2, E(UP, TMO, TMO, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_LOCAL_NIC, 0, 0},
    {"our driver hangs, no auxiliary port", {TMO, OK, NA, 0, E(UP, TMO, NA, 0), E(UP, OK, NA, 0)}, PROBE_BLAME_LOCAL_NIC, 0, 0},
    {"its driver hangs", {TMO, OK, OK, 2, E(UP, OK, OK, 2), E(UP, TMO, TMO, 2)}, PROBE_BLAME_REMOTE_NIC, 0, 0},
    {"its driver hangs, its NIC acknowledges", {OK, OK, OK, 2, E(UP, OK, OK, 2), E(UP, TMO, TMO, 2)}, PROBE_BLAME_REMOTE_NIC, 0, 0},
    {"the same without auxiliary ports: perhaps its loop alone", {OK, OK, OK, 2, E(UP, OK, NA, 0), E(UP, TMO, NA, 0)},
     PROBE_BLAME_UNKNOWN, 0, B_(NONE) | B_(REMOTE_NIC)},
    {"our port is down", {TMO, OK, OK, 2, E(DN, OK, TMO, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_LOCAL_LINK, 0, 0},
    {"our interface is down on Soft-RoCE: the loop fails, too", {ERR, OK, OK, 2, E(DN, ERR, ERR, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_LOCAL_LINK, 0, 0},
    {"our port is down and the channel was on it", {TMO, TMO, OK, 2, E(DN, OK, NA, 0), E(0)}, PROBE_BLAME_LOCAL_LINK, 0, 0},
    {"our port is down, nothing else is known", {NA, NA, NA, 0, E(DN, NA, NA, 0), E(0)}, PROBE_BLAME_LOCAL_LINK, 0, 0},
    {"its port is down, it says", {TMO, OK, OK, 2, E(UP, OK, OK, 2), E(DN, OK, TMO, 2)}, PROBE_BLAME_REMOTE_LINK, 0, 0},
    {"our cable is silent in one direction", {TMO, OK, OK, 2, E(UP, OK, TMO, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_LOCAL_LINK, 0, 0},
    {"its cable is silent", {TMO, OK, OK, 2, E(UP, OK, OK, 2), E(UP, OK, TMO, 2)}, PROBE_BLAME_REMOTE_LINK, 0, 0},
    {"a silent cable of two hosts: nobody else to ask", {TMO, OK, OK, 2, E(UP, OK, NA, 0), E(UP, OK, NA, 0)},
     PROBE_BLAME_UNKNOWN, 0, B_(LOCAL_LINK) | B_(REMOTE_LINK) | B_(PATH)},
    {"one auxiliary port that is silent says nothing", {TMO, OK, OK, 2, E(UP, OK, TMO, 1), E(UP, OK, OK, 1)},
     PROBE_BLAME_UNKNOWN, 0, B_(LOCAL_LINK) | B_(PATH)},
    {"our end alone has auxiliary ports, they answer", {TMO, OK, OK, 2, E(UP, OK, OK, 1), E(UP, OK, NA, 0)},
     PROBE_BLAME_UNKNOWN, 0, B_(REMOTE_LINK) | B_(PATH)},
    {"no loop, nobody answers us", {TMO, OK, OK, 2, E(UP, NA, TMO, 2), E(UP, OK, OK, 2)},
     PROBE_BLAME_UNKNOWN, 0, B_(LOCAL_NIC) | B_(LOCAL_LINK)},
    {"the path between these two", {TMO, OK, OK, 2, E(UP, OK, OK, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_PATH, 0, 0},
    {"the plane: nobody on it answers either end", {TMO, OK, OK, 2, E(UP, OK, TMO, 2), E(UP, OK, TMO, 2)}, PROBE_BLAME_PATH, 0, 0},
    {"all planes", {TMO, OK, TMO, 3, E(UP, OK, TMO, 4), E(UP, OK, TMO, 4)}, PROBE_BLAME_PATH, 0, 0},
    {"both ports are down: the switch, a cable between them, or both", {TMO, OK, OK, 2, E(DN, OK, TMO, 2), E(DN, OK, TMO, 2)},
     PROBE_BLAME_UNKNOWN, 0, B_(LOCAL_LINK) | B_(REMOTE_LINK) | B_(PATH)},
    {"its process was killed: its host refuses", {TMO, ERR, TMO, 3, E(UP, OK, OK, 2), E(0)}, PROBE_BLAME_PEER, 0, 0},
    {"killed, and the auxiliary ports were its own", {TMO, ERR, TMO, 3, E(UP, OK, TMO, 2), E(0)}, PROBE_BLAME_PEER, 0, 0},
    {"its process is stopped: its NICs answer", {OK, TMO, OK, 2, E(UP, OK, OK, 2), E(0)}, PROBE_BLAME_PEER, 0, 0},
    {"its host is dead: no NIC of it answers", {TMO, TMO, TMO, 3, E(UP, OK, OK, 2), E(0)}, PROBE_BLAME_PEER, 0, 0},
    {"its host is dead, one NIC each: as its NIC, its cable, the path with the channel on them", {TMO, TMO, NA, 0, E(UP, OK, OK, 2), E(0)},
     PROBE_BLAME_UNKNOWN, 0, B_(REMOTE_NIC) | B_(REMOTE_LINK) | B_(PATH) | B_(PEER)},
    {"everything is silent: its host, or the whole fabric", {TMO, TMO, TMO, 3, E(UP, OK, TMO, 4), E(0)},
     PROBE_BLAME_UNKNOWN, 0, B_(PATH) | B_(PEER)},
    {"both drivers hang", {TMO, OK, OK, 2, E(UP, TMO, TMO, 2), E(UP, TMO, TMO, 2)}, PROBE_BLAME_UNKNOWN, 1, B_(LOCAL_NIC) | B_(REMOTE_NIC)},
    {"our device is gone and its cable silent", {ERR, OK, OK, 2, E(GN, ERR, ERR, 2), E(UP, OK, TMO, 2)}, PROBE_BLAME_LOCAL_NIC, 1, 0},
    {"our port is down and its process gone", {TMO, ERR, TMO, 2, E(DN, OK, NA, 0), E(0)}, PROBE_BLAME_UNKNOWN, 1, B_(LOCAL_LINK) | B_(PEER)},
    {"our cable and every other pair are silent", {TMO, OK, TMO, 2, E(UP, OK, TMO, 2), E(UP, OK, OK, 2)}, PROBE_BLAME_UNKNOWN, 1, 0},
    {"nothing is known", {0}, PROBE_BLAME_UNKNOWN, 0,
     B_(NONE) | B_(LOCAL_NIC) | B_(LOCAL_LINK) | B_(REMOTE_NIC) | B_(REMOTE_LINK) | B_(PATH) | B_(PEER)},
};
/* clang-format on */

START_TEST(named_situations)
{
    for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct probe_verdict v = probe_verdict(&list[i].f);
        uint32_t suspects =
            list[i].blame == PROBE_BLAME_UNKNOWN ? list[i].suspects : BIT(list[i].blame);

        ck_assert_msg(v.blame == list[i].blame && v.several == list[i].several &&
                          v.suspects == suspects,
                      "%s: %s", list[i].what, show(&list[i].f));
    }
}
END_TEST

/* (fit + 1) / (fit + misfit + 2) of the facts that are known. */
START_TEST(confidence_counts_facts)
{
    struct probe_facts f = {.local = {.port = DN}};

    ck_assert_uint_eq(probe_verdict(&f).confidence, 66); /* 2 / 3 */
    f.direct = TMO;
    ck_assert_uint_eq(probe_verdict(&f).confidence, 75);
    f.peer = OK, f.others = OK, f.local.loop = OK, f.remote = (struct probe_end){UP, OK, OK, 2};
    ck_assert_uint_eq(probe_verdict(&f).confidence, 90); /* 9 / 10 */
    f.local.aux = OK;                                    /* cannot be: known, and against it */
    ck_assert_uint_eq(probe_verdict(&f).several, 1);
    ck_assert_uint_eq(probe_verdict(&f).confidence, 81); /* 9 / 11 */
    f.remote.aux = TMO;
    ck_assert_uint_eq(probe_verdict(&f).confidence, 72); /* 8 / 11 */
}
END_TEST

START_TEST(names)
{
    for (unsigned b = 0; b < PROBE_BLAMES; b++) {
        const char *n = probe_blame_name((enum probe_blame)b);

        ck_assert_ptr_nonnull(n);
        for (unsigned c = 0; c < b; c++) {
            ck_assert_str_ne(n, probe_blame_name((enum probe_blame)c));
        }
        ck_assert_uint_eq(probe_blame_mirror(probe_blame_mirror((enum probe_blame)b)), b);
    }
    ck_assert_str_eq(probe_blame_name((enum probe_blame)99), "unknown");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, named_situations);
    tcase_add_test(t, confidence_counts_facts);
    tcase_add_test(t, names);
}

int main(void)
{
    return suite_run("probe_verdict_named", 60, NULL, NULL, add);
}
