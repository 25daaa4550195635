#!/bin/sh
# r2_stat and events, under collectives on the software fabric: a NIC that goes and returns, two processes per host, other users, what is said when there is
# nothing. Each case asserts that its fault fired and that every element of every timed operation is right.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=stat$$
skipped=0
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
export NCCL_R2_T_RETURN=100
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE SLURM_JOB_ID SLURM_STEP_ID FLUX_JOB_ID PBS_JOBID LSB_JOBID TORCHELASTIC_RUN_ID

if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi
skip() {
    skipped=$((skipped + 1))
    echo "SKIP $1"
}
hosts=2
fabric() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts $hosts --nics "$1" --rate 20MB/s >/dev/null || exit 1
}
# on HOST COMMAND...: on that host of the fabric
on() {
    host=$1
    shift
    "$B/softfab" exec --name $fab --host "$host" -- "$@"
}
# What r2_stat ARGUMENT... says once jq's FILTER is true of what r2_stat --json says, goes to FILE, its exit status to FILE.rc. A bound against hangs: 30 s.
cat >"$log/when" <<'END'
filter=$1 file=$2 end=$(($(date +%s) + 30))
shift 2
until "$R2_STAT" --json | jq -e "$filter" >/dev/null 2>&1 || [ "$(date +%s)" -ge $end ]; do
    sleep 0.1
done
"$R2_STAT" "$@" >>"$file" 2>&1
echo $? >>"$file.rc"
END
export R2_STAT="$B/r2_stat"
# at TIME HOST FILE FILTER ARGUMENT...: that, as a command for r2_perf --fault-cmd, which a rank on host 0 runs
at() {
    when=$1 host=$2 file=$3 filter=$4
    shift 4
    echo "$when:env -u NCCL_R2_RUN_DIR $B/softfab exec --name $fab --host $host -- sh $log/when '$filter' $log/$file $*"
}
switched='[.jobs[].processes[] | .switches >= 1] | any and all'
heard='[.jobs[].processes[] | .switches >= 1 and any(.history[]; .kind == "news") and any(.nics[]; .fault_at_peer == 1)] | any and all'
returned='[.jobs[].processes[] | .failbacks >= 1] | any and all'
good='[.jobs[].processes[] | any(.history[]; .kind == "news" and (.text | test("good again")))] | any and all'
runs='.jobs != []'
run() {
    timeout -k 5 120 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts $hosts --placement out -w 1 -T 30s --stats "$@" >"$log/out" 2>&1
    rc=$?
}
# is NAME FILE FILTER: jq's filter is true of the file
is() {
    if jq -e "$3" "$log/$2" >"$log/jq" 2>&1; then
        ok "$1"
    else
        bad "$1" "not so: $3: $(head -c 300 "$log/jq"); it is $(head -c 3000 "$log/$2")"
    fi
}
# says NAME FILE PATTERN
says() {
    if grep -qE "$3" "$log/$2"; then ok "$1"; else bad "$1" "nothing like '$3' in: $(cat "$log/$2")"; fi
}
lost() { # at host @1, over NIC @2
    grep -cE "^h$1:.* UP -> DOWN: (port down|peer's NIC|the peer), .*local NIC $2," "$log/out"
}

# --- a NIC goes and returns: tables, JSON, history, check, events ---
events_file() {
    on "$1" sh -c 'cat "$NCCL_R2_RUN_DIR"/nccl-net-r2.*.events.ndjson' >"$log/events$1"
}
# Every line of the file is by the schema. What a kind must have it has; numbers are numbers; nothing that no reader knows.
schema='
def known: ["schema","ts","mono_ns","boot_id","seq","host","job","pid","cuda_dev","kind","severity","code","blame","since","revises","nic","peer","cause","detected_us","stall_us",
  "replayed_bytes","connections","capacity","counters_delta","confidence","evidence","action","recommend","command","version","digest","summary","text","transfer"];
