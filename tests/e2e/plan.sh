#!/bin/sh
# r2_plan: what it prints, its JSON, and command lines that make no sense; what it makes of the statistics of hosts, made up and of a job on the software fabric that loses
# a NIC; what the figures of make bench-paper show.
#   plan.sh BUILD            closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/../.." || exit 2
B=$1
case $B in /*) ;; *) B=$PWD/$B ;; esac
tmp=$(mktemp -d) || exit 2
fab=plan$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$tmp"' EXIT
unset NCCL_NET_PLUGIN NCCL_NET NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE SLURM_JOB_ID SLURM_STEP_ID
trap 'exit 130' INT TERM
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAIL $*"
}
plan() {
    timeout -k 5 60 "$B/r2_plan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}
# says TEXT ARGUMENTS...: exit 0, and a line of the output has TEXT in it
says() {
    text=$1
    shift
    plan "$@"
    if [ $rc = 0 ] && [ ! -s "$tmp/err" ] && grep -qF -e "$text" "$tmp/out"; then ok; else bad "$*: no '$text', exit $rc:" "$(cat "$tmp/out" "$tmp/err")"; fi
}
# holds FILTER ARGUMENTS...: one JSON value, for which jq's FILTER is true
holds() {
    filter=$1
    shift
    plan "$@" --json
    if [ $rc = 0 ] && jq -es "length == 1 and (.[0] | $filter)" "$tmp/out" >/dev/null; then ok; else bad "$*: not $filter"; fi
}
# refuses TEXT ARGUMENTS...: exit 2, nothing on the output, TEXT on the other
refuses() {
    text=$1
    shift
    plan "$@"
    if [ $rc = 2 ] && [ ! -s "$tmp/out" ] && grep -qF -e "$text" "$tmp/err"; then ok; else bad "$* should say '$text', exit $rc:" "$(cat "$tmp/err")"; fi
}

says '  17 0-2 4-16 18-63 3' --nodes 64 --nics 8 --lost 3:1,17:2
says 'lost: node 3: 1, node 17: 2' --nodes 64 --nics 8 --lost 3:1,17:n2+n5
says 'nothing lost' --nodes 4
says 'ranks as they are' --nodes 2 --lost 1:4
says 'of a node each' --nodes 8 --what-if 2
says "by R2CCL's Algorithm 1" --nodes 8 --rail-only --lost 1:n0
says 'NCCL_ALGO=Ring' --nodes 16 --lost 1:1,2:1,3:1,4:1 --size 16G
holds '.schema == 1 and .use == "tree, light seats" and .nccl_algo == "Tree"' --nodes 64 --lost 3:1,17:2
holds '.order[0] == 17 and .order[63] == 3 and (.order | sort) == [range(64)]' --nodes 64 --lost 3:1,17:2
holds '. as $d | (.strategies | length) == 8 and all(.strategies[]; .load >= $d.bound - 1e-6)' --nodes 16 --lost 2:7,5:3
holds '.degraded == [{"node": 3, "lost": 1, "share": 0.875}]' --nodes 5 --lost 3:1
holds '.rail_ring | .present == 0 and .best == 2 and .proved' --nodes 4 --nics 4 --rail-only --lost 1:n0+n1,2:n2+n3
holds '[.what_if[] | select(.where == "one")] | length == 3 and .[0].ring > 0.1 and .[2].ring > .[1].ring' --nodes 8 --nics 4 --what-if 5
holds '.nodes == 4096' --nodes 4096 --lost 0:1,4095:7
says 'no schedule below' simulate --nodes 8 --lost 3:4
plan simulate --nodes 8 --lost 0:1,3:2
if [ $rc = 0 ] && [ "$(grep -c '  right$' "$tmp/out")" = 9 ]; then ok; else bad "simulate: not all data is right:" "$(cat "$tmp/out")"; fi
holds 'all(.strategies[]; .wrong == null and .simulated >= .busy - 1e-6)' simulate --nodes 9 --lost 0:1,3:6,4:7
says 'at a receiver by senders first' simulate --nodes 8 --lost 3:4 --share senders
holds '.share == "connections"' simulate --nodes 8 --lost 3:4 --share connections
holds '.share == "bytes"' simulate --nodes 8 --lost 3:4
refuses '--share is bytes, connections or senders, not ports' simulate --nodes 8 --share ports
refuses '--share has no meaning without simulate' --nodes 8 --share bytes
holds '.strategies[] | select(.name == "tree, light seats") | .simulated < 2.1' simulate --nodes 8 --lost 3:4

refuses '--nodes is needed'
refuses '--nodes is a whole number from 2 to 4096, not 1' --nodes 1
refuses '--nodes is a whole number from 2 to 4096, not 4097' --nodes 4097
refuses '--nodes is a whole number from 2 to 4096, not 8x' --nodes 8x
refuses '--nics is a whole number from 1 to 32, not 33' --nodes 8 --nics 33
refuses '--gpus is a whole number from 1 to 64, not 0' --nodes 8 --gpus 0
refuses '--what-if is a whole number from 1 to 64, not -1' --nodes 8 --what-if -1
refuses '--size is a number of bytes as in 64M or 1.5G, 1 to 1024T, not 0' --nodes 8 --size 0
refuses 'not big' --nodes 8 --size big
refuses '--rate is that of a NIC in Gb/s, 0.001 to 100000, not nan' --nodes 8 --rate nan
refuses 'not 400Gb' --nodes 8 --rate 400Gb
refuses 'there is nothing to name beside options, not node' --nodes 8 node
refuses '--lost is given once' --nodes 8 --lost 1:1 --lost 2:1
refuses "--rail-only needs the names of lost NICs, as in --lost 3:n1+n4, not 1:1" --nodes 8 --rail-only --lost 1:1
refuses 'there is no node 8: the 8 nodes are 0 to 7' --nodes 8 --lost 8:1
refuses 'node 1 is named twice' --nodes 8 --lost 1:1,1:2
refuses 'node 1 has 8 NICs and cannot lose 9' --nodes 8 --lost 1:9
refuses 'node 1 would have no NIC left' --nodes 8 --lost 1:8
refuses 'node 1 would have no NIC left' --nodes 8 --nics 2 --lost 1:n0+n1
refuses 'node 1 has no n8: its 8 NICs are n0 to n7' --nodes 8 --lost 1:n8
refuses 'n3 of node 1 is named twice' --nodes 8 --lost 1:n3+n3
refuses "as in n0+n3, not '2'" --nodes 8 --lost 1:n0+2
refuses 'node 1 lacks what it lost' --nodes 8 --lost 1
refuses "not ''" --nodes 8 --lost 1:
refuses "not 'x:1'" --nodes 8 --lost x:1
refuses "not ''" --nodes 8 --lost ''
refuses "';2:1' is not understood" --nodes 8 --lost '1:1;2:1'
refuses "unknown option '--nonsense'" --nodes 8 --nonsense
refuses "option --nodes needs a value" --nodes
refuses 'simulate takes up to 128 nodes' simulate --nodes 129
refuses '--size has no meaning with simulate' simulate --nodes 8 --size 1M
refuses '--pieces has no meaning without simulate' --nodes 8 --pieces 4
refuses '--pieces is a whole number from 1 to 64, not 65' simulate --nodes 8 --pieces 65
refuses 'simulate comes before the options' --nodes 8 simulate
# --- hosts, from their statistics ---

# made NAME LOST [KEY=VALUE...]: what r2_stat --json would print on that host, with NICs of these numbers down, into $tmp/NAME.json
made() {
    name=$1 lost=$2 nics=4 job='"81233"' mbps=400000 peers='[]' file=$1
    shift 2
    [ $# = 0 ] || eval "$@"
    jq -nc --arg host "$name" --argjson lost "$lost" --argjson nics "$nics" --argjson job "$job" --argjson mbps "$mbps" --argjson peers "$peers" '
        {schema: "r2.stat/1", host: $host, jobs: [{user: "u", uid: 7, scheduler: "slurm", id: $job, step: "0", processes: [range(2) as $p | {host: $host, pid: (100 + $p), command: "train",
        peers: [$peers[] | {host: .}], peers_not_listed: 0, nics: [range($nics) as $n | ($lost | index($n) != null) as $is_lost | {device: "mlx5_\($n)", port: 1, rail: $n, speed_mbps: $mbps,
        state: (if $is_lost then "down" else "up" end), port_state: (if $is_lost then "down" else "up" end), why: (if $is_lost then "port is down" else null end), drained: 0, connections: 3,
        moved: 0, last_resort: 0, fault_at_peer: 0}], connections: [], history: []}]}]}' >"$tmp/$file.json"
}
# valid: the JSON that was written last is as its schema says
valid() {
    jq -rs --argjson open false --slurpfile schema share/schemas/r2_plan.json -f tests/fleet/schema.jq "$tmp/out" >"$tmp/said" 2>&1
    if [ ! -s "$tmp/said" ]; then ok; else bad "$*: not valid:" "$(head -5 "$tmp/said")"; fi
}
# same LOST HOST...: the plan for these hosts is, but for their names, that of --nodes and --lost, which says what they have lost
same() {
    lost=$1
    shift
    files=
    for name in "$@"; do files="$files $tmp/$name.json"; done
    # shellcheck disable=SC2086
    plan --from $files --rail-only --json
    cp "$tmp/out" "$tmp/named"
    plan --nodes $# --nics 4 ${lost:+--lost "$lost"} --rail-only --json
    if jq -ne --slurpfile a "$tmp/named" --slurpfile b "$tmp/out" '$a[0] as $a | $b[0] as $b | ($a | del(.job, .rate, .hosts, .missing, .order_hosts, .rail_ring.order_hosts)) == $b and
        $a.order_hosts == [$a.hosts[$b.order[]].name] and $a.rail_ring.order_hosts == [$a.hosts[$b.rail_ring.order[]].name]' >/dev/null; then ok; else bad "$* is not --lost $lost:" "$(cat "$tmp/named" "$tmp/out" "$tmp/err")"; fi
}
# fails RC TEXT ARGUMENTS...: that exit status, no plan, one line
fails() {
    want=$1 text=$2
    shift 2
    plan "$@"
    if [ $rc = "$want" ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" = 1 ] && grep -qF -e "r2_plan: $text" "$tmp/err"; then ok; else bad "$* should say '$text', exit $rc:" "$(cat "$tmp/out" "$tmp/err")"; fi
}
for name in n17 n2 n30 n4; do made $name '[]'; done
made n3 '[2]'
made n5 '[0,3]'
same '' n17 n2 n30 n4
same 1:n2 n17 n3 n30 n4
same 1:n2,3:n0+n3 n17 n3 n30 n5
same 0:n0+n3,2:n2 n5 n2 n3 n4
holds '.order_hosts == ["n5", "n17", "n30", "n3"] and .use == "tree, light seats"' --from "$tmp/n17.json" "$tmp/n3.json" "$tmp/n30.json" "$tmp/n5.json"
valid two degraded hosts
holds '.job == "81233" and .rate == "read" and .nic_gbps == 400 and .missing == [] and [.hosts[] | [.name, .processes, .nics, .usable]] == [["n17", 2, 4, 4], ["n3", 2, 4, 3]]' --from "$tmp/n17.json" "$tmp/n3.json"
holds '.hosts[1].degraded_by == [{"nic": "mlx5_2", "port": 1, "state": "down", "why": "port is down"}]' --from "$tmp/n17.json" "$tmp/n3.json"
holds '.rate == "said" and .nic_gbps == 100' --from "$tmp/n17.json" "$tmp/n3.json" --rate 100
says 'n3     3 of  4  mlx5_2 down: port is down' --from "$tmp/n17.json" "$tmp/n3.json" "$tmp/n30.json" "$tmp/n5.json"
says '  n5 n17 n30 n3' --from "$tmp/n17.json" "$tmp/n3.json" "$tmp/n30.json" "$tmp/n5.json"
says 'job 81233: 2 hosts with 4 NICs of 400 Gb/s and 8 GPUs' --from "$tmp/n17.json" "$tmp/n3.json"
says 'of a node each' --from "$tmp/n17.json" "$tmp/n3.json" --what-if 1
# A NIC that is drained, or that all left for a fault of its own; one that they left for the other end's is good.
nic() { jq -c ".jobs[].processes[1].nics[1] |= (. + $1)" "$tmp/n2.json" >"$tmp/nic.json"; }
nic '{drained: 1, state: "drained", why: "new cable"}'
holds '.hosts[1].degraded_by == [{"nic": "mlx5_1", "port": 1, "state": "drained", "why": "new cable"}]' --from "$tmp/n17.json" "$tmp/nic.json"
jq -c '.jobs[].processes[].nics[1] |= (. + {moved: 4, connections: 0, state: "avoided", why: "R2-L02"})' "$tmp/n2.json" >"$tmp/nic.json"
holds '.hosts[1].degraded_by == [{"nic": "mlx5_1", "port": 1, "state": "avoided", "why": "R2-L02"}]' --from "$tmp/n17.json" "$tmp/nic.json"
jq -c '.jobs[].processes[].nics[1] |= (. + {moved: 4, connections: 0, state: "avoided", fault_at_peer: 1})' "$tmp/n2.json" >"$tmp/nic.json"
holds '.hosts[1].degraded_by == [] and .degraded == []' --from "$tmp/n17.json" "$tmp/nic.json"
nic '{last_resort: 1, port_state: "up", device: "tcp0"}'
holds '.hosts[1] | .nics == 4 and .usable == 4' --from "$tmp/n17.json" "$tmp/nic.json"
# A host with fewer NICs has lost the rest; unlike rails are not those of others.
made few '[]' nics=3
holds '.nics == 4 and .degraded == [{"node": 1, "lost": 1, "share": 0.75}] and (.hosts[1] | .nics == 3 and .usable == 3)' --from "$tmp/n17.json" "$tmp/few.json"
says 'few    3 of  4  it has 3, others 4' --from "$tmp/n17.json" "$tmp/few.json"
jq -c '.jobs[].processes[].nics[].rail = -1' "$tmp/n3.json" >"$tmp/norail.json"
holds '.degraded[0].share == 0.75' --from "$tmp/n17.json" "$tmp/norail.json"
fails 1 '--rail-only: NICs have no rails that are known' --from "$tmp/n17.json" "$tmp/norail.json" --rail-only
made slow '[]' mbps=200000
fails 1 'mlx5_0 of host n17 has 400 Gb/s, mlx5_0 of slow 200: the planner takes NICs as alike; --rate GBPS' --from "$tmp/n17.json" "$tmp/slow.json"
holds '.nic_gbps == 200' --from "$tmp/n17.json" "$tmp/slow.json" --rate 200
made a '[]' mbps=0
made b '[]' mbps=0
says 'of 400 Gb/s (assumed)' --from "$tmp/a.json" "$tmp/b.json"
# What is no job's whole.
made a '[]' "peers='[\"b\",\"c\"]'"
plan --from "$tmp/a.json" "$tmp/b.json" --json
if [ $rc = 0 ] && jq -e '.missing == ["c"]' "$tmp/out" >/dev/null && grep -q '^r2_plan: host c: others know it, nothing was read of it' "$tmp/err"; then ok; else bad "a host that is missing:" "$(cat "$tmp/err")"; fi
valid a host that is missing
made other '[]' "job='\"5\"'"
made none '[0,1,2,3]'
echo '{"schema": "r2.stat/1", "host": "x", "jobs": []}' >"$tmp/idle.json"
sed 's,r2.stat/1,r2.stat/2,' "$tmp/n2.json" >"$tmp/schema.json"
head -c 900 "$tmp/n2.json" >"$tmp/cut.json"
jq -c 'del(.jobs[].processes[].nics[].port_state)' "$tmp/n2.json" >"$tmp/nostate.json"
jq -c '.jobs += [.jobs[0] | .id = "6"]' "$tmp/n2.json" >"$tmp/two.json"
mkdir "$tmp/nothing"
nothing='neither statistics of a process nor what r2_stat --json prints'
fails 1 "$tmp/nothing: there are no statistics in it" --from "$tmp/n2.json" "$tmp/nothing"
fails 1 "$tmp/nowhere: No such file or directory" --from "$tmp/n2.json" "$tmp/nowhere"
for file in cut schema nostate; do fails 1 "$tmp/$file.json: $nothing" --from "$tmp/n17.json" "$tmp/$file.json"; done
fails 1 "$tmp/idle.json: there is no process with the plugin" --from "$tmp/n2.json" "$tmp/idle.json"
fails 1 "$tmp/other.json: there is no process of job 81233" --from "$tmp/n2.json" "$tmp/other.json" --job 81233
fails 1 'host none has no usable NIC: no all_reduce can include it' --from "$tmp/n2.json" "$tmp/none.json"
fails 2 "statistics of job '81233' and of '5'; --job ID takes those of one" --from "$tmp/n2.json" "$tmp/other.json"
fails 2 "statistics of job '81233' and of '6'; --job ID takes those of one" --from "$tmp/n17.json" "$tmp/two.json"
holds '.job == "81233" and .hosts[1].processes == 2' --from "$tmp/n17.json" "$tmp/two.json" --job 81233
fails 2 "host n2 is there twice: $tmp/n2.json and $tmp/n2.json" --from "$tmp/n2.json" "$tmp/n2.json"
fails 2 'only host n2 was read: an order wants two at least' --from "$tmp/n2.json"
fails 2 'which run directories, or files of statistics?' --from
fails 2 '--ssh: which hosts?' --ssh
fails 2 "'h0;id' cannot be the name of a host" --ssh 'h0;id'
fails 2 '--from and --ssh: one of them' --from --ssh h0
fails 2 '--run-dir goes with --ssh' --from --run-dir /run "$tmp/n2.json"
fails 2 "--limit: expected 1 to 3600 seconds, not '0'" --ssh --limit 0 h0
fails 2 '--nodes has no meaning with --from or --ssh, which say it' --from --nodes 2 "$tmp/n2.json"
fails 2 '--lost has no meaning with --from or --ssh, which say it' --from --lost 1:1 "$tmp/n2.json"
fails 2 '--job has no meaning without --from or --ssh' --nodes 2 --job 5
fails 2 '--from has no meaning with simulate' simulate --from "$tmp/n2.json"

# A job of three hosts, of which a NIC goes down while it runs: from run directories, from copies, from r2_stat --json and over ssh, of which there is a stand-in.
"$B/softfab" up --name $fab --hosts 3 --nics 4 --rate 20MB/s >/dev/null || exit 1
dirs=
for h in 0 1 2; do dirs="$dirs $("$B/softfab" exec --name $fab --host $h -- sh -c 'echo "$NCCL_R2_RUN_DIR"')"; done
mkdir "$tmp/bin"
cat >"$tmp/bin/ssh" <<END
#!/bin/sh
while [ "\$1" != -- ]; do shift; done
host=\$2
shift 2
case \$host in
h[0-2]) exec env -u NCCL_R2_RUN_DIR PATH="$B:\$PATH" "$B/softfab" exec --name $fab --host \${host#h} -- "\$@" ;;
*) echo "root@\$host: Permission denied (publickey)." >&2; exit 255 ;;
esac
END
chmod +x "$tmp/bin/ssh"
# The fault comes once nothing is lost is known; then what is known of it.
cat >"$tmp/live" <<END
wait_for() {
    n=0
    until "$B/r2_plan" --from $dirs --json 2>/dev/null | jq -e "\$1" >/dev/null 2>&1; do
        n=\$((n + 1))
        [ \$n -lt 600 ] || return 1
        sleep 0.1
    done
}
wait_for '.degraded == [] and .missing == [] and (.hosts | length) == 3' || exit 1
"$B/r2_plan" --from $dirs --json >"$tmp/before.json" 2>"$tmp/before.said"
"$B/softfab" fault --name $fab 'h1:n2 down' || exit 1
"$B/softfab" status --name $fab >"$tmp/fault.said"
wait_for '.degraded != []' || exit 1
"$B/r2_plan" --from $dirs --json --rail-only >"$tmp/dirs.json" 2>"$tmp/dirs.said"
PATH="$tmp/bin:\$PATH" "$B/r2_plan" --ssh h2 h1 h0 --json >"$tmp/ssh.json" 2>"$tmp/ssh.said"
PATH="$tmp/bin:\$PATH" "$B/r2_plan" --ssh h2 refuses h0 >"$tmp/refuses.out" 2>"$tmp/refuses.said"
echo \$? >"$tmp/refuses.rc"
n=0
for dir in $dirs; do
    mkdir "$tmp/h\$n"
    cp "\$dir"/*.stat "$tmp/h\$n"
    env -u NCCL_R2_RUN_DIR "$B/softfab" exec --name $fab --host \$n -- "$B/r2_stat" --json >"$tmp/h\$n.json"
    n=\$((n + 1))
done
END
SLURM_JOB_ID=81233 NCCL_SOCKET_IFNAME=lo timeout -k 5 200 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 3 --placement out -w 1 -T 60s --duration 2s \
    --fault-cmd "300ms:sh $tmp/live" --fault-optional --after 100ms >"$tmp/job" 2>&1
rc=$?
if [ $rc = 0 ] && grep -q '# r2 checked [1-9][0-9]* operations, 0 elements wrong' "$tmp/job"; then ok; else bad "the job: exit $rc" "$(tail -20 "$tmp/job")"; fi
# shows NAME FILE FILTER
shows() {
    if jq -e "$3" "$2" >/dev/null 2>&1; then ok; else bad "$1: not $3:" "$(head -c 3000 "$2")"; fi
}
if [ "$(grep -cE '^h[0-2]:n[0-3] .* DOWN ' "$tmp/fault.said")" = 1 ] && grep -qE '^h1:n2 .* DOWN ' "$tmp/fault.said"; then ok; else bad "no fault:" "$(cat "$tmp/fault.said")"; fi
shows "before the fault" "$tmp/before.json" '[.hosts[] | [.name, .usable]] == [["h0", 4], ["h1", 4], ["h2", 4]] and .job == "81233" and .rate == "read"'
lost='(.hosts | map({(.name): [.usable, .degraded_by[] | .nic? // .]}) | add) == {h0: [4], h1: [3, "fab2"], h2: [4]}'
shows "run directories" "$tmp/dirs.json" "$lost and .degraded == [{\"node\": 1, \"lost\": 1, \"share\": 0.75}] and (.hosts[1].degraded_by[0] | .state == \"down\")"
shows "over ssh" "$tmp/ssh.json" "$lost and [.hosts[].name] == [\"h2\", \"h1\", \"h0\"]"
plan --from "$tmp"/h?.json --json
shows "r2_stat --json" "$tmp/out" "$lost"
valid r2_stat --json
plan --from "$tmp/h0" "$tmp/h1" "$tmp/h2" --json --rail-only
shows "copies" "$tmp/out" "$lost"
cp "$tmp/out" "$tmp/named"
plan --nodes 3 --nics 4 --lost 1:n2 --rail-only --json --rate "$(jq .nic_gbps "$tmp/named")"
if jq -ne --slurpfile a "$tmp/named" --slurpfile b "$tmp/out" '$a[0].order == $b[0].order and $a[0].strategies == $b[0].strategies and $a[0].order_hosts == ["h\($b[0].order[])"]' >/dev/null; then ok; else bad "copies are not --lost 1:n2"; fi
if [ "$(cat "$tmp/refuses.rc")" = 1 ] && [ ! -s "$tmp/refuses.out" ] && grep -q '^r2_plan: refuses: root@refuses: Permission denied' "$tmp/refuses.said"; then ok; else bad "a host that does not answer:" "$(cat "$tmp/refuses.said")"; fi
cat "$tmp/before.said" "$tmp/dirs.said" "$tmp/ssh.said" >"$tmp/said"
if [ ! -s "$tmp/said" ]; then ok; else bad "nothing to complain of:" "$(cat "$tmp/said")"; fi
fails 2 "host h1 is there twice: $tmp/h1 and $tmp/h1.json" --from "$tmp/h0" "$tmp/h1" "$tmp/h1.json"
fails 2 "host h1 is there twice: $tmp/h1 and $tmp/h1" --from "$tmp/h0" "$tmp/h1" "$tmp/h1"

# Figures of the paper: what they are known to show, and that pictures are whole.
mkdir "$tmp/paper"
if timeout -k 5 120 "$B/bench/bench_paper" "$tmp/paper" >"$tmp/out" 2>"$tmp/err"; then ok; else bad "bench_paper:" "$(cat "$tmp/err")"; fi
for line in '| 8 | 1.7500 | 1.5625 | 1.5625 | 1.75 |' '| 128 | 1.9844 | 1.7383 | 1.7383 | 1.75 |' 'Crossover at 82 MiB' '114 MiB with the factor' \
    'costs 2.34 %' '0.9333 = 2 / ' '| 10 | 4.41 +- 0.17 | 3.97 +- 0.15 | 0.45 '; do
    if grep -qF -e "$line" "$tmp/out"; then ok; else bad "bench_paper does not print: $line"; fi
done
for fig in 5 10 15; do
    if [ "$(tail -1 "$tmp/paper/fig$fig.svg")" = '</svg>' ] && ! grep -q 'nan\|inf' "$tmp/paper/fig$fig.svg"; then ok; else bad "fig$fig.svg is not whole"; fi
done
# An output that takes nothing.
if "$B/r2_plan" --nodes 8 >/dev/full 2>"$tmp/err"; then bad "a full disk is not noticed"; elif grep -q 'r2_plan: output: ' "$tmp/err"; then ok; else bad "a full disk:" "$(cat "$tmp/err")"; fi
plan --version
if [ $rc = 0 ] && grep -q "^r2_plan $(cat VERSION) " "$tmp/out"; then ok; else bad "--version"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
