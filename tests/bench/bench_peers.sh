#!/bin/sh
# make bench-peers: the plugin beside others, driven by one program (bench_pair) through the table that NCCL would take, on one software fabric. By default
# beside itself with the failover off and NCCL's own IB transport (build/bench/libnccl-net-ib.so shows its table; NCCL_LIB=FILE: of another libnccl.so.2 of
# that release). Writes BUILD/bench-peers.json and prints the table of tests/bench/README.md; with --write-doc puts it there. Exit code 1 where a run failed.
#   bench_peers.sh BUILD [--peer NAME=FILE]... [--write-doc]    RUNS in the environment: runs of what takes real time, 1 to 99 (default 5)
# Runs of the plugins take turns; instructions are counted by callgrind, once, since they are the same in every run.
set -eu
cd "$(dirname "$0")/../.."
B=build write='' runs=${RUNS:-5} peers=''
die() {
    echo "bench_peers.sh: $*" >&2
    exit 2
}
fail() {
    echo "bench_peers.sh: $*" >&2
    exit 1
}
while [ $# -gt 0 ]; do
    case $1 in
    --write-doc) write=1 ;;
    --peer)
        [ $# -gt 1 ] || die "--peer needs NAME=FILE"
        name=${2%%=*}
        case $2 in *=*) ;; *) die "--peer '$2' is not NAME=FILE" ;; esac
        case $name in '' | R2 | R2-off | IB | *[!A-Za-z0-9_.-]*) die "--peer: '$name' is no name for another plugin" ;; esac
        case $2 in *[[:space:]]*) die "--peer: '$2' has a blank" ;; esac
        [ -r "${2#*=}" ] || die "--peer $name: ${2#*=} cannot be read"
        peers="$peers $2"
        shift
        ;;
    -*) die "no such option: $1" ;;
    *) B=$1 ;;
    esac
    shift
