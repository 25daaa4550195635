#!/bin/sh
# r2_config: every command, right and wrong use, and the doctor with what is broken on purpose, on a machine without NICs
# and on the software fabric.
#   r2_config.sh [BUILD]     closes with "N passed, N failed[, N skipped]"
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
CONFIG=$B/r2_config
tmp=$(mktemp -d) || exit 2
fabric=conf$$
fabric_is_up=
# shellcheck disable=SC2329
end() {
    [ -z "$fabric_is_up" ] || "$B/softfab" down --name $fabric >/dev/null 2>&1
    chmod -R u+rwx "$tmp"
    rm -rf "$tmp"
}
trap end EXIT
trap 'exit 130' INT TERM
# nothing of the caller's settings may decide what is tested
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
HOME=$tmp/home
export HOME
mkdir "$HOME"
passed=0 failed=0 skipped=0

# result NAME STATUS: counts, and shows the last run when it is not as it should be
result() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        sed 's/^/    out: /' "$tmp/out" | tail -40
        sed 's/^/    err: /' "$tmp/err" | tail -10
    fi
}
# run WANTED-STATUS NAME COMMAND...: output in $tmp/out and $tmp/err
run() {
    want=$1
    run=$2
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got = "$want" ] || echo "$run: exit status $got, wanted $want"
    [ $got = "$want" ]
    result "$run: exit status" $?
}
# has LINE / err LINE / no TEXT: what the last run printed (basic regular expression), or did not
has() {
    grep -q -e "$1" "$tmp/out"
    result "$run: '$1'" $?
}
err() {
    grep -q -e "$1" "$tmp/err"
    result "$run: '$1' on stderr" $?
}
no() {
    ! grep -q -e "$1" "$tmp/out"
    result "$run: no '$1'" $?
}
# is JQ: the last run's JSON makes it true
is() {
    jq -e "$1" "$tmp/out" >/dev/null 2>"$tmp/err"
    result "$run: $1" $?
}

# --- use ---
run 0 help "$CONFIG" --help
has '^usage: r2_config'
run 2 "unknown argument" "$CONFIG" --nonsense
err "^r2_config: unknown option '--nonsense'"
run 2 "argument too many" "$CONFIG" --json more
err "'more' is one argument too many"
run 2 "argument missing" "$CONFIG" --check
run 2 "two commands" "$CONFIG" --json --diff
err 'one command at a time'
run 2 "wrong limit" "$CONFIG" --doctor --limit 0
err "--limit: expected 1 to 3600 seconds"
run 2 "a root that is not there" "$CONFIG" --root "$tmp/nothing" --diff
err '--root: there is no such directory'
run 2 "a root that is a file" "$CONFIG" --root "$CONFIG" --diff
run 2 "no command" "$CONFIG" GIVE_UP
run 0 version "$CONFIG" --version
has '^r2_config of nccl-net-r2 [0-9]'
# of files: the build that this is a build of, without running it; what is something else is one line
run 0 "version of a plugin" "$CONFIG" --version "$B/libnccl-net-r2.so"
has "^$B/libnccl-net-r2.so: nccl-net-r2 $(cat VERSION) [0-9a-z]* wire=[0-9]* abi=v8-v12$"
head -c 3000 "$B/libnccl-net-r2.so" >"$tmp/cut.so"
: >"$tmp/empty.so"
for f in "$tmp/none.so" "$tmp" "$tmp/cut.so" "$tmp/empty.so" VERSION "$CONFIG" "$B/softfab-lib/libibverbs.so.1"; do
    run 1 "version of ${f##*/}" "$CONFIG" --version "$f"
    err "^r2_config: $f: [A-Za-z]"
    [ "$(grep -c . "$tmp/err")" = 1 ] && [ ! -s "$tmp/out" ]
    result "version of ${f##*/}: one line" $?
done
run 1 "version of two files" "$CONFIG" --version VERSION "$B/libnccl-net-r2.so"
has "^$B/libnccl-net-r2.so: nccl-net-r2 "

