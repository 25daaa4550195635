#!/bin/sh
# What fails comes back, under collectives on the software fabric. Each case asserts that every element of every timed operation is right, that each
# fault fired (r2_perf fails otherwise), that paths came up in a later incarnation at both ranks and that the NICs which came back sent data from then on. The
# speed at the end against that before the first fault is shown, not judged. Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
export NCCL_R2_LOG=trace # each path's line counts, however many there are
export NCCL_IB_TIMEOUT=14 NCCL_IB_RETRY_CNT=7 NCCL_R2_T_RETURN=200
fab=failback$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
LAST=1000 # ms at the end of a run that are compared with the time before the first fault

# run SECONDS ARGUMENT...: a run over a fabric of its own; an argument that begins with a digit is a fault. $back: the NICs that come back, whose
# counters are kept as they are then: the run lasts until they carry data again ($returns: or not).
returns=yes
run() {
    duration=$1 back=
    shift
    for word; do
        case $word in
        *' up' | *' restore')
            place=${word#*:}
            back="$back ${place% *}"
            set -- "$@" --fault "$word" --fault-cmd "${word%%:*}:$B/softfab status --name $fab >$log/counters"
            ;;
        [0-9]*:h[0-9]*) set -- "$@" --fault "$word" ;;
        *) set -- "$@" "$word" ;;
        esac
        shift
    done
    [ $returns = no ] || set -- "$@" --fault-cmd "$(once "${duration}s" "sh $log/back '$back'")" --after 100ms
    rm -f "$log/json" "$log/counters"
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts 2 --nics 4 --rate 10MB/s >/dev/null || exit 1
    [ -z "$provider" ] || "$B/softfab" fault --name $fab "*:* provider $provider" || exit 1
    timeout -k 5 120 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 2 --placement out -w 1 -T 30s \
        --duration "${duration}s" --json "$log/json" "$@" >"$log/out" 2>&1
    rc=$?
}
# $provider, if not empty: what the library of all NICs does with queue pairs in ERR (softfab --help).
provider=
# idle: which of the NICs that came back sent next to nothing since; 100 kB is far more than their probes and set-up
idle() {
    "$B/softfab" status --name $fab | awk -v back="$back" '
        FNR == NR { then[$1] = $6; next }
        $1 ~ /^h[0-9]+:n[0-9]+$/ { n = split(back, b, " "); for (i = 1; i <= n; i++) { all = b[i]; sub(/\*$/, "", all)
            if ($1 == b[i] || (b[i] ~ /\*$/ && index($1, all) == 1)) { seen++; if ($6 - then[$1] < 100000) print $1 } } }
        END { if (!seen) print "none came back" }' "$log/counters" -
}
# That, as a condition for the run: paths are up again at both hosts, and nothing that came back is idle.
cat >"$log/back" <<END
B=$B fab=$fab log=$log back=\$1
$(sed -n '/^idle()/,/^}/p' "$0")
$(sed -n '/^later()/,/^}/p' "$0")
[ "\$(later h0)" -gt 0 ] && [ "\$(later h1)" -gt 0 ] && [ -z "\$(idle)" ]
END
# later RANK: how many paths came up at this host in a later incarnation
later() {
    grep -cE "^$1:.* path [0-9]+ life ([2-9]|[1-9][0-9]+) is up" "$log/out"
}
# again: how many incarnations after the first went down
again() {
    grep -cE ' life ([2-9]|[1-9][0-9]+) UP -> DOWN' "$log/out"
}
# share: the last second against the time before the first fault, in per cent; medians, since a pause of this machine is no matter of the path
share() {
    jq -r --argjson last "$LAST" 'def median: map(.busbw // empty) | sort | .[length / 2 | floor];
        .r2 | (.timeline.interval_ms) as $step | (.timeline.points[:-1][-($last / $step | floor):] | median) as $now |
        (.faults[0].fired_s - $step / 1000) as $until | (.timeline.points | map(select(.t_s <= $until)) | median) as $before |
        $now / $before * 100 | floor' "$log/json"
}
# right NAME AGAIN: as the head says; at most AGAIN later incarnations went down
right() {
    share=$(share)
    was_right "$1" || return
    if [ "$(later h0)" = 0 ] || [ "$(later h1)" = 0 ]; then
        bad "$1" "later incarnations up: $(later h0) at h0, $(later h1) at h1"
    elif [ "$(again)" -gt "$2" ]; then
        bad "$1" "$(again) later incarnations went down, at most $2 had a reason"
    elif [ -n "$(idle)" ]; then
        bad "$1" "no data sent over $(idle) afterwards"
    else
        ok "$1 ($(grep -o 'checked [0-9]* operations' "$log/out"), $(later h0) and $(later h1) paths up again, data over$back, $share % of the speed before)"
    fi
}

