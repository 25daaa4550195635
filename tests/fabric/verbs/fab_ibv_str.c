/* Names of verbs' enumerations. */
#include "fab_ibv_priv.h"

#define NAME(table, i)                                                                             \
    ((size_t)(i) < sizeof(table) / sizeof *(table) && (table)[i] ? (table)[i] : "unknown")

const char *fab_ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "work request flushed",
        [IBV_WC_MW_BIND_ERR] = "memory window bind error",
        [IBV_WC_BAD_RESP_ERR] = "bad response error",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retries exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "receiver-not-ready retries exceeded",
        [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
        [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
        [IBV_WC_REM_ABORT_ERR] = "aborted error",
        [IBV_WC_INV_EECN_ERR] = "invalid EE context number",
        [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
        [IBV_WC_GENERAL_ERR] = "general error",
    };

    return NAME(names, status);
}

const char *fab_ibv_event_type_str(enum ibv_event_type event)
{
    static const char *const names[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error",
        [IBV_EVENT_QP_FATAL] = "queue pair failed",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request at the queue pair",
        [IBV_EVENT_QP_ACCESS_ERR] = "access violation at the queue pair",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_PATH_MIG] = "path migrated",
        [IBV_EVENT_PATH_MIG_ERR] = "path migration failed",
        [IBV_EVENT_DEVICE_FATAL] = "device failed",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_LID_CHANGE] = "LID change",
        [IBV_EVENT_PKEY_CHANGE] = "P_Key change",
        [IBV_EVENT_SM_CHANGE] = "SM change",
        [IBV_EVENT_SRQ_ERR] = "SRQ failed",
        [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
        [IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
        [IBV_EVENT_CLIENT_REREGISTER] = "client must register again",
        [IBV_EVENT_GID_CHANGE] = "GID table change",
        [IBV_EVENT_WQ_FATAL] = "WQ fatal",
    };

    return NAME(names, event);
}

const char *fab_ibv_node_type_str(enum ibv_node_type type)
{
    return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

const char *fab_ibv_port_state_str(enum ibv_port_state state)
{
    static const char *const names[] = {
        [IBV_PORT_NOP] = "none",      [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "init",     [IBV_PORT_ARMED] = "armed",
        [IBV_PORT_ACTIVE] = "active", [IBV_PORT_ACTIVE_DEFER] = "active defer",
    };

    return NAME(names, state);
}

int fab_ibv_rate_to_mbps(enum ibv_rate rate)
{
    static const struct {
        enum ibv_rate rate;
        int mbps;
    } rates[] = {
        {IBV_RATE_2_5_GBPS, 2500}, {IBV_RATE_5_GBPS, 5000},     {IBV_RATE_10_GBPS, 10000},
        {IBV_RATE_20_GBPS, 20000}, {IBV_RATE_30_GBPS, 30000},   {IBV_RATE_40_GBPS, 40000},
        {IBV_RATE_60_GBPS, 60000}, {IBV_RATE_80_GBPS, 80000},   {IBV_RATE_120_GBPS, 120000},
        {IBV_RATE_14_GBPS, 14062}, {IBV_RATE_56_GBPS, 56250},   {IBV_RATE_112_GBPS, 112500},
        {IBV_RATE_25_GBPS, 25781}, {IBV_RATE_100_GBPS, 103125}, {IBV_RATE_200_GBPS, 206250}};

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        if (rates[i].rate == rate) {
            return rates[i].mbps;
        }
    }
    return -1;
}
