#!/bin/sh
# make bench-balance: who carries how much after NICs were lost or have become slow, on rated links of the software fabric. Writes BUILD/bench-balance.json and
# BUILD/bench-balance.svg and prints the tables of tests/bench/README.md; with --write-doc puts them there.
#   bench_balance.sh BUILD [--write-doc] [--only lost|room|four|unequal|processes|small|grey|fill] [--runs N]   (--only prints that section's JSON)
# Each figure is a ratio within one run (what the NICs send after the faults by what they sent before, the middle one of five pieces of time each; NICs against
# each other), because the machine may be slow and shared; with --runs N the median of N runs.
set -eu
cd "$(dirname "$0")/../.."
B=build write= only= runs=1
number() { # number OPTION TEXT MOST
    case $2 in
    '' | *[!0-9]* | ?????*) ;;
    *) [ "$2" -lt 1 ] || [ "$2" -gt "$3" ] || return 0 ;;
    esac
    echo "bench_balance.sh: $1 $2: not a number from 1 to $3" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --write-doc) write=1 ;;
    --only)
        only=${2:?--only needs the name of a section}
        shift
        ;;
    --runs)
        number --runs "${2:-}" 99
        runs=$2
        shift
        ;;
    -*)
        echo "bench_balance.sh: no such option: $1" >&2
        exit 2
        ;;
    *) B=$1 ;;
    esac
    shift
