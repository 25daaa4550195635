# The steps of run.sh, which sources it.
passed=0 failed=0 skipped=0
GDR=
companion= # yes: dry.sh has something carry beside the ranks
ok() {
    passed=$((passed + 1))
    echo "ok     $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAILED $1: $2"
    grep -v '^# r2 us:' "$tmp/out" 2>/dev/null | tail -25 | cut -c1-220 | sed 's/^/    | /'
    cat "$tmp"/nccl.* 2>/dev/null | grep -E 'WARN|NET/R2|NET/Plugin' | tail -25 | cut -c1-220 | sed 's/^/    | /'
}
skip() {
    skipped=$((skipped + 1))
    echo "SKIP $1: $2"
}

# Two small commands that a fault may be: the NIC of host $1 that has carried most and is up goes down, and is up again. A NIC that has carried nothing is
# none. The second one ends when a path is back, from which on the run is measured. What was taken is in $tmp/taken, a line each: place, name.
commands_make() {
    cat >"$tmp/take.sh" <<END
nic=\$("$B/softfab" status --name $fab | awk -v host="h\$1:" -v taken="\$(awk '{ printf " %s ", \$1 }' "$tmp/taken")" '
    index(\$1, host) == 1 && index(taken, " " \$1 " ") == 0 && \$6 + \$8 > most { most = \$6 + \$8; nic = \$1 " " \$2 } END { print nic }')
[ -n "\$nic" ] || { echo "no NIC of host \$1 has carried anything" >&2 && exit 1; }
echo "\$nic" >>"$tmp/taken"
exec "$B/softfab" fault --name $fab "\${nic% *} down"
END
    cat >"$tmp/give.sh" <<END
nic=\$(awk 'NR == 1 { print \$1 }' "$tmp/taken")
[ -n "\$nic" ] || exit 1
"$B/softfab" fault --name $fab "\$nic up" || exit 1
looks=0
until cat "$tmp"/nccl.[0-9] "$tmp"/beside.h[0-9] 2>/dev/null | grep -qE ' life ([2-9]|[1-9][0-9]+) is up'; do
    [ \$((looks += 1)) -le 200 ] || exit 1
    sleep 0.1
done
END
    # a rank: a host of the fabric and of NCCL
    cat >"$tmp/rank.sh" <<END
rank=\$1
shift
export NCCL_HOSTID=r2gpu-\$rank NCCL_DEBUG_FILE="$tmp/nccl.\$rank"
env | grep '^NCCL_' >"$tmp/env.\$rank"
exec "$B/softfab" exec --name $fab --host "\$rank" -- "\$@"
END
}
fabric_up() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    # shellcheck disable=SC2086
    "$B/softfab" up --name $fab --hosts "$RANKS" --nics 4 ${GDR:+--gpu} >/dev/null || exit 1
    : >"$tmp/taken"
    rm -f "$tmp"/nccl.*
}

step_build() {
    if [ -z "$dry" ]; then
        make -s B="$B" gpu-bins >"$tmp/out" 2>&1 || bad build "make failed"
    fi
    for f in libnccl-net-r2.so softfab softfab-lib/libibverbs.so.1 r2_config gpu_coll gpu-fake/cuda/libcuda.so.1 gpu-fake/nccl/libnccl.so.2; do
        if [ ! -e "$B/$f" ]; then
            echo "$B/$f is not built"
            exit 1
        fi
    done
    commands_make
    ok "built"
}

