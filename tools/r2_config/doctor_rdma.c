/* libibverbs, device files, NICs: what the plugin would see, by the plugin's own code. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ib_transport/verbs/ib_hca.h"
#include "ib_transport/verbs/ib_sysfs.h"
#include "base/r2_log.h"
#include "tools/r2_config/doctor_int.h"

#define TRIAL_BYTES (1u << 20)
#define LINES_MAX   64

static int have_verbs, nics_open;

/* Entries of @dir whose names begin with @prefix (of those that do not, with @prefix ""), without .
 * and .. */
static int entries_count(const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    int n = 0;

    if (d == NULL) {
        return 0;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    }
    closedir(d);
    return n;
}

/* Are the devices that verbs lists the kernel's? A software fabric brings a tree of its own. */
static bool is_kernel_device(const struct ibv_device *dev)
{
    return strncmp(dev->ibdev_path, "/sys/", 5) == 0;
}

/* What verbs lists, apart from what the plugin would take of it. */
static void devices_list(struct doctor *d)
{
    struct ibv_device **list;
    int n = 0;

    list = d->verbs.get_device_list(&n);
    if (list == NULL) {
        return; /* doctor_nics() will hear why */
    }
    for (int i = 0; i < n; i++) {
        d->kernel_nics += is_kernel_device(list[i]);
    }
    d->listed = n;
    d->verbs.free_device_list(list);
}

void doctor_verbs(struct doctor *d)
{
    struct link_map *map = NULL;
    char path[PATH_MAX], why[512], text[512];
    void *lib;

    doctor_path(d, "/sys/class/infiniband", path, sizeof(path));
    d->sysfs_devices = entries_count(path, "");
    if (ib_verbs_load(&d->verbs, why, sizeof(why)) != 0) {
        doctor_say(DOCTOR_FAIL, "libibverbs",
                   "install libibverbs1 and ibverbs-providers (rdma-core) in the job's image", "%s",
                   why);
        return;
    }
    have_verbs = 1;
    devices_list(d);
    lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    snprintf(text, sizeof(text), "it opens");
    if (lib && dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map) {
        snprintf(text, sizeof(text), "%.400s", map->l_name);
    }
    doctor_path(d, "/etc/libibverbs.d", path, sizeof(path));
    if (d->sysfs_devices > 0 && entries_count(path, "") == 0) {
        doctor_say(DOCTOR_WARN, "libibverbs", "install ibverbs-providers",
                   "%s, but no provider is configured in %s: it can drive no device", text, path);
    } else {
        doctor_say(DOCTOR_OK, "libibverbs", NULL, "%s", text);
    }
    if (map) {
        doctor_versions(d, map->l_name);
    }
}

void doctor_device_files(struct doctor *d)
{
    char dir[PATH_MAX], path[PATH_MAX + 300];
    int n = 0, opened = 0, refused = 0;
    DIR *files;

    if (d->listed > 0 && d->kernel_nics == 0) {
        doctor_say(DOCTOR_OK, "/dev/infiniband", NULL,
                   "not needed: the RDMA devices at hand are not the kernel's");
        return;
    }
    doctor_path(d, "/dev/infiniband", dir, sizeof(dir));
    files = opendir(dir);
    if (files == NULL) {
        if (d->sysfs_devices > 0) {
            doctor_say(DOCTOR_FAIL, "/dev/infiniband",
                       "give it to the container (docker: --device /dev/infiniband)",
                       "%s: %s, though the kernel has %d RDMA devices", dir, strerror(errno),
                       d->sysfs_devices);
        } else {
            doctor_say(DOCTOR_OK, "/dev/infiniband", NULL,
                       "not there, and the kernel has no RDMA device");
        }
        return;
    }
    for (struct dirent *e; (e = readdir(files)) != NULL;) {
        int fd;

        if (strncmp(e->d_name, "uverbs", 6) != 0) {
            continue;
        }
        n++;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            refused++;
            doctor_say(
                DOCTOR_WARN, "/dev/infiniband",
                errno == EACCES
                    ? "give the user read and write access (udev rule of rdma-core: mode 0666)"
                    : "if this process is to have it: the container's device list",
                "%s: %s", path, strerror(errno));
            continue;
        }
        opened++;
        close(fd);
    }
    closedir(files);
    if (n == 0) {
        doctor_say(d->sysfs_devices ? DOCTOR_FAIL : DOCTOR_WARN, "/dev/infiniband",
                   "modprobe ib_uverbs", "%s has no uverbs file", dir);
    } else if (opened == 0) {
        doctor_say(DOCTOR_FAIL, "/dev/infiniband", "see above",
                   "none of %d uverbs files can be opened", n);
    } else if (refused == 0) {
        doctor_say(DOCTOR_OK, "/dev/infiniband", NULL, "all %d uverbs files can be opened", n);
    }
}

