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

for tool in r2_stat r2_ctl r2_config r2_topo r2_plan r2_report r2_diag r2_perf softfab; do
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

refuses 2 "unknown word 'simulat': did you mean simulate" r2_plan simulat --nodes 4
refuses 2 "there is no option 'NCCL_R2_FAILOVR'; did you mean NCCL_R2_FAILOVER?" r2_config --explain NCCL_R2_FAILOVR
refuses 2 "there is no option 'NCCL_NOSUCH'; r2_config lists them" r2_config --explain NCCL_NOSUCH
refuses 6 "option --datatype: 'flaot' is not one of int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 all: did you mean float?" r2_perf all_reduce -d flaot
refuses 6 "option --op: 'sun' is not one of sum prod max min avg all: did you mean sum?" r2_perf all_reduce -o sun
refuses 6 "option --intra: 'xyzzy' is not one of shm net (" r2_perf all_reduce --intra xyzzy
refuses 6 "'xyzzy' is not an operation: all_reduce, all_gather" r2_perf xyzzy
refuses 2 "fault: 'donw': unknown fault: did you mean down?" softfab fault 'h0:n1 donw'
refuses 2 "fault: 'delya': unknown fault: did you mean delay?" softfab fault h0:n1 delya 5ms
refuses 2 "fault: 'xyzzy': unknown fault (" softfab fault 'h0:n1 xyzzy'

# values: what was wrong, and what may be
refuses 2 "--watch takes seconds, 0.1 to 86400, not 'often'" r2_stat --watch often
refuses 2 "--limit takes seconds, 0 to 1000000, not 'x'" r2_ctl drain n --wait --limit x
refuses 2 "--for takes seconds, 0 to 3600, as 10, 2.5s or 500ms, not '2h'" r2_ctl rehearse n --for 2h
refuses 2 "--limit: expected 1 to 3600 seconds, not '0'" r2_config --doctor --limit 0
refuses 2 "--root: there is no such directory: $tmp/none" r2_config --root "$tmp/none"
refuses 2 "--source is sysfs or hwloc, not 'proc'" r2_topo --source proc
refuses 2 "--nodes is a whole number from 2 to 4096, not 1" r2_plan --nodes 1
refuses 6 "option --iters: '0' is not a whole number from 1 to 1000000000 (" r2_perf all_reduce -n 0
refuses 6 "option --buffsize: '3' is not a size from 8192 to 1073741824 bytes, such as" r2_perf all_reduce --buffsize 3
refuses 6 "option --stepbytes: '0' is not a size of at least 1 bytes, such as" r2_perf all_reduce -i 0
refuses 6 "option --timeout: '0' is not a time, such as" r2_perf all_reduce -T 0
refuses 2 "up: --hosts '33' is not a number from 1 to 32" softfab up --hosts 33
refuses 2 "up: --nics '0' is not a number from 1 to 16" softfab up --nics 0
refuses 2 "fault: 'loss': needs a value: a share such as 1%" softfab fault 'h0:n1 loss'
refuses 2 "fault: 'x': not a value for 'delay', which takes a time such as 5ms" softfab fault 'h0:n1 delay x'
refuses 2 "fault: 'mlx9': not a value for 'provider', which takes plain, send-refused, bnxt, ionic, mana or mlx4" softfab fault 'h0:n1 provider mlx9'
for n in a/b mlx5_0:0 mlx5_0:256 mlx5_0:x ''; do refuses 1 "'$n' cannot be the name of a NIC, as mlx5_3 and mlx5_3:2 are, with a port from 1 to 255" r2_ctl --run-dir "$tmp" drain "$n"; done
refuses 1 "--run-dir $tmp/none is no directory" r2_ctl --run-dir "$tmp/none" status
for tool in r2_stat r2_ctl; do refuses 2 "--run-dir needs a directory" $tool --run-dir= status; done
refuses 2 "--prom needs a file, or - for the output" r2_stat --prom=
mkdir "$tmp/folder"
for n in "$tmp/folder" "$tmp/folder/"; do refuses 1 "--prom: $n: Is a directory" r2_stat --run-dir "$tmp" --prom "$n"; done
if [ -z "$(find "$tmp" -name "*.counters")" ]; then ok; else bad "r2_stat --prom FOLDER leaves counters:" "$(find "$tmp" -name "*.counters")"; fi
for o in svg xml root; do refuses 2 "--$o needs a " r2_topo --$o=; done

# options that would change nothing are refused, not passed over
refuses 2 "--follow and --check exclude each other" r2_stat --check --follow
refuses 2 "--json goes alone, with --follow or --nic-history, not with --npd" r2_stat --json --npd
refuses 2 "-c, -H and -l are of the tables, not of --check" r2_stat -H --check
refuses 2 "--wait goes with drain, not with status" r2_ctl status --wait
refuses 2 "--json goes with status, not with drain" r2_ctl drain n --json
refuses 2 "--why goes with drain and failback, not with undrain" r2_ctl undrain n --why x
refuses 2 "--limit goes with --wait" r2_ctl drain n --limit 3
refuses 2 "--limit goes with --doctor" r2_config --limit 3
refuses 2 "--xml stands alone: no --root, no --source" r2_topo --xml x --source sysfs
refuses 6 "--rate and --latency need --nics" r2_perf all_reduce --rate 1MB/s
refuses 6 "--after needs --duration" r2_perf all_reduce --after 1s

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
refuses 6 "--trace $tmp/none/x.json: No such file or directory" r2_perf all_reduce --trace "$tmp/none/x.json"
refuses 6 "--trace $tmp: Is a directory" r2_perf all_reduce --trace "$tmp"

refuses 6 "option --root: there is no rank 9: 2 hosts with 1 each have 0 to 1" r2_perf broadcast --nics 2 -r 9
refuses 6 "option --late: there is no rank 2: 2 hosts with 1 each have 0 to 1" r2_perf all_reduce --nics 2 --late 2:1s
# perf_fault TEXT ARGUMENTS...: the fabric's command says it in one line, and no fabric was made for it
perf_fault() {
    text=$1
    shift
    "$B/r2_perf" all_reduce --nics 2 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    if [ $rc = 6 ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" = 1 ] && grep -qF "softfab: $text" "$tmp/err"; then ok; else bad "r2_perf $*: exit $rc:" "$(head -c 600 "$tmp/err" "$tmp/out")"; fi
}
perf_fault "fault: no NIC h9:n1: the fabric has 2 hosts with 2 NICs" --fault '1s:h9:n1 down'
perf_fault "fault: no NIC h0:n2: the fabric has 2 hosts with 2 NICs" --fault '1s:h0:n1 down' --fault '2s:h0:n2 down'
perf_fault "fault: 'donw': unknown fault: did you mean down?" --fault '1s:h0:n1 donw'
perf_fault "fault: no spine 7: each rail has spines 0 to 2" --spines 3 --fault '1s:spine 7 down'
perf_fault "up: --latency 'soon' is not a time such as 10us" --latency soon
refuses 1 "$tmp/none cannot be run: No such file or directory" r2_perf all_reduce --nics 2 --softfab "$tmp/none"
refuses 2 "fault: --hosts and --nics go with --check, without --name" softfab fault --hosts 2 --nics 2 'h0:n1 down'
"$B/softfab" fault --check --hosts 2 --nics 2 'h1:n1 down' >"$tmp/out" 2>&1 || bad "--check of a fault that would fit: $(cat "$tmp/out")"

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
