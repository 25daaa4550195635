# What run.sh does where there is no GPU: each step but the launch inside NCCL, over stand-ins. run.sh sources it.

# gpu_coll over the stand-ins: operations, checks and the schedule of faults, on a fabric that really breaks; and each check really finds what it is for
step_stand_ins() {
    libs=$LD_LIBRARY_PATH
    export LD_LIBRARY_PATH="$B/gpu-fake/cuda:$B/gpu-fake/nccl:$libs"
    for op in $OPS; do
        coll_run "$op" healthy --iters 5 --fault "0.1:$B/softfab fault --name $fab 'h0:n1 down'" \
            --fault "0.2:$B/softfab fault --name $fab 'h0:n2 down'"
        if [ $rc = 0 ] && right_data && [ "$(grep -cE '^h0:n[12] .* DOWN ' "$tmp/status")" = 2 ] &&
            [ "$(grep -c '^# r2 fault .* status 0' "$tmp/out")" = 2 ]; then
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

# --- a real plugin beside the stand-ins, which load none ---

# In the place of what NCCL would carry, r2_perf carries over the same fabric while the ranks run, and the same faults hit it; its logs of the plugin count
# as the ranks', with the few lines that NCCL itself would write. It goes on until they have ended; in a healthy run it carries as many operations as they,
# and between two ranks for LL what LL does: twice as much.
# companion_begin CASE: returns when it carries
companion_begin() {
    : >"$tmp/going"
    case $1-${proto:-}-$op in
    healthy-LL-sendrecv | healthy-LL-alltoall) set -- -n 40 ;;
    healthy-*) set -- -n 20 ;;
    *) set -- --duration 200ms --fault-cmd "100ms:while [ -e $tmp/going ]; do sleep 0.05; done" --after 200ms ;;
    esac
    [ -z "$GDR" ] || set -- "$@" --flush
    rm -f "$tmp"/beside.*
    NCCL_DEBUG_FILE="$tmp/beside.%h" NCCL_R2_FLUSH="${GDR:+always}" "$B/r2_perf" "$op" --hosts "$RANKS" --fabric $fab --softfab "$B/softfab" \
        -b "$BYTES" -e "$BYTES" --placement out -w 0 "$@" >"$tmp/beside" 2>&1 &
    beside=$!
    for _ in $(seq 200); do # the first fault is to find a NIC that has carried something
        { [ "$(carried)" = 0 ] && kill -0 $beside 2>/dev/null; } || break
        sleep 0.05
    done
}
companion_end() {
    rm -f "$tmp/going"
    wait $beside || rc=99
    [ $rc != 99 ] || cat "$tmp/beside" >>"$tmp/out"
    for r in $(seq 0 $((RANKS - 1))); do
        {
            echo "h$r:1:1 [0] NCCL INFO Using network R2"
            echo "h$r:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/R2/0${GDR:+/GDRDMA}"
            case $op-$r in
            sendrecv-* | alltoall-* | *-[1-9]) ;;
            *) echo "h$r:1:1 [0] NCCL INFO $op: $BYTES Bytes -> Algo RING proto $(echo "${proto:-}" | tr '[:lower:]' '[:upper:]') channel{Lo..Hi}={0..3}" ;;
            esac
            cat "$tmp/beside.h$r"
        } >"$tmp/nccl.$r"
    done
}
carried() {
    "$B/softfab" status --name $fab | awk '$1 ~ /^h[0-9]+:n/ { n += $6 } END { print n + 0 }'
}
# expect NAME COMMAND...
expect() {
    name=$1
    shift
    if "$@"; then ok "$name"; else bad "$name" "$*"; fi
}
# says TEXT PATTERN
says() { echo "$1" | grep -q "$2"; }
# counts NAME COMMAND...: it counts one more of that, and only then; what it says is in $tmp/said
counts() {
    counted=$1
    shift
    (
        passed=0 failed=0 skipped=0
        "$@"
        [ "$passed $failed $skipped" = "$([ "$counted" = failed ] && echo "0 1 0" || echo "0 0 1")" ]
    ) >"$tmp/said" 2>&1
}

step_take() {
    fabric_up
    sh "$tmp/take.sh" 0 >"$tmp/out" 2>&1
    expect "a fabric that has carried nothing has no NIC to take" [ $?-"$(cat "$tmp/taken")" = 1- ]
}

