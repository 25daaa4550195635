# Running ranks in VMs, injecting faults when they say so, judging what came out. Sourced by check_lab.sh.
passed=0 failed=0 skipped=0 runs=0

lab() {
    sh tests/lab/lab.sh "$B" "$@"
}
# Whether a scenario is among those asked for: names, or parts of names, with | between them
wanted() {
    rest=$only
    while :; do
        case $1 in *"${rest%%|*}"*) return 0 ;; esac
        case $rest in *\|*) rest=${rest#*|} ;; *) return 1 ;; esac
    done
}
ok() {
    passed=$((passed + 1))
    echo "ok     $1"
}
skip() {
    skipped=$((skipped + 1))
    echo "SKIP   $1: $2"
}
# bad LABEL WHY: with what the lab said of each rank that had to be ended, and then what the ranks said last. What shows a failure may cut what is long: the shortest
# and the most telling first.
bad() {
    failed=$((failed + 1))
    echo "FAILED $1: $2"
    for f in "$run".r? "$run".f "$run".reset "$run".prepare; do
        [ ! -e "$f" ] || lab_words "$f" | tail -30 | cut -c1-400 | sed "s|^|    $(basename "$f") |"
    done
    for f in "$run".r? "$run".f "$run".reset "$run".prepare; do
        [ ! -e "$f" ] || grep -v '^lab: ' "$f" | grep -E 'WARN|error|rror:|\.c:[0-9]+: |DOWN|# r2 (checked|stall|fault)|FAILED' | tail -8 | cut -c1-200 |
            sed "s|^|    $(basename "$f") |"
    done
}
# lab_words LOG: what the lab said there, but for NICs that come up; threads of a process that wait in one place are one line
lab_words() {
    awk '!/^lab: / || /^lab: kernel: .*(: set active|: added|: renamed from )/ { next }
        !/^lab: process [0-9]+ thread .*: state / { print; next }
        {
            at = index($0, ": state ")
            who = substr($0, 1, at - 1)
            sub(/.* thread /, "", who)
            key = $3 SUBSEP substr($0, at)
            if (!(key in threads)) order[++n] = key
            threads[key] = threads[key] (threads[key] == "" ? " " : ", ") who
        }
        END {
            for (i = 1; i <= n; i++) {
                split(order[i], part, SUBSEP)
                print "lab: process " part[1] ":" threads[order[i]] part[2]
            }
        }' "$1"
}

lab_start() {
    rm -rf "$W"
    mkdir -p "$W"
    sh tests/lab/lab.sh "$B" up --hosts 3 2>"$W/up"
    rc=$?
    cat "$W/up" >&2
    if [ $rc = 77 ]; then
        echo "SKIP the lab: $(sed -n 's/^lab: skipped: //p' "$W/up")"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    return $rc
}
lab_end() {
    trap - EXIT INT TERM
    lab down >/dev/null 2>&1
}

