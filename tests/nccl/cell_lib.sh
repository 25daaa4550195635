# Cells of the matrix inside NCCL, and their table. Sourced by check_nccl.sh, which sets $B, $T, $fab, $filter, $passed, $failed, $skipped, and $gpus:
# empty on the stand-in for CUDA, else how many GPUs cell_gpu.sh has found.
# shellcheck shell=sh disable=SC2086,SC2154

# --- the table (NCCL_TABLE) ---

table_begin() {
    [ -n "${NCCL_TABLE:-}" ] || return 0
    version=$(sed -n 's/^#  Rank .*\] \(NCCL [0-9.]*\):.*/\1/p' "$T/out" | head -n 1)
    {
        echo "Run of $(date -u +%Y-%m-%d), ${version:-a library that did not say its version} on ${gpu_name:-the stand-in for CUDA}, plugin" \
            "$("$B/softfab" --version | sed 's/^softfab //'), $(nproc) cores that others used too (load $(cut -d' ' -f1 /proc/loadavg) when it began)."
        echo
        echo "| cell | operation and settings | result | operations checked | longest without progress, ms | carried after the fault, share per NIC | what the plugin said |"
        echo "|---|---|---|---|---|---|---|"
    } >"$NCCL_TABLE"
}
table_row() { # table_row RESULT
    [ -n "${NCCL_TABLE:-}" ] || return 0
    printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$name" "$(printf '%s' "$words" | sed "s|$B/|build/|g" | tr '|' '/')" "$1" "${checked:--}" "${gap:--}" \
        "${carried:--}" "$(printf '%s' "${said:--}" | tr '|' '/')" >>"$NCCL_TABLE"
}
table_end() {
    [ -n "${NCCL_TABLE:-}" ] || return 0
    printf '\n%s cells right, %s failed, %s skipped.\n' "$passed" "$failed" "$skipped" >>"$NCCL_TABLE"
}

# --- one job ---

# The number that NCCL gives its version, by the first job: 22809.
nccl_version() {
    sed -n 's/^#  Rank .*\] NCCL \([0-9]*\)\.\([0-9]*\)\.\([0-9]*\):.*/\1 \2 \3/p' "$T/first" | awk 'NR == 1 { v = $1 * 10000 + $2 * 100 + $3 } END { print v + 0 }'
}

