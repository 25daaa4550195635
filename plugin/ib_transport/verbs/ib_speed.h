/*
 * Port rates. Pure.
 */
#ifndef IB_SPEED_H
#define IB_SPEED_H

/* Mb/s of a port from ibv_port_attr's active_speed and active_width, counted as NCCL counts them; 0
 * when either says nothing. */
int ib_speed_mbps(int active_speed, int active_width);

/* The number a name ends in ("mlx5_12": 12), -1 when there is none or it is absurdly long. */
int ib_name_trailing_number(const char *name);

#endif