# --- values ---
rows=$(grep -c -E '^R2_(BOOL|INT|ENUM|STRING)\(' plugin/base/r2_config.def)
run 0 "all options" "$CONFIG"
[ "$(wc -l <"$tmp/out")" = "$rows" ]
result "one line for each of $rows rows" $?
run 0 "no difference" "$CONFIG" --diff
[ ! -s "$tmp/out" ]
result "no difference prints nothing" $?
run 0 difference env NCCL_R2_T_ACK=30 NCCL_R2_FAILOVER=yes NCCL_IB_HCA='=mlx5_0' "$CONFIG" --diff
has '^NCCL_R2_T_ACK=30 source=environment default=20$'
has '^NCCL_IB_HCA==mlx5_0 source=environment default=$'
no FAILOVER
run 1 "bad value" env NCCL_R2_GIVE_UP=5s "$CONFIG" --diff
err 'would end the job: NCCL_R2_GIVE_UP=5s (environment): expected a whole number from 100 to 86400000 ms'
run 1 "bad list of NICs" env NCCL_IB_HCA=a:b "$CONFIG"
err "NCCL_IB_HCA=a:b: 'a:b': the port is not a number"
run 1 "bad range of addresses" env NCCL_IB_ADDR_RANGE=10.0.0.0/33 "$CONFIG"
err "NCCL_IB_ADDR_RANGE=10.0.0.0/33: expected ADDRESS/BITS"
# numbers and switches of NCCL's own variables: the job goes on with the default, which nobody should have to find out
run 0 "a number of NCCL's" env NCCL_IB_TIMEOUT=99 NCCL_IB_SPLIT_DATA_ON_QPS=perhaps NCCL_IB_TC=104 "$CONFIG" --diff
err '^NCCL_IB_TIMEOUT=99: expected a whole number from 1 to 31; the plugin goes on with the default, 20$'
err '^NCCL_IB_SPLIT_DATA_ON_QPS=perhaps: expected .*; the plugin goes on with the default, off$'
[ "$(grep -c . "$tmp/err")" = 2 ]
result "no more than what is refused" $?
run 0 "a number of NCCL's: json" env NCCL_IB_TIMEOUT=99 "$CONFIG" --json
is '(.warnings | length == 1 and (.[0] | test("^NCCL_IB_TIMEOUT=99: "))) and .error == null'
# texts of which the rows know nothing more: what the plugin refuses, every command refuses
for bad in NCCL_R2_TOPO=hwlock NCCL_R2_DRAIN== NCCL_R2_BACKUP_NICS=a:b NCCL_IB_HCA=a:b NCCL_IB_ADDR_FAMILY=inet \
    NCCL_IB_ADDR_RANGE=10.0.0.0/33 NCCL_SOCKET_FAMILY=inet NCCL_R2_WAYS=17 NCCL_R2_WAYS=many; do
    run 1 "refused: $bad" env "$bad" "$CONFIG" --diff
    err "would end the job: $bad: "
    run 1 "refused, explained: $bad" env "$bad" "$CONFIG" --explain "${bad%%=*}"
    has "^    environment  ${bad#*=}  cannot be taken: $bad: "
    echo "$bad" >"$tmp/refused.conf"
    run 1 "refused, checked: $bad" "$CONFIG" --check "$tmp/refused.conf"
    has ":1: error: $bad: "
done
for good in NCCL_R2_TOPO=hwloc NCCL_R2_TOPO=./captured NCCL_R2_TOPO=host.xml NCCL_R2_TOPO=off NCCL_R2_DRAIN= NCCL_R2_DRAIN=^ \
    NCCL_R2_WAYS=16 NCCL_R2_WAYS=off NCCL_R2_WAYS=; do
    run 0 "taken: $good" env "$good" "$CONFIG" --diff
done
# a file of ports is looked at as the plugin does: what is wrong with it ends no job, and is said by every command
run 0 "a file of ports that is not there" env NCCL_R2_WAYS="$tmp/ports" "$CONFIG" --diff
err "^NCCL_R2_WAYS: $tmp/ports: No such file"
printf '* * 50000\n10.0.0.1 * 80\n' >"$tmp/ports"
run 0 "a file of ports with a slip" env NCCL_R2_WAYS="$tmp/ports" "$CONFIG"
err "^NCCL_R2_WAYS: $tmp/ports:2: '80': expected a port of 49152 to 65535"
run 0 "a file of ports with a slip: json" env NCCL_R2_WAYS="$tmp/ports" "$CONFIG" --json
is '(.warnings | length == 1 and (.[0] | test("ports:2: "))) and .error == null'
run 0 "near miss" env NCCL_R2_FAILOVR=off "$CONFIG" --diff
err "unknown variable 'NCCL_R2_FAILOVR' in the environment: did you mean NCCL_R2_FAILOVER?"

# names that nobody reads
run 0 "unknown names" env NCCL_R2_TIMEOUT=5 NCCL_IB_TIMEOUTS=22 NCCL_IB_MERGE_NICS=0 NCCL_DEBUG=WARN "$CONFIG" --diff
err "^unknown variable 'NCCL_R2_TIMEOUT' in the environment$"
err "^unknown variable 'NCCL_IB_TIMEOUTS' in the environment: did you mean NCCL_IB_TIMEOUT?$"
[ "$(grep -c . "$tmp/err")" = 2 ]
result "not a word on what others read" $?
run 2 "explain a name of NCCL's" "$CONFIG" --explain NCCL_IB_FIFO_TC
err "NCCL_IB_FIFO_TC is for NCCL's IB transport: it has no effect with this plugin"
printf 'NCCL_IB_FIFO_TC=3\nNCCL_IB_TIMEOUTS=3\nFAILOVER=on\n' >"$tmp/nccls.conf"
run 0 "check: names of NCCL's" "$CONFIG" --check "$tmp/nccls.conf"
has ":1: note: NCCL_IB_FIFO_TC is for NCCL's IB transport: it has no effect"
has ':2: warning: unknown name NCCL_IB_TIMEOUTS; did you mean NCCL_IB_TIMEOUT?'
has ':3: warning: unknown name FAILOVER; did you mean NCCL_R2_FAILOVER?'

