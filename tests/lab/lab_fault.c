#include "tests/lab/lab_fault.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lab/lab_client.h"
#include "tests/lab/lab_names.h"
#include "tests/lab/lab_proc.h"
#include "tests/lab/lab_qmp.h"

#define FAULT_LIMIT_NS (30 * LAB_NS_PER_S)

enum target { T_HOST, T_NIC, T_PORTS /* a NIC, h0:all, all */ };

struct lab_fault_row {
    const char *verb;
    enum target target;
    int min, max; /* arguments behind the target */
    int (*inject)(struct lab_fault *f);
    int (*check)(struct lab_fault *f); /* NULL: the answer to the injection is the proof */
    const char *help;
};

int lab_switch_call(const char *line, char *out, size_t size)
{
    uint64_t deadline = lab_clock_now() + 10 * LAB_NS_PER_S;
    struct pollfd p = {.fd = lab_unix_connect("switch"), .events = POLLIN};
    size_t n = 0;
    const char *last = out;

    if (p.fd < 0) {
        return lab_complain("the switch does not run: %s", strerror(errno));
    }
    if (dprintf(p.fd, "%s\n", line) < 0) {
        close(p.fd);
        return lab_complain("switch: %s", strerror(errno));
    }
    /* The answer ends with a line that begins with "ok" or "error". */
    for (;;) {
        ssize_t got =
            poll(&p, 1, lab_clock_left_ms(deadline)) > 0 ? recv(p.fd, out + n, size - n - 1, 0) : 0;
        if (got <= 0) {
            close(p.fd);
            return lab_complain("the switch does not answer");
        }
        n += (size_t)got;
        out[n] = '\0';
        if (out[n - 1] == '\n') {
            out[n - 1] = '\0';
            last = strrchr(out, '\n') != NULL ? strrchr(out, '\n') + 1 : out;
            if (strncmp(last, "ok", 2) == 0 || strncmp(last, "error", 5) == 0) {
                break;
            }
            out[n - 1] = '\n';
        }
    }
    close(p.fd);
    return last[0] == 'o' ? 0 : lab_complain("switch: %s: %s", line, last + 6);
}

/* Runs a command in the VM and keeps what it says in @f->said. */
static int guest_run(struct lab_fault *f, const char *host, char **argv)
{
    struct lab_buf out = {0};
    struct lab_exec e = {.host = host,
                         .cwd = "/",
                         .argv = argv,
                         .flags = (char[]){LAB_EXEC_URGENT, '\0'},
                         .capture = &out};
    int status;
    size_t i;

    e.deadline = lab_clock_now() + FAULT_LIMIT_NS;
    status = lab_client_exec(&e);
    if (lab_buf_len(&out) > 0) {
        snprintf(f->said, sizeof(f->said), "%.*s", (int)lab_buf_len(&out), out.mem + out.head);
    }
    lab_buf_free(&out);
    for (i = strlen(f->said); i > 0 && f->said[i - 1] == '\n'; i--) {
        f->said[i - 1] = '\0';
    }
    for (; i > 0; i--) {
        f->said[i - 1] = f->said[i - 1] == '\n' ? ';' : f->said[i - 1];
    }
    if (status != 0 && status != LAB_STATUS_LOST) {
        lab_complain("%s: %s %s: status %d: %s", host, argv[0], argv[1], status, f->said);
    }
    return status == 0 ? 0 : -1;
}

static int nic_run(struct lab_fault *f, const char *verb)
{
    char *argv[] = {"lab_nic", (char *)verb, (char *)lab_nic_name(f->nic), NULL};

    return guest_run(f, f->host, argv);
}

static int nic_await(struct lab_fault *f, const char *words)
{
    char *argv[] = {"lab_nic", "await", (char *)lab_nic_name(f->nic), (char *)words, "20000", NULL};

    return guest_run(f, f->host, argv);
}

/* ---- in the switch ---- */

static int switch_inject(struct lab_fault *f, const char *port, const char *verb)
{
    char line[200], out[1024];
    int i, n = snprintf(line, sizeof(line), "%s %s", port, verb);

    for (i = 0; i < f->argc && (size_t)n < sizeof(line); i++) {
        n += snprintf(line + n, sizeof(line) - (size_t)n, " %s", f->argv[i]);
    }
    if (lab_switch_call(line, out, sizeof(out)) != 0) {
        return -1;
    }
    snprintf(f->said, sizeof(f->said), "switch: %.350s", out + 3);
    return 0;
}