def figure: type == "number" and . >= 0 and . == floor;
all(.[]; .schema == "r2.event/1" and ((keys - known) == [])
  and (.ts | test("^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}[.][0-9]{9}Z$")) and (.mono_ns | figure) and (.boot_id | test("^[0-9a-f-]{36}$"))
  and (.seq | figure) and (.host | type == "string") and (.pid | figure) and (.job == null or (.job.id | type == "string")) and .cuda_dev == null
  and (.severity | IN("info", "warning", "critical"))
  and (.kind | IN("fault", "switch", "verdict", "failback", "drain", "giveup", "start", "stop", "news", "transfer"))
  and (if .kind == "fault" or .kind == "switch" then (.nic.device | type == "string") and (.nic.port | figure) and (.cause.how | type == "string")
         and (.connections | figure) and (.capacity | length == 2) else true end)
  and (if .kind == "switch" then (.stall_us | figure) and (.replayed_bytes | figure) else true end)
  and (if .kind == "verdict" then (.since | test("^20[0-9]{2}-.*Z$")) and .since <= .ts else true end)
  and (if .kind == "stop" then (.summary | map_values(figure) | all) else true end))
and ([.[] | select(.kind == "start")] | length) == ([.[] | select(.kind == "stop")] | length)
and (group_by(.pid) | all(.[]; (map(.seq) == [range(1; length + 1)])))'

