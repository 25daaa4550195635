#!/bin/sh
# Failures that RC reports after half a minute with NCCL's defaults, or never: the watchdog alone finds them. Each case asserts that every
# element of every timed operation is right, that each fault fired (r2_perf fails otherwise), and what the plugin's log says it was found
# by; or that no path went down where nothing was wrong with any. The stall is printed.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
export NCCL_IB_TIMEOUT=20 NCCL_IB_RETRY_CNT=7
export NCCL_R2_LOG=trace # each path's line counts, however many there are

# perf ARGUMENTS: a run over a fabric of its own
perf() {
    timeout -k 5 60 "$B/r2_perf" "$@" --placement out -w 1 -T 30s >"$log/out" 2>&1
    rc=$?
}
# kinds: how many paths went down as what
kinds() {
    sed -n 's/.* UP -> DOWN: \([^,]*\).*/\1/p' "$log/out" | sort | uniq -c | sort -rn | while read -r n what; do
        printf '%s x %s, ' "$n" "$what"
    done
}
# found NAME KINDS: the run was right, and a path went down as one of the KINDS (a pattern), none by a completion in error
found() {
    was_right "$1" || return
    if [ "$(downs "\($2\)")" = 0 ]; then
        bad "$1" "not found as '$2'"
    elif [ "$(downs 'completion status')" != 0 ]; then
        bad "$1" "RC was sooner"
    else
        ok "$1: $(kinds)stall $(sed -n 's/^# r2 stall after fault [0-9]*: \([0-9.]* ms\).*/\1/p' "$log/out" | sort -rn | head -1)"
    fi
}
# still NAME: the run was right, and every path is as it was
still() {
    was_right "$1" || return
    if [ "$(downs '')" = 0 ]; then
        ok "$1 ($(grep -o 'checked [0-9]* operations' "$log/out"))"
    else
        bad "$1" "$(downs '') paths went down"
    fi
}

# tail_lost NAME: the run was right, no NIC was given up, and nothing waited for RC: its time-out is longer than r2_perf waits for anything (RC_LATE).
# Queue pairs leave a way that is known to be silent, too.
RC_LATE=23 # 34 s, and -T is 30 s
tail_lost() {
    was_right "$1" || return
    stall=$(sed -n 's/^# r2 stall after fault [0-9]*: \([0-9]*\).* ms.*/\1/p' "$log/out" | sort -rn | head -1)
    if [ "$(downs '')" != "$(downs '\(last packet lost\|silent way\|announced by peer\)')" ]; then
        bad "$1" "more than last packets were lost: $(kinds)"
    else
        ok "$1: $(kinds)stall ${stall:-0} ms ($(grep -o 'checked [0-9]* operations' "$log/out"))"
    fi
}

NONE='no answer\|acknowledged and not delivered'
RUN="all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --rate 20MB/s --duration 900ms"
# what a NIC that hangs is waited for: once its peer has stopped; where both hang
export NCCL_R2_T_PACKET=200 NCCL_R2_T_DEAD=500
for host in h0 h1; do
    for fault in blackhole blackhole-tx blackhole-rx ack-lost hang send-stuck; do
        wanted "$fault at $host" || continue
        # shellcheck disable=SC2086
        perf $RUN --fault "200ms:$host:n1 $fault"
        found "$fault at $host" "$NONE"
    done
done
for fault in blackhole blackhole-rx ack-lost hang send-stuck; do
    wanted "$fault, RC never says anything" || continue
    # shellcheck disable=SC2086
    perf $RUN --fault '100ms:*:* retry7-forever' --fault "200ms:h1:n2 $fault"
    found "$fault, RC never says anything" "$NONE"