/* --- NICs --- */

static char *lines[LINES_MAX];
static int line_count;

static void line_keep(enum r2_log_level level, const char *file, int line, const char *msg)
{
    static const char prefix[] = "NET/R2 : ";

    if (level > R2_LOG_INFO || line_count == LINES_MAX) {
        return;
    }
    msg += strncmp(msg, prefix, sizeof(prefix) - 1) == 0 ? sizeof(prefix) - 1 : 0;
    if (level == R2_LOG_WARN || strstr(msg, "left out")) {
        lines[line_count] = strdup(msg);
        line_count += lines[line_count] != NULL;
    }
}

static void none_say(struct doctor *d)
{
    char files[PATH_MAX];

    doctor_path(d, "/dev/infiniband", files, sizeof(files));
    if (d->listed > 0) {
        doctor_say(DOCTOR_FAIL, "NICs", "correct NCCL_IB_HCA, or see above",
                   "none of %d RDMA devices is used%s%s", d->listed,
                   d->values->cfg.ib_hca[0] ? "; NCCL_IB_HCA is " : "", d->values->cfg.ib_hca);
    } else if (d->sysfs_devices > 0 && entries_count(files, "uverbs") == 0) {
        doctor_say(DOCTOR_FAIL, "NICs",
                   "give the container its device files (docker: --device /dev/infiniband)",
                   "the kernel has %d RDMA devices, and this process no file of theirs",
                   d->sysfs_devices);
    } else if (d->sysfs_devices > 0) {
        doctor_say(DOCTOR_FAIL, "NICs",
                   "install the provider library of these NICs (ibverbs-providers)",
                   "the kernel has %d RDMA devices, libibverbs lists none", d->sysfs_devices);
    } else {
        doctor_say(DOCTOR_FAIL, "NICs", "load the NIC's driver; to try without NICs: softfab exec",
                   "the kernel has no RDMA device");
    }
}

static void gid_text(const uint8_t *raw, char *out, size_t len)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (memcmp(raw, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, raw + 12, out, (socklen_t)len);
    } else {
        inet_ntop(AF_INET6, raw, out, (socklen_t)len);
    }
}

/* A queue pair and a registration, as the plugin will want them. NULL, or what does not work, with
 * errno. */
static const char *trial_fails(const struct ib_verbs *v, struct ib_nic *nic)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    const char *fails = NULL;
    struct ibv_mr *mr = NULL;
    struct ibv_qp *qp = NULL;
    void *mem = mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int saved;

    errno = 0;
    init.send_cq = init.recv_cq = v->create_cq(nic->ctx, 2, NULL, NULL, 0);
    if (init.send_cq == NULL) {
        fails = "completion queue";
    } else if ((qp = v->create_qp(nic->pd, &init)) == NULL) {
        fails = "reliable connected queue pair";
    } else if (mem == MAP_FAILED ||
               (mr = v->reg_mr(nic->pd, mem, TRIAL_BYTES, IBV_ACCESS_LOCAL_WRITE)) == NULL) {
        fails = "registration of 1 MiB";
    }
    saved = errno;
    if (mr) {
        v->dereg_mr(mr);
    }
    if (qp) {
        v->destroy_qp(qp);
    }
    if (init.send_cq) {
        v->destroy_cq(init.send_cq);
    }
    if (mem != MAP_FAILED) {
        munmap(mem, TRIAL_BYTES);
    }
    errno = saved;
    return fails;
}

static void address_check(struct doctor *d, struct ib_nic *nic, const char *what)
{
    char gid[INET6_ADDRSTRLEN] = "?";
    struct ib_addr a;
    int version;

    ib_nic_addr_get(&d->nics, nic->index, &a);
    if (a.link_layer != IBV_LINK_LAYER_ETHERNET) {
        return; /* LIDs: there is nothing to choose */
    }
    gid_text(a.gid, gid, sizeof(gid));
    version = ib_sysfs_roce_version(nic->ctx->device->ibdev_path, nic->port, a.gid_index);
    if (version == 1) {
        doctor_say(DOCTOR_WARN, what,
                   "NCCL_IB_GID_INDEX of a RoCE v2 entry (show_gids, or /sys/class/infiniband)",
                   "GID %u (%s) is RoCE v1, which no router forwards", a.gid_index, gid);
    } else if (a.gid[0] == 0xfe && (a.gid[1] & 0xc0) == 0x80) {
        doctor_say(DOCTOR_WARN, what,
                   "give its network interface an address that other subnets know",
                   "GID %u (%s) is link-local", a.gid_index, gid);
    } else {
        doctor_say(DOCTOR_OK, what, NULL, "GID %u is %s%s%s", a.gid_index, gid,
                   version == 2 ? ", RoCE v2" : "",
                   d->values->cfg.ib_gid_index >= 0 ? ", as NCCL_IB_GID_INDEX says" : "");
    }
}

