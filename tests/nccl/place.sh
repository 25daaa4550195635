#!/bin/sh
# libr2coll.so inside the released NCCL (docs/collectives.md, "Switching together"): a host loses a NIC, all ranks go over to a communicator in another order and
# come back, and every element of every operation is right.
# Usage: place.sh BUILD   NCCL_DEEP=1: also with six hosts and with eight
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
if [ ! -x "$B/r2_nccl" ]; then
    echo "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one)"
    exit 77
fi
command -v jq >/dev/null || {
    echo "jq is not installed"
    exit 77
}
T=$(mktemp -d) || exit 1
fab=place$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
unset NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_R2_PLACE
# A GPU's job uses the two NICs beside it, and no other one stands in for them.
export NCCL_IB_HCA==fab0,fab1
# With so few hosts a ring has less to carry than a tree, whoever sits where.
export NCCL_ALGO=Tree
# Making a communicator here is clearing memory for NCCL's buffers, and small ones do.
export NCCL_BUFFSIZE="${NCCL_BUFFSIZE:-1048576}" NCCL_LL128_BUFFSIZE="${NCCL_LL128_BUFFSIZE:-655360}"
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING,COLL NCCL_DEBUG_FILE="$T/log.%p" NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" B T fab
passed=0 failed=0 skipped=0
say() { # say TEXT CODE: of the command before
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        grep -v '^# r2 at' "$T/out" | tail -n 30 | sed 's/^/     | /'
        grep -hE 'WARN' "$T"/log.* 2>/dev/null | tail -n 8 | sed 's/^/     | /'
    fi
}
# Conducted from outside: wait TEXT [N]: until the ranks have said it N times, a bound against hangs; up, down: NIC 1 of host 1.
cat >"$T/conduct" <<'C'
wait_for() {
    tries=0
    while [ "$(grep -cF -- "$1" "$T/err")" -lt "${2:-1}" ]; do
        tries=$((tries + 1))
        [ $tries -lt 2400 ] || { echo "conduct: never said: $1" && exit 1; }
        sleep 0.05
    done
}
nic() { "$B/softfab" fault --name "$fab" "h1:n1 $1" || exit 1; }
# sent FILE: bytes that the NICs beside the GPUs have sent; carry N FROM TO: until h1 has sent N bytes more
sent() { "$B/softfab" status --name "$fab" --json | jq -c "[.nic[] | select(.nic < 2)]" >"$1"; }
carry() {
    sent "$T/$2"
    tries=0
    while :; do
        sent "$T/$3"
        [ "$(jq -s "map(map(select(.host == 1) | .tx_bytes) | add) | .[1] - .[0]" "$T/$2" "$T/$3")" -lt "$1" ] || return 0
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || { echo "conduct: h1 sends no more" && exit 1; }
        sleep 0.05
    done
}
C
# job HOSTS POLICY STEPS OPTIONS...: one job, conducted by the shell commands STEPS; what a job says twice, at its end, counts once
job() {
    hosts=$1 policy=$2 steps=$3
    shift 3
    rm -f "$T"/log.*
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts "$hosts" --nics 4 --rate 40MB/s >/dev/null || return 1
    cat "$T/conduct" >"$T/steps"
    echo "$steps" >>"$T/steps"
    LD_PRELOAD="$B/libr2coll.so" NCCL_R2_PLACE=$policy timeout -k 5 400 "$B/r2_nccl" all_reduce --fabric $fab --hosts "$hosts" -b 4M -e 4M --placement in \
        -T 300s --duration 2s --fault-cmd "500ms:LD_PRELOAD= sh $T/steps" --after 1s "$@" >"$T/out" 2>"$T/err"
    rc=$?
    cat "$T/err" >>"$T/out"
    [ $rc = 0 ] && grep -q '^# Out of bounds values : 0 OK' "$T/out" && ! grep -q '^conduct: ' "$T/out"
}
by_tree() { # by_tree N: N ranks have made a communicator whose all_reduce is by Tree
    [ "$(grep -lF 'tuner: all_reduce of this communicator is by Tree' "$T"/log.* 2>/dev/null | wc -l)" = "$1" ]
}
ran_on() { # ran_on N RANKS: the operations of each rank were on N communicators
    for log in "$T"/log.*; do
        sed -n 's/.* AllReduce: .* count 1048576 .* comm \(0x[0-9a-f]*\) .*/\1/p' "$log" | sort -u | wc -l
    done | sort | uniq -c | awk -v n="$1" -v ranks="$2" '$2 > 0 { rows++; right = $1 == ranks && $2 == n } END { exit !(rows == 1 && right) }'
}
# seats: what each host sent from .../from to .../to: by the planner h1 and the last host, in the end seats of the tree, D, and the others 2 D; and where h1 stands
# in on NIC 0 of its neighbours these made room, so that it carries no more than their NIC 1 (62.5 % without)
seats() {
    jq -sr --argjson n "$hosts" '. as [$from, $to] | [range($n) as $h | [range(2) as $i | [$from, $to | map(select(.host == $h and .nic == $i) | .tx_bytes) | add] | .[1] - .[0]]] |
        (map(add) | max) as $most | map("\(add / $most * 100 | round / 100) \(.[0] / add * 100 | round)%") as $said |
        ([range($n) as $h | (.[$h] | add) / $most | if $h == 1 or $h == $n - 1 then . < 0.65 else . > 0.8 end] | all) as $seated |
        (if $seated and (del(.[1]) | all(.[0] < 0.57 * add)) then "right" else "wrong" end) + " " + ($said | join(", "))' "$T/from" "$T/to" >"$T/seats"
    echo "seats: $(cat "$T/seats")" >>"$T/out"
    grep -q "^right" "$T/seats"
}
told() { grep -qF "placement: $1" "$T/err"; }
there='wait_for "placement: as good as any"'
back() { # back HOSTS RANKS: ranks on each
    job "$1" on "$there
nic down
wait_for 'switching communicator 1'
wait_for 'placement: as good as any' 2
carry 20000000 before from
carry 40000000 from to
nic up
wait_for 'switching communicator 0'
wait_for 'placement: as good as any' 3" --ranks-per-host "$2" && by_tree $(($1 * $2)) && ran_on 2 $(($1 * $2)) && seats && told "1 of $1 hosts are degraded" && told "back to the user's own"
}
another() {
    job 4 on "$there
nic down
wait_for 'switching communicator 1'
wait_for 'placement: as good as any' 2
\"\$B/softfab\" fault --name \$fab 'h2:n1 down' || exit 1
wait_for 'switching communicator 2'
wait_for 'placement: as good as any' 3" && by_tree 4 && ran_on 3 4 && told '2 of 4 hosts are degraded'
}
ends() {
    job 4 on "$there
nic down
wait_for 'making communicator 1'" && told 'making communicator 1'
}
advises() {
    job 4 advise "$there
nic down
wait_for 'hosts are degraded'" && by_tree 0 && ran_on 1 4 && ! told 'asking communicator'
}
# A tuner of the user's is hidden only where shadows may be made.
names_tuner() { # names_tuner PLACE NET: what a program finds in NCCL_TUNER_PLUGIN
    env LD_PRELOAD="$B/libr2coll.so" NCCL_R2_PLACE="$1" NCCL_NET_PLUGIN="$2" printenv NCCL_TUNER_PLUGIN
}
tuner() {
    for place in off advise on; do
        for net in r2 spcx,r2 "$B/libnccl-net-r2.so" spcx none; do
            echo "$place ${net##*/}: $(names_tuner $place "$net")"
        done
    done >"$T/out" 2>&1
    [ "$(grep -c ': .' "$T/out")" = 3 ] && grep -qx 'on r2: libnccl-net-r2.so' "$T/out" && grep -qx 'on spcx,r2: libnccl-net-r2.so' "$T/out" &&
        grep -qx "on libnccl-net-r2.so: $B/libnccl-net-r2.so" "$T/out" && [ "$(NCCL_TUNER_PLUGIN=x names_tuner on r2)" = x ]
}
off() {
    job 2 off "sleep 0" && [ ! -s "$T/err" ] && by_tree 0
}
tuner
say "NCCL_TUNER_PLUGIN is set where shadows may be made" $?
job 2 off "sleep 0"
case $(sed -n 's/^# error: //p' "$T/out") in
*"cannot open shared object"* | *"does not know the layouts"*)
    sed -n 's/^# error: //p' "$T/out" | head -n 1
    exit 77
    ;;
esac
if grep -qE '\] NCCL 2\.(1[0-9]|2[0-7])\.' "$T/out"; then
    echo "SKIP all: NCCL before 2.28 makes communicators in threads of its own, where the tuner cannot tell which one it is"
    skipped=$((${NCCL_DEEP:+2} + 6))
else
    off
    say "off: nothing is said or made" $?
    advises
    say "advise: says what another order would gain" $?
    for shape in '4 1' '4 2' ${NCCL_DEEP:+'6 1' '8 1'}; do
        # shellcheck disable=SC2086
        back $shape
        say "a host loses a NIC, and has it back, ${shape% *} hosts, ranks on each ${shape#* }: bytes by host, of them over NIC 0: $(cut -d " " -f 2- "$T/seats"); $(sed -n 's/^# r2 checked \([0-9]* operations\).*/\1/p' "$T/out")" $?
    done
    another
    say "another host loses one, too: $(sed -n 's/^# r2 checked \([0-9]* operations\).*/\1/p' "$T/out")" $?
    ends
    say "the job ends while a communicator is made" $?
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