done
wanted "two at once" && {
    # shellcheck disable=SC2086
    perf $RUN --fault '200ms:h0:n1 blackhole' --fault '200ms:h1:n2 ack-lost'
    found "two at once" "$NONE"
    [ "$(downs "\($NONE\)")" -ge 2 ] || bad "two at once" "one alone was found"
}
wanted "both ends of a rail" && {
    # shellcheck disable=SC2086
    perf $RUN --fault '200ms:h0:n1 hang' --fault '200ms:h1:n1 hang'
    found "both ends of a rail hang" "$NONE"
}
wanted "three of four in a row" && {
    # shellcheck disable=SC2086
    perf $RUN --duration 1500ms --fault '200ms:h0:n0 blackhole-tx' --fault '500ms:h1:n1 send-stuck' --fault '800ms:h0:n3 blackhole'
    found "three of four in a row" "$NONE"
    [ "$(downs "\($NONE\)")" -ge 3 ] || bad "three of four in a row" "fewer than three were found"
}
wanted "one direction" && {
    perf sendrecv -b 256K -e 256K --hosts 2 --nics 3 --rate 20MB/s --duration 900ms --fault '200ms:h1:n1 ack-lost'
    found "ack-lost under sendrecv" "$NONE"
    perf broadcast -b 256K -e 256K --hosts 2 --nics 3 --rate 20MB/s --duration 900ms --fault '200ms:h0:n1 blackhole-rx'
    found "blackhole-rx at the root of a broadcast" "$NONE"
}
unset NCCL_R2_T_PACKET NCCL_R2_T_DEAD

# RC would never end these. One after the other: the last path is known, and its silence is the reason. At once: each end may give up another
# path first, and hears that the other's is down, too.
silent_to_the_end() { # WHAT REASON FAULT...
    what=$1
    reason=$2
    shift 2
    NCCL_IB_TIMEOUT=12 NCCL_R2_T_STUCK=300 NCCL_R2_GIVE_UP=1500 perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 --rate 20MB/s \
        --duration 20s --fault '100ms:*:* retry7-forever' "$@"
    if [ $rc = 3 ] && grep -qE "$reason" "$log/out"; then
        ok "$what ($(grep -oE "$reason" "$log/out" | head -1))"
    else
        bad "$what" "exit code $rc instead of 3, or no reason"
    fi
}
wanted "last path" && {
    last='is silent for [0-9]+ ms'
    silent_to_the_end "the last path's silence ends the run" "the last path, NIC .* $last" --fault '200ms:h1:n0 blackhole' --fault '1200ms:h1:n1 blackhole'
    silent_to_the_end "all paths silent at once end the run" "$last|no path left for [0-9]+ ms" --fault '200ms:h1:* blackhole'
}

# With NCCL's defaults RC repeats for half a minute: NCCL_R2_GIVE_UP is shorter, and is what counts. A guard against hangs, not a measurement: without the
# bound it is 17 s.
wanted "give up" && {
    for fault in blackhole hang; do
        NCCL_R2_GIVE_UP=2000 perf all_reduce -b 256K -e 256K --hosts 2 --nics 2 --rate 20MB/s --duration 30s --fault '100ms:*:* retry7-forever' \
            --fault "200ms:h1:* $fault"
        silent=$(sed -n 's/.* \(is silent\|no path left\) for \([0-9]*\) ms.*/\2/p' "$log/out" | sort -n | head -1)
        if [ $rc = 3 ] && [ "${silent:-0}" -ge 2000 ] && [ "$silent" -le 15000 ]; then
            ok "NCCL_R2_GIVE_UP=2000 under NCCL's defaults, all NICs of h1: $fault (after $silent ms)"
        else
            bad "NCCL_R2_GIVE_UP=2000 under NCCL's defaults, all NICs of h1: $fault" "exit code $rc instead of 3, or not in time: ${silent:-no} ms"
        fi
    done
}

# --- no false failover ---
wanted "busy processors" && {
    n=$(($(nproc) * 2))
    while [ $n -gt 0 ]; do
        (while :; do :; done) &
        busy="$busy $!"
        n=$((n - 1))
    done
    perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --rate 20MB/s --duration 4s
    # shellcheck disable=SC2086
    kill $busy
    wait
    busy=
    still "two busy loops for each processor"
}
# The launcher is the parent of the rank that runs the command. On this fabric a process is its NICs, too: what is shown is that a clock which
# counts only while its process runs, and a verdict that waits for the peer's process, take neither for a fault. On hardware the NIC answers.
# shellcheck disable=SC2016
ranks='$(ps -o pid= --ppid "$(ps -o ppid= -p $PPID | tr -d " ")" | tr "\n" " ")'
wanted "all ranks stopped" && {
    perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --rate 20MB/s --duration 4500ms \
        --fault-cmd "400ms:p=$ranks; echo stopped \$p >&2; kill -STOP \$p; sleep 3; kill -CONT \$p"
    grep -q '^stopped *[0-9][0-9]* [0-9][0-9]*' "$log/out" || bad "all ranks stopped for 3 s" "they were not"
    still "all ranks stopped for 3 s"
}
for rank in 1 2; do # rank 0 is an ancestor of what stops it, the other one is not
    wanted "one rank stopped" || continue
    perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --rate 20MB/s --duration 4500ms \
        --fault-cmd "400ms:p=$ranks; set -- \$p; shift $((rank - 1)); echo stopped \$1 >&2; kill -STOP \$1; sleep 3; kill -CONT \$1"
    grep -q '^stopped *[0-9][0-9]*' "$log/out" || bad "one rank stopped for 3 s" "it was not"
    still "rank $((rank - 1)) stopped for 3 s"