# --- sources: a root of our own, in which lock.conf is the administrator's ---
root=$tmp/root
mkdir -p "$root/etc/nccl-net-r2"
printf 'NCCL_R2_FAILOVER=on\nNCCL_R2_LINGER=1000\n' >"$root/etc/nccl-net-r2/lock.conf"
printf '# for all\nNCCL_R2_GIVE_UP=30000\nNCCL_R2_T_ACK=40\n' >"$root/etc/nccl.conf"
printf 'NCCL_R2_GIVE_UP=20000\nNCCL_R2_T_DEAD=77\nNCCL_R2_LINGER=2\n' >"$tmp/profile.conf"
printf 'NCCL_R2_T_ACK=50\n' >"$HOME/.nccl.conf"
chmod 444 "$root/etc/nccl-net-r2/lock.conf"
chmod 555 "$root/etc/nccl-net-r2"
sources() {
    NCCL_R2_FAILOVER=off NCCL_R2_PROFILE=$tmp/profile.conf "$CONFIG" --root "$root" "$@"
}
run 0 "sources: diff" sources --diff
has "^NCCL_R2_GIVE_UP=30000 source=$root/etc/nccl.conf:2 default=60000$"
has "^NCCL_R2_T_ACK=50 source=$HOME/.nccl.conf:1 default=20$"
has "^NCCL_R2_T_DEAD=77 source=profile $tmp/profile.conf:2 default=-1$"
has "^NCCL_R2_LINGER=1000 source=lock.conf $root/etc/nccl-net-r2/lock.conf:2 default=30000$"
err 'NCCL_R2_FAILOVER=off (environment) overruled by lock.conf: on'
run 0 "sources: NCCL_CONF_FILE" env NCCL_CONF_FILE="$tmp/profile.conf" "$CONFIG" --root "$root" --diff
has "^NCCL_R2_GIVE_UP=20000 source=$tmp/profile.conf:1 default"
has "^NCCL_R2_T_ACK=40 source=$root/etc/nccl.conf:3 default"
run 0 "sources: json" sources --json
is '.lock.state == "holds" and .error == null'
is ".options | length == $rows"
is '.options[] | select(.name == "NCCL_R2_FAILOVER") | .value == "on" and .source == "lock.conf" and (.choices == ["on", "off"])'
is '.options[] | select(.name == "NCCL_R2_GIVE_UP") | .value == 30000 and .default == 60000 and .min == 100 and .unit == "ms" and
    ([.offers[].source] == ["environment", "profile"])'
is '[.overruled[] | .name + " " + .source + " " + .by] | sort == ["NCCL_R2_FAILOVER environment lock.conf",
    "NCCL_R2_GIVE_UP profile environment", "NCCL_R2_LINGER profile lock.conf"]'
is '[.warnings[] | select(test("overruled by lock.conf"))] | length == 2'
run 0 "sources: explain" sources --explain NCCL_R2_GIVE_UP
has '^  values    100 to 86400000$'
has '^  value     30000$'
has "^    environment  30000 ($root/etc/nccl.conf:2)  in effect$"
has "^    profile      20000 ($tmp/profile.conf:1)  overruled by environment$"
has '^    lock.conf    not set$'
run 1 "explain a bad value" env NCCL_R2_GIVE_UP=5s "$CONFIG" --explain NCCL_R2_GIVE_UP
has '^    environment  5s  cannot be taken: .*from 100 to 86400000'
run 0 "explain two" "$CONFIG" --explain NCCL_R2_ACK NCCL_IB_HCA
has '^  values    e2e, cqe, flush$'
has '^NCCL_IB_HCA$'
run 2 "explain a near miss" "$CONFIG" --explain NCCL_R2_GIVEUP
err "no option 'NCCL_R2_GIVEUP'; did you mean NCCL_R2_GIVE_UP?"
run 2 "explain half a name" "$CONFIG" --explain give_up
err 'did you mean NCCL_R2_GIVE_UP?'
run 2 "explain nonsense" "$CONFIG" --explain BLUE_MOON_RISING
err "no option 'BLUE_MOON_RISING'; r2_config lists them$"
chmod 777 "$root/etc/nccl-net-r2"
run 0 "a lock that the job could replace" sources --json
is '.lock.state == "ignored" and (.options[] | select(.name == "NCCL_R2_FAILOVER") | .value == "off")'
chmod 555 "$root/etc/nccl-net-r2"

# --- files ---
run 1 "check: no such file" "$CONFIG" --check "$tmp/nothing"
err 'cannot be read'
printf 'NCCL_R2_T_ACK=5\n# a comment\n\nNCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5_0,mlx5_1\n' >"$tmp/good.conf"
run 0 "check: a good file" "$CONFIG" --check "$tmp/good.conf"
has "^$tmp/good.conf:1: taken: NCCL_R2_T_ACK=5 us$"
has "^$tmp/good.conf:4: note: NCCL_DEBUG is for NCCL"
has "^$tmp/good.conf: 2 taken, 0 errors, 0 warnings$"
cat >"$tmp/bad.conf" <<'END'
NCCL_R2_T_ACK=many
NCCL_R2_T_DEAD = 5
export NCCL_R2_LINGER=7
NCCL_R2_FAILOVR=on
NCCL_R2_GIVE_UP=5 # seconds
  # indented
