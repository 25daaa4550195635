#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/ib_transport/verbs/ib_device.h"
#include "plugin/base/r2_json.h"
#include "plugin/base/r2_rundir.h"
#include "tools/r2_ctl/ctl.h"

static const char *state_name(uint8_t state)
{
    static const char *const names[] = {[IB_NIC_UP] = "up",
                                        [IB_NIC_DOWN] = "down",
                                        [IB_NIC_FATAL] = "fatal",
                                        [IB_NIC_GONE] = "gone"};

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static void row_text(void *arg, const struct ctl_row *r)
{
    int *rows = arg;
    char who[64];

    if ((*rows)++ == 0) {
        printf("%-16s %-24s %8s %-10s %-6s %8s %11s %8s %6s %7s\n", "host", "process", "pid", "NIC",
               "state", "drained", "connections", "only NIC", "lost", "waiting");
    }
    snprintf(who, sizeof(who), "%s", r->who.command);
    printf("%-16s %-24s %8ld %-10s %-6s %8s %11u %8u %6" PRIu64 " %7u\n", r->who.host, who,
           (long)r->who.pid, r->nic.name, state_name(r->nic.state), r->nic.drained ? "yes" : "no",
           r->nic.usable, r->nic.last, r->nic.lost, r->nic.waits);
}

static void row_json(void *arg, const struct ctl_row *r)
{
    struct r2_json *j = arg;

    r2_json_open(j, NULL, '{');
    r2_json_text(j, "host", r->who.host);
    r2_json_text(j, "command", r->who.command);
    r2_json_int(j, "pid", (int64_t)r->who.pid);
    r2_json_int(j, "uid", (int64_t)r->uid);
    r2_json_real(j, "since_s", (double)r->who.since / 1e9);
    r2_json_text(j, "nic", r->nic.name);
    r2_json_int(j, "port", r->nic.port);
    r2_json_text(j, "state", state_name(r->nic.state));
    r2_json_int(j, "drained", r->nic.drained != 0);
    r2_json_int(j, "connections", r->nic.usable);
    r2_json_int(j, "only_nic", r->nic.last);
    r2_json_int(j, "lives_lost", (int64_t)r->nic.lost);
    r2_json_int(j, "waiting", r->nic.waits);
    r2_json_close(j, '}');
}

struct drains {
    char list[R2_RUNDIR_TEXT_MAX + 8]; /* names, without the '=' */
    char text[R2_RUNDIR_TEXT_MAX + 1];
    size_t len;
};

/* Nothing where nothing is drained. -1: the file is not to be used, which was said. */
static int drained_names(const struct ctl *c, uid_t uid, struct drains *d)
{
    char path[512], why[400], *list = d->list;

    list[0] = '\0';
    d->len = 0;
    if (r2_rundir_drain_path(c->dir, uid, path, sizeof(path)) != 0) {
        return 0;
    }
    if (r2_rundir_drain_text(path, uid, d->text, &d->len, list, sizeof(d->list), why,
                             sizeof(why)) != 0) {
        ctl_fail("%s: it drains nothing", why);
        list[0] = '\0';
        return -1;
    }
    if (list[0] == '=') {
        memmove(list, list + 1, strlen(list));
    }
    return 0;
}

/* Calls @say for each name, with what is said beside it. */
static void drains_walk(const struct drains *d, const char *by, void *arg,
                        void (*say)(void *arg, const char *by, const char *name, const char *note))
{
    char list[sizeof(d->list)], note[R2_RUNDIR_NOTE], *save = NULL;

    memcpy(list, d->list, sizeof(list));
    for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        r2_rundir_drain_note(d->text, d->len, name, note, sizeof(note));
        say(arg, by, name, note);
    }
}

static void drain_text(void *arg, const char *by, const char *name, const char *note)
{
    (void)arg;
    if (note[0]) {
        printf("%s is drained by %s, %s\n", name, by, note);
    }
}

static void drain_json(void *arg, const char *by, const char *name, const char *note)
{
    struct r2_json *j = arg;

    r2_json_open(j, NULL, '{');
    r2_json_text(j, "nic", name);
    r2_json_text(j, "by", by);
    r2_json_text(j, "note", note);
    r2_json_close(j, '}');
}

#define COMMANDS_ROOM (R2_RUNDIR_NAMES * 100) /* of the commands of one user as a text */

/* Of the commands of a file how many there are; 0 and *rc 1 where it is not to be used, which is
 * said. */
static int commands_get(const struct ctl *c, uid_t uid, enum r2_rundir_kind kind,
                        struct r2_rundir_command word[R2_RUNDIR_NAMES], int *rc)
{
    char path[512], text[R2_RUNDIR_TEXT_MAX + 1], why[400];
    size_t len;
    int n = 0;