# has_env RANK NAME=VALUE..., lacks_env RANK NAMES: what the last run's rank was started with
has_env() {
    rank=$1
    shift
    for v in "$@"; do grep -qx "$v" "$tmp/env.$rank" || return; done
}
lacks_env() { ! grep -qE "^($2)=" "$tmp/env.$1"; }
# the loop, what it exports, how it judges, what it writes down
step_collectives() {
    libs=$LD_LIBRARY_PATH out_of_run=$out
    export LD_LIBRARY_PATH="$B/gpu-fake/cuda:$B/gpu-fake/nccl:$libs"
    out=$tmp/gpu
    mkdir -p "$out"
    table_begin
    companion=yes
    PROTOS=Simple OPS=all_reduce CASES='healthy one back'
    collectives gpu_coll
    expect "Simple is asked for" has_env 1 NCCL_PROTO=Simple
    expect "... neither LL's buffers nor flushes" lacks_env 1 'NCCL_ALLOC_P2P_NET_LL_BUFFERS|NCCL_P2P_LL_THRESHOLD|NCCL_NET_FORCE_FLUSH'
    PROTOS='Simple LL' OPS='sendrecv alltoall' CASES=healthy
    collectives gpu_coll
    expect "LL between two ranks: buffers are asked for" has_env 1 NCCL_PROTO=LL NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 NCCL_P2P_LL_THRESHOLD="$BYTES"
    expect "LL128 between two ranks is a counted skip" counts skipped eval 'PROTOS=LL128 OPS=alltoall; collectives gpu_coll'
    PROTOS=LL128 OPS=broadcast
    collectives gpu_coll
    GDR=yes PROTOS=Simple OPS=all_reduce CASES=two
    collectives gpu_coll
    expect "GPU memory: a flush is asked for" has_env 1 NCCL_NET_FORCE_FLUSH=1 NCCL_NET_GDR_LEVEL=SYS
    GDR=
    companion=
    settings_left=$(env | grep -E '^NCCL_(PROTO|P2P_LL|ALLOC|NET_GDR|NET_FORCE)')
    expect "nothing of it is left in the environment" [ -z "$settings_left" ]
    expect "the table has a line for each, with all columns" [ "$(grep -cE '^\| gpu_coll[^|]*(\| [^|]+ ){8}\|$' "$out/table.md")" = 9 ]
    measured='[1-9][0-9]* . -?[0-9.]+ . [0-9.e+]+, [0-9.e+]+, [0-9.e+]+ .$'
    expect "... with what was measured" grep -qE "^. gpu_coll, GPU memory . all_reduce . Simple . Simple . two . right . $measured" "$out/table.md"
    expect "... and the protocol that was seen" grep -qE '^. gpu_coll . alltoall . LL . LL .2[0-9.]* bytes sent for one. . healthy . right .' "$out/table.md"
    expect "the output is kept" [ -s "$out/gpu_coll-gdr-all_reduce-Simple-two.out" ]
    expect "NCCL's logs are kept" [ -s "$out/gpu_coll-gdr-all_reduce-Simple-two.nccl" ]
    export LD_LIBRARY_PATH="$libs"
    out=$out_of_run
}