case_nic() {
    fabric 3
    export SLURM_JOB_ID=81233
    rm -f "$log"/down* "$log"/back*
    run --duration 2s --fault "500ms:h0:n1 down" --fault-cmd "$(at 600ms 0 down0 "$switched")" --fault-cmd "$(at 600ms 0 down0.json "$switched" --json)" \
        --fault-cmd "$(at 600ms 1 down1.json "$heard" --json)" --fault-cmd "$(at 600ms 1 down1.check "$heard" --check)" --fault-cmd "$(at 600ms 1 down1.H "$heard" -H)" --fault-cmd "$(at 600ms 0 down.check "$switched" --check)" --fault-cmd "$(at 600ms 0 down.H "$switched" -c -H)" \
        --fault-cmd "$(at 600ms 0 down.loaded "$switched" --assert-loaded)" --fault "2s:h0:n1 up" --fault-cmd "$(at 2100ms 0 back0.json "$returned" --json)" \
        --fault-cmd "$(at 2100ms 0 back.check "$returned" --check)" --fault-cmd "$(at 2200ms 1 good.json "$good" --json)" --fault-optional --after 100ms
    unset SLURM_JOB_ID
    was_right "a NIC goes and returns" || return
    n=$(lost 0 fab1)
    if [ "$n" = 0 ] || ! grep -qE "^h0:.* life 2 is up" "$log/out"; then
        bad "a NIC goes and returns" "the fault did not fire, or it did not come back"
        return
    fi
    says "table: the job" down0 '^job slurm 81233, user .*, 1 process since '
    says "table: the NIC is down, with since and why" down0 '^fab1 +down +[0-9:]{8} .* 0 +[1-9][0-9]* +[1-9][0-9]*  R2-L01 port down$'
    says "table: another is up" down0 '^fab0 +up +[0-9:]{8} .* 0 +0  as found'
    if awk 'length > 100 { exit 1 }' "$log/down0" "$log/down.H"; then ok "table: 100 columns"; else bad "table: 100 columns" "$(cat "$log/down0")"; fi
    says "table: connections" down.H 'fab1 down, .*100%|100%, fab1 down|50%'
    says "table: what carries is seen at the receiver, too" down.H '^ +(fab1 down, )?fab[02] [0-9.]+ [kM]B'
    is "json: the NIC, its connections have moved" down0.json '.schema == "r2.stat/1" and (.jobs | length == 1) and (.jobs[0].processes[0] |
        .host == "h0" and (.pid > 0) and .cuda_dev == null and .of_one_moment == 1 and .capacity == [3, 2] and
        (.nics[] | select(.device == "fab1") | .state == "down" and (.why | test("^R2-L01 fab1 port down")) and .since != null and .connections == 0 and .moved > 0 and .lives_lost == .moved) and
        (.nics[] | select(.device == "fab0") | .state == "up" and .connections > 0 and .sent_bytes > 0 and .received_bytes > 0) and
        (.connections | length > 0 and all(.[]; .messages > 0 and .bytes > 0 and .peer.host != "" and (.paths | length == 3) and
            any(.paths[]; .nic == "fab1" and .state == "fenced") and any(.paths[]; .state == "up") and
            all(.paths[]; if .state == "up" then .way >= 1 and .way <= 8 and .udp_port > 49152 else .way == 0 end))))'
    is "json: history has the fault and the switch, with a stall" down0.json '.jobs[0].processes[0] | .faults == 1 and .switches == 1 and
        (.history | any(.[]; .kind == "verdict" and .code == "R2-L01")) and ([.history[] | select(.kind != "verdict")] | map(.kind) == ["fault", "switch"] and (.[0].cause | startswith("port_event")) and (.[1] | .stall_us >= 0 and .replayed_bytes >= 0 and .connections > 0))'
    is "json: the other end says that it is the peer's" down1.json '.jobs[0].processes[0] | (.nics[] | select(.device == "fab1") |
        .state == "avoided" and .port_state == "up" and .moved > 0 and .why == "h0:fab1 port or cable" and .fault_at_peer == 1) and
        (.history[] | select(.kind == "news") | .text == "h0:fab1 port or cable, says h0" and .code == null)'
    says "history: the other end has heard it" down1.H '^[0-9:.]{12} [0-9]+ news       h0:fab1 port or cable, says h0$'
    says "check: the other end's NICs are well" down1.check '^1 process, NICs here are well; fab1 avoided for h0:fab1 port or cable$'
    says "check: the other end's exit status is 0" down1.check.rc '^0$'
    says "check: a problem, one short line" down.check '^R2-L01 fab1 port down; .*check link'
    says "check: exit status 1" down.check.rc '^1$'
    if awk 'length > 80 { exit 1 }' "$log/down.check"; then ok "check: 80 columns"; else bad "check: 80 columns" "$(cat "$log/down.check")"; fi
    says "assert-loaded" down.loaded '^loaded: r2_perf, pid [0-9]+, nccl-net-r2 '
    is "json: the other end has heard that it is good again" good.json "$good"
    is "json: after its return it is up" back0.json '.jobs[0].processes[0] | .capacity == [3, 3] and .failbacks == 1 and (.nics[] | select(.device == "fab1") |
        .state == "up" and .moved == 0 and .connections > 0) and (.history | map(.kind) | index("failback") != null)'
    says "check: healthy again" back.check.rc '^0$'
    for h in 0 1; do
        events_file $h
        jq -s . "$log/events$h" >"$log/list$h" 2>"$log/jq" || bad "events of host $h" "no JSON"
        is "events of host $h: by the schema" list$h "$schema"
        is "events of host $h: what happened, in order" list$h 'map(select(.kind != "verdict" and .kind != "news")) | map(.kind) == ["start", "fault", "switch", "failback", "stop"] and (.[0].job.id == "81233") and .[4].summary.faults == 1'
        [ "$h" = 0 ] || is "events of host $h: what was heard, and that it is good again" list$h '[.[] | select(.kind == "news")] | length >= 2 and all(.[]; .severity == "info" and .cause.how == "news" and .nic.device == "fab1" and .peer == {host: "h0", device: "fab1"}) and (.[-1].text | test("good again"))'
        [ "$h" = 1 ] || is "events of host $h: who is blamed" list$h '[.[] | select(.kind == "verdict")] | length == 1 and (.[0] | .code == "R2-L01" and .blame == "port-or-cable" and .severity == "critical" and .nic.device == "fab1" and .nic.netdev == "softfab1" and .nic.fw == "1.0.0" and (.evidence | length >= 1) and .action == "check-link" and .recommend == "CONTACT_SUPPORT" and .confidence > 0)'
    done
    if grep -q 'NET/R2 : summary: faults 1, switches 1, failbacks 1,' "$log/out"; then ok "a summary in the log"; else bad "a summary in the log" "none"; fi
    if [ -z "$(on 0 sh -c 'ls "$NCCL_R2_RUN_DIR" | grep stat$')" ]; then ok "the files are gone with their processes"; else bad "the files are gone" "not so"; fi
}
wanted "nic" && case_nic

# --- no fault: no fault is said ---
case_healthy() {
    fabric 2
    rm -f "$log"/well*
    run --duration 1s --fault-cmd "$(at 600ms 0 well.check "$runs" --check)" --fault-cmd "$(at 600ms 0 well.H "$runs" -H)" --fault-optional --after 300ms
    was_right "healthy" || return
    says "healthy: check" well.check '^1 process, all NICs carry what they should$'
    says "healthy: exit status 0" well.check.rc '^0$'
    says "healthy: history" well.H 'nothing has happened'
    events_file 0
    jq -s . "$log/events0" >"$log/list0"
    is "healthy: events" list0 'map(.kind) == ["start", "stop"] and (.[1].summary | .faults == 0 and .giveups == 0)'
}
wanted "healthy" && case_healthy

