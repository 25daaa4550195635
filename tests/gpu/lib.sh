# The steps of run.sh, which sources it.
passed=0 failed=0 skipped=0
GDR=
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

# Two small commands that a fault may be: the NIC of host $1 that has sent most and is up goes down, and is up again. They write what they did.
commands_make() {
    cat >"$tmp/take.sh" <<END
nic=\$("$B/softfab" status --name $fab | awk -v host="h\$1:" -v taken="\$(cat "$tmp/taken")" '
    index(\$1, host) == 1 && index(" " taken " ", " " \$1 " ") == 0 && \$6 + 0 >= most { most = \$6 + 0; nic = \$1 } END { print nic }')
[ -n "\$nic" ] && echo "\$nic " | tr '\n' ' ' >>"$tmp/taken" && exec "$B/softfab" fault --name $fab "\$nic down"
END
    cat >"$tmp/give.sh" <<END
nic=\$(awk '{ print \$1 }' "$tmp/taken")
[ -n "\$nic" ] && exec "$B/softfab" fault --name $fab "\$nic up"
END
    # a rank: a host of the fabric and of NCCL
    cat >"$tmp/rank.sh" <<END
rank=\$1
shift
export NCCL_HOSTID=r2gpu-\$rank NCCL_DEBUG_FILE="$tmp/nccl.\$rank"
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
        make -s B="$B" all "$B/gpu_coll" "$B/gpu-fake/cuda/libcuda.so.1" "$B/gpu-fake/nccl/libnccl.so.2" >"$tmp/out" 2>&1 || bad build "make failed"
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

# gpu_coll over the stand-ins: operations, checks and the schedule of faults, on a fabric that really breaks; and each check really finds what it is for
step_stand_ins() {
    libs=$LD_LIBRARY_PATH
    export LD_LIBRARY_PATH="$B/gpu-fake/cuda:$B/gpu-fake/nccl:$libs"
    for op in $OPS; do
        coll_run "$op" healthy --iters 5 --fault "0.1:sh $tmp/take.sh 0" --fault "0.2:sh $tmp/give.sh"
        if [ $rc = 0 ] && right_data && [ "$(cat "$tmp/taken")" != '' ] && [ "$(grep -c '^# r2 fault .* status 0' "$tmp/out")" = 2 ]; then
            ok "stand-ins: $op with two faults"
        else
            bad "stand-ins: $op with two faults" "exit status $rc"
        fi
        for wrong in flip stale over; do
            FAKE_NCCL_FAULT="$wrong 3" coll_run "$op" healthy --iters 5
            if [ $rc = 7 ] && grep -q '^# r2 checked 5 operations, [1-9][0-9]* elements wrong: FAILED' "$tmp/out"; then
                ok "stand-ins: $op, $wrong is found"
            else
                bad "stand-ins: $op, $wrong is found" "exit status $rc"
            fi
        done
    done
    FAKE_NCCL_FAULT="fail 3" coll_run all_reduce healthy --iters 5
    if [ $rc = 3 ]; then ok "stand-ins: NCCL's error ends all ranks"; else bad "stand-ins: NCCL's error ends all ranks" "exit status $rc"; fi
    coll_run all_reduce healthy --fault '0.1:exit 4'
    if [ $rc = 1 ]; then ok "stand-ins: a fault that fails is no success"; else bad "stand-ins: a fault that fails is no success" "exit status $rc"; fi
    coll_run all_reduce healthy --fault '0.1'
    if [ $rc = 6 ]; then ok "stand-ins: no schedule"; else bad "stand-ins: no schedule" "exit status $rc"; fi
    export LD_LIBRARY_PATH="$libs"
}

# NCCL's own library, where there is one: gpu_coll's calls are in it, and the names of the settings that this test stands on
step_library() {
    if ! LD_LIBRARY_PATH="$B/gpu-fake/cuda:$LD_LIBRARY_PATH" "$B/gpu_coll" --libs >"$tmp/out" 2>&1; then
        if grep -q 'libnccl.so.2: cannot open shared object file: No such file' "$tmp/out"; then
            skip "NCCL's library" "there is none here"
        else
            bad "NCCL's library" "gpu_coll cannot use it"
        fi
        return
    fi
    ok "NCCL's library has what gpu_coll calls: $(grep '^NCCL ' "$tmp/out")"
    lib=$(LD_LIBRARY_PATH="$LD_LIBRARY_PATH" ldconfig -p 2>/dev/null | sed -n 's/.*libnccl\.so\.2 .*=> //p' | head -1)
    [ -n "${NCCL_LIB:-}" ] && lib=$NCCL_LIB/libnccl.so.2
    if [ ! -r "$lib" ]; then
        skip "settings of NCCL's library" "its file is not in the loader's list"
        return
    fi
    for name in NCCL_HOSTID NCCL_NET_PLUGIN NCCL_NET; do
        if grep -aq "$name" "$lib"; then ok "NCCL's library knows $name"; else bad "NCCL's library knows $name" "$lib"; fi
    done
    for v in 12 11 10 9 8; do # newest first, as NCCL asks for them
        grep -aq "ncclNetPlugin_v$v" "$lib" && break
    done
    if nm -D --defined-only "$B/libnccl-net-r2.so" | grep -q " ncclNetPlugin_v$v\$"; then
        ok "the newest table that NCCL's library asks for, v$v, is the plugin's, too"
    else
        bad "the newest table that NCCL's library asks for, v$v, is the plugin's, too" "$lib"
    fi
}

# coll_run OP CASE ARGUMENT...: gpu_coll on a fabric of its own; $rc, and the output in $tmp/out
coll_run() {
    op=$1
    case $2 in
    healthy) set -- "$@" ;;
    one) set -- "$@" --fault "0.5:sh $tmp/take.sh 0" --fault_after 1 ;;
    two) set -- "$@" --fault "0.5:sh $tmp/take.sh 0" --fault "1:sh $tmp/take.sh 1" --fault_after 1 ;;
    back) set -- "$@" --fault "0.5:sh $tmp/take.sh 0" --fault "1:sh $tmp/give.sh" --fault_after 2 ;;
    esac
    shift 2
    fabric_up
    timeout -k 5 "$LIMIT" "$B/gpu_coll" "$op" --ranks "$RANKS" --bytes "$BYTES" --launch "sh $tmp/rank.sh \$R2_RANK" "$@" >"$tmp/out" 2>&1
    rc=$?
}
# tests_run OP CASE: the same by nccl-tests with our patches, started by Open MPI
tests_run() {
    prog=$NCCL_TESTS_BUILD/$1_perf
    case $2 in
    healthy) set -- --fault_json "$tmp/json" ;;
    one) set -- --fault "0.5:sh $tmp/take.sh 0" --fault_after 1 ;;
    two) set -- --fault "0.5:sh $tmp/take.sh 0" --fault "1:sh $tmp/take.sh 1" --fault_after 1 ;;
    back) set -- --fault "0.5:sh $tmp/take.sh 0" --fault "1:sh $tmp/give.sh" --fault_after 2 ;;
    esac
    fabric_up
    # shellcheck disable=SC2016
    NCCL_TESTS_DEVICE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 "$LIMIT" mpirun --oversubscribe --bind-to none -np "$RANKS" \
        sh -c 'exec sh "$0" "$OMPI_COMM_WORLD_RANK" "$@"' "$tmp/rank.sh" "$prog" -b "$BYTES" -e "$BYTES" "$@" >"$tmp/out" 2>&1
    rc=$?
}
right_data() {
    grep -q '^# r2 checked [1-9][0-9]* operations, 0 elements wrong$' "$tmp/out"
}
# why_not CASE: why a run inside NCCL does not count; nothing if it does
why_not() {
    if [ $rc != 0 ]; then
        echo "exit status $rc"
    elif ! right_data; then
        echo "not checked, or wrong"
    elif [ "$(grep -l 'Using network R2' "$tmp"/nccl.* 2>/dev/null | wc -l)" != "$RANKS" ]; then
        echo "not every rank says that it uses the plugin"
    elif [ -n "$GDR" ] && ! grep -q GDRDMA "$tmp"/nccl.*; then
        echo "NCCL sends nothing from memory of the GPU"
    elif [ "$1" != healthy ] && ! grep -q ' UP -> DOWN' "$tmp"/nccl.*; then
        echo "no path went down: the fault hit nothing"
    elif [ "$1" = back ] && ! grep -qE ' life ([2-9]|[1-9][0-9]+) is up' "$tmp"/nccl.*; then
        echo "no path came back"
    fi
}
# table_add PROGRAM OP PROTO CASE RESULT
table_add() {
    checked=$(sed -n 's/^# r2 checked \([0-9]*\) .*/\1/p' "$tmp/out")
    stall=$(sed -n 's/^# r2 stall after fault [0-9]*: \([0-9.-]*\) ms.*/\1/p' "$tmp/out" | sort -n | tail -1)
    rate=$(sed -n 's/^# r2 busbw before \([^ ]*\) during \([^ ]*\) after \([^ ]*\).*/\1, \2, \3/p' "$tmp/out")
    echo "| $1 | $2 | $3 | $4 | $5 | ${checked:--} | ${stall:--} | ${rate:--} |" >>"$out/table.md"
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
                export NCCL_PROTO="$proto"
                [ "$proto" = LL ] && export NCCL_P2P_LL_THRESHOLD="$BYTES"
                [ -n "$GDR" ] && export NCCL_NET_GDR_LEVEL=SYS
                if [ "$1" = nccl-tests ]; then tests_run "$op" "$case"; else coll_run "$op" "$case"; fi
                unset NCCL_PROTO NCCL_P2P_LL_THRESHOLD NCCL_NET_GDR_LEVEL
                why=$(why_not "$case")
                cp "$tmp/out" "$out/$1${GDR:+-gdr}-$op-$proto-$case.out"
                cat "$tmp"/nccl.* >"$out/$1${GDR:+-gdr}-$op-$proto-$case.nccl" 2>/dev/null
                if [ -z "$why" ]; then ok "$1${GDR:+, GPU memory,} $op $proto $case"; else bad "$1${GDR:+, GPU memory,} $op $proto $case" "$why"; fi
                table_add "$1${GDR:+, GPU memory}" "$op" "$proto" "$case" "${why:-right}"
            done
        done
    done
}

