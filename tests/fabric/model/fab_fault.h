/*
 * Faults: their text form, and what a link with faults does to a packet. Pure; used by both
 * engines.
 *
 *     h0:n1 down            port DOWN with PORT_ERR, packets dropped both ways; queue pairs stay as
 *                           they are and retry
 *     h0:n1 up              port ACTIVE with PORT_ACTIVE (if it was down); ends every blackhole and
 *                           send-error
 *     h0:n1 blackhole       packets dropped both ways, no event; blackhole-tx, blackhole-rx: one
 *                           way
 *     h0:n1 loss 1%         each packet leaving or reaching the NIC is lost with this chance
 *     h0:n1 corrupt 1%      the same: what fails the ICRC is dropped
 *     h0:n1 dup 1%          a packet leaving the NIC arrives twice with this chance
 *     h0:n1 delay 5ms       packets leaving the NIC take this much longer
 *     h0:n1 delay-to h2:n1  the delay of h0:n1 is that of packets to h2:n1, and other ports that
 * are named so, alone; until restore h0:n1 rate 20MB/s     the link has this rate from now on, both
 * ways h0:n1 ack-lost        acknowledgements (and read responses) leaving the NIC are lost,
 *                           requests are not
 *     h0:n1 hang            calls succeed, nothing moves or completes, no event; unhang: it goes
 *                           on, its own time having stood still. What arrives meanwhile is lost, or
 *                           waits (fab_nic_cfg.pauses)
 *     h0:n1 fatal           DEVICE_FATAL; every context open now is dead: calls give EIO, nothing
 *                           is flushed
 *     h0:n1 remove          the kernel takes the device away (unplugged, driver unbound, reset): as
 *                           fatal, whether the event comes is left to the engine, and the device
 *                           leaves the list and sysfs. No call tells it from a device that only
 *                           fails: the kernel answers EIO in both cases
 *     h0:n1 cut h2:n1       packets between these two ports are dropped both ways, no event: what
 *                           is between broke. Not ended by up; restore of either end ends it.
 *                           cut-tx: only those from h0:n1 to h2:n1
 *     h0:n1 heal h2:n1      ends both
 *     h0:n1 qp-error        every queue pair goes to ERR and is flushed, with QP_FATAL
 *     h0:n1 mr-fail         registrations fail with ENOMEM until restore; mr-fail 2: the next two
 *     h0:n1 call-error      calls that need the firmware (query_port, create, modify, register)
 *                           fail with EIO until restore; call-error 2: the next two. The data path
 *                           goes on, and the device with it
 *     h0:n1 gpu-dma-fail    memory of a GPU is registered, and whatever of it the NIC reads or
 *                           writes fails: as behind PCIe access control (ACS) or an IOMMU. Until
 *                           restore
 *     h0:n1 gid-change      the addresses of the NIC change, with GID_CHANGE; packets for the old
 *                           ones are dropped
 *     h0:n1 restore         ends every fault (also spelt clear). A device that was fatal, removed
 *                           or unplugged comes back for new contexts
 *     h0:n1 provider bnxt   the library of this device keeps its own account of queue pairs in ERR;
 *                           below. Not a failure: not ended by restore, but by `provider plain`
 *     h0:n1 silent-death    devices that die from now on (fatal, remove) do so as NICs whose driver
 *                           only the kernel can ask: posting succeeds and polling finds nothing,
 *                           for ever; other calls fail. Until restore
 *     h0:n1 mr-hang         who registers or deregisters memory stays inside until restore (with
 *                           threads; else nothing)
 *
 * What the Linux kernel's Soft-RoCE does and no other device (tests/lab/fabric-vs-kernel.md):
 *
 *     h0:n1 send-error      no route: a queue pair that puts a request on the wire gets
 *                           LOC_QP_OP_ERR for it once all before it is through, so at the latest
 *                           one time-out later; no event. Until up
 *     h0:n1 send-stuck      the queue pairs of now send nothing more, for ever, and report nothing:
 *                           no completion, no event, state RTS. They go on receiving. ERR flushes
 *                           them, RESET frees them
 *     h0:n1 unplug          GID_CHANGE; query_port and new contexts give ENODEV; GIDs are zero;
 *                           packets are dropped both ways, sends end as with send-error; all other
 *                           calls succeed. No DEVICE_FATAL. Not ended by up
 *     h0:n1 retry7-forever  retry_cnt 7 is without end: queue pairs that have it never fail by
 *                           time-out
 *     h0:n1 recv-kept       a receive posted in ERR is flushed only when its queue pair is moved to
 *                           ERR once more
 *
 * What the libraries of other NICs do where mlx5 leaves all to the NIC
 * (tests/lab/fabric-vs-kernel.md), as values of `provider`:
 *
 *     plain         posts are taken in ERR; what the NIC flushes comes behind all that it did, with
 *                   a vendor's code
 *     send-refused  a send posted in ERR is refused (EINVAL), else plain
 *     bnxt          both posts are refused in ERR; the library makes up the flushes: at once,
 *                   without a vendor's code (the field is not written), while the NIC finishes what
 *                   it has taken, and goes on taking for fab_nic_cfg.linger_ns after a move to ERR.
 *                   Good completions come behind them
 *     ionic         the same, but posts are taken, and flushed at once; the vendor's code is 0
 *     mana          both posts are refused in ERR, and nothing is flushed, ever; the NIC goes on
 *                   for linger_ns, too. Inline data is granted and not known: a post that asks for
 *                   it reads memory, by its key
 *     mlx4          plain, but the driver looks at no flow label: the UDP source port of a queue
 *                   pair comes from the two numbers of queue pairs. As of the next INIT->RTR
 *
 * While such a device hangs it answers no command: a move to ERR gives ETIMEDOUT.
 *
 * An interface taken down there is `down` with `send-error`, or `down` with `send-stuck`. Host and
 * NIC may be '*', at both ends of a cut: `*:n1 cut *:n1` is the loss of the switch plane that rail
 * 1 hangs on.
 *
 * Spines of a fabric that has several (fab_spine.h), which hosts hear nothing of. `spine 3` is that
 * of every rail, `rail 1 spine 3` of one; `*` is all of them:
 *
 *     spine 3 blackhole     what its leaf switches send over it is swallowed
 *     spine 3 down          the leaf switches know: what they sent over it takes one of the others,
 *                           the rest stays where it is
 *     spine 3 up            ends both
 *     spine 3 loss 1%       each packet over it is lost with this chance
 *     spine 3 rate 20MB/s   all packets over it share this rate, in a queue
 *                           (FAB_SPINE_QUEUE_NS)
 *     spine 3 restore       ends every fault of it. So does `*:* restore`, and `*:n1 restore` those
 *                           of rail 1
 *
 * A NIC hands packets for its own port back inside: what concerns the link (blackhole, loss,
 * corrupt, dup, delay, rate, ack-lost, cut, spines) does not touch them; what concerns the port or
 * the device does (down, hang, fatal, remove, send-error, send-stuck, unplug).
 */
