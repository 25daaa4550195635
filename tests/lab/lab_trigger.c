/*
 * Inside a VM: tells the outside "now".
 *   lab-trigger [-n] [-t SECONDS] NAME
 * Returns when the one who waits for NAME (lab.sh on-trigger, wait-trigger) has acted, so that the
 * time at which this command started and the time at which it ended enclose the act; prints what
 * was done. Exit status 1: nobody came within the limit (10 s by default), or what was to be done
 * failed. -n: returns at once; the trigger is kept until somebody waits for it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lab/lab_wire.h"

int main(int argc, char **argv)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX, .sun_path = LAB_TRIGGER_SOCKET};
    char packet[LAB_TRIGGER_NAME_MAX + 2] = "w", answer[1024];
    long limit = 10;
    int fd, opt;
    ssize_t n;
    struct pollfd p;

    while ((opt = getopt(argc, argv, "nt:")) != -1) {
        if (opt == 'n') {
            packet[0] = 'n';
        } else if (opt != 't' || lab_number_parse(optarg, 1, 86400, &limit) != 0) {
            lab_die(2, "usage: lab-trigger [-n] [-t SECONDS] NAME");
        }
    }
    if (argc - optind != 1 || argv[optind][0] == '\0' ||
        strlen(argv[optind]) > LAB_TRIGGER_NAME_MAX) {
        lab_die(2, "usage: lab-trigger [-n] [-t SECONDS] NAME; a name has 1 to %d bytes",
                LAB_TRIGGER_NAME_MAX);
    }
    strcpy(packet + 1, argv[optind]);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
        send(fd, packet, strlen(packet), 0) < 0) {
        lab_die(1, "trigger socket %s: %s", sa.sun_path, strerror(errno));
    }
    if (packet[0] == 'n') {
        return 0;
    }
    p = (struct pollfd){.fd = fd, .events = POLLIN};
    if (poll(&p, 1, (int)limit * 1000) <= 0) {
        lab_die(1, "trigger %s: nobody waited for it within %ld s, or what they do takes longer",
                argv[optind], limit);
    }
    n = recv(fd, answer, sizeof(answer) - 1, 0);
    if (n <= 0) {
        lab_die(1, "trigger %s: the agent closed the connection", argv[optind]);
    }
    answer[n] = '\0';
    /* The first byte is + or -: whether what was to be done was done. */
    if (answer[0] != '+') {
        lab_die(1, "trigger %s: %s", argv[optind], answer + 1);
    }
    puts(answer + 1);
    return 0;
}
