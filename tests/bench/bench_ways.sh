#!/bin/sh
# make bench-ways: what packets that are lost on the way cost, on rated links of the software fabric: a NIC's glitch and loss, and one of eight spines that is
# silent or loses some. Beside it the same with one way (NCCL_R2_WAYS=1). Writes BUILD/bench-ways.json and prints the table of tests/bench/README.md; with
# --write-doc puts it there. Exit code 1 where a run failed, or a NIC was given up (but X0's, which is silent for as long as a dead one), with the ways that are the default.
#   bench_ways.sh BUILD [--write-doc]        RUNS in the environment: runs of each row, 1 to 99 (default 20)
set -eu
cd "$(dirname "$0")/../.."
B=build write= runs=${RUNS:-20}
for arg; do
    case $arg in
    --write-doc) write=1 ;;
    -*)
        echo "bench_ways.sh: no such option: $arg" >&2
        exit 2
        ;;
    *) B=$arg ;;
    esac
done
case $runs in
[1-9] | [1-9][0-9]) ;;
*)
    echo "bench_ways.sh: RUNS=$runs: not a number from 1 to 99" >&2
    exit 2
    ;;
esac
case $B in /*) ;; *) B=$PWD/$B ;; esac
for f in r2_perf softfab softfab-lib/libibverbs.so.1 libnccl-net-r2.so; do
    [ -e "$B/$f" ] || {
        echo "bench_ways.sh: $B/$f is not built" >&2
        exit 1
    }
done
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
export NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO
T=$(mktemp -d)
fabric=benchw$$
trap '"$B/softfab" down --name $fabric >/dev/null 2>&1 || :; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

# fabric_up: fresh for each run, so that its counters are the run's and no connection finds another's traces
fabric_up() {
    "$B/softfab" down --name $fabric >/dev/null 2>&1 || :
    "$B/softfab" up --name $fabric --hosts 2 --nics 4 --spines 8 --rate 20MB/s >/dev/null 2>"$T/out" || {
        echo "bench_ways.sh: no fabric: $(cat "$T/out")" >&2
        exit 1
    }
}
# one_run ROW WAYS I: one line of JSON
one_run() {
    nic="h$(($3 % 2)):n$(($3 / 2 % 4))" spine=$(($3 * 3 % 8))
    fabric_up
    case $1 in
    X0) # 20 to 80 ms, evenly over the runs
        glitch=$((20 + 60 * $3 / (runs > 1 ? runs - 1 : 1)))
        set -- "$@" --fault "1s:$nic blackhole" --fault "$((1000 + glitch))ms:$nic up"
        ;;
    X0b) set -- "$@" --fault "1s:$nic loss 1%" ;;
    X1) set -- "$@" --fault "1s:spine $spine blackhole" ;;
    X2) "$B/softfab" fault --name $fabric "spine $spine blackhole" ;;
    X3) set -- "$@" --fault "1s:spine $spine loss 3%" ;;
    esac
    row=$1 ways=$2
    shift 3
    rm -f "$T/perf" "$T/events"
    code=0
    NCCL_R2_WAYS=$ways NCCL_R2_EVENT_FILE="$T/events" timeout -k 5 120 "$B/r2_perf" all_reduce --fabric $fabric --hosts 2 -b 256K -e 256K --buffsize 128K \
        --channels 8 --placement out -w 0 -T 60s --duration 4s --stats "$@" --json "$T/perf" >"$T/out" 2>&1 || code=$?
    [ -s "$T/perf" ] || echo '{}' >"$T/perf"
    [ -s "$T/events" ] || : >"$T/events"
    # a path that goes down for another reason than what leaves its NIC where it is, its last packet or its way, and NICs of a host that have such
    given_up=$(grep ' UP -> DOWN: ' "$T/out" | grep -v 'DOWN: \(last packet lost\|silent way\|announced by peer\),' |
        sed 's/^\([^:]*\):.*local NIC \([^,]*\),.*/\1 \2/' | sort -u | wc -l)
    "$B/softfab" status --name $fabric --json | jq -c --arg row "$row" --argjson ways "$ways" --argjson code $code --argjson given_up "$given_up" \
        --slurpfile perf "$T/perf" --slurpfile events "$T/events" '
        $perf[0].r2 as $r | {row: $row, ways: $ways, ok: ($code == 0 and $r.wrong == 0 and $r.checked_operations > 0), given_up: $given_up,
         lost: (([.nic[].drops] | add) + ([.spine[].dropped] | add)),
         stall_ms: ([$r.stall.ms // 0, ($events[] | select(.kind == "switch") | .stall_us / 1000)] | max),
         before: $r.busbw.before, ratio: $r.busbw.after_over_before}'
}

n=0
while [ $n -lt "$runs" ]; do # row after row in each round: a load that comes and goes meets all of them
    printf '# round %d of %d\n' $((n + 1)) "$runs" >&2
    for row in X0 X0b X1 X2 X3; do
        one_run $row 8 $n
        one_run $row 1 $n
    done >>"$T/rows"
    n=$((n + 1))
done
jq -s --arg cores "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" --argjson runs "$runs" \
    '{schema: "r2_bench_ways/1", git: $git, cores: ($cores | tonumber), load: ($load | tonumber), runs: $runs, rows: .}' "$T/rows" >"$T/bench.json"
mv "$T/bench.json" "$B/bench-ways.json"
jq -r -f tests/bench/ways_table.jq "$B/bench-ways.json" >"$T/table"
cat "$T/table"
echo "# all of it: $B/bench-ways.json"
[ -z "$write" ] || sh tests/bench/table_put.sh ways "$T/table"
missed=$(jq -r '[.rows[] | select(.ways == 8 and (.ok and (.given_up == 0 or .row == "X0") | not)) | .row] | unique | join(" ")' "$B/bench-ways.json")
[ -z "$missed" ] || {
    echo "bench_ways.sh: a run failed or a NIC was given up: $missed" >&2
    exit 1
}
