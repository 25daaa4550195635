#include <stdbool.h>

#include "fo_record.h"

#define MEMBER(T, M) ((struct T *)0)->M
#define F(T, M)                                                                                    \
    {                                                                                              \
        FO_UINT, sizeof(MEMBER(T, M)), offsetof(struct T, M), 0, 0, 0                              \
    }
#define TEXT(T, M)                                                                                 \
    {                                                                                              \
        FO_TEXT, sizeof(MEMBER(T, M)), offsetof(struct T, M), 0, 0, 0                              \
    }
#define BYTES(T, M)                                                                                \
    {                                                                                              \
        FO_BYTES, sizeof(MEMBER(T, M)), offsetof(struct T, M), 0, 0, 0                             \
    }
#define ADDR(T, M)                                                                                 \
    {                                                                                              \
        FO_ADDR, 0, offsetof(struct T, M), 0, 0, 0                                                 \
    }
#define TAIL(T, M)                                                                                 \
    {                                                                                              \
        FO_TAIL, 1, offsetof(struct T, M), 0, 0, 0                                                 \
    }
#define ROWS(MAX, C)                                                                               \
    {                                                                                              \
        FO_LIST, 0, 0, 0, MAX, C                                                                   \
    }
#define LIST(T, M, MAX, C)                                                                         \
    {                                                                                              \
        FO_LIST, sizeof(MEMBER(T, M)), offsetof(struct T, M), 0, MAX, C                            \
    }
/* Columns: array @A of the struct, or member @M of each of its elements. */
#define COLUMN(KIND, T, A)                                                                         \
    {                                                                                              \
        KIND, sizeof(MEMBER(T, A[0])), offsetof(struct T, A), sizeof(MEMBER(T, A[0])), 0, 0        \
    }
#define COLUMN_OF(KIND, T, A, M)                                                                   \
    {                                                                                              \
        KIND, (uint8_t)sizeof(MEMBER(T, A[0].M)), offsetof(struct T, A[0].M),                      \
            sizeof(MEMBER(T, A[0])), 0, 0                                                          \
    }

/* --- fields --- */

const struct fo_field fo_addr_fields[FO_ADDR_FIELDS] = {F(ib_path_addr, qpn),
                                                        F(ib_path_addr, psn),
                                                        F(ib_path_addr, nic_gen),
                                                        F(ib_path_addr, ring_addr),
                                                        F(ib_path_addr, ring_key),
                                                        F(ib_path_addr, port.link_layer),
                                                        F(ib_path_addr, port.mtu),
                                                        F(ib_path_addr, port.lid),
                                                        F(ib_path_addr, port.lmc),
                                                        BYTES(ib_path_addr, port.gid),
                                                        BYTES(ib_path_addr, port.second),
                                                        F(ib_path_addr, ece.vendor),
                                                        F(ib_path_addr, ece.options),
                                                        F(ib_path_addr, way)};

static const struct fo_field req_fields[] = {F(fo_req, src),
                                             F(fo_req, listen),
                                             F(fo_req, dev),
                                             F(fo_req, nnics),
                                             F(fo_req, qps),
                                             F(fo_req, digest),
                                             TEXT(fo_req, host),
                                             LIST(fo_req, nnics, FO_MAX_NICS, 4),
                                             COLUMN_OF(FO_TEXT, fo_req, nic, name),
                                             COLUMN_OF(FO_UINT, fo_req, nic, rail),
                                             COLUMN_OF(FO_UINT, fo_req, nic, usable),
                                             COLUMN_OF(FO_UINT, fo_req, nic, gen),
                                             TAIL(fo_req, traffic_class)};

static const struct fo_field rep_fields[] = {F(fo_rep, dst),
                                             F(fo_rep, src),
                                             F(fo_rep, dev),
                                             F(fo_rep, npaths),
                                             F(fo_rep, rq_depth),
                                             F(fo_rep, digest),
                                             TEXT(fo_rep, host),
                                             LIST(fo_rep, npaths, IB_MAX_PATHS, 5),
                                             COLUMN(FO_TEXT, fo_rep, nic_name),
                                             COLUMN_OF(FO_UINT, fo_rep, path, s_nic),
                                             COLUMN_OF(FO_UINT, fo_rep, path, r_nic),
                                             COLUMN_OF(FO_UINT, fo_rep, path, ok),
                                             COLUMN_OF(FO_ADDR, fo_rep, path, addr)};

