#!/bin/sh
# make bench-nccl: the plugin beside NCCL's own IB transport, in the same libnccl.so.2, on the same software fabric, under the same faults. Prints a table
# (bench_nccl.jq) and leaves the figures in BUILD/bench-nccl.json, the logs beside it. Runs of the transports take turns. Root, for a /sys with the fabric's NICs.
#   bench_nccl.sh [BUILD] [--runs 5] [--rate 10MB/s] [--bytes 2M] [--only CASE,CASE] [--also 'NAME[:SECONDS] SETTING=VALUE ...']... [--out FILE]
# --also: one more column, of NCCL_NET=IB with those settings, whose runs go on for SECONDS after the last fault. NCCL_LIB=FILE: another library.
# Everything else is NCCL's default.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=build runs=5 rate=10MB/s bytes=2M only='' out=''
cases="healthy down blackhole fatal flap loss"
T=$(mktemp -d) || exit 1
fabric=nb$$ up=
trap '[ -z "$up" ] || "$B/softfab" down --name $fabric >/dev/null 2>&1; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
die() {
    echo "bench_nccl.sh: $*" >&2
    exit 2
}
: >"$T/columns"
column() { # NAME[:SECONDS] SETTINGS
    after=0
    case $1 in *:*) after=${1#*:} ;; esac
    case $after in '' | *[!0-9]*) die "--also: '$1' is no NAME:SECONDS" ;; esac
    set -- "${1%%:*}" "$2"
    case $1 in '' | *[!A-Za-z0-9_.-]*) die "--also: '$1' is no name for a column" ;; esac
    for word in $2; do
        case $word in
        NCCL_*=*) ;;
        *) die "--also $1: '$word' is no NCCL_NAME=VALUE" ;;
        esac
    done
    printf '%s %s %s\n' "$1" "$after" "$2" >>"$T/columns"
}
column R2 "NCCL_NET=R2"
column IB "NCCL_NET=IB"
while [ $# -gt 0 ]; do
    case $1 in
    --runs | --rate | --bytes | --only | --also | --out)
        [ $# -gt 1 ] || die "$1 needs a value"
        case $1 in
        --runs) runs=$2 ;;
        --rate) rate=$2 ;;
        --out) out=$2 ;;
        --bytes) bytes=$2 ;;
        --only) only=$(echo "$2" | tr , ' ') ;;
        --also) column "${2%% *}" "NCCL_NET=IB ${2#* }" ;;
        esac
        shift
        ;;
    -*) die "no such option: $1" ;;
    *) B=$1 ;;
    esac
    shift
done
case $runs in '' | *[!0-9]* | 0) die "--runs '$runs' is not a number of at least 1" ;; esac
for c in $only; do
    case " $cases " in *" $c "*) ;; *) die "--only: there is no case '$c' (there are: $cases)" ;; esac
