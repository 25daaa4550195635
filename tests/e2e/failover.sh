#!/bin/sh
# The main job: collectives over the plugin on the software fabric, with failures in the middle. Each case asserts that every element of every
# timed operation is right, that each fault fired (r2_perf fails otherwise), and that the plugin's log shows the switch, or that none was made.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
export NCCL_IB_TIMEOUT=12 NCCL_IB_RETRY_CNT=3
export NCCL_R2_LOG=trace # each path's line counts, however many there are

# perf ARGUMENTS: a run over a fabric of its own
perf() {
    timeout -k 5 120 "$B/r2_perf" "$@" --placement out -w 1 --rate 20MB/s -T 30s >"$log/out" 2>&1
    rc=$?
}
# right NAME MIN MAX: the run was right, and made between MIN and MAX changes of paths
right() {
    n=$(downs)
    was_right "$1" || return
    if [ "$n" -lt "$2" ] || [ "$n" -gt "$3" ]; then
        bad "$1" "$n paths went down, expected $2 to $3"
    else
        ok "$1 ($(grep -o 'checked [0-9]* operations' "$log/out"), $n paths down)"
    fi
}

BASE="-b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --duration 1200ms"
for op in all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall; do
    wanted "$op host0 host1" && {
        # shellcheck disable=SC2086
        perf $op $BASE --fault '200ms:h0:n1 down'
        right "$op, one NIC of host 0 down" 1 9999
        # shellcheck disable=SC2086
        perf $op $BASE --fault '200ms:h1:n2 down'
        right "$op, one NIC of host 1 down" 1 9999
    }
    wanted "$op rail" && {
        # shellcheck disable=SC2086
        perf $op $BASE --fault '300ms:h0:n1 down' --fault '300ms:h1:n1 down'
        right "$op, both ends of a rail down at once" 1 9999
    }
    wanted "$op chain" && {
        # shellcheck disable=SC2086
        perf $op $BASE --fault '200ms:h0:n0 down' --fault '500ms:h1:n1 down' --fault '800ms:h0:n3 down'
        right "$op, three of four NICs one after another" 3 9999
    }
    wanted "$op back" && {
        # shellcheck disable=SC2086
        perf $op $BASE --fault '200ms:h0:n1 down' --fault '600ms:h0:n1 up'
        right "$op, down, then up" 1 9999
    }
    wanted "$op start" && {
        name=r2e2e$$
        "$B/softfab" up --name $name --hosts 2 --nics 4 --rate 20MB/s >/dev/null &&
            "$B/softfab" fault --name $name 'h0:n1 down' >/dev/null && "$B/softfab" fault --name $name 'h1:n3 remove' >/dev/null && {
            # shellcheck disable=SC2086
            timeout -k 5 120 "$B/r2_perf" $op -b 256K -e 256K --buffsize 128K --hosts 2 --fabric $name --duration 800ms --placement out \
                -T 30s >"$log/out" 2>&1
            rc=$?
            right "$op, at start a NIC is down here, another missing there" 1 9999
        }
        "$B/softfab" down --name $name >/dev/null
    }
done

# Each kind of fault once. Silent ones show through the RC timeout; loss, duplicates, delay and rate must move nothing.
kind() {
    wanted "kind $1" || return
    fault="300ms:h1:n1 $1" min=$2 max=$3 time=${4:-2s} op=${5:-all_reduce}
    set --
    # A silence is found out while operations go on, of which a busy machine may have two in that time.
    [ "$min" = 0 ] || set -- --fault-cmd "$(once 300ms "$(logged ' UP -> DOWN')")" --after 100ms
    perf "$op" -b 128K -e 128K --buffsize 128K --hosts 2 --nics 3 --duration "$time" --fault "$fault" "$@"
    right "$op under ${fault#*n1 }" "$min" "$max"
}
kind blackhole 1 9999
kind blackhole-tx 1 9999
kind blackhole-rx 1 9999
kind ack-lost 1 9999
kind qp-error 1 9999
kind fatal 1 9999 5s
kind remove 1 9999 5s
# A driver that answers with errors: once, so that the NIC is back in time; and for ever, so that it cannot be fenced.
kind 'call-error 1' 1 9999 5s
kind call-error 1 9999 8s
# In one direction: data flows from the host that hangs to the other one.
kind hang 1 9999 8s reduce
export NCCL_IB_TIMEOUT=14 NCCL_IB_RETRY_CNT=7
kind 'loss 1%' 0 0
kind 'dup 1%' 0 0
kind 'delay 2ms' 0 0
kind 'rate 5MB/s' 0 0
export NCCL_IB_TIMEOUT=12 NCCL_IB_RETRY_CNT=3

