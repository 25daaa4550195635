#!/bin/sh
# Every test that docs/failures.md names exists: SUITE/NAME in test_SUITE.c of tests/unit, sim/CLASS in the simulation's table, other paths as files.
cd "$(dirname "$0")/.." || exit 1
doc=docs/failures.md
passed=0 failed=0
exists() {
    case $1 in
    tests/*) test -f "$1" ;;
    *.sh | *.md) test -f "tests/$1" ;;
    sim/*) grep -q "^    {\"${1#sim/}\"," tests/sim/sim_class.c ;;
    *) find tests/unit -name "test_${1%%/*}.c" -exec grep -q "^START_TEST(${1#*/})" {} \; -print | grep -q . ;;
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
races=$(grep -h '^START_TEST' tests/unit/failover/test_race_*.c | sed 's/.*(\(.*\))/\1/')
for name in $races; do
    echo "$named" | grep -q "/$name\$"
    count $? "$name" "is not there"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