static const struct fo_field conf_fields[] = {F(fo_conf, dst),
                                              F(fo_conf, src),
                                              F(fo_conf, npaths),
                                              LIST(fo_conf, npaths, IB_MAX_PATHS, 4),
                                              COLUMN_OF(FO_UINT, fo_conf, path, s_nic),
                                              COLUMN_OF(FO_UINT, fo_conf, path, r_nic),
                                              COLUMN_OF(FO_UINT, fo_conf, path, ok),
                                              COLUMN_OF(FO_ADDR, fo_conf, path, addr)};

static const struct fo_field ready_fields[] = {F(fo_ready, dst), F(fo_ready, src), F(fo_ready, up)};

static const struct fo_field refuse_fields[] = {F(fo_refuse, dst), F(fo_refuse, src),
                                                F(fo_refuse, listen), TEXT(fo_refuse, why)};

static const struct fo_field nic_down_fields[] = {F(fo_nic_down, nic), F(fo_nic_down, reason),
                                                  F(fo_nic_down, gen)};

static const struct fo_field down_fields[] = {F(fo_down, dst),
                                              F(fo_down, src),
                                              F(fo_down, inc),
                                              F(fo_down, path),
                                              F(fo_down, reason),
                                              F(fo_down, flags),
                                              F(fo_down, wc_status),
                                              F(fo_down, live.n),
                                              F(fo_down, live.base),
                                              LIST(fo_down, live.n, R2_LEDGER_WINDOW, 1),
                                              COLUMN(FO_UINT, fo_down, live.mask)};

static const struct fo_field fenced_fields[] = {F(fo_fenced, dst),
                                                F(fo_fenced, src),
                                                F(fo_fenced, inc),
                                                F(fo_fenced, path),
                                                F(fo_fenced, flags),
                                                F(fo_fenced, n),
                                                F(fo_fenced, acked),
                                                F(fo_fenced, base),
                                                LIST(fo_fenced, n, R2_LEDGER_WINDOW, 1),
                                                COLUMN(FO_UINT, fo_fenced, mask)};

static const struct fo_field settled_fields[] = {F(fo_settled, dst),
                                                 F(fo_settled, src),
                                                 F(fo_settled, inc),
                                                 F(fo_settled, path),
                                                 F(fo_settled, flags),
                                                 F(fo_settled, live.n),
                                                 F(fo_settled, live.base),
                                                 LIST(fo_settled, live.n, R2_LEDGER_WINDOW, 1),
                                                 COLUMN(FO_UINT, fo_settled, live.mask)};

static const struct fo_field bye_ok_fields[] = {F(fo_bye_ok, dst), F(fo_bye_ok, src)};

static const struct fo_field probe_fields[] = {
    F(fo_probe, nic),     F(fo_probe, peer_nic),   F(fo_probe, flags),      F(fo_probe, inc),
    F(fo_probe, for_inc), ADDR(fo_probe, addr),    F(fo_probe, guid),       F(fo_probe, port),
    TEXT(fo_probe, name), F(fo_probe, inband_qpn), F(fo_probe, inband_psn), F(fo_probe, alt_qpn),
    F(fo_probe, alt_psn), F(fo_probe, alt_way),    F(fo_probe, turn)};

/* OPEN_UP has all but the last. */
static const struct fo_field open_fields[] = {F(fo_open, dst), F(fo_open, src), F(fo_open, inc),
                                              F(fo_open, path), ADDR(fo_open, addr)};

static const struct fo_field delivery_query_fields[] = {
    F(fo_delivery_query, dst),  F(fo_delivery_query, src),  F(fo_delivery_query, inc),
    F(fo_delivery_query, path), F(fo_delivery_query, mask), F(fo_delivery_query, seq)};