# --- how long sends take: what the fabric is made to take longer is in it ---
timed='[.jobs[].processes[].send_times.small | . != null and .samples >= 4] | any and all'
# send_times NAME: the same with or without a delay, FILEs NAME.json and NAME
send_times() {
    run -b 64K -e 64K --buffsize 64K --duration 1s --fault-cmd "$(at 300ms 0 "$1.json" "$timed" --json)" --fault-cmd "$(at 300ms 0 "$1" "$timed" -l -c)" --fault-cmd "$(at 300ms 0 "$1.prom" "$timed" --prom)" --fault-optional --after 100ms
    was_right "times of sends, $1"
}
case_latency() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts 2 --nics 1 >/dev/null || exit 1 # as fast as the machine
    rm -f "$log"/plain* "$log"/late*
    send_times plain || return
    "$B/softfab" fault --name $fab 'h0:n0 delay 20ms' >/dev/null || exit 1
    send_times late || return
    says "times of sends: the NIC" plain '^fab0 +to 16 KiB +[1-9][0-9]* +[0-9.]+ [um]s '
    says "times of sends: the connection" plain '^ +to 16 KiB: mean [0-9.]+ [um]s, p50 [0-9.]+ [um]s, p99 [0-9.]+ [um]?s, p99[.]9 [0-9.]+ [um]?s, [1-9][0-9]* timed$'
    says "times of sends: Prometheus" plain.prom '^r2_nic_send_seconds_count[{]device="fab0",port="1",size="small"[}] [1-9]'
    is "times of sends: process, NIC and connection have the same" plain.json '.jobs[0].processes[0] | .send_times.small.samples as $n | .nics[0].send_times.small.samples == $n and
        ([.connections[].send_times.small.samples // 0] | add | . > 0 and . <= $n) and .send_times.large == null and (.send_times.small | .p50_ns > 0 and .p50_ns <= .p99_ns and .p99_ns <= .p999_ns)'
    jq -s 'map(.jobs[0].processes[0].send_times.small)' "$log/plain.json" "$log/late.json" >"$log/both"
    # A bucket is a quarter wide; a busy machine tests late, here and there.
    is "times of sends: without the delay some are quicker" both '.[0].buckets | map(.[0]) | min < 14e6'
    is "times of sends: a delay of 20 ms is in each of them" both '.[1] | .p50_ns < 1e9 and (.buckets | length > 0 and all(.[]; .[0] >= 14e6))'
}
wanted "latency" && case_latency

# --- transfers to a peer: the delay is in the row, in both formats ---
case_transfer() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts 2 --nics 1 >/dev/null || exit 1
    "$B/softfab" fault --name $fab 'h0:n0 delay 20ms' >/dev/null || exit 1
    rm -f "$log"/move*
    known='[.jobs[].processes[].peers[].transfer."16K"] | any(. != null)'
    run -b 64K -e 64K --buffsize 64K --duration 1s --fault-cmd "$(at 300ms 0 move.json "$known" --json)" --fault-cmd "$(at 300ms 0 move "$known" -l)" --fault-cmd "$(at 300ms 0 move.prom "$known" --prom)" --fault-optional --after 100ms
    was_right "transfers to a peer" || return
    # a busy machine tests late: the bound below is exact
    is "transfers to a peer: the delay" move.json '.jobs[0].processes[0].peers | length == 1 and (.[0] | .host == "h1" and .transfer."1M" == null and
        (.transfer."16K" | .samples >= 4 and .p50_ns >= 20e6 and .p50_ns <= 60e6 and .p50_ns <= .p99_ns and .state == "learning" and .band_ns == null))'
    says "transfers to a peer: the table" move '^ *[0-9]+ h1 +16K +[1-9][0-9]* +[2-5][0-9][.][0-9] ms +[0-9.]+ m?s  - +learning$'
    says "transfers to a peer: Prometheus" move.prom '^r2_peer_transfer_seconds[{]peer="h1",size="16K",level="0.5"[}] 0[.]0[2-5]'
}
wanted "transfer" && case_transfer

