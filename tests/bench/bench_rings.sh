#!/bin/sh
# make bench-rings: what ways through a fabric of 8 uplinks leave of a job's rate, before and after one of them is lost, in virtual time (tests/bench/bench_rings.c).
# Writes BUILD/bench-rings.json and prints the table of tests/bench/README.md; with --write-doc puts it there.
#   bench_rings.sh BUILD [--write-doc]       RUNS in the environment: runs of each row, each with an order of the hosts and an uplink of its own, 1 to 64 (default 8)
set -eu
cd "$(dirname "$0")/../.."
B=build write= runs=${RUNS:-8}
for arg; do
    case $arg in
    --write-doc) write=1 ;;
    -*)
        echo "bench_rings.sh: no such option: $arg" >&2
        exit 2
        ;;
    *) B=$arg ;;
    esac
done
case $B in /*) ;; *) B=$PWD/$B ;; esac
[ -e "$B/bench/bench_inproc" ] || {
    echo "bench_rings.sh: $B/bench/bench_inproc is not built" >&2
    exit 1
}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
"$B/bench/bench_inproc" rings "$runs" >"$T/rows"
jq --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" '{schema: "r2_bench_rings/1", git: $git} + .' "$T/rows" >"$T/bench.json"
mv "$T/bench.json" "$B/bench-rings.json"
jq -r -f tests/bench/rings_table.jq "$B/bench-rings.json" >"$T/table"
cat "$T/table"
echo "# all of it: $B/bench-rings.json"
[ -z "$write" ] || sh tests/bench/table_put.sh rings "$T/table"
