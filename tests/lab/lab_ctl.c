/*
 * What lab.sh does not do itself: all that talks to the switch, the monitors and the agents.
 *   lab_ctl RUN_FOLDER COMMAND ...     see usage() below
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lab/lab_client.h"
#include "tests/lab/lab_fault.h"
#include "tests/lab/lab_names.h"
#include "tests/lab/lab_proc.h"
#include "tests/lab/lab_qmp.h"

#define DEFAULT_LIMIT_S 600

static char caller_cwd[PATH_MAX];

static int usage(void)
{
    fputs(
        "usage: lab_ctl RUN_FOLDER ...\n"
        "  exec HOST [-t SECONDS] [-i] [-u] -- COMMAND...   -i: hand standard input on; -u: ahead of what keeps the "
        "VM busy\n"
        "  wait-trigger HOST NAME [-t SECONDS]\n"
        "  on-trigger HOST NAME [-t SECONDS] FAULT...\n"
        "  fault FAULT...\n"
        "  repair HOST                    all but the switch\n"
        "  switch WORDS...                one line to the switch; prints the answer\n"
        "  qmp HOST COMMAND [JSON]        prints what the monitor returns\n"
        "  await-boot HOST SECONDS\n"
        "  port HOST                      the control port of the VM, on 127.0.0.1\n"
        "  alive NAME | kill NAME         by NAME.pid\n"
        "  device HOST NIC                QEMU's -device argument; NIC: n0 to n3, m, ctl\n"
        "faults (HOST:NIC is h0:n1 or h0:m; for what the switch does also h0:all, all: the data NICs):\n",
        stderr);
    lab_fault_help();
    return 2;
}

/* Takes "-t SECONDS" off the front. */
static uint64_t limit_take(int *argc, char ***argv)
{
    long seconds = DEFAULT_LIMIT_S;

    if (*argc >= 2 && strcmp((*argv)[0], "-t") == 0) {
        if (lab_number_parse((*argv)[1], 1, 1000000, &seconds) != 0) {
            lab_die(2, "-t '%s': not a number of seconds", (*argv)[1]);
        }
        *argc -= 2;
        *argv += 2;
    }
    return lab_clock_now() + (uint64_t)seconds * LAB_NS_PER_S;
}

static int command_exec(int argc, char **argv)
{
    char flags[4] = "";
    struct lab_exec e = {.cwd = caller_cwd, .flags = flags};

    e.host = argv[0];
    argc--, argv++;
    e.deadline = limit_take(&argc, &argv);
    for (; argc > 0 && argv[0][0] == '-' && strchr("iu", argv[0][1]) != NULL && argv[0][1] != '\0';
         argc--, argv++) {
        strncat(flags, argv[0] + 1, 1);
    }
    if (argc > 0 && strcmp(argv[0], "--") == 0) {
        argc--, argv++;
    }
    if (argc < 1 || lab_host_parse(e.host) < 0 || strlen(flags) > 2) {
        return usage();
    }
    e.argv = argv;
    return lab_client_exec(&e);
}

static double ms_since(uint64_t start)
{
    return (double)(lab_clock_now() - start) / (double)LAB_NS_PER_MS;
}

static int fault_report(struct lab_fault *f, int argc, char **argv, int rc, double injected_ms,
                        uint64_t start)
{
    int i;

    if (rc != 0) {
        return 1;
    }
    for (i = 0; i < argc; i++) {
        printf("%s%s", argv[i], i + 1 < argc ? " " : "");
    }
    printf(": %s (injected in %.1f ms, checked after %.1f ms)\n",
           f->said[0] != '\0' ? f->said : "done", injected_ms, ms_since(start));
    return 0;
}

static int command_fault(int argc, char **argv)
{
    uint64_t start = lab_clock_now();
    struct lab_fault f;
    double injected;
    int rc;

    if (lab_fault_parse(&f, argc, argv) != 0) {
        return 2;
    }
    rc = lab_fault_inject(&f);
    injected = ms_since(start);
    return fault_report(&f, argc, argv, rc == 0 ? lab_fault_check(&f) : rc, injected, start);
}

static int command_wait_trigger(int argc, char **argv)
{
    const char *host = argv[0], *name = argv[1];
    uint64_t deadline;
    int fd;

    argc -= 2, argv += 2;
    deadline = limit_take(&argc, &argv);
    if (argc != 0) {
        return usage();
    }
    fd = lab_client_wait(host, name, deadline);
    if (fd < 0) {
        return -fd;
    }
    lab_client_done(fd, true, "taken");
    return 0;
}

static int command_on_trigger(int argc, char **argv)
{
    const char *host = argv[0], *name = argv[1];
    struct lab_fault f;
    uint64_t deadline, start;
    double injected;
    int fd, rc;

    argc -= 2, argv += 2;
    deadline = limit_take(&argc, &argv);
    if (lab_fault_parse(&f, argc, argv) != 0) {
        return 2;
    }
    fd = lab_client_wait(host, name, deadline);
    if (fd < 0) {
        return -fd;
    }
    start = lab_clock_now();
    rc = lab_fault_inject(&f);
    injected = ms_since(start);
    /* Before the check: the one who fired it times the fault by this answer. */
    lab_client_done(fd, rc == 0, rc == 0 ? f.said : "the fault could not be injected");
    return fault_report(&f, argc, argv, rc == 0 ? lab_fault_check(&f) : rc, injected, start);
}

