#!/bin/sh
# An all_reduce whose out-of-band channel is cut: the ranks run in network namespaces, the channel has a link of its own, r2_perf's own words another one. Its link
# goes down under traffic, alone, and before a NIC goes down: every element is right, no path goes down but those over the NIC. The stalls are printed, and that of the
# NIC with the channel whole.
# Needs root, for the namespaces alone. Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=oobjob$$ a=r2ja$$ b=r2jb$$
pids=
end() {
    trap - EXIT INT TERM
    for p in $pids; do
        kill "$p" 2>/dev/null
    done
    "$B/softfab" down --name $fab >/dev/null 2>&1
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    rm -rf "$log"
}
trap end EXIT
ip netns add $a 2>"$log/ip" && ip netns add $b 2>>"$log/ip" && ip link add jva$$ netns $a type veth peer name jvb$$ netns $b 2>>"$log/ip" &&
    ip link add jca$$ netns $a type veth peer name jcb$$ netns $b 2>>"$log/ip" || {
    echo "no network namespaces here: $(head -1 "$log/ip")"
    exit 77
}
for h in 0 1; do
    if [ $h = 0 ]; then ns=$a l=a; else ns=$b l=b; fi
    ip netns exec $ns ip link set lo up
    ip netns exec $ns ip addr add 10.99.77.$((h + 1))/24 dev jv$l$$
    ip netns exec $ns ip addr add 10.99.78.$((h + 1))/24 dev jc$l$$
    ip netns exec $ns ip link set jv$l$$ up
    ip netns exec $ns ip link set jc$l$$ up
done
export NCCL_IB_TIMEOUT=20 NCCL_IB_RETRY_CNT=7 NCCL_SOCKET_IFNAME=jv R2_PERF_ROOT=10.99.78.1:5599 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 PMI_JOBID=$$
unset NCCL_R2_RUN_DIR PMIX_NAMESPACE OMPI_MCA_ess_base_jobid SLURM_JOB_ID
cut="ip link set jva$$ down && ip -o link show jva$$ | grep -q 'state DOWN'"

# job ARGUMENT...: a rank in each namespace, as a launcher would start them; what both say is in $log/out
job() {
    ip netns exec $a ip link set jva$$ up
    left=50 # a link is up a moment after both of its ends are
    until { ip netns exec $a ip -o link show && ip netns exec $b ip -o link show; } | grep -c 'j[vc][ab][0-9].* state UP' | grep -q '^4$' || [ $left = 0 ]; do
        left=$((left - 1))
        sleep 0.1
    done
    "$B/softfab" up --name $fab --hosts 2 --nics 4 --rate 20MB/s >/dev/null || exit 1
    pids=
    for r in 0 1; do
        if [ $r = 0 ]; then ns=$a; else ns=$b; fi
        NCCL_HOSTID=h$r PMI_RANK=$r timeout -k 5 90 ip netns exec $ns "$B/softfab" exec --name $fab --host $r -- "$B/r2_perf" all_reduce --intra net -b 256K -e 256K \
            --buffsize 128K --placement out -w 1 -T 30s --duration 2500ms "$@" >"$log/out$r" 2>&1 &
        pids="$pids $!"
    done
    rc=0
    for p in $pids; do
        wait "$p" || rc=$?
    done
    pids=
    "$B/softfab" down --name $fab >/dev/null 2>&1
    cat "$log/out0" "$log/out1" >"$log/out"
}
stalls() {
    sed -n 's/^# r2 stall after fault \([0-9]*\): \([0-9.]* ms\|less than 0.1 ms\).*/stall after fault \1 \2/p; s/^# r2 longest stall before any fault: \([0-9.]* ms\|less than 0.1 ms\).*/longest before \1/p' "$log/out" |
        tr '\n' ','
}
wanted "channel lost" && {
    job --fault-cmd "500ms:$cut"
    was_right "channel lost" && {
        if [ "$(downs)" != 0 ]; then bad "channel lost" "$(downs) paths went down"; else ok "channel lost: no path went down, $(stalls)"; fi
    }
}
# nic_lost NAME ARGUMENT...: a NIC goes down a second after the first operation
nic_lost() {
    name=$1
    shift
    wanted "$name" || return
    job "$@" --fault-cmd "1s:$B/softfab fault --name $fab 'h1:n1 down'"
    was_right "$name" || return
    if [ "$(downs)" = 0 ] || grep -q ' UP -> DOWN.*local NIC fab[023],' "$log/out"; then
        bad "$name" "$(downs) paths went down, or others"
    else
        ok "$name: $(downs) paths of it went down, $(stalls)"
    fi
}
nic_lost "channel whole, a NIC lost"
nic_lost "channel lost, then a NIC" --fault-cmd "500ms:$cut"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