done
case $B in /*) ;; *) B=$PWD/$B ;; esac
for f in r2_perf softfab softfab-lib/libibverbs.so.1 libnccl-net-r2.so bench/bench_inproc; do
    [ -e "$B/$f" ] || {
        echo "bench_balance.sh: $B/$f is not built" >&2
        exit 1
    }
done
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
export NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_SOCKET_IFNAME=lo
T=$(mktemp -d)
piece=400 # ms: the NICs' counters are read so often, five times and once before the faults and after them
half=$((5 * piece + 300)) # when the faults come
settle=250 # from when on after them is what follows them
fabric=benchb$$
trap '"$B/softfab" down --name $fabric >/dev/null 2>&1 || :; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

fail() {
    echo "bench_balance.sh: $*" >&2
    [ ! -s "$T/err" ] || tail -20 "$T/err" | sed 's/^/    | /' >&2
    exit 1
}
hosts=2 perf="$B/r2_perf"
# net LINE...: a fabric of $hosts hosts of that description
net() {
    printf '%s\n' "hosts $hosts" "latency 20us" "$@" >"$T/desc"
    "$B/softfab" down --name $fabric >/dev/null 2>&1 || :
    "$B/softfab" up --name $fabric --desc "$T/desc" >/dev/null 2>"$T/err" || fail "no fabric"
    tree=$("$B/softfab" status --name $fabric --json | jq -r '.dir + "/host0"') # both hosts are alike
}
# mark N: what each NIC has sent so far, and when that was
cat >"$T/mark" <<'END'
#!/bin/sh
unset LD_PRELOAD
date +%s%N >"$MARKS/mark.$1.t"
"$SOFTFAB" status --name "$FABRIC" --json >"$MARKS/mark.$1"
END
chmod +x "$T/mark"
export MARKS="$T" SOFTFAB="$B/softfab" FABRIC="$fabric"
# one_run FILE ARGUMENTS...: $perf on the fabric: what goes over the links after the faults by what went before, in one run, and what each NIC sent after them
one_run() {
    file=$1
    shift
    rm -f "$T"/mark.*
    "$B/softfab" fault --name $fabric '*:* restore' >/dev/null 2>"$T/err" || fail "the fabric cannot be restored"
    n=0
    while [ $n -lt 6 ]; do
        set -- "$@" --fault-cmd "$((half - 50 - (5 - n) * piece))ms:$T/mark $n" --fault-cmd "$((half + settle + n * piece))ms:$T/mark $((6 + n))"
        n=$((n + 1))
    done
    timeout 180 "$perf" "$@" --fabric $fabric --placement out --hosts $hosts -w 1 -T 60s --duration $((half + settle + 5 * piece + 100))ms --json "$T/perf" >"$T/err" 2>&1 ||
        fail "$perf $* failed"
    jq -e '.r2.wrong == 0 and .r2.checked_operations > 0 and ([.r2.faults[] | .fired == "true" and .status == 0] | all)' "$T/perf" >/dev/null ||
        fail "$perf $*: wrong data, or a fault that did not fire"
    for n in 0 1 2 3 4 5 6 7 8 9 10 11; do
        jq -c --argjson t "$(cat "$T/mark.$n.t")" '{t: $t, nic: .nic}' "$T/mark.$n"
    done | jq -s '
        def rate(a; b): ((.[b].nic | map(.tx_bytes) | add) - (.[a].nic | map(.tx_bytes) | add)) / (.[b].t - .[a].t);
        def level(from): . as $m | [range(from; from + 5) | . as $i | $m | rate($i; $i + 1)] | sort | .[2];
        {after_over_before: (level(6) / level(0)), before_MBps: (level(0) * 1000),
         sent: ([.[11].nic, .[6].nic] | transpose | map({place: .[0].place, host: .[0].host, nic: .[0].nic, bytes: (.[0].tx_bytes - .[1].tx_bytes)}))}' >"$file"
    rm -f "$T/perf"
}
# median ARGUMENTS...: of $runs runs the one in the middle
median() {
    rm -f "$T"/one.*
    i=0
    while [ $i -lt "$runs" ]; do
        i=$((i + 1))
        one_run "$T/one.$i" "$@"
    done
    jq -s 'sort_by(.after_over_before) | .[length / 2 | floor]' "$T"/one.*
}
# faults HOW COUNT: options of r2_perf that take NICs 0 to COUNT - 1 down at once, all on host 0 or on the hosts in turn
faults() {
    f=0
    while [ $f -lt "$2" ]; do
        host=0
        [ "$1" = one ] || host=$((f % 2))
        printf ' --fault %dms:h%d:n%d_down' "$half" $host $f
        f=$((f + 1))
    done
}
# with_faults FUNCTION HOW COUNT ARGUMENTS...: calls it with them and those options
with_faults() {
    function=$1
    words=$(faults "$2" "$3")
    shift 3
    for w in $words; do
        set -- "$@" "$(echo "$w" | tr _ ' ')"
    done
    "$function" "$@"
}

ops='all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall'
# lost_row OPERATION NICS HOW COUNT
lost_row() {
    on=$(with_faults median "$3" "$4" "$1" -b 4M -e 4M --buffsize 512K)
    off=null
    if [ "$3" = one ] && [ $(($4 % 3)) = 1 -o "$2" = 4 ]; then
        off=$(export NCCL_R2_BALANCE=off; with_faults median "$3" "$4" "$1" -b 4M -e 4M --buffsize 512K)
    fi
    jq -n --arg op "$1" --argjson n "$2" --arg how "$3" --argjson k "$4" --argjson on "$on" --argjson off "$off" '
        (1 - $k / $n) as $ideal | {operation: $op, nics: $n, lost: $k, hosts: (if $how == "one" then 1 else 2 end), ideal: $ideal, ratio: $on.after_over_before,
         of_ideal: ($on.after_over_before / $ideal), hot_repair: (if $off then $off.after_over_before / $ideal else null end)}'
}
section_lost() {
    for nics in 4 8; do
        net "nics $nics" "rate $((80000 / nics))KB/s"
        for op in $ops; do
            k=0
            while [ $((k += 1)) -lt $nics ]; do
                lost_row $op $nics one "$k"
                [ "$k" = 1 ] || lost_row $op $nics both "$k"
            done
        done
    done >"$T/rows"
    jq -s . "$T/rows"
}

# Host 2 gets the data of two others, of which one loses a NIC and stands in on the others: is there room for it?
section_room() {
    hosts=3
    settle=4000 # who stands in has moved something in three looks of the receiver's before that says so
    for nics in 2 4 8; do
        net "nics $nics" "rate $((40000 / nics))KB/s"
        one=$(median gather -r 2 -b 16M -e 16M --fault "${half}ms:h1:n1 down")
        # without: NIC 0 of host 2 gets its half from either host, and its part of what NIC 1 of host 1 has lost
        jq -n --argjson n "$nics" --argjson one "$one" '{operation: "gather", hosts: 3, nics: $n, ratio: $one.after_over_before, without: (1 / (1 + 0.5 / ($n - 1))),
            sent: [$one.sent[] | select(.host == 0) | .bytes]}'
    done >"$T/rows"
    settle=250 hosts=2
    jq -s . "$T/rows"
}

# Four hosts, of which h1 loses the second of the two NICs that it uses: a ring, whose pace is h1's; NCCL's tree, where h1's neighbours have connections to it on the
# NIC that they use for each other, too; and the same over a communicator in which h1 has an end seat and half as much to carry (docs/collectives.md).
# four_row NAME IDEAL ARGUMENTS...
four_row() {
    name=$1 ideal=$2
    shift 2
    one=$(median all_reduce -b 4M -e 4M "$@" --fault "${half}ms:h1:n1 down")
    jq -n --arg name "$name" --argjson ideal "$ideal" --argjson one "$one" '{what: $name, hosts: 4, nics: 2, ideal: $ideal, ratio: $one.after_over_before,
        of_ideal: ($one.after_over_before / $ideal), by_host: [$one.sent | map(select(.nic < 2)) | group_by(.host)[] | map(.bytes) | {sent: add, over_nic0: (.[0] / add)}]}'
}
section_four() {
    hosts=4 piece=1000 half=$((5 * 1000 + 300)) settle=4000
    {
        net "nics 2" "rate 10MB/s"
        four_row "a ring" 0.5 --buffsize 512K
        if [ -x "$B/r2_nccl" ]; then
            # a GPU's job uses the two NICs beside it; small buffers are made sooner
            export NCCL_ALGO=Tree NCCL_IB_HCA==fab0,fab1 NCCL_BUFFSIZE=1048576 NCCL_LL128_BUFFSIZE=655360
            perf="$B/r2_nccl"
            net "nics 4" "rate 3MB/s"
            four_row "a tree" 0.5
            settle=25000 # until the other communicator is there
            printf '#!/bin/sh\nNCCL_DEBUG=INFO NCCL_DEBUG_FILE=%s/nccl LD_PRELOAD=%s/libr2coll.so NCCL_R2_PLACE=on exec %s/r2_nccl "$@"\n' "$T" "$B" "$B" >"$T/placed"
            chmod +x "$T/placed"
            perf="$T/placed"
            four_row "a tree, ranks in another order from then on" 1
            grep -q 'placement: switching communicator 1' "$T/err" || fail "no switch to another order"
            perf="$B/r2_perf"
            unset NCCL_ALGO NCCL_IB_HCA NCCL_BUFFSIZE NCCL_LL128_BUFFSIZE
        else
            echo "# no tree: r2_nccl is not built (tests/nccl/README.md)" >&2
        fi
    } >"$T/rows"
    piece=400 hosts=2 settle=250 half=$((5 * 400 + 300))
    jq -s . "$T/rows"
}

# One ring over NIC 0, which goes down. @1: name; @2: "RATE..." of the survivors in MB/s; NIC 0 has 10. Everything over the fastest survivor; equal parts (no topology:
# verbs knows no speed below 2.5 Gb/s, so all look alike); and by the topology.
unequal_row() {
    set -- "$1" "$2" 0
    lines= nic=0
    for r in $2; do
        nic=$((nic + 1))
        lines="$lines
nic $nic rate ${r}MB/s"
    done
    net "nics $((nic + 1))" "rate 10MB/s" "$lines"
    by=$(export NCCL_R2_TOPO="$tree"; with_faults median one 1 all_reduce --channels 1 -b 4M -e 4M --buffsize 1M)
    single=$(export NCCL_R2_BALANCE=off NCCL_R2_BACKUP_NICS==fab1; with_faults median one 1 all_reduce --channels 1 -b 4M -e 4M --buffsize 1M)
    equal=$(export NCCL_R2_TOPO=off; with_faults median one 1 all_reduce --channels 1 -b 4M -e 4M --buffsize 1M)
    jq -n --arg what "$1" --arg rates "$2" --argjson by "$by" --argjson single "$single" --argjson equal "$equal" '
        ($rates | split(" ") | map(tonumber)) as $r | (($r | add) / 10) as $fill | {what: $what, rates_MBps: $r,
         water_filling: $fill, weights: $by.after_over_before, of_water_filling: ($by.after_over_before / $fill), single: $single.after_over_before,
         equal: $equal.after_over_before, sent: [$by.sent[] | select(.host == 0 and .nic > 0) | .bytes]}'
}
section_unequal() {
    {
        unequal_row "one survivor at half of the rate" "10 10 5"
        unequal_row "two survivors, one at 58 % (a host bridge in the way)" "10 5.8"
        unequal_row "two survivors, one at a quarter" "10 2.5"
    } >"$T/rows"
    jq -s . "$T/rows"
}

# Four processes on each host, all of whose traffic passes the NICs; NIC 0 of one host goes down.
section_processes() {
    net "nics 4" "rate 20MB/s"
    for op in $ops; do
        one=$(export NCCL_R2_TOPO="$tree"; with_faults median one 1 $op --ranks-per-host 4 --intra net --channels 4 -b 1M -e 1M --buffsize 1M)
        echo "$one" | jq --arg op $op '
            [.sent | group_by(.host)[] | map(select(.nic > 0) | .bytes) | max / (add / length)] as $m |
            {operation: $op, nics: 4, processes: 4, max_over_mean: ($m | max), lost_nic_of_all: ([.sent[] | select(.place == "h0:n0") | .bytes][0] / ([.sent[] | select(.host == 0) | .bytes] | add)),
             ratio: .after_over_before}'
    done >"$T/rows"
    jq -s . "$T/rows"
}

# One of four NICs carries a fifth at both ends, without any error.
section_grey() {
    net "nics 4" "rate 20MB/s"
    settle=1000 # by then it is to be found
    for op in $ops; do
        one=$(median $op -b 4M -e 4M --buffsize 512K --fault "${half}ms:*:n1 rate 4MB/s")
        jq -n --arg op $op --argjson one "$one" '(3.2 / 4) as $ideal | {operation: $op, nics: 4, slow_to: 0.2, ideal: $ideal, ratio: $one.after_over_before, of_ideal: ($one.after_over_before / $ideal),
            without_weights: (0.2 / $ideal), sent: [$one.sent[] | select(.host == 0) | .bytes]}'
    done >"$T/rows"
    settle=250
    jq -s . "$T/rows"
}

section() {
    case $1 in
    lost | room | four | unequal | processes | grey) section_"$1" ;;
    small | fill) timeout 120 "$B/bench/bench_inproc" "$1" 2>"$T/err" || fail "bench_inproc $1 failed" ;;
    *)
        echo "bench_balance.sh: no such section: $1" >&2
        exit 2
        ;;
    esac
}

if [ -n "$only" ]; then
    section "$only"
    exit
fi
set --
for s in lost room four unequal processes small grey fill; do
    printf '# %s\n' "$s" >&2
    section $s >"$T/$s.json"
    jq -e . "$T/$s.json" >/dev/null || fail "section $s gave no JSON"
    set -- "$@" --slurpfile $s "$T/$s.json"
done
jq -n "$@" --arg cores "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" --argjson runs "$runs" \
    '{schema: "r2_bench_balance/1", git: $git, cores: ($cores | tonumber), load: ($load | tonumber), runs: $runs, lost: $lost[0], room: $room[0], four: $four[0], unequal: $unequal[0], processes: $processes[0],
      small: $small[0], grey: $grey[0], fill: $fill[0]}' >"$T/bench.json"
mv "$T/bench.json" "$B/bench-balance.json"
jq -r -f tests/bench/balance_svg.jq "$B/bench-balance.json" >"$B/bench-balance.svg"
jq -r -f tests/bench/balance_table.jq "$B/bench-balance.json" >"$T/table"
cat "$T/table"
echo "# all of it: $B/bench-balance.json, as a picture: $B/bench-balance.svg"
[ -n "$write" ] || exit 0
sh tests/bench/balance_doc.sh "$T/table" "$B/bench-balance.json"