# why_says NAME WORDS CASE CHANGE: of the run that is kept in $tmp/kept, after a change to what it left; no words: it counts
why_says() {
    rc=0 GDR=yes op=all_reduce proto=Simple
    cp "$tmp"/kept/* "$tmp"
    eval "$4"
    why=$(why_not "$3")
    GDR=
    case $why in
    "$2") ok "why_not: $1" ;;
    *) if [ -n "$2" ] && [ "$why" != "${why#*"$2"}" ]; then ok "why_not: $1"; else bad "why_not: $1" "says '$why', not '$2'"; fi ;;
    esac
}
# edit FILE SED
edit() { sed -E "$2" "$tmp/kept/$1" >"$tmp/$1"; }
# That a run counts, and each reason why not, on the plugin's own logs of the run with two faults
step_why_not() {
    mkdir -p "$tmp/kept"
    cp "$tmp/out" "$tmp"/nccl.[0-9] "$tmp/taken" "$tmp/status" "$tmp/kept"
    why_says "a right run counts" "" two :
    why_says "an exit status" "exit status 3" two 'rc=3'
    why_says "wrong data" "not checked, or wrong" two "edit out 's/, 0 elements wrong/, 2 elements wrong: FAILED/'"
    why_says "nothing was checked" "not checked, or wrong" two "edit out 's/^# r2 checked [0-9]+/# r2 checked 0/'"
    why_says "a rank without the plugin" "not every rank says" two "edit nccl.1 '/Using network/d'"
    why_says "a rank without direct access" "memory of the GPU" two "edit nccl.1 s/GDRDMA//"
    why_says "a rank that flushed nothing" "$((RANKS - 1)) ranks flushed what they received, $RANKS receive" two "edit nccl.1 '/flushed by/d'"
    why_says "in a broadcast the root flushes nothing" "" two "op=broadcast; edit nccl.0 '/flushed by/d'"
    why_says "LL is not flushed" "" two "proto=LL; edit nccl.0 '/flushed by/d;s/proto SIMPLE/proto LL/'"
    why_says "the second fault took nothing" "other than 2 hosts" two "edit taken 2d"
    why_says "both faults at one host" "other than 2 hosts" two "edit taken s/h1/h0/"
    why_says "no path went down with the first" "no path went down with h0:n" two "edit nccl.0 '/local NIC|path .* UP -> DOWN/d'"
    why_says "no path went down with the second, only its NIC" "no path went down with h1:n" two "edit nccl.1 '/(send|recv) .* UP -> DOWN/d'"
    why_says "the second's path went down with another NIC" "no path went down with h1:n" two 'edit nccl.1 "s/(UP -> DOWN: .*local NIC )[a-z0-9]+/\1other/"'
    why_says "no path came back" "no path came back" back "edit taken 2d"
    why_says "another protocol" "LL was asked for, NCCL used Simple" two 'proto=LL; edit nccl.0 "/flushed by/d"'
    why_says "a protocol by number" "" two "proto=LL128; edit nccl.0 's/proto SIMPLE/proto 1/'"
    why_says "two protocols" "NCCL used LL Simple" two 'edit nccl.0 "p;s/proto SIMPLE/proto LL/"'
    why_says "a log that tells no protocol" "" two "edit nccl.0 '/Bytes -> Algo/d'"
    # as if each byte had been sent once, and not twice
    why_says "between two ranks, Simple in the place of LL" "LL was asked for, NCCL used Simple (1.00 " healthy 'op=sendrecv proto=LL; sent_by_once $((RANKS * 1000))'
    why_says "between two ranks, LL in the place of Simple" "Simple was asked for, NCCL used LL (2.00 " healthy 'op=alltoall; sent_by_once $(((RANKS - 1) * 2000))'
}
# sent_by_once BYTES: an output of one operation of 1000 bytes, and a fabric that has sent so many for it
sent_by_once() {
    printf '# r2 checked 1 operations, 0 elements wrong\n# r2 size 1000 out of place: 1 iterations, median 1 us\n' >"$tmp/out"
    printf 'h0:n0 fab0 ACTIVE 0 0 %d 1\nh1:n0 fab0 ACTIVE 0 0 500 1\n' $(($1 - 500)) >"$tmp/status"
}

# A build of nccl-tests and Open MPI, as far as tests_run sees of them: mpirun writes down how it was called and starts the ranks; of those the first one is
# gpu_coll, whose options for faults are the same.
mpi_make() {
    mkdir -p "$tmp/bin" "$tmp/build"
    cat >"$tmp/bin/mpirun" <<END
#!/bin/sh
printf '%s\n' "\$@" >"$tmp/mpirun.args"
[ "\$NCCL_TESTS_DEVICE" = 0 ] || exit 9
while [ "\$1" != -np ]; do shift; done
n=\$2
shift 2
while [ "\$n" -gt 0 ]; do
    n=\$((n - 1))
    OMPI_COMM_WORLD_RANK=\$n "\$@" || exit
done
END
    cat >"$tmp/build/all_reduce_perf" <<END
#!/bin/sh
[ "\$1" != --help ] || exec echo "--fault_after \$(basename "\$0")"
[ "\$1 \$2 \$3 \$4" = "-b $BYTES -e $BYTES" ] || exit 9
shift 4
[ "\$SOFTFAB_HOST" = 0 ] || exit 0
exec "$B/gpu_coll" all_reduce --ranks $RANKS --bytes $BYTES "\$@"
END
    chmod +x "$tmp/bin/mpirun" "$tmp/build/all_reduce_perf"
}
mpirun_is() { # how ranks and their command were given
    tail -n +"$(($(grep -nx -- -np "$tmp/mpirun.args" | cut -d: -f1) + 1))" "$tmp/mpirun.args" >"$tmp/mpirun.ranks"
    # shellcheck disable=SC2016
    printf '%s\n' "$RANKS" sh -c 'exec sh "$0" "$OMPI_COMM_WORLD_RANK" "$@"' "$tmp/rank.sh" "$tmp/build/all_reduce_perf" -b "$BYTES" -e "$BYTES" \
        --fault_json "$tmp/json" --fault "1:sh $tmp/take.sh 0" --fault "2:sh $tmp/take.sh 1" --fault_after 1 | cmp -s - "$tmp/mpirun.ranks"
}
step_nccl_tests() {
    path=$PATH libs=$LD_LIBRARY_PATH out_of_run=$out build_of_run=${NCCL_TESTS_BUILD:-}
    mpi_make
    export LD_LIBRARY_PATH="$B/gpu-fake/cuda:$B/gpu-fake/nccl:$libs" PATH="$tmp/bin:$PATH"
    out=$tmp/gpu NCCL_TESTS_BUILD=$tmp/build PROTOS=LL OPS=all_reduce CASES=two
    companion=yes
    collectives nccl-tests
    companion=
    expect "mpirun is called with the ranks, their command and the faults" mpirun_is
    expect "its first rank is NCCL's" has_env 0 NCCL_HOSTID=r2gpu-0 NCCL_PROTO=LL
    expect "its last rank is NCCL's" has_env $((RANKS - 1)) NCCL_HOSTID=r2gpu-$((RANKS - 1)) NCCL_PROTO=LL
    printf '#!/bin/sh\n' >"$tmp/build/all_reduce_perf"
    expect "a build without the patches is refused" counts failed collectives nccl-tests
    export LD_LIBRARY_PATH="$libs" PATH="$path"
    NCCL_TESTS_BUILD=$build_of_run
    step_nccl_tests_sources
    out=$out_of_run
}
# Up to the compiler: copy, patches, and what make would do
step_nccl_tests_sources() {
    sources=${NCCL_TESTS:-}
    mkdir -p "$tmp/other/src"
    echo 'int main(void);' >"$tmp/other/src/common.cu"
    NCCL_TESTS=$tmp/other
    tests_sources
    expect "sources of another release are refused" says "$why" 'apply.sh: .*none of these releases'
    NCCL_TESTS=$tmp/nothing
    tests_sources
    expect "no sources are refused" says "$why" 'is neither a tree'
    NCCL_TESTS=$sources
    if [ -z "$NCCL_TESTS" ]; then
        skip "nccl-tests from its sources" "NCCL_TESTS names none"
        return
    fi
    tests_sources
    expect "nccl-tests' sources are copied and patched${why:+: $why}" eval '[ -z "$why" ] && grep -q r2_fault_report "$src/src/common.cu"'
    tools_find
    mpi=${mpi:-/mpi}
    OPS='all_reduce sendrecv'
    tests_make -n >"$tmp/out" 2>&1
    expect "make would compile it with MPI" grep -q "DMPI_SUPPORT -I$mpi/include.* -c common.cu" "$tmp/out"
    expect "... the programs that are used" grep -q "/sendrecv_perf" "$tmp/out"
    expect "... and no other" eval '! grep -q "/broadcast_perf" "$tmp/out"'
}

# A python, as far as training() sees of it: a rank writes losses, and the first one runs the fault
python_make() {
    cat >"$tmp/bin/python" <<END
#!/bin/sh
[ "\$1" != -c ] || exit 0
[ "\$1" = tests/gpu/train.py ] && [ "\$WORLD_SIZE" = $RANKS ] && [ -n "\$MASTER_PORT" ] || exit 9
[ "\$RANK" = 0 ] || exit 0
[ -z "\$R2_FAULT" ] || sh -c "\$R2_FAULT" || exit
echo "3f800000\$([ -z "\$R2_FAULT" ] || echo "$1")" >"\$2"
END
    chmod +x "$tmp/bin/python"
}
step_training() {
    if ! command -v python3 >/dev/null 2>&1; then
        skip "train.py compiles" "there is no python3"
    elif python3 -c 'import py_compile, sys; py_compile.compile(sys.argv[1], cfile=sys.argv[2], doraise=True)' tests/gpu/train.py "$tmp/train.pyc" \
        >"$tmp/out" 2>&1; then
        ok "train.py compiles"
    else
        bad "train.py compiles" "python3 says no"
    fi
    python_of_run=$PYTHON PYTHON=$tmp/bin/python proto=
    companion=yes
    python_make ""
    training
    python_make "-other"
    expect "losses that differ are found" counts failed training
    expect "... and said" grep -q 'FAILED .*the losses differ' "$tmp/said"
    companion=
    PYTHON=$tmp/nothing
    expect "no torch is a counted skip" counts skipped training
    PYTHON=$python_of_run
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
    for name in NCCL_HOSTID NCCL_NET_PLUGIN NCCL_NET NCCL_P2P_LL_THRESHOLD NCCL_ALLOC_P2P_NET_LL_BUFFERS NCCL_NET_GDR_LEVEL NCCL_NET_FORCE_FLUSH \
        NCCL_DMABUF_ENABLE NCCL_PROTO 'Using network %s' /GDRDMA ' Bytes -> Algo %'; do
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

# columns_of FILE ROW...: a table of check_nccl.sh
columns_of() {
    file=$1
    shift
    printf '%s\n' "${columns:-| cell | operation and settings | result |}" '|---|---|---|' "$@" >"$file"
}
# judges NAME VERDICT OF MATRIX.SH: what it says of the two tables
judges() {
    matrix_of "$tmp/of_stand_in" "$tmp/here" >"$tmp/out"
    expect "matrix: $1" [ "$(cat "$tmp/out")" = "$2" ]
}
step_matrix_compare() {
    columns_of "$tmp/of_stand_in" '| one | all_reduce | right |' '| two | all_gather | **FAILED**: exit 1 |'
    columns_of "$tmp/here" '| one | all_reduce | right |'
    judges "a cell that is right" "ok one: right; on the stand-in: right"
    columns_of "$tmp/here" '| one | all_reduce | **FAILED**: exit 7, values wrong 3 |'
    judges "one that is wrong here alone" "bad one: FAILED: exit 7, values wrong 3; on the stand-in: right"
    columns_of "$tmp/here" '| two | all_gather | right |' '| new | reduce | right |'
    judges "one that was wrong, and a new one" "ok two: right; on the stand-in: FAILED: exit 1
ok new: right; on the stand-in: has not run"
    columns_of "$tmp/here" '| one | all_reduce | skipped: there is 1 GPU |'
    judges "one that cannot be here" "skip one: skipped: there is 1 GPU; on the stand-in: right"
    columns='| cell | result | operation and settings |'
    columns_of "$tmp/here" '| one | right | all_reduce |'
    columns=
    expect "matrix: other columns are no table of it" says "$(matrix_of "$tmp/of_stand_in" "$tmp/here")" '^bad columns: .*has others'
    columns_of "$tmp/here"
    judges "no cell" "bad matrix: $tmp/here has no cell"
}
# The stand-in's libraries are where the loader would find those of a GPU: r2_nccl takes them as it takes CUDA's. The GPU is none that topo.xml has.
step_matrix() {
    step_matrix_compare
    if [ ! -x "$B/nccl-standin/release" ] || ! release=$("$B/nccl-standin/release" ${library:+"$library"} 2>"$tmp/out"); then
        skip "matrix" "no CUDA toolkit with nccl.h when this was built, or no NCCL: $(tail -n 1 "$tmp/out")"
        return
    fi
    libs=$LD_LIBRARY_PATH out_of_run=$out deep_of_run=${NCCL_DEEP:-} cells_of_run=$CELLS
    out=$tmp/matrix
    mkdir -p "$out"
    export NCCL_DEEP=1
    if ! "$B/nccl-standin/gpus" >/dev/null 2>&1; then
        expect "matrix: no GPU is a counted skip" counts skipped matrix
        expect "... with its reason" grep -q 'SKIP matrix: no GPU: no driver' "$tmp/said"
    fi
    export LD_LIBRARY_PATH="$B/nccl-standin/$release:$B/nccl-standin:$libs" STANDIN_GPUS=1 STANDIN_BUSID=0000:18:00.0
    CELLS=four-ranks
    expect "matrix: two ranks on one GPU are a counted skip" counts skipped matrix
    expect "... with its reason" grep -q 'Duplicate GPU detected' "$tmp/said"
    CELLS='down-simple all_reduce-gpu'
    matrix
    expect "its table names the GPU" grep -q '^Run of .* on 1 GPU: no GPU, sm_80, plugin' "$out/matrix.md"
    expect "... and has both cells" [ "$(grep -cE '^\| (down-simple|all_reduce-gpu) \|.* right ' "$out/matrix.md")" = 2 ]
    expect "... on the NICs beside the GPU, as topo.xml has them" grep -qE '^\| down-simple .*\| h0 (4[5-9]|5[0-5])% 0% ' "$out/matrix.md"
    STANDIN_BUSID=0000:93:00.0
    expect "matrix: a GPU in the place of a NIC is a counted skip" counts skipped matrix
    unset STANDIN_GPUS STANDIN_BUSID
    export LD_LIBRARY_PATH="$libs" NCCL_DEEP="$deep_of_run"
    out=$out_of_run CELLS=$cells_of_run
}
