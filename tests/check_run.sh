#!/bin/sh
# tests/run.sh on tests that are made up: what it counts, which of them run side by side, that a group waits for the one before it, and that a result is
# shown when its test ends.
#   check_run.sh [BUILD]       closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/.." || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
. tests/check_lib.sh
unset R2_T R2_FAIL_LINES
export tmp

# fake NAME: standard input is the test
fake() {
    cat >"$tmp/$1.sh"
}
# until COMMAND...: waits for it; a bound against hangs
cat >"$tmp/lib" <<'END'
until_() {
    left=1200
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || { echo "0 passed, 1 failed" && exit 1; }
        sleep 0.05
    done
}
END
echo 'echo "3 passed, 0 failed"' | fake right
echo 'echo "100%: Checks: 7, Failures: 0, Errors: 0"' | fake suite
echo 'true' | fake silent
printf '%s\n' 'echo "FAIL the third"' 'echo "2 passed, 1 failed"' 'exit 1' | fake wrong
echo 'echo "5 passed, 0 failed"; exit 4' | fake ends_badly
printf '%s\n' 'echo "SKIP a part: it is not here"' 'echo "1 passed, 0 failed, 1 skipped"' | fake part
printf '%s\n' 'echo "all of it is not here"' 'exit 77' | fake whole
echo 'echo "0 passed, 0 failed"' | fake nothing
# Kills the process of run.sh that runs it, whose child is timeout.
printf '%s\n' 'read -r _ _ _ runner _ <"/proc/$PPID/stat"' 'kill -9 "$runner"' | fake kills
# Both are there at the same time, or neither ends well.
for t in one two; do
    other=$([ $t = one ] && echo two || echo one)
    printf '%s\n' '. "$tmp/lib"' ": >\"\$tmp/met.$t\"" "until_ test -e \"\$tmp/met.$other\"" ": >\"\$tmp/done.$t\"" 'echo "1 passed, 0 failed"' | fake meets_$t
done
printf '%s\n' '[ -e "$tmp/done.one" ] && [ -e "$tmp/done.two" ] && echo "1 passed, 0 failed"' | fake behind
# The first ends when another one beside it has seen it; the second wants to be behind it.
printf '%s\n' '. "$tmp/lib"' ': >"$tmp/began"' 'until_ test -e "$tmp/let"' ': >"$tmp/over"' 'echo "1 passed, 0 failed"' | fake first
printf '%s\n' '[ -e "$tmp/over" ] && echo "1 passed, 0 failed"' | fake second
printf '%s\n' '. "$tmp/lib"' 'until_ test -e "$tmp/began"' ': >"$tmp/let"' 'echo "1 passed, 0 failed"' | fake lets
printf '%s\n' '. "$tmp/lib"' 'until_ grep -q "^ok   right.sh" "$tmp/shown"' 'echo "1 passed, 0 failed"' | fake sees_right

# run CODE LAST ARGUMENTS...: its exit code and its last line; what it printed is in $tmp/shown
run() {
    code=$1 last=$2
    shift 2
    : >"$tmp/shown"
    sh tests/run.sh "$tmp" "$@" >>"$tmp/shown" 2>&1
    rc=$?
    cat "$tmp/shown"
    [ "$rc" = "$code" ] && [ "$(tail -n 1 "$tmp/shown")" = "$last" ]
}
shows() {
    cat "$tmp/shown"
    grep -qE -e "$1" "$tmp/shown"
}
T=$tmp
for j in 1 2; do
    check "-j $j: what is right" run 0 "11 passed, 0 failed" -j $j "$T/right.sh" "$T/suite.sh" "$T/silent.sh"
done
echo 'echo "100%: Checks: 7, Failures: 0, Errors: 0"' >"$T/program" && chmod +x "$T/program"
check "a program" run 0 "7 passed, 0 failed" "$T/program"
for j in 1 2; do
    check "-j $j: what is wrong" run 1 "11 passed, 3 failed, 2 skipped" -j $j "$T/right.sh" "$T/wrong.sh" "$T/ends_badly.sh" "$T/part.sh" "$T/whole.sh" "$T/nothing.sh"
    check "-j $j: which" shows '^FAIL wrong.sh .* 2 passed +1 failed'
    check "-j $j: what it said" shows '^ +\| FAIL the third'
    check "-j $j: an exit code is no success" shows '^FAIL ends_badly.sh '
    check "-j $j: nothing tested is no success" shows '^FAIL nothing.sh '
    check "-j $j: why a part is skipped" shows '^  part.sh: SKIP a part: it is not here$'
    check "-j $j: why a whole one is" shows '^  whole.sh: all of it is not here$'
done
check "one that is gone counts" run 1 "3 passed, 1 failed" -j 2 "$T/right.sh" "$T/kills.sh"
check "... and is named" shows '^FAIL .*/kills.sh ended without a count$'
check "groups" run 0 "6 passed, 0 failed" -j 2 "$T/meets_one.sh" "$T/meets_two.sh" -- "$T/behind.sh" -- -j 2 "$T/right.sh"
check "one after the other, beside others" run 0 "3 passed, 0 failed" -j 2 "$T/first.sh,$T/second.sh" "$T/lets.sh"
check "... with nothing beside them" run 1 "8 passed, 1 failed" "$T/right.sh,$T/wrong.sh" "$T/right.sh"
check "... of which one is gone" run 1 "6 passed, 1 failed" -j 2 "$T/right.sh,$T/kills.sh,$T/right.sh"
check "shown when it ends" run 0 "4 passed, 0 failed" -j 2 "$T/right.sh" "$T/sees_right.sh"
check "what failed in a group before" run 1 "5 passed, 1 failed" -j 2 "$T/wrong.sh" -- "$T/right.sh"
R2_T=igh
export R2_T
check "R2_T" run 0 "3 passed, 0 failed" -j 2 "$T/right.sh" "$T/wrong.sh" -- "$T/suite.sh"
R2_T=none
check "none of them" run 1 "0 passed, 0 failed" "$T/right.sh" -- -j 2 "$T/wrong.sh"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