    if (r2_rundir_commands_path(c->dir, uid, kind, path, sizeof(path)) != 0) {
        return 0;
    }
    if (r2_rundir_text(path, uid, text, &len, why, sizeof(why)) != 0 ||
        (n = r2_rundir_commands_parse(text, len, kind, word, why, sizeof(why))) < 0) {
        ctl_fail("%s: %s: no command is taken from it", path, why);
        *rc = 1;
        return 0;
    }
    return n;
}

/* Rehearsals of this user that go on, "NIC for SECONDS more" each. */
static void rehearsals_get(const struct ctl *c, uid_t uid, char *out, size_t room, int *rc)
{
    struct r2_rundir_command word[R2_RUNDIR_NAMES];
    int n = commands_get(c, uid, R2_RUNDIR_REHEARSE, word, rc);
    struct timespec ts;
    size_t used = 0;
    uint64_t now;

    out[0] = '\0';
    clock_gettime(CLOCK_REALTIME, &ts);
    now = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
    for (int i = 0; i < n && used < room; i++) {
        uint64_t until = word[i].number + 1000 * (uint64_t)word[i].ms;

        if (until > now) {
            used += (size_t)snprintf(out + used, room - used, "%s%s for %.1f s more",
                                     used ? ", " : "", word[i].name, (double)(until - now) / 1e6);
        }
    }
}

/* The last commands of this user, "NIC at time" each. */
static void failbacks_get(const struct ctl *c, uid_t uid, char *out, size_t room, int *rc)
{
    struct r2_rundir_command word[R2_RUNDIR_NAMES];
    int n = commands_get(c, uid, R2_RUNDIR_FAILBACK, word, rc);
    size_t used = 0;
    char when[32];
    struct tm tm;

    out[0] = '\0';
    for (int i = 0; i < n && used < room; i++) {
        time_t at = (time_t)(word[i].number / 1000000);

        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S%z", localtime_r(&at, &tm));
        used += (size_t)snprintf(out + used, room - used, "%s%s at %s", used ? ", " : "",
                                 word[i].name[0] == '*' ? "all" : word[i].name, when);
    }
}

int ctl_status(const struct ctl *c)
{
    struct drains root, own = {.len = 0};
    char root_words[COMMANDS_ROOM], own_words[COMMANDS_ROOM] = "";
    char root_tests[COMMANDS_ROOM], own_tests[COMMANDS_ROOM] = "";
    int rc = drained_names(c, 0, &root), rows = 0;
    struct r2_json j;

    failbacks_get(c, 0, root_words, sizeof(root_words), &rc);
    rehearsals_get(c, 0, root_tests, sizeof(root_tests), &rc);
    if (geteuid() != 0) {
        rc |= drained_names(c, geteuid(), &own);
        failbacks_get(c, geteuid(), own_words, sizeof(own_words), &rc);
        rehearsals_get(c, geteuid(), own_tests, sizeof(own_tests), &rc);
    }
    if (c->json) {
        r2_json_begin_file(&j, stdout);
        r2_json_open(&j, NULL, '{');
        r2_json_text(&j, "schema", "r2.ctl/1");
        r2_json_text(&j, "run_dir", c->dir);
        r2_json_text(&j, "drained_by_root", root.list);
        r2_json_text(&j, "drained_by_user", own.list);
        r2_json_text(&j, "failback_by_root", root_words);
        r2_json_text(&j, "failback_by_user", own_words);
        r2_json_text(&j, "rehearsed_by_root", root_tests);
        r2_json_text(&j, "rehearsed_by_user", own_tests);
        r2_json_open(&j, "drains", '[');
        drains_walk(&root, "root", &j, drain_json);
        drains_walk(&own, "user", &j, drain_json);
        r2_json_close(&j, ']');
        r2_json_open(&j, "processes", '[');
        ctl_rows_walk(c, row_json, &j);
        r2_json_close(&j, ']');
        r2_json_close(&j, '}');
        putchar('\n');
        return rc ? 1 : 0;
    }
    printf("run directory %s; drained: %s%s%s\n", c->dir,
           root.list[0] || own.list[0] ? root.list : "nothing",
           root.list[0] && own.list[0] ? "," : "", own.list);
    drains_walk(&root, "root", NULL, drain_text);
    drains_walk(&own, "the user", NULL, drain_text);
    if (root_words[0] || own_words[0]) {
        printf("may return what failed before: %s%s%s\n", root_words,
               root_words[0] && own_words[0] ? ", " : "", own_words);
    }
    if (root_tests[0] || own_tests[0]) {
        printf("fails for a rehearsal: %s%s%s\n", root_tests,
               root_tests[0] && own_tests[0] ? ", " : "", own_tests);
    }
    ctl_rows_walk(c, row_text, &rows);
    if (rows == 0) {
        puts("no running job here has a place in the host registry");
    }
    return rc ? 1 : 0;
}
