#!/bin/sh
# Planner and place are pure: their objects call nothing but their own folder's and what a compiler itself calls to copy and count.
#   check_planner.sh BUILD     closes with "N passed, N failed"
cd "$(dirname "$0")/.." || exit 2
B=$1 passed=0 failed=0
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
# outside OBJECT: what it calls that it may not
outside() { nm -u "$1" | awk '$2 !~ /^((planner|place)_[a-z0-9_]*|mem(set|cpy|move|cmp)|__popcountdi2|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$/ { print $2 }'; }
for f in plugin/planner/*.c plugin/place/*.c; do
    o=$B/tobj/${f%.c}.o
    if [ ! -f "$o" ]; then
        failed=$((failed + 1))
        echo "FAIL $o is not built"
    elif calls=$(outside "$o") && [ -z "$calls" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $f calls" $calls
    fi
done
# A call of that kind is found.
printf '#include <math.h>\n#include <stdlib.h>\ndouble f(double x);\ndouble f(double x) { return pow(x, *(double *)malloc(8)); }\n' >"$tmp/f.c"
${CC:-cc} -c -o "$tmp/f.o" "$tmp/f.c" || exit 2
if [ "$(outside "$tmp/f.o" | sort | tr '\n' ' ')" = "malloc pow " ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAIL calls of malloc and pow are not found"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
