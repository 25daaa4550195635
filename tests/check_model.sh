#!/bin/sh
# Checks the Promela model of the protocol (docs/model/README.md) with spin.
#   check_model.sh BUILD [--deep] [NAME...]    all configurations, with --deep the "deep" ones as well; or those with these names
# A "full" row must hold in its whole state space, as must the "large" and "deep" ones, whose verifiers are worth an optimising compiler. A
# "fails" row has one rule switched off, or asks whether something can happen at all: it must give the error named. Closes with "N passed, N failed".
set -u
src=docs/model
MEM=2000     # MiB of one verifier; with --deep twice that
LIMIT=3600   # seconds of one verifier: a bound against hangs
DEPTH=20000

# kind, name, file, error expected or "-", definitions
table() {
    cat <<'ROWS'
full one-message failover - NM=1
full base failover - NM=3 W=2 CUT=3
full four-messages failover - NM=4 W=2 CUT=1
full seen-by-sender failover - NM=3 W=2 CUT=3 ONLY_S
full seen-by-receiver failover - NM=3 W=2 CUT=3 ONLY_R
full watchdogs-only failover - NM=3 W=2 CUT=3 WATCH
full watchdogs-outage failover - NM=2 W=2 CUT=1 NL=4 F=2 WATCH
full nic-death failover - NM=3 W=2 CUT=3 F=0 FD=1
full nic-death-watchdogs failover - NM=3 W=2 CUT=1 F=0 FD=1 WATCH
large sender-nic-death failover - NM=3 W=2 CUT=1 F=0 FS=1 WATCH
large accounting failover - NM=3 W=2 CUT=1 ACCOUNT
full accounting-nic-death failover - NM=2 W=2 CUT=1 ACCOUNT F=0 FD=1 WATCH
full soft-receiver failover - NM=3 W=2 CUT=1 SOFT_R
full soft-both failover - NM=2 W=1 CUT=1 SOFT_R SOFT_S ACCOUNT
full return failover - NM=3 W=2 CUT=3 NL=3
full return-soft failover - NM=2 W=2 CUT=1 NL=3 SOFT_R SOFT_S
full soft-both-return failover - NM=2 W=1 NL=3 SOFT_R SOFT_S ACCOUNT
full outage failover - NP=1 NL=3 F=2 NM=3 W=2 CUT=1
full calls-at-any-time failover - NM=3 W=2 CUT=1 LAZY
full groups failover - NM=4 W=2 G=2 CUT=1 LAZY
full receive-queue failover - NM=4 W=4 RQ=3 RESERVE=2 CUT=1
full receive-queue-accounting failover - NM=3 W=3 RQ=2 RESERVE=1 ACCOUNT
full receive-queue-return failover - NM=3 W=3 RQ=2 RESERVE=1 NL=3
large receive-queue-two-faults failover - NP=3 F=2 NM=3 W=2 RQ=2 RESERVE=1
full fresh-ledger failover - NM=3 W=2 CUT=1 FRESH
full sequence-wrap failover - NM=3 W=2 SEQ_MOD=2
full two-faults failover - NP=3 F=2 NM=2 W=1 CUT=1
full two-faults-return failover - NL=4 F=2 NM=2 W=1 CUT=1
full three-faults-return failover - NL=4 F=3 NM=2 W=1 CUT=1
full close close -
full cut cut -
full nic-of-three-connections nic - NC=3
acyclic no-cycle failover - NM=2 W=2 CUT=1
acyclic no-cycle-return failover - NM=2 W=1 CUT=1 NL=3 SOFT_R
large two-faults-cut failover - NP=3 F=2 NM=2 W=1 CUT=3
deep two-faults-window failover - NP=3 F=2 NM=3 W=2 CUT=1
deep two-faults-window-cut failover - NP=3 F=2 NM=3 W=2 CUT=3 FIRST0 MERGED
deep two-faults-soft failover - NP=3 F=2 NM=2 W=1 CUT=1 SOFT_R
deep two-faults-return-soft failover - NL=4 F=2 NM=2 W=1 CUT=1 SOFT_R SOFT_S
deep three-paths-return-soft failover - NP=3 NL=4 F=2 NM=2 W=1 SOFT_R
large groups-window failover - NM=4 W=4 G=2 CUT=1 LAZY
full groups-return failover - NM=4 W=2 G=2 CUT=1 LAZY NL=3
deep soft-both-return-two-faults failover - NM=2 W=1 NL=4 F=2 SOFT_R SOFT_S ACCOUNT
deep soft-both-window failover - NM=2 W=2 CUT=1 SOFT_R SOFT_S ACCOUNT
full ways failover - NM=2 W=2 CUT=1 NL=3 FD=1 WAYS
full ways-soft failover - NM=2 W=1 NL=3 FD=1 SOFT_R WAYS
full ways-twice failover - NM=2 W=1 NL=4 F=2 FD=1 WAYS
full ways-watchdogs failover - NM=2 W=1 NL=3 FD=1 WATCH WAYS
full ways-sender-nic failover - NM=2 W=1 NL=3 FS=1 WATCH WAYS
full ways-accounting failover - NM=2 W=1 NL=3 FD=1 ACCOUNT WAYS
full ways-adaptive failover - NM=2 W=1 NL=3 FD=1 ADAPTIVE=3 WAYS
full ways-ack-flush failover - NM=2 W=1 NL=3 FD=1 FLUSH WAYS
acyclic no-cycle-ways failover - NM=2 W=1 NL=3 FD=1 WAYS
full without-second-ack failover - NM=3 W=2 CUT=3 NO_ACK_AGAIN
full one-ring failover - NM=3 W=2 NL=3 RINGS=3
large one-ring-two-faults failover - NM=2 W=1 NL=4 F=2 RINGS=3
full without-wait-for-sender-fence failover - NM=3 W=2 NO_WAIT_FOR_S_FENCE ACCOUNT
full without-wait-for-sender-fence-soft failover - NM=2 W=1 CUT=1 NO_WAIT_FOR_S_FENCE SOFT_R SOFT_S
full without-sender-fence failover - NM=3 W=2 CUT=1 NO_SEND_FENCE
full without-sender-fence-return failover - NM=2 W=1 NL=3 RINGS=0 NO_SEND_FENCE
full without-sender-hold failover - NM=2 W=1 CUT=1 ACCOUNT SOFT_S NO_SENDER_HOLD
full without-own-requests failover - NM=2 W=2 CUT=1 ACCOUNT NO_OWN_REQUESTS
full without-ring-clear failover - NM=2 W=1 NL=3 RINGS=3 NO_RING_CLEAR
full without-settled-at-sender failover - NL=4 F=2 NM=2 W=1 CUT=1 NO_SETTLED_AT_S
full without-wait-for-hold failover - NM=2 W=1 CUT=1 NL=3 SOFT_R SOFT_S NO_WAIT_FOR_HOLD
full without-wait-for-hold-gpu failover - NM=2 W=1 NL=3 GPU SOFT_R NO_WAIT_FOR_HOLD
full adaptive failover - NM=3 W=2 CUT=1 ADAPTIVE=3
full adaptive-on-one-path failover - NM=3 W=2 CUT=1 ADAPTIVE=1 SMALL=2 NL=3
full adaptive-soft failover - NM=2 W=1 CUT=1 ADAPTIVE=3 SOFT_R
full adaptive-soft-accounting failover - NM=2 W=1 ADAPTIVE=3 SOFT_R SOFT_S ACCOUNT
full adaptive-return failover - NM=2 W=2 CUT=1 ADAPTIVE=3 NL=3
full adaptive-accounting failover - NM=2 W=1 CUT=1 ADAPTIVE=3 ACCOUNT
full adaptive-nic-death failover - NM=2 W=2 CUT=1 ADAPTIVE=3 F=0 FD=1
full adaptive-two-faults failover - NP=3 F=2 NM=2 W=1 ADAPTIVE=7
full size-records failover - NM=3 W=2 RQ=2 RESERVE=1 ADAPTIVE=3
full bad-record failover - NM=3 W=2 ADAPTIVE=3 BAD_RECORD
full bad-record-wrap failover - NM=3 W=1 RQ=1 SEQ_MOD=1 ADAPTIVE=3 BAD_RECORD
full gpu failover - NM=2 W=2 CUT=1 GPU
full gpu-adaptive failover - NM=2 W=2 GPU ADAPTIVE=3
full gpu-soft failover - NM=2 W=1 CUT=1 GPU SOFT_R
full ack-flush failover - NM=2 W=2 CUT=1 FLUSH
full ack-flush-nic-death failover - NM=3 W=2 FLUSH F=0 FD=1
full ack-flush-watchdogs failover - NM=2 W=2 FLUSH F=0 FD=1 WATCH
full ack-flush-adaptive failover - NM=2 W=2 FLUSH F=0 FD=1 ADAPTIVE=3
full ack-flush-return failover - NM=2 W=2 FLUSH NL=3
full ack-flush-no-reads failover - NM=2 W=2 CUT=1 FLUSH READ_FAULT
full ack-flush-soft failover - NM=2 W=1 CUT=1 FLUSH SOFT_R
full drain failover - NM=3 W=2 CUT=1 NL=3 DRAIN F=0
large drain-fault failover - NM=2 W=2 CUT=1 NL=3 DRAIN
large drain-watchdogs failover - NM=2 W=2 CUT=1 NL=3 DRAIN WATCH
deep drain-fault-window failover - NM=3 W=2 CUT=1 NL=3 DRAIN
deep give-up-window failover - NM=3 W=2 CUT=1 F=2 GIVE_UP
large give-up failover - NM=2 W=2 CUT=1 F=2 GIVE_UP
large give-up-soft failover - NM=2 W=1 F=2 GIVE_UP SOFT_R
large give-up-return failover - NM=2 W=1 NL=3 F=3 GIVE_UP
large abort failover - NM=2 W=2 CUT=1 ABORT=3
acyclic no-cycle-adaptive failover - NM=2 W=1 CUT=1 ADAPTIVE=3
acyclic no-cycle-ack-flush failover - NM=2 W=1 FLUSH F=0 FD=1
acyclic no-cycle-drain failover - NM=2 W=1 NL=3 DRAIN
acyclic no-cycle-give-up failover - NM=2 W=1 F=2 GIVE_UP
acyclic no-cycle-word failover - NM=2 W=1 CUT=1 SOFT_R WORD
deep adaptive-two-faults-cut failover - NP=3 F=2 NM=2 W=1 CUT=1 ADAPTIVE=7
deep adaptive-nic-death-cut failover - NM=3 W=2 CUT=1 ADAPTIVE=3 F=0 FD=1
deep ack-flush-nic-death-cut failover - NM=3 W=2 CUT=1 FLUSH F=0 FD=1
deep ack-flush-two-faults failover - NP=3 FD=1 NM=2 W=1 CUT=1 FLUSH
deep ack-flush-soft-window failover - NM=2 W=2 CUT=1 FLUSH SOFT_R
full word failover - NM=3 W=2 CUT=1 SOFT_R WORD
full word-soft-both failover - NM=2 W=1 CUT=1 SOFT_R SOFT_S ACCOUNT WORD
full word-return failover - NM=2 W=2 CUT=1 NL=3 SOFT_R SOFT_S WORD
full word-adaptive failover - NM=2 W=1 CUT=1 ADAPTIVE=3 SOFT_R WORD
full word-gpu failover - NM=2 W=1 CUT=1 GPU SOFT_R WORD
full word-ack-flush failover - NM=2 W=2 CUT=1 FLUSH WORD
large word-two-faults failover - NP=3 F=2 NM=2 W=1 SOFT_R WORD
fails no-receiver-fence failover ghost_write NO_RECV_FENCE
fails no-markers failover ghost_write NO_MARKERS
fails no-close-of-incarnation failover ghost_write NO_CLOSE_INC
fails no-ledger failover ghost_write NO_LEDGER
fails no-retransmit-by-incarnation failover ghost_write NO_RETRANSMIT_INC
fails retransmit-of-fenced-incarnations failover ghost_write NO_RETRANSMIT_INC_IF_FENCED NP=3 F=2
fails second-completion-of-open-incarnation failover duplicate_completion NO_CLOSE_INC LET_GHOSTS
fails second-completion-of-known-part failover duplicate_completion NO_LEDGER LET_GHOSTS
fails second-completion-of-live-part failover duplicate_completion NO_RETRANSMIT_INC LET_GHOSTS
fails no-sender-fence failover end NO_SEND_FENCE SOFT_R
fails no-sender-fence-of-ring failover end NO_SEND_FENCE NL=3 RINGS=1
fails no-sender-fence-of-word failover end NO_SEND_FENCE NL=3 RINGS=2
fails no-end-to-end-ack failover lost_data NO_E2E_ACK ACCOUNT F=0 FD=1
fails no-arrival-of-before failover end NO_P5 W=2
fails no-second-cts failover end NO_CTS_REWRITE
fails no-lone-ack failover end NO_LONE_ACK
fails no-hold failover ghost_write NO_HOLD SOFT_R
fails no-hold-of-later-receives failover ghost_write NO_HOLD_LATER SOFT_R
fails no-hold-of-a-made-up-flush failover ghost_write NO_HOLD_TOLD SOFT_R
fails no-packet-time-in-hold failover ghost_write NO_HOLD_PACKET SOFT_R
fails no-sender-hold failover changed_source NO_SENDER_HOLD SOFT_R SOFT_S ACCOUNT
fails no-sender-hold-of-soft-receiver failover changed_source NO_SENDER_HOLD_SOFT SOFT_R SOFT_S ACCOUNT
fails no-sender-hold-of-pairs failover changed_source NO_SENDER_HOLD_SOFT SOFT_R SOFT_S ACCOUNT ADAPTIVE=3
fails no-own-requests failover changed_source NO_OWN_REQUESTS SOFT_R SOFT_S ACCOUNT
fails no-full-incarnation failover ghost_write NO_FULL_INC NL=3
fails no-new-queue-pair failover ghost_write NO_NEW_QP NL=3
fails no-settled failover end NO_SETTLED NL=3
fails no-open-up failover ghost_write NO_OPEN_UP NL=3
fails no-watchdog failover end NO_WATCHDOG WATCH ACCOUNT F=0 FD=1
fails no-cts-request failover end NO_CTS_REQUEST W=2 WATCH F=0 FS=1
fails no-second-telling failover end NO_TELL W=2 WATCH F=0 FS=1
fails no-bound-on-posts failover no_receive NO_RQ_BOUND NM=3 W=3 RQ=2 RESERVE=1
fails no-bound-on-pairs failover no_receive NO_RQ_BOUND NM=3 W=3 RQ=2 RESERVE=1 SLOTS=3 ADAPTIVE=3
fails receives-until-completion failover no_receive NO_RQ_ACK NM=3 W=3 RQ=2 RESERVE=1 ACCOUNT
fails no-reserve failover end NM=3 W=3 RQ=2
fails reserve-below-parts failover end NM=4 W=4 RQ=3 RESERVE=1 CUT=1
fails window-above-modulus failover wrong_message NM=3 W=3 SEQ_MOD=2
fails no-frozen-cut cut unwritten NO_FROZEN_CUT
fails no-tombstone close lost_transfer NO_TOMBSTONE
fails no-bound-on-linger close end NO_LINGER_BOUND
fails no-ledger-in-bye close false_success NO_BYE_LEDGER
fails no-second-look nic end NO_LOOK_AGAIN
fails no-generation nic false_failover NO_GENERATION
fails no-live-half-of-a-pair failover ghost_write NO_PAIR_LIVE ADAPTIVE=3
fails no-order-of-pairs failover unwritten NO_PAIR_ORDER ADAPTIVE=3
fails pair-on-two-paths failover unwritten NO_ONE_QP ADAPTIVE=3 F=0
fails too-few-records failover overwritten NM=3 W=2 RQ=2 RESERVE=1 SLOTS=1 COPIES=2 ADAPTIVE=3
fails too-few-copies failover changed_record NM=3 W=2 RQ=2 RESERVE=1 COPIES=1 ADAPTIVE=3
fails no-record-check failover wrong_size NO_RECORD_CHECK ADAPTIVE=3 BAD_RECORD
fails no-record-clear failover wrong_size NO_RECORD_CLEAR NM=3 RQ=1 SEQ_MOD=1 ADAPTIVE=3 BAD_RECORD
fails no-restart-of-records failover false_fault NO_RECORD_RESTART ADAPTIVE=3 NL=3
fails no-pcie-time-in-flush failover unwritten NO_FLUSH_PCIE GPU
fails acknowledged-unread failover unwritten GPU F=0 FD=1
fails read-through-another-nic failover unwritten NO_SAME_NIC FLUSH F=0 FD=1
fails no-drop-of-unread failover ghost_write NO_UNREAD FLUSH
fails second-completion-of-unread failover duplicate_completion NO_UNREAD LET_GHOSTS FLUSH
fails no-limit-of-reads failover end NO_READ_LIMIT FLUSH READ_FAULT
fails no-hold-of-pcie failover ghost_write NO_HOLD_PCIE FLUSH F=0 FD=1
fails no-hold-of-pcie-half-a-pair failover ghost_write NO_HOLD_PCIE GPU ADAPTIVE=3
fails no-wait-for-quiet failover retransmitted NO_DRAIN_WAIT NL=3 DRAIN F=0
fails last-path-drained failover end NO_DRAIN_LAST NL=3 DRAIN
fails no-return-of-drained failover end NO_DRAIN_RETURN NL=3 DRAIN
fails no-return-instead-of-silence failover end NO_DRAIN_SPARE NL=3 DRAIN WATCH
fails no-give-up failover end NO_GIVE_UP GIVE_UP F=2
fails keys-used-again failover ghost_write NO_ABORT_ERR ABORT=1 F=0
fails keys-used-again-at-sender failover changed_source NO_ABORT_ERR ABORT=2 F=0
fails no-ledger-in-abort failover false_success NO_BYE_LEDGER ABORT=3 F=0
fails no-bye-of-abort failover end NO_BYE ABORT=1 F=0
fails no-live-parts failover ghost_write NO_LIVE_PARTS SOFT_R WORD
fails no-live-parts-of-pairs failover ghost_write NO_LIVE_PARTS ADAPTIVE=3 SOFT_R WORD
fails live-parts-less-half-a-pair failover ghost_write NO_LIVE_PAIR ADAPTIVE=3 SOFT_R WORD
fails no-live-parts-of-gpu failover ghost_write NO_LIVE_PARTS FLUSH F=0 FD=1 WORD
fails live-parts-after-retransmit failover ghost_write NO_LIVE_FROZEN SOFT_R WORD
fails live-parts-less-present-ledger failover ghost_write NO_LIVE_LEDGER SOFT_R WORD
fails reach-retransmit failover it_happens REACH_RETRANSMIT
fails reach-overlap failover it_happens REACH_OVERLAP NP=3 F=2
fails reach-return failover it_happens REACH_RETURN NL=3
fails reach-death-behind-a-way failover it_happens REACH_DEATH NL=3 FD=1 WAYS
fails reach-death-under-the-next failover it_happens REACH_DEATH_NEXT NL=3 FD=1 WAYS
fails reach-hold failover it_happens REACH_HOLD SOFT_R
fails reach-free failover it_happens REACH_FREE W=2 SOFT_R WORD
fails reach-loss failover it_happens REACH_LOSS ACCOUNT F=0 FD=1
fails reach-half-a-pair failover it_happens REACH_HALF ADAPTIVE=3
fails reach-lost-record failover it_happens REACH_REWRITE ADAPTIVE=3
fails reach-bad-record failover it_happens REACH_BAD ADAPTIVE=3 BAD_RECORD
fails reach-unread failover it_happens REACH_DROP FLUSH
fails reach-drain failover it_happens REACH_DRAIN NL=3 DRAIN F=0
full place place -
large place-attempts place - NA=3 LATER=1
large place-ranks place - NR=3 LATER=0
deep place-attempts-later place - NA=3
fails place-half place decision HALF
fails place-late place used LATE
fails place-eager place used EAGER
fails place-rush place end RUSH
fails place-forget place used FORGET
fails place-overtake place end OVERTAKE
fails reach-place place rank REACH
ROWS
}