static const struct fo_field cts_request_fields[] = {F(fo_cts_request, dst), F(fo_cts_request, src),
                                                     F(fo_cts_request, seq)};

static const struct fo_field failback_fields[] = {F(fo_failback, dst), F(fo_failback, src),
                                                  F(fo_failback, inc), F(fo_failback, path)};

static const struct fo_field drain_fields[] = {F(fo_drain, nics), F(fo_drain, gen)};

/* 124 bytes. Every byte of it is the same wherever it goes: nothing is put right on the way, what
 * is wrong is refused. */
static const struct fo_field report_fields[] = {
    F(probe_report, subject.a),  F(probe_report, subject.b), F(probe_report, subject.pa),
    F(probe_report, subject.pb), F(probe_report, version),   F(probe_report, origin),
    F(probe_report, since_ms),   F(probe_report, blame),     F(probe_report, confidence),
    BYTES(probe_report, gid),    BYTES(probe_report, host),  BYTES(probe_report, nic)};

static const struct fo_field report_ok_fields[] = {
    F(fo_report_ok, subject.a),  F(fo_report_ok, subject.b), F(fo_report_ok, subject.pa),
    F(fo_report_ok, subject.pb), F(fo_report_ok, version),   F(fo_report_ok, origin)};

/* 57 bytes: places of auxiliary ports that were not asked are zero. */
static const struct fo_field locate_fields[] = {F(fo_locate, nic),
                                                F(fo_locate, peer_nic),
                                                F(fo_locate, flags),
                                                F(fo_locate, id),
                                                F(fo_locate, for_id),
                                                F(fo_locate, end.port),
                                                F(fo_locate, end.loop),
                                                F(fo_locate, end.aux),
                                                F(fo_locate, end.aux_n),
                                                F(fo_locate, direct),
                                                F(fo_locate, n_aux),
                                                ROWS(FO_LOCATE_AUX, 3),
                                                COLUMN_OF(FO_UINT, fo_locate, aux, guid),
                                                COLUMN_OF(FO_UINT, fo_locate, aux, port),
                                                COLUMN_OF(FO_UINT, fo_locate, aux, outcome)};

/* 51 bytes. */
static const struct fo_field load_fields[] = {
    F(fo_load, nic),   F(fo_load, peer_nic), F(fo_load, flags),
    F(fo_load, moved), F(fo_load, queued),   F(fo_load, front),
    F(fo_load, age),   F(fo_load, rate),     F(fo_load, at)};

/* Any rate is taken: who uses it says what is believable (balance_plan.h). */
static const struct fo_field rates_fields[] = {F(fo_rates, dst),
                                               F(fo_rates, src),
                                               F(fo_rates, npaths),
                                               LIST(fo_rates, npaths, IB_MAX_PATHS, 2),
                                               COLUMN(FO_UINT, fo_rates, port),
                                               COLUMN(FO_UINT, fo_rates, reach)};

/* 118 bytes. */
static const struct fo_field hang_fields[] = {F(fo_hang, flags),
                                              F(fo_hang, rank),
                                              F(fo_hang, pid),
                                              F(fo_hang, report.kind),
                                              F(fo_hang, report.hops),
                                              F(fo_hang, report.waiting),
                                              F(fo_hang, report.age_ms),
                                              F(fo_hang, report.since_ms),
                                              F(fo_hang, report.root.id),
                                              F(fo_hang, report.root.rank),
                                              F(fo_hang, report.root.pid),
                                              TEXT(fo_hang, report.root.host),
                                              TEXT(fo_hang, report.nic),
                                              F(fo_hang, report.low),
                                              F(fo_hang, report.low_age_ms),
                                              F(fo_hang, report.stood_ms)};

static const struct fo_field way_fields[] = {F(fo_way, nic), F(fo_way, peer_nic), F(fo_way, way),
                                             F(fo_way, age_ms)};

/* --- what a field may be, beyond its width; counts of lists are in range --- */

