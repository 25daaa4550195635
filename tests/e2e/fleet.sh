#!/bin/sh
# The fleet kit (share/, docs/fleet.md) beside what the tools really print: a NIC is lost under a collective on the software fabric, a NIC is drained and one
# rehearsed; then alerts, dashboard, schemas, node-problem-detector and the hooks of Slurm, each of which is also shown to refuse what is wrong.
# Argument: build folder. Second argument: only parts whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
cd "$(dirname "$0")/../.." || exit 2
fab=fleet$$
skipped=0
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE SLURM_JOB_ID SLURM_STEP_ID SLURM_JOB_UID SLURMD_NODENAME
if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi
skip() {
    skipped=$((skipped + 1))
    echo "SKIP $1"
}
# has_line NAME FILE PATTERN: the file has such a line
has_line() {
    if grep -qE -e "$3" "$2"; then ok "$1"; else bad "$1" "nothing like '$3' in: $(head -c 1500 "$2")"; fi
}
# empty NAME FILE: nothing was found fault with
empty() {
    if [ ! -s "$2" ]; then ok "$1"; else bad "$1" "$(head -12 "$2")"; fi
}

# --- what the tools print, into $log/NAME ---
cat >"$log/look" <<END
host=\$1
told='[.jobs[].processes[] | .switches >= 1 and any(.nics[]; .moved > 0 and (.why | test("^R2-|port or cable")))] | any and all'
end=\$((\$(date +%s) + 30))
until "$B/r2_stat" --json | jq -e "\$told" >/dev/null 2>&1 || [ "\$(date +%s)" -ge \$end ]; do sleep 0.1; done
"$B/r2_stat" --json >"$log/r2.stat.lost.\$host"
"$B/r2_stat" --prom >"$log/prom.lost.\$host"
"$B/r2_stat" --nic-history --json >"$log/r2.nic-history.\$host"
"$B/r2_stat" --npd >"$log/npd.\$host"
echo \$? >"$log/npd.\$host.rc"
timeout 1 "$B/r2_stat" --follow --json >"$log/r2.history.\$host"
[ \$host = 1 ] || exit 0
"$B/r2_ctl" drain fab2 --why 'new "cable"' >/dev/null
"$B/r2_ctl" rehearse fab0 --for 5s >/dev/null
n=0
until "$B/r2_stat" --json | jq -e 'any(.jobs[].processes[].nics[]; .drained == 1 and .moved > 0)' >/dev/null || [ \$n = 60 ]; do n=\$((n + 1)); sleep 0.1; done
"$B/r2_stat" --json >"$log/r2.stat.drained"
"$B/r2_stat" --prom >"$log/prom.drained"
"$B/r2_ctl" status --json >"$log/r2.ctl.drained"
"$B/softfab" status --name $fab --json >"$log/softfab.status"
"$B/r2_ctl" rehearse fab0 --for 0 >/dev/null
"$B/r2_ctl" undrain --all >/dev/null
END
look() {
    echo "600ms:env -u NCCL_R2_RUN_DIR $B/softfab exec --name $fab --host $1 -- sh $log/look $1"
}
run_job() {
    "$B/softfab" up --name $fab --hosts 3 --nics 3 --rate 20MB/s >/dev/null || exit 1
    SLURM_JOB_ID=81233 SLURM_STEP_ID=0 timeout -k 5 120 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 3 --placement out -w 1 -T 30s \
        --duration 2s --fault '500ms:h1:n1 blackhole' --fault-cmd "$(look 0)" --fault-cmd "$(look 2)" --fault-cmd "$(look 1)" --fault-optional --after 300ms --json "$log/r2_perf.fault" --trace "$log/r2_perf_trace.fault" >"$log/out" 2>&1
    rc=$?
    for h in 0 1 2; do
        "$B/softfab" exec --name $fab --host $h -- sh -c 'cat "$NCCL_R2_RUN_DIR"/nccl-net-r2.*.events.ndjson' >"$log/r2.event.$h"
    done
    # a history is printed once a process of that host has reached the verdict, which may be another host's
    { cat "$log"/prom.* && sed -n 's/.*prom_head(f, "\(r2_nic_drain_advised\)", "gauge",.*/# TYPE \1 gauge/p' tools/r2_stat/nics.c; } | sed -n 's/^# TYPE \([a-z0-9_]*\) .*/\1/p' | sort -u | jq -Rn '[inputs]' >"$log/printed"
}
run_job
was_right "the job" || exit 1
if [ -s "$log/prom.drained" ] && jq -e 'any(.jobs[].processes[].nics[]; .moved > 0)' "$log/r2.stat.lost.1" >/dev/null; then
    ok "the fault fired, and all was looked at"
else
    bad "the job" "nothing was lost, or not looked at"
fi