done
case $B in /*) ;; *) B=$PWD/$B ;; esac
out=${out:-$B/bench-nccl.json}
[ -x "$B/r2_nccl" ] || die "$B/r2_nccl is not built: it wants the CUDA toolkit's headers (CUDA=DIR)"
unshare -m true 2>/dev/null || die "NCCL's IB transport wants a /sys of its own with the fabric's NICs: this needs root, and 'unshare -m' must be allowed"
# A setting that only one of the two obeys, or that another run left behind, would make the comparison worthless.
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    [ "$v" = NCCL_LIB ] || unset "$v"
done
: >"$T/results"
logs=${out%.json}.logs
rm -rf "$logs"
mkdir -p "$logs" || die "no folder for logs"

# Two hosts, each a GPU and the two NICs beside it, all in use without a fault.
fabric_up() {
    cat >"$T/desc" <<END
hosts 2
nics 2
rate $rate
crossrail
nic 0 pci pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0 numa 0
nic 1 pci pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:04:00.0 numa 0
END
    "$B/softfab" up --name $fabric --desc "$T/desc" >/dev/null 2>"$T/err" || die "$(head -n 1 "$T/err")"
    up=1
}
fabric_down() {
    "$B/softfab" down --name $fabric >/dev/null
    up=
}
# The fault's time, and that the NIC is another in the fabric's eyes than before it: what a run must have for each of its faults.
cat >"$T/fault" <<END
port() { "$B/softfab" status --name $fabric --json | jq -c --arg p "\${1%% *}" '.nic[] | select(.place == \$p) | [.state] + .faults'; }
before=\$(port "\$1")
at=\$(date +%s%N)
"$B/softfab" fault --name $fabric "\$1" || exit
after=\$(port "\$1")
[ "\$after" != "\$before" ] || exit 1
echo "\$at \$after" >>"$T/fired"
END
# What came out of one run, in one line of JSON.
result() { # CASE COLUMN FAULTS RC
    [ -s "$T/json" ] || echo '{}' >"$T/json"
    # where NCCL's proxy got the error from its transport
    error_at=$(sed -n 's/^\[\([0-9.]*\)\] .*transport\/net\.cc:[0-9]*[^>]*-> [1-9].*/\1/p' "$T"/log.* 2>/dev/null | sort -n | head -n 1)
    jq -c --arg case "$1" --arg column "$2" --argjson faults "$3" --argjson rc "$4" --arg error_at "$error_at" \
        --arg error "$(sed -n 's/^# error: //p' "$T/out" | head -n 1)" --argjson drops "$drops" --rawfile fired "$T/fired" -f tests/nccl/bench_run.jq \
        "$T/json" >>"$T/results" || die "no figures of $1, $2"
    tail -n 1 "$T/results" | jq -r '"\(.case) \(.column): exit \(.rc), wrong \(.wrong // "-"), \(.busbw // 0 | . * 1000 | floor) MB/s, stopped \(.stall_ms // 0 | floor) ms, after \(.after // 0 | . * 100 | floor) %\(if .error != "" then ", error after \(.error_s // "?") s: \(.error[:90])" else "" end)"' >&2
}
# once CASE COLUMN SETTINGS OPTIONS...: one run; faults are options "--at TIME:FAULT"
once() {
    case=$1 name=$2 settings=$3 n=0
    shift 3
    i=$#
    while [ "$i" -gt 0 ]; do
        if [ "$1" = --at ]; then
            set -- "$@" --fault-cmd "${2%%:*}:sh $T/fault '${2#*:}'"
            n=$((n + 1)) i=$((i - 1))
            shift
        else
            set -- "$@" "$1"
        fi
        shift
        i=$((i - 1))
    done
    rm -f "$T"/log.* "$T/json"
    : >"$T/fired"
    fabric_up
    # shellcheck disable=SC2086
    env $settings NCCL_R2_RUN_DIR="$T" NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE="$T/log.%p" NCCL_DEBUG_TIMESTAMP_FORMAT='[%s.%3f] ' \
        NCCL_DEBUG_TIMESTAMP_LEVELS=ALL timeout -k 5 300 "$B/r2_nccl" all_reduce --fabric $fabric -b "$bytes" -e "$bytes" -w 2 --placement out -T 90s \
        --json "$T/json" "$@" >"$T/out" 2>&1
    rc=$?
    drops=$("$B/softfab" status --name $fabric --json | jq '[.nic[].drops] | add')
    fabric_down
    mkdir "$logs/$case-$name-$run"
    cp "$T/out" "$T"/log.* "$logs/$case-$name-$run" 2>/dev/null
    net=${settings#*NCCL_NET=}
    grep -q "Using network ${net%% *}" "$T"/log.* 2>/dev/null || {
        tail -n 5 "$T/out" >&2
        grep -h WARN "$T"/log.* 2>/dev/null | tail -n 5 >&2
        die "$case, $name: NCCL does not use the transport that this column is about"
    }
    [ "$(wc -l <"$T/fired")" = $n ] || {
        tail -n 5 "$T/out" >&2
        die "$case, $name: $(wc -l <"$T/fired") of $n faults fired"
    }
    result "$case" "$name" $n $rc
}
# every CASE OPTIONS...: one run for each column
every() {
    case " ${only:-$cases} " in *" $1 "*) ;; *) return 0 ;; esac
    c=$1
    shift
    while read -r name after settings <&3; do
        if [ "$after" -gt 0 ]; then
            once "$c" "$name" "$settings" "$@" --after "${after}s"
        else
            once "$c" "$name" "$settings" "$@"
        fi
    done 3<"$T/columns"
}
run=1
while [ $run -le "$runs" ]; do
    echo "run $run of $runs" >&2
    every healthy --duration 6s
    every down --duration 4s --after 6s --at '2s:h0:n1 down'
    every blackhole --duration 4s --after 6s --at '2s:h1:n1 blackhole'
    every fatal --duration 4s --after 6s --at '2s:h1:n0 fatal'
    every flap --duration 4s --after 12s --at '2s:h0:n1 down' --at '4s:h0:n1 up'
    every loss --duration 4s --after 8s --at '2s:h0:n0 loss 1%'
    run=$((run + 1))
done
jq -s --arg date "$(date +%F)" --arg rate "$rate" --arg bytes "$bytes" --argjson runs "$runs" --argjson cores "$(nproc)" --arg load "$(cut -d' ' -f1-3 /proc/loadavg)" \
    --arg git "$(git rev-parse --short HEAD 2>/dev/null)" --rawfile columns "$T/columns" --arg library "$(sed -n 's/.*NCCL version \([0-9.]*\).*/\1/p' "$T"/log.* | head -n 1)" \
    '{date: $date, rate: $rate, bytes: $bytes, runs: $runs, cores: $cores, load: $load, git: $git, nccl: $library,
      columns: [$columns | split("\n")[] | select(. != "") | {name: split(" ")[0], settings: (split(" ")[2:] | join(" "))}], results: .}' "$T/results" >"$out" ||
    die "the figures could not be put together"
jq -r -f tests/nccl/bench_nccl.jq "$out"
jq -e '[.results[] | .wrong // 0] | add == 0' "$out" >/dev/null || die "there was wrong data"