static int req_valid(const union fo_body *b)
{
    return b->req.dev < b->req.nnics && b->req.qps > 0 && b->req.qps <= FO_MAX_QPS;
}

static int paths_valid(const struct fo_path_ent *path, int n)
{
    int ok = n > 0;

    for (int i = 0; i < n; i++) {
        ok &= path[i].s_nic < FO_MAX_NICS && path[i].r_nic < FO_MAX_NICS;
    }
    return ok;
}

static int rep_valid(const union fo_body *b)
{
    return paths_valid(b->rep.path, b->rep.npaths) && b->rep.rq_depth >= 32 &&
           b->rep.rq_depth <= 256;
}

static int conf_valid(const union fo_body *b)
{
    return paths_valid(b->conf.path, b->conf.npaths);
}

static int nic_down_valid(const union fo_body *b)
{
    return b->nic_down.nic < FO_MAX_NICS;
}

static int down_valid(const union fo_body *b)
{
    return b->down.path < IB_MAX_PATHS && b->down.live.base <= UINT64_MAX - R2_LEDGER_WINDOW;
}

static int fenced_valid(const union fo_body *b)
{
    return b->fenced.path < IB_MAX_PATHS;
}

static int settled_valid(const union fo_body *b)
{
    return b->settled.path < IB_MAX_PATHS && b->settled.live.base <= UINT64_MAX - R2_LEDGER_WINDOW;
}

int fo_port_valid(const struct ib_path_addr *a)
{
    return a->port.mtu >= IBV_MTU_256 && a->port.mtu <= IBV_MTU_4096 && a->port.lmc <= IB_LMC_MAX;
}

static int probe_valid(const union fo_body *b)
{
    const struct fo_probe *m = &b->probe;

    return m->nic < FO_MAX_NICS && m->peer_nic < FO_MAX_NICS && m->inc != 0 &&
           m->port != PROBE_GOSSIP_PROCESS && m->inband_qpn <= FO_QPN_MAX &&
           m->inband_psn <= FO_QPN_MAX && m->alt_qpn <= FO_QPN_MAX && m->alt_psn <= FO_QPN_MAX &&
           m->addr.way <= IB_WAYS_MAX && m->alt_way <= IB_WAYS_MAX && fo_port_valid(&m->addr);
}

static int open_up_valid(const union fo_body *b)
{
    return b->open.path < IB_MAX_PATHS && b->open.inc >= 2;
}

static int open_valid(const union fo_body *b)
{
    return open_up_valid(b) && fo_port_valid(&b->open.addr);
}

static int delivery_query_valid(const union fo_body *b)
{
    return b->delivery_query.path < IB_MAX_PATHS;
}

static int failback_valid(const union fo_body *b)
{
    return b->failback.path < IB_MAX_PATHS && b->failback.inc != 0;
}

static int report_valid(const union fo_body *b)
{
    return probe_report_is_valid(&b->report);
}

static int report_ok_valid(const union fo_body *b)
{
    return probe_subject_valid(&b->report_ok.subject) && b->report_ok.version > 0 &&
           b->report_ok.version <= PROBE_GOSSIP_VERSION_MAX;
}

static int locate_valid(const union fo_body *b)
{
    const struct fo_locate *m = &b->locate;
    int ok = m->nic < FO_MAX_NICS && m->peer_nic < FO_MAX_NICS && m->end.port < PROBE_PORTS &&
             m->end.loop < PROBE_OUTCOMES && m->end.aux < PROBE_OUTCOMES &&
             m->direct < PROBE_OUTCOMES && m->n_aux <= FO_LOCATE_AUX;

    for (int i = 0; i < FO_LOCATE_AUX; i++) {
        ok &= m->aux[i].outcome < PROBE_OUTCOMES;
    }
    return ok;
}

static int load_valid(const union fo_body *b)
{
    return b->load.nic < FO_MAX_NICS && b->load.peer_nic < FO_MAX_NICS;
}

static int rates_valid(const union fo_body *b)
{
    return b->rates.npaths > 0;
}

