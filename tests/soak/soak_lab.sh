#!/bin/sh
# The campaign in the lab: collectives between VMs with the kernel's Soft-RoCE, under random schedules of faults. README.md of this folder; tests/lab/README.md.
# Usage: soak_lab.sh BUILD [--seeds N] [--from S] [--seed S]     last line "N passed, N failed"; a machine without QEMU is a skip, with the reason.
B=${1:-build}
[ $# -gt 0 ] && shift
seeds=50 from=0
while [ $# -ge 2 ]; do
    case $1 in
    --seeds) seeds=$2 ;;
    --from) from=$2 ;;
    --seed) seeds=1 from=$2 ;;
    *) break ;;
    esac
    shift 2
done
case $seeds$from in *[!0-9]*) set -- wrong ;; esac
[ $# = 0 ] || {
    echo "usage: soak_lab.sh BUILD [--seeds N] [--from S] [--seed S]" >&2
    exit 2
}
cd "$(dirname "$0")/../.." || exit 2
B=$(cd "$B" && pwd) || exit 2
W=$B/lab/soak
# used by what is sourced
# shellcheck disable=SC2034
LIMIT=120 only=
. tests/lab/scn_lib.sh
. tests/lab/scn_cases.sh

# draw N: a number below N in $r, the next of this seed
draw() {
    state=$(((state * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff))
    r=$(((state >> 24) % $1))
}
# one_of WORD...: one of them in $w
one_of() {
    draw $#
    shift "$r"
    w=$1
}

# break_draw TIME: a fault of a rail that may be lost, and perhaps its end, into $faults; what a path may go down for, into $hurt; $least: whether some
# path surely does
break_draw() {
    draw "$hosts"
    host=$r
    draw 3
    rail=$(((safe + 1 + r) % 4))
    at=h$host:n$rail
    draw $((hosts - 1))
    far=h$(((host + 1 + r) % hosts)):n$rail
    case " $used " in
    *" $at "*) one_of 'cut both' 'cut in' 'cut out' ;; # of a NIC that is gone the VM would know nothing
    *) one_of 'cut both' 'cut in' 'cut out' linkdown ifdown unplug pair 'pair out' rail ;;
    esac
    used="$used $at"
    mend=
    case $w in
    pair*) what="cut $at-$far${w#pair}" mend="heal $at-$far" hurt="$hurt $at-$far" ;;
    rail) what="cut rail$rail" mend="heal rail$rail" hurt="$hurt rail$rail" ;;
    cut*) what="cut $at ${w#cut }" mend="heal $at" hurt="$hurt $at" ;;
    linkdown) what="linkdown $at" mend="linkup $at" hurt="$hurt $at" ;;
    ifdown) what="ifdown $at" mend="ifup $at" hurt="$hurt $at" ;;
    unplug) what="unplug $at" hurt="$hurt $at" ;; # its return is a matter of seconds: reset does it
    esac
    faults="$faults$1:$what"
    draw 2
    if [ -n "$mend" ] && [ "$r" = 0 ]; then
        faults="$faults; +1s:$mend"
    else
        mend=
    fi
    # of three hosts two need not send each other anything; and a second of silence may pass unnoticed where processors are short
    case $w$hosts$mend in pair*3* | *heal*) ;; *) least=1 ;; esac
}

# quiet_draw TIME: what no path may go down for. The channel is the job's own as well: it comes back. What holds rxe's device open keeps it. $lossy: where
# packets are lost or overtake each other (rxe drops what comes out of order), so that the last one of a path may be, whose next incarnation is right then
quiet_draw() {
    draw "$hosts"
    at=h$r
    draw 4
    one_of "loss $at:n$r 1" "dup $at:n$r 5" "corrupt $at:n$r 1" "delay $at:n$r 5" "rate $at:n$r 100" "netem $at:n$r loss 1%" "netem $at:n$r delay 3ms 2ms" \
        "rdmadel $at:n$r" "oobcut $at" "oobcut $at" "freeze $at"
    faults="$faults$1:$w"
    case $w in
    loss*h* | corrupt*h* | netem*) lossy="$lossy $(echo "$w" | grep -o 'h[0-9]*:n[0-9]*')" ;;
    freeze*) faults="$faults; +0.5s:thaw $at" ;;
    oobcut*) faults="$faults; +1s:oobheal $at" ;;
    esac
}