done
case $runs in
[1-9] | [1-9][0-9]) ;;
*) die "RUNS=$runs: not a number from 1 to 99" ;;
esac
case $B in /*) ;; *) B=$PWD/$B ;; esac
for f in softfab softfab-lib/libibverbs.so.1 libnccl-net-r2.so bench/bench_pair; do
    [ -e "$B/$f" ] || die "$B/$f is not built"
done
command -v valgrind >/dev/null || die "valgrind is not installed: no instructions are counted"
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    [ "$v" = NCCL_LIB ] || unset "$v"
done
export NCCL_SOCKET_IFNAME=lo
T=$(mktemp -d)
fabric=benchp$$
trap '"$B/softfab" down --name $fabric >/dev/null 2>&1 || :; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

# NAME FILE OBJECT SETTING, a line for each: OBJECT is the library whose instructions are counted
{
    echo "R2 $B/libnccl-net-r2.so libnccl-net-r2.so NCCL_R2_FAILOVER=on"
    echo "R2-off $B/libnccl-net-r2.so libnccl-net-r2.so NCCL_R2_FAILOVER=off"
    if [ -e "$B/bench/libnccl-net-ib.so" ]; then
        echo "IB $B/bench/libnccl-net-ib.so libnccl.so NCCL_IB_DISABLE=0"
    else
        echo "# without NCCL's own transport: no CUDA toolkit with nccl.h when this was built (CUDA=DIR)" >&2
    fi
    for p in $peers; do
        echo "${p%%=*} ${p#*=} $(basename "${p#*=}") NCCL_R2_FAILOVER=on"
    done
} >"$T/plugins"

# pair NICS FILE SETTING WHAT NUMBER: what bench_pair prints, over a fabric of its own
pair() {
    "$B/softfab" up --name $fabric --hosts 2 --nics "$1" >/dev/null 2>"$T/err" || fail "no fabric: $(cat "$T/err")"
    rc=0
    env "$3" timeout 330 "$B/bench/bench_pair" --plugin "$2" --softfab "$B/softfab" --fabric $fabric "$4" "$5" >"$T/out" 2>"$T/err" || rc=$?
    "$B/softfab" down --name $fabric >/dev/null
    [ $rc = 0 ] || fail "$2: bench_pair $4 $5 failed: $(grep -v '^==' "$T/err" | tail -3)"
}
# Instructions of one object file in callgrind's own format: a line of costs behind "calls=" is that of the callee.
object_count() { # OBJECT FILE
    awk -v object="$1" '
        /^c?ob=/ { split($0, a, /[()]/); if ($2 != "") name[a[2]] = $2; if (/^ob=/) id = a[2]; next }
        /^calls=/ { skip = 1; next }
        /^[0-9+*-]/ { if (skip) skip = 0; else n[id] += $2 }
        END { for (i in n) { f = name[i]; sub(/.*\//, "", f); if (index(f, object) == 1) sum += n[i] }
              if (!sum) exit 1; printf "%d", sum }' "$2"
}
# profiled NICS FILE SETTING SIDE WHAT NUMBER: pair with one side under callgrind. A run in which a call did not do its work the first time is none: what
# the others cost would be counted, too
profiled() {
    BENCH_PAIR_UNDER="$4:valgrind --tool=callgrind --callgrind-out-file=$T/cg --collect-atstart=no --toggle-collect=pair_call_*"
    export BENCH_PAIR_UNDER
    for try in 1 2 3 4 5 6 7 8; do
        rm -f "$T/cg"
        pair "$1" "$2" "$3" "$5" "$6"
        if jq -e --argjson side "$4" '.calls_more[$side] == 0' "$T/out" >/dev/null; then
            unset BENCH_PAIR_UNDER
            return
        fi
    done
    fail "$2: $5 $6: in $try runs some call had to be made twice: the machine is too busy"
}
# count NICS FILE SETTING OBJECT SIDE WHAT FEW MANY: instructions of one item; set-up cancels out
count() {
    for n in "$7" "$8"; do
        profiled "$1" "$2" "$3" "$5" "$6" "$n"
        object_count "$4" "$T/cg" >"$T/sum.$n" || fail "$6: callgrind shows nothing of $4"
    done
    awk -v few="$(cat "$T/sum.$7")" -v many="$(cat "$T/sum.$8")" -v n=$(($8 - $7)) 'BEGIN { printf "%d", (many - few) / n + 0.5 }'
}

: >"$T/rows"
while read -r name file object setting; do
    for nics in 1 8; do
        printf '# %s: instructions, %d NICs\n' "$name" $nics >&2
        send=$(count $nics "$file" "$setting" "$object" 0 calls 64 320)
        recv=$(count $nics "$file" "$setting" "$object" 1 calls 64 320)
        empty_send=$(count $nics "$file" "$setting" "$object" 0 calls-empty-send 200 1200)
        empty_recv=$(count $nics "$file" "$setting" "$object" 1 calls-empty-recv 200 1200)
        none=$(count $nics "$file" "$setting" "$object" 0 calls-no-receive 200 1200)
        jq -nc --arg name "$name" --argjson nics $nics --argjson send "$send" --argjson recv "$recv" --argjson empty_send "$empty_send" \
            --argjson empty_recv "$empty_recv" --argjson no_receive "$none" \
            '{kind: "calls", $name, $nics, $send, $recv, $empty_send, $empty_recv, $no_receive}' >>"$T/rows"
    done
done <"$T/plugins"
n=1
while [ $n -le "$runs" ]; do
    printf '# round %d of %d\n' $n "$runs" >&2
    while read -r name file object setting; do
        for what in "1 stream 20000" "4 crowd 1000"; do
            # shellcheck disable=SC2086
            set -- $what
            pair "$1" "$file" "$setting" "$2" "$3"
            jq -c --arg name "$name" --arg kind "$2" --argjson round $n 'if type == "array" then .[] else . end | {$kind, $name, $round} + .' "$T/out" >>"$T/rows"
        done
    done <"$T/plugins"
    n=$((n + 1))
done
jq -s --arg git "$(git rev-parse --short HEAD 2>/dev/null || echo none)" --argjson cores "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --argjson runs "$runs" \
    --rawfile plugins "$T/plugins" '{$git, $cores, $load, $runs, plugins: ($plugins | split("\n") | map(select(. != "") | split(" ")[0])), rows: .}' "$T/rows" \
    >"$B/bench-peers.json"
jq -r -f tests/bench/peers_table.jq "$B/bench-peers.json" >"$B/bench-peers.md"
cat "$B/bench-peers.md"
[ -z "$write" ] || sh tests/bench/table_put.sh peers "$B/bench-peers.md"