NCCL_R2_SPREAD on
NCCL_R2_SPREAD=on
NCCL_R2_SPREAD=off
NCCL_IB_HCA="mlx5_0"
NCCL_R2_BACKUP_NICS=a:1:2:3:4
NCCL_SOCKET_FAMILY=inet
=nothing
NCCL_R2_BALANCE=
NCCL_CONF_FILE=/elsewhere
END
run 1 "check: a bad file" "$CONFIG" --check "$tmp/bad.conf"
has ':1: error: NCCL_R2_T_ACK=many: expected a whole number from 0 to 1000000 us'
has ":2: error: sets a variable named 'NCCL_R2_T_DEAD '"
has ":3: error: sets a variable named 'export NCCL_R2_LINGER'"
has ':4: error: unknown option NCCL_R2_FAILOVR; did you mean NCCL_R2_FAILOVER?'
has ':5: error: NCCL_R2_GIVE_UP=5 # seconds: expected'
has ':6: warning: passed over: .*a comment begins in column 1'
has ":7: warning: passed over: there is no '='"
has ':8: taken: NCCL_R2_SPREAD=on'
has ':9: warning: NCCL_R2_SPREAD is set in line 8 already'
has ':10: warning: the quotes are part of the value'
has ':11: error: NCCL_R2_BACKUP_NICS=.*more than four fields'
has ':12: error: NCCL_SOCKET_FAMILY=inet: expected AF_INET or AF_INET6'
has ":13: error: there is no name before '='"
has ':14: warning: NCCL_R2_BALANCE without a value'
has ':15: warning: NCCL_CONF_FILE is read from the environment'
has ': 2 taken, 8 errors, 6 warnings$'
printf 'root:x:0:0:root:/root:/bin/sh\n# so\ndaemon:x:1:1\n' >"$tmp/passwd"
run 1 "check: another kind of file" "$CONFIG" --check "$tmp/passwd"
has ":3: error: nothing in this file sets anything: is it one of options?"
printf '# nothing yet\n\n' >"$tmp/empty.conf"
run 0 "check: a file of comments" "$CONFIG" --check "$tmp/empty.conf"
printf 'NCCL_R2_T_ACK=5\r\nNCCL_R2_T_DEAD=6' >"$tmp/crlf.conf"
run 0 "check: line ends" "$CONFIG" --check "$tmp/crlf.conf"
has ':1: warning: lines end in CR LF'
has ': 2 taken, 0 errors, 1 warnings$'
{
    printf 'NCCL_IB_HCA='
    awk 'BEGIN { for (i = 0; i < 5000; i++) printf "x"; print "" }'
    echo 'NCCL_R2_T_ACK=5'
} >"$tmp/long.conf"
run 1 "check: a line too long" "$CONFIG" --check "$tmp/good.conf" "$tmp/long.conf"
has ':1: error: the line is longer than 4095 bytes'
has ':2: taken: NCCL_R2_T_ACK=5'
# what it says of a file is what the loader does with it
run 1 "check and loader agree" env NCCL_R2_PROFILE="$tmp/bad.conf" "$CONFIG" --diff
has '^NCCL_R2_SPREAD=on source=profile'
no 'T_DEAD\|LINGER\|GIVE_UP'

# --- the doctor, without NICs ---
# sees LEVEL WHAT: a line of the doctor's
sees() {
    grep -q -e "^$1 *$2" "$tmp/out"
    result "$run: $1 $2" $?
}
plain() {
    # shellcheck disable=SC2086
    env LD_LIBRARY_PATH="${libs:-}" "$@" "$CONFIG" --doctor ${more:-}
}
# hosts with NICs of their own are for other tests
if [ -e /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ]; then
    skipped=$((skipped + 1))
    echo "SKIP doctor without NICs: this machine has some"
else
    run 1 "doctor: no NICs" plain NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_NET=R2
    sees ok "NCCL_NET_PLUGIN=$B/libnccl-net-r2.so: is "
    sees ok 'NCCL_NET: is R2'
    sees ok 'library: nccl-net-r2 [0-9].*SONAME libnccl-net-r2.so, needs libc alone'
    sees FAIL 'NICs: '
    sees FAIL 'plugin: its init returned 2: not used: '
    has '^[0-9]* ok, [0-9]* warnings, [0-9]* failures$'
    ! grep -v -e '^ok    [^:]*: ' -e '^WARN  [^:]*: .* -> ' -e '^FAIL  [^:]*: .* -> ' -e '^[0-9]* ok, ' "$tmp/out" | grep -q .
    result "doctor: every line has its form" $?
