# The scenarios. Sourced by check_lab.sh, after scn_lib.sh.

# One message per step and channel; four channels, one per NIC. The poller sleeps: on one virtual CPU it would keep the NICs, which are software,
# from working.
BASE="-b 256K -e 256K --buffsize 128K --channels 4 --idle-sleep 200us"
# The time in which a NIC answers is the time in which an emulated CPU, shared with a dozen others, does: not that of a NIC. Only the limits of silence
# and of the fence are longer here, everything else is as anywhere.
extra="NCCL_R2_T_SUSPECT=150 NCCL_R2_T_PROBE=300 NCCL_R2_T_FENCE=500"

cases_healthy() {
    wanted "healthy sizes" && {
        perf 2 3 "" all_reduce -b 8 -e 4M -f 8 -n 2 --channels 4 --idle-sleep 200us
        right "all_reduce, 8 B to 4 MiB" 0 0
    }
    for op in all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall; do
        wanted "healthy $op" && {
            # shellcheck disable=SC2086
            perf 2 3 "" $op $BASE -n 8
            right "$op" 0 0
        }
    done
    wanted "healthy groups" && cases_table
}

# The newest table driven between two machines: every size and alignment, grouped receives, limits, flush, close in every order, a peer that dies.
cases_table() {
    runs=$((runs + 1))
    run=$W/run$runs
    list="groups sizes truncation request_limits flush devices close_outstanding peer_exits peer_killed"
    # shellcheck disable=SC2086
    lab exec h0 -t 240 -- env NCCL_SOCKET_IFNAME=mgmt $extra "$B/tests/abi/abi_driver" --plugin "$B/libnccl-net-r2.so" --listen :$((21000 + runs)) \
        $list >"$run.r0" 2>&1 &
    first=$!
    # shellcheck disable=SC2086
    lab exec h1 -t 240 -- env NCCL_SOCKET_IFNAME=mgmt $extra "$B/tests/abi/abi_driver" --plugin "$B/libnccl-net-r2.so" --connect h0:$((21000 + runs)) \
        $list >"$run.r1" 2>&1
    rcs=$?
    wait $first
    rcs="$? $rcs"
    if [ "$rcs" = "0 0" ]; then
        ok "net table between two hosts: $list"
    else
        bad "net table between two hosts" "exit codes $rcs"
    fi
}

# fault LABEL FAULTS MIN [MAX [AFTER]]: all_reduce with faults in the middle, $retry retries, until AFTER the first one
fault() {
    wanted "retry $retry $1" || return
    # shellcheck disable=SC2086
    perf 2 "$retry" "$2" all_reduce $BASE --duration 4s --after "${5:-3s}"
    right "retry $retry, $1" "$3" "${4:-9999}"
}

cases_faults() {
    retry=$1
    for h in h0 h1; do
        fault "interface down, $h" "1500ms:ifdown $h:n1" 1
        fault "cable off in silence, $h" "1500ms:cut $h:n1 both" 1
        fault "link down, $h" "1500ms:linkdown $h:n1" 1
        fault "NIC unplugged, $h" "1500ms:unplug $h:n1" 1
    done
    fault "nothing gets out of h0's NIC" "1500ms:cut h0:n1 out" 1
    fault "nothing gets into h0's NIC" "1500ms:cut h0:n1 in" 1
    # the kernel keeps the device for its users: nothing breaks, and nothing may
    fault "RDMA link deleted" "1500ms:rdmadel h0:n1" 0
    fault "link down at both ends" "1500ms:linkdown h0:n1; +0s:linkdown h1:n1" 1
    fault "two at once" "1500ms:cut h0:n1 both; +0s:linkdown h1:n2" 2
    fault "chain to the last NIC" "1500ms:ifdown h0:n0; +1s:cut h1:n1 both; +1s:linkdown h0:n3" 3 9999 6s
    fault "packet loss of 1 %" "1500ms:loss h0:n1 1" 0
    prepare="linkdown h1:n2"
    fault "one NIC dead at start" "" 0
    prepare=
    [ "$retry" != 3 ] || cases_standing
    wanted "retry $retry return" && {
        # shellcheck disable=SC2086
        perf 2 "$retry" "1500ms:linkdown h0:n1; +2s:linkup h0:n1" all_reduce $BASE --duration 4s --after 10s
        returned "retry $retry, link down, then up"
        # shellcheck disable=SC2086
        perf 2 "$retry" "1500ms:cut h1:n1 both; +2s:heal h1:n1" all_reduce $BASE --duration 4s --after 10s
        returned "retry $retry, cable off in silence, then on"
    }
    wanted "retry $retry rehearsal" && {
        # shellcheck disable=SC2086
        perf 2 "$retry" "1500ms:rehearse h1 rxe1 2s" all_reduce $BASE --duration 4s --after 10s
        if grep -q 'NET/R2 : R2-' "$run".r?; then bad "retry $retry, rehearsal" "somebody is blamed"; else returned "retry $retry, rehearsal"; fi
    }
    wanted "retry $retry peer killed" && {
        # shellcheck disable=SC2086
        perf 2 "$retry" "1500ms:kill h1 r2_perf" all_reduce $BASE --duration 20s
        killed "retry $retry, peer process killed"
    }
}

