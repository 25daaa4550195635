#!/bin/sh
# A piece of the campaign: schedules of several processes on the software fabric (tests/soak/README.md), one of each class whose seeds are fixed here.
# Usage: soak_fabric.sh BUILD [CLASS]
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
only=${2:-}
passed=0 failed=0
# class and seed
for one in calm:0 noise:1 slow:3 port:4 silent:5 stuck:6 device:7 mix:8 back:23 all:10 dead:11 kill:12 kill:26 resort:0; do
    class=${one%%:*}
    case $class in *"$only"*) ;; *) continue ;; esac
    out=$("$B/r2_soak" --class "$class" --seed "${one##*:}" 2>&1)
    rc=$?
    if [ $rc = 0 ]; then
        passed=$((passed + 1))
        echo "ok     $one: $(echo "$out" | awk '$1 == "sum" {printf "%d messages, %d faults, %d switches, %d retransmits", $5, $7, $8, $10}')"
    else
        failed=$((failed + 1))
        echo "FAILED $one: exit code $rc"
        echo "$out" | sed 's/^/    | /'
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
