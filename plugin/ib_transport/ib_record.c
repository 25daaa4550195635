#include "ib_record.h"

#include <arpa/inet.h>

int ib_record_post(struct ib_path *p, const struct ibv_send_wr *wr, uint32_t imm)
{
    unsigned slot = p->nrecords++ % IB_RECORDS;
    struct ib_record *copy = &((struct ib_records *)(p->mem.ring + 1))->at[slot];
    struct ibv_sge sge = {
        .addr = (uintptr_t)copy, .length = sizeof(*copy), .lkey = p->mem.ring_mr->lkey};
    struct ibv_send_wr tail = {
        .wr_id = ib_wr_id(IB_WR_RECORD, ib_wr_part(wr->wr_id), ib_wr_value(wr->wr_id)),
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .send_flags =
            IBV_SEND_SIGNALED | (sizeof(*copy) <= p->cap.max_inline ? IBV_SEND_INLINE : 0),
        .imm_data = htonl(imm),
        .wr.rdma = {.remote_addr = p->mem.peer_ring + slot * sizeof(*copy),
                    .rkey = p->mem.peer_ring_key}};
    struct ibv_send_wr data = *wr, *bad;

    data.wr_id = ib_wr_id(IB_WR_BULK, ib_wr_part(wr->wr_id), ib_wr_value(wr->wr_id));
    data.opcode = IBV_WR_RDMA_WRITE;
    data.send_flags = 0;
    data.next = &tail;
    *copy = (struct ib_record){.imm = imm, .bytes = wr->sg_list->length};
    return ib_verbs_err(ibv_post_send(p->qp, &data, &bad));
}

int ib_record_take(struct ib_path *p, const struct ibv_wc *wc, uint32_t imm, uint32_t *bytes)
{
    struct ib_record *slot, r;

    if (p->mem.records == NULL) {
        return -1;
    }
    slot = &p->mem.records->at[p->nrecords++ % IB_RECORDS];
    /* written by the NIC before the completion that the caller has polled */
    r.imm = __atomic_load_n(&slot->imm, __ATOMIC_ACQUIRE);
    r.bytes = __atomic_load_n(&slot->bytes, __ATOMIC_RELAXED);
    *slot = (struct ib_record){0};
    *bytes = r.bytes;
    return r.imm == imm && wc->byte_len == sizeof(r) ? 0 : -1;
}