# A NIC that takes packets and does not send them: the kernel holds the process for 50 s for each of its queue pairs, which is no matter of the plugin's.
cases_standing() {
    wanted "retry $retry transmit queue stands" || return
    usual=$LIMIT LIMIT=50
    # shellcheck disable=SC2086
    perf 2 "$retry" "1500ms:stand h1 1" all_reduce $BASE --duration 4s --after 3s
    LIMIT=$usual
    if [ -z "$kept" ]; then
        bad "retry $retry, transmit queue stands" "exit codes $rcs: the kernel did not keep the queue pairs of h1"
    else
        right "retry $retry, transmit queue stands" 1 9999
    fi
}

# The new incarnation of a path carries data on both hosts.
returned() {
    if [ "$(grep -l 'life [2-9][0-9]* is up' "$run".r? | wc -l)" != 2 ]; then
        bad "$1" "no path came back on both hosts"
    else
        right "$1" 1 9999
    fi
}

# Rank 0 ends by itself and says who is gone. (What the plugin says is the business of the driver of the tables: peer_killed.)
killed() {
    if [ "${rcs%% *}" = 4 ] && [ -n "$kept" ]; then
        skip "$1" "the channel stands as long as the process does$kept"
    elif [ "${rcs%% *}" != 3 ]; then
        bad "$1" "rank 0 ended with ${rcs%% *}, expected 3"
    elif ! grep -q 'rank 1 went away\|NET/R2 .*\(gone\|closed\|nothing from the peer\)' "$run.r0"; then
        bad "$1" "the peer is not named"
    else
        ok "$1: rank 0 ends with 3, $(grep -oh 'rank 1 went away.*\|peer process at .* is gone.*' "$run.r0" | tail -1)"
    fi
}

# channel LABEL FAULT...: the management interface of h1 carries nothing any more; then paths fail, one after the other. All connections go on while it is out.
channel() {
    label="out-of-band channel of h1 cut, then $1"
    wanted "channel $1" || return
    shift
    if ! job_start; then
        bad "$label" "the job does not run"
    elif ! lab fault oobcut h1 >"$run.f" 2>&1; then
        bad "$label" "the channel was not cut"
    else
        for f in "$@"; do
            # shellcheck disable=SC2086
            if ! lab fault $f >>"$run.f" 2>&1; then
                bad "$label" "the fault $f was not made"
            elif ! says 60 0 "NET/R2 : .* UP -> DOWN: " "$run.r1" || ! goes_on h0 h1 h2; then
                bad "$label" "not all connections carry messages after $f"
            else
                continue
            fi
            job_end
            return
        done
        if grep -q '^r2_matrix: ' "$run".r?; then
            bad "$label" "$(grep -h '^r2_matrix: ' "$run".r? | head -1)"
        elif grep -q '^# host .*returned' "$run".r?; then
            bad "$label" "a connection ended: $(grep -h '^# host .*returned' "$run".r? | head -1)"
        elif ! says 60 0 "NET/R2 : .* h1 path .* \(announced by peer\|peer.s NIC\|settled: \)\|channel to 10\.9\.0\.2:.* control messages go over" "$run.r0" "$run.r2"; then
            bad "$label" "nothing that h1 said arrived"
        else
            ok "$label: $(downs) incarnations down, all connections carry messages"
        fi
    fi
    job_end
}
cases_channel() {
    channel "link down" "linkdown h1:n1"
    channel "silent cable" "cut h1:n2 both"
    channel "chain" "linkdown h1:n0" "cut h1:n2 both" "unplug h1:n3"
    machine_gone
}

# r2_perf's own streams carry nothing any more, as when a machine has ended, while the NICs do: who waits for the other between two operations does not do so for
# ever (3), who waits in one is out of patience (4).
machine_gone() {
    wanted "machine gone" || return
    usual=$PATIENCE PATIENCE=9s
    # shellcheck disable=SC2086
    perf 2 3 "1500ms:oobcut h1" all_reduce $BASE --duration 80s
    PATIENCE=$usual
    if ! echo "$rcs" | grep -qx '[34] [34]'; then
        bad "machine gone" "exit codes $rcs, expected 3 or 4 of each"
    elif [ "$(grep -l '^# error: ' "$run".r? | wc -l)" = 0 ]; then
        bad "machine gone" "nobody says why it ended"
    else
        ok "machine gone: exit codes $rcs,$(sed -n 's/^# error:/ /p' "$run".r? | sort -u | paste -s -d ';' -)"
    fi
}

