# What of a run counts, from what it left in $tmp: out (its output), nccl.RANK (NCCL's logs), taken (places and names of the NICs that faults took),
# status (of the fabric, at its end); and $rc, $op, $proto, $GDR. run.sh sources it.
right_data() {
    grep -q '^# r2 checked [1-9][0-9]* operations, 0 elements wrong$' "$tmp/out"
}
# ranks_saying PATTERN: how many ranks' logs have it
ranks_saying() {
    grep -lE -- "$1" "$tmp"/nccl.[0-9] 2>/dev/null | wc -l | tr -d ' '
}
# faults_missed N: N faults were to take a NIC each, every one at another host; what one of them lacks, nothing if all hit. The log of that host's own rank
# has to say that a path of a connection went down with that NIC: that a NIC went down says nothing of those who use it.
faults_missed() {
    if [ "$(cut -d: -f1 "$tmp/taken" | sort -u | grep -c .)" != "$1" ]; then
        echo "NICs were taken at other than $1 hosts: $(tr '\n' ',' <"$tmp/taken")"
        return
    fi
    while read -r place nic; do
        host=${place%%:*}
        grep -qE "NET/R2 : (send|recv) .* path [0-9]+ life [0-9]+ UP -> DOWN: .*(local NIC|on) $nic(,|\$)" "$tmp/nccl.${host#h}" ||
            echo "no path went down with $place: that fault hit nothing"
    done <"$tmp/taken" | head -1
}
# Of $1, sendrecv or alltoall: bytes that NICs sent for each byte that ranks sent to others. A line of LL is half data and half flags.
wire_factor() {
    awk -v op="$1" -v n="$RANKS" '
        FILENAME ~ /out$/ && /^# r2 size / { for (i = 5; i < NF; i++) if ($(i + 1) == "iterations,") want += $4 * $i }
        FILENAME ~ /status$/ && $1 ~ /^h[0-9]+:n[0-9]+$/ { sent += $6 }
        END { if (want > 0) printf "%.2f\n", sent / (want * (op == "alltoall" ? n - 1 : n)) }' "$tmp/out" "$tmp/status"
}
# proto_seen OP: the protocols that were used, as far as something tells: NCCL's log (of collectives; up to 2.23 by number), else what was sent
proto_seen() {
    case $1 in
    sendrecv | alltoall) wire_factor "$1" | awk '{ print ($1 >= 1.5 ? "LL" : "Simple"), "(" $1 " bytes sent for one)" }' ;;
    *)
        cat "$tmp"/nccl.[0-9] | sed -n 's/.* Bytes -> Algo .* proto \([A-Za-z0-9]*\).*/\1/p' |
            sed -e 's/^0$/LL/' -e 's/^1$/LL128/' -e 's/^2$/Simple/' -e 's/^SIMPLE$/Simple/' | sort -u | paste -s -d ' ' -
        ;;
    esac
}
# Whether the protocol is another than asked for. That NCCL's log says nothing of a collective is no proof against it.
proto_wrong() {
    seen=$(proto_seen "$op")
    case $op-$seen in
    sendrecv- | alltoall-) echo "what was sent is not known" ;;
    *- | *-"$proto" | *-"$proto ("*) ;;
    *) echo "$proto was asked for, NCCL used $seen" ;;
    esac
}
# NCCL flushes what comes by Simple alone. In a broadcast the root receives nothing.
flush_missing() {
    [ -n "$GDR" ] && [ "$proto" = Simple ] || return
    want=$RANKS
    [ "$op" = broadcast ] && want=$((RANKS - 1))
    flushed=$(ranks_saying 'NET/R2 : recv .* flushed by [1-9][0-9]* reads')
    [ "$flushed" -ge "$want" ] || echo "$flushed ranks flushed what they received, $want receive"
}
# why_not CASE: why a run inside NCCL does not count; nothing if it does
why_not() {
    if [ "$rc" != 0 ]; then
        echo "exit status $rc"
    elif ! right_data; then
        echo "not checked, or wrong"
    elif [ "$(ranks_saying 'Using network R2')" != "$RANKS" ]; then
        echo "not every rank says that it uses the plugin"
    elif [ -n "$GDR" ] && [ "$(ranks_saying 'NET/R2/.*GDRDMA')" != "$RANKS" ]; then
        echo "not every rank has connections from and to memory of the GPU"
    else
        {
            flush_missing
            case $1 in
            one | back) faults_missed 1 ;;
            two) faults_missed 2 ;;
            esac
            [ "$1" = back ] && [ "$(ranks_saying ' life ([2-9]|[1-9][0-9]+) is up')" = 0 ] && echo "no path came back"
            proto_wrong
        } | head -1
    fi
}
table_begin() {
    echo "| program | operation | protocol | seen | case | result | operations checked | longest stall after a fault, ms |" \
        "busbw before, during, after, GB/s |" >"$out/table.md"
    echo "|---|---|---|---|---|---|---|---|---|" >>"$out/table.md"
}
# table_add PROGRAM OP PROTO CASE RESULT
table_add() {
    checked=$(sed -n 's/^# r2 checked \([0-9]*\) .*/\1/p' "$tmp/out")
    stall=$(sed -n 's/^# r2 stall after fault [0-9]*: \([0-9.-]*\) ms.*/\1/p' "$tmp/out" | sort -n | tail -1)
    rate=$(sed -n 's/^# r2 busbw before \([^ ]*\) during \([^ ]*\) after \([^ ]*\).*/\1, \2, \3/p' "$tmp/out")
    seen=$(proto_seen "$2")
    echo "| $1 | $2 | $3 | ${seen:--} | $4 | $5 | ${checked:--} | ${stall:--} | ${rate:--} |" >>"$out/table.md"
}
