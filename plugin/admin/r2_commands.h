/*
 * Files of commands in the run directory (base/r2_rundir.h): what an administrator wants once, and
 * each process does once. Service thread; reads a local file system.
 */
#ifndef R2_COMMANDS_H
#define R2_COMMANDS_H

#include <sys/types.h>

#include "base/r2_rundir.h"
#include "core/r2_inst.h"

/* The files of one kind as they were when they were read last: of user 0, of our user. Zeroed:
 * neither was. */
struct r2_commands {
    struct r2_command_file {
        struct r2_rundir_stamp stamp;
        uint64_t number[IB_MAX_NICS]; /* of the command that was applied last; 0: none */
        int logged;
        int absent; /* it was not there */
        int primed; /* it was read once: what it had then was commanded before this process began */
    } file[2];
};

/*
 * Our NICs that a command is for which was given since the last call, bit per NIC. @latest, where
 * it is not NULL, gets that command in the NIC's place. Reads a file when it has changed; one that
 * cannot be used is logged once.
 */
uint32_t r2_commands_poll(const struct r2_inst *inst, struct r2_commands *s,
                          enum r2_rundir_kind kind, struct r2_rundir_command latest[IB_MAX_NICS]);

#endif