# --- alerts ---
promtool=$(command -v promtool || echo build/promtool/promtool) # tools/install-deps.sh ci leaves it there
[ -x "$promtool" ] || promtool=
rules=share/prometheus/nccl-net-r2.rules.yml
# What rules speak of that nothing prints.
alert_metrics() {
    grep -oE 'expr: .*' "$1" | grep -oE 'r2_[a-z_]+' | sort -u | jq -Rr --slurpfile p "$log/printed" 'select([.] - $p[0] != []) | "nothing prints " + .'
}
# Each link ends at an anchor; the one that a label makes is of a code, and each code has one (tests/check_runbook.sh). Each alert has a severity, a link, a row
# in the documents and a test.
alert_texts() {
    grep -oE "runbook: '.*'" "$1" | grep -oE '(docs/runbook.md#[a-z0-9-]+|\}(r2-[a-z0-9]+)\{)' | sed 's/.*#//; s/[{}]//g' | sort -u | while read -r a; do
        grep -q "<a id=\"$a\"></a>" docs/runbook.md || echo "no $a in docs/runbook.md"
    done
    awk '/- alert:/ { name = $3; n++ } /severity:/ { s[name] = $2 } /runbook:/ { r[name] = 1 }
        END {
            if (n < 10) print "too few alerts"
            for (a in s) { if (s[a] !~ /^(info|warning|critical)$/) print a ": severity " s[a]; if (!(a in r)) print a ": no runbook" }
            for (a in r) if (!(a in s)) print a ": no severity"
        }' "$1"
    sed -n 's/.*- alert: //p' "$1" | while read -r a; do
        grep -q "\`$a\`" docs/fleet.md || echo "$a is not in docs/fleet.md"
        grep -q "\b$a\b" tests/fleet/alerts.yml || echo "$a is not in tests/fleet/alerts.yml"
    done
}
wanted alerts && {
    alert_metrics $rules >"$log/said"
    empty "alerts: metrics that are printed" "$log/said"
    alert_texts $rules >"$log/said"
    empty "alerts: severity, runbook, list, test" "$log/said"
    sed 's/r2_capacity_ratio/r2_capacity_share/; s/#r2-g02/#r2-g99/; s/severity: info/severity: page/' $rules >"$log/wrong.yml"
    alert_metrics "$log/wrong.yml" >"$log/said"
    has_line "alerts: a metric that nothing prints is found" "$log/said" 'nothing prints r2_capacity_share'
    alert_texts "$log/wrong.yml" >"$log/said"
    has_line "alerts: a link without an end is found" "$log/said" 'no r2-g99 '
    has_line "alerts: another severity is found" "$log/said" 'severity page'
    if [ "$promtool" ]; then
        if "$promtool" check rules $rules >"$log/said" 2>&1 && "$promtool" test rules tests/fleet/alerts.yml >>"$log/said" 2>&1; then
            ok "promtool: rules and their tests"
        else
            bad "promtool: rules" "$(cat "$log/said")"
        fi
        sed 's/increase(r2_giveups_total\[10m\]) > 0/r2_giveups_total > 0/' $rules >"$log/wrong.yml"
        sed "s,\.\./\.\./share/prometheus/.*,$log/wrong.yml," tests/fleet/alerts.yml >"$log/alerts.yml"
        if "$promtool" test rules "$log/alerts.yml" >"$log/said" 2>&1; then
            bad "promtool: an alert that never clears is found" "not so"
        else
            has_line "promtool: an alert that never clears is found" "$log/said" R2GaveUp
        fi
        for f in "$log"/prom.*; do
            "$promtool" check metrics <"$f" >"$log/said" 2>&1
            empty "promtool: $(basename "$f")" "$log/said"
        done
    else
        skip "promtool is not here (sh tools/install-deps.sh ci): alerts are not run"
    fi
}
wanted labels && {
    has_line "labels: the NIC that was lost" "$log/prom.lost.1" '^r2_nic_trouble_info[{]device="fab1",port="1",state="(avoided|partly)",at="here",code="(R2-L02)?",blame="(cable-or-switch-port)?",action="[a-z-]*"[}] 1$'
    cat "$log"/prom.lost.? >"$log/all"
    has_line "labels: the verdict" "$log/all" '^r2_verdict_timestamp_seconds[{]code="R2-L02",blame="cable-or-switch-port",action="drain-after-job"[}] [0-9]{10}[.]'
    has_line "labels: the other end" "$log/prom.lost.0" '^r2_nic_trouble_info[{]device="fab1",port="1",state="(avoided|partly)",at="peer",'
    has_line "labels: the job" "$log/prom.lost.1" '^r2_job_info[{]scheduler="slurm",job_id="81233",user="[^"]+",command="r2_perf"[}] 1$'
    grep -E '^r2_nic_trouble_info.*device="fab[02]"' "$log/prom.drained" >"$log/said"
    empty "labels: a drain or a rehearsal is no trouble" "$log/said"
}