/* 1: the port is ACTIVE. */
static int nic_check(struct doctor *d, struct ib_nic *nic)
{
    int up = ib_nic_state_get(nic) == IB_NIC_UP;
    const char *fails, *place = nic->pci_path ? strrchr(nic->pci_path, '/') + 1 : "no PCI device";
    struct ibv_port_attr port;
    char what[IB_NAME_MAX + 8];

    snprintf(what, sizeof(what), "NIC %s", nic->name);
    memset(&port, 0, sizeof(port));
    if (!up && d->verbs.query_port(nic->ctx, nic->port, &port) == 0 &&
        port.state == IBV_PORT_ACTIVE) {
        doctor_say(
            DOCTOR_WARN, what,
            "correct NCCL_IB_GID_INDEX, NCCL_IB_ADDR_FAMILY or NCCL_IB_ADDR_RANGE, or give its network interface an address",
            "port %u is ACTIVE and has no address that can be used (%s)", nic->port, place);
    } else if (!up) {
        doctor_say(DOCTOR_WARN, what,
                   "check cable, switch port and (InfiniBand) the subnet manager",
                   "port %u is not ACTIVE (%s)", nic->port, place);
    } else {
        doctor_say(DOCTOR_OK, what, NULL, "port %u ACTIVE, %d Mb/s, rail %d, NUMA node %d, %s",
                   nic->port, nic->speed_mbps, nic->rail, nic->numa_node, place);
        address_check(d, nic, what);
    }
    fails = trial_fails(&d->verbs, nic);
    if (fails) {
        doctor_say(DOCTOR_FAIL, what,
                   errno == ENOMEM
                       ? "raise the memlock limit (ulimit -l unlimited, or CAP_IPC_LOCK)"
                       : "use a NIC with reliable connections, or its own plugin",
                   "%s: %s", fails, strerror(errno));
    }
    return up;
}

void doctor_nics(struct doctor *d)
{
    int up = 0;
    char why[512] = "";

    if (!have_verbs) {
        doctor_say(DOCTOR_FAIL, "NICs", "see above", "without libibverbs there are none");
        return;
    }
    r2_log_sink_set(line_keep);
    nics_open = ib_nics_open(&d->nics, &d->verbs, &d->values->cfg, why, sizeof(why)) == 0;
    r2_log_flush();
    r2_log_sink_set(NULL);
    for (int i = 0; i < line_count; i++) {
        doctor_say(DOCTOR_WARN, "NICs", "if it is to be used: permissions, driver, NCCL_IB_HCA",
                   "%s", lines[i]);
        free(lines[i]);
    }
    if (!nics_open) {
        doctor_say(DOCTOR_FAIL, "NICs", "modprobe ib_uverbs and the NIC's driver", "%s", why);
        return;
    }
    if (d->nics.count == 0) {
        none_say(d);
        return;
    }
    for (int i = 0; i < d->nics.count; i++) {
        up += nic_check(d, &d->nics.nic[i]);
        d->dmabuf |= (d->nics.nic[i].ptr_support & IB_PTR_DMABUF) != 0;
        d->peer_memory |= (d->nics.nic[i].ptr_support & IB_PTR_CUDA) != 0;
    }
    if (up == 0) {
        doctor_say(DOCTOR_FAIL, "NICs", "see above", "no port of %d can be used", d->nics.count);
    } else if (up == 1) {
        doctor_say(
            DOCTOR_WARN, "NICs", "let NCCL_IB_HCA name more, if there are; see above",
            "one port is ACTIVE, of %d that are used and %d devices that are listed: nothing can take over from it",
            d->nics.count, d->listed);
    } else {
        doctor_say(DOCTOR_OK, "NICs", NULL, "%d of %d ports are ACTIVE, %d devices are listed%s%s",
                   up, d->nics.count, d->listed,
                   d->values->cfg.ib_hca[0] ? "; NCCL_IB_HCA is " : "", d->values->cfg.ib_hca);
    }
}

void doctor_rdma_end(struct doctor *d)
{
    if (nics_open) {
        ib_nics_close(&d->nics);
        nics_open = 0;
    }
}