static int impair_inject(struct lab_fault *f)
{
    return switch_inject(f, f->target, f->row->verb);
}

static int oob_inject(struct lab_fault *f)
{
    char port[16];

    snprintf(port, sizeof(port), "%s:m", f->host);
    return switch_inject(f, port, f->row->verb + 3); /* oobcut, oobheal */
}

/* ---- by the monitor ---- */

static int link_inject(struct lab_fault *f)
{
    bool up = strcmp(f->row->verb, "linkup") == 0;
    struct lab_qmp q;
    char device[16];
    int rc;

    if (lab_qmp_open(&q, f->host) != 0) {
        return -1;
    }
    lab_nic_device(f->nic, device);
    rc = lab_qmp_do(&q, "set_link", json_pack("{s:s, s:b}", "name", device, "up", up));
    lab_qmp_close(&q);
    snprintf(f->said, sizeof(f->said), "monitor: link %s", up ? "up" : "down");
    return rc;
}

/* 1 when the VM runs, 0 when it is stopped, -1 when the monitor does not say. */
static int vm_runs(struct lab_qmp *q)
{
    json_t *status = lab_qmp_call(q, "query-status", NULL);
    int rc = status == NULL ? -1 : json_is_true(json_object_get(status, "running"));

    json_decref(status);
    return rc;
}

/* A frozen VM sees nothing until it is thawed; then there is nothing to check now. */
static int link_check(struct lab_fault *f)
{
    struct lab_qmp q;
    int runs;

    if (lab_qmp_open(&q, f->host) != 0) {
        return -1;
    }
    runs = vm_runs(&q);
    lab_qmp_close(&q);
    if (runs <= 0) {
        return runs;
    }
    return nic_await(f, strcmp(f->row->verb, "linkup") == 0 ? "carrier=1|up=0" : "carrier=0|up=0");
}

static int freeze_inject(struct lab_fault *f)
{
    bool freeze = strcmp(f->row->verb, "freeze") == 0;
    struct lab_qmp q;
    int rc;

    if (lab_qmp_open(&q, f->host) != 0) {
        return -1;
    }
    rc = lab_qmp_do(&q, freeze ? "stop" : "cont", NULL);
    if (rc == 0 && vm_runs(&q) != !freeze) {
        rc = lab_complain("%s: the VM is not %s", f->host, freeze ? "stopped" : "running");
    }
    lab_qmp_close(&q);
    snprintf(f->said, sizeof(f->said), "monitor: %s", freeze ? "stopped" : "running");
    return rc;
}

/*
 * The guest is told and lets go of the interface; the PCI device itself goes when nobody uses what
 * hangs on it any more, and Soft-RoCE keeps a device for as long as a process has it open. So the
 * guest's own word is the proof, and plug waits for the rest.
 */
static int unplug_inject(struct lab_fault *f)
{
    struct lab_qmp q;
    char device[16];
    int rc;

    if (lab_qmp_open(&q, f->host) != 0) {
        return -1;
    }
    lab_nic_device(f->nic, device);
    rc = lab_qmp_do(&q, "device_del", json_pack("{s:s}", "id", device));
    lab_qmp_close(&q);
    snprintf(f->said, sizeof(f->said), "monitor: %s is being deleted", device);
    return rc;
}

static int unplug_check(struct lab_fault *f)
{
    return nic_await(f, "absent");
}

static json_t *device_arguments(int host, int nic)
{
    char device[16], netdev[24], mac[18], addr[8];

    lab_nic_device(nic, device);
    snprintf(netdev, sizeof(netdev), "net-%s", device);
    lab_nic_mac(host, nic, mac);
    snprintf(addr, sizeof(addr), "0x%x", lab_nic_slot(nic));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "driver", "virtio-net-pci", "id", device,
                     "netdev", netdev, "mac", mac, "addr", addr, "romfile", "");
}

static int plug_inject(struct lab_fault *f)
{
    struct lab_qmp q;
    char device[16];
    int rc;

    if (lab_qmp_open(&q, f->host) != 0) {
        return -1;
    }
    lab_nic_device(f->nic, device);
    rc = lab_qmp_await_deleted(&q, device, lab_clock_now() + FAULT_LIMIT_NS);
    if (rc == 0) {
        rc = lab_qmp_do(&q, "device_add", device_arguments(lab_host_parse(f->host), f->nic));
    }
    lab_qmp_close(&q);
    snprintf(f->said, sizeof(f->said), "monitor: plugged");
    return rc;
}

