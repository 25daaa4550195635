#!/bin/sh
# For check_nccl.sh, while a job runs: what the NICs of a fabric have carried once the job has got over its faults.
# Usage: settled.sh BUILD FABRIC EVENTS SWITCHES FAILBACKS OUT: waits until each NIC's loss that EVENTS tells of has its switch,
# at least SWITCHES of them, as many fail-backs as FAILBACKS are said, and nothing new for a second; then writes
# `softfab status --json` to OUT.
B=$1 fabric=$2 events=$3 want=$4 back=$5 out=$6
before=-1
for _ in $(seq 120); do
    now=$(grep -c . "$events" 2>/dev/null)
    faults=$(grep -c '"kind":"fault"' "$events" 2>/dev/null)
    switches=$(grep -c '"kind":"switch"' "$events" 2>/dev/null)
    backs=$(grep -c '"kind":"failback"' "$events" 2>/dev/null)
    if [ "$switches" -ge "$want" ] && [ "$switches" -ge "$faults" ] && [ "$backs" -ge "$back" ] && [ "$now" = "$before" ]; then
        exec "$B/softfab" status --name "$fabric" --json >"$out"
    fi
    before=$now
    sleep 1
done
echo "settled.sh: $switches switches of $faults faults, $want wanted, and $backs fail-backs of $back, in 120 s" >&2
exit 1
