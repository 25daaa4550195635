/* A second connection between the two processes of a rig; beside race_rig.h or relay_rig.h, behind
 * it. */
#ifndef SECOND_CONN_H
#define SECOND_CONN_H

static struct r2_comm *second[2];
static struct r2_listen *second_listen;

static inline void second_connect(void)
{
    uint8_t handle[R2_NET_HANDLE_SIZE];

    second[0] = second[1] = NULL;
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_listen(rig->side[1].inst, 0, handle, &second_listen), R2_OK);
    for (int n = 0; n < 100000 && !(second[0] && second[1]); n++) {
        if (!second[0]) {
            rig_enter(&rig->side[0]);
            ck_assert_int_eq(r2_net_connect(rig->side[0].inst, 0, handle, &second[0]), R2_OK);
        }
        if (!second[1]) {
            rig_enter(&rig->side[1]);
            ck_assert_int_eq(r2_net_accept(second_listen, &second[1]), R2_OK);
        }
        rig_turn(rig, 10 * RIG_US);
    }
    ck_assert(second[0] && second[1]);
}

static inline void second_close(void)
{
    for (int i = 0; i < 2; i++) {
        rig_enter(&rig->side[i]);
        r2_net_close(second[i]);
    }
    r2_net_close_listen(second_listen);
    rig_run(rig, 100 * RIG_MS);
}

#endif