static int setup_check(struct lab_fault *f)
{
    return nic_run(f, "setup");
}

static int crash_inject(struct lab_fault *f)
{
    int rc = lab_proc_kill(f->host);
    char path[16];

    if (rc <= 0) {
        return rc < 0 ? -1 : lab_complain("%s does not run", f->host);
    }
    snprintf(path, sizeof(path), "%s.port", f->host);
    unlink(path);
    snprintf(f->said, sizeof(f->said), "VM killed");
    return 0;
}

/* ---- inside ---- */

static int nic_inject(struct lab_fault *f)
{
    return nic_run(f, f->row->verb);
}

static int netem_inject(struct lab_fault *f)
{
    char netif[16], script[300];
    char *argv[] = {"sh", "-c", script, NULL};
    int i, n;

    lab_nic_netif(f->nic, netif);
    if (strcmp(f->argv[0], "off") == 0) {
        return nic_run(f, "setup");
    }
    /* Read back: tc takes more than one spelling, so the proof is that the discipline is there. */
    n = snprintf(script, sizeof(script), "set -e; d=%s; tc qdisc replace dev $d root netem", netif);
    for (i = 0; i < f->argc && (size_t)n < sizeof(script); i++) {
        n += snprintf(script + n, sizeof(script) - (size_t)n, " %s", f->argv[i]);
    }
    if ((size_t)n + 64 > sizeof(script)) {
        return lab_complain("netem: too many arguments");
    }
    snprintf(script + n, sizeof(script) - (size_t)n,
             "; tc qdisc show dev $d root | grep '^qdisc netem'");
    return guest_run(f, f->host, argv);
}

static const struct lab_fault_row rows[] = {
    {"cut", T_PORTS, 0, 1, impair_inject, NULL,
     "HOST:NIC [both|in|out]     the switch drops all, nobody is told"},
    {"heal", T_PORTS, 0, 0, impair_inject, NULL,
     "HOST:NIC                   the switch impairs this NIC no more (cut, heal: also h0:n1-h2:n1, rail1, rail1/3, rail1/most)"},
    {"loss", T_PORTS, 1, 2, impair_inject, NULL,
     "HOST:NIC PERCENT [DIR]     the switch drops some"},
    {"dup", T_PORTS, 1, 2, impair_inject, NULL,
     "HOST:NIC PERCENT [DIR]     the switch sends some twice"},
    {"corrupt", T_PORTS, 1, 2, impair_inject, NULL,
     "HOST:NIC PERCENT [DIR]     the switch flips a bit in the payload of some"},
    {"delay", T_PORTS, 1, 2, impair_inject, NULL,
     "HOST:NIC MS [DIR]          the switch holds all back"},
    {"rate", T_PORTS, 1, 2, impair_inject, NULL,
     "HOST:NIC MBIT [DIR]        the NIC's wire is slow; 0: no limit"},
    {"oobcut", T_HOST, 0, 1, oob_inject, NULL,
     "HOST [both|in|out]         as cut, for the management NIC"},
    {"oobheal", T_HOST, 0, 0, oob_inject, NULL, "HOST"},
    {"linkdown", T_NIC, 0, 0, link_inject, link_check,
     "HOST:NIC                   cable out: the VM loses carrier"},
    {"linkup", T_NIC, 0, 0, link_inject, link_check, "HOST:NIC"},
    {"unplug", T_NIC, 0, 0, unplug_inject, unplug_check,
     "HOST:NIC                   the PCI device goes"},
    {"plug", T_NIC, 0, 0, plug_inject, setup_check,
     "HOST:NIC                   it returns, with address and Soft-RoCE device"},
    {"freeze", T_HOST, 0, 0, freeze_inject, NULL, "HOST                       the VM stands still"},
    {"thaw", T_HOST, 0, 0, freeze_inject, NULL, "HOST"},
    {"crash", T_HOST, 0, 0, crash_inject, NULL,
     "HOST                       the VM is killed (lab.sh reset boots it again)"},
    {"ifdown", T_NIC, 0, 0, nic_inject, NULL,
     "HOST:NIC                   ip link set down, in the VM"},
    {"ifup", T_NIC, 0, 0, setup_check, NULL,
     "HOST:NIC                   up again, with address and Soft-RoCE device"},
    {"rdmadel", T_NIC, 0, 0, nic_inject, NULL,
     "HOST:NIC                   rdma link del, in the VM"},
    {"rdmaadd", T_NIC, 0, 0, setup_check, NULL, "HOST:NIC"},
    {"netem", T_NIC, 1, LAB_FAULT_ARGS_MAX, netem_inject, NULL,
     "HOST:NIC ARGS|off          tc qdisc ... netem ARGS, in the VM"},
};

