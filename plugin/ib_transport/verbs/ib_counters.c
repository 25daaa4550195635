#include "ib_counters.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PLAIN 10 /* so many of them are in counters/, the others in hw_counters/ */

static const char *const names[IB_COUNTERS] = {
    "link_downed",
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "rx_icrc_encapsulated",
    "local_ack_timeout_err",
    "req_transport_retries_exceeded",
    "packet_seq_err",
    "out_of_sequence",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_error",
    "req_remote_access_errors",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "np_cnp_sent",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
};

_Static_assert(IB_COUNTERS <= 32, "a bit each");

const char *ib_counters_name(int i)
{
    return names[i];
}

static int path_make(char path[PATH_MAX], const char *ibdev_path, int port, int i)
{
    int n = i < 0 ? snprintf(path, PATH_MAX, "%s/ports/%d/%s", ibdev_path, port,
                             i == -1 ? "counters" : "hw_counters")
                  : snprintf(path, PATH_MAX, "%s/ports/%d/%s/%s", ibdev_path, port,
                             i < PLAIN ? "counters" : "hw_counters", names[i]);

    return n < PATH_MAX;
}

int ib_counters_there(const char *ibdev_path, int port)
{
    char path[PATH_MAX];

    return (path_make(path, ibdev_path, port, -1) && access(path, F_OK) == 0) ||
           (path_make(path, ibdev_path, port, -2) && access(path, F_OK) == 0);
}

static int number_read(const char *path, uint64_t *value)
{
    char text[32], *end;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return 0;
    }
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0 || !isdigit((unsigned char)text[0])) {
        return 0; /* some drivers say "N/A (no PMA)" */
    }
    text[n] = '\0';
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\0' || *end == '\n');
}

void ib_counters_read(const char *ibdev_path, int port, struct ib_counters *out)
{
    char path[PATH_MAX];

    *out = (struct ib_counters){.known = 0};
    for (int i = 0; i < IB_COUNTERS; i++) {
        if (path_make(path, ibdev_path, port, i) && number_read(path, &out->value[i])) {
            out->known |= 1u << i;
        }
    }
}

uint64_t ib_counters_grown(const struct ib_counters *before, const struct ib_counters *after, int i)
{
    uint32_t known = before->known & after->known;

    return known >> i & 1 && after->value[i] > before->value[i] ? after->value[i] - before->value[i]
                                                                : 0;
}
