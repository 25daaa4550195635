#!/bin/sh
# Strangers at the out-of-band ports of a job: garbage, wrong secrets, half hellos and frames, connections that stay silent, connections that are closed at
# once, all at the same time at every process, from before the first message to the last. The job is right and goes on as without them; each process says
# one line for each kind; r2_stat shows their number; and a NIC that goes down meanwhile is survived.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
fab=strangers$$
perf= intruder=
trap 'for p in $perf $intruder; do kill "$p" 2>/dev/null; done; "$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
export NCCL_IB_TIMEOUT=20 NCCL_IB_RETRY_CNT=7
unset NCCL_R2_RUN_DIR NCCL_R2_STATS
ulimit -S -n 512 # an eighth of them are places for strangers: fewer than the intruder keeps silent
if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi

# ports: those that the processes say they listen on
ports() {
    sed -n 's/.*out-of-band channel listens on 127[.]0[.]0[.]1:\([0-9]*\) .*/\1/p' "$log/out"
}
# until SECONDS COMMAND...: it is true within that time
until_true() {
    left=$(($1 * 10))
    shift
    until "$@"; do
        [ $left -gt 0 ] || return 1
        left=$((left - 1))
        sleep 0.1
    done
}
both_listen() { [ "$(ports | wc -l)" = 2 ]; }
# counted HOST: that host's process has counted many strangers, as r2_stat says in JSON, as metric and in its table
counted() {
    "$B/softfab" exec --name $fab --host "$1" -- "$B/r2_stat" --json >"$log/json$1" &&
        jq -e '[.jobs[].processes[]] | length == 1 and .[0].oob_strangers >= 50' "$log/json$1" >/dev/null
}
# job NAME ARGUMENT...: a run with strangers all the time, looked at by r2_stat in the middle
job() {
    "$B/softfab" up --name $fab --hosts 2 --nics 4 --rate 20MB/s >/dev/null || exit 1
    rm -f "$log"/seen*
    : >"$log/out" # what is read from now on is of this job
    timeout -k 5 100 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 2 --placement out -w 1 -T 30s \
        --duration 4s "$@" --fault-cmd "$(once 3s "[ -e $log/seen0 ] && [ -e $log/seen1 ]")" --after 1s >"$log/out" 2>&1 &
    perf=$!
    until_true 20 both_listen || bad "the job" "it does not begin"
    # shellcheck disable=SC2046
    "$B/intruder" 60 $(ports) >"$log/intruders" &
    intruder=$!
    for h in 0 1; do
        until_true 20 counted $h
        "$B/softfab" exec --name $fab --host $h -- "$B/r2_stat" >"$log/table$h"
        "$B/softfab" exec --name $fab --host $h -- "$B/r2_stat" --prom - >"$log/prom$h"
        : >"$log/seen$h"
    done
    wait $perf
    rc=$?
    wait $intruder # they end when nobody listens any more
    perf= intruder=
    "$B/softfab" down --name $fab >/dev/null 2>&1
}
# were_there NAME: every kind of stranger was at every process
were_there() {
    total=$(awk '{ n += $3 } END { print n + 0 }' "$log/intruders")
    if [ "$(awk '$3 >= 5' "$log/intruders" | wc -l)" = 10 ] && [ "$total" -ge 200 ]; then
        ok "$1: $total strangers: $(awk '{ n[$1] += $3 } END { for (k in n) printf "%s %d ", k, n[k] }' "$log/intruders")"
    else
        bad "$1: strangers" "too few: $(tr '\n' ' ' <"$log/intruders")"
    fi
}
# said_once NAME: a line for each kind and process, and no others
said_once() {
    for h in 0 1; do
        for what in 'its first bytes are not of this protocol' 'it closed in the middle of its hello' 'too many send no hello' \
            'it dials another process' 'its secret is wrong'; do
            n=$(grep "^h$h:" "$log/out" | grep -c "stranger 127[.]0[.]0[.]1:[0-9]* dropped: $what; later ones of this kind are only counted")
            [ "$n" = 1 ] || bad "$1: one line of host $h: $what" "there are $n"
        done
        n=$(grep "^h$h:" "$log/out" | grep -c 'out-of-band channel: \(stranger\|bad frame\)')
        if [ "$n" = 5 ]; then ok "$1: host $h says 5 lines, one for each kind"; else bad "$1: lines of host $h" "$n, not 5"; fi
    done
}
# shown NAME FILTER: r2_stat has the number of them at both hosts, and jq's FILTER is true of each process
shown() {
    for h in 0 1; do
        if jq -e "[.jobs[].processes[]] | length == 1 and (.[0] | .oob_strangers >= 50 and .oob_bad_frames == 0 and .oob_bad_messages == 0 and ($2))" "$log/json$h" \
            >/dev/null 2>&1 && grep -q '^out-of-band channel: strangers [1-9][0-9]*, bad frames 0, bad messages 0$' "$log/table$h" &&
            grep -q '^r2_oob_strangers_total [1-9][0-9]' "$log/prom$h"; then
            ok "$1: r2_stat shows them at host $h ($(jq '.jobs[0].processes[0].oob_strangers' "$log/json$h") so far)"
        else
            bad "$1: r2_stat at host $h" "$(head -c 600 "$log/json$h"; cat "$log/table$h"; grep oob "$log/prom$h")"
        fi
    done
}
pauses() {
    sed -n 's/^# r2 \(longest stall before any fault\|stall after fault [0-9]*\): \([0-9.]* ms\).*/\1 \2/p' "$log/out" | tr '\n' ' '
}

wanted "no fault" && {
    job
    was_right "no fault" && {
        if [ "$(downs)" = 0 ] && ! grep -q 'NCCL WARN' "$log/out"; then
            ok "no fault: $(grep -o 'checked [0-9]* operations, 0 elements wrong' "$log/out"), no path went down, nothing at WARN"
        else
            bad "no fault" "$(downs) paths went down, or a warning: $(grep 'NCCL WARN' "$log/out" | head -1)"
        fi
    }
    were_there "no fault"
    said_once "no fault"
    shown "no fault" '.switches == 0'
}
wanted "a NIC goes down" && {
    job --fault '2s:h0:n1 down'
    was_right "a NIC goes down" && {
        if [ "$(downs)" -gt 0 ] && ! grep -q ' UP -> DOWN.*local NIC fab[023],' "$log/out"; then
            ok "a NIC goes down: $(grep -o 'checked [0-9]* operations, 0 elements wrong' "$log/out"), $(downs) paths of it went down; $(pauses)"
        else
            bad "a NIC goes down" "$(downs) paths went down, or others"
        fi
    }
    were_there "a NIC goes down"
    said_once "a NIC goes down"
    shown "a NIC goes down" 'true'
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