void lab_fault_help(void)
{
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        printf("  %-9s%s\n", rows[i].verb, rows[i].help);
    }
}

static int target_parse(struct lab_fault *f, const char *text)
{
    const char *colon = strchr(text, ':');
    size_t n = colon != NULL ? (size_t)(colon - text) : strlen(text);

    f->target = text;
    if (f->row->target == T_PORTS &&
        (strcmp(text, "all") == 0 || (colon != NULL && strcmp(colon, ":all") == 0) ||
         strchr(text, '-') != NULL || strncmp(text, "rail", 4) == 0)) {
        return 0; /* the switch knows them */
    }
    snprintf(f->host, sizeof(f->host), "%.*s", n < sizeof(f->host) ? (int)n : 0, text);
    f->nic = colon != NULL ? lab_nic_parse(colon + 1) : -1;
    if (lab_host_parse(f->host) < 0 || (f->row->target != T_HOST) != (colon != NULL) ||
        (colon != NULL && f->nic < 0)) {
        return lab_complain("%s: '%s' is no %s", f->row->verb, text,
                            f->row->target == T_HOST ? "host, such as h0"
                                                     : "NIC, such as h0:n1 or h0:m");
    }
    return 0;
}

int lab_fault_parse(struct lab_fault *f, int argc, char **argv)
{
    size_t i;

    memset(f, 0, sizeof(*f));
    for (i = 0; argc > 0 && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(argv[0], rows[i].verb) == 0) {
            f->row = &rows[i];
        }
    }
    if (f->row == NULL) {
        return lab_complain("'%s' is no fault", argc > 0 ? argv[0] : "");
    }
    if (argc < 2 || argc - 2 < f->row->min || argc - 2 > f->row->max) {
        return lab_complain("expected: %s %s", f->row->verb, f->row->help);
    }
    f->argc = argc - 2;
    f->argv = argv + 2;
    return target_parse(f, argv[1]);
}

int lab_fault_inject(struct lab_fault *f)
{
    return f->row->inject(f);
}

int lab_fault_check(struct lab_fault *f)
{
    return f->row->check != NULL ? f->row->check(f) : 0;
}

/* ---- repair ---- */

static bool device_is_there(json_t *list, const char *device)
{
    size_t i;

    for (i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (name != NULL && strcmp(name, device) == 0) {
            return true;
        }
    }
    return false;
}

static int repair_devices(struct lab_qmp *q, const char *host)
{
    json_t *list = lab_qmp_call(q, "qom-list", json_pack("{s:s}", "path", "/machine/peripheral"));
    char device[16];
    int k, rc = list != NULL ? 0 : -1;

    for (k = 0; rc == 0 && k < LAB_NICS; k++) {
        lab_nic_device(k, device);
        if (!device_is_there(list, device)) {
            printf("%s:%s: plugged\n", host, lab_nic_name(k));
            rc = lab_qmp_do(q, "device_add", device_arguments(lab_host_parse(host), k));
        }
        if (rc == 0) {
            rc = lab_qmp_do(q, "set_link", json_pack("{s:s, s:b}", "name", device, "up", 1));
        }
    }
    json_decref(list);
    return rc;
}

int lab_fault_repair(const char *host)
{
    struct lab_fault f = {.nic = 0};
    char *argv[] = {"lab_nic", "setup", NULL};
    struct lab_qmp q;
    int rc, runs;

    if (lab_qmp_open(&q, host) != 0) {
        return -1;
    }
    runs = vm_runs(&q);
    rc = runs < 0 ? -1 : 0;
    if (runs == 0) {
        printf("%s: thawed\n", host);
        rc = lab_qmp_do(&q, "cont", NULL);
    }
    if (rc == 0) {
        rc = repair_devices(&q, host);
    }
    lab_qmp_close(&q);
    if (rc == 0) {
        rc = guest_run(&f, host, argv);
    }
    if (f.said[0] != '\0') {
        printf("%s: %s\n", host, f.said);
    }
    return rc;
}
