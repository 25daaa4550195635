#!/bin/sh
# Tuner and profiler inside the released NCCL (docs/abi.md): where NCCL finds them, that its choice stays what it is, and that the network's profiler events of
# real collectives are what was sent, with a fault and without.
# Usage: plugins.sh BUILD
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
if [ ! -x "$B/r2_nccl" ]; then
    echo "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one)"
    exit 77
fi
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
unset NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING,ENV NCCL_R2_RUN_DIR="$T" NCCL_DEBUG_FILE="$T/log.%p" WATCH_FILE="$T/watch"
own=$B/libnccl-net-r2.so watch=$B/nccl-standin/libnccl-profiler-watch.so
F="--nics 4 --rate 100MB/s"
passed=0 failed=0
say() { # say TEXT CODE: of the command before
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        tail -n 12 "$T/out" | sed 's/^/     | /'
        grep -hE 'TUNER|PROFILER|WARN|summary' "$T"/log.* 2>/dev/null | tail -n 12 | sed 's/^/     | /'
        cat "$T"/watch.* 2>/dev/null | sed 's/^/     | /'
    fi
}
job() { # job SETTINGS... -- OPTIONS...: data right
    rm -f "$T"/log.* "$T"/watch.*
    settings=
    while [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    env $settings timeout -k 5 400 "$B/r2_nccl" "$@" -T 300s >"$T/out" 2>&1 && grep -q '^# Out of bounds values : 0 OK' "$T/out" && grep -q 'Using network R2' "$T"/log.*
}
logged() { # logged TEXT: by both processes
    [ "$(grep -lF "$1" "$T"/log.* | wc -l)" = 2 ]
}
choice() { # what NCCL has weighed and chosen, without who says it
    grep -hE 'Bytes -> Algo|Latency/AlgBw|Max NThreads|Broadcast|Reduce|AllGather' "$T"/log.* | sed 's/.*NCCL INFO //' | sort
}
small="-b 8 -e 2M -f 8 -n 1 -w 1"
both_named() {
    job NCCL_TUNER_PLUGIN="$own" NCCL_PROFILER_PLUGIN="$own" -- all_reduce $F $small && choice >"$T/with" &&
        logged "Successfully loaded external tuner plugin $own" && logged "Successfully loaded external profiler plugin $own" &&
        logged "tuner: NCCL's choice of algorithm and protocol stays as it is" && grep -qh 'communicator [0-9a-f]*: rank 0 of 2, on 2 hosts' "$T"/log.* &&
        grep -qh 'communicator [0-9a-f]*: rank 1 of 2, on 2 hosts' "$T"/log.* && logged 'TUNER/Plugin: Closing tuner' && logged 'PROFILER/Plugin: Closing profiler plugin'
}
none_named() {
    job -- all_reduce $F $small && choice >"$T/without" && logged 'TUNER/Plugin: Could not find: libnccl-tuner.so' && ! grep -qhE 'loaded external (tuner|profiler)|Closing (tuner|profiler)' "$T"/log.*
}
same_choice() {
    [ "$(grep -c 'Bytes -> Algo' "$T/with")" -ge 7 ] && cmp "$T/with" "$T/without" >"$T/out"
}
total() { # total FIELD: over both processes
    sed -n "s/.*\b$1=\([0-9]*\).*/\1/p" "$T"/watch.* | awk '{ n += $1 } END { print n + 0 }'
}
# Operations of 2 MiB on a ring of two: each rank sends as many bytes as the operation has.
events() {
    job NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_R2_PROFILER_EVENTS=1 NCCL_PROFILER_PLUGIN="$watch" -- all_reduce $F -b 2M -e 2M -n 4 -w 1 &&
        [ "$(cat "$T"/watch.* | wc -l)" = 2 ] && [ "$(total odd)" = 0 ] && [ "$(total open)" = 0 ] && [ "$(total step_bytes)" -gt $((2 * 8 * 2097152)) ] &&
        [ $(($(total step_bytes) % (2 * 2097152))) = 0 ] && [ "$(total send_bytes)" = "$(total step_bytes)" ] && [ "$(total sends)" -ge "$(total steps)" ] &&
        [ "$(total recvs)" = "$(total steps)" ]
}
silent() {
    job NCCL_PROFILER_PLUGIN="$watch" -- all_reduce $F -b 1M -e 1M -n 1 && [ "$(total steps)" -gt 0 ] && [ "$(total sends)" = 0 ] && [ "$(total recvs)" = 0 ]
}
# What is sent again is an event of its own, over a NIC that took over: those that had nothing before have some then, and the one that went silent has fewer than the one beside it. Links are what is slow here, however busy the machine is (two seconds for an operation): there is always
# something on its way.
fault() {
    job NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_R2_PROFILER_EVENTS=1 NCCL_PROFILER_PLUGIN="$watch" -- all_reduce --nics 4 --rate 2MB/s -b 8M -e 8M --duration 6s --placement out --fault '2s:h0:n1 blackhole' &&
        [ "$(grep -c '^# r2 fault .*(command took' "$T/out")" = 1 ] || return 1
    again=$(sed -n 's/.*summary: .* \([0-9]*\) bytes posted again.*/\1/p' "$T"/log.* | awk '{ n += $1 } END { print n + 0 }')
    more=$(($(total send_bytes) - $(total step_bytes)))
    [ "$again" -gt 0 ] && [ $more -gt 0 ] && [ $more -le "$again" ] && [ "$(total odd)" = 0 ] && [ "$(total open)" = 0 ] &&
        sed 's/.*nics=//' "$T"/watch.* | awk -F'[:,]' '{ n++; if ($3 >= $1 || $5 == 0 || $7 == 0) bad = 1 } END { exit bad || n != 2 }'
}
# shellcheck disable=SC2086
{
    if ! NCCL_DEBUG=WARN timeout 120 "$B/r2_nccl" all_reduce $F -b 8 -e 8 -n 1 >"$T/out" 2>&1; then
        case $(sed -n 's/^# error: //p' "$T/out") in
        *"cannot open shared object"* | *"does not know the layouts"*)
            sed -n 's/^# error: //p' "$T/out" | head -n 1
            exit 77
            ;;
        esac
    fi
    both_named
    say "named: NCCL finds tuner and profiler in the network's library" $?
    none_named
    say "not named: NCCL finds neither" $?
    same_choice
    say "NCCL weighs and chooses the same with the tuner and without: $(wc -l <"$T/with" 2>/dev/null) lines" $?
    events
    say "events are what was sent: $(total sends) work requests, $(total send_bytes) bytes, of $(total steps) steps, $(total step_bytes) bytes" $?
    silent
    say "without NCCL_R2_PROFILER_EVENTS the network reports none" $?
    fault
    say "a silent NIC: $(total send_bytes) bytes in events, $(total step_bytes) sent, ${again:-0} posted again" $?
}
echo "$passed passed, $failed failed"
[ $failed = 0 ]