#ifndef FAB_FAULT_H
#define FAB_FAULT_H

#include "fab_desc.h"

#include <stdbool.h>

enum fab_fault_kind {
    FAB_FAULT_DOWN,
    FAB_FAULT_UP,
    FAB_FAULT_BLACKHOLE,
    FAB_FAULT_BLACKHOLE_TX,
    FAB_FAULT_BLACKHOLE_RX,
    FAB_FAULT_LOSS,
    FAB_FAULT_CORRUPT,
    FAB_FAULT_DUP,
    FAB_FAULT_DELAY,
    FAB_FAULT_RATE,
    FAB_FAULT_ACK_LOST,
    FAB_FAULT_HANG,
    FAB_FAULT_UNHANG,
    FAB_FAULT_FATAL,
    FAB_FAULT_REMOVE,
    FAB_FAULT_CUT,
    FAB_FAULT_CUT_TX,
    FAB_FAULT_HEAL,
    FAB_FAULT_DELAY_TO,
    FAB_FAULT_QP_ERROR,
    FAB_FAULT_MR_FAIL,
    FAB_FAULT_CALL_ERROR,
    FAB_FAULT_GPU_DMA_FAIL,
    FAB_FAULT_GID_CHANGE,
    FAB_FAULT_SILENT_DEATH,
    FAB_FAULT_SEND_ERROR,
    FAB_FAULT_SEND_STUCK,
    FAB_FAULT_UNPLUG,
    FAB_FAULT_RETRY7_FOREVER,
    FAB_FAULT_RECV_KEPT,
    FAB_FAULT_PROVIDER,
    FAB_FAULT_MR_HANG,
    FAB_FAULT_RESTORE,
    FAB_FAULT_KINDS
};

/* Value of FAB_FAULT_PROVIDER. */
enum fab_provider {
    FAB_PROVIDER_PLAIN,
    FAB_PROVIDER_SEND_REFUSED,
    FAB_PROVIDER_BNXT,
    FAB_PROVIDER_IONIC,
    FAB_PROVIDER_MANA,
    FAB_PROVIDER_MLX4,
    FAB_PROVIDERS,
    FAB_PROVIDERS_IN_ERR = FAB_PROVIDER_MLX4 /* those before it differ in ERR */
};
/* Whether it does in ERR what mlx5 does. */
static inline bool fab_provider_is_plain(enum fab_provider p)
{
    return p == FAB_PROVIDER_PLAIN || p == FAB_PROVIDER_MLX4;
}
/* "plain", ...; "unknown" for what is none. */
const char *fab_provider_name(uint64_t provider);