# A NIC that carries nothing of a connection dies so that nobody can fence it: what is open does not wait for T_packet or T_dead, here longer
# than the run may take. The primary path of the only channel is over NIC 0.
idle_nic() {
    NCCL_R2_T_PACKET=60000 NCCL_R2_T_DEAD=60000 perf sendrecv -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --channels 1 --duration 1500ms \
        --fault "300ms:$1:n1 fatal"
    name="sendrecv on one NIC, another dies at $1"
    was_right "$name" || return
    stall=$(sed -n 's/.*stall after fault 1: \([0-9]*\)\..*/\1/p' "$log/out")
    if ! grep -q ' -> FENCED: soft' "$log/out" || [ "${stall:-30000}" -ge 30000 ]; then
        bad "$name" "stall ${stall:-none} ms, $(grep -c ' -> FENCED: soft' "$log/out") paths not fenced"
    else
        ok "$name (stall $stall ms)"
    fi
}
wanted "idle NIC" && {
    idle_nic h0
    idle_nic h1
    idle_nic '*'
}
wanted "three hosts" && {
    perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 3 --nics 3 --duration 2s --fault '400ms:h1:n1 down' --fault '900ms:h2:n0 qp-error'
    right "ring of three hosts, two failures" 2 9999
}
wanted "two ranks per host" && {
    perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --ranks-per-host 2 --nics 3 --duration 2s --fault '400ms:h0:n2 down'
    right "two ranks per host share the NICs" 1 9999
}
wanted "all over the network" && {
    perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --ranks-per-host 2 --intra net --nics 3 --duration 2s --fault '400ms:h0:n2 down'
    right "neighbours of one host over the plugin too" 1 9999
}

