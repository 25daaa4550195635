/* Exported verbs that the fabric's devices do not have, or that need no device. */
#include "tests/fabric/shm/shm_export.h"

#include "tests/fabric/shm/shm_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#undef ibv_resolve_eth_l2_from_gid

struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ib_user_path_rec;

static void *none(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

/* --- address handles and multicast: datagrams only --- */

SHM_DEFINE_11(struct ibv_ah *, ibv_create_ah, (struct ibv_pd * pd, struct ibv_ah_attr *attr))
{
    return none();
}

SHM_DEFINE_11(int, ibv_destroy_ah, (struct ibv_ah * ah))
{
    return EOPNOTSUPP;
}

SHM_DEFINE_11(int, ibv_attach_mcast, (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid))
{
    return EOPNOTSUPP;
}

SHM_DEFINE_11(int, ibv_detach_mcast, (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid))
{
    return EOPNOTSUPP;
}

SHM_EXPORT int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
                                   struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
    return EOPNOTSUPP;
}

SHM_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                                struct ibv_grh *grh, uint8_t port)
{
    return none();
}

SHM_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *ctx, struct ibv_ah_attr *attr,
                                           uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
    return EOPNOTSUPP;
}

/* --- objects of other processes, extended queue pairs --- */

SHM_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len,
                            int access)
{
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

SHM_EXPORT struct ibv_context *ibv_import_device(int fd)
{
    return none();
}

SHM_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *ctx, uint32_t handle)
{
    return none();
}

SHM_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
}

SHM_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    return none();
}

SHM_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
}

SHM_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *ctx, uint32_t handle)
{
    return none();
}

SHM_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
}

SHM_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    return none();
}

SHM_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return EOPNOTSUPP;
}

SHM_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return EOPNOTSUPP;
}

/* No promise: polling the last byte of a message is not enough on every device that this one stands
 * for. */
SHM_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    return 0;
}

/* --- fork: nothing is pinned, so nothing needs protection --- */

SHM_EXPORT int ibv_dontfork_range(void *base, size_t size);
int ibv_dontfork_range(void *base, size_t size)
{
    return 0;
}

SHM_EXPORT int ibv_dofork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size)
{
    return 0;
}

SHM_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}

/* --- kernel formats: there is no kernel part --- */

SHM_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src)
{
    memset(dst, 0, sizeof(*dst));
}

SHM_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src)
{
    memset(dst, 0, sizeof(*dst));
}

SHM_EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst,
                                            struct ib_user_path_rec *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src)
{
    memset(dst, 0, sizeof(*dst));
}

SHM_EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst,
                                          struct ibv_sa_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src)
{
}

/* --- sysfs --- */

SHM_EXPORT const char *ibv_get_sysfs_path(void);
const char *ibv_get_sysfs_path(void)
{
    static char path[SEG_PATH_MAX + 32];
    struct shm_engine *e = shm_engine_get();

    if (e == NULL) {
        return "/sys";
    }
    snprintf(path, sizeof(path), "%s/host%d/sys", e->map.dir, e->host);
    return path;
}

/* The file's text without its line feed; its length, or -1. */
SHM_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
    char path[512];
    ssize_t n;

    if (size == 0 || snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
        return -1;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    n = read(fd, buf, size - 1);
    close(fd);
    if (n <= 0) {
        return -1;
    }
    n -= buf[n - 1] == '\n';
    buf[n] = '\0';
    return (int)n;
}

/* --- link rates --- */

static const struct {
    enum ibv_rate rate;
    int mult, mbps; /* multiple of 2.5 Gb/s, 0: none; Mb/s */
} rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},     {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},    {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},  {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500}, {IBV_RATE_14_GBPS, 0, 14062},
    {IBV_RATE_56_GBPS, 0, 56250},     {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750},   {IBV_RATE_25_GBPS, 0, 25781},
    {IBV_RATE_100_GBPS, 0, 103125},   {IBV_RATE_200_GBPS, 0, 206250},
    {IBV_RATE_300_GBPS, 0, 309375},
};

#define RATES (int)(sizeof(rates) / sizeof(rates[0]))

SHM_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
    for (int i = 0; i < RATES; i++) {
        if (rates[i].rate == rate && rates[i].mult != 0) {
            return rates[i].mult;
        }
    }
    return -1;
}

SHM_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
    for (int i = 0; i < RATES; i++) {
        if (rates[i].mult == mult && mult != 0) {
            return rates[i].rate;
        }
    }
    return IBV_RATE_MAX;
}

SHM_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
    for (int i = 0; i < RATES; i++) {
        if (rates[i].mbps == mbps) {
            return rates[i].rate;
        }
    }
    return IBV_RATE_MAX;
}