enum fab_at { FAB_AT_NIC, FAB_AT_SPINE };

struct fab_fault {
    int host; /* -1: all; of a spine: -1 */
    int nic;  /* -1: all; of a spine: the rail */
    enum fab_at at;
    int spine; /* FAB_AT_SPINE alone; -1: all */
    enum fab_fault_kind kind;
    uint64_t
        value; /* ppm, ns, bytes per second, count, fab_ports or fab_provider, as the kind asks */
};

/* Parses "h0:n1 loss 1%", "rail 1 spine 3 loss 1%". -1 with the reason in @err, which quotes the
 * word that is wrong. */
int fab_fault_parse(const char *text, struct fab_fault *fault, char *err, size_t err_len);
/* The word of @text that says which fault it is, into @word of 32 bytes. -1: there is none, or the
 * place before it is wrong. */
int fab_fault_word(const char *text, char word[32]);
const char *fab_fault_name(enum fab_fault_kind kind);

/* Ports by host and NIC as one number, -1: all; and whether it names this one. */
static inline uint64_t fab_ports(int host, int nic)
{
    return (uint64_t)(host + 1) << 16 | (uint64_t)(nic + 1);
}
static inline bool fab_ports_has(uint64_t ports, int host, int nic)
{
    return (ports >> 16 == 0 || ports >> 16 == (uint64_t)host + 1) &&
           ((ports & 0xffff) == 0 || (ports & 0xffff) == (uint64_t)nic + 1);
}

/* Whether all ports that @fault names are in a fabric of @hosts with @nics each. */
bool fab_fault_fits(const struct fab_fault *fault, int hosts, int nics);
/* Whether the rail and the spine that @fault names are in fabric @d; else the reason in @err, which
 * names the one that is not. True for a fault of NICs. */
bool fab_fault_spine_fits(const struct fab_fault *fault, const struct fab_desc *d, char *err,
                          size_t err_len);

/*
 * What @fault is to the other ports that it concerns: the far end of a cut has its own part, and a
 * port that is restored is cut from nobody. True: *@other is to be applied as well, to each NIC
 * that it names and to which fab_fault_moves says so.
 */
bool fab_fault_other(const struct fab_fault *fault, struct fab_fault *other);

/* State of one NIC's link, as faults left it. Zeroed = healthy with no rate limit. Plain numbers:
 * may live in shared memory. */
struct fab_link {
    uint8_t down;
    uint8_t blackhole_tx, blackhole_rx;
    uint8_t ack_lost;
    uint8_t send_error; /* no request can be put on the wire: those who try hear of it */
    uint8_t late_some;  /* only packets to the ports of late are delayed */
    uint32_t loss_ppm, corrupt_ppm, dup_ppm;
    uint16_t cut[FAB_MAX_HOSTS]; /* bit = NIC of that host to which packets from here are dropped */
    uint16_t late[FAB_MAX_HOSTS]; /* bit = NIC of that host to which packets are delayed */
    uint64_t delay_ns;
    uint64_t rate; /* bytes per second, 0: unlimited */
};

/* Applies the part of @fault that concerns the link; @base_rate is the link's own rate, for
 * restore. Device faults change nothing. */
void fab_link_fault(struct fab_link *l, const struct fab_fault *fault, uint64_t base_rate);

/* Whether fab_fault_other's @fault changes anything at a NIC whose link is @l: where nothing is
 * cut, nothing heals. */
bool fab_fault_moves(const struct fab_fault *fault, const struct fab_link *l);

/* Fate of packet @h that leaves (tx) or reaches (rx) the link; @rnd is a fresh random number, used
 * only if the link has a chance set. */
enum fab_fate { FAB_PASS, FAB_DROP, FAB_TWICE };
struct fab_hdr;
enum fab_fate fab_link_tx(const struct fab_link *l, const struct fab_hdr *h, uint64_t rnd);
enum fab_fate fab_link_rx(const struct fab_link *l, const struct fab_hdr *h, uint64_t rnd);
bool fab_link_random(const struct fab_link *l); /* whether fab_link_tx/rx look at @rnd at all */
/* How much longer packet @h takes that leaves the link, ns. */
uint64_t fab_link_delay(const struct fab_link *l, const struct fab_hdr *h);

/* ns that @bytes of payload and their headers occupy a link of this rate; 0 if it is unlimited. */
uint64_t fab_link_ns(uint64_t rate, uint32_t bytes);

#endif