fi
run 1 "doctor: not found" plain NCCL_NET_PLUGIN=r2
sees FAIL 'NCCL_NET_PLUGIN=r2: .*libnccl-net-r2.so: cannot open shared object file.* -> NCCL_NET_PLUGIN=/'
sees WARN 'NCCL_NET: is not set'
sees WARN 'NCCL_NET_PLUGIN_REF_COUNT: is not set: .* -> NCCL_NET_PLUGIN_REF_COUNT=1$'
run 1 "doctor: the count begins at 0" plain NCCL_NET_PLUGIN=r2 NCCL_NET_PLUGIN_REF_COUNT=0
sees WARN 'NCCL_NET_PLUGIN_REF_COUNT: is 0: '
run 1 "doctor: the count begins at 1" plain NCCL_NET_PLUGIN=r2 NCCL_NET_PLUGIN_REF_COUNT=1
sees ok 'NCCL_NET_PLUGIN_REF_COUNT: is 1: '
libs=$B
run 1 "doctor: found by the loader" plain NCCL_NET_PLUGIN=r2 NCCL_NET=IB
sees ok "NCCL_NET_PLUGIN=r2: is $B/libnccl-net-r2.so"
sees FAIL 'NCCL_NET: is IB'
run 1 "doctor: none" plain NCCL_NET_PLUGIN=none
sees FAIL 'NCCL_NET_PLUGIN=none: NCCL loads no plugin'
run 1 "doctor: unset" plain
sees ok 'NCCL_NET_PLUGIN: is not set; libnccl-net.so is ours'
run 1 "doctor: another plugin first" plain NCCL_NET_PLUGIN="$B/tests/libnccl-net-tcptest.so,r2"
sees WARN 'NCCL_NET_PLUGIN=.*tcptest.so: is another plugin'
sees ok "NCCL_NET_PLUGIN=r2: is $B/libnccl-net-r2.so"
libs=
echo "this is no library" >"$tmp/libnccl-net-r2.so"
run 1 "doctor: not a library" plain NCCL_NET_PLUGIN="$tmp/libnccl-net-r2.so"
sees FAIL "NCCL_NET_PLUGIN=$tmp/libnccl-net-r2.so: .*-> NCCL_NET_PLUGIN=$B/libnccl-net-r2.so"
run 1 "doctor: a library that is no plugin" plain NCCL_NET_PLUGIN="$B/softfab-lib/libibverbs.so.1"
sees FAIL 'NCCL_NET_PLUGIN=.*has no table ncclNetPlugin_vN'
printf '#include <signal.h>\n#include <unistd.h>\n__attribute__((constructor)) static void c(void) { %s; }\n' 'raise(SIGSEGV)' >"$tmp/crash.c"
if command -v cc >/dev/null 2>&1 && cc -shared -fPIC -o "$tmp/crash.so" "$tmp/crash.c" 2>"$tmp/err"; then
    run 1 "doctor: a library that crashes" plain NCCL_NET_PLUGIN="$tmp/crash.so"
    sees FAIL 'NCCL_NET_PLUGIN=.*loading it does not work: it died of Segmentation fault'
    sed 's/raise(SIGSEGV)/for (;;) pause()/' "$tmp/crash.c" >"$tmp/hang.c"
    mkdir "$tmp/hang"
    cc -shared -fPIC -o "$tmp/hang/libibverbs.so.1" "$tmp/hang.c" 2>"$tmp/err"
    result "a library that hangs" $?
    libs=$tmp/hang more="--limit 2"
    run 1 "doctor: a libibverbs that hangs" plain NCCL_NET_PLUGIN="$B/libnccl-net-r2.so"
    has "FAIL  doctor: the check of libibverbs does not return -> "
    more="--limit 4"
    run 1 "doctor: a libibverbs that hangs for longer" plain NCCL_NET_PLUGIN="$B/libnccl-net-r2.so"
    err '^r2_config: still at the check of libibverbs [.]*$'
    has "FAIL  doctor: the check of libibverbs does not return -> "
    mute() { plain "$@" 2>/dev/full; }
    run 1 "doctor: a libibverbs that hangs, and nobody reads stderr" mute NCCL_NET_PLUGIN="$B/libnccl-net-r2.so"
    has "FAIL  doctor: the check of libibverbs does not return -> "
    more="--limit 2"
    libs=
    run 1 "doctor: a plugin that hangs" plain NCCL_NET_PLUGIN="$tmp/hang/libibverbs.so.1"
    sees FAIL 'NCCL_NET_PLUGIN=.*loading it does not work: it had not ended after 1.0 s'
    more=
else
    skipped=$((skipped + 1))
    echo "SKIP doctor with a library that crashes: there is no cc to build one"
fi
mkdir "$tmp/broken"
echo "not a shared object, but long enough for the loader to look at its beginning" >"$tmp/broken/libibverbs.so.1"
libs=$tmp/broken
run 1 "doctor: a broken libibverbs" plain
sees FAIL 'libibverbs: .*libibverbs.so.1'
sees FAIL 'plugin: its init returned 2: not used: no verbs: '
libs=

# which libibverbs: versions, calls that an old one has not, providers of another one
verbs=$tmp/verbs
mkdir -p "$verbs/libibverbs"
cp "$B/softfab-lib/libibverbs.so.1" "$verbs/whole"
# without NAME: a name of the same length in the library's own table
without() {
    LC_ALL=C sed "s/$1/$(echo "$1" | sed 's/./x/')/g" "$verbs/whole" >"$verbs/libibverbs.so.1"
}
libs=$verbs
cp "$verbs/whole" "$verbs/libibverbs.so.1"
: >"$verbs/libibverbs/libmlx5-rdmav34.so"
run 1 "doctor: versions" plain
sees ok 'libibverbs: calls of IBVERBS_1.14, providers of IBVERBS_PRIVATE_34'
no 'WARN  libibverbs'
: >"$verbs/libibverbs/libmlx5-rdmav25.so"
: >"$verbs/libibverbs/libmlx4-rdmav25.so"
run 1 "doctor: a provider of another rdma-core" plain
sees WARN "libibverbs: it takes providers named rdmav34, and $verbs/libibverbs has libmlx4-rdmav25.so: NICs of these are not seen -> "
without ibv_reg_dmabuf_mr
run 1 "doctor: a libibverbs without DMA-BUF" plain
sees WARN 'libibverbs: it has no ibv_reg_dmabuf_mr (IBVERBS_1.12): no GPU memory by DMA-BUF -> rdma-core 34'
without ibv_reg_mr_iova2
run 1 "doctor: a libibverbs without relaxed ordering" plain
sees WARN 'libibverbs: it has no ibv_reg_mr_iova2 (IBVERBS_1.8): no relaxed ordering'
without ibv_get_device_guid
run 1 "doctor: a libibverbs that is too old" plain
sees FAIL 'libibverbs: libibverbs.so.1 has no ibv_get_device_guid: rdma-core is too old'
libs=