# --- a NIC that fails in one job after the other: the history of the host, and who is advised for drain ---
# lemon JOB: fab1 of host 0 goes down in it
lemon() {
    export SLURM_JOB_ID="$1"
    run --duration 1s --fault "300ms:h0:n1 down" --fault-cmd "$(at 400ms 0 lemon.json "$switched" --json)" --fault-optional --after 100ms
    unset SLURM_JOB_ID
    "$B/softfab" fault --name $fab 'h0:n1 up' >/dev/null || exit 1
    was_right "history: job $1"
}
# history HOST FILE STATUS: goes to FILE and FILE.json
history() {
    on "$1" "$B/r2_stat" --nic-history --json >"$log/$2.json" 2>&1
    on "$1" "$B/r2_stat" --nic-history >"$log/$2" 2>&1
    rc=$?
    if [ $rc = "$3" ]; then ok "history: exit status $3"; else bad "history: exit status" "$rc, expected $3: $(cat "$log/$2")"; fi
}
case_history() {
    fabric 2
    on 0 sh -c 'rm -f "$NCCL_R2_RUN_DIR"/*.nics*'
    rm -f "$log"/past* "$log"/lemon*
    history 0 past0 0
    says "history: none" past0 '^no NIC of this host has failed'
    lemon 1 || return
    lemon 2 || return
    history 0 past2 0
    is "history: two jobs" past2.json '.schema == "r2.nic-history/1" and .files_not_read == 0 and (.nics | length == 1) and (.nics[0] | .device == "fab1" and .port == 1 and
        .verdict == "watch" and .jobs_failed == 2 and (.failures + .flaps | . == 1 or . == 2) and .hours_slow == 0 and .why == null and (.failed_at | test("^20")))'
    history 1 past1 0
    says "history: the other host has none" past1 '^no NIC of this host has failed'
    lemon 3 || return
    history 0 past3 1
    says "history: drain" past3 '^fab1/1 +drain +3 +[0-9]+ +[0-9]+ +0  [0-9:]{8} +failed in 3 jobs in 7 days$'
    on 0 "$B/r2_stat" --prom >"$log/past.prom" 2>&1
    says "history: Prometheus" past.prom '^r2_nic_drain_advised[{]device="fab1",port="1",guid="[0-9a-f]{16}"[}] 1$'
    run --duration 500ms
    was_right "history: a job after it" || return
    if grep -q '^h0:.* NIC fab1: failed in 3 jobs in 7 days; r2_ctl drain is advised' "$log/out"; then ok "history: the next job says so"; else bad "history: the next job says so" "$(grep 'NET/R2' "$log/out" | head -5)"; fi
    # shellcheck disable=SC2016
    on 0 sh -c 'for f in "$NCCL_R2_RUN_DIR"/*.nics; do sed "s/^hour \\([0-9]*\\) ./hour \\1 9/" "$f" >"$f.t" && cat "$f.t" >"$f" && rm "$f.t"; done'
    history 0 past4 2
    says "history: a damaged file is named" past4 '^r2_stat: .*/nccl-net-r2[.][0-9]+[.]nics is damaged, line [0-9]+: it counts for nothing$'
    lemon 4 || return
    if grep -q 'WARN NET/R2 : history of NICs: .*[.]nics is damaged, line [0-9]*: it counts for nothing, and is .*[.]nics[.]bad now' "$log/out"; then ok "history: the job says that it is damaged"; else bad "history: the job says that it is damaged" "$(grep WARN "$log/out" | head -5)"; fi
    history 0 past5 0
    is "history: it begins anew" past5.json '.nics | length == 1 and .[0].jobs_failed == 1'
}
wanted "history" && case_history

