#!/bin/sh
# Every test that docs/failures.md names exists: SUITE/NAME in tests/unit/test_SUITE.c, sim/CLASS in the simulation's table, other paths as files.
cd "$(dirname "$0")/.." || exit 1
doc=docs/failures.md
passed=0 failed=0
exists() {
    case $1 in
    tests/*) test -f "$1" ;;
    *.sh | *.md) test -f "tests/$1" ;;
    sim/*) grep -q "^    {\"${1#sim/}\"," tests/sim/sim_class.c ;;
    *) grep -q "^START_TEST(${1#*/})" "tests/unit/test_${1%%/*}.c" 2>/dev/null ;;
    esac
}
count() { # STATUS NAME WHAT
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $doc: $2 $3"
    fi
}
# shellcheck disable=SC2016
named=$(grep -o '`[a-z_0-9]\{1,\}/[A-Za-z_0-9.]\{1,\}`' $doc | tr -d '`' | sort -u)
for name in $named; do
    exists "$name"
    count $? "$name" "does not exist"
done
# And the other way round: no test of a race is left out.
races=$(grep -h '^START_TEST' tests/unit/test_race_*.c | sed 's/.*(\(.*\))/\1/')
for name in $races; do
    echo "$named" | grep -q "/$name\$"
    count $? "$name" "is not there"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
