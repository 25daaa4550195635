# For the hooks beside it, also where slurmd's folder has links to them; sourced. /etc/nccl-net-r2/slurm, owned by root, may set:
#   R2_DRAIN=no         the node is not drained, the reason is logged only (yes)
#   R2_STRICT=yes       r2-prolog: a node on which the plugin does not load gets no job: Slurm drains it and queues the job again (no)
#   R2_SETTLE=SECONDS   r2-health-check: how long a NIC is lost before the node is drained (15)
#   R2_ARCHIVE=DIR      r2-epilog: where it keeps events and traffic of each job; empty: nowhere (/var/log/nccl-net-r2)
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export PATH
R2_DRAIN=yes R2_STRICT=no R2_SETTLE=15 R2_ARCHIVE=/var/log/nccl-net-r2
r2_settings=${R2_SETTINGS:-/etc/nccl-net-r2/slurm}
# shellcheck source=/dev/null
if [ -r "$r2_settings" ]; then . "$r2_settings"; fi

r2_log() {
    logger -t nccl-net-r2 -- "$*" 2>/dev/null || echo "nccl-net-r2: $*" >&2
}
r2_node() {
    echo "${SLURMD_NODENAME:-$(uname -n | sed 's/[.].*//')}"
}
# r2_drain REASON: no new job comes to this node, those that run go on. A node that is drained or down already keeps its reason.
r2_drain() {
    node=$(r2_node)
    reason=$(printf %s "$1" | tr -cd '[:print:]' | cut -c 1-200)
    if [ "$R2_DRAIN" != yes ]; then
        r2_log "$node would be drained: $reason"
        return 0
    fi
    # the first State: a reason behind it may have any words
    case $(scontrol -o show node "$node" 2>/dev/null | tr ' ' '\n' | sed -n 's/^State=//p' | head -n 1) in
    *DRAIN* | *DOWN* | *FAIL*) return 0 ;;
    esac
    if said=$(scontrol update "NodeName=$node" State=DRAIN "Reason=nccl-net-r2: $reason" 2>&1); then
        r2_log "$node is drained: $reason"
    else
        r2_log "$node cannot be drained for $reason: $(printf '%s\n' "$said" | head -n 1)"
    fi
}