# ranks N RETRY PROGRAM ARGUMENTS: one process per VM, as mpirun would start them; $rcs has their exit codes
ranks() {
    n=$1 retries=$2
    shift 2
    rank=0 pids=
    while [ $rank -lt "$n" ]; do
        lab exec h$rank -t $LIMIT -- env NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_SOCKET_IFNAME=mgmt NCCL_DEBUG=INFO NCCL_IB_TIMEOUT=17 \
            NCCL_IB_RETRY_CNT="$retries" OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE="$n" OMPI_COMM_WORLD_LOCAL_RANK=0 \
            OMPI_COMM_WORLD_LOCAL_SIZE=1 R2_PERF_ROOT=10.9.0.1:$((20000 + runs)) $extra "$@" >"$run.r$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    rcs= kept= rank=0
    for p in $pids; do
        wait "$p"
        rc=$?
        if [ $rc = 124 ] && kept_by_kernel "$run.r$rank"; then
            kept="$kept, rank $rank had ended with $ended, the kernel keeps its queue pairs"
            rc=$ended
        fi
        rcs="$rcs $rc"
        rank=$((rank + 1))
    done
    rcs=${rcs# }
}
# kept_by_kernel LOG: a rank that was at the limit had ended by itself, with $ended, but for threads that the kernel holds in the destruction of a queue pair: it waits
# there for every packet that a NIC has not let go of (README.md). One thread that is anywhere else, and the rank hangs.
kept_by_kernel() {
    ended=$(sed -n 's/^lab: process \([0-9]*\) thread \1 r2_perf: state Z in [^ ]*, ended with \([0-9]*\), .*/\2/p' "$1")
    [ -n "$ended" ] && grep -q '^lab: process .*: state D in __rxe_cleanup, ' "$1" &&
        ! grep '^lab: process ' "$1" | grep -v ': state Z in ' | grep -qv ': state D in __rxe_cleanup, .* rxe_destroy_qp <'
}

# one_fault FAULT...: made from outside; "kill HOST PROGRAM", "stand HOST K", after which NIC K sends a packet in 42 s and holds the others, "each HOST VERB", which
# is VERB on all NICs of HOST at once, "reset HOST", and "rehearse HOST NIC SECONDS", which is r2_ctl's, are ours, the others the lab's
one_fault() {
    if [ "$1" = kill ]; then
        lab exec "$2" -t 10 -- pkill -KILL "$3" && echo "killed $3 on $2"
    elif [ "$1" = stand ]; then
        lab exec "$2" -t 10 -u -- tc qdisc replace dev "r2d$3" root tbf rate 800bit burst 9000 limit 1000000 && echo "NIC $3 of $2 stands"
    elif [ "$1" = each ]; then
        each "$2" "$3"
    elif [ "$1" = reset ]; then
        reset_streams "$2"
    elif [ "$1" = rehearse ]; then
        lab exec "$2" -t 10 -- "$B/r2_ctl" rehearse "$3" --for "$4" && echo "rehearsal of $3 on $2"
    else
        lab fault "$@"
    fi
}
# each HOST VERB
each() {
    made=
    for k in 0 1 2 3; do
        lab fault "$2" "$1:n$k" &
        made="$made $!"
    done
    for p in $made; do
        wait "$p" || return 1
    done
}
# reset_streams HOST: what its processes have open to h0 on the management network ends, as by an administrator's hand, but for r2_perf's own connection: the
# out-of-band channel, and what the last resort goes over. Fails where that is not two of them at least.
reset_streams() {
    lab exec "$1" -t 20 -u -- sh -c "for m in inet_diag tcp_diag; do busybox insmod $B/lab/kernel/modules/\$m.ko 2>/dev/null; done
        ss -HtnK state established 'dst 10.9.0.1 and dport != :$((20000 + runs))'" >"$run.ended"
    echo "$1: $(grep -c . "$run.ended") streams were reset"
    [ "$(grep -c . "$run.ended")" -ge 2 ]
}
# inject TRIGGER FAULTS: when rank 0 says so the first one, as fast as that goes; those behind it so long after it as they say. "tcp" waits until both ranks have
# said that they go over TCP, "rdma" that they do no more; "end" is the second trigger of a run that does not end before (perf)
inject() {
    rest=$2
    while [ -n "$rest" ]; do
        one=${rest%%;*}
        case $rest in *\;*) rest=${rest#*;} ;; *) rest= ;; esac
        one=$(echo "$one" | sed 's/^ *//')
        # shellcheck disable=SC2086
        case $one in
        +*)
            sleep "$(echo "${one%%:*}" | sed 's/^+//; s/s$//')"
            one_fault ${one#*:} || return 1
            ;;
        tcp) says 60 0 "$ON" "$run.r0" && says 60 0 "$ON" "$run.r1" || return 1 ;;
        rdma) says 60 0 "$BACK" "$run.r0" && says 60 0 "$BACK" "$run.r1" || return 1 ;;
        end) lab wait-trigger h0 "e$runs" -t $LIMIT || return 1 ;;
        *:kill* | *:stand* | *:each* | *:rehearse*) lab wait-trigger h0 "$1" -t $LIMIT && one_fault ${one#*:} || return 1 ;;
        *) lab on-trigger h0 "$1" -t $LIMIT ${one#*:} || return 1 ;;
        esac
    done
}