# --- the doctor in a root of our own: files that are missing, or wrong ---
rooted() {
    env LD_LIBRARY_PATH="$B" NCCL_NET_PLUGIN=r2 "$@" "$CONFIG" --root "$root" --doctor
}
mkdir -p "$root/sys/class/infiniband/mlx5_0" "$root/sys/class/infiniband/mlx5_1" "$root/etc/libibverbs.d"
run 1 "doctor: no device files" rooted
sees FAIL '/dev/infiniband: .*the kernel has 2 RDMA devices -> .*--device /dev/infiniband'
sees FAIL '/dev/shm: .*-> mount a tmpfs'
sees WARN 'run directory: neither .* can be written'
sees WARN 'libibverbs: .*no provider is configured'
sees ok "lock.conf: $root/etc/nccl-net-r2/lock.conf pins 2 options"
sees ok "nccl.conf: $root/etc/nccl.conf: 2 options of ours"
mkdir -p "$root/dev/infiniband" "$root/dev/shm"
ln -s /nonexistent "$root/dev/infiniband/uverbs0"
: >"$root/dev/infiniband/uverbs1"
: >"$root/.dockerenv"
run 1 "doctor: a device file that is not ours" rooted NCCL_R2_FAILOVER=off NCCL_R2_T_DEAD=x
sees WARN '/dev/infiniband: .*uverbs0: No such file'
no 'uverbs1:'
sees WARN 'options: NCCL_R2_FAILOVER=off (environment) overruled by lock.conf: on'
sees FAIL 'options: NCCL_R2_T_DEAD=x (environment): expected'
sees ok 'container: yes, by /.dockerenv'
sees WARN "run directory: $root/dev/shm, as there is no $root/run/nccl-net-r2: in a container"
mkdir -p "$root/run/nccl-net-r2"
run 1 "doctor: a run directory" rooted
sees ok "run directory: $root/run/nccl-net-r2$"
rmdir "$root/run/nccl-net-r2"
: >"$root/run/nccl-net-r2"
run 1 "doctor: a run directory that cannot be written" rooted
sees WARN "run directory: $root/dev/shm, as $root/run/nccl-net-r2 cannot be written by this user"
rm "$root/run/nccl-net-r2"
rm "$root/dev/infiniband/uverbs0"
run 1 "doctor: device files" rooted
sees ok '/dev/infiniband: all 1 uverbs files can be opened'
echo 'NCCL_R2_FAILOVR=1' >>"$root/etc/nccl.conf"
chmod 777 "$root/etc/nccl-net-r2"
run 1 "doctor: files of options" rooted
sees WARN "nccl.conf: $root/etc/nccl.conf: 2 options of ours, 1 errors.*-> r2_config --check"
sees WARN 'lock.conf: .*is ignored'
chmod 555 "$root/etc/nccl-net-r2"