static int command_switch(int argc, char **argv)
{
    char line[256] = "";
    char *out = malloc(65536);
    int i, rc;

    for (i = 0; i < argc; i++) {
        strncat(line, argv[i], sizeof(line) - strlen(line) - 2);
        strcat(line, i + 1 < argc ? " " : "");
    }
    rc = out != NULL ? lab_switch_call(line, out, 65536) : -1;
    if (rc == 0) {
        puts(out);
    }
    free(out);
    return rc == 0 ? 0 : 1;
}

static int command_qmp(int argc, char **argv)
{
    json_t *arguments = argc > 2 ? json_loads(argv[2], 0, NULL) : NULL, *result = NULL;
    struct lab_qmp q;
    char *text;

    if (argc > 2 && arguments == NULL) {
        lab_die(2, "'%s' is no JSON", argv[2]);
    }
    if (lab_qmp_open(&q, argv[0]) == 0) {
        result = lab_qmp_call(&q, argv[1], arguments);
        lab_qmp_close(&q);
    }
    if (result == NULL) {
        return 1;
    }
    text = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
    puts(text != NULL ? text : "");
    free(text);
    json_decref(result);
    return 0;
}

/* QEMU was told to take any free port, so that labs do not collide; here it says which. */
static int command_port(const char *host)
{
    struct lab_qmp q;
    json_t *result = NULL;
    const char *text, *at;
    unsigned port = 0;

    if (lab_qmp_open(&q, host) == 0) {
        result = lab_qmp_call(&q, "human-monitor-command",
                              json_pack("{s:s}", "command-line", "info usernet"));
        lab_qmp_close(&q);
    }
    text = json_string_value(result);
    at = text != NULL ? strstr(text, "TCP[HOST_FORWARD]") : NULL;
    /* TCP[HOST_FORWARD]  FD  source address  port  ... */
    if (at == NULL || sscanf(at, "TCP[HOST_FORWARD] %*d %*s %u", &port) != 1 || port == 0) {
        lab_complain("%s: no forwarded port in: %s", host, text != NULL ? text : "");
        port = 0;
    }
    json_decref(result);
    if (port != 0) {
        printf("%u\n", port);
    }
    return port != 0 ? 0 : 1;
}

static int command_device(const char *host_name, const char *nic_name)
{
    int host = lab_host_parse(host_name);
    int nic = strcmp(nic_name, "ctl") == 0 ? LAB_CONTROL : lab_nic_parse(nic_name);
    char mac[18], device[16];

    if (host < 0 || nic < 0) {
        return usage();
    }
    lab_nic_mac(host, nic, mac);
    lab_nic_device(nic, device);
    printf("virtio-net-pci,id=%s,netdev=net-%s,mac=%s,addr=0x%x,romfile=\n", device, device, mac,
           lab_nic_slot(nic));
    return 0;
}

static int command_alive(const char *name)
{
    int fd = lab_proc_open(name);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 ? 0 : 1;
}

static int command_run(const char *verb, int argc, char **argv)
{
    long seconds;

    if (strcmp(verb, "exec") == 0 && argc > 1) {
        return command_exec(argc, argv);
    } else if (strcmp(verb, "fault") == 0) {
        return command_fault(argc, argv);
    } else if (strcmp(verb, "wait-trigger") == 0 && argc >= 2) {
        return command_wait_trigger(argc, argv);
    } else if (strcmp(verb, "on-trigger") == 0 && argc >= 4) {
        return command_on_trigger(argc, argv);
    } else if (strcmp(verb, "repair") == 0 && argc == 1 && lab_host_parse(argv[0]) >= 0) {
        return lab_fault_repair(argv[0]) == 0 ? 0 : 1;
    } else if (strcmp(verb, "switch") == 0 && argc > 0) {
        return command_switch(argc, argv);
    } else if (strcmp(verb, "qmp") == 0 && (argc == 2 || argc == 3)) {
        return command_qmp(argc, argv);
    } else if (strcmp(verb, "await-boot") == 0 && argc == 2 &&
               lab_number_parse(argv[1], 1, 3600, &seconds) == 0) {
        return lab_proc_await_boot(argv[0], lab_clock_now() + (uint64_t)seconds * LAB_NS_PER_S) == 0
                   ? 0
                   : 1;
    } else if (strcmp(verb, "port") == 0 && argc == 1) {
        return command_port(argv[0]);
    } else if (strcmp(verb, "alive") == 0 && argc == 1) {
        return command_alive(argv[0]);
    } else if (strcmp(verb, "kill") == 0 && argc == 1) {
        return lab_proc_kill(argv[0]) >= 0 ? 0 : 1;
    } else if (strcmp(verb, "device") == 0 && argc == 2) {
        return command_device(argv[0], argv[1]);
    }
    return usage();
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        return usage();
    }
    if (getcwd(caller_cwd, sizeof(caller_cwd)) == NULL) {
        strcpy(caller_cwd, "/");
    }
    /* Sockets' names are relative to here: whole paths may be longer than a socket's name can be.
     */
    if (chdir(argv[1]) != 0) {
        lab_die(1, "there is no lab at %s: %s", argv[1], strerror(errno));
    }
    return command_run(argv[2], argc - 3, argv + 3);
}