# perf N RETRY FAULTS ARGUMENTS: r2_perf on N hosts. FAULTS: "2s:cut h0:n1; +1.5s:heal h0:n1": rank 0 fires a trigger 2 s into the measurement (a
# program started in a busy VM takes a while), the fault is made outside, the next one 1.5 s later. Before that every NIC is healthy and carries packets.
perf() {
    n=$1 retries=$2 faults=$3
    shift 3
    runs=$((runs + 1))
    run=$W/run$runs
    watcher= kept=
    if [ -n "${dirty-yes}" ] && ! lab reset >"$run.reset" 2>&1; then
        rcs=reset
        return
    fi
    dirty=
    # shellcheck disable=SC2086
    if [ -n "$prepare" ]; then
        dirty=yes
        lab fault $prepare >"$run.prepare" 2>&1 || {
            rcs=prepare
            return
        }
    fi
    if [ -n "$faults" ]; then
        dirty=yes
        inject f$runs "$faults" >"$run.f" 2>&1 &
        watcher=$!
        set -- "$@" --fault-cmd "${faults%%:*}:lab-trigger -t 60 f$runs"
        case $faults in *'; end') set -- "$@" --fault-cmd "${faults%%:*}:lab-trigger -t 60 e$runs" ;; esac
    fi
    ranks "$n" "$retries" "$B/r2_perf" "$@" --placement out -w 1 -T "$PATIENCE" --stats
    if [ -n "$watcher" ]; then
        wait "$watcher" || rcs="$rcs fault:$?"
    fi
}

