/* The lab's names and addresses, for the programs inside and outside. Hosts are h0 to h2; their
 * NICs n0 to n3 (data) and m (management), and a control NIC without a name, which no program but
 * the agent sees. */
#ifndef R2_LAB_NAMES_H
#define R2_LAB_NAMES_H

#include <stdio.h>
#include <string.h>

#define LAB_HOSTS_MAX 3
#define LAB_RAILS     4
#define LAB_NICS      (LAB_RAILS + 1)
#define LAB_MGMT      LAB_RAILS
#define LAB_CONTROL   (LAB_RAILS + 1)

/* Number of the host, or -1. */
static inline int lab_host_parse(const char *text)
{
    return text[0] == 'h' && text[1] >= '0' && text[1] < '0' + LAB_HOSTS_MAX && text[2] == '\0'
               ? text[1] - '0'
               : -1;
}

/* Number of the NIC (n0 to n3: 0 to 3, m: LAB_MGMT), or -1. */
static inline int lab_nic_parse(const char *text)
{
    if (strcmp(text, "m") == 0) {
        return LAB_MGMT;
    }
    return text[0] == 'n' && text[1] >= '0' && text[1] < '0' + LAB_RAILS && text[2] == '\0'
               ? text[1] - '0'
               : -1;
}

static inline const char *lab_nic_name(int k)
{
    static const char *const name[LAB_NICS] = {"n0", "n1", "n2", "n3", "m"};

    return name[k];
}

/* The interface inside the VM. */
static inline void lab_nic_netif(int k, char out[16])
{
    snprintf(out, 16, k == LAB_MGMT ? "mgmt" : "r2d%u", (unsigned)k & 7);
}

static inline void lab_nic_rdma(int k, char out[16])
{
    snprintf(out, 16, "rxe%u", (unsigned)k & 7);
}

static inline void lab_nic_mac(int host, int k, char out[18])
{
    snprintf(out, 18, "52:54:00:a0:%02x:%02x", (unsigned)host & 255, (unsigned)k & 255);
}

/* All networks are /24; one per rail, which reach each other nowhere. */
static inline void lab_nic_address(int host, int k, char out[16])
{
    if (k == LAB_MGMT) {
        snprintf(out, 16, "10.9.0.%u", (unsigned)(host + 1) & 7);
    } else {
        snprintf(out, 16, "10.10.%u.%u", (unsigned)k & 7, (unsigned)(host + 1) & 7);
    }
}

/* QEMU's names: the device, whose netdev is "net-" and the same, and its place on the PCI bus,
 * where it returns to after a plug. */
static inline void lab_nic_device(int k, char out[16])
{
    snprintf(out, 16, "dev-%s", k == LAB_CONTROL ? "ctl" : lab_nic_name(k));
}

static inline unsigned lab_nic_slot(int k)
{
    return 0x10u + (unsigned)k;
}

#endif
