#!/bin/sh
# The commands of README's "Try it" that need no build, as they stand there, one after the other in a new shell; and that its "Use it" names tools and files
# that the build makes. Argument: build folder. Closes with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
readme=$PWD/README.md
W=$(mktemp -d) || exit 2
trap 'cd "$W" && build/softfab down >/dev/null 2>&1; rm -rf "$W"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
ok() { # STATUS NAME: with what was printed
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $2"
        tail -20 "$W/out" | sed 's/^/    /'
    fi
}
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
if [ -e "/dev/shm/softfab-$(id -u)-default" ]; then
    echo "SKIP a software fabric of the name that README's commands use is up: softfab down ends it"
    exit 77
fi
ln -s "$B" "$W/build"
cd "$W" || exit 2

# The block that begins with a run of r2_perf, up to the line that is not indented.
awk '/^    build\/r2_perf / { on = 1 } on && !/^    / { exit } on { sub(/^    /, ""); print }' "$readme" >commands
[ "$(grep -c . commands)" -ge 5 ]
ok $? "README has the block of commands"
# A command a line: a backslash goes on, and what && binds is one.
sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' commands >lines
while IFS= read -r line; do
    timeout -k 5 120 sh -c "$line" >out 2>&1 </dev/null
    ok $? "README: $line"
    cat out >>all
done <lines
cp all out
grep -q '^# r2 checked [1-9][0-9]* operations, 0 elements wrong' all
ok $? "r2_perf: every element was checked and right"
[ "$(grep -cE '^# r2 fault [12] at .*(h0:n1 down|h1:n2 fatal)' all)" = 2 ]
ok $? "r2_perf: both faults were made"
grep -q '</svg>' run.svg && jq -e '.' run.json >out 2>&1
ok $? "run.svg and run.json are whole"
grep -q 'hca_id:' all
ok $? "ibv_devinfo sees the NICs of the fabric"
grep -qi 'blackhole' all
ok $? "softfab status shows the fault"
cp all out
! grep -qi 'command not found\|no such file' all
ok $? "nothing is missing"

# Every tool that README names is built, every file below docs/ that it names is there.
for tool in $(grep -oE '\br2_(perf|stat|ctl|config|topo|plan)\b|\bsoftfab\b' "$readme" | sort -u); do
    [ -x "build/$tool" ]
    ok $? "README names $tool"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