# verdicts: what the ranks said that broke, a line each in the order of each rank: code, host, NIC, rank. Into $run.verdicts; $said: a summary of those that name a
# component; $undecided: the others (F03); $open: those of them after which their rank named none, $run.open: by rank
verdicts() {
    for rank in 0 1 2; do
        [ ! -e "$run.r$rank" ] || sed -n 's|.*NET/R2 : R2-\([NLFP]0[0-9]\) \(host=.*\)|\1 \2|p' "$run.r$rank" |
            awk -v rank=$rank '{h = n = "-"; for (i = 2; i <= NF; i++) {if ($i ~ /^host=/) h = substr($i, 6); if ($i ~ /^nic=/) {n = substr($i, 5); sub("/.*", "", n)}} print $1, h, n, rank}'
    done >"$run.verdicts"
    said=$(grep -v '^F03' "$run.verdicts" | cut -d ' ' -f 1-3 | sort | uniq -c | awk '{printf "%s%s %s %s x%s", (NR > 1 ? ", " : ""), $2, $3, $4, $1}')
    undecided=$(grep -c '^F03' "$run.verdicts")
    awk '$1 == "F03" {n[$4]++} $1 != "F03" {n[$4] = 0} END {for (r in n) if (n[r]) print r, n[r]}' "$run.verdicts" >"$run.open"
    open=$(awk '{s += $2} END {print s + 0}' "$run.open")
}
# blame_row LABEL EXPECTED: a row of the table that blame_table prints
blame_row() {
    printf '%-36s | %-18s | %-40s | %9s | %4s\n' "${1#blame: }" "${2:-nobody}" "${said:-nobody}" "$undecided" "$open" >>"$W/blame"
}
# What was broken, and what the processes of the run said: the lab's confusion matrix, one case a row.
blame_table() {
    [ -s "$W/blame" ] || return 0
    printf '%-36s | %-18s | %-40s | %9s | %4s\n' broken expected blamed undecided open
    cat "$W/blame"
    echo "a code, host and NIC for each component that was blamed, and by how many processes; open: undecided, and their process named nothing later"
}
# cpu_times, stolen FROM: percent of the processors that the hypervisor of this machine took since FROM. What is asked then has an answer too late: the ends wait
# 2 s for each other's word, whatever a second is worth.
cpu_times() {
    awk '/^cpu / { for (i = 2; i <= 9; i++) s += $i; print s, $9 }' /proc/stat
}
stolen() {
    { echo "$1"; cpu_times; } | awk 'NR == 1 { s = $1; t = $2 } NR == 2 { print ($1 > s ? int(100 * ($2 - t) / ($1 - s)) : 0) }'
}
# Of which NICs the kernel still held packets when their rank had ended, "HOST NIC|HOST NIC": these did stand still, whatever else was broken, and who says so is
# right.
stood_still() {
    for rank in 0 1 2; do
        [ ! -e "$run.r$rank" ] || sed -n "s/^lab: process .* r2-verbs-\([0-9]*\): state D in __rxe_cleanup, .*/h$rank rxe\1/p" "$run.r$rank"
    done | sort -u | paste -s -d '|' -
}
# unprobed PATTERN: what ranks that have left a verdict undecided could not probe, a line of their evidence each, where another rank has named what matches PATTERN.
# Status 1: nobody has named it, or one of them had probed all there is.
unprobed() {
    [ -n "$1" ] && cut -d ' ' -f 1-3 "$run.verdicts" | grep -qxE "$1" || return 1
    while read -r rank _; do
        grep -o 'R2-F03: .* to .*: not probed.*' "$run.r$rank" | tail -n 1 | grep . || return 1
    done <"$run.open"
}
# blamed LABEL PATTERN: the run is right, and every verdict of it (of which there is one) matches; one that was undecided was put right by its process. PATTERN
# empty: nobody has a verdict.
blamed() {
    verdicts
    blame_row "$1" "$2"
    still=$(stood_still)
    grep -v '^F03' "$run.verdicts" | cut -d ' ' -f 1-3 | grep -vxE "${2:-none}${still:+|L02 ($still)}" >"$run.wrong"
    if [ -s "$run.wrong" ]; then
        bad "$1" "wrong: $said; expected ${2:-nobody}${still:+, or L02 of $still, which stood still}"
    elif [ "$open" -gt 0 ] && [ "$(stolen "$cpu_from")" -ge 10 ]; then
        skip "$1" "left undecided while the hypervisor took $(stolen "$cpu_from") % of the processors"
        right "$1: the data alone" 0 9999
    elif [ "$open" -gt 0 ] && unprobed "$2" >"$run.unprobed"; then
        # An emulated processor stands still for seconds: a pair that is made anew then has not been probed by the time the verdict falls due.
        skip "$1" "named by others, $said; undecided where probes were not made in time: $(paste -s -d ';' "$run.unprobed")"
        right "$1: the data alone" 0 9999
    elif [ "$open" -gt 0 ]; then
        bad "$1" "$open verdicts are left undecided; said: ${said:-nothing}"
    elif [ -n "$2" ] && ! cut -d ' ' -f 1-3 "$run.verdicts" | grep -qxE "$2"; then
        bad "$1" "what is broken was not blamed; said: ${said:-nothing}"
    else
        right "$1: ${said:-nobody blamed}, $undecided undecided" 0 9999
    fi
}

