#!/bin/sh
# What the tools say of a wrong command line: one line, which names the word and the nearest that there is, nothing on the output, and no usage.
#   wrong_use.sh BUILD            closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/../.." || exit 2
B=$1
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAIL $*"
}
# refuses RC TEXT TOOL ARGUMENTS...: the exit status, and the line that the tool says begins with "TOOL: TEXT"
refuses() {
    want=$1 text=$2 tool=$3
    shift 3
    timeout -k 5 60 "$B/$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    line=$(cat "$tmp/err")
    case $line in "$tool: $text"*) said=yes ;; *) said= ;; esac
    if [ $rc = "$want" ] && [ "$said" ] && [ "$(wc -l <"$tmp/err")" = 1 ] && [ ! -s "$tmp/out" ]; then
        ok
    else
        bad "$tool $* should say '$text' in one line: exit $rc:" "$(head -c 600 "$tmp/err" "$tmp/out")"
    fi
}

for tool in r2_stat r2_ctl r2_config r2_topo r2_plan r2_perf softfab; do
    case $tool in r2_perf) use=6 ;; *) use=2 ;; esac
    sub=
    [ $tool != softfab ] || sub=up
    for help in --help -h; do
        if "$B/$tool" $help >"$tmp/out" 2>"$tmp/err" && [ -s "$tmp/out" ] && [ ! -s "$tmp/err" ]; then ok; else bad "$tool $help"; fi
    done
    begin=${sub:+$sub: }
    refuses $use "${begin}unknown option '--xyzzyq' (" $tool $sub --xyzzyq
    refuses $use "${begin}unknown option '-Z' (" $tool $sub -Z
    refuses $use "${begin}unknown option '--xyzzyq' (" $tool $sub --xyzzyq=7
done

# the nearest
refuses 2 "unknown option '--jsn': did you mean --json? (r2_stat --help)" r2_stat --jsn
refuses 2 "unknown option '-j': did you mean --json?" r2_stat -cj
refuses 2 "option '--c' may be --connections or --check" r2_stat --c
refuses 2 "unknown option '--forse': did you mean --force?" r2_ctl --forse drain x
refuses 2 "unknown command 'drian': did you mean drain?" r2_ctl drian x
refuses 2 "unknown option '--dfif': did you mean --diff?" r2_config --dfif
refuses 2 "unknown option '--odrer': did you mean --order?" r2_topo --odrer
refuses 2 "unknown option '--nods': did you mean --nodes?" r2_plan --nods 3
refuses 6 "unknown option '--niks': did you mean --nics?" r2_perf all_reduce --niks 3
refuses 6 "'allreduce' is not an operation: did you mean all_reduce?" r2_perf allreduce
refuses 2 "unknown command 'stauts': did you mean status?" softfab stauts
refuses 2 "up: unknown option '--hots': did you mean --hosts?" softfab up --hots 3

# values, where one is needed and where none is
refuses 2 "option --run-dir needs a value" r2_stat --run-dir
refuses 2 "option --json takes no value" r2_stat --json=3
refuses 2 "option --explain needs a value" r2_config --explain
refuses 6 "option -b needs a value" r2_perf all_reduce -b
refuses 2 "exec: option --host needs a value" softfab exec --host

# words, too many or none
refuses 2 "there is nothing to name beside options, not 'extra'" r2_stat extra
refuses 2 "there is nothing to name beside options, not 'extra'" r2_topo extra
refuses 2 "'extra' is one argument too many" r2_config extra
refuses 6 "'broadcast' is one word too many" r2_perf all_reduce broadcast
refuses 2 "what is to be done? drain, undrain, failback, rehearse or status" r2_ctl
refuses 2 "unknown command 'zzz': drain, undrain, failback, rehearse or status" r2_ctl zzz
refuses 2 "what is to be done? up, exec, fault, status or down" softfab
refuses 2 "'zzz' is none of up, exec, fault, status, down" softfab zzz

# what cannot be is refused before the run
refuses 6 "--plot $tmp/none/x.svg: No such file or directory" r2_perf all_reduce --plot "$tmp/none/x.svg"
refuses 6 "--plot $tmp: Is a directory" r2_perf all_reduce --plot "$tmp"

# faults are all looked at before the first is applied, and --check applies none
name=wronguse$$
"$B/softfab" up --name $name --hosts 2 --nics 2 >/dev/null || bad "softfab up"
trap 'rm -rf "$tmp"; "$B/softfab" down --name $name >/dev/null 2>&1' EXIT
is_down() { "$B/softfab" status --json --name $name | jq -e '[.nic[] | select(.state != "ACTIVE")] | length > 0' >/dev/null; }
refuses 1 "fault: no NIC h7:n1: fabric $name has 2 hosts with 2 NICs" softfab fault --name $name 'h0:n1 down' 'h7:n1 down'
if is_down; then bad "a fault was applied beside one that is refused"; else ok; fi
refuses 2 "fault: " softfab fault --name $name 'h0:n1 downn'
"$B/softfab" fault --name $name --check 'h0:n1 down' >"$tmp/out" 2>&1 || bad "--check of a good fault: $(cat "$tmp/out")"
if is_down; then bad "--check applied a fault"; else ok; fi
"$B/softfab" fault --name $name 'h0:n1 down' >/dev/null 2>&1
if is_down; then ok; else bad "a fault was not applied"; fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