# --- the doctor on the software fabric ---
"$B/softfab" up --name $fabric --hosts 1 --nics 3 >"$tmp/out" 2>"$tmp/err"
result "a fabric" $?
fabric_is_up=1
fabric() {
    env LD_LIBRARY_PATH="$B" NCCL_NET_PLUGIN=r2 NCCL_NET=R2 "$@" "$B/softfab" exec --name $fabric --host 0 -- "$CONFIG" --doctor ${more:-}
}
run 0 "fabric" fabric
sees ok 'NIC fab0: port 1 ACTIVE, [0-9]* Mb/s, rail 0'
sees ok 'NIC fab2: GID 3 is 10.10.2.1, RoCE v2'
sees ok 'NICs: 3 of 3 ports are ACTIVE, 3 devices are listed'
sees ok 'plugin: its init took [0-9]* ms and shows 3 devices: fab0 fab1 fab2'
sees ok '/dev/infiniband: not needed'
no '^FAIL'
# what the kernel would lock is not what a software NIC needs: a warning at most
run 0 "fabric: memlock" fabric prlimit --memlock=65536:65536
sees "\(ok\|WARN\)" "memlock: 64 KiB"
run 0 "fabric: NCCL_IB_ADDR_FAMILY" fabric NCCL_IB_ADDR_FAMILY=AF_INET6
sees WARN 'NIC fab2: GID 1 (fe80:.*) is link-local'
run 0 "fabric: NCCL_IB_ADDR_RANGE" fabric NCCL_IB_ADDR_RANGE=10.10.1.0/24
sees ok 'NIC fab1: GID 3 is 10.10.1.[0-9]*, RoCE v2'
sees WARN 'NIC fab2: port 1 is ACTIVE and has no address that can be used'
run 0 "fabric: NCCL_IB_HCA" fabric NCCL_IB_HCA==fab1
sees WARN 'NICs: one port is ACTIVE, of 1 that are used and 3 devices that are listed'
sees ok 'plugin: .*shows 1 devices: fab1'
run 1 "fabric: NCCL_IB_HCA of nothing" fabric NCCL_IB_HCA=mlx5
sees FAIL 'NICs: none of 3 RDMA devices is used; NCCL_IB_HCA is mlx5'
sees FAIL 'plugin: .*no RDMA device that this process may use'
run 1 "fabric: NCCL_IB_DISABLE" fabric NCCL_IB_DISABLE=1
sees FAIL 'NCCL_IB_DISABLE: is set'
sees FAIL 'plugin: .*NCCL_IB_DISABLE is set'
run 0 "fabric: a GID that is given" fabric NCCL_IB_GID_INDEX=2
sees WARN 'NIC fab0: GID 2 (.*) is RoCE v1'
run 0 "fabric: a GID that is link-local" fabric NCCL_IB_GID_INDEX=1
sees WARN 'NIC fab0: GID 1 (fe80:.*) is link-local'
run 1 "fabric: a GID outside of the table" fabric NCCL_IB_GID_INDEX=200
sees WARN 'NICs: NIC fab0 has no address: .*NCCL_IB_GID_INDEX is outside of its GID table'
sees WARN 'NIC fab0: port 1 is ACTIVE and has no address that can be used'
# a NIC that takes work and completes none, and one whose driver does not return: each is named, and the others are looked at
"$B/softfab" fault --name $fabric 'h0:n1 hang' >"$tmp/out" 2>"$tmp/err"
result "a NIC hangs" $?
more="--limit 4"
run 1 "fabric: a NIC that hangs" fabric
sees FAIL 'NIC fab1: it hangs: a write to itself had no completion after 3 s, other NICs answer -> dmesg'
sees ok 'NICs: 2 of 3 devices answer a write to themselves'
no '^FAIL  NIC fab[02]'
"$B/softfab" fault --name $fabric 'h0:n1 unhang' >"$tmp/out" 2>"$tmp/err"
result "it goes on" $?
{
    echo '#include <dlfcn.h>'
    echo '#include <string.h>'
    echo '#include <unistd.h>'
    echo 'static void *real(const char *n) { static void *l; if (!l) l = dlopen(REAL, RTLD_NOW); return l ? dlsym(l, n) : 0; }'
    echo 'typedef void *(*call)(void *, void *, void *, void *, void *, void *);'
    for symbol in ibv_get_device_list ibv_free_device_list ibv_get_device_name ibv_get_device_guid ibv_close_device ibv_query_device \
        ibv_query_gid ibv_query_port ibv_get_async_event ibv_ack_async_event ibv_alloc_pd ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr ibv_create_comp_channel \
        ibv_destroy_comp_channel ibv_get_cq_event ibv_ack_cq_events ibv_create_cq ibv_destroy_cq ibv_create_srq ibv_destroy_srq \
        ibv_create_qp ibv_modify_qp ibv_query_qp ibv_destroy_qp ibv_fork_init ibv_wc_status_str ibv_event_type_str _ibv_query_gid_ex \
        ibv_reg_mr_iova2 ibv_reg_dmabuf_mr; do
        echo "void *$symbol(void *a, void *b, void *c, void *d, void *e, void *f) { return ((call)real(\"$symbol\"))(a, b, c, d, e, f); }"
    done
    echo 'void *ibv_open_device(void *d) { if (strcmp((const char *)ibv_get_device_name(d, 0, 0, 0, 0, 0), "fab1") == 0) for (;;) pause();'
    echo '    return ((call)real("ibv_open_device"))(d, 0, 0, 0, 0, 0); }'
} >"$tmp/slow.c"
mkdir "$tmp/slow"
if command -v cc >/dev/null 2>&1 && cc -shared -fPIC "-DREAL=\"$B/softfab-lib/libibverbs.so.1\"" -o "$tmp/slow/libibverbs.so.1" "$tmp/slow.c" 2>"$tmp/err"; then
    slow() {
        env LD_LIBRARY_PATH="$B" NCCL_NET_PLUGIN=r2 NCCL_NET=R2 "$B/softfab" exec --name $fabric --host 0 -- \
            env LD_LIBRARY_PATH="$tmp/slow:$B" "$CONFIG" --doctor $more
    }
    run 1 "fabric: a driver that does not return" slow
    sees FAIL 'NIC fab1: it hangs: opening it had not returned after 3 s -> dmesg'
    sees ok 'NICs: 2 of 3 devices answer a write to themselves'
    sees ok 'NICs: 2 of 2 ports are ACTIVE, 3 devices are listed'
    no 'FAIL  doctor:'
else
    skipped=$((skipped + 1))
    echo "SKIP doctor with a driver that does not return: there is no cc to build one"
