#!/bin/sh
# What verbs reports under each failure: on the software fabric, on the fabric as it mimics Soft-RoCE, and on the kernel's rdma_rxe in the
# lab. The same program (verbs_watch) runs on all three.
#   verbs_compare.sh BUILD [--on fabric,mimic,kernel] [--case NAME,...] [--retry 2,7] [--reps 3] [--keep] [--table] [--write-doc]
# Host A has the failure, host B is the other end. Observations stay in BUILD/lab/compare; --keep: those of cases that are not run again stay.
# --table runs nothing and makes the table from them. --write-doc writes the table of tests/lab/fabric-vs-kernel.md. Without the lab's parts the kernel is skipped, and said so.
set -eu
cd "$(dirname "$0")/../.."
. tests/lab/verbs_cases.sh

B=build on=fabric,mimic,kernel only= retries=2,7 reps=3 keep= table= write=
while [ $# -gt 0 ]; do
    case $1 in
    --on | --case | --retry | --reps)
        [ $# -gt 1 ] || {
            echo "verbs_compare.sh: $1 needs a value" >&2
            exit 2
        }
        case $1 in
        --on) on=$2 ;;
        --case) only=$2 ;;
        --retry) retries=$2 ;;
        --reps) reps=$2 ;;
        esac
        shift
        ;;
    --keep) keep=1 ;;
    --table) keep=1 table=1 ;;
    --write-doc) write=1 ;;
    -*)
        echo "verbs_compare.sh: no such option: $1" >&2
        exit 2
        ;;
    *) B=$1 ;;
    esac
    shift
done
case $B in /*) ;; *) B=$PWD/$B ;; esac
for f in softfab softfab-lib/libibverbs.so.1 lab/verbs_watch; do
    [ -e "$B/$f" ] || {
        echo "verbs_compare.sh: $B/$f is not built" >&2
        exit 1
    }
done
OUT=$B/lab/compare
FAB=vcmp$$
T=$(mktemp -d)
[ -n "$keep" ] || rm -rf "$OUT"
mkdir -p "$OUT"
cleanup() {
    "$B/softfab" down --name $FAB >/dev/null 2>&1 || true
    kernel_close
    rm -rf "$T"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
failed=0 passed=0 skipped=0 runs=0

# An observation is whole when its last line is there, or when a call that blocks ended it. It counts when the failure took place, and when
# nothing had failed before: on a machine that others use too, a virtual machine may stand still for longer than the retries last.
observation_check() { # FILE...
    for f in "$@"; do
        grep -q '"end": "destroy"\|"blocked"' "$f" || {
            why="$f is not whole"
            return 1
        }
        if grep '"seen": "wc"' "$f" | grep -q '"t_ms": -'; then
            why="$f: something failed before the failure"
            return 1
        fi
    done
    grep -q "$proof" "$@" || {
        why="the failure did not take place: no '$proof' in $*"
        return 1
    }
}

. tests/lab/verbs_kernel.sh
. tests/port_lib.sh

# fabric_run CASE RETRY REP: one process per host; A breaks the fabric itself, so that its clock knows when.
fabric_run() {
    a=$OUT/$target.$1.$2.$3.A b=$OUT/$target.$1.$2.$3.B
    port_next
    "$B/softfab" fault --name $FAB '*:* restore' || return 1
    for w in $before; do
        "$B/softfab" fault --name $FAB "*:* $w" || return 1
    done
    "$B/softfab" exec --name $FAB --host 0 -- "$B/lab/verbs_watch" --listen 127.0.0.1:$port $common --retry "$2" $b_opts \
        </dev/null >"$b" 2>"$b.err" &
    peer=$!
    "$B/softfab" exec --name $FAB --host 1 -- env SOFTFAB="$B/softfab" FAB=$FAB "$B/lab/verbs_watch" --connect 127.0.0.1:$port $common \
        --retry "$2" $a_opts --after 500ms --fault-cmd "$command" </dev/null >"$a" 2>"$a.err" || true
    wait $peer || true
}

# one CASE RETRY REP: again when it does not count, a few times
one() {
    common="--timeout $timeout --observe $observe --stall 300ms $traffic"
    files=
    for side in $sides; do
        files="$files $OUT/$target.$1.$2.$3.$side"
    done
    for try in 1 2 3 4; do
        runs=$((runs + 1)) why="could not be run"
        case $target in
        kernel) kernel_run "$@" || continue ;;
        *) fabric_run "$@" || continue ;;
        esac
        # shellcheck disable=SC2086
        if observation_check $files; then
            passed=$((passed + 1))
            return
        fi
        echo "# $target $*, try $try does not count: $why"
    done
    failed=$((failed + 1))
    echo "verbs_compare.sh: $target $*: $why" >&2
    # shellcheck disable=SC2086
    rm -f $files
}

wanted() { # WORD LIST
    [ -z "$2" ] || case ,$2, in *,"$1",*) ;; *) return 1 ;; esac
}

for target in fabric mimic kernel; do
    [ -z "$table" ] || break
    wanted $target "$on" || continue
    case $target in
    kernel)
        kernel_open || {
            echo "SKIP kernel: $kernel_why"
            skipped=1
            continue
        }
        ;;
    *) [ -n "$("$B/softfab" status --name $FAB 2>/dev/null)" ] || "$B/softfab" up --name $FAB --hosts 2 --nics 1 --rate 20MB/s >/dev/null ;;
    esac
    for name in $CASES; do
        wanted "$name" "$only" || continue
        for retry in $(echo "$retries" | tr ',' ' '); do
            case_set "$name" "$target" "$retry" || continue
            i=1
            while [ $i -le $((reps * times)) ]; do
                one "$name" "$retry" $i
                i=$((i + 1))
            done
            echo "# $target $name, retry $retry: done"
        done
    done
done
jq -n -r -f tests/lab/verbs_table.jq --arg cases "$(for n in $CASES; do case_label "$n"; done)" "$OUT"/*.[AB] >"$T/table"
cat "$T/table"
[ -z "$write" ] || sh tests/lab/verbs_write_doc.sh "$T/table" tests/lab/fabric-vs-kernel.md "$(kernel_versions)"
[ -z "$table" ] || exit 0
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
