/*
 * Which network interface the out-of-band channel uses: NCCL's syntax of NCCL_SOCKET_IFNAME, a
 * preference where NCCL has none.
 */
#ifndef OOB_IFSEL_H
#define OOB_IFSEL_H

#include <stddef.h>
#include <stdint.h>

#define OOB_IFNAME_MAX 16
#define OOB_IF_MAX     128

struct oob_if {
    char name[OOB_IFNAME_MAX];
    uint8_t family;   /* 4, 6 */
    uint8_t up;       /* up and running */
    uint32_t scope;   /* link-local IPv6 only */
    uint8_t addr[16]; /* network order, IPv4 in the first four */
};

/* Does @spec ("" or "[^][=]name[:port],...") choose @name? An empty list chooses everything, as in
 * NCCL. Pure. */
int oob_ifsel_match(const char *spec, const char *name);

/*
 * Index of the interface to use, or -1 with the reason in @why. Pure.
 * @family: "", "AF_INET", "AF_INET6". A list without '^' is obeyed in the order of @list, as NCCL
 * does. Where the choice is ours (empty, or '^'): first what is not in @avoid, then that; then
 * link-local addresses in the same order, which a management controller's interface has, too; then
 * bridges of containers and virtual machines (docker0, virbr0, cni0, ...), which have the
 * same address on each host; then lo.
 */
int oob_ifsel_pick(const struct oob_if *list, int n, const char *spec, const char *family,
                   const char *const *avoid, char *why, size_t why_len);

/*
 * The address of the interface of @list[@i] that peers are told where they may differ in families
 * from each other: IPv4 where it has that and @family does not say otherwise, else IPv6; of either
 * one that is link-local only where there is no other. Its index in @list. Pure.
 */
int oob_ifsel_address(const struct oob_if *list, int n, int i, const char *family);

/* The addresses of this host into @list, in the kernel's order; their number, or -1 with errno. Any
 * thread. */
int oob_ifsel_read(struct oob_if *list, int max);

#endif