fi
more=
# interfaces: the options reach the plugin's own choice
run 0 "interfaces: lo" fabric NCCL_SOCKET_IFNAME=lo
sees WARN 'out-of-band: lo 127.0.0.1'
run 1 "interfaces: one that is not there" fabric NCCL_SOCKET_IFNAME=nope0
sees FAIL "out-of-band: no interface that is up matches 'nope0'"
sees WARN "plugin: it warns: NCCL_SOCKET_IFNAME: no interface that is up matches 'nope0'"
run 0 "interfaces: ours before NCCL's" fabric NCCL_SOCKET_IFNAME=nope0 NCCL_R2_OOB_IFNAME=lo
sees WARN 'out-of-band: lo '
sees ok 'plugin: .*shows 3 devices'
run 1 "interfaces: family" fabric NCCL_SOCKET_FAMILY=AF_UNIX
sees FAIL 'options: NCCL_SOCKET_FAMILY=AF_UNIX: expected AF_INET or AF_INET6'
sees FAIL 'plugin: its listen.*: NCCL_SOCKET_FAMILY=AF_UNIX: expected'
no 'plugin: it warns: NCCL_SOCKET_FAMILY'
run 0 "fabric: a topology that is not there" fabric NCCL_R2_TOPO="$tmp/nothing" NCCL_IB_HCA==fab0,fab1
sees WARN 'plugin: it warns: NCCL_R2_TOPO=.* -> r2_topo shows what can be read here'
no '^WARN .*see above'
run 0 "fabric: a file of ports with a slip" fabric NCCL_R2_WAYS="$tmp/ports" NCCL_IB_HCA==fab0,fab1
sees WARN "options: NCCL_R2_WAYS: $tmp/ports:2: .* -> correct the file"
no 'plugin: it warns: NCCL_R2_WAYS'
echo '* * 50000-50003' >"$tmp/ports"
run 0 "fabric: a file of ports" fabric NCCL_R2_WAYS="$tmp/ports" NCCL_IB_HCA==fab0,fab1
sees ok "NCCL_R2_WAYS: $tmp/ports: rules: 1, digest [0-9a-f]*, as it should be on every host"
run 0 "fabric: a run directory of the job's" fabric NCCL_R2_RUN_DIR="$tmp"
sees ok "run directory: $tmp, as NCCL_R2_RUN_DIR says"
run 0 "fabric: a run directory that is not there" fabric NCCL_R2_RUN_DIR="$tmp/nothing"
sees WARN "run directory: NCCL_R2_RUN_DIR=$tmp/nothing is no directory that this process can write.* -> make it"
no 'plugin: it warns'
run 0 "fabric: an unknown name" fabric NCCL_R2_TIMEOUT=5
sees WARN "options: unknown variable 'NCCL_R2_TIMEOUT' in the environment -> unset it: nothing reads it$"
no 'plugin: it warns: unknown'
run 0 "fabric: a number of NCCL's" fabric NCCL_IB_TIMEOUT=99
sees WARN 'options: NCCL_IB_TIMEOUT=99: expected .*, 20 -> r2_config --explain NCCL_IB_TIMEOUT$'
run 1 "fabric: a channel that is not there" fabric NCCL_R2_OOB=mpi
sees FAIL 'plugin: its listen, which begins a connection, returned [0-9]*: NCCL_R2_OOB=mpi: '
run 1 "fabric: a value that listen refuses" fabric NCCL_R2_TOPO=hwlock
sees FAIL 'options: NCCL_R2_TOPO=hwlock: expected auto'
sees FAIL 'plugin: its listen, which begins a connection, returned [0-9]*: NCCL_R2_TOPO=hwlock: expected'
# ... and where it cannot be obeyed, the job ends and does not go on without the plugin
job() {
    env NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" NCCL_DEBUG=WARN "$@" "$B/r2_perf" sendrecv --hosts 2 --nics 1 -b 8 -e 8 -n 1 -w 0
}
run 3 "interfaces: a job" job NCCL_R2_OOB_IFNAME=nope0
cat "$tmp/err" >>"$tmp/out"
has "NCCL_R2_OOB_IFNAME: no interface that is up matches 'nope0'"
has '# error: .*listen'
"$B/softfab" fault --name $fabric 'h0:n1 down' >"$tmp/out" 2>"$tmp/err"
result "a fault" $?
run 0 "fabric: a port that is down" fabric
sees WARN 'NIC fab1: port 1 is not ACTIVE .*-> check cable'
sees ok 'NICs: 2 of 3 ports are ACTIVE'
"$B/softfab" fault --name $fabric 'h0:* down' >"$tmp/out" 2>"$tmp/err"
result "a fault of all" $?
run 1 "fabric: all ports down" fabric
sees FAIL 'NICs: no port of 3 can be used'

# --- the table of tests that tests/unit/nccl/test_options.c has names tests that there are ---
tr '\n' ' ' <tests/unit/nccl/test_options.c | grep -o '{"NCCL[^}]*}' | sed 's/}$//; s/ *$//' |
    sed -n 's/.*"\(NCCL[A-Z0-9_]*\)", *"\(.*\)"$/\1 \2/p' >"$tmp/table"
[ "$(wc -l <"$tmp/table")" -ge "$rows" ]
result "the table of tests has a line for every row" $?
awk '{ row = $1; suite = "test_options"; $1 = ""; n = split($0, part, /, */)
       for (i = 1; i <= n; i++) { t = part[i]; sub(/^ */, "", t)
           if (split(t, w, /: */) == 2) { suite = w[1]; t = w[2] }
           print row, suite, t } }' "$tmp/table" >"$tmp/tests"
while read -r row suite name; do
    case $suite in
    e2e/*) grep -q "\"$name: " "tests/$suite" ;;
    nccl/*) grep -q "^ *say \"$name[:,]" "tests/$suite" ;;
    *) find tests/unit -name "$suite.c" -exec grep -q "^START_TEST($name)" {} \; -print | grep -q . ;;
    esac
    result "$row: $suite has no test $name" $?
done <"$tmp/tests"

# --- what has no effect here is in the manual, which --explain points to ---
sed -n '/^[a-z]* r2_config_name_is_nccls(/,/^}/p' plugin/base/r2_config_names.c | grep -o '"[A-Z_]*"' | tr -d '"' >"$tmp/nccls"
[ "$(wc -l <"$tmp/nccls")" -gt 20 ]
result "names of NCCL's that have no effect" $?
while read -r name; do
    case $name in
    RESILIENCY_PORT_FAILOVER_* | RESILIENCY_PORT_RECOVERY_*) ;;
    *) grep -q "NCCL_IB_$name\\>" docs/nccl-net-r2.7 ;;
    esac
    result "nccl-net-r2.7 tells of NCCL_IB_$name" $?
done <"$tmp/nccls"

if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" = 0 ]
