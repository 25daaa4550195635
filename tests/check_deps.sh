#!/bin/sh
# tools/install-deps.sh beside package managers that are not real: it says what it installs before it is silent, waits for the lock
# of apt's lists, and asks the RHEL family for its own names.
#   check_deps.sh [BUILD]       closes with "N passed, N failed"
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0

# fake DIR NAME: standard input is the program
fake() {
    { echo '#!/bin/sh' && cat; } >"$tmp/$1/$2" && chmod +x "$tmp/$1/$2"
}
for d in debian rhel bare; do
    mkdir "$tmp/$d"
    for p in sh awk cat date env; do ln -s "$(command -v $p)" "$tmp/$d/$p"; done
    echo 'echo 0' | fake $d id
    echo "echo waited >>$tmp/log" | fake $d sleep # waiting takes no time here
done
echo '[ "$4" != check ] || echo "install ok installed"' | fake debian dpkg-query
fake debian apt-get <<END
[ "\$1" = update ] || { echo "install, \$LC_ALL: \$*" >>$tmp/log; exit 0; }
n=\$(cat $tmp/locked)
[ "\$n" = 0 ] && exit 0
echo \$((n - 1)) >$tmp/locked
echo "E: \$(cat $tmp/why)"
exit 100
END
echo '[ "$2" = check-devel ]' | fake rhel rpm
echo "echo \"install: \$*\" >>$tmp/log" | fake rhel dnf

# run SYSTEM ARGUMENTS...: in $tmp/out what it says, in $tmp/log what was done
run() {
    d=$1
    shift
    : >"$tmp/log"
    PATH=$tmp/$d sh "$root/tools/install-deps.sh" "$@" >"$tmp/out" 2>&1
}
# has WHAT FILE PATTERN
has() {
    if grep -q -e "$3" "$tmp/$2"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1: '$3' is not in:"
        sed 's/^/    /' "$tmp/$2"
    fi
}
# status WHAT EXPECTED ACTUAL
status() {
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAIL $1: status $3, expected $2"; fi
}

echo 'Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)' >"$tmp/why"
echo 3 >"$tmp/locked"
run debian check
status 'apt is in use for a while' 0 $?
status 'how often it waited' 3 "$(grep -c waited "$tmp/log")"
has 'what is installed is said' out '^installing with apt-get, .* libibverbs-dev libsubunit-dev'
has 'apt' log '^install, C: install .*DPkg::Lock::Timeout=[0-9]* .* libibverbs-dev libsubunit-dev'
if grep -q -w check "$tmp/log"; then status 'what is here is not installed again' 'not named' named; fi
echo 'Temporary failure resolving' >"$tmp/why"
echo 1 >"$tmp/locked"
run debian build
status 'another error of apt' 1 $?
has 'another error of apt' out 'install-deps: apt-get update: E: Temporary failure resolving'
run debian build --print
has 'what is missing' out '^missing: gcc libc6-dev make libibverbs-dev$'
run rhel check
status 'dnf' 0 $?
has 'what is installed is said' out '^installing with [^ ]*dnf, .* rdma-core-devel subunit-devel'
has 'dnf' log '^install: install -y -q gcc glibc-devel make rdma-core-devel subunit-devel'
run bare build
status 'no package manager' 1 $?
has 'no package manager' out 'neither dpkg nor rpm is here; please install .*: gcc libc6-dev make libibverbs-dev$'
run debian everything
status 'no such set' 2 $?
echo "$passed passed, $failed failed"
[ $failed = 0 ]