done
wanted "slow links" && {
    perf sendrecv -b 16M -e 16M -n 1 --p2p-chunk 4M --hosts 2 --nics 2 --rate 20MB/s --stats
    still "4 MiB messages as the first traffic at 20 MB/s"
    perf all_reduce -b 32M -e 32M -n 1 --buffsize 32M --channels 4 --hosts 2 --nics 2 --rate 20MB/s --stats
    still "4 MiB messages, two channels on a NIC, at 20 MB/s"
}
# The command that ends a glitch waits for a processor, too: one of half a second is a silence, in which a NIC is rightly given up. Such a run shows
# nothing, and another one is made.
GLITCH_MOST=60 # ms
glitch_ms() {  # the longest one of the run
    sed -n 's/^# r2 fault \([0-9]*\) at \([0-9.]*\) s (command took \([0-9.]*\) ms).*/\1 \2 \3/p' "$log/out" |
        awk '$1 % 2 { from = $2; next } { ms = ($2 - from) * 1000 + $3; most = ms > most ? ms : most } END { printf "%d", most }'
}
wanted "glitch" && {
    for try in 1 2 3 4 5; do
        NCCL_IB_TIMEOUT=$RC_LATE perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --rate 20MB/s --duration 3s \
            --fault '200ms:h1:n1 blackhole' --fault '225ms:h1:n1 up' --fault '1s:h0:n2 blackhole' --fault '1020ms:h0:n2 up'
        if [ "$rc" != 0 ] || [ "$(glitch_ms)" -le $GLITCH_MOST ]; then
            break
        fi
    done
    tail_lost "glitches of 20 ms"
    [ "$(glitch_ms)" -gt 0 ] && [ "$(glitch_ms)" -le $GLITCH_MOST ] || bad "glitches of 20 ms" "the last of $try runs had one of $(glitch_ms) ms"
}
wanted "loss" && {
    NCCL_IB_TIMEOUT=$RC_LATE perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --rate 20MB/s --duration 3s \
        --fault '200ms:h1:n1 loss 1%' --fault '200ms:h0:n2 loss 1%'
    tail_lost "1 % loss"
}
# A spine swallows what the switches send over it, and hosts hear nothing of that: the NICs are well, and queue pairs over other ways, too. Which of them
# take a spine is the hash's choice: three of eight are silent one after the other, and what they have swallowed is asked of the fabric. In one run of 60 no
# queue pair is on any of them: that shows nothing, and another one is made.
wanted "silent way" && {
    for try in 1 2 3 4 5; do
        # shellcheck disable=SC2016
        NCCL_IB_TIMEOUT=$RC_LATE perf all_reduce -b 256K -e 256K --buffsize 128K --hosts 2 --nics 4 --spines 8 --channels 8 --rate 20MB/s --duration 4500ms \
            --fault '500ms:spine 3 blackhole' --fault '1500ms:spine 3 up' --fault '1750ms:spine 6 blackhole' --fault '2750ms:spine 6 up' \
            --fault '3s:spine 1 blackhole' --fault-cmd '4s:"$R2_PERF_SOFTFAB" status --name "$R2_PERF_FABRIC"'
        lost=$(awk '$1 == "rail" && $3 == "spine" { n += $8 } END { print n + 0 }' "$log/out")
        if [ "$rc" != 0 ] || [ "$lost" -gt 0 ]; then
            break
        fi
    done
    tail_lost "three of eight ways silent in turn, which lost $lost packets"
    [ "$lost" -gt 0 ] || bad "silent way" "no packet was lost in $try runs"
    [ "$(downs 'last packet lost')" -gt 0 ] || bad "silent way" "no queue pair had been on one of them"
}
echo "$passed passed, $failed failed"
[ $failed = 0 ]
