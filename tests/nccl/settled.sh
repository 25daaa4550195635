#!/bin/sh
# For check_nccl.sh, while a job runs: what the NICs of a fabric have carried once the job has got over its faults.
# Usage: settled.sh BUILD FABRIC EVENTS SWITCHES FAILBACKS OUT [HOSTS]: waits until each NIC's loss that EVENTS tells of has its switch,
# at least SWITCHES of them, as many fail-backs as FAILBACKS are said, and nothing new for a second; then writes
# `softfab status --json` to OUT. With HOSTS, of the last resort: until EVENTS tells of it, and, where fail-backs are wanted, until
# nothing goes over TCP any more; then also `r2_stat --json` of each of the hosts to OUT.tcp.
B=$1 fabric=$2 events=$3 want=$4 back=$5 out=$6 hosts=${7:-0}
before=-1
# stat_hosts OPTION: r2_stat of each host
stat_hosts() {
    for h in $(seq 0 $((hosts - 1))); do
        "$B/softfab" exec --name "$fabric" --host "$h" -- "$B/r2_stat" "$1"
    done
}
resorted() {
    [ "$hosts" = 0 ] && return 0
    grep -q '"how":"last-resort"' "$events" || return 1
    [ "$back" = 0 ] || ! stat_hosts --check | grep -q 'go over TCP'
}
for _ in $(seq 120); do
    now=$(grep -c . "$events" 2>/dev/null)
    faults=$(grep -c '"kind":"fault"' "$events" 2>/dev/null)
    switches=$(grep -c '"kind":"switch"' "$events" 2>/dev/null)
    backs=$(grep -c '"kind":"failback"' "$events" 2>/dev/null)
    if [ "$switches" -ge "$want" ] && [ "$switches" -ge "$faults" ] && [ "$backs" -ge "$back" ] && [ "$now" = "$before" ] &&
        resorted; then
        [ "$hosts" = 0 ] || stat_hosts --json >"$out.tcp"
        exec "$B/softfab" status --name "$fabric" --json >"$out"
    fi
    before=$now
    sleep 1
done
echo "settled.sh: $switches switches of $faults faults, $want wanted, and $backs fail-backs of $back, in 120 s" >&2
[ "$hosts" = 0 ] || echo "settled.sh: the last resort was wanted" >&2
exit 1