# As NCCL finds it: dlopen of "r2", then of libnccl-net-r2.so; the newest table that both know. r2_config looks with the same rules.
step_loader() {
    fabric_up
    sh "$tmp/rank.sh" 0 "$B/r2_config" --doctor >"$tmp/out" 2>&1
    if grep -q "^ok *NCCL_NET_PLUGIN=r2: is $B/libnccl-net-r2.so" "$tmp/out"; then
        ok "NCCL_NET_PLUGIN=r2 finds the plugin"
    else
        bad "NCCL_NET_PLUGIN=r2 finds the plugin" "the doctor does not see it"
    fi
    if grep -q '^ok *library: nccl-net-r2 .* abi=v8-v12' "$tmp/out" && grep -q '^ok *NICs: ' "$tmp/out" && grep -q '^ok *plugin: ' "$tmp/out"; then
        ok "it has all tables, initialises and sees NICs of the fabric"
    else
        bad "it has all tables, initialises and sees NICs of the fabric" "the doctor"
    fi
    sh "$tmp/rank.sh" 0 "$B/r2_config" --diff >"$tmp/out" 2>&1
    if grep -q '^NCCL_R2_T_RETURN=200 ' "$tmp/out" && grep -q '^NCCL_HOSTID=r2gpu-0 ' "$tmp/out"; then
        ok "options arrive at a rank"
    else
        bad "options arrive at a rank" "r2_config --diff"
    fi
}

# run_in_fabric CASE COMMAND...: on a fabric of its own; $rc, and what evidence.sh looks at
run_in_fabric() {
    fabric_up
    [ -z "$companion" ] || companion_begin "$1"
    shift
    timeout -k 5 "$LIMIT" "$@" >"$tmp/out" 2>&1
    rc=$?
    [ -z "$companion" ] || companion_end
    "$B/softfab" status --name $fab >"$tmp/status"
}
# with_faults CASE COMMAND...: the command with the faults of a case behind it
with_faults() {
    case_of=$1
    shift
    case $case_of in
    healthy) run_in_fabric "$case_of" "$@" ;;
    one) run_in_fabric "$case_of" "$@" --fault "1:sh $tmp/take.sh 0" --fault_after 1 ;;
    two) run_in_fabric "$case_of" "$@" --fault "1:sh $tmp/take.sh 0" --fault "2:sh $tmp/take.sh 1" --fault_after 1 ;;
    back) run_in_fabric "$case_of" "$@" --fault "1:sh $tmp/take.sh 0" --fault "2:sh $tmp/give.sh" --fault_after 1 ;;
    esac
}
# coll_run OP CASE ARGUMENT...
coll_run() {
    op=$1 case_of=$2
    shift 2
    with_faults "$case_of" "$B/gpu_coll" "$op" --ranks "$RANKS" --bytes "$BYTES" --launch "sh $tmp/rank.sh \$R2_RANK" "$@"
}
# tests_run OP CASE: the same by nccl-tests with our patches, started by Open MPI, which is to leave the fabric's NICs alone. Without an option of ours
# it would check nothing.
tests_run() {
    op=$1
    # shellcheck disable=SC2016
    with_faults "$2" env NCCL_TESTS_DEVICE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none \
        --mca pml ob1 --mca btl '^openib,ofi,uct,usnic' -np "$RANKS" \
        sh -c 'exec sh "$0" "$OMPI_COMM_WORLD_RANK" "$@"' "$tmp/rank.sh" "$NCCL_TESTS_BUILD/$1_perf" -b "$BYTES" -e "$BYTES" --fault_json "$tmp/json"
}
# What a protocol and direct access take. NCCL has buffers of LL between two ranks over a network only when asked to, and uses Simple without a word
# otherwise; from compute capability 9.0 on it flushes nothing unless told to.
settings_export() {
    export NCCL_PROTO="$proto"
    [ "$proto" = LL ] && export NCCL_P2P_LL_THRESHOLD="$BYTES" NCCL_ALLOC_P2P_NET_LL_BUFFERS=1
    [ -n "$GDR" ] && export NCCL_NET_GDR_LEVEL=SYS NCCL_NET_FORCE_FLUSH=1
}
settings_unset() {
    unset NCCL_PROTO NCCL_P2P_LL_THRESHOLD NCCL_ALLOC_P2P_NET_LL_BUFFERS NCCL_NET_GDR_LEVEL NCCL_NET_FORCE_FLUSH
}
# collectives PROGRAM: every operation, protocol and case
# GDR=yes: the fabric reaches memory of the GPU, and NCCL is to use that
collectives() {
    if [ "$1" = nccl-tests ] && ! "$NCCL_TESTS_BUILD/all_reduce_perf" --help 2>/dev/null | grep -q -- --fault_after; then
        bad nccl-tests "$NCCL_TESTS_BUILD/all_reduce_perf has no --fault: nccl-tests-patches/README.md"
        return
    fi
    for proto in $PROTOS; do
        for op in $OPS; do
            case $proto-$op in LL128-sendrecv | LL128-alltoall)
                skip "$1 $op $proto" "NCCL sends between two ranks by Simple and LL alone"
                continue
                ;;
            esac
            for case in $CASES; do
                settings_export
                if [ "$1" = nccl-tests ]; then tests_run "$op" "$case"; else coll_run "$op" "$case"; fi
                settings_unset
                collective_judge "$1" "$case"
            done
        done
    done
}
# collective_judge PROGRAM CASE: the last run
collective_judge() {
    why=$(why_not "$2")
    cp "$tmp/out" "$out/$1${GDR:+-gdr}-$op-$proto-$2.out"
    cat "$tmp"/nccl.* >"$out/$1${GDR:+-gdr}-$op-$proto-$2.nccl" 2>/dev/null
    name="${dry:+stand-ins: }$1${GDR:+, GPU memory,} $op $proto $2"
    if [ -z "$why" ]; then ok "$name"; else bad "$name" "$why"; fi
    table_add "$1${GDR:+, GPU memory}" "$op" "$proto" "$2" "${why:-right}"
}