# downs_judged: incarnations of paths that went down although neither NIC was in $hurt, nor what is between: false ones; and those that did for a lost last
# packet where one of the two is in $lossy, at either end
downs_judged() {
    for f in "$run".r?; do
        sed -n "s/.*NET\/R2 : [sr]e[nc][dv] [0-9]* [^ ]* [-<][->] \([^ ]*\) path .* life [0-9]* UP -> DOWN: \(.*\)/h${f##*.r} \1 \2/p" "$f"
    done | awk -v hurt="$hurt" -v lossy="$lossy" '
        BEGIN { n = split(hurt, list, " "); for (i = 1; i <= n; i++) done[list[i]] = 1
                n = split(lossy, list, " "); for (i = 1; i <= n; i++) loses[list[i]] = 1 }
        /closing/ { next }
        { nic = match($0, /rxe[0-9]+/) ? substr($0, RSTART + 3, RLENGTH - 3) : "?"
          here = $1 ":n" nic; there = $2 ":n" nic
          if (here in done || there in done || (here "-" there) in done || (there "-" here) in done || ("rail" nic) in done) next
          if (!(here in loses || there in loses)) wrong++
          else if (/last packet lost/) tails++
          else if (/announced by peer/) heard++
          else wrong++ }
        END { print wrong + (heard > tails ? heard - tails : 0), tails + heard }'
}

# schedule SEED: draws, runs, judges
schedule() {
    state=$((($1 + 1) * 2654435761)) faults= used= hurt= lossy=
    draw 7
    draw 4
    safe=$r
    draw 3
    hosts=$((r == 0 ? 3 : 2))
    one_of 3 7
    retry=$w
    one_of all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall
    op=$w
    one_of 384K 256K 512K # with less than 32 KiB per channel and rank r2_perf leaves NICs idle, and what nobody uses does not fail
    size=$w
    draw 4
    if [ "$r" = 0 ]; then
        kind=quiet least=0 most=0
        quiet_draw 1500ms
    else
        kind=broken least=0 most=9999
        break_draw 1500ms
        draw 3
        while [ "$r" -gt 0 ]; do
            more=$r
            faults="$faults; "
            one_of +0.1s +0.5s
            break_draw "$w"
            r=$((more - 1))
        done
        draw 4
        if [ "$r" = 0 ]; then
            faults="$faults; "
            quiet_draw +0.3s
        fi
    fi
    # shellcheck disable=SC2086
    perf $hosts "$retry" "$faults" "$op" $BASE -b "$size" -e "$size" --duration 4s --after 3s
    label="seed $1, $kind, $op $size on $hosts hosts, retry $retry: $faults"
    # shellcheck disable=SC2046
    set -- "$1" $(downs_judged)
    wrong=$2
    [ "$kind" = quiet ] && most=$3
    false_ones=$((false_ones + wrong))
    if [ "$wrong" = 0 ]; then
        right "$label" $least $most
    else
        bad "$label" "$wrong paths went down that nothing was done to"
    fi
    switches=$((switches + $(downs)))
    retransmits=$((retransmits + $(cat "$run".r? | sed -n 's/.* settled: \([0-9]*\) parts to retransmit.*/\1/p' | awk '{n += $1} END {print n + 0}')))
    injected=$((injected + $(echo "$faults" | tr ';' '\n' | wc -l)))
    figure 'stall after fault [0-9]*' >>"$W/stalls"
}

lab_start || exit $?
trap 'lab_end; exit 130' INT TERM
trap lab_end EXIT
switches=0 retransmits=0 injected=0 false_ones=0
: >"$W/stalls"
seed=$from
while [ "$seed" -lt $((from + seeds)) ]; do
    before=$failed
    schedule "$seed"
    [ "$failed" = "$before" ] || echo "    again: sh tests/soak/soak_lab.sh $B --seed $seed"
    seed=$((seed + 1))
done
echo "faults $injected, switches $switches, false $false_ones, retransmits $retransmits, longest stall $(sort -rn "$W/stalls" | head -1)"
echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ] && [ $passed -gt 0 ]