# --- two processes per host, followed ---
case_processes() {
    fabric 2
    "$B/softfab" exec --name $fab --host 0 -- "$B/r2_stat" --follow >"$log/follow" 2>&1 &
    busy=$!
    rm -f "$log"/two*
    run --ranks-per-host 2 --intra net --duration 2s --fault "500ms:h0:n1 down" --fault-cmd "$(at 600ms 0 two.json "$switched" --json)" --fault-cmd "$(at 600ms 0 two "$switched")" --fault-optional --after 500ms
    tries=0
    while [ "$(grep -c 'has ended' "$log/follow")" != 2 ] && [ $tries -lt 600 ]; do # it looks every 0.2 s
        tries=$((tries + 1))
        sleep 0.05
    done
    kill "$busy" 2>/dev/null
    wait "$busy" 2>/dev/null
    busy=
    was_right "two processes on a host" || return
    says "two processes: one job" two ', 2 processes since '
    is "two processes: each has its own file" two.json '.jobs | length == 1 and (.[0].processes | length == 2 and ([.[].pid] | unique | length == 2) and
        all(.[]; .nics[] | select(.device == "fab1") | .state == "down" and .moved > 0))'
    # The one process is the other's peer: on a busy machine its word may come before the own port is read.
    if [ "$(grep -cE "^[0-9:.]{12} .* fault +fab1: (port down|peer's NIC), [0-9]+ connections?\$" "$log/follow")" = 2 ] &&
        grep -q ' fault *fab1: port down, ' "$log/follow" && [ "$(grep -c ' switch ' "$log/follow")" = 2 ]; then
        ok "two processes: followed"
    else
        bad "two processes: followed" "$(cat "$log/follow")"
    fi
}
wanted "processes" && case_processes

# --- a blackhole: no port says anything ---
case_blackhole() {
    fabric 2
    rm -f "$log"/hole*
    export SLURM_JOB_ID=81233
    dir=$("$B/softfab" status --name $fab --json | jq -r .dir)
    counters=
    for h in 0 1; do # either end may speak
        mkdir -p "$dir/host$h/sys/class/infiniband/fab1/ports/1/counters"
        counters="$counters $dir/host$h/sys/class/infiniband/fab1/ports/1/counters/symbol_error"
    done
    echo 5 | tee $counters >/dev/null
    # 2 MiB are on the wire for a tenth of a second: bytes are under way when the NIC goes, and the stall is the job's.
    run -b 2M -e 2M --duration 2s --fault-cmd "$(once 700ms "$(logged 'WARN NET/R2 : R2-F03 ')")" --fault-cmd "400ms:echo 46 | tee $counters >/dev/null" --fault "500ms:h0:n1 blackhole" --fault-cmd "$(at 600ms 0 hole.json "$switched" --json)" --fault-cmd "$(at 600ms 0 hole.check "$switched" --check)" --fault-optional --after 1s
    unset SLURM_JOB_ID
    was_right "blackhole" || return
    if [ "$(downs)" = 0 ]; then
        bad "blackhole" "no incarnation went down"
        return
    fi
    is "blackhole: the port is up, the NIC is avoided" hole.json '.jobs[0].processes[0].nics[] | select(.device == "fab1") | .port_state == "up" and (.state == "avoided" or .state == "partly") and .moved > 0 and (.trouble | test("stall|peer")) and (.why == .trouble or .why == .blamed)'
    # A switch is told while its stall may still last: the whole of it stands in what each process says last.
    longest=$(sed -n 's/.* summary: .* longest stall \([0-9]*\)[.][0-9]* ms.*/\1/p' "$log/out" | sort -n | tail -n 1)
    if [ "${longest:-0}" -ge 15 ]; then
        ok "blackhole: the stall is what the watchdog needs"
    else
        bad "blackhole: the stall is what the watchdog needs" "${longest:-no} ms: $(grep ' summary: ' "$log/out")"
    fi
    says "blackhole: check" hole.check.rc '^1$'
    says "blackhole: the line says what it does to the job, and to which" out 'WARN NET/R2 : R2-F03 .* since=[0-9:.]+Z .* (stall=[0-9.]+ms )?moved=[0-9]+ to=fab0 capacity=1/2 job=slurm:81233 '
    says "blackhole: the evidence, too" out 'R2-F03: h[01] fab1, since its first connection: symbol_error [+]41$'
    says "blackhole: the line says what the port has counted" out 'WARN NET/R2 : R2-F03 .*,symbol_error:[+]41 '
}
wanted "blackhole" && case_blackhole

# --- the driver never comes back from the reading of a counter: nothing waits for it ---
case_counters() {
    fabric 2
    dir=$("$B/softfab" status --name $fab --json | jq -r .dir)
    fifos=
    for h in 0 1; do
        mkdir -p "$dir/host$h/sys/class/infiniband/fab1/ports/1/counters"
        fifos="$fifos $dir/host$h/sys/class/infiniband/fab1/ports/1/counters/symbol_error"
    done
    echo 5 | tee $fifos >/dev/null
    run --duration 2s --fault-cmd "$(once 600ms "$(logged 'WARN NET/R2 : R2-F03 ')")" --fault-cmd "400ms:rm $fifos; mkfifo $fifos" --fault "500ms:h0:n1 blackhole" --fault-optional --after 1s
    was_right "a counter that blocks" || return
    says "a counter that blocks: the verdict comes without it" out 'WARN NET/R2 : R2-F03 .*-loop:ok (stall|moved)='
    if grep -q 'R2-F03: .*since its first connection' "$log/out"; then bad "a counter that blocks" "it did not"; else ok "a counter that blocks: its reading is still out"; fi
}
wanted "counters" && case_counters

# --- work stands still for a while, and nothing has failed: the only NIC delivers late. What may not return is waited for: a machine that is busy enough
# would have its path ended and begun anew, by an answer that overtakes what it is to speak for (docs/health.md, the last packet). And it stays late until
# a stall is counted: time in which the service thread is kept waiting is none ---
case_stall() {
    fabric 1
    rm -f "$log"/still*
    export NCCL_R2_FAILBACK=manual
    run --duration 3s --fault "500ms:h0:n0 delay 800ms" --fault-cmd "$(at 600ms 0 still.first '[.jobs[].processes[] | .stalls >= 1] | any' --json)" --fault "2500ms:h0:n0 restore" --fault-cmd "$(at 2600ms 0 still.check '[.jobs[].processes[] | .stalls >= 1] | any' --check)" --fault-cmd "$(at 2700ms 0 still.history '[.jobs[].processes[] | .stalls >= 1] | any' -H)" --fault-optional --after 2s
    unset NCCL_R2_FAILBACK
    was_right "a stall without a fault" || return
    if [ "$(downs)" != 0 ]; then
        bad "a stall without a fault" "an incarnation went down"
        return
    fi
    says "a stall without a fault: the log" out 'WARN NET/R2 : fab0: [0-9]+ connections? stood still for [0-9.]+ ms, .*and went on( without a fault|; why: R2-)'
    says "a stall without a fault: check" still.check '^fab0/1 stood still for [0-9.]+ s until .*, (without a fault|why: R2-)'
    says "a stall without a fault: check is not 0" still.check.rc '^1$'
    says "a stall without a fault: history" still.history ' stall +fab0: [0-9]+ connections? stood still for '
    says "a stall without a fault: the head of the job" still.history '^stalls without a fault [1-9]'
}
wanted "stall" && case_stall

# --- a silent cable in a ring: a third host finds out whose it is, and only that host has a problem ---
case_ring() {
    hosts=3
    fabric 2
    rm -f "$log"/ring*
    told='[.jobs[].processes[] | any(.nics[]; .moved > 0 and (.why == "h1:fab1 port or cable" or .why == "its port or cable" or (.why | test("^R2-L02"))))] | any and all'
    set -- --fault "500ms:h1:n1 blackhole"
    for h in 0 1 2; do
        set -- "$@" --fault-cmd "$(at 600ms $h ring$h.json "$told" --json)" --fault-cmd "$(at 600ms $h ring$h "$told" --check)"
    done
    run --duration 2s "$@" --fault-optional --after 300ms
    hosts=2
    was_right "ring" || return
    for h in 0 2; do
        says "ring: host $h, whose NICs are well" ring$h.rc '^0$'
        is "ring: host $h says whose it is" ring$h.json '.jobs[0].processes[0].nics[] | select(.device == "fab1") | .state == "partly" and .fault_at_peer == 1 and .why == "h1:fab1 port or cable"'
    done
    says "ring: the host with the cable" ring1.rc '^1$'
    is "ring: the host with the cable says so" ring1.json '.jobs[0].processes[0].nics[] | select(.device == "fab1") | .state == "avoided" and .fault_at_peer == 0 and (.why | test("^R2-L02 |^its port or cable$"))'
}
wanted "ring" && case_ring

# --- options, other users, nothing there ---
case_off() {
    fabric 1
    dir=$log/off
    mkdir -p "$dir"
    export NCCL_R2_RUN_DIR="$dir" NCCL_R2_STATS=off NCCL_R2_EVENT_FILE=off NCCL_R2_BOARD=off
    run --iters 5
    was_right "off" && { if [ -z "$(ls "$dir")" ]; then ok "off: nothing is made"; else bad "off" "$(ls "$dir")"; fi; }
    export NCCL_R2_STATS=on NCCL_R2_EVENT_FILE="$dir/mine"
    run --iters 5
    was_right "a file of one's own" && { if grep -q '"kind":"stop"' "$dir/mine"; then ok "NCCL_R2_EVENT_FILE"; else bad "NCCL_R2_EVENT_FILE" "$(ls "$dir")"; fi; }
    rm -f "$dir/mine"
    ln -s "$log/elsewhere" "$dir/mine"
    run --iters 5
    was_right "a link" && {
        if grep -q 'WARN.*events are lost' "$log/out" && [ ! -e "$log/elsewhere" ]; then ok "a link is not followed; said, and the job runs"; else bad "a link" "followed, or not said"; fi
    }
    unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE NCCL_R2_BOARD
}
wanted "off" && case_off

case_users() {
    if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null || ! setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
        skip "other users: this needs root and setpriv"
        return
    fi
    fabric 1
    dir=$(mktemp -d /tmp/r2-stat-users-XXXXXX)
    chmod 1777 "$dir"
    cp "$B/r2_stat" "$dir/r2_stat"
    chmod 755 "$dir/r2_stat"
    rm -f "$log"/user*
    export NCCL_R2_RUN_DIR="$dir"
    run --duration 1s --fault-optional --fault-cmd "500ms:setpriv --reuid 65534 --regid 65534 --clear-groups $dir/r2_stat --run-dir $dir >$log/user 2>&1; cat $dir/*.stat >/dev/null && setpriv --reuid 65534 --regid 65534 --clear-groups cat $dir/*.stat >$log/user.cat 2>&1; echo \$? >$log/user.rc"
    unset NCCL_R2_RUN_DIR
    was_right "other users" && {
        says "other users: see nothing of it" user '^no job of user '
        says "other users: cannot read the files" user.cat 'Permission denied'
        says "other users: cannot read the files at all" user.rc '^1$'
    }
    rm -rf "$dir"
}
wanted "users" && case_users

# --- r2_stat's command line ---
cli() { # STATUS TEXT ARGUMENT...: ends with STATUS and says TEXT
    want=$1 text=$2
    shift 2
    "$B/r2_stat" --run-dir "$dir" "$@" >"$log/out" 2>&1
    got=$?
    if [ $got = "$want" ] && grep -q -e "$text" "$log/out"; then
        ok "r2_stat $*: $want, $(head -1 "$log/out")"
    else
        bad "r2_stat $*" "status $got, expected $want and '$text'"
    fi
}
wanted "cli" && {
    dir=$log/empty
    mkdir -p "$dir"
    cli 0 "uses the plugin on this host; looked in $dir"
    cli 0 '"jobs":\[\]' --json
    cli 2 'nothing is known' --check
    cli 1 'not loaded' --assert-loaded
    cli 0 'usage' --help
    cli 0 'r2_stat [0-9]' --version
    cli 2 'nothing to name beside options' mlx5_0
    cli 2 'takes seconds' --watch x
    cli 2 'takes seconds' --watch=0
    cli 2 'exclude each other' --check --follow
    cli 2 'goes alone' --json --check
    cli 2 "unknown option '--sideways'" --sideways
    printf 'garbage' >"$dir/nccl-net-r2.$(id -u).0123456789abcdef.stat"
    cli 0 "looked in $dir" # nobody holds its lock: it is nobody's
    dir=/nonexistent
    cli 1 'is no directory'
    cli 2 'is no directory' --check
    "$B/r2_stat" --run-dir "$log/empty" --watch 0.2 >"$log/out" 2>&1 &
    busy=$!
    tries=0
    while [ "$(grep -c 'looked in' "$log/out")" -lt 2 ] && [ $tries -lt 600 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    kill "$busy"
    wait "$busy" 2>/dev/null
    busy=
    if [ "$(grep -c 'looked in' "$log/out")" -ge 2 ]; then ok "r2_stat --watch"; else bad "r2_stat --watch" "$(cat "$log/out")"; fi
}
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
