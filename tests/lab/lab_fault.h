/* Faults, injected from outside the VMs or inside them by the agent. From the lab's run folder. */
#ifndef R2_LAB_FAULT_H
#define R2_LAB_FAULT_H

#include <stddef.h>
#include <stdint.h>

#define LAB_FAULT_ARGS_MAX 16

struct lab_fault_row;

struct lab_fault {
    const struct lab_fault_row *row;
    const char *target; /* as it was given */
    char host[4];       /* empty where it is more than one */
    int nic;            /* -1 where it is not one */
    int argc;
    char **argv;    /* behind the target */
    char said[400]; /* what was done, in words */
};

/* Takes "VERB TARGET [ARGS...]" apart. The words have to live as long as @f. Returns 0, or -1 (the
 * reason was printed).
 */
int lab_fault_parse(struct lab_fault *f, int argc, char **argv);

/* Injects. Returns when the outside knows that it is done: the switch or the monitor has answered,
 * the command in the VM has ended. Fills @f->said. Blocks up to 30 s. Returns 0, or -1 (the reason
 * was printed). */
int lab_fault_inject(struct lab_fault *f);

/* Checks in the VM that it took effect there, where it is something the VM sees. Blocks up to 30 s.
 * Returns 0, or -1 (printed). */
int lab_fault_check(struct lab_fault *f);

/* Prints one line per fault. */
void lab_fault_help(void);

/* Sends one line to the switch; the whole answer goes to @out. Returns 0, or -1 when the answer is
 * an error or there is none (printed). */
int lab_switch_call(const char *line, char *out, size_t size);

/* Brings VM @host back to health as far as that is possible without a reboot: running, links up,
 * all NICs plugged and set up. The switch is not touched. Prints what it repaired. Returns 0, or -1
 * when something remains (printed). */
int lab_fault_repair(const char *host);

#endif
