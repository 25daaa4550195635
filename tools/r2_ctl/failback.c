#include <stdio.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

#include "tools/r2_ctl/ctl.h"

struct command {
    const struct ctl *c;
    int n;
    char *const *names;
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

static int failback_edit(void *arg, const char *path, const char *old, size_t len, char *text)
{
    static char *const everything[] = {"*"};
    const struct command *cmd = arg;
    struct r2_rundir_command word[R2_RUNDIR_NAMES];
    char why[128], value[24];
    int known = r2_rundir_failback_parse(old, len, word, why, sizeof(why)), used;

    if (known < 0) {
        ctl_fail("%s: %s. Mend or remove it first", path, why);
        return -1;
    }
    snprintf(value, sizeof(value), " %llu", (unsigned long long)number_next(word, known));
    used = (int)ctl_lines_keep(old, len, cmd->n, cmd->names,
                               text); /* all: the words about single NICs say no more */
    used = ctl_lines_add(cmd->c, text, (size_t)used, CTL_TEXT_ROOM, cmd->n ? cmd->n : 1,
                         cmd->n ? cmd->names : everything, value);
    if (used < 0 || used > R2_RUNDIR_TEXT_MAX ||
        r2_rundir_failback_parse(text, (size_t)used, word, why, sizeof(why)) < 0) {
        ctl_fail("%s would have more than %d names or %d bytes; failback all clears it", path,
                 R2_RUNDIR_NAMES, R2_RUNDIR_TEXT_MAX);
        return -1;
    }
    return used;
}

int ctl_failback(const struct ctl *c, int n, char *const *names)
{
    struct command cmd = {.c = c, .n = n, .names = names};
    char path[512];

    if (ctl_names_check(n, names) != 0 || ctl_names_known(c, n, names) != 0) {
        return 1;
    }
    if (r2_rundir_failback_path(c->dir, geteuid(), path, sizeof(path)) != 0) {
        return ctl_fail("%s: the name is too long", c->dir);
    }
    return ctl_file_edit(c, path, failback_edit, &cmd);
}
