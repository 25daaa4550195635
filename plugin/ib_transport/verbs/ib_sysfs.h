/*
 * What sysfs knows of an RDMA device and verbs does not tell. All paths start at the device's own
 * directory (ibv_device.ibdev_path), never at a fixed place, so that a device from elsewhere brings
 * its own tree. Any thread; files are in memory, nothing waits.
 */
#ifndef IB_SYSFS_H
#define IB_SYSFS_H

#include <stdbool.h>
#include <stddef.h>

#define IB_NETDEV_MAX 16 /* with the terminating zero, as IF_NAMESIZE */

/* Real path of the PCI function behind the device; NULL when there is none (software devices).
 * Caller frees. */
char *ib_sysfs_pci_path(const char *ibdev_path);

/*
 * The device's own directory, held open: it stays that of this very device whatever the device is
 * called later and whatever takes its name. -1 when there is none, or nothing in it tells that it
 * is there. Closed by the caller.
 */
int ib_sysfs_device_open(const char *ibdev_path);

/* Whether the device of that directory has left sysfs: the kernel does that last. 0 for -1, and for
 * any doubt. */
bool ib_sysfs_device_has_left(int dir);

/* NUMA node of a PCI function, -1 unknown. NULL accepted. */
int ib_sysfs_numa_node(const char *pci_path);

/* RoCE version of a GID table entry: 1, 2; 0 where sysfs does not say. */
int ib_sysfs_roce_version(const char *ibdev_path, int port, int index);

/* Adds the names of the network interfaces of a port to @names[@count..@max), each once; returns
 * the new count. */
int ib_sysfs_netdevs(const char *ibdev_path, int port, char (*names)[IB_NETDEV_MAX], int count,
                     int max);

/* The ports of a bond that spreads over all of them (balance-xor, 802.3ad); 0:  is none such.
 * Looked up in the tree that the device brings. */
int ib_sysfs_bond_ports(const char *ibdev_path, const char *netdev);

/* Names as one block: pointers, then text. NULL terminated; NULL when out of memory. Caller frees
 * with one free(). */
const char **ib_sysfs_names_pack(char (*names)[IB_NETDEV_MAX], int count);

/* Whether a kernel module that lets RDMA devices reach GPU memory is loaded; @root is "" outside of
 * tests. */
bool ib_sysfs_has_peer_memory(const char *root);

/* The same for one device, in the tree that it brings: the modules of this kernel do nothing for a
 * NIC in software. */
bool ib_sysfs_device_has_peer_memory(const char *ibdev_path);

#endif
