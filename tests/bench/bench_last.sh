#!/bin/sh
# make bench-last: the last resort (docs/last-resort.md) beside a raw TCP stream of the same two processes, in turn; how long the loss of a host's last NIC
# stops a connection, by an event and in silence, and how long it is until RDMA carries again. Writes BUILD/bench-last.json and prints the table of
# tests/bench/README.md; with --write-doc puts it there. Exit code 1 where a run failed or a time is beyond its bound; the rate is a figure, for the machine
# decides it.
#   bench_last.sh BUILD [--write-doc]        RUNS in the environment: runs of each row, 1 to 99 (default 10)
set -eu
cd "$(dirname "$0")/../.."
B=build write= runs=${RUNS:-10}
for arg; do
    case $arg in
    --write-doc) write=1 ;;
    -*)
        echo "bench_last.sh: no such option: $arg" >&2
        exit 2
        ;;
    *) B=$arg ;;
    esac
done
case $runs in
[1-9] | [1-9][0-9]) ;;
*)
    echo "bench_last.sh: RUNS=$runs: not a number from 1 to 99" >&2
    exit 2
    ;;
esac
case $B in /*) ;; *) B=$PWD/$B ;; esac
for f in softfab softfab-lib/libibverbs.so.1 libnccl-net-r2.so bench/bench_pair; do
    [ -e "$B/$f" ] || {
        echo "bench_last.sh: $B/$f is not built" >&2
        exit 1
    }
done
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
t_return=1000
# NCCL_IB_TIMEOUT: RC's own end of a silent path comes behind everything that is measured
export NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_SOCKET_IFNAME=lo NCCL_R2_LAST_RESORT=auto NCCL_R2_T_RETURN=$t_return NCCL_IB_TIMEOUT=20
T=$(mktemp -d)
fabric=benchl$$
trap '"$B/softfab" down --name $fabric >/dev/null 2>&1 || :; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

# one_run WHAT I: one line of JSON, over a fabric of its own
one_run() {
    "$B/softfab" down --name $fabric >/dev/null 2>&1 || :
    "$B/softfab" up --name $fabric --hosts 2 --nics 2 >/dev/null 2>"$T/out" || {
        echo "bench_last.sh: no fabric: $(cat "$T/out")" >&2
        exit 1
    }
    timeout 330 "$B/bench/bench_pair" --plugin "$NCCL_NET_PLUGIN" --softfab "$B/softfab" --fabric $fabric "$1" "$2" 2>"$T/err" || {
        echo "bench_last.sh: bench_pair $1 $2 failed: $(tail -3 "$T/err")" >&2
        exit 1
    }
}

n=1
while [ $n -le "$runs" ]; do # one after the other in each round: a load that comes and goes meets both
    printf '# round %d of %d\n' $n "$runs" >&2
    one_run last $n
    one_run last-silent $n
    n=$((n + 1))
done >"$T/rows"
jq -s --arg cores "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" --argjson runs "$runs" \
    --argjson t_return $t_return '
    def median: sort | if length == 0 then null else (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 end;
    . as $rows | {schema: "r2_bench_last/2", git: $git, cores: ($cores | tonumber), load: ($load | tonumber), runs: $runs, t_return_ms: $t_return,
     bounds: {event_ms: 250, silent_ms: 500, return_ms: ($t_return + 1000)},
     summary: {
      by_size: ([.[].rounds[]] | group_by(.size) | map({size: .[0].size, raw_gbs: (map(.raw_gbs) | median), last_gbs: (map(.last_gbs) | median),
       ratio: (map(.last_gbs / .raw_gbs) | median), raw_cpu_s_per_gb: (map(.raw_cpu_s_per_gb) | median), last_cpu_s_per_gb: (map(.last_cpu_s_per_gb) | median)})),
      by_fault: ([("event", "silent") as $f | {key: $f, value: ([$rows[] | select(.fault == $f)] as $r | ["no_fault_ms", "stall_ms", "return_ms", "return_stall_ms"] |
       map({key: ., value: (. as $k | [$r[] | .[$k]] | {median: median, max: max})}) | from_entries)}] | from_entries)},
     rows: .}' "$T/rows" >"$T/bench.json"
mv "$T/bench.json" "$B/bench-last.json"
jq -r -f tests/bench/last_table.jq "$B/bench-last.json" >"$T/table"
cat "$T/table"
echo "# all of it: $B/bench-last.json"
[ -z "$write" ] || sh tests/bench/table_put.sh last "$T/table"
missed=$(jq -r '.bounds as $b | .summary.by_fault | [(select(.event.stall_ms.median > $b.event_ms) | "stall by an event"),
    (select(.silent.stall_ms.median > $b.silent_ms) | "stall by silence"),
    (select(([.event, .silent] | map(.return_ms.median) | max) > $b.return_ms) | "return")] | join(", ")' "$B/bench-last.json")
[ -z "$missed" ] || {
    echo "bench_last.sh: beyond its bound: $missed" >&2
    exit 1
}