cases_three_hosts() {
    for retry in 3 7; do
        for f in "ifdown h1:n1" "cut h1:n2 both" "linkdown h1:n3"; do
            wanted "three hosts, retry $retry, $f" && {
                # shellcheck disable=SC2086
                perf 3 $retry "2s:$f" all_reduce $BASE --duration 4s --after 3s
                right "three hosts in a ring, retry $retry, $f" 1 9999
            }
        done
    done
}

# resort LABEL FAULTS: no NIC of h1 is left, and the job goes on over TCP on the management network. RC never ends a silent path here (retry 7). However slow the
# VMs are, it goes on until both hosts have said what they have to; and after 3 s the NICs' probes are connected, mostly.
resort() {
    wanted "last resort: $1" || return
    # shellcheck disable=SC2086
    perf 2 7 "$2; end" all_reduce $BASE --duration 3s --after 1s
    resorted "last resort: $1"
}
cases_last_resort() {
    keep=$extra
    extra="$extra NCCL_R2_LAST_RESORT=auto NCCL_R2_T_RETURN=500"
    resort "all cables of h1 silent" "3s:cut h1:all both; tcp"
    resort "all links of h1 down" "3s:each h1 linkdown; tcp"
    resort "all interfaces of h1 down" "3s:each h1 ifdown; tcp"
    resort "all cables silent, then on" "3s:cut h1:all both; tcp; +1s:heal h1:all; rdma"
    # what goes over TCP and the out-of-band channel: out for 1 s, and the streams of both have to be opened again
    resort "then its network fails, too" "3s:cut h1:all both; tcp; +0s:oobcut h1; +0s:reset h1; +1s:oobheal h1"
    extra=$keep
}

# blame LABEL FAULTS PATTERN: on three hosts, who is said to have failed, and as what: code, host, NIC. One place for each kind. Of processes below: r2_perf ends by itself when a rank is killed, and a rank that
# is stopped is mostly caught while the others wait for it outside the plugin.
blame() {
    wanted "blame $1" || return
    cpu_from=$(cpu_times)
    # shellcheck disable=SC2086
    perf 3 3 "$2" all_reduce $BASE --duration 4s --after 5s
    blamed "blame: $1" "$3"
}
cases_blame() {
    blame "interface down" "2s:ifdown h1:n1" "L01 h1 rxe1"
    blame "carrier lost" "2s:linkdown h2:n3" "L01 h2 rxe3"
    blame "cable silent" "2s:cut h1:n2 both" "L02 h1 rxe2"
    blame "cable silent, one way" "2s:cut h0:n3 out" "L02 h0 rxe3"
    blame "path between" "2s:cut h0:n1-h2:n1" "F01 h[02] rxe1"
    blame "switch plane" "2s:cut rail3" "F02 h[012] rxe3"
    blame "NIC unplugged" "2s:unplug h0:n2" "N01 h0 rxe2"
    blame "loss of 1 %" "2s:loss h0:n1 1" ""
    blame "a slow link" "2s:rate h2:n0 20" ""
    blame "nothing" "" ""
    cases_blame_spine
}

# One of a rail's eight ways swallows what takes it, by the UDP source ports that the kernel has made of the flow labels: the way is named, and no NIC. Where the
# kernel holds the packets of the rail's NICs (README.md) nothing takes it, and there is nothing to name.
cases_blame_spine() {
    wanted "blame spine silent" || return
    cpu_from=$(cpu_times)
    # shellcheck disable=SC2086
    perf 3 3 "2s:cut rail1/most" all_reduce $BASE --duration 4s --after 10s
    cut=$(lab status 2>/dev/null | grep '^rail1/[0-7] .* state: cut$')
    echo "       the spine that was cut: ${cut:-none}"
    case $cut in
    *' dropped=0 '*)
        skip "blame: spine silent" "nothing met the spine that was cut"
        right "blame: spine silent: the data alone" 0 9999
        ;;
    *) blamed "blame: spine silent" "F04 h[012] rxe1" ;;
    esac
}

