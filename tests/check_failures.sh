#!/bin/sh
# Every test that docs/failures.md names exists: SUITE/NAME in tests/unit/test_SUITE.c, sim/CLASS in the simulation's table, other paths as files.
cd "$(dirname "$0")/.." || exit 1
doc=docs/failures.md
passed=0 failed=0
for name in $(grep -o '`[a-z_0-9]\{1,\}/[A-Za-z_0-9.]\{1,\}`' $doc | tr -d '`' | sort -u); do
    case $name in
    tests/*) test -f "$name" ;;
    *.sh | *.md) test -f "tests/$name" ;;
    sim/*) grep -q "^    {\"${name#sim/}\"," tests/sim/sim_class.c ;;
    *) grep -q "^START_TEST(${name#*/})" "tests/unit/test_${name%%/*}.c" 2>/dev/null ;;
    esac
    if [ $? = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $doc names $name, which does not exist"
    fi
done
# And the other way round: no test of a race is left out.
for name in $(sed -n 's/^START_TEST(\(.*\))$/\1/p' tests/unit/test_race_*.c); do
    if grep -q "/$name\`" $doc; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $doc does not name $name"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