say() { # say OK? TEXT
    if [ "$1" = 1 ]; then
        passed=$((passed + 1))
        echo "ok   $2"
        table_row right
    else
        failed=$((failed + 1))
        echo "FAIL $2"
        table_row "**FAILED**: exit $rc, values wrong ${bad:-none checked}"
        tail -n 15 "$T/out" | sed 's/^/     | /'
        grep -h 'WARN' "$T"/log.* 2>/dev/null | tail -n 5 | sed 's/^/     | /'
        if [ -n "${NCCL_KEEP:-}" ]; then
            mkdir -p "$NCCL_KEEP/$name" && cp "$T"/out "$T"/log.* "$T"/events "$T"/nics* "$NCCL_KEEP/$name" 2>/dev/null
        fi
    fi
}
skip() { # skip NAME REASON
    skipped=$((skipped + 1))
    echo "SKIP $1: $2"
    checked='' gap='' carried='' said=''
    table_row "skipped: $(echo "$2" | tr '|' '/')"
}
# The fabric of a job, by the job's options: ours, so that its counters can be read at any time.
# FABRIC_GPU=1: NICs reach memory of GPUs by copies of the driver only; FABRIC_FAULT=PLACE,WHAT: from the start;
# FABRIC_UP=WORD: a word more for softfab up.
fabric_up() {
    hosts=2 nics=4 rate=unlimited gpu='' dead='' cross='' more=''
    set -- $settings -- "$@"
    while [ $# -gt 0 ]; do
        case $1 in
        --hosts) hosts=$2 ;;
        --nics) nics=$2 ;;
        --rate) rate=$2 ;;
        --crossrail) cross=--crossrail ;;
        FABRIC_GPU=1) gpu=--gpu ;;
        FABRIC_FAULT=*) dead="$dead ${1#*=}" ;;
        FABRIC_UP=*) more="$more ${1#*=}" ;;
        esac
        shift
    done
    # shellcheck disable=SC2086
    "$B/softfab" up --name $fab --hosts "$hosts" --nics "$nics" --rate "$rate" $cross $gpu $more >/dev/null || return 1
    for d in $dead; do
        "$B/softfab" fault --name $fab "$(echo "$d" | tr ',' ' ')" || return 1
    done
}
wanted() { # is $name in one of the patterns of $filter
    set -f
    for f in ${filter:-*}; do
        # shellcheck disable=SC2254
        case $name in $f) set +f && return 0 ;; esac
    done
    set +f
    return 1
}
# run NAME CODE SETTINGS... -- OPTIONS...: one job of r2_nccl, which must end with CODE; 1 when this cell is not wanted
# shellcheck disable=SC2086
run() {
    name=$1
    shift 2
    wanted || return 1
    rm -f "$T"/log.* "$T"/nics* "$T"/events*
    settings='' carried=''
    while [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    shift
    words="$*$settings"
    if [ -n "$gpus" ]; then
        lack=$(gpu_lacks $settings "$@")
        if [ -n "$lack" ]; then
            skip "$name" "$lack"
            return 1
        fi
        settings=$(gpu_settings $settings)
    fi
    fabric_up "$@" || { rc=1 bad='' row='' said="no fabric" checked='' gap=''; return 0; }
    env $settings NCCL_DEBUG_FILE="$T/log.%p" timeout -k 5 "${NCCL_LIMIT:-300}" "$B/r2_nccl" "$@" --fabric $fab --stats -T 120s \
        >"$T/out" 2>&1
    rc=$?
    "$B/softfab" status --name $fab --json >"$T/nics.end"
    "$B/softfab" down --name $fab >/dev/null
    bad=$(sed -n 's/^# Out of bounds values : \([0-9]*\).*/\1/p' "$T/out")
    row=$(awk '/^ *[0-9]+ +[0-9]+ +[a-z]/ { t = $6; b = $8 } END { if (t != "") printf "%s us, %s GB/s", t, b }' "$T/out")
    checked=$(sed -n 's/^# r2 checked \([0-9]*\) operations, 0 elements wrong/\1/p' "$T/out")
    gap=$(sed -n 's/^# r2 nothing moved on any rank for at most \([0-9.]*\) ms/\1/p' "$T/out")
    said=$(sed -n 's/.*NET\/R2 : summary: //p' "$T"/log.* 2>/dev/null | sort | uniq | head -n 2 | awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 }')
    return 0
}
right() { # the data of the last job, over this plugin, and no NIC given up for what is none of the cell's faults
    [ $rc = 0 ] && [ "$bad" = 0 ] && [ "${checked:-0}" -gt 0 ] && grep -q 'Using network R2' "$T"/log.* || return 1
    # NCCL has chosen the net ABI and read the plugin's lines: the report claims to know neither.
    grep -q '^# r2 NCCL [0-9.]*, ' "$T/out" && ! grep -q 'failovers seen' "$T/out" || return 1
    case $words in
    *gpu-dma-fail*) ;;
    *) ! grep -q 'does not reach it' "$T"/log.* ;;
    esac
}

# --- which NICs carried what ---