# A job that goes on whatever becomes of one of its processes, unlike r2_perf: r2_matrix's, one process on each of three hosts, every one connected to every
# other over each NIC. Returns when every connection carries messages.
job_start() {
    runs=$((runs + 1))
    run=$W/run$runs
    ways=$B/lab/out/ways
    pids=
    lab reset >"$run.reset" 2>&1 || return 1
    dirty=yes
    rm -rf "$ways"
    mkdir -p "$ways" || return 1
    for rank in 0 1 2; do
        : >"$run.r$rank"
        # shellcheck disable=SC2086
        (exec sh tests/lab/lab.sh "$B" exec h$rank -t 900 -- env NCCL_SOCKET_IFNAME=mgmt NCCL_IB_TIMEOUT=17 NCCL_IB_RETRY_CNT=3 $extra \
            "$B/r2_matrix" --rank $rank 3 4 "$B/libnccl-net-r2.so" "$ways" 400 >"$run.r$rank" 2>&1) &
        pids="$pids $!"
    done
    goes_on h0 h1 h2
}
# A command in a VM ends with its client, which is the process that was started: nothing of this shell stands between.
job_end() {
    for p in $pids; do
        kill "$p" 2>/dev/null
        wait "$p" 2>/dev/null
    done
}
# says SECONDS LINES PATTERN FILE...: waits until one of them has a line that matches behind its first LINES. (A growing file has no event for a shell.)
says() {
    left=$(($1 * 5)) behind=$2 pattern=$3
    shift 3
    while [ $left -gt 0 ]; do
        for f in "$@"; do
            tail -n +$((behind + 1)) "$f" | grep -q "$pattern" && return 0
        done
        left=$((left - 1))
        sleep 0.2
    done
    return 1
}
# goes_on HOST...: there, every connection that has not ended carries more messages than now; twice, for the first word of it may be under way already
goes_on() {
    for h in "$@"; do
        f=$run.r${h#h}
        says 180 "$(wc -l <"$f")" '^# carried ' "$f" && says 180 "$(wc -l <"$f")" '^# carried ' "$f" || return 1
    done
}
# process_blamed LABEL CODE: whoever names a component names h1 as CODE does, who was undecided at first does so, too, and every message was right
process_blamed() {
    verdicts
    blame_row "$1" "$2 h1"
    still=$(stood_still)
    if ! grep -q "^$2 h1 " "$run.verdicts" ||
        grep -v '^F03 ' "$run.verdicts" | cut -d ' ' -f 1-3 | grep -qvxE "$2 h1 .*${still:+|L02 ($still)}"; then
        bad "$1" "said: ${said:-nothing}; expected $2 h1"
    elif [ "$open" -gt 0 ] && [ "$(stolen "$cpu_from")" -ge 10 ]; then
        skip "$1" "left undecided while the hypervisor took $(stolen "$cpu_from") % of the processors; said: $said"
    elif [ "$open" -gt 0 ]; then
        bad "$1" "$open verdicts are left undecided; said: $said"
    elif grep -q '^r2_matrix: ' "$run".r?; then
        bad "$1" "$(grep -h '^r2_matrix: ' "$run".r? | head -1)"
    else
        ok "$1: $said, $undecided undecided"
    fi
}

downs() {
    cat "$run".r? | grep -c ' UP -> DOWN: '
}
figure() {
    sed -n "s/^# r2 $1: \([0-9.]* ms\).*/\1/p" "$run.r0" | sort -n | tail -1
}
# Rails whose NIC has stood still on a host of the run without being told to: a virtio transmit queue that hangs, as the kernel's own watchdog says (README.md).
# A VM where that happened is booted again with the next reset, so what it says is of this run.
hung_rails() {
    for h in 0 1 2; do
        [ ! -e "$run.r$h" ] || lab exec h$h -t 10 -- dmesg 2>/dev/null | sed -n 's/.* r2d\([0-9]\): NETDEV WATCHDOG: .*/\1/p'
    done | sort -u
}
# Whether ranks that found no way for as long as they wait (4) had none: each rail was broken by the scenario, or hung.
none_left() {
    echo "$rcs" | grep -q '[^04 ]' && return 1
    hung=$(hung_rails)
    [ -n "$hung" ] && [ "$({ echo "$hung"; echo "$faults $prepare" | grep -o 'h[0-9]:n[0-9]' | sed 's/.*n//'; } | sort -u | wc -l)" = 4 ]
}
# VMs of the run that QEMU runs, but whose agent had no answer in 10 s when a rank was at its limit: there the kernel or the emulation stood, not a
# program. With where their processor was. Status 1: there is none, or a rank ended with more than that it lost the other one (3) or waited in vain (4).
vm_stood() {
    echo "$rcs" | tr ' ' '\n' | grep -qvxE '0|3|4|124' && return 1
    for h in h0 h1 h2; do
        ! grep -qs "^lab: $h: its agent says nothing, either" "$run".r? || ! grep -qs "^lab: $h: QEMU: running" "$run".r? ||
            echo "$h ($(sed -n "s/^lab: $h: CPU: //p" "$run".r? | sort | uniq -c | awk '{printf "%s%s x%d", (NR > 1 ? ", " : ""), $2 " " $3 " " $4, $1}'))"
    done | paste -s -d ' ' - | grep .
}
# right LABEL MIN MAX: every rank ended well, all was checked, nothing wrong, between MIN and MAX incarnations went down
right() {
    d=$(downs)
    if echo "$rcs" | grep -q '[^0 ]' && none_left; then
        skip "$1" "the emulator's NIC of rail $(echo $hung) stood still, by the kernel's watchdog of transmit queues, and the scenario broke all others"
    elif echo "$rcs" | grep -q 124 && stood=$(vm_stood); then
        skip "$1" "a virtual machine stood still: $stood"
    elif echo "$rcs" | grep -q '[^0 ]'; then
        bad "$1" "exit codes $rcs"
    elif ! grep -q '# r2 checked [1-9][0-9]* operations, 0 elements wrong' "$run.r0"; then
        bad "$1" "not checked, or wrong"
    elif [ "$d" -lt "$2" ] || [ "$d" -gt "$3" ]; then
        bad "$1" "$d incarnations went down, expected $2 to $3"
    else
        stall=$(figure 'stall after fault [0-9]*')
        calm=$(figure 'longest stall before any fault')
        ok "$1${stall:+: stall $stall}${calm:+, before any fault $calm}, $d incarnations down, $(grep -o 'checked [0-9]* operations' "$run.r0")$kept"
    fi
}
# resorted LABEL: as right; both ranks have said that no RDMA path is left and that they go over TCP, on the management network, no connection ended, and
# nothing stood for longer than a guard against hangs. Beside the stall, how long those stood whose last path TCP took over, where they had work.
ON='last resort: no RDMA path is left' BACK='last resort: no connection goes over tcp0 any more'
resorted() {
    stall=$(figure 'stall after fault [0-9]*')
    stall=${stall%%.*}
    took=$(cat "$run".r? | sed -n 's/.* connections\{0,1\} to tcp0, stall \([0-9]*\) us, .*/\1/p' | sort -n | awk '{us = $1} END {if (us) printf "over TCP after %.0f ms", us / 1000}')
    if echo "$rcs" | grep -q '[^0 ]'; then
        bad "$1" "exit codes $rcs"
    elif [ "$(grep -l "$ON" "$run".r? | wc -l)" != 2 ]; then
        bad "$1" "not both hosts say that they go over TCP"
    elif [ "$(grep -l 'last resort: .* goes on over TCP, interface mgmt, IPv4$' "$run".r? | wc -l)" != 2 ]; then
        bad "$1" "TCP does not go over the management network"
    elif [ "$(grep -l 'summary: .* gave up 0,' "$run".r? | wc -l)" != 2 ]; then
        bad "$1" "a connection was given up"
    elif [ "${stall:-0}" -gt 30000 ]; then
        bad "$1" "a stall of $stall ms"
    else
        right "$1${took:+: $took}" 32 9999
    fi
}