static int hang_valid(const union fo_body *b)
{
    return probe_hang_report_is_valid(&b->hang.report);
}

static int way_valid(const union fo_body *b)
{
    return b->way.nic < FO_MAX_NICS && b->way.peer_nic < FO_MAX_NICS && b->way.way > 0 &&
           b->way.way <= IB_WAYS_MAX;
}

/* --- records --- */

static const struct fo_record records[FO_MSG_END] = {
#define RECORD(NAME, M, FIELDS, ADDRESSED, STRICT, VALID)                                          \
    [FO_MSG_##NAME] = {#NAME,     FIELDS, sizeof(FIELDS) / sizeof(FIELDS[0]),                      \
                       ADDRESSED, STRICT, sizeof(((union fo_body *)0)->M),                         \
                       VALID}
    RECORD(REQ, req, req_fields, 0, 0, req_valid),
    RECORD(REP, rep, rep_fields, 1, 0, rep_valid),
    RECORD(CONF, conf, conf_fields, 1, 0, conf_valid),
    RECORD(READY, ready, ready_fields, 1, 0, NULL),
    RECORD(REFUSE, refuse, refuse_fields, 1, 0, NULL),
    RECORD(NIC_DOWN, nic_down, nic_down_fields, 0, 0, nic_down_valid),
    RECORD(NIC_DOWN_OK, nic_down, nic_down_fields, 0, 0, nic_down_valid),
    RECORD(DOWN, down, down_fields, 1, 0, down_valid),
    RECORD(FENCED, fenced, fenced_fields, 1, 0, fenced_valid),
    RECORD(SETTLED, settled, settled_fields, 1, 0, settled_valid),
    RECORD(BYE, fenced, fenced_fields, 1, 0, fenced_valid),
    RECORD(BYE_OK, bye_ok, bye_ok_fields, 1, 0, NULL),
    RECORD(GONE, bye_ok, bye_ok_fields, 1, 0, NULL),
    RECORD(PROBE, probe, probe_fields, 0, 0, probe_valid),
    RECORD(OPEN, open, open_fields, 1, 0, open_valid),
    RECORD(OPEN_OK, open, open_fields, 1, 0, open_valid),
    [FO_MSG_OPEN_UP] = {"OPEN_UP", open_fields, sizeof(open_fields) / sizeof(open_fields[0]) - 1, 1,
                        0, sizeof(struct fo_open), open_up_valid},
    RECORD(DELIVERY_QUERY, delivery_query, delivery_query_fields, 1, 0, delivery_query_valid),
    RECORD(DRAIN, drain, drain_fields, 0, 0, NULL),
    RECORD(DRAIN_OK, drain, drain_fields, 0, 0, NULL),
    RECORD(CTS_REQUEST, cts_request, cts_request_fields, 1, 0, NULL),
    RECORD(REPORT, report, report_fields, 0, 1, report_valid),
    RECORD(REPORT_OK, report_ok, report_ok_fields, 0, 1, report_ok_valid),
    RECORD(LOCATE, locate, locate_fields, 0, 1, locate_valid),
    RECORD(LOAD, load, load_fields, 0, 0, load_valid),
    RECORD(FAILBACK, failback, failback_fields, 1, 0, failback_valid),
    RECORD(FAILBACK_OK, failback, failback_fields, 1, 0, failback_valid),
    RECORD(RATES, rates, rates_fields, 1, 0, rates_valid),
    RECORD(HANG, hang, hang_fields, 0, 1, hang_valid),
    RECORD(WAY, way, way_fields, 0, 0, way_valid),
#undef RECORD
};

const struct fo_record *fo_record_of(unsigned type)
{
    return type < FO_MSG_END && records[type].name ? &records[type] : NULL;
}

const char *fo_type_name(enum fo_type t)
{
    const struct fo_record *rec = fo_record_of((unsigned)t);

    return rec ? rec->name : "?";
}

bool fo_is_addressed(enum fo_type t)
{
    const struct fo_record *rec = fo_record_of((unsigned)t);

    return rec && rec->addressed;
}
