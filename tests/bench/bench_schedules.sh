#!/bin/sh
# make bench-schedules: r2_perf --algo, each schedule on rated links of the software fabric, before and after a host has lost one of its NICs: the time of an
# operation beside the simulator's, and what of the healthy ring's rate is left; then what a host that has lost 1 and 2 of 4 NICs leaves of a tree of eight
# hosts. Every element is checked. Writes BUILD/bench-schedules.json and prints the tables of docs/collectives.md. Exit code 1 where a run failed or was
# wrong; times are figures, for the machine decides them.
#   bench_schedules.sh BUILD        SIZE, RATE, TIME in the environment: of the data (4M; twice that for eight hosts), of a NIC (1MB/s), of each half of a
#                                   run (8s)
set -eu
cd "$(dirname "$0")/../.."
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
size=${SIZE:-4M} rate=${RATE:-1MB/s} time=${TIME:-8s}
for f in r2_perf softfab softfab-lib/libibverbs.so.1 libnccl-net-r2.so; do
    [ -e "$B/$f" ] || {
        echo "bench_schedules.sh: $B/$f is not built" >&2
        exit 1
    }
done
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
export NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_SOCKET_IFNAME=lo
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
# run ROWS HOSTS NICS SIZE LOST SCHEDULE: one run, h1 loses LOST NICs in the middle; its line goes to ROWS
run() {
    rows=$1 hosts=$2 nics=$3 bytes=$4 lost=$5 row=$6 k=0
    printf '# %s, %s hosts, %s of %s NICs lost\n' "$row" "$hosts" "$lost" "$nics" >&2
    rm -f "$T/run.json"
    # shellcheck disable=SC2086
    set -- --algo $row
    while [ $k -lt "$lost" ]; do
        k=$((k + 1))
        set -- "$@" --fault "$time:h1:n$k down"
    done
    timeout -k 5 300 "$B/r2_perf" all_reduce --hosts "$hosts" --nics "$nics" --rate "$rate" --pieces 16 -b "$bytes" -e "$bytes" -w 0 --placement out \
        --idle-sleep 50us --duration "$time" --after "$time" "$@" --json "$T/run.json" >"$T/out" 2>&1 || {
        echo "bench_schedules.sh: --algo $row failed:" >&2
        tail -5 "$T/out" >&2
        exit 1
    }
    jq -e --arg row "$row" --argjson hosts "$hosts" --argjson nics "$nics" --argjson lost "$lost" '.r2 | select(.wrong == 0 and .wrong_sizes == 0) |
        [.schedules[] | select(.changed == "false")] | select(length > 1) | {row: $row, hosts: $hosts, nics: $nics, nics_lost: $lost, healthy: (.[0] | del(.nics)), lost: (.[-1] | del(.nics)),
        exact: all(.[].nics[]; .sent == .planned_sent and .received == .planned_received)}' "$T/run.json" >>"$rows" || {
        echo "bench_schedules.sh: --algo $row: data is wrong, or TIME=$time is too short for an operation by each plan" >&2
        exit 1
    }
}
for row in ring tree 'tree --order seats' r2 r2-serial leaf recursion leaves star; do
    run "$T/rows" 4 2 "$size" 1 "$row"
done
four=$(echo "$size" | sed 's/[^0-9].*//')
for lost in 1 2; do
    for row in tree 'tree --order seats'; do
        run "$T/seats" 8 4 "$((2 * four))${size#"$four"}" $lost "$row"
    done
done
jq -s --arg cores "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" --arg size "$size" \
    --arg rate "$rate" '{schema: "r2_bench_schedules/1", git: $git, cores: ($cores | tonumber), load: ($load | tonumber), size: $size, rate: $rate, rows: ., seats: $seats}' \
    --slurpfile seats "$T/seats" "$T/rows" >"$B/bench-schedules.json"
jq -r '.rows[0].healthy.makespan_ms as $ring | def pct: . * 1000 | round / 10; def r3: . * 1000 | round / 1000;
    "| `--algo` | healthy: time / simulated | ratio | one of 2 NICs lost: time / simulated | ratio | of the healthy ring | bytes by NIC |", "|---|---|---|---|---|---|---|",
    (.rows[] | "| \(.row) | \(.healthy.makespan_ms | round) / \(.healthy.simulated_ms | round) ms | \(.healthy.ratio | r3) | \(.lost.makespan_ms | round) / \(.lost.simulated_ms | round) ms | \(.lost.ratio | r3) | \($ring / .lost.makespan_ms | pct) % | \(if .exact then "as planned" else "NOT as planned" end) |"),
    "", "| eight hosts of 4 NICs, a tree; h1 has lost | left in its seat: time / simulated | of the healthy tree | in a light one: time / simulated | of the healthy tree; target 95 % |", "|---|---|---|---|---|",
    (.seats | group_by(.nics_lost)[] | . as [$in_place, $light] | "| \($light.nics_lost) of 4 NICs | " + ([$in_place, $light | "\(.lost.makespan_ms | round) / \(.lost.simulated_ms | round) ms | \(.healthy.makespan_ms / .lost.makespan_ms | pct) %"] | join(" | ")) + " |")' "$B/bench-schedules.json"
echo "# all of it: $B/bench-schedules.json"
[ "$(jq '[.rows[], .seats[] | select(.exact | not)] | length' "$B/bench-schedules.json")" = 0 ]