# --- the dashboard ---
wanted dashboard && {
    board=share/grafana/nccl-net-r2.json
    check_board() {
        jq -r --arg rules no --argjson printed "$(cat "$log/printed")" -f tests/fleet/dashboard.jq "$1" 2>&1
    }
    check_board $board >"$log/said"
    empty "dashboard" "$log/said"
    jq '.panels[1].gridPos.x = 2 | .panels[2].targets[0].expr = "r2_no_such" | .panels[3].id = 1 | del(.uid)' $board >"$log/wrong.json"
    check_board "$log/wrong.json" >"$log/said"
    for what in 'uid is no string' 'id 1 twice' 'nothing prints r2_no_such' ' lies on '; do has_line "dashboard: $what" "$log/said" "$what"; done
    if [ "$promtool" ]; then
        jq -r --arg rules yes --argjson printed '[]' -f tests/fleet/dashboard.jq $board >"$log/board.yml"
        "$promtool" check rules "$log/board.yml" >"$log/said" 2>&1
        has_line "dashboard: expressions" "$log/said" 'SUCCESS: [1-9][0-9]+ rules'
    else
        skip "dashboard: promtool is not here: expressions are not parsed"
    fi
}

# --- schemas: every JSON that a tool prints ---
samples() {
    "$B/r2_config" --json >"$log/r2_config.plain"
    mkdir -p "$log/root/etc/nccl-net-r2"
    echo NCCL_R2_FAILOVER=on >"$log/root/etc/nccl-net-r2/lock.conf"
    NCCL_R2_FAILOVER=off NCCL_R2_FAILOVR=1 "$B/r2_config" --root "$log/root" --json >"$log/r2_config.locked" 2>/dev/null
    NCCL_R2_GIVE_UP=x "$B/r2_config" --json >"$log/r2_config.wrong" 2>/dev/null
    "$B/r2_topo" --json >"$log/r2_topo.here"
    for m in tests/topo/machines/*.machine; do
        name=$(basename "$m" .machine)
        mkdir -p "$log/tree/$name"
        "$B/topo_make" "$m" "$log/tree/$name" >/dev/null && "$B/r2_topo" --root "$log/tree/$name" --order --json >"$log/r2_topo.$name"
    done
    "$B/r2_plan" --nodes 4 --json >"$log/r2_plan.healthy"
    "$B/r2_plan" --nodes 8 --lost 3:n1+n4,5:n2 --rail-only --what-if 2 --json >"$log/r2_plan.lost"
    "$B/r2_plan" --from "$log/r2.stat.lost.0" "$log/r2.stat.lost.1" --rail-only --json >"$log/r2_plan.hosts" 2>/dev/null
    "$B/r2_plan" simulate --nodes 4 --lost 1:1 --json >"$log/r2_simulate.lost"
    "$B/r2_perf" sendrecv --hosts 2 --nics 2 -b 64K -e 128K -f 2 -n 3 -I 1 --json "$log/r2_perf.spread" >/dev/null 2>&1
    "$B/r2_perf" all_reduce --algo tree --hosts 2 --nics 2 -b 64K -e 64K -n 2 --json "$log/r2_perf.planned" >/dev/null 2>&1
    "$B/r2_perf" all_reduce --hosts 1 --nics 2 --placement out -b 8 -e 8 -n 5000 -c 0 --trace "$log/r2_perf_trace.many" >/dev/null 2>&1
    "$B/r2_ctl" status --run-dir "$log" --json >"$log/r2.ctl.idle"
    "$B/r2_stat" --run-dir "$log/root" --json >"$log/r2.stat.idle"
    "$B/r2_diag" --json "$log/r2.stat.lost.0" "$log/r2.stat.lost.1" "$log/none" >"$log/r2.diag.host" 2>/dev/null
    "$B/r2_diag" --json --nics "$log/r2.stat.lost".? >"$log/r2.diag.nic"
    "$B/r2_diag" --json "$log/r2.stat.idle" >"$log/r2.diag.none" 2>/dev/null
}
# faults SCHEMA DOCUMENT...: what is wrong with them; documents may have several values. $open: whether keys may be new
open=false
faults() {
    schema=$1
    shift
    jq -rs --argjson open $open --slurpfile schema "share/schemas/$schema.json" -f tests/fleet/schema.jq "$@" 2>&1
}
# refused SCHEMA FILTER DOCUMENT TEXT: the document, changed so, is refused for that
refused() {
    jq -c "$2" "$3" >"$log/changed"
    faults "$1" "$log/changed" >"$log/said"
    has_line "schema $1: refuses $2" "$log/said" "$4"
}
wanted schemas && {
    samples
    for schema in r2.stat r2.history r2.nic-history r2.event r2.ctl r2.diag r2_config r2_topo r2_plan r2_simulate r2_perf r2_perf_trace softfab; do
        cat "$log/$schema".* >"$log/docs"
        faults $schema "$log/docs" >"$log/said"
        [ "$(jq -s length "$log/docs")" -gt 0 ] || echo "no sample" >"$log/said"
        empty "schema $schema: $(jq -s length "$log/docs") samples" "$log/said"
        jq -sc '.[0]' "$log/docs" >"$log/first"
        missed=0 keys=0
        for k in $(jq -r '.required[]' "share/schemas/$schema.json"); do
            keys=$((keys + 1))
            jq -c "del(.[\"$k\"])" "$log/first" >"$log/changed"
            [ -z "$(faults $schema "$log/changed")" ] || missed=$((missed + 1))
        done
        if [ $keys -gt 0 ] && [ $missed = $keys ]; then ok "schema $schema: each of $keys keys is missed"; else bad "schema $schema" "$missed of $keys keys are missed"; fi
        refused $schema '.unheard = 1' "$log/first" 'unheard is not in the schema'
    done
    if [ "$(find share/schemas -type f | wc -l)" = 13 ]; then ok "each schema has samples"; else bad "schemas" "$(ls share/schemas)"; fi
    lost=$log/r2.stat.lost.1
    refused r2.stat '.jobs[0].processes[0].pid = "1"' "$lost" 'pid is string, not integer'
    refused r2.stat '.jobs[0].processes[0].nics[0].state = "sad"' "$lost" 'state is sad, none of'
    refused r2.stat '.jobs[0].processes[0].capacity = [1]' "$lost" 'capacity has 1 items'
    refused r2.diag '.by = "rack"' "$log/r2.diag.nic" 'by is rack, none of'
    refused r2.diag '.sizes[0].ratio[0][0] = "1"' "$log/r2.diag.nic" '\[0\]\[0\] is string, not number or null'
    refused r2.event '.ts = "today"' "$log/r2.event.1" 'ts is today, not like'
    refused r2.event '.schema = "r2.event/2"' "$log/r2.event.1" 'schema is r2.event/2, not r2.event/1'
    refused r2.event '.mono_ns = -1' "$log/r2.event.1" 'mono_ns is -1, less than 0'
    kinds='.properties.traceEvents.items.properties'
    jq -r "$kinds.cat.enum[], $kinds.ph.enum[]" share/schemas/r2_perf_trace.json | sort >"$log/kinds"
    cat "$log"/r2_perf_trace.* | jq -r '.traceEvents[] | .cat // empty, .ph' | sort -u | comm -23 "$log/kinds" - >"$log/said"
    empty "schema r2_perf_trace: each kind of event has samples" "$log/said"
    refused r2_perf_trace '.traceEvents[-1].ts = -1' "$log/r2_perf_trace.fault" 'ts is -1, less than 0'
    refused r2_perf_trace '.traceEvents[-1].ph = "B"' "$log/r2_perf_trace.fault" 'ph is B, none of'
    refused r2_perf_trace '.traceEvents[-1].args.bytes = 1' "$log/r2_perf_trace.fault" 'bytes is not in the schema'
    jq -c '.unheard = 1' "$log/r2.event.1" >"$log/changed"
    open=true
    faults r2.event "$log/changed" >"$log/said"
    open=false
    empty "schema: readers pass over a new key" "$log/said"
    jq '.properties.host.format = "hostname"' share/schemas/r2.stat.json >"$log/odd.json"
    jq -rs --argjson open false --slurpfile schema "$log/odd.json" -f tests/fleet/schema.jq "$lost" >"$log/said" 2>&1
    has_line "schema: an unknown keyword is no schema" "$log/said" 'unknown keywords: format'
}

# --- node-problem-detector ---
wanted npd && {
    has_line "npd: the host that lost the NIC" "$log/npd.1" '^(R2-L02 fab1|fab1/1 (avoided|partly) since )'
    has_line "npd: exit status 1" "$log/npd.1.rc" '^1$'
    has_line "npd: the other host is well" "$log/npd.0.rc" '^0$'
    plan=share/kubernetes/node-problem-detector.json
    if cat "$log/npd.0" "$log/npd.1" | awk -v max="$(jq .pluginConfig.max_output_length $plan)" 'length > max { long = 1 } END { exit long || NR != 2 }'; then
        ok "npd: one line, not cut"
    else
        bad "npd: one line" "$(cat "$log/npd.0" "$log/npd.1")"
    fi
    # as the monitor calls it: each rule's program and arguments
    mkdir -p "$log/nobody"
    jq -r '.rules[] | [.path | sub("^/usr/bin/"; "")] + .args | join(" ")' $plan | sort -u >"$log/commands"
    while read -r tool args; do
        # shellcheck disable=SC2086
        "$B/$tool" $args --run-dir "$log/nobody" >"$log/said" 2>"$log/err"
        if [ $? = 0 ] && [ "$(wc -l <"$log/said")" = 1 ] && [ ! -s "$log/err" ]; then ok "npd: $tool $args, idle"; else bad "npd: $tool $args" "$(cat "$log/said" "$log/err")"; fi
    done <"$log/commands"
    jq -r '(.rules[] | select(.type == "permanent") | .condition) as $c | select(all(.conditions[]; .type != $c)) | "no condition \($c)"' $plan >"$log/said"
    empty "npd: conditions" "$log/said"
}

# --- Kubernetes: a DaemonSet that installs the plugin and writes metrics, and a pod that uses both ---
manifests() {
    jq -nc --argjson kinds "$(jq -nc -f tests/fleet/kubernetes.jq)" '$kinds.DaemonSet' >"$log/DaemonSet.schema"
    jq -nc --argjson kinds "$(jq -nc -f tests/fleet/kubernetes.jq)" '$kinds.Pod' >"$log/Pod.schema"
    jq -rs --argjson open false --slurpfile schema "$log/DaemonSet.schema" -f tests/fleet/schema.jq "$1" 2>&1
    jq -rs --argjson open false --slurpfile schema "$log/Pod.schema" -f tests/fleet/schema.jq "$2" 2>&1
    jq -rs --argjson options "$("$B/r2_config" --json | jq -c '[.options[].name] + ["NCCL_NET_PLUGIN", "NCCL_NET", "NCCL_NET_PLUGIN_REF_COUNT"]')" -f tests/fleet/manifests.jq "$1" "$2" 2>&1
}
# spoilt SET|POD FILTER TEXT: that manifest, changed so, is found fault with for that
spoilt() {
    cp share/kubernetes/daemonset.json "$log/SET"
    cp share/kubernetes/pod.json "$log/POD"
    jq "$2" "$log/$1" >"$log/changed" && mv "$log/changed" "$log/$1"
    manifests "$log/SET" "$log/POD" >"$log/said"
    has_line "kubernetes: $2 is found" "$log/said" "$3"
}
# in_container N: what container N of the DaemonSet runs, its paths below $log/k8s
in_container() {
    jq -r ".spec.template.spec | (.initContainers + .containers)[$1].args[0]" share/kubernetes/daemonset.json |
        sed "s,/usr/lib/,$log/k8s/usr/lib/,g; s,/host-lib,$log/k8s/lib,g; s,/run/nccl-net-r2,$log/k8s/run,g; s,/textfile,$log/k8s/textfile,g; s,sleep 15,sleep 0.2,"
}
wanted kubernetes && {
    manifests share/kubernetes/daemonset.json share/kubernetes/pod.json >"$log/said"
    empty "kubernetes: DaemonSet and pod" "$log/said"
    spoilt SET '.spec.template.spec.container = []' 'spec.container is not in the schema'
    spoilt SET '.spec.template.spec.containers[0].volumeMounts[0].mountpath = "/x"' 'mountpath is not in the schema'
    spoilt SET 'del(.spec.selector)' 'spec.selector is missing'
    spoilt SET '.spec.selector.matchLabels = {a: "b"}' 'the selector selects other pods'
    spoilt SET '.spec.template.spec.volumes[1].hostPath.path = "/run/other"' 'metrics: its run directory is not the host'
    spoilt SET '.spec.template.spec.volumes[0].hostPath.path = "/opt/other"' 'is installed as /opt/other/libnccl-net-r2.so'
    spoilt SET '.spec.template.spec.volumes[0].name = "library"' 'install mounts lib, which is no volume'
    spoilt SET '.spec.template.spec.containers[0].image = "registry.example/nccl-net-r2:0.1.0"' 'two images'
    spoilt POD '.spec.containers[0].env[0].value = "/opt/libnccl-net-r2.so"' "the pod.s plugin is null of the host"
    spoilt POD '.spec.containers[0].env[2].name = "NCCL_R2_RUNDIR"' 'NCCL_R2_RUNDIR is no option'
    spoilt POD '.spec.containers[0].volumeMounts[1].readOnly = true' 'cannot write into the run directory'
    spoilt POD '.spec.containers[0].resources.limits["rdma/hca"] = true' 'hca is boolean, not string or integer'
    spoilt POD '.spec.restartPolicy = "Sometimes"' 'restartPolicy is Sometimes, none of'
    # what its containers run
    mkdir -p "$log/k8s/usr/lib/x86_64-linux-gnu" "$log/k8s/lib" "$log/k8s/run" "$log/k8s/textfile"
    in_container 0 >"$log/install"
    sh "$log/install" >"$log/said" 2>&1
    if [ $? = 1 ] && grep -q 'no libnccl-net-r2.so in this image' "$log/said"; then ok "kubernetes: an image without the plugin"; else bad "kubernetes: an image without the plugin" "$(cat "$log/said")"; fi
    echo old >"$log/k8s/lib/libnccl-net-r2.so"
    ln "$log/k8s/lib/libnccl-net-r2.so" "$log/k8s/mapped"
    cp "$B/libnccl-net-r2.so" "$log/k8s/usr/lib/x86_64-linux-gnu/"
    if sh "$log/install" && cmp -s "$B/libnccl-net-r2.so" "$log/k8s/lib/libnccl-net-r2.so" && [ "$(stat -c %a "$log/k8s/run")" = 1777 ] && [ "$(ls "$log/k8s/lib")" = libnccl-net-r2.so ]; then
        ok "kubernetes: the plugin is installed"
    else
        bad "kubernetes: the plugin is installed" "$(ls -lR "$log/k8s")"
    fi
    if [ "$(cat "$log/k8s/mapped")" = old ]; then ok "kubernetes: a job keeps the file that it has loaded"; else bad "kubernetes: a job's file was written into" ""; fi
    in_container 1 >"$log/metrics"
    PATH=$B:$PATH sh "$log/metrics" >"$log/said" 2>&1 &
    pid=$!
    n=0
    until [ -s "$log/k8s/textfile/r2.prom" ] || [ $n = 300 ]; do n=$((n + 1)); sleep 0.1; done
    kill $pid
    wait $pid
    if [ $? = 0 ]; then ok "kubernetes: metrics end when they are told to"; else bad "kubernetes: metrics" "$(cat "$log/said")"; fi
    has_line "kubernetes: metrics are written" "$log/k8s/textfile/r2.prom" '^r2_collector_success 1$'
    empty "kubernetes: metrics: nothing is complained of" "$log/said"
}

# --- Slurm ---
hooks=$PWD/share/slurm
# scontrol, r2_stat, r2_config and logger in place of the machine's, which note what they are asked
slurm_rig() {
    rm -rf "$log/bin" "$log/calls" "$log/archive" "$log/run" "$log/deaf"
    mkdir -p "$log/bin" "$log/run"
    : >"$log/calls"
    cat >"$log/bin/scontrol" <<END
#!/bin/sh
case \$* in
*"show node"*) echo "NodeName=n17 Arch=x86_64 State=\$(cat "$log/state") ThreadsPerCore=1 Reason=from State=IDLE on" ;;
*)
    if [ -e "$log/deaf" ]; then
        echo "slurm_update error: Unable to contact slurm controller" >&2
        exit 1
    fi
    for a; do printf '[%s]' "\$a"; done >>"$log/calls"
    echo >>"$log/calls"
    ;;
esac
END
    cat >"$log/bin/r2_stat" <<END
#!/bin/sh
[ "\$*" = --npd ] || exit 2
echo x >>"$log/asked"
cat "$log/npd.line"
exit \$(cat "$log/npd.exit")
END
    printf '#!/bin/sh\ncat "%s/doctor"\nexit $(cat "%s/doctor.exit")\n' "$log" "$log" >"$log/bin/r2_config"
    printf '#!/bin/sh\necho "log: $*" >>"%s/calls"\n' "$log" >"$log/bin/logger"
    chmod +x "$log"/bin/*
    echo MIXED >"$log/state"
    printf 'R2_SETTLE=0\nR2_ARCHIVE=%s/archive\n' "$log" >"$log/settings"
}
# hook NAME [VARIABLE=VALUE...]: as slurmd calls it
hook() {
    name=$1
    shift
    env -i PATH="$log/bin:/usr/bin:/bin" SLURMD_NODENAME=n17 SLURM_JOB_ID=81233 NCCL_R2_RUN_DIR="$log/run" R2_SETTINGS="$log/settings" "$@" sh "${at:-$hooks}/$name" >"$log/hook.out" 2>&1
    echo $? >"$log/hook.rc"
}
# calls NAME PATTERN|none: what the hook asked of Slurm, and that it ended well
calls() {
    if [ "$2" = none ]; then
        grep '^\[' "$log/calls" >"$log/said"
        empty "$1" "$log/said"
    else
        has_line "$1" "$log/calls" "$2"
    fi
    has_line "$1: exit status 0" "$log/hook.rc" '^0$'
}
# health EXIT LINE: what r2_stat --npd will say
health() {
    slurm_rig
    echo "$1" >"$log/npd.exit"
    echo "$2" >"$log/npd.line"
    : >"$log/asked"
}
wanted slurm && {
    health 1 'R2-L02 mlx5_3/1 cable or switch port; job continues at 7/8; drain after job'
    hook r2-health-check
    calls "slurm: a NIC is lost" '^\[update\]\[NodeName=n17\]\[State=DRAIN\]\[Reason=nccl-net-r2: R2-L02 mlx5_3/1 cable or switch port; job continues at 7/8; drain after job\]$'
    has_line "slurm: a NIC is lost: logged" "$log/calls" '^log: .*n17 is drained: R2-L02'
    if [ "$(wc -l <"$log/asked")" = 2 ]; then ok "slurm: asked again before the drain"; else bad "slurm: asked again" "$(cat "$log/asked")"; fi
    health 1 'fab1/1 avoided since 00:26:04, 6 moved: its port or cable'
    echo 'IDLE+DRAIN' >"$log/state"
    hook r2-health-check
    calls "slurm: a node that is drained keeps its reason" none
    health 1 'R2-L02 mlx5_3/1 cable or switch port; drain after job'
    : >"$log/deaf"
    hook r2-health-check
    calls "slurm: a controller that does not answer" '^log: .*n17 cannot be drained for R2-L02 mlx5_3/1 .*: slurm_update error'
    if grep -q 'is drained' "$log/calls"; then bad "slurm: a controller that does not answer" "$(cat "$log/calls")"; else ok "slurm: nothing is drained"; fi
    health 1 "R2-N01 mlx5_3/1 device gone; \$(touch $log/pwned) drain"
    echo R2_DRAIN=no >>"$log/settings"
    hook r2-health-check
    calls "slurm: R2_DRAIN=no" none
    has_line "slurm: R2_DRAIN=no: said" "$log/calls" '^log: .*n17 would be drained: R2-N01'
    if [ ! -e "$log/pwned" ]; then ok "slurm: a line is no command"; else bad "slurm: a line was run" ""; fi
    for line in 'mlx5_3/1 stood still for 1.20 s until 14:02:11, without a fault' '4 connections were given up; the NICs are up' 'R2-F02 h1:fab1 plane or switch; check switches'; do
        health 1 "$line"
        hook r2-health-check
        calls "slurm: no drain for '$line'" none
    done
    health 0 '1 process, all NICs carry what they should'
    hook r2-health-check
    calls "slurm: all is well" none
    health 2 'statistics of jobs here cannot be read'
    hook r2-health-check
    calls "slurm: nothing is known" none

    # after the job: its events
    slurm_rig
    cp "$log/r2.event.1" "$log/run/nccl-net-r2.0.events.ndjson"
    hook r2-epilog SLURM_JOB_UID=0
    calls "slurm: after a job that lost a NIC here" '^\[update\]\[NodeName=n17\]\[State=DRAIN\]\[Reason=nccl-net-r2: (R2-L02 fab1 cable or switch port|h1:fab1 port or cable, says h)'
    if cmp -s "$log/run/nccl-net-r2.0.events.ndjson" "$log/archive/81233.n17.ndjson"; then ok "slurm: the events are kept"; else bad "slurm: the events are kept" "$(ls -R "$log/archive")"; fi
    # what NICs carried: of this job, and only where something happened
    traffic() { { printf 'r2\0h1\0slurm\0%s\0' "$1" && head -c 3000 /dev/zero; } >"$log/run/nccl-net-r2.7.$2.traffic"; }
    slurm_rig
    cp "$log/r2.event.1" "$log/run/nccl-net-r2.0.events.ndjson"
    traffic 81233 aa
    traffic 812334 bb
    traffic 8123 cc
    echo 81233 >"$log/secret"
    ln -s "$log/secret" "$log/run/nccl-net-r2.7.dd.traffic"
    mkfifo "$log/run/nccl-net-r2.7.ee.traffic"
    hook r2-epilog
    ls "$log/archive" "$log/run" >"$log/said"
    if [ "$(tr '\n' ' ' <"$log/said")" = "$log/archive: 81233.n17.7.aa.traffic 81233.n17.ndjson  $log/run: nccl-net-r2.0.events.ndjson nccl-net-r2.7.bb.traffic nccl-net-r2.7.cc.traffic nccl-net-r2.7.dd.traffic nccl-net-r2.7.ee.traffic " ]; then
        ok "slurm: what the job's NICs carried is kept"
    else
        bad "slurm: what the job's NICs carried is kept" "$(cat "$log/said")"
    fi
    slurm_rig
    grep '"kind":"st[ao][rp]' "$log/r2.event.1" >"$log/run/nccl-net-r2.0.events.ndjson"
    traffic 81233 aa
    hook r2-epilog
    if [ -e "$log/run/nccl-net-r2.7.aa.traffic" ] && [ -s "$log/archive/81233.n17.ndjson" ]; then ok "slurm: not of a job that nothing happened to"; else bad "slurm: a job that nothing happened to" "$(ls "$log/archive")"; fi
    slurm_rig
    cp "$log/r2.event.0" "$log/run/nccl-net-r2.0.events.ndjson"
    hook r2-epilog
    calls "slurm: after a job that lost another host's NIC" none
    slurm_rig
    cp "$log/r2.event.1" "$log/run/nccl-net-r2.0.events.ndjson"
    hook r2-epilog SLURM_JOB_ID=8123
    calls "slurm: after another job" none
    slurm_rig
    cp "$log/r2.event.1" "$log/run/nccl-net-r2.7.events.ndjson.1"
    jq -nc '{schema: "r2.event/1", host: "h1", job: {scheduler: "slurm", id: "81233"}, kind: "failback", nic: {device: "fab1", port: 1}, text: "fab1: 6 connections use it again"}' >"$log/run/nccl-net-r2.7.events.ndjson"
    hook r2-epilog SLURM_JOB_UID=7
    calls "slurm: after a job whose NIC has come back" none
    for text in 'fab1 device gone; job continues at 2/3; drain after job' 'h2:fab1 device gone; drain after job'; do
        slurm_rig
        jq -nc --arg text "$text" '{schema: "r2.event/1", host: "h1", job: {scheduler: "slurm", id: "81233"}, kind: "verdict", code: "R2-N01", nic: {device: "fab1", port: 1}, text: $text}' >"$log/run/nccl-net-r2.7.events.ndjson"
        hook r2-epilog
        case $text in h2*) calls "slurm: a verdict here on another host's NIC" none ;; *) calls "slurm: a verdict on a NIC here" 'Reason=nccl-net-r2: R2-N01 fab1 device gone' ;; esac
    done

    # before it
    slurm_rig
    rmdir "$log/run"
    echo 'ok all' >"$log/doctor"
    echo 0 >"$log/doctor.exit"
    hook r2-prolog
    calls "slurm: before a job" none
    if [ "$(stat -c %a "$log/run")" = 1777 ]; then ok "slurm: the run directory"; else bad "slurm: the run directory" "$(ls -ld "$log/run")"; fi
    printf 'ok    a: b\nWARN  NCCL_NET: is not set\nFAIL  libibverbs: not found -> x\nFAIL  NICs: y\n1 ok, 1 warnings, 2 failures\n' >"$log/doctor"
    echo 1 >"$log/doctor.exit"
    hook r2-prolog
    calls "slurm: what the doctor says is logged" '^log: .*job 81233: FAIL  libibverbs: not found'
    echo R2_STRICT=yes >>"$log/settings"
    hook r2-prolog
    has_line "slurm: R2_STRICT=yes" "$log/hook.rc" '^1$'
    # slurmd's folders have links to the hooks
    mkdir -p "$log/prolog.d"
    for f in r2-prolog r2-health-check r2-epilog; do
        slurm_rig
        ln -sf "$hooks/$f" "$log/prolog.d/$f"
        at=$log/prolog.d
        hook $f
        at=
        has_line "slurm: a link to $f: exit status 0" "$log/hook.rc" '^0$'
        empty "slurm: a link to $f" "$log/hook.out"
    done
    hook r2-task-prolog
    if [ "$(cat "$log/hook.out")" = "export NCCL_NET_PLUGIN=r2
export NCCL_NET=R2
export NCCL_NET_PLUGIN_REF_COUNT=1" ]; then ok "slurm: task prolog"; else bad "slurm: task prolog" "$(cat "$log/hook.out")"; fi
    hook r2-task-prolog NCCL_NET_PLUGIN=none
    empty "slurm: the job's own plugin stays" "$log/hook.out"
    hook r2-task-prolog NCCL_NET_PLUGIN=r2
    has_line "slurm: NCCL_NET beside the plugin" "$log/hook.out" '^export NCCL_NET=R2$'

    # Node Health Check sources its checks with bash
    if command -v bash >/dev/null; then
        for e in 0 1 2; do
            health $e 'R2-L02 mlx5_3/1 cable or switch port'
            # shellcheck disable=SC2016
            PATH="$log/bin:$PATH" bash -c 'die() { echo "die $*"; }; log() { echo "log $*"; }; . "$1"; check_r2_nics; echo "status $?"' - "$hooks/r2.nhc" >"$log/nhc$e" 2>&1
        done
        has_line "nhc: well" "$log/nhc0" '^status 0$'
        has_line "nhc: a NIC is lost" "$log/nhc1" '^die 1 check_r2_nics: R2-L02 mlx5_3/1'
        has_line "nhc: a NIC is lost: status" "$log/nhc1" '^status 1$'
        has_line "nhc: nothing is known" "$log/nhc2" '^status 0$'
    else
        skip "nhc: bash is not here"
    fi
}
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