# sent FILE: a line per NIC: place, bytes sent
sent() {
    jq -r '.nic[] | "\(.place) \(.tx_bytes)"' "$1"
}
# Between two looks at the counters, the shares of the NICs of each host into $carried; false when a NIC of the list
# @3 ("h0:n1,h1:n2", "-": none, and nothing is judged) has sent more than 2 % of what the busiest of its host has, or a
# NIC on another rail than those has sent nothing.
traffic() { # FROM TO LOST
    carried=$( (
        sent "$1" | sed 's/^/from /'
        sent "$2" | sed 's/^/to /'
    ) | awk -v lost="$3" '
        BEGIN {
            k = split(lost, of_list, ",")
            for (i = 1; i <= k; i++) { sub(/.*:/, "", of_list[i]); rail[of_list[i]] = 1 }
        }
        $1 == "from" { before[$2] = $3; next }
        {
            h = $2; sub(/:.*/, "", h); r = $2; sub(/.*:/, "", r)
            if (!(h in text)) { order[++n] = h; text[h] = "" }
            moved[$2] = $3 - before[$2]; sum[h] += moved[$2]; count[h]++
            if (moved[$2] > most[h]) { most[h] = moved[$2] }
            place[h, count[h]] = $2
            if (lost != "-" && !(r in rail) && moved[$2] == 0) { bad = 1 }
        }
        END {
            for (i = 1; i <= n; i++) {
                h = order[i]; printf "%s%s", (i > 1 ? "; " : ""), h
                for (j = 1; j <= count[h]; j++) {
                    p = place[h, j]
                    printf " %.0f%%", (sum[h] ? moved[p] * 100 / sum[h] : 0)
                    if (index("," lost ",", "," p ",") && moved[p] * 50 > most[h]) { bad = 1 }
                }
                all += sum[h]
            }
            exit lost != "-" && (bad || all < 1000000)
        }')
}

# --- cells ---

# cell NAME SETTINGS... -- OPTIONS...: data right, over this plugin
cell() {
    n=$1
    shift
    run "$n" 0 "$@" || return 0
    ok=0
    right && ok=1
    say $ok "$n: exit $rc, values wrong ${bad:-none checked}, ${checked:-0} operations, $row"
}
# theirs NAME SETTINGS... -- OPTIONS...: the same over NCCL's own IB transport, so that bench_nccl.sh has something to compare with
theirs() {
    name=$1
    shift
    wanted || return 0
    if ! unshare -m true 2>/dev/null; then
        words="$*"
        skip "$name" "NCCL's IB transport looks its NICs up in /sys; one of its own wants root, and that 'unshare -m' is allowed"
        return 0
    fi
    n=$name
    run "$n" 0 NCCL_NET=IB "$@" || return 0
    ok=0
    [ $rc = 0 ] && [ "$bad" = 0 ] && [ "${checked:-0}" -gt 0 ] && grep -q 'Using network IB' "$T"/log.* && grep -q 'via NET/IB/' "$T"/log.* && ok=1
    say $ok "$n: exit $rc, values wrong ${bad:-none checked}, ${checked:-0} operations, $row"
}
# without NAME LOST SETTINGS... -- OPTIONS...: the same with NICs that never carried anything
without() {
    n=$1 lost=$2
    shift 2
    run "$n" 0 "$@" || return 0
    ok=0
    jq '.nic[].tx_bytes = 0' "$T/nics.end" >"$T/nics.zero"
    traffic "$T/nics.zero" "$T/nics.end" "$lost" && right && ok=1
    say $ok "$n: exit $rc, values wrong ${bad:-none checked}, ${checked:-0} operations, $row; carried $carried; $said"
}
# fired N: as many faults happened, and the counters were read behind them
fired() {
    [ "$(grep -c '^# r2 fault .*(command took' "$T/out")" = $(($1 + 1)) ]
}
# job_with_faults NAME SWITCHES FAILBACKS SETTINGS... -- OPTIONS...: run, and counters behind the last of its faults, which
# are in order of time, once as many NICs have been left and have come back; with $tcp_hosts those of TCP, too
tcp_hosts=''
job_with_faults() {
    n=$1 switches=$2 backs=$3 last=0s
    shift 3
    for word in "$@"; do
        case $word in
        [0-9]*s:*) last=${word%%:*} ;;
        esac
    done
    case $last in
    *ms) last=$((${last%ms} + 1))ms ;;
    *) last=$((${last%s} * 1000 + 1))ms ;;
    esac
    run "$n" 0 "$@" --after 2s \
        --fault-cmd "$last:sh tests/nccl/settled.sh '$B' $fab '$T/events' $switches $backs '$T/nics.settled' $tcp_hosts" || return 1
    words=${words%% --after 2s*}$settings
    [ -s "$T/nics.settled" ] || cp "$T/nics.end" "$T/nics.settled"
}
fault_say() {
    say $ok "$n: exit $rc, values wrong ${bad:-none checked}, ${checked:-0} operations, nothing moved for ${gap:-?} ms; carried ${carried:-not known}; $said"
}
# fault NAME FAULTS LOST SETTINGS... -- OPTIONS...: with so many faults, which the plugin has noticed; once it has got over
# them the NICs in LOST ("h0:n1,h1:n2"; "-": none) carry nothing
fault() {
    n=$1 want=$2 lost=$3
    shift 3
    case $lost in
    -) switches=1 ;;
    *) switches=$(echo "$lost" | tr ',' '\n' | grep -c .) ;;
    esac
    job_with_faults "$n" "$switches" 0 "$@" || return 0
    ok=0
    traffic "$T/nics.settled" "$T/nics.end" "$lost" && right && fired "$want" && grep -q 'summary: faults [1-9]' "$T"/log.* && ok=1
    fault_say
}
# told NAME FAULTS LOST SETTINGS... -- OPTIONS...: the same with a fault that holds what is under way for two seconds: what the
# plugin says of the stall is what the job saw
told() {
    want=$2 lost=$3
    n=$1
    shift 3
    job_with_faults "$n" 1 0 "$@" || return 0
    ok=0
    traffic "$T/nics.settled" "$T/nics.end" "$lost" && right && fired "$want" && grep -q 'quarantine ends, the time' "$T"/log.* &&
        sed -n 's/.*summary: .*longest stall \([0-9.]*\) ms.*/\1/p' "$T"/log.* |
        awk -v gap="$gap" '$1 > most { most = $1 } END { exit !(gap > 1500 && most > gap * 0.6 && most < gap * 1.5) }' && ok=1
    fault_say
}
# returns NAME FAULTS PLACE SETTINGS... -- OPTIONS...: with so many faults, the last of which mends; PLACE carries again
returns() {
    n=$1 want=$2 place=$3
    shift 3
    job_with_faults "$n" 1 1 "$@" || return 0
    before=$(sent "$T/nics.settled" | sed -n "s/^$place //p")
    ok=0
    traffic "$T/nics.settled" "$T/nics.end" - && right && fired "$want" && grep -q 'failbacks [1-9]' "$T"/log.* &&
        [ "$(sent "$T/nics.end" | sed -n "s/^$place //p")" -gt "$before" ] && ok=1
    fault_say
}
# drained NAME NIC PLACE SETTINGS... -- OPTIONS...: NIC of host 0, which is PLACE, is drained by r2_ctl, and nothing is sent twice
drained() {
    n=$1 nic=$2 lost=$3
    shift 3
    job_with_faults "$n" 0 0 "$@" --fault-cmd "1s:$B/r2_ctl drain --wait --limit 60 $nic" || return 0
    ok=0
    traffic "$T/nics.settled" "$T/nics.end" "$lost" && right && fired 1 && grep -q 'DOWN: administrator' "$T"/log.* &&
        ! grep -q 'settled: [1-9][0-9]* parts to retransmit' "$T"/log.* && ok=1
    fault_say
}
# bears NAME FAULTS SETTINGS... -- OPTIONS...: the same with faults that no NIC need be left for
bears() {
    n=$1 want=$2
    shift 2
    job_with_faults "$n" 0 0 "$@" || return 0
    ok=0
    traffic "$T/nics.settled" "$T/nics.end" - && right && fired "$want" && ok=1
    fault_say
}
# resorts NAME FAULTS SETTINGS... -- OPTIONS...: the faults take all NICs of a host, and the job goes on over TCP; where the last
# of them mends, over the NICs again
resorts() {
    n=$1 want=$2 mends=0 tcp_hosts=2 before=""
    shift 2
    for word in "$@"; do
        case $word in
        *:*' up' | *:*' restore' | *:*' unhang') mends=1 ;;
        esac
        [ "$before" = --hosts ] && tcp_hosts=$word
        before=$word
    done
    job_with_faults "$n" 1 $mends NCCL_R2_LAST_RESORT=auto NCCL_R2_T_RETURN=100 "$@"
    rc_job=$? tcp_hosts=''
    [ $rc_job = 0 ] || return 0
    ok=0
    # behind the loss of all of them what a host sends it sends over TCP
    tcp=$(jq -s '[.. | objects | select(.device? == "tcp0") | .sent_bytes // 0] | add // 0' "$T/nics.settled.tcp" 2>/dev/null)
    traffic "$T/nics.settled" "$T/nics.end" -
    carried="tcp0 $((${tcp:-0} / 1000000)) MB; then $carried"
    right && fired "$want" && [ "${tcp:-0}" -gt 1000000 ] && grep -q 'last resort: no RDMA path is left' "$T"/log.* &&
        grep -q 'summary: faults [1-9]' "$T"/log.* && ! grep -q 'gave up [1-9]' "$T"/log.* && returned $mends && ok=1
    fault_say
}
# returned MENDS: 0, or each host's NICs carry behind the last fault, and none of the job goes over TCP
returned() {
    [ "$1" = 0 ] && return 0
    grep -q 'last resort: no connection goes over tcp0 any more' "$T"/log.* && grep -q 'failbacks [1-9]' "$T"/log.* && (
        sent "$T/nics.settled" | sed 's/^/from /'
        sent "$T/nics.end" | sed 's/^/to /'
    ) | awk '
        $1 == "from" { before[$2] = $3; next }
        { h = $2; sub(/:.*/, "", h); moved[h] += $3 - before[$2] }
        END { for (h in moved) { if (moved[h] < 100000) { exit 1 } } }'
}
# dies NAME TEXT SETTINGS... -- OPTIONS...: NCCL ends the communicator with an error that has TEXT in it
dies() {
    n=$1 text=$2
    shift 2
    name=$n words="$*"
    wanted || return 0
    case $(nccl_version) in
    2260[2-9] | 227[0-9][0-9])
        skip "$n" "NCCL 2.26.2 to 2.27.7 drops an error of the network (progressOps()): nothing ends the communicator"
        return 0
        ;;
    esac
    run "$n" 3 "$@" || return 0
    ok=0
    [ $rc = 3 ] && grep -q "^# error: .*$text" "$T/out" && ok=1
    said=$(sed -n 's/^# error: //p' "$T/out" | cut -c1-160)
    say $ok "$n: exit $rc, $said"
}
