#!/bin/sh
# make bench: what the plugin costs and how long failures last, on the software fabric. Writes BUILD/bench.json and prints the table of
# tests/bench/README.md; with --write-doc writes that file and the numbers of README.md too.
#   bench.sh BUILD [--write-doc] [--only SECTION[,SECTION...]]   (--only prints the JSON of cost, memory, many, stall, setup, load, idle, bandwidth, calls, fill,
# fabric)
# Counts and virtual times are the same everywhere. Real times are compared with the same thing without a fault, and rates are ratios within
# one run, because the machine may be slow and shared.
set -eu
cd "$(dirname "$0")/../.."
B=build write= only=
. tests/port_lib.sh
while [ $# -gt 0 ]; do
    case $1 in
    --write-doc) write=1 ;;
    --only)
        only=${2:?--only needs the name of a section}
        shift
        ;;
    -*)
        echo "bench.sh: no such option: $1" >&2
        exit 2
        ;;
    *) B=$1 ;;
    esac
    shift
done
case $B in /*) ;; *) B=$PWD/$B ;; esac
for f in r2_perf softfab softfab-lib/libibverbs.so.1 libnccl-net-r2.so bench/bench_inproc bench/bench_pair; do
    [ -e "$B/$f" ] || {
        echo "bench.sh: $B/$f is not built" >&2
        exit 1
    }
done
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
export NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_SOCKET_IFNAME=lo
T=$(mktemp -d)
fabric=
trap '[ -z "$fabric" ] || "$B/softfab" down --name "$fabric" >/dev/null 2>&1; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

fail() {
    echo "bench.sh: $*" >&2
    [ ! -s "$T/err" ] || tail -20 "$T/err" | sed 's/^/    | /' >&2
    exit 1
}
inproc() {
    timeout 120 "$B/bench/bench_inproc" "$@" 2>"$T/err" || fail "bench_inproc $* failed"
}
# pair NICS WHAT...: two processes over the plugin
pair() {
    fabric=bench$$
    "$B/softfab" up --name $fabric --hosts 2 --nics "$1" >/dev/null 2>"$T/err" || fail "no fabric"
    shift
    timeout 330 "$B/bench/bench_pair" --plugin "$NCCL_NET_PLUGIN" --softfab "$B/softfab" --fabric $fabric "$@" 2>"$T/err" ||
        fail "bench_pair $* failed"
    "$B/softfab" down --name $fabric >/dev/null
    fabric=
}
# perf FILE ARGUMENTS: r2_perf with its figures in FILE; nothing may be wrong
perf() {
    file=$1
    shift
    rm -f "$file"
    timeout 120 "$B/r2_perf" "$@" --placement out --hosts 2 --latency 20us -w 1 --json "$file" >"$T/err" 2>&1 || fail "r2_perf $* failed"
    jq -e '.r2.wrong == 0 and .r2.checked_operations > 0 and ([.r2.faults[] | .fired == "true" and .status == 0] | all)' "$file" \
        >/dev/null || fail "r2_perf $*: wrong data, or a fault that did not fire"
}

# Half of the faults change nothing: the pause after those is what the machine and the links do by themselves.
collective_stall() {
    t=300
    set --
    for nic in 0 1 2 3 4 5 6; do
        set -- "$@" --fault "${t}ms:*:n7 delay 0ms" --fault "$((t + 120))ms:h$((nic % 2)):n$nic down"
        t=$((t + 240))
    done
    for i in 1 2 3 4; do
        perf "$T/run$i" all_reduce --nics 8 --rate 10MB/s -b 1M -e 1M --buffsize 32K --duration $((t + 200))ms "$@"
    done
    jq -s '
        def spread: sort | {n: length, median_ms: .[length / 2 | floor], p99_ms: .[length * 99 / 100 | floor], max_ms: .[-1]};
        [.[].r2.faults[]] | {operation: "all_reduce", nics: 8,
            stall: [.[] | select(.what | test("down")) | .stall.ms] | spread,
            no_fault: [.[] | select(.what | test("delay")) | .stall.ms] | spread}' "$T"/run1 "$T"/run2 "$T"/run3 "$T"/run4
}

# The median of three runs.
one_bandwidth() {
    for i in 1 2 3; do
        perf "$T/run$i" "$1" --nics "$2" --rate "$3" -b 4M -e 4M --buffsize 256K --duration 4s --fault "2s:h0:n1 down"
    done
    jq -s --arg op "$1" --argjson n "$2" '[.[].r2.busbw | {before, after, ratio: .after_over_before}] | sort_by(.ratio) |
        {operation: $op, nics: $n, runs: .} + (.[1] | {ratio, of_ideal: (.ratio / (($n - 1) / $n))})' \
        "$T/run1" "$T/run2" "$T/run3"
}

# Instructions of the plugin's own functions (and of the verbs calls inlined into them) below @entry
instructions() { # ENTRY WHAT N NICS
    timeout 120 valgrind --tool=callgrind --callgrind-out-file="$T/cg" --collect-atstart=no --toggle-collect="$1" \
        "$B/bench/bench_inproc" calls "$2" "$3" "$4" >"$T/calls" 2>"$T/err" || fail "callgrind of calls $2 $3 $4 failed"
    callgrind_annotate --auto=no --show-percs=no --threshold=100 "$T/cg" 2>"$T/err" |
        awk '/file:function/ { on = 1; next }
             on && $2 ~ /(^|\/)plugin\/|infiniband\/verbs.h:/ { gsub(",", "", $1); n += $1 }
             END { if (!n) exit 1; printf "%d", n }' || fail "callgrind_annotate shows nothing of the plugin"
}
# of one message or one test: set-up cancels out
per_item() { # SIDE WHAT NICS
    few=$(instructions "bench_call_$1" "$2" 500 "$3")
    many=$(instructions "bench_call_$1" "$2" 1500 "$3")
    echo $(((many - few) / 1000))
}

# What the links of the fabric themselves do: a port's bytes between two readings of its counters, by its rate; and how two processes share one.
# one_link WHAT PLACE PROGRAM OPTIONS...: client on host 1
one_link() {
    what=$1 place=$2
    shift 2
    port_next
    "$B/softfab" exec --name $fabric --host 0 -- timeout 60 "$@" -x 3 -s 65536 -n 6000 -p "$port" >"$T/err" 2>&1 &
    server=$!
    port_wait "$port" $server >/dev/null || fail "$* does not listen"
    "$B/softfab" exec --name $fabric --host 1 -- timeout 60 "$@" -x 3 -s 65536 -n 6000 -p "$port" 127.0.0.1 >"$T/err" 2>&1 &
    client=$!
    sleep 1
    "$B/softfab" status --json --name $fabric >"$T/then"
    sleep 2
    "$B/softfab" status --json --name $fabric >"$T/end"
    wait $client || fail "$* failed"
    wait $server || fail "$* failed"
    jq -s --arg what "$what" --arg place "$place" '
        def sent: .nic[] | select(.place == $place) | .tx_bytes;
        {what: $what, of_rate: (((.[1] | sent) - (.[0] | sent)) / (.[1].from_ns - .[0].from_ns) * 1e9 / 100000000)}' "$T/then" "$T/end"
}
# Bytes that host 0 got over each of its NICs from two processes that share a port of host 1, of which one polls and one sleeps.
two_processes() {
    for side in 0 1; do
        port_next
        tool=ib_write_bw
        [ $side = 0 ] || tool='ib_send_bw -e'
        for host in 0 1; do
            nic=fab0 to=127.0.0.1
            [ $host = 1 ] || nic=fab$side to=
            # shellcheck disable=SC2086
            "$B/softfab" exec --name $fabric --host $host -- timeout 60 $tool -d $nic -x 3 -s 65536 -n 4000 -p "$port" $to >"$T/err" 2>&1 &
            eval "p$side$host=$!"
            [ $host = 1 ] || port_wait "$port" $! >/dev/null || fail "$tool does not listen"
        done
    done
    sleep 1
    "$B/softfab" status --json --name $fabric >"$T/then"
    sleep 2
    "$B/softfab" status --json --name $fabric >"$T/end"
    # shellcheck disable=SC2154
    for p in $p00 $p01 $p10 $p11; do
        wait "$p" || fail "a process on a shared port failed"
    done
    jq -s '[range(2) as $n | [.[] | .nic[] | select(.host == 0 and .nic == $n) | .rx_bytes] | .[1] - .[0]] |
        {what: "two processes on one port, one polls, one sleeps: larger by smaller", ratio: (max / min)}' "$T/then" "$T/end"
}
fabric_links() {
    fabric=bench$$
    "$B/softfab" up --name $fabric --hosts 2 --nics 2 --rate 100MB/s --latency 10us --crossrail >/dev/null 2>"$T/err" || fail "no fabric"
    {
        one_link "ib_write_bw" h1:n0 ib_write_bw -d fab0
        one_link "ib_write_bw, 4 queue pairs" h1:n0 ib_write_bw -d fab0 -q 4
        one_link "ib_read_bw" h0:n1 ib_read_bw -d fab1
        two_processes
    } >"$T/links"
    jq -s . "$T/links"
    "$B/softfab" down --name $fabric >/dev/null
    fabric=
}

# CPU time and wake-ups of a process at rest, medians of $IDLE_ROUNDS runs with 1, 1000 and 4000 connections, or those of $IDLE: of the
# process that takes more. With $IDLE_BESIDE, a plugin built elsewhere, its runs stand between ours.
idle() {
    for n in ${IDLE:-1 1000 4000}; do
        round=0
        while [ $round -lt "${IDLE_ROUNDS:-3}" ]; do
            for plugin in ${IDLE_BESIDE:+"$IDLE_BESIDE"} "$NCCL_NET_PLUGIN"; do
                plugin_was=$NCCL_NET_PLUGIN
                NCCL_NET_PLUGIN=$plugin
                pair 4 idle "$n" >"$T/row"
                NCCL_NET_PLUGIN=$plugin_was
                jq -c --arg plugin "$plugin" '{plugin: $plugin} + .' "$T/row"
            done
            round=$((round + 1))
        done
    done >"$T/idle_rows"
    jq -s '
        def median: sort | .[length / 2 | floor];
        group_by([.connections, .plugin]) | map((map([.sender, .receiver] | max_by(.cpu_ms_per_s))) as $r | {
            connections: .[0].connections, nics: .[0].nics, plugin: .[0].plugin, runs: length,
            all_cpu_ms_per_s: ($r | map(.cpu_ms_per_s) | sort)} +
            ($r[0] | with_entries(select(.value | type == "number")) | keys |
                map({key: ., value: ([$r[][.]] | median)}) | from_entries) +
            {wakes_per_s: ($r[0].wakes_per_s | keys | map({key: ., value: ([$r[].wakes_per_s[.]] | median)}) | from_entries)})' \
        "$T/idle_rows"
}

section() {
    case $1 in
    cost) inproc cost ;;
    memory) inproc memory ;;
    many)
        for n in 16 1000; do inproc many 1000 $n; done >"$T/rows"
        jq -s . "$T/rows"
        ;;
    stall)
        inproc stall 1000 >"$T/virtual"
        pair 8 stall 15 >"$T/real"
        collective_stall >"$T/collective"
        jq -n --slurpfile v "$T/virtual" --slurpfile r "$T/real" --slurpfile c "$T/collective" \
            '{virtual: $v[0], connection: $r[0], collective: $c[0]}'
        ;;
    setup) pair 4 setup ;;
    load) # 1000 and 4000 connections, or those of $LOAD
        for n in ${LOAD:-1000 4000}; do pair 4 load $n; done >"$T/rows"
        jq -s . "$T/rows"
        ;;
    idle) idle ;;
    fill) inproc fill ;;
    fabric)
        if ! command -v ib_write_bw >/dev/null; then
            echo '{"skipped": "perftest is not installed"}'
            return
        fi
        fabric_links
        ;;
    bandwidth)
        for op in all_reduce sendrecv; do
            one_bandwidth $op 4 20MB/s
            one_bandwidth $op 8 10MB/s
        done >"$T/rows"
        jq -s . "$T/rows"
        ;;
    calls)
        if ! command -v valgrind >/dev/null || ! command -v callgrind_annotate >/dev/null; then
            echo '{"skipped": "valgrind is not installed"}'
            return
        fi
        for nics in 1 8; do
            several='{}'
            [ $nics = 8 ] || several=$(printf '{"send_2_queue_pairs": %s, "send_8_queue_pairs": %s}' \
                "$(per_item send traffic-2-qps 1)" "$(per_item send traffic-8-qps 1)")
            jq -n --argjson nics $nics --argjson s "$(per_item send traffic $nics)" --argjson r "$(per_item recv traffic $nics)" \
                --argjson si "$(per_item send idle-send $nics)" --argjson ri "$(per_item recv idle-recv $nics)" \
                --argjson none "$(per_item send no-receive $nics)" --argjson several "$several" \
                '{nics: $nics, bytes: 131072, send: $s, recv: $r, idle_send_test: $si, idle_recv_test: $ri, no_receive: $none} + $several'
        done >"$T/rows"
        jq -s . "$T/rows"
        ;;
    *)
        echo "bench.sh: no such section: $1" >&2
        exit 2
        ;;
    esac
}

if [ -n "$only" ]; then
    for s in $(echo "$only" | tr , ' '); do section "$s"; done
    exit
fi
for s in cost memory many stall setup load bandwidth calls fill fabric; do
    printf '# %s\n' "$s" >&2
    section $s >"$T/$s.json"
    jq -e . "$T/$s.json" >/dev/null || fail "section $s gave no JSON"
done
jq -n --slurpfile cost "$T/cost.json" --slurpfile memory "$T/memory.json" --slurpfile many "$T/many.json" --slurpfile stall "$T/stall.json" \
    --slurpfile setup "$T/setup.json" --slurpfile load "$T/load.json" --slurpfile bandwidth "$T/bandwidth.json" --slurpfile calls "$T/calls.json" \
    --slurpfile fill "$T/fill.json" --slurpfile fabric "$T/fabric.json" \
    --arg cores "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" \
    '{schema: "r2_bench/1", git: $git, cores: ($cores | tonumber), load: ($load | tonumber), cost: $cost[0], memory: $memory[0], many: $many[0],
      stall: $stall[0], setup: $setup[0], load: $load[0], bandwidth: $bandwidth[0], calls: $calls[0], fill: $fill[0], fabric: $fabric[0]}' >"$T/bench.json"
mv "$T/bench.json" "$B/bench.json"
jq -r -f tests/bench/table.jq "$B/bench.json" >"$T/table"
cat "$T/table"
echo "# all of it: $B/bench.json"
[ -n "$write" ] || exit 0
sh tests/bench/write_doc.sh "$B/bench.json" "$T/table"
