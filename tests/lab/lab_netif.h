/* Network interfaces and Soft-RoCE devices inside a VM, by ioctl and netlink: no process is
 * started, which in an emulated VM costs tens of milliseconds. For root inside a VM only. Functions
 * return 0, or -1 with errno, unless said otherwise. */
#ifndef R2_LAB_NETIF_H
#define R2_LAB_NETIF_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lab_netif {
    char name[IFNAMSIZ];
    unsigned index;
    unsigned flags; /* IFF_* */
    int mtu;
    char addr[16]; /* IPv4, dotted; empty when there is none */
    bool carrier;
};

/* Finds the interface with hardware address @mac ("52:54:00:..."), whatever its name. errno ENODEV
 * when there is none.
 */
int lab_netif_find(const char *mac, struct lab_netif *out);

int lab_netif_rename(const char *name, const char *new_name); /* the interface must be down */
int lab_netif_up(const char *name, bool up);
int lab_netif_mtu(const char *name, int mtu);
int lab_netif_address(const char *name, const char *addr); /* /24 */
int lab_netif_netns(unsigned index, int netns_fd);
/* Back to the default queueing discipline: takes netem and tbf away. Nothing there is fine. */
int lab_netif_qdisc_reset(unsigned index);

/* A socket that becomes readable when an interface comes, goes or changes. The caller closes it. */
int lab_netif_monitor(void);

/* Soft-RoCE. rdma_add waits for the device to be registered. rdma_del is answered by the kernel
 * only when the last user has closed the device, so it blocks as long. */
int lab_rdma_add(const char *device, const char *netif);
int lab_rdma_del(const char *device);

/* The device's state: "none"; "leaving" (deleted, but a process has it open: listed for programs no
 * more, its name still taken); or the port's as the kernel names it ("ACTIVE", "DOWN"), plus
 * "-nogid" as long as the RoCEv2 GID of
 * @addr is not at index 1. */
void lab_rdma_state(const char *device, const char *addr, char *out, size_t size);

#endif