# process LABEL CODE FAULT END HOST...: a job on three hosts of which h1 stops; somebody names it, as CODE does. After END the connections of HOST... carry on.
process() {
    label="blame: $1" code=$2 fault=$3 end=$4
    wanted "blame $1" || return
    shift 4
    cpu_from=$(cpu_times)
    if ! job_start; then
        bad "$label" "the job does not run"
    elif ! $fault >"$run.f" 2>&1; then
        bad "$label" "the fault was not made"
    elif ! says 60 0 "NET/R2 : R2-$code host=h1 " "$run.r0" "$run.r2"; then
        bad "$label" "nobody says R2-$code of h1"
    elif ! $end "$@"; then
        bad "$label" "afterwards: $why"
    else
        process_blamed "$label" "$code"
    fi
    job_end
}
# Not before RC has given up at both peers and they have come to their verdicts: what one finds of a host that comes back meanwhile may be nothing.
thawed() {
    why="a peer's queue pairs do not fail"
    for h in 0 2; do
        says 60 0 'NET/R2 : .* UP -> DOWN: completion status 12' "$run.r$h" || return 1
    done
    sleep 4 # so long the host stands on: a verdict that has just begun takes 2.5 s at most (docs/diagnosis.md)
    why="not all connections carry messages again"
    lab fault thaw h1 >>"$run.f" 2>&1 && goes_on "$@"
}
continued() {
    why="not all connections carry messages again"
    lab exec h1 -t 30 -u -- pkill -CONT r2_matrix && goes_on "$@"
}
# Its connections end with an error that names it, at both peers; the others' do not.
gone() {
    for h in "$@"; do
        log=$run.r${h#h}
        why="$h does not name the process that is gone"
        says 30 0 'NET/R2 : .*peer process at 10\.9\.0\.2.* is gone' "$log" || return 1
        why="no connection of $h ends with an error"
        says 30 0 '^# host .* host 1 over .*returned' "$log" || return 1
        why="a connection of $h to another host ended, too"
        grep '^# host .*returned' "$log" | grep -qv ' host 1 over' && return 1
    done
    why="the others' connections do not go on"
    goes_on "$@"
}
cases_blame_process() {
    process "host stands still" P03 "lab fault freeze h1" thawed h0 h1 h2
    process "process stopped" P02 "lab exec h1 -t 30 -u -- pkill -STOP r2_matrix" continued h0 h1 h2
    process "process killed" P01 "lab exec h1 -t 30 -u -- pkill -KILL r2_matrix" gone h0 h2
}

# Each NIC limited to 20 Mbit/s, where the lab is linear in NICs: what is left after a loss. One direction only, so that the virtual CPUs carry four
# NICs; an RC time-out below the queueing delay would collapse.
cases_rates() {
    wanted "rates" || return
    lab reset >/dev/null
    lab fault rate all 20 >/dev/null || bad "rate limit" "not taken"
    dirty= keep=$extra
    extra="$extra NCCL_IB_TIMEOUT=18"
    perf 2 3 "6s:linkdown h0:n1" broadcast -b 2M -e 2M --buffsize 1M --channels 4 --idle-sleep 200us --duration 14s
    extra=$keep
    line=$(grep '^# r2 busbw before' "$run.r0")
    share=$(echo "$line" | sed -n 's/.*after is \([0-9.]*\) % of before.*/\1/p')
    right "rates: 20 Mbit/s per NIC, one of four lost; ${line#\# r2 }" 1 9999
    echo "       share after a loss: ${share:-no figure} % of before; three of four NICs are 75 %, more where the CPUs limit"
}

# Stall at a link-down event with small messages, beside the latency of one message in the same VMs.
cases_latency() {
    wanted "latency" || return
    runs=$((runs + 1))
    run=$W/run$runs
    lab reset >/dev/null
    lab exec h1 -t 30 -- ib_write_lat -d rxe0 -x 1 -s 2 -n 500 >"$run.r1" 2>&1 &
    lab exec h0 -t 30 -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do ib_write_lat -d rxe0 -x 1 -s 2 -n 500 10.10.0.2 && break; sleep 0.3; done' >"$run.r0" 2>&1
    wait
    lat=$(awk '$1 == 2 && $2 == 500 {print "typical " $5 ", mean " $6 ", 99 % " $8 " us"}' "$run.r0")
    stalls= before=
    for i in 1 2 3 4 5; do
        perf 2 3 "1500ms:linkdown h0:n1" all_reduce -b 16K -e 16K --buffsize 32K --channels 4 \
            --idle-sleep 200us --duration 3s --after 1s
        right "latency: run $i of a link-down event" 1 9999
        stalls="$stalls $(sed -n 's/^# r2 stall after fault [0-9]*: \([0-9.]*\) ms.*/\1/p' "$run.r0" | tr '\n' ' ')"
        before="$before $(sed -n 's/^# r2 longest stall before any fault: \([0-9.]*\) ms.*/\1/p' "$run.r0")"
    done
    echo "       ib_write_lat between the same VMs, 2 bytes: ${lat:-no figure}"
    echo "       stall at link-down events, ms: median $(median $stalls) of$stalls; longest pause without a fault:$before"
}

median() {
    printf '%s\n' "$@" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}
