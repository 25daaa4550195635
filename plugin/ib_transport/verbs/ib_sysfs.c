#include "ib_sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* First line of a file without its end; -1 when it cannot be read. */
static int line_read(const char *path, char *out, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return -1;
    }
    n = read(fd, out, len - 1);
    close(fd);
    if (n <= 0) {
        return -1; /* an empty slot of a GID table refuses to be read */
    }
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

char *ib_sysfs_pci_path(const char *ibdev_path)
{
    char link[PATH_MAX];

    if (snprintf(link, sizeof(link), "%s/device", ibdev_path) >= (int)sizeof(link)) {
        return NULL;
    }
    return realpath(link, NULL);
}

/* Every RDMA device has it, from its registration to its end. */
#define PRESENCE "node_guid"

int ib_sysfs_device_open(const char *ibdev_path)
{
    int dir = open(ibdev_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir >= 0 && faccessat(dir, PRESENCE, F_OK, 0) != 0) {
        close(dir);
        return -1;
    }
    return dir;
}

bool ib_sysfs_device_has_left(int dir)
{
    return dir >= 0 && faccessat(dir, PRESENCE, F_OK, 0) != 0 &&
           (errno == ENOENT || errno == ENODEV);
}

int ib_sysfs_numa_node(const char *pci_path)
{
    char path[PATH_MAX], text[32];

    if (pci_path == NULL ||
        snprintf(path, sizeof(path), "%s/numa_node", pci_path) >= (int)sizeof(path)) {
        return -1;
    }
    if (line_read(path, text, sizeof(text)) != 0) {
        return -1;
    }
    return (int)strtol(text, NULL, 10);
}

int ib_sysfs_roce_version(const char *ibdev_path, int port, int index)
{
    char path[PATH_MAX], text[32];

    if (snprintf(path, sizeof(path), "%s/ports/%d/gid_attrs/types/%d", ibdev_path, port, index) >=
            (int)sizeof(path) ||
        line_read(path, text, sizeof(text)) != 0) {
        return 0;
    }
    if (strcmp(text, "RoCE v2") == 0) {
        return 2;
    }
    return strcmp(text, "IB/RoCE v1") == 0 || strcmp(text, "RoCE v1") == 0;
}

static int name_add(const char *name, char (*names)[IB_NETDEV_MAX], int count, int max)
{
    size_t len = strlen(name);

    if (len == 0 || len >= IB_NETDEV_MAX || count >= max) {
        return count;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return count;
        }
    }
    memcpy(names[count], name, len + 1);
    return count + 1;
}

int ib_sysfs_netdevs(const char *ibdev_path, int port, char (*names)[IB_NETDEV_MAX], int count,
                     int max)
{
    char path[PATH_MAX], text[32];
    struct dirent *e;
    DIR *d;

    /* RoCE: an interface per GID, also VLANs and bonds above the port; the first entries are enough
     * to name the port's own */
    for (int i = 0; i < 8; i++) {
        if (snprintf(path, sizeof(path), "%s/ports/%d/gid_attrs/ndevs/%d", ibdev_path, port, i) <
                (int)sizeof(path) &&
            line_read(path, text, sizeof(text)) == 0) {
            count = name_add(text, names, count, max);
        }
    }
    if (snprintf(path, sizeof(path), "%s/device/net", ibdev_path) >= (int)sizeof(path)) {
        return count;
    }
    d = opendir(path);
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.') {
            count = name_add(e->d_name, names, count, max);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return count;
}

const char **ib_sysfs_names_pack(char (*names)[IB_NETDEV_MAX], int count)
{
    size_t head = ((size_t)count + 1) * sizeof(char *);
    const char **list = malloc(head + (size_t)count * IB_NETDEV_MAX);
    char *text;

    if (list == NULL) {
        return NULL;
    }
    text = (char *)list + head;
    for (int i = 0; i < count; i++, text += IB_NETDEV_MAX) {
        memcpy(text, names[i], IB_NETDEV_MAX);
        list[i] = text;
    }
    list[count] = NULL;
    return list;
}

bool ib_sysfs_has_peer_memory(const char *root)
{
    static const char *const places[] = {"/sys/kernel/mm/memory_peers/nv_mem/version",
                                         "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
                                         "/sys/module/nvidia_peermem/version"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (snprintf(path, sizeof(path), "%s%s", root, places[i]) < (int)sizeof(path) &&
            access(path, F_OK) == 0) {
            return 1;
        }
    }
    return 0;
}

/* What stands in front of the /sys of the tree that the device brings. */
static bool root_find(const char *ibdev_path, char root[PATH_MAX])
{
    static const char below[] = "/sys/class/infiniband/";
    const char *at = strstr(ibdev_path, below), *next;

    for (; at != NULL && (next = strstr(at + 1, below)) !=
                             NULL;) { /* the last: what stands in front may hold anything */
        at = next;
    }
    root[0] = '\0';
    return at == NULL ||
           snprintf(root, PATH_MAX, "%.*s", (int)(at - ibdev_path), ibdev_path) < PATH_MAX;
}

bool ib_sysfs_device_has_peer_memory(const char *ibdev_path)
{
    char root[PATH_MAX];

    return root_find(ibdev_path, root) && ib_sysfs_has_peer_memory(root);
}

static int bond_read(const char *root, const char *netdev, const char *what, char *out, size_t len)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/sys/class/net/%s/bonding/%s", root, netdev, what);

    return n < 0 || n >= (int)sizeof(path) ? -1 : line_read(path, out, len);
}

int ib_sysfs_bond_ports(const char *ibdev_path, const char *netdev)
{
    char root[PATH_MAX], text[512];
    int n = 0;

    if (netdev[0] == '\0' || !root_find(ibdev_path, root) ||
        bond_read(root, netdev, "mode", text, sizeof(text)) != 0 ||
        (strncmp(text, "balance-xor ", 12) != 0 && strncmp(text, "802.3ad ", 8) != 0) ||
        bond_read(root, netdev, "slaves", text, sizeof(text)) != 0) {
        return 0;
    }
    for (const char *at = text; *at; at++) {
        n += *at != ' ' && (at[1] == ' ' || at[1] == '\0');
    }
    return n;
}
