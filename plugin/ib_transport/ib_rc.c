#include "ib_rc.h"

#include <errno.h>
#include <string.h>

#include "base/r2_config.h"
#include "ib_transport/verbs/ib_gid.h"
#include "ib_transport/verbs/ib_lag.h"
#include "ib_way_port.h"

#define PSN_MASK 0xffffff

void ib_rc_ah_fill(const struct r2_config *cfg, uint8_t traffic_class, const struct ib_addr *local,
                   const struct ib_addr *peer, struct ibv_ah_attr *ah)
{
    int ib = local->link_layer == IBV_LINK_LAYER_INFINIBAND;
    int far = ib && ib_gid_subnet(local->gid) != ib_gid_subnet(peer->gid);

    ah->port_num = 0;
    ah->sl = (uint8_t)(cfg->ib_sl >= 0                    ? cfg->ib_sl
                       : ib && traffic_class <= IB_SL_MAX ? traffic_class
                                                          : 0);
    ah->dlid = far && ib_gid_flid(peer->gid) ? ib_gid_flid(peer->gid) : peer->lid;
    if (local->link_layer == IBV_LINK_LAYER_ETHERNET || peer->lid == 0 || far || local->grh ||
        (ib && cfg->ib_is_global)) {
        ah->is_global = 1;
        memcpy(ah->grh.dgid.raw, peer->gid, 16);
        ah->grh.sgid_index = local->gid_index;
        ah->grh.hop_limit = 255;
        ah->grh.traffic_class = (uint8_t)(cfg->ib_tc >= 0 ? cfg->ib_tc : ib ? 0 : traffic_class);
    }
}

int ib_rc_init(struct ib_nics *nics, int nic, struct ibv_qp *qp, unsigned access)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = nics->nic[nic].port, .qp_access_flags = access};
    struct ib_addr addr;

    ib_nic_addr_get(nics, nic, &addr);
    if (addr.mtu == 0) {
        return EADDRNOTAVAIL;
    }
    attr.pkey_index = addr.pkey_index;
    return ib_verbs_err(nics->v->modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static int to_rtr(struct ib_nics *nics, int nic, struct ibv_qp *qp, const struct ib_rc *rc,
                  const struct ib_rc_peer *peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .dest_qp_num = peer->qpn,
                               .rq_psn = peer->psn & PSN_MASK,
                               .max_dest_rd_atomic = rc->reads,
                               .min_rnr_timer = rc->rnr_timer};
    struct ib_addr local;

    ib_nic_addr_get(nics, nic, &local);
    attr.path_mtu = local.mtu < peer->port->mtu ? local.mtu : peer->port->mtu;
    ib_rc_ah_fill(nics->cfg, rc->traffic_class, &local, peer->port, &attr.ah_attr);
    attr.ah_attr.port_num = nics->nic[nic].port;
    /* the mask says that there is no alternate path: a device of last resort alone reads it */
    memcpy(attr.alt_ah_attr.grh.dgid.raw, peer->port->second, sizeof(peer->port->second));
    ib_port_way_take(nics->ways, rc->way, &local, peer->port, &attr.ah_attr);
    return ib_verbs_err(nics->v->modify_qp(qp, &attr,
                                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                               IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

int ib_rc_connect(struct ib_nics *nics, int nic, struct ibv_qp *qp, const struct ib_rc *rc,
                  const struct ib_rc_peer *peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = rc->timeout,
                               .retry_cnt = rc->retry_cnt,
                               .rnr_retry = rc->rnr_retry,
                               .sq_psn = rc->psn & PSN_MASK,
                               .max_rd_atomic = rc->reads};
    int err = to_rtr(nics, nic, qp, rc, peer);

    if (err != 0) {
        return err;
    }
    err = ib_verbs_err(nics->v->modify_qp(qp, &attr,
                                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                              IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                              IBV_QP_MAX_QP_RD_ATOMIC));
    if (err == 0) {
        ib_lag_place(nics, nic, qp, rc->way);
    }
    return err;
}

int ib_rc_error(const struct ib_nics *nics, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    return ib_verbs_err(nics->v->modify_qp(qp, &attr, IBV_QP_STATE));
}