command -v jq >/dev/null || {
    echo "jq is not installed: speeds cannot be read back"
    exit 77
}
wanted "one NIC" && {
    run 3 '800ms:h0:n1 down' '1300ms:h0:n1 up'
    right "a NIC of host 0 down and up" 0
    run 3 '800ms:h1:n0 down' '1300ms:h1:n0 up'
    right "a NIC of host 1 down and up" 0
}
wanted "both ends" && {
    run 3 '800ms:h0:n2 down' '800ms:h1:n2 down' '1200ms:h0:n2 up' '1300ms:h1:n2 up'
    right "both ends of a rail down and up" 0
}
wanted "two NICs" && {
    run 3.5 '800ms:h0:n0 down' '1000ms:h1:n3 down' '1400ms:h0:n0 up' '1600ms:h1:n3 up'
    right "two NICs down and up" 0
}
wanted "blackhole" && {
    run 5 '800ms:h1:n1 blackhole' '1600ms:h1:n1 restore'
    right "a blackhole that ends" 0
}
wanted "provider" && {
    for provider in bnxt ionic mana; do
        run 3 '800ms:h0:n1 down' '1300ms:h0:n1 up'
        "$B/softfab" status --name $fab | grep -q "provider $provider" || bad "$provider" "not in effect"
        right "a NIC down and up, all of provider $provider" 0
    done
    provider=
}
wanted "twice" && {
    run 5 '800ms:h0:n1 down' '1000ms:h0:n1 up' '1900ms:h0:n1 down' '2100ms:h0:n1 up'
    right "a NIC that fails twice" 16
}
wanted "all NICs" && {
    run 4 '800ms:h0:* down' '1800ms:h0:n2 up'
    right "all NICs down for a second, then one up" 0
    run 4.5 '800ms:h0:* down' '1800ms:h0:* up'
    right "all NICs down for a second, then all up" 0
}
wanted "silent" && {
    for host in h0 h1; do
        NCCL_IB_TIMEOUT=20 NCCL_R2_T_RETURN=1000 run 6 "800ms:$host:* blackhole" "1800ms:$host:* restore"
        right "all NICs of $host silent for a second" 0
    done
}
wanted "storm" && {
    # more faults than r2_perf takes one by one; the loop ends at the first that is not done, and with it the run
    flap='for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        "$R2_PERF_SOFTFAB" fault --name "$R2_PERF_FABRIC" "h0:n3 down" && sleep 0.02 &&
            "$R2_PERF_SOFTFAB" fault --name "$R2_PERF_FABRIC" "h0:n3 up" && sleep 0.02 || exit 1
    done'
    run 4.5 '800ms:h0:n3 down' --fault-cmd "800ms:$flap" '1900ms:h0:n3 up'
    right "a storm of 20 flaps" 16
}
wanted "never" && {
    returns=no
    NCCL_R2_FAILBACK=never run 2.5 '600ms:h0:n1 down' '900ms:h0:n1 up'
    if [ $rc = 0 ] && [ "$(later h0)$(later h1)" = 00 ] && [ "$(downs)" -gt 0 ]; then
        ok "NCCL_R2_FAILBACK=never leaves it out ($(share) % of the speed before)"
    else
        bad "NCCL_R2_FAILBACK=never leaves it out" "exit code $rc, later incarnations $(later h0) and $(later h1), $(share) % of the speed before"
    fi
}
returns=yes
# manual_case HOST NIC: NIC 1 of host 0 is repaired early, and stays out until the administrator of that host says so
manual_case() {
    name="manual: r2_ctl failback $2 at host $1"
    ctl="$B/softfab exec --name $fab --host $1 -- $B/r2_ctl"
    run 4 '600ms:h0:n1 down' '900ms:h0:n1 up' --fault-cmd "2s:! grep -q 'life 2 is up' $log/out && $ctl status >$log/before 2>&1 &&
        $ctl failback $2 --why repaired 2>$log/err && $ctl status >$log/after 2>&1"
    was_right "$name" || return
    if [ "$(later h0)" = 0 ] || [ "$(later h1)" = 0 ] || [ -n "$(idle)" ]; then
        bad "$name" "later incarnations up: $(later h0) at h0, $(later h1) at h1; $(cat "$log/err")"
    elif ! grep -qE " fab1 .* [1-9][0-9]*\$" "$log/before" || ! grep -q "may return what failed before: ${2##* } at 2" "$log/after"; then
        bad "$name" "status said: $(cat "$log/before" "$log/after")"
    else
        ok "$name: out until then, $(later h0) and $(later h1) paths up again, data over$back"
    fi
}
wanted "manual" && {
    export NCCL_R2_FAILBACK=manual # each host of the fabric has a run directory of its own
    manual_case 0 fab1
    manual_case 1 "localhost all"
    unset NCCL_R2_FAILBACK
}
echo "$passed passed, $failed failed"
[ $failed = 0 ]
