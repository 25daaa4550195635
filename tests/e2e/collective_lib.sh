# Collectives with failures in the middle: counting, and what a failed case shows. Sourced by failover.sh, watchdog.sh and failback.sh, which are
# called with the build folder and, to run a part of it, with a piece of the cases' names. A run leaves its output in $log/out.
B=${1:-build}
only=${2:-}
log=$(mktemp -d)
busy= # processes of a case's own
trap 'rm -rf "$log"; [ -z "$busy" ] || kill $busy 2>/dev/null' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
unset NCCL_NET_PLUGIN NCCL_NET
export NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO

ok() {
    passed=$((passed + 1))
    echo "ok     $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAILED $1: $2"
    [ ! -e "$log/never" ] || sed 's/^/    never came: /' "$log/never"
    rm -f "$log/never"
    grep -vE 'busbw|^$' "$log/out" | tail -25 | cut -c1-200 | sed 's/^/    | /'
}
# once TIME CONDITION [COMMAND]: for r2_perf --fault-cmd: from TIME on waits until the shell's CONDITION is true, then does COMMAND. A run with --after lasts until then,
# however slow the machine is; a bound against hangs: 60 s. In a file, since r2_perf prints what it runs: no pattern is found in its own text.
once() {
    once=$(mktemp "$log/onceXXXXXX")
    cat >"$once" <<END
n=0
until $2; do
    n=\$((n + 1))
    [ \$n -lt 600 ] || { cat "$once" >"$log/never"; echo "60 s, and never" >&2; exit 1; }
    sleep 0.1
done
${3:-true}
END
    echo "$1:sh $once"
}
# logged PATTERN [COUNT]: such a condition: as many lines of the run say so
logged() {
    echo "[ \$(grep -cE '$1' $log/out) -ge ${2:-1} ]"
}
wanted() {
    case $1 in *"$only"*) return 0 ;; *) return 1 ;; esac
}
# downs [WHY]: how many incarnations went down, as what
downs() {
    grep -c " UP -> DOWN: ${1:-}" "$log/out"
}
# was_right NAME: the run of $rc ended well and all of it was checked; else said so
was_right() {
    if [ "$rc" != 0 ]; then
        bad "$1" "exit code $rc"
    elif ! grep -q '# r2 checked [1-9][0-9]* operations, 0 elements wrong' "$log/out"; then
        bad "$1" "not checked, or wrong"
    else
        return 0
    fi
    return 1
}
