/*
 * Names by which hardware drivers (libmlx5 and others) and programs of before 2007 bind to
 * libibverbs.
 *
 * Programs that are linked to a driver's library load only if these exist. No driver ever gets a
 * device here, so none of them is called with an object: they answer that the operation is not
 * supported.
 */
#include "tests/fabric/shm/shm_export.h"

#include "tests/fabric/verbs/fab_ibv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define NOT_SUPPORTED(name)                                                                        \
    SHM_EXPORT int name(void);                                                                     \
    int name(void)                                                                                 \
    {                                                                                              \
        return EOPNOTSUPP;                                                                         \
    }

#define NO_OBJECT(name)                                                                            \
    SHM_EXPORT void *name(void);                                                                   \
    void *name(void)                                                                               \
    {                                                                                              \
        errno = EOPNOTSUPP;                                                                        \
        return NULL;                                                                               \
    }

#define NOTHING(name)                                                                              \
    SHM_EXPORT void name(void);                                                                    \
    void name(void)                                                                                \
    {                                                                                              \
    }

/* ---- commands to the kernel (IBVERBS_PRIVATE_34) ---- */
NOT_SUPPORTED(ibv_cmd_advise_mr)
NOT_SUPPORTED(ibv_cmd_alloc_dm)
NOT_SUPPORTED(ibv_cmd_alloc_mw)
NOT_SUPPORTED(ibv_cmd_alloc_pd)
NOT_SUPPORTED(ibv_cmd_attach_mcast)
NOT_SUPPORTED(ibv_cmd_close_xrcd)
NOT_SUPPORTED(ibv_cmd_create_ah)
NOT_SUPPORTED(ibv_cmd_create_counters)
NOT_SUPPORTED(ibv_cmd_create_cq)
NOT_SUPPORTED(ibv_cmd_create_cq_ex)
NOT_SUPPORTED(ibv_cmd_create_flow)
NOT_SUPPORTED(ibv_cmd_create_flow_action_esp)
NOT_SUPPORTED(ibv_cmd_create_qp)
NOT_SUPPORTED(ibv_cmd_create_qp_ex)
NOT_SUPPORTED(ibv_cmd_create_qp_ex2)
NOT_SUPPORTED(ibv_cmd_create_rwq_ind_table)
NOT_SUPPORTED(ibv_cmd_create_srq)
NOT_SUPPORTED(ibv_cmd_create_srq_ex)
NOT_SUPPORTED(ibv_cmd_create_wq)
NOT_SUPPORTED(ibv_cmd_dealloc_mw)
NOT_SUPPORTED(ibv_cmd_dealloc_pd)
NOT_SUPPORTED(ibv_cmd_dereg_mr)
NOT_SUPPORTED(ibv_cmd_destroy_ah)
NOT_SUPPORTED(ibv_cmd_destroy_counters)
NOT_SUPPORTED(ibv_cmd_destroy_cq)
NOT_SUPPORTED(ibv_cmd_destroy_flow)
NOT_SUPPORTED(ibv_cmd_destroy_flow_action)
NOT_SUPPORTED(ibv_cmd_destroy_qp)
NOT_SUPPORTED(ibv_cmd_destroy_rwq_ind_table)
NOT_SUPPORTED(ibv_cmd_destroy_srq)
NOT_SUPPORTED(ibv_cmd_destroy_wq)
NOT_SUPPORTED(ibv_cmd_detach_mcast)
NOT_SUPPORTED(ibv_cmd_free_dm)
NOT_SUPPORTED(ibv_cmd_get_context)
NOT_SUPPORTED(ibv_cmd_modify_cq)
NOT_SUPPORTED(ibv_cmd_modify_flow_action_esp)
NOT_SUPPORTED(ibv_cmd_modify_qp)
NOT_SUPPORTED(ibv_cmd_modify_qp_ex)
NOT_SUPPORTED(ibv_cmd_modify_srq)
NOT_SUPPORTED(ibv_cmd_modify_wq)
NOT_SUPPORTED(ibv_cmd_open_qp)
NOT_SUPPORTED(ibv_cmd_open_xrcd)
NOT_SUPPORTED(ibv_cmd_poll_cq)
NOT_SUPPORTED(ibv_cmd_post_recv)
NOT_SUPPORTED(ibv_cmd_post_send)
NOT_SUPPORTED(ibv_cmd_post_srq_recv)
NOT_SUPPORTED(ibv_cmd_query_context)
NOT_SUPPORTED(ibv_cmd_query_device_any)
NOT_SUPPORTED(ibv_cmd_query_mr)
NOT_SUPPORTED(ibv_cmd_query_port)
NOT_SUPPORTED(ibv_cmd_query_qp)
NOT_SUPPORTED(ibv_cmd_query_srq)
NOT_SUPPORTED(ibv_cmd_read_counters)
NOT_SUPPORTED(ibv_cmd_reg_dm_mr)
NOT_SUPPORTED(ibv_cmd_reg_dmabuf_mr)
NOT_SUPPORTED(ibv_cmd_reg_mr)
NOT_SUPPORTED(ibv_cmd_req_notify_cq)
NOT_SUPPORTED(ibv_cmd_rereg_mr)
NOT_SUPPORTED(ibv_cmd_resize_cq)
NOT_SUPPORTED(execute_ioctl)
NOT_SUPPORTED(verbs_init_cq)
NO_OBJECT(_verbs_init_and_alloc_context)
NO_OBJECT(verbs_open_device)
NOTHING(verbs_register_driver_34)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)
NOTHING(__verbs_log)