if ! command -v spin >/dev/null 2>&1; then
    echo "spin is not installed"
    exit 77
fi
[ $# -ge 1 ] || { echo "usage: check_model.sh BUILD [--deep] [NAME...]" >&2; exit 2; }
B=$1 out=$1/model
shift
deep=
[ "${1:-}" = --deep ] && deep=1 MEM=4000 && shift
mkdir -p "$out" && src=$(cd "$src" && pwd) || exit 2
passed=0 failed=0

verdict() { # ok|FAILED text
    echo "$1 $2"
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# In the folder of the configuration: pan, its output in pan.out.
verify() { # file, flags of the compiler, flags of pan, definitions
    file=$1 cflags=$2 flags=$3
    shift 3
    defs=
    for d in "$@"; do defs="$defs -D$d"; done
    # shellcheck disable=SC2086
    spin -a $defs "$src/$file.pml" >spin.out 2>&1 &&
        ${CC:-gcc} $cflags -w -DNOREDUCE -DCOLLAPSE "-DMEMLIM=$MEM" -o pan pan.c >cc.out 2>&1 || return 1
    # shellcheck disable=SC2086
    timeout "$LIMIT" ./pan "-m$DEPTH" $flags >pan.out 2>&1
}

figures() {
    awk '/states, stored/ { n = $1 } /total actual memory usage/ { m = $1 } /pan: elapsed time/ { t = $4 }
        END { printf "%s states, %.0f MiB, %s s", n, m, t }' pan.out
}

holds() { # rc name
    if [ "$1" -eq 0 ] && grep -q 'errors: 0$' pan.out && grep -q 'states, stored' pan.out &&
        ! grep -Eq 'depth too small|MEMLIM|out of memory|not completed' pan.out; then
        verdict ok "$2: $(figures)"
    else
        verdict FAILED "$2: status $1 $(grep -Eh 'pan:1:|errors:|depth too small|MEMLIM|rror:' spin.out cc.out pan.out 2>/dev/null | head -3 | tr '\n' ' ')"
    fi
}
full() { # name file - definitions
    name=$1 file=$2
    shift 3
    verify "$file" "$opt -DSAFETY" "" "$@"
    holds $? "$name"
}
# No run goes on for ever: then the end states that the other searches look at are all that can come.
acyclic() { # name file - definitions
    name=$1 file=$2
    shift 3
    verify "$file" "-O0 -DNP" -l "$@"
    holds $? "$name"
}

fails() { # name file error definitions
    name=$1 file=$2 want=$3
    shift 3
    flags=-E # a search for an assertion goes on behind invalid end states
    [ "$want" != end ] || flags=
    verify "$file" "-O0 -DSAFETY" "$flags" "$@"
    got=$(sed -n "s/^pan:1: assertion violated (*/assertion /p; s/^pan:1: //p" pan.out 2>/dev/null | head -n 1)
    case $want in
    end) pattern="invalid end state*" ;;
    *) pattern="assertion $want*" ;;
    esac
    # shellcheck disable=SC2254
    case $got in
    $pattern) verdict ok "$name: $want, $(figures)" ;;
    *) verdict FAILED "$name: expected $want, got '$got' $(cat spin.out cc.out 2>/dev/null | head -3)" ;;
    esac
}

