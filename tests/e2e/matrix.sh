#!/bin/sh
# A piece of the confusion matrix (tests/matrix/README.md): a case of each kind on three hosts and on two, and some in virtual time. Nobody may blame what
# is not broken.
# Usage: matrix.sh BUILD
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
passed=0 failed=0
# told OUTPUT: of each case in it that failed, what its processes said from its beginning on, in the order of time: not what says that all is well, no evidence of
# verdicts, and of a path that went down only that
told() {
    echo "$1" | sed -n 's|^FAILED .*: \([^ ]*\)/process\*\.log from \([0-9.]*\) on$|\1 \2|p' | while read -r dir from; do
        for f in "$dir"/process*.log; do
            f=${f##*/process}
            awk -v from="$from" -v who="${f%.log}" '$1 + 0 >= from + 0 && !/# carried|R2-[A-Z0-9]*: |-> FENCED|settled/ { print $1, "process " who ":", substr($0, length($1) + 2, 180) }' \
                "$dir/process$f"
        done | sort -n | head -40
    done
}
# piece NAME COMMAND...: counts what the command counts
piece() {
    name=$1
    shift
    out=$("$@" 2>&1)
    rc=$?
    [ $rc = 0 ] || {
        echo "FAIL $name: $(echo "$out" | grep -iE 'fail|wrong|blamed' | grep -v '^ *broken ' | head -15)"
        told "$out"
    }
    echo "$name: exit code $rc"
    echo "$out" | sed 's/^/    /'
    last=$(echo "$out" | tail -1)
    case $last in
    *' passed, '*)
        passed=$((passed + ${last%% *}))
        last=${last#* passed, }
        failed=$((failed + ${last%% *}))
        ;;
    *) failed=$((failed + 1)) ;;
    esac
    [ $rc = 0 ] || [ $failed != 0 ] || failed=1
}
piece "three hosts" "$B/r2_matrix" --dir "$B/matrix-three" --hosts 3 --nics 3 --seeds 16
piece "two hosts" "$B/r2_matrix" --dir "$B/matrix-two" --hosts 2 --nics 2 --seeds 16
piece "three hosts, two NICs each: a process that is stopped" "$B/r2_matrix" --dir "$B/matrix-stopped" --hosts 3 --nics 2 --seed 11
piece "virtual time, three hosts" "$B/r2_sim" --class locate --seeds 60
piece "virtual time, two hosts" "$B/r2_sim" --class locate2 --seeds 30
piece "virtual time, a ring of four hosts" "$B/r2_sim" --class locate-ring --seeds 48
piece "virtual time, three hosts of one NIC" "$B/r2_sim" --class locate-one --seeds 48
piece "rails reach each other, three hosts" "$B/r2_matrix" --dir "$B/matrix-three-cross" --hosts 3 --nics 3 --crossrail --seeds 16
piece "rails reach each other, two hosts" "$B/r2_matrix" --dir "$B/matrix-two-cross" --hosts 2 --nics 3 --crossrail --seeds 16
piece "virtual time, rails reach each other, three hosts" "$B/r2_sim" --class locate-cross --seeds 60
piece "virtual time, rails reach each other, two hosts" "$B/r2_sim" --class locate2-cross --seeds 60
piece "virtual time, processes stand still, faults end" "$B/r2_sim" --class locate-late --seeds 48
piece "virtual time, who is asked stands still" "$B/r2_sim" --class locate-still --seeds 32
piece "virtual time, NICs are busy" "$B/r2_sim" --class locate-busy --seeds 20
echo "$passed passed, $failed failed"
[ $failed = 0 ]