/* Its version is not the default one: nothing new binds to it. */
SHM_EXPORT void old_ibv_register_driver(void);
__asm__(".symver old_ibv_register_driver,ibv_register_driver@IBVERBS_1.1");
void old_ibv_register_driver(void)
{
}

SHM_EXPORT unsigned int __ioctl_final_num_attrs(void);
unsigned int __ioctl_final_num_attrs(void)
{
    return 0;
}

SHM_EXPORT int ibv_read_ibdev_sysfs_file(void);
int ibv_read_ibdev_sysfs_file(void)
{
    errno = ENOENT;
    return -1;
}

SHM_EXPORT int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index,
                                  int *type);
int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index, int *type)
{
    return fab_ibv_query_gid_type(ctx, port, index, type);
}

extern bool verbs_allow_disassociate_destroy;
SHM_EXPORT bool verbs_allow_disassociate_destroy;

/* ---- the first ABI (IBVERBS_1.0): other structs, no devices ---- */

#define OLD(ret, name, value)                                                                      \
    SHM_EXPORT ret old_##name(void);                                                               \
    __asm__(".symver old_" #name "," #name "@IBVERBS_1.0");                                        \
    ret old_##name(void)                                                                           \
    {                                                                                              \
        errno = EOPNOTSUPP;                                                                        \
        return value;                                                                              \
    }

OLD(int, ibv_ack_async_event, EOPNOTSUPP)
OLD(int, ibv_ack_cq_events, EOPNOTSUPP)
OLD(void *, ibv_alloc_pd, NULL)
OLD(int, ibv_attach_mcast, EOPNOTSUPP)
OLD(int, ibv_close_device, EOPNOTSUPP)
OLD(void *, ibv_create_ah, NULL)
OLD(void *, ibv_create_cq, NULL)
OLD(void *, ibv_create_qp, NULL)
OLD(void *, ibv_create_srq, NULL)
OLD(int, ibv_dealloc_pd, EOPNOTSUPP)
OLD(int, ibv_dereg_mr, EOPNOTSUPP)
OLD(int, ibv_destroy_ah, EOPNOTSUPP)
OLD(int, ibv_destroy_cq, EOPNOTSUPP)
OLD(int, ibv_destroy_qp, EOPNOTSUPP)
OLD(int, ibv_destroy_srq, EOPNOTSUPP)
OLD(int, ibv_detach_mcast, EOPNOTSUPP)
OLD(int, ibv_free_device_list, EOPNOTSUPP)
OLD(int, ibv_get_async_event, EOPNOTSUPP)
OLD(int, ibv_get_cq_event, EOPNOTSUPP)
OLD(uint64_t, ibv_get_device_guid, 0)
OLD(void *, ibv_get_device_list, NULL)
OLD(void *, ibv_get_device_name, NULL)
OLD(int, ibv_modify_qp, EOPNOTSUPP)
OLD(int, ibv_modify_srq, EOPNOTSUPP)
OLD(void *, ibv_open_device, NULL)
OLD(int, ibv_query_device, EOPNOTSUPP)
OLD(int, ibv_query_gid, EOPNOTSUPP)
OLD(int, ibv_query_pkey, EOPNOTSUPP)
OLD(int, ibv_query_port, EOPNOTSUPP)
OLD(int, ibv_query_qp, EOPNOTSUPP)
OLD(int, ibv_query_srq, EOPNOTSUPP)
OLD(void *, ibv_reg_mr, NULL)
OLD(int, ibv_resize_cq, EOPNOTSUPP)
