# Sourced by the r2_perf_*.sh scripts: counting, and a run of the driver over the TCP plugin.
# B is the build directory, relative to the repository's root or absolute.
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
PERF=$B/r2_perf
TCP=$B/tests/libnccl-net-tcptest.so
TMP=$(mktemp -d) || exit 1
trap 'rm -rf "$TMP"' EXIT
trap 'exit 1' INT TERM
unset NCCL_NET NCCL_DEBUG NCCL_BUFFSIZE NCCL_P2P_NET_CHUNKSIZE NCCL_TESTS_MIN_BW NCCL_NET_PLUGIN
PASSED=0
FAILED=0
exec 3>&1 # what failed is printed, wherever the output of a check goes

pass()
{
    PASSED=$((PASSED + 1))
}

# fail NAME: with what the run printed
fail()
{
    FAILED=$((FAILED + 1))
    {
        echo "FAIL $1"
        sed 's/^/    /' "$TMP/out" "$TMP/err" 2>/dev/null | tail -15
    } >&3
}

# check NAME COMMAND...: passes when the command succeeds
check()
{
    name=$1
    shift
    if "$@"; then pass; else fail "$name"; fi
}

# run ARGUMENTS: r2_perf over the TCP plugin; output in $TMP/out and $TMP/err, exit code in RC
run()
{
    NCCL_NET_PLUGIN=$TCP timeout 120 "$PERF" "$@" >"$TMP/out" 2>"$TMP/err"
    RC=$?
}

# expect NAME CODE: the exit code of the last run
expect()
{
    if [ "$RC" = "$2" ]; then pass; else fail "$1: exit code $RC instead of $2"; fi
}

# says NAME PATTERN: the last run printed it, on stdout or stderr
says()
{
    if grep -q -e "$2" "$TMP/out" "$TMP/err"; then pass; else fail "$1: nothing like '$2'"; fi
}

# nobody_left PATTERN: no process has such a command line, or will not for long: who is killed is gone when the kernel has taken it down. A bound against hangs: 30 s.
nobody_left()
{
    left=300
    while pgrep -f "$1" >/dev/null; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}

finish()
{
    echo "$PASSED passed, $FAILED failed"
    [ "$FAILED" = 0 ]
    exit
}

for f in "$PERF" "$TCP"; do
    if [ ! -e "$f" ]; then
        echo "skipped: $f is not built"
        echo "0 passed, 0 failed"
        exit 0
    fi
done
