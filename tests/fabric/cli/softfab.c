/* softfab: makes, uses, breaks, shows and removes software fabrics. */
#include "tests/fabric/cli/softfab.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "softfab: RDMA networks of hosts and NICs on one machine, without hardware and without root\n"
    "\n"
    "  softfab up [--hosts 2] [--nics 4] [--rate 100MB/s] [--latency 10us] [--crossrail] [--reorder] [--desc FILE]\n"
    "             [--gpu] [--spines 4] [--hash ports|qp]\n"
    "  softfab exec --host 0 -- COMMAND...     COMMAND and its children see the NICs of host 0 through libibverbs\n"
    "  softfab fault [--check] 'h0:n1 down' ...  applies faults, in all processes at once; --check: only says what is wrong\n"
    "  softfab fault --check --hosts 2 --nics 4 [--spines 4] 'h0:n1 down' ...  the same of a fabric that is not up\n"
    "  softfab status [--json]                 NICs, spines, faults, counters, processes\n"
    "  softfab down                            removes the fabric\n"
    "\n"
    "Every subcommand takes --name NAME: fabrics of different names stand side by side.\n"
    "\n"
    "up       NIC k of every host is on rail k; rails reach each other only with --crossrail. Without --rate a link "
    "is\n"
    "         as fast as the machine. --desc reads a description with a place, rate and latency for each NIC.\n"
    "         --reorder: plain writes of one queue pair overtake each other, as under adaptive routing.\n"
    "         --gpu: NICs reach memory of GPUs, by copies of the CUDA driver that a program has loaded.\n"
    "         --spines: ways between any two NICs of a rail (ECMP, up to 64); the hash of a packet's addresses and UDP\n"
    "         ports chooses. --hash qp: the number of the destination queue pair goes into it, as on some switches.\n"
    "fault    a place, h0:n1 with * for all, and one of:\n"
    "           down  up  blackhole  blackhole-tx  blackhole-rx  ack-lost  loss 1%  corrupt 1%  dup 1%  delay 5ms\n"
    "           rate 20MB/s  hang  unhang  fatal  remove  qp-error  mr-fail [N]  mr-hang  gid-change  restore\n"
    "           call-error [N]  control calls fail with EIO, the data path goes on; the next N, or until restore\n"
    "           gpu-dma-fail    memory of GPUs (up --gpu) is registered, and each access to it fails; until restore\n"
    "           cut h2:n1       nothing passes between the two ports, no event; cut-tx: not from the first to the second;\n"
    "                           until heal h2:n1, or restore of either. '*:n1 cut *:n1': the switch plane of rail 1\n"
    "           delay-to h2:n1  the delay of a port is that of packets to h2:n1 alone, and to others that are named so\n"
    "           silent-death    a NIC that dies later (fatal, remove) does not tell those who post and poll; until "
    "restore\n"
    "         As the kernel's Soft-RoCE does it (tests/lab/fabric-vs-kernel.md):\n"
    "           send-error      a request that is tried fails with LOC_QP_OP_ERR; until up\n"
    "           send-stuck      the queue pairs of now send and report nothing more, for ever; no event\n"
    "           unplug          GID_CHANGE, query_port gives ENODEV, else as send-error; until restore\n"
    "           retry7-forever  retry_cnt 7 is without end; until restore\n"
    "           recv-kept       receives posted in ERR are flushed by the next move to ERR only; until restore\n"
    "         As the libraries of other NICs than mlx5 do it, no failure and not ended by restore:\n"
    "           provider KIND   in ERR: send-refused: no send is taken; bnxt: nothing is, and flushes are made up;\n"
    "                           ionic: flushes are made up; mana: nothing is taken nor flushed; plain: none of it\n"
    "           provider mlx4   the UDP source port comes from the queue pairs' numbers, whatever the flow label is\n"
    "         ip link set down there is 'down' with 'send-error', or with 'send-stuck'.\n"
    "         Or a spine (up --spines) of all rails or of one, spine 3 or rail 1 spine 3, with * for all, and one of:\n"
    "           blackhole  loss 1%  rate 20MB/s (shared by all packets over it)  restore (as *:* restore does)\n"
    "           down            switches know, and spread its packets over the others; up ends it and blackhole\n"
    "exec     sets LD_LIBRARY_PATH, SOFTFAB_DIR, SOFTFAB_HOST, SOFTFAB_SYSFS (what would be /sys for these NICs) and, unless\n"
    "         they are set (by another than an exec around it), NCCL_R2_RUN_DIR and NCCL_HOSTID (h0, h1, ...)\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong use; exec has that of COMMAND.\n";

static int fail_v(const char *fmt, va_list ap, int rc)
{
    fputs("softfab: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputs(rc == 2 ? " (softfab --help)\n" : "\n", stderr);
    return rc;
}

int softfab_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int rc = fail_v(fmt, ap, 1);
    va_end(ap);
    return rc;
}

int softfab_misuse(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int rc = fail_v(fmt, ap, 2);
    va_end(ap);
    return rc;
}

int softfab_refuse(const char *command, int code, char *const *argv, const struct option *opts)
{
    char why[ARGS_REFUSAL];

    return softfab_misuse("%s: %s", command, args_refusal(why, code, argv, opts));
}

int softfab_number(const char *text, int max)
{
    char *end;

    errno = 0;
    long v = strtol(text, &end, 10);
    return end == text || *end != '\0' || errno != 0 || v < 0 || v > max ? -1 : (int)v;
}

int softfab_open(struct seg_map *m, const char *name)
{
    char path[SEG_PATH_MAX], why[512];

    if (seg_dir_path(name, path, sizeof(path), why, sizeof(why)) != 0 ||
        seg_file_open(m, path, why, sizeof(why)) != 0) {
        return softfab_fail("%s", why);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"up", softfab_up},         {"exec", softfab_exec}, {"fault", softfab_fault},
    {"status", softfab_status}, {"down", softfab_down},
};

static int command_unknown(const char *word)
{
    static const char *const names[] = {"up", "exec", "fault", "status", "down", NULL};
    const char *near = args_near(word, names);

    return near ? softfab_misuse("unknown command '%s': did you mean %s?", word, near)
                : softfab_misuse("'%s' is none of up, exec, fault, status, down", word);
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return softfab_misuse("what is to be done? up, exec, fault, status or down");
    }
    if (is_help(argv[1]) || strcmp(argv[1], "help") == 0 || (argc > 2 && is_help(argv[2]))) {
        fputs(help, stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("softfab %s (%s)\n", R2_VERSION, R2_GIT);
        return 0;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            opterr = 0;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return command_unknown(argv[1]);
}
