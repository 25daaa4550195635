#include "tests/lab/lab_netif.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lab/lab_util.h"

static int netif_ioctl(unsigned long request, struct ifreq *ifr, const char *name)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc, err;

    if (fd < 0) {
        return -1;
    }
    snprintf(ifr->ifr_name, IFNAMSIZ, "%s", name);
    rc = ioctl(fd, request, ifr);
    err = errno;
    close(fd);
    errno = err;
    return rc < 0 ? -1 : 0;
}

static void netif_read(struct lab_netif *n)
{
    struct ifreq ifr = {0};
    struct in_addr in;
    char path[64], line[16];

    if (netif_ioctl(SIOCGIFFLAGS, &ifr, n->name) == 0) {
        n->flags = (unsigned short)ifr.ifr_flags;
    }
    if (netif_ioctl(SIOCGIFMTU, &ifr, n->name) == 0) {
        n->mtu = ifr.ifr_mtu;
    }
    if (netif_ioctl(SIOCGIFADDR, &ifr, n->name) == 0) {
        memcpy(&in, (char *)&ifr.ifr_addr + offsetof(struct sockaddr_in, sin_addr), sizeof(in));
        inet_ntop(AF_INET, &in, n->addr, sizeof(n->addr));
    }
    snprintf(path, sizeof(path), "/sys/class/net/%s/carrier", n->name);
    n->carrier = lab_file_line(path, line, sizeof(line)) == 0 && strcmp(line, "1") == 0;
}

int lab_netif_find(const char *mac, struct lab_netif *out)
{
    DIR *d = opendir("/sys/class/net");
    struct dirent *e;
    char path[512], line[32];
    bool found = false;

    if (d == NULL) {
        return -1;
    }
    while (!found && (e = readdir(d)) != NULL) {
        snprintf(path, sizeof(path), "/sys/class/net/%s/address", e->d_name);
        if (e->d_name[0] != '.' && strlen(e->d_name) < IFNAMSIZ &&
            lab_file_line(path, line, sizeof(line)) == 0 && strcmp(line, mac) == 0) {
            memset(out, 0, sizeof(*out));
            strcpy(out->name, e->d_name);
            out->index = if_nametoindex(out->name);
            netif_read(out);
            found = true;
        }
    }
    closedir(d);
    errno = ENODEV;
    return found ? 0 : -1;
}

int lab_netif_rename(const char *name, const char *new_name)
{
    struct ifreq ifr = {0};

    snprintf(ifr.ifr_newname, IFNAMSIZ, "%s", new_name);
    return netif_ioctl(SIOCSIFNAME, &ifr, name);
}

int lab_netif_up(const char *name, bool up)
{
    struct ifreq ifr = {0};

    if (netif_ioctl(SIOCGIFFLAGS, &ifr, name) != 0) {
        return -1;
    }
    ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
    return netif_ioctl(SIOCSIFFLAGS, &ifr, name);
}

int lab_netif_mtu(const char *name, int mtu)
{
    struct ifreq ifr = {.ifr_mtu = mtu};

    return netif_ioctl(SIOCSIFMTU, &ifr, name);
}

int lab_netif_address(const char *name, const char *addr)
{
    struct sockaddr_in sin = {.sin_family = AF_INET}, mask = {.sin_family = AF_INET};
    struct ifreq ifr = {0};

    if (inet_pton(AF_INET, addr, &sin.sin_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&ifr.ifr_addr, &sin, sizeof(sin));
    if (netif_ioctl(SIOCSIFADDR, &ifr, name) != 0) {
        return -1;
    }
    mask.sin_addr.s_addr = htonl(0xffffff00);
    memcpy(&ifr.ifr_netmask, &mask, sizeof(mask));
    return netif_ioctl(SIOCSIFNETMASK, &ifr, name);
}

/* A netlink request being built. */
struct nl_request {
    union {
        struct nlmsghdr nh;
        char bytes[512];
    };
};

static void *nl_start(struct nl_request *q, uint16_t type, uint16_t flags, size_t fixed)
{
    memset(q, 0, sizeof(*q));
    q->nh.nlmsg_type = type;
    q->nh.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    q->nh.nlmsg_len = (uint32_t)NLMSG_LENGTH(fixed);
    return NLMSG_DATA(&q->nh);
}

static void nl_attr(struct nl_request *q, uint16_t type, const void *data, size_t len)
{
    struct nlattr *a = (struct nlattr *)(q->bytes + NLMSG_ALIGN(q->nh.nlmsg_len));

    a->nla_type = type;
    a->nla_len = (uint16_t)(NLA_HDRLEN + len);
    memcpy((char *)a + NLA_HDRLEN, data, len);
    q->nh.nlmsg_len = NLMSG_ALIGN(q->nh.nlmsg_len) + (uint32_t)NLA_ALIGN(a->nla_len);
}

static void nl_attr_text(struct nl_request *q, uint16_t type, const char *text)
{
    nl_attr(q, type, text, strlen(text) + 1);
}

/* Sends @q and takes the kernel's answer. */
static int nl_call(int protocol, struct nl_request *q)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol), err = 0;
    union {
        struct nlmsghdr nh;
        char bytes[4096];
    } answer;

    if (fd < 0) {
        return -1;
    }
    if (sendto(fd, q, q->nh.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0) {
        err = errno;
    }
    while (err == 0) {
        ssize_t n = recv(fd, &answer, sizeof(answer), 0);
        if (n < 0) {
            err = errno == EINTR ? 0 : errno;
        } else if ((size_t)n >= NLMSG_LENGTH(sizeof(struct nlmsgerr)) &&
                   answer.nh.nlmsg_type == NLMSG_ERROR) {
            err = -((struct nlmsgerr *)NLMSG_DATA(&answer.nh))->error;
            break;
        }
    }
    close(fd);
    errno = err;
    return err == 0 ? 0 : -1;
}