row() { # kind name ...
    kind=$1
    shift
    rm -rf "${out:?}/$1"
    mkdir -p "$out/$1"
    here=$(pwd)
    cd "$out/$1" || exit 2
    "$kind" "$@"
    cd "$here" || exit 2
    rm -f "$out/$1"/pan "$out/$1"/pan.[bchmpt]
}

wanted=" $* "
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
# All: each by a process of this script, by all cores; with --deep, whose verifiers want the memory of the machine, one after the other.
if [ $# -eq 0 ] && [ -z "$deep" ]; then
    table | awk '$1 != "deep" { print $2 }' >"$rows"
    # shellcheck disable=SC2016
    xargs -P "$(nproc)" -I{} sh -c 'r=$(sh "$0" "$1" "$2" 2>&1); printf "%s\n" "$r"' "$0" "$B" {} <"$rows" |
        awk -v want="$(wc -l <"$rows")" '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; next } { print; fflush() }
             END { f += want - p - f; printf "%d passed, %d failed\n", p, f; exit f > 0 || p == 0 }'
    exit
fi
table >"$rows"
while read -r kind name rest; do
    opt=-O0
    case $kind in
    deep) [ -n "$deep" ] || continue; opt=-O2 kind=full ;;
    large) opt=-O2 kind=full ;;
    esac
    case $wanted in *" $name "* | "  ") ;; *) continue ;; esac
    # shellcheck disable=SC2086
    row "$kind" "$name" $rest </dev/null
done <"$rows"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
