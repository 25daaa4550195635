#!/bin/sh
# Counts what a message costs in instructions, and fails where it is more than was recorded, by 1 %.
#   check_calls.sh BUILD            closes with "N passed, N failed"; names each figure that is above its record
#   check_calls.sh BUILD --renew    writes the record, tests/bench/calls.counts, from what is counted now
# The record holds for one compiler, whose name is its first line: a plugin made by another one is not compared (a skip, with the reason).
set -eu
cd "$(dirname "$0")/../.."
B=${1:?usage: check_calls.sh BUILD [--renew]} renew=${2:-}
case $renew in '' | --renew) ;; *)
    echo "check_calls.sh: no such option: $renew" >&2
    exit 2
    ;;
esac
record=tests/bench/calls.counts
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

skip() {
    echo "$*"
    exit 77
}
for tool in valgrind callgrind_annotate jq readelf; do
    command -v $tool >/dev/null || skip "$tool is not installed: no instructions are counted"
done
# Who made the program that is counted, not who is called cc now.
made_by() {
    readelf -p .comment "$B/bench/bench_inproc" >"$T/comment"
    if grep -q clang "$T/comment"; then
        echo "clang $(uname -m)"
    else
        sed -n 's/.*GCC: .* \([0-9]*\)\.[0-9.]*.*/\1/p' "$T/comment" | sort -n | tail -1 | sed "s/\(.*\)/gcc \1 $(uname -m)/"
    fi
}
[ -x "$B/bench/bench_inproc" ] || {
    echo "check_calls.sh: $B/bench/bench_inproc is not built" >&2
    exit 1
}
compiler=$(made_by)
if [ -z "$renew" ]; then
    of=$(sed -n 1p "$record")
    [ "$of" = "$compiler" ] || skip "the counts are those of $of, this build is of $compiler"
fi

sh tests/bench/bench.sh "$B" --only calls >"$T/json"
# lines of "FIGURE COUNT"
jq -r '.[] | (.nics | tostring) as $n | to_entries[] | select(.key != "nics" and .key != "bytes") | "\(.key)_\($n)_nics \(.value)"' "$T/json" >"$T/now"
[ "$(wc -l <"$T/now")" -ge 10 ] || {
    echo "check_calls.sh: figures are missing in $(cat "$T/json")" >&2
    exit 1
}
if [ -n "$renew" ]; then
    { echo "$compiler" && cat "$T/now"; } >"$record"
    cat "$record"
    exit
fi

# compare RECORD NOW: a line for each figure that is above its record or has none; status 1 when there is any
compare() {
    awk 'FNR == NR { if (FNR > 1) was[$1] = $2; next }
         { seen[$1] = 1 }
         !($1 in was) { print "FAIL " $1 ": " $2 ", and nothing is recorded"; bad = 1; next }
         $2 * 100 > was[$1] * 101 { print "FAIL " $1 ": " $2 " instructions, recorded are " was[$1]; bad = 1 }
         END { for (f in was) if (!(f in seen)) { print "FAIL " f ": not counted any more"; bad = 1 }; exit bad }' "$1" "$2"
}
passed=0 failed=0
# First that it can fail: against a record that is 2 % below one figure, and one that lacks it.
for figure in $(cut -d' ' -f1 "$T/now"); do
    { echo "$compiler" && awk -v f="$figure" '{ print $1, $1 == f ? int($2 * 0.98) : $2 }' "$T/now"; } >"$T/low"
    { echo "$compiler" && awk -v f="$figure" '$1 != f' "$T/now"; } >"$T/without"
    for wrong in low without; do
        if compare "$T/$wrong" "$T/now" >"$T/out" || [ "$(grep -c "^FAIL $figure: " "$T/out")" != 1 ] || [ "$(wc -l <"$T/out")" != 1 ]; then
            echo "FAIL $figure: not noticed against the record '$wrong'"
            failed=$((failed + 1))
        else
            passed=$((passed + 1))
        fi
    done
done
{ echo "$compiler" && cat "$T/now"; } >"$T/same"
if compare "$T/same" "$T/now"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
if compare "$record" "$T/now" >"$T/out"; then
    passed=$((passed + $(wc -l <"$T/now")))
else
    cat "$T/out"
    echo "    where that is meant: sh tests/bench/check_calls.sh $B --renew"
    failed=$((failed + $(wc -l <"$T/out")))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
