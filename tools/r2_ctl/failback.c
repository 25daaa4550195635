#include <stdio.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

#include "tools/r2_ctl/ctl.h"

struct command {
    const struct ctl *c;
    int n;
    char *const *names;
    enum r2_rundir_kind kind;
};

/* The time in us, and more than any number so far: a clock that was set back must not repeat one.
 */
static uint64_t number_next(const struct r2_rundir_command *word, int n)
{
    struct timespec now;
    uint64_t number;

    clock_gettime(CLOCK_REALTIME, &now);
    number = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    for (int i = 0; i < n; i++) {
        number = number > word[i].number ? number : word[i].number + 1;
    }
    return number;
}

/* Rehearsals that go on by now, but of the names that are commanded anew: the others say no more.
 */
static int running_keep(const struct command *cmd, const struct r2_rundir_command *word, int n,
                        uint64_t now, char *text)
{
    int used = 0;

    for (int i = 0; i < n; i++) {
        bool anew = word[i].number + 1000 * (uint64_t)word[i].ms <= now;

        for (int k = 0; k < cmd->n; k++) {
            anew |= strcmp(word[i].name, cmd->names[k]) == 0;
        }
        if (!anew) {
            used += snprintf(text + used, CTL_TEXT_ROOM - (size_t)used, "%s %llu %u\n",
                             word[i].name, (unsigned long long)word[i].number, word[i].ms);
        }
    }
    return used;
}

static int command_edit(void *arg, const char *path, const char *old, size_t len, char *text)
{
    static char *const everything[] = {"*"};
    const struct command *cmd = arg;
    struct r2_rundir_command word[R2_RUNDIR_NAMES];
    char why[128], value[40];
    int known = r2_rundir_commands_parse(old, len, cmd->kind, word, why, sizeof(why)), used;
    uint64_t number;

    if (known < 0) {
        ctl_fail("%s: %s. Mend or remove it first", path, why);
        return -1;
    }
    number = number_next(word, known);
    if (cmd->kind == R2_RUNDIR_REHEARSE) {
        snprintf(value, sizeof(value), " %llu %d", (unsigned long long)number,
                 cmd->c->for_ms >= 0 ? cmd->c->for_ms : CTL_REHEARSE_MS);
        used = running_keep(cmd, word, known, number, text);
    } else {
        snprintf(value, sizeof(value), " %llu", (unsigned long long)number);
        used = (int)ctl_lines_keep(old, len, cmd->n, cmd->names,
                                   text); /* all: the words about single NICs say no more */
    }
    used = ctl_lines_add(cmd->c, text, (size_t)used, CTL_TEXT_ROOM, cmd->n ? cmd->n : 1,
                         cmd->n ? cmd->names : everything, value);
    if (used < 0 || used > R2_RUNDIR_TEXT_MAX ||
        r2_rundir_commands_parse(text, (size_t)used, cmd->kind, word, why, sizeof(why)) < 0) {
        ctl_fail("%s would have more than %d names or %d bytes%s", path, R2_RUNDIR_NAMES,
                 R2_RUNDIR_TEXT_MAX,
                 cmd->kind == R2_RUNDIR_FAILBACK ? "; failback all clears it" : "");
        return -1;
    }
    return used;
}

static int command_give(const struct ctl *c, int n, char *const *names, enum r2_rundir_kind kind)
{
    struct command cmd = {.c = c, .n = n, .names = names, .kind = kind};
    char path[512];

    if (r2_rundir_commands_path(c->dir, geteuid(), kind, path, sizeof(path)) != 0) {
        return ctl_fail("%s: the name is too long", c->dir);
    }
    return ctl_file_edit(c, path, command_edit, &cmd);
}

int ctl_failback(const struct ctl *c, int n, char *const *names)
{
    if (ctl_names_check(n, names) != 0 || ctl_names_known(c, n, names) != 0) {
        return 1;
    }
    return command_give(c, n, names, R2_RUNDIR_FAILBACK);
}

int ctl_rehearse(const struct ctl *c, int n, char *const *names)
{
    char near[100];

    if (ctl_names_check(n, names) != 0) {
        return 1;
    }
    for (int i = 0; i < n; i++) {
        if (!ctl_name_known(c, names[i])) {
            return ctl_fail("no running job here has a NIC %s: there is nothing to rehearse%s",
                            names[i], ctl_nic_near(c, names[i], near, sizeof(near)));
        }
    }
    return command_give(c, n, names, R2_RUNDIR_REHEARSE);
}