int lab_netif_netns(unsigned index, int netns_fd)
{
    struct nl_request q;
    struct ifinfomsg *ifi = nl_start(&q, RTM_NEWLINK, 0, sizeof(*ifi));

    ifi->ifi_index = (int)index;
    nl_attr(&q, IFLA_NET_NS_FD, &netns_fd, sizeof(netns_fd));
    return nl_call(NETLINK_ROUTE, &q);
}

int lab_netif_qdisc_reset(unsigned index)
{
    struct nl_request q;
    struct tcmsg *tc = nl_start(&q, RTM_DELQDISC, 0, sizeof(*tc));

    tc->tcm_ifindex = (int)index;
    tc->tcm_parent = TC_H_ROOT;
    /* The kernel has two words for "only the default is there". */
    return nl_call(NETLINK_ROUTE, &q) == 0 || errno == ENOENT || errno == EINVAL ? 0 : -1;
}

int lab_netif_monitor(void)
{
    struct sockaddr_nl sa = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

int lab_rdma_add(const char *device, const char *netif)
{
    struct nl_request q;

    nl_start(&q, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK), 0, 0);
    nl_attr_text(&q, RDMA_NLDEV_ATTR_DEV_NAME, device);
    nl_attr_text(&q, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
    nl_attr_text(&q, RDMA_NLDEV_ATTR_NDEV_NAME, netif);
    return nl_call(NETLINK_RDMA, &q);
}

/* One row of the list of RDMA devices: its index when its name is @device, else -1. */
static int64_t rdma_row_index(struct nlmsghdr *nh, const char *device)
{
    struct nlattr *a = NLMSG_DATA(nh);
    long left = (long)NLMSG_PAYLOAD(nh, 0);
    uint32_t index = 0;
    bool mine = false;

    while (left >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= left) {
        const char *data = (const char *)a + NLA_HDRLEN;
        if ((a->nla_type & NLA_TYPE_MASK) == RDMA_NLDEV_ATTR_DEV_INDEX) {
            memcpy(&index, data, sizeof(index));
        } else if ((a->nla_type & NLA_TYPE_MASK) == RDMA_NLDEV_ATTR_DEV_NAME) {
            mine = strcmp(data, device) == 0;
        }
        left -= NLA_ALIGN(a->nla_len);
        a = (struct nlattr *)((char *)a + NLA_ALIGN(a->nla_len));
    }
    return mine ? (int64_t)index : -1;
}

/* The number by which netlink calls @device, or -1. */
static int64_t rdma_index(const char *device)
{
    struct nl_request q;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    union {
        struct nlmsghdr nh;
        char bytes[16384];
    } answer;
    int64_t index = -1;
    bool more;

    if (fd < 0) {
        return -1;
    }
    nl_start(&q, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET), NLM_F_DUMP, 0);
    more = sendto(fd, &q, q.nh.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) > 0;
    while (more) {
        ssize_t n = recv(fd, &answer, sizeof(answer), 0);
        struct nlmsghdr *nh = &answer.nh;
        for (more = n > 0; more && NLMSG_OK(nh, (size_t)n); nh = NLMSG_NEXT(nh, n)) {
            more = nh->nlmsg_type != NLMSG_DONE && nh->nlmsg_type != NLMSG_ERROR;
            if (more && index < 0) {
                index = rdma_row_index(nh, device);
            }
        }
    }
    close(fd);
    return index;
}

int lab_rdma_del(const char *device)
{
    struct nl_request q;
    int64_t found = rdma_index(device);
    uint32_t index = (uint32_t)found;

    if (found < 0) {
        errno = ENODEV;
        return -1;
    }
    nl_start(&q, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_DELLINK), 0, 0);
    nl_attr(&q, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
    return nl_call(NETLINK_RDMA, &q);
}

/* Whether programs can find the device: its verbs half goes first. */
static bool rdma_has_verbs(const char *device)
{
    DIR *d = opendir("/sys/class/infiniband_verbs");
    struct dirent *e;
    char path[512], line[64];
    bool found = false;

    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/%s/ibdev", e->d_name);
        found = lab_file_line(path, line, sizeof(line)) == 0 && strcmp(line, device) == 0;
    }
    if (d != NULL) {
        closedir(d);
    }
    return found;
}

void lab_rdma_state(const char *device, const char *addr, char *out, size_t size)
{
    char path[128], line[64], want[64];
    unsigned a[4] = {0};
    const char *word;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/state", device);
    if (lab_file_line(path, line, sizeof(line)) != 0) {
        snprintf(out, size, "none");
        return;
    }
    if (!rdma_has_verbs(device)) {
        snprintf(out, size, "leaving");
        return;
    }
    word = strchr(line, ' ');
    snprintf(out, size, "%s", word != NULL ? word + 1 : line);
    sscanf(addr, "%u.%u.%u.%u", &a[0], &a[1], &a[2], &a[3]);
    snprintf(want, sizeof(want), "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0] & 255,
             a[1] & 255, a[2] & 255, a[3] & 255);
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gids/1", device);
    if (lab_file_line(path, line, sizeof(line)) != 0 || strcmp(line, want) != 0) {
        snprintf(out + strlen(out), size - strlen(out), "-nogid");
    }
}