# train NAME CASE: a small model, data parallel, with a fault in case one; the losses, bit by bit, in $tmp/loss.NAME
train() {
    fabric_up
    op=all_reduce
    fault=
    [ "$2" = healthy ] || fault="sh $tmp/take.sh 0"
    [ -z "$companion" ] || companion_begin "$2"
    port=$(awk 'BEGIN { srand(); print 20000 + int(rand() * 10000) }')
    pids=
    for r in $(seq 0 $((RANKS - 1))); do
        RANK=$r WORLD_SIZE=$RANKS MASTER_ADDR=127.0.0.1 MASTER_PORT=$port R2_FAULT="$fault" timeout -k 5 "$LIMIT" \
            sh "$tmp/rank.sh" "$r" "$PYTHON" tests/gpu/train.py "$tmp/loss.$1" >>"$tmp/out" 2>&1 &
        pids="$pids $!"
    done
    rc=0
    for p in $pids; do wait "$p" || rc=$?; done
    [ -z "$companion" ] || companion_end
}
# training_why CASE: why the last run does not count; nothing if it does
training_why() {
    if [ $rc != 0 ]; then
        echo "the run ($1) ended with $rc"
    elif [ "$(ranks_saying 'Using network R2')" != "$RANKS" ]; then
        echo "not every rank says that it uses the plugin ($1)"
    elif [ "$1" = one ]; then
        faults_missed 1
    fi
}
training() {
    if ! "$PYTHON" -c 'import torch; assert torch.cuda.is_available() and torch.distributed.is_nccl_available()' >/dev/null 2>&1; then
        skip training "$PYTHON has no torch with CUDA and NCCL"
        return
    fi
    name="${dry:+stand-ins: }training"
    : >"$tmp/out"
    train healthy healthy
    why=$(training_why healthy)
    if [ -z "$why" ]; then
        train fault one
        why=$(training_why one)
    fi
    [ -n "$why" ] || { [ -s "$tmp/loss.healthy" ] && cmp "$tmp/loss.healthy" "$tmp/loss.fault" >>"$tmp/out" 2>&1; } || why="the losses differ"
    if [ -z "$why" ]; then
        ok "$name: $(wc -l <"$tmp/loss.fault") losses, the same bits with a fault and without"
    else
        bad "$name" "$why"
    fi
}
