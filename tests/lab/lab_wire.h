/*
 * What lab_ctl and the agent inside a VM say to each other, over one TCP connection per request.
 * A message is 4 bytes of type, 4 bytes of length, both big-endian, then the body.
 *
 *   lab_ctl                         agent
 *   HELLO secret                    READY                      or REFUSED reason
 *   EXEC flags cwd argv...          STDOUT STDERR ... EXIT     the command dies with the connection
 *   STDIN data, STDIN_END
 *   WHY                             STDERR ... TOLD            what the command's threads wait for
 *   WAIT name                       FIRED
 *   DONE text                                                  goes to lab_trigger, which waits for
 *                                                              it
 */
#ifndef R2_LAB_WIRE_H
#define R2_LAB_WIRE_H

#include "tests/lab/lab_util.h"

#define LAB_WIRE_BODY_MAX 65536u
#define LAB_SECRET_LEN    32
/* The agent's ports: commands, on the control NIC; echo of datagrams, on all others. */
#define LAB_AGENT_PORT 7000
#define LAB_ECHO_PORT  7001
/* Where lab_trigger finds the agent, inside a VM. */
#define LAB_TRIGGER_SOCKET   "/run/lab-trigger"
#define LAB_TRIGGER_NAME_MAX 63

enum lab_wire_type {
    LAB_HELLO = 1,
    LAB_READY,
    LAB_REFUSED,
    LAB_EXEC, /* strings, each with its NUL: flags, folder, argv[0], ... */
    LAB_STDIN,
    LAB_STDIN_END,
    LAB_STDOUT,
    LAB_STDERR,
    LAB_EXIT, /* 4 bytes, big-endian: exit status, 128 + signal number when killed */
    LAB_WAIT,
    LAB_FIRED,
    LAB_DONE,
    LAB_WHY,
    LAB_TOLD,
};

/* Flags of EXEC, as letters. */
#define LAB_EXEC_STDIN  'i' /* STDIN messages follow; else standard input is empty */
#define LAB_EXEC_URGENT 'u' /* real-time priority: takes effect at once in a busy VM */

struct lab_wire_msg {
    enum lab_wire_type type;
    const char *body; /* inside the buffer; valid until the next call that touches it */
    size_t len;
};

/* Adds one message to @b. @len is at most LAB_WIRE_BODY_MAX. */
void lab_wire_put(struct lab_buf *b, enum lab_wire_type type, const void *body, size_t len);

/* The message at the front of @b. Returns 1, 0 when it is not all there, -1 when the bytes are no
 * message. The caller drops it with lab_wire_drop when it has used the body. */
int lab_wire_get(const struct lab_buf *b, struct lab_wire_msg *m);
void lab_wire_drop(struct lab_buf *b, const struct lab_wire_msg *m);

#endif
