/* Stand-in for rdma-core's libmlx5.so.1: what bonds need of it, which is written down. */
#include <errno.h>
#include <string.h>

#include "fake_mlx5.h"

__attribute__((visibility("default"))) struct fake_mlx5 fake_mlx5;

#define API __attribute__((visibility("default")))

API bool mlx5dv_is_supported(struct ibv_device *device);
API int mlx5dv_modify_qp_lag_port(struct ibv_qp *qp, uint8_t port);

bool mlx5dv_is_supported(struct ibv_device *device)
{
    return strncmp(device->name, "mlx5", 4) == 0;
}

#ifndef FAKE_MLX5_OLD
/* As the real one, which takes queue pairs in RTS alone (modify_qp_lag_port in rdma-core's
 * providers/mlx5/mlx5.c). */
int mlx5dv_modify_qp_lag_port(struct ibv_qp *qp, uint8_t port)
{
    fake_mlx5.calls++;
    if (qp->state != IBV_QPS_RTS) {
        fake_mlx5.early++;
        return EOPNOTSUPP;
    }
    fake_mlx5.qp = qp;
    fake_mlx5.port = port;
    return fake_mlx5.err;
}
#endif