# error NAME PATTERN: the run ended with NCCL's exit code, and the reason says so
error() {
    if [ $rc != 3 ]; then
        bad "$1" "exit code $rc instead of 3"
    elif ! grep -q "$2" "$log/out"; then
        bad "$1" "no '$2' in the log"
    else
        ok "$1 ($(grep '^# error' "$log/out" | cut -c1-110))"
    fi
}
wanted "all NICs lost" && {
    NCCL_R2_GIVE_UP=2000 perf all_reduce -b 256K -e 256K --hosts 2 --nics 4 --duration 9s --fault '300ms:h0:n0 down' \
        --fault '400ms:h0:n1 down' --fault '500ms:h1:n2 down' --fault '600ms:h0:n3 down'
    error "all four NICs lost" 'no path left for 2000 ms'
    # The first rank that fails ends the job, so that the other one may hear it, find out itself, or be gone.
    other=$(grep ' ends: ' "$log/out" | grep -v 'no path .*; last: ')
    if [ -z "$other" ]; then ok "whoever says why says that"; else bad "whoever says why says that" "$other"; fi
}
wanted "failover off" && {
    NCCL_R2_FAILOVER=off perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 --duration 5s --fault '300ms:h0:n0 down'
    error "NCCL_R2_FAILOVER=off ends at the first failure" 'NCCL_R2_FAILOVER=off'
}
wanted "fewest NICs" && {
    NCCL_R2_MIN_NICS=3 perf all_reduce -b 256K -e 256K --hosts 2 --nics 4 --duration 5s --fault '300ms:h0:n0 down' --fault '600ms:h0:n1 down'
    error "NCCL_R2_MIN_NICS=3 ends at the second" 'NCCL_R2_MIN_NICS=3'
}
# Four queue pairs over each of two NIC pairs, all of them up at the start; a NIC takes four of each connection along, and all come back.
queue_pairs() {
    NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=$2 NCCL_R2_T_RETURN=100 perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 --duration 2500ms \
        --fault "300ms:h$1:n1 down" --fault "900ms:h$1:n1 up" \
        --fault-cmd "$(once 1s "[ \$(grep -c ' life [2-9] is up' $log/out) -ge \$(grep -c ' life 1 UP -> DOWN' $log/out) ]")" --after 100ms
    name="queue pairs: 4 per NIC pair, split $2, a NIC of host $1 down and up"
    was_right "$name" || return
    all=$(grep -c 'connected: 8 paths of 8 up' "$log/out")
    lost=$(grep ' life 1 UP -> DOWN' "$log/out" | sed 's/ life .*//' | sort -u | wc -l)
    back=$(grep ' life [2-9] is up' "$log/out" | sed 's/ life .*//' | sort -u | wc -l)
    if [ "$all" = 0 ] || [ "$lost" -lt $((all * 4)) ] || [ "$back" -lt "$lost" ]; then
        bad "$name" "$all connections with 8 paths, $lost paths down, $back of them up again"
    else
        ok "$name ($all ends of connections, $lost paths down and up again)"
    fi
}
wanted "queue pairs" && {
    queue_pairs 0 0
    queue_pairs 1 1
    NCCL_IB_QPS_PER_CONNECTION=128 perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 -n 5 --stats
    if was_right "queue pairs: 128"; then
        said=$(grep -c 'WARN.*NCCL_IB_QPS_PER_CONNECTION=128: a connection gets 7 queue pairs' "$log/out")
        if [ "$said" = 2 ]; then ok "queue pairs: 128 are 7, said once by each rank"; else bad "queue pairs: 128" "said $said times by two ranks"; fi
    fi
}
# Large parts are two work requests each; what is sent again is, too. Says how many were received so.
adaptive_routing() {
    # shellcheck disable=SC2086
    NCCL_IB_ADAPTIVE_ROUTING=$1 NCCL_IB_AR_THRESHOLD=1000 NCCL_R2_LOG=trace NCCL_DEBUG=TRACE perf all_reduce $BASE --fault '200ms:h0:n1 down' --fault '500ms:h1:n2 qp-error'
    name="adaptive routing $1, two failures"
    was_right "$name" || return
    records=$(sed -n 's/.* recv .* ends: .* records \([0-9]*\);.*/\1/p' "$log/out" | awk '{ n += $1 } END { print n + 0 }')
    if [ "$(downs)" = 0 ] || [ $((records > 0)) != "$1" ]; then
        bad "$name" "$(downs) paths went down, $records size records"
    else
        ok "$name ($(downs) paths down, $records size records)"
    fi
}
wanted "adaptive routing" && {
    adaptive_routing 1
    adaptive_routing 0
}
wanted "acknowledged when flushed" && {
    # shellcheck disable=SC2086
    NCCL_R2_ACK=flush NCCL_R2_FLUSH=always perf all_reduce $BASE --fault '200ms:h0:n1 down' --fault '500ms:h1:n2 qp-error'
    right "acknowledged when flushed, two failures" 1 9999
}
wanted "bad option" && {
    NCCL_R2_GIVE_UP=soon perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 -n 2
    error "a bad option fails at listen" 'NCCL_R2_GIVE_UP'
}
# A fault command is a child of rank 0. The launcher names the rank; that the plugin's own error names the peer is for abi_fabric.sh.
wanted "peer killed" && {
    perf all_reduce -b 256K -e 256K --hosts 3 --nics 2 --duration 20s --fault-cmd '300ms:kill -9 $PPID'
    error "a rank killed by kill -9 ends the others" '# error: rank 0 (process [0-9]* on h0) was killed by signal 9'
    ended=$(sed -n 's/^# *Rank *\([0-9]*\) Group *[0-9]* Pid *\([0-9]*\) .*/\2/p' "$log/out")
    alive=
    for pid in $ended; do
        kill -0 "$pid" 2>/dev/null && alive="$alive $pid"
    done
    if [ "$(echo "$ended" | wc -w)" = 3 ] && [ -z "$alive" ]; then
        ok "and no rank is left"
    else
        bad "and no rank is left" "ranks:$ended, alive:$alive"
    fi
}
wanted "loader" && {
    NCCL_NET_PLUGIN=r2 LD_LIBRARY_PATH=$(cd "$B" && pwd) perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 -n 5 --stats
    right "loaded as NCCL_NET_PLUGIN=r2" 0 0
}
echo "$passed passed, $failed failed"
[ $failed = 0 ]