# train NAME FAULT: a small model, data parallel; the losses, bit by bit, in $tmp/loss.NAME
train() {
    fabric_up
    port=$(awk 'BEGIN { srand(); print 20000 + int(rand() * 10000) }')
    pids=
    for r in $(seq 0 $((RANKS - 1))); do
        RANK=$r WORLD_SIZE=$RANKS MASTER_ADDR=127.0.0.1 MASTER_PORT=$port R2_FAULT="$2" timeout -k 5 "$LIMIT" \
            sh "$tmp/rank.sh" "$r" "$PYTHON" tests/gpu/train.py "$tmp/loss.$1" >>"$tmp/out" 2>&1 &
        pids="$pids $!"
    done
    rc=0
    for p in $pids; do wait "$p" || rc=$?; done
}
training() {
    if ! "$PYTHON" -c 'import torch; assert torch.cuda.is_available() and torch.distributed.is_nccl_available()' >/dev/null 2>&1; then
        skip training "$PYTHON has no torch with CUDA and NCCL"
        return
    fi
    : >"$tmp/out"
    train healthy ""
    why=
    [ $rc = 0 ] || why="the healthy run ended with $rc"
    [ -n "$why" ] || train fault "sh $tmp/take.sh 0"
    [ -n "$why" ] || [ $rc = 0 ] || why="the run with a fault ended with $rc"
    [ -n "$why" ] || grep -q ' UP -> DOWN' "$tmp"/nccl.* || why="no path went down: the fault hit nothing"
    [ -n "$why" ] || { [ -s "$tmp/loss.healthy" ] && cmp "$tmp/loss.healthy" "$tmp/loss.fault" >>"$tmp/out" 2>&1; } || why="the losses differ"
    if [ -z "$why" ]; then
        ok "training: $(wc -l <"$tmp/loss.fault") losses, the same bits with a fault and without"
    else
        bad training "$why"
    fi
}
