#include "r2_commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "ib_transport/verbs/ib_hca.h"

static int names_nic(const char *name, const struct ib_nic *nic)
{
    struct ib_hca_filter f = {0};
    char list[72], why[160];

    if (strcmp(name, "*") == 0) {
        return 1;
    }
    snprintf(list, sizeof(list), "=%.64s", name);
    return ib_hca_parse(&f, list, why, sizeof(why)) == 0 &&
           ib_hca_match(&f, nic->dev_name, nic->port, NULL);
}

/* NICs about which the commands hold another number than @f knows, which it does then. */
static uint32_t fresh_commands(const struct r2_inst *inst, struct r2_command_file *f,
                               const struct r2_rundir_command *command, int n,
                               struct r2_rundir_command *latest)
{
    uint32_t nics = 0;

    for (int i = 0; i < inst->nics.count; i++) {
        const struct r2_rundir_command *found = NULL;

        for (int k = 0; k < n; k++) {
            if (command[k].number > (found ? found->number : 0) &&
                names_nic(command[k].name, &inst->nics.nic[i])) {
                found = &command[k];
            }
        }
        if (found && found->number != f->number[i]) {
            nics |= 1u << i;
            if (latest) {
                latest[i] = *found;
            }
        }
        f->number[i] = found ? found->number : 0; /* a file that is gone commands nothing */
    }
    return nics;
}

/* As r2_rundir_commands_parse, with the file named in @why. */
static int commands_parse(const char *path, const char *text, size_t len, enum r2_rundir_kind kind,
                          struct r2_rundir_command *command, char *why, size_t why_len)
{
    char reason[128];
    int n = r2_rundir_commands_parse(text, len, kind, command, reason, sizeof(reason));

    if (n < 0) {
        snprintf(why, why_len, "%s: %s", path, reason);
    }
    return n;
}

/* What the file says anew; nothing when it is as it was. */
static uint32_t file_poll(const struct r2_inst *inst, struct r2_command_file *f, uid_t uid,
                          enum r2_rundir_kind kind, struct r2_rundir_command *latest)
{
    char path[512], text[R2_RUNDIR_TEXT_MAX + 1], why[700];
    struct r2_rundir_command command[R2_RUNDIR_NAMES];
    struct r2_rundir_stamp now;
    uint32_t nics;
    size_t len;
    int rc, n;

    if ((f->absent && inst->share.no_new_file) ||
        r2_rundir_commands_path(inst->share.run_dir, uid, kind, path, sizeof(path)) != 0) {
        return 0;
    }
    f->absent = !r2_rundir_stamp_get(path, &now);
    if (f->primed && r2_rundir_stamp_same(&now, &f->stamp)) {
        return 0;
    }
    rc = r2_rundir_text(path, uid, text, &len, why, sizeof(why));
    n = rc == 0 ? commands_parse(path, text, len, kind, command, why, sizeof(why)) : -1;
    if (n < 0 && (!f->logged || !r2_rundir_stamp_same(&now, &f->stamp))) {
        R2_WARN("%s: no command is taken from it", why);
    }
    f->logged = n < 0;
    if (rc != R2_RUNDIR_LATER) {
        f->stamp = now;
    }
    if (n < 0) {
        return 0;
    }
    nics = fresh_commands(inst, f, command, n, f->primed ? latest : NULL);
    nics = f->primed ? nics : 0;
    f->primed = 1;
    return nics;
}

uint32_t r2_commands_poll(const struct r2_inst *inst, struct r2_commands *s,
                          enum r2_rundir_kind kind, struct r2_rundir_command latest[IB_MAX_NICS])
{
    uid_t self = geteuid();
    uint32_t nics;

    if (inst->share.run_dir[0] == '\0') {
        return 0;
    }
    nics = file_poll(inst, &s->file[0], 0, kind, latest);
    if (self != 0) {
        nics |= file_poll(inst, &s->file[1], self, kind, latest);
    }
    return nics;
}
