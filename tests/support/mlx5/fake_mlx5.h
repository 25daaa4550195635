/* What the stand-in for libmlx5.so.1 was asked for; its one object, looked up with dlsym(). */
#ifndef FAKE_MLX5_H
#define FAKE_MLX5_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct fake_mlx5 {
    unsigned calls, early; /* early: not in RTS */
    struct ibv_qp *qp;     /* of the last call */
    uint8_t port;
    int err; /* what calls return */
};

#endif
