#!/bin/sh
# The out-of-band channel over Open MPI, end to end: collectives of MPI ranks on the software fabric, with failures in the middle, MPI that ends before the
# job does, ranks without MPI, a rank that dies. r2_perf knows nothing of MPI: liboob_mpi_host.so, preloaded too, calls MPI_Init for it.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
module=$B/libnccl-net-r2-oob-mpi.so
host=$B/tests/liboob_mpi_host.so
if ! command -v mpirun >/dev/null 2>&1 || [ ! -f "$module" ]; then
    echo "no Open MPI: mpirun is missing, or $(basename "$module") was not built"
    exit 77
fi
export B module host NCCL_IB_TIMEOUT=12 NCCL_IB_RETRY_CNT=3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fabric=r2oobmpi$$
export fabric log
trap '"$B/softfab" down --name $fabric >/dev/null 2>&1; rm -rf "$log"; [ -z "$busy" ] || kill $busy 2>/dev/null' EXIT

# What each rank runs. Rank r is host r mod 2. R$r_OOB and R$r_MODULE are a rank's own.
cat >"$log/rank" <<'EOF'
r=$OMPI_COMM_WORLD_RANK
eval "oob=\${R${r}_OOB:-}; mod=\${R${r}_MODULE-\$module}"
[ -z "$oob" ] || export NCCL_R2_OOB="$oob"
echo $$ >"$log/pid.$r"
exec "$B/softfab" exec --host $((r % 2)) --name "$fabric" -- env LD_PRELOAD="$mod${mod:+:}$host" "$B/r2_perf" "$@"
EOF

# job RANKS ARGUMENTS: an MPI job on a fabric of its own
job() {
    np=$1
    shift
    "$B/softfab" up --name "$fabric" --hosts 2 --nics 4 --rate 20MB/s >/dev/null || return
    timeout -k 5 120 mpirun --oversubscribe --bind-to none -np "$np" sh "$log/rank" "$@" --intra net --placement out -w 1 -T 30s \
        >"$log/out" 2>&1
    rc=$?
    "$B/softfab" down --name "$fabric" >/dev/null
}
fault() {
    echo "$1:'$B/softfab' fault --name $fabric $2"
}
# has NAME PATTERN [COUNT]: at least so often
has() {
    n=$(grep -c -e "$2" "$log/out")
    [ "$n" -ge "${3:-1}" ] && return
    bad "$1" "'$2' $n times, not ${3:-1}"
    return 1
}
hasnt() {
    grep -q -e "$2" "$log/out" || return 0
    bad "$1" "'$2'"
    return 1
}
switched() {
    n=$(downs)
    [ "$n" -gt 0 ] && return
    bad "$1" "no path went down"
    return 1
}
# all_gone: within 10 s both ranks are; mpirun returns when it has sent its signals
all_gone() {
    tries=0
    while grep -q '^State:[[:space:]]*[^ZX]' "/proc/$(cat "$log/pid.0")/status" "/proc/$(cat "$log/pid.1")/status" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || return 1
        sleep 0.1
    done
}
BASE="-b 256K -e 256K --buffsize 128K"
STANDS='out-of-band channel to MPI rank [0-9]* at .* is up'
TCP='goes by TCP from now on'

name="two ranks, a NIC down in the middle"
wanted "$name" && {
    # shellcheck disable=SC2086
    NCCL_R2_OOB=mpi job 2 all_reduce $BASE --duration 1500ms --fault-cmd "$(fault 400ms 'h0:n1 down')"
    was_right "$name" && has "$name" "$STANDS" 2 && hasnt "$name" "$TCP" && has "$name" '# r2 fault 1 at' && switched "$name" && ok "$name"
}
name="two ranks, a blackhole that the watchdog finds"
wanted "$name" && {
    # shellcheck disable=SC2086
    NCCL_R2_OOB=mpi job 2 sendrecv $BASE --duration 1500ms --fault-cmd "$(fault 400ms 'h1:n2 blackhole')"
    was_right "$name" && has "$name" "$STANDS" 2 && hasnt "$name" "$TCP" && has "$name" '# r2 fault 1 at' && switched "$name" && ok "$name"
}
name="four ranks, auto, a NIC of each host down"
wanted "$name" && {
    # shellcheck disable=SC2086
    NCCL_R2_OOB=auto job 4 alltoall $BASE --duration 1500ms --fault-cmd "$(fault 300ms 'h0:n0 down')" --fault-cmd "$(fault 700ms 'h1:n3 down')"
    was_right "$name" && has "$name" "$STANDS" 12 && hasnt "$name" "$TCP" && has "$name" '# r2 fault [12] at' 2 && switched "$name" && ok "$name"
}
name="MPI ends, then a NIC goes down"
wanted "$name" && {
    # shellcheck disable=SC2086
    OOB_MPI_HOST=finalize-after:1500 NCCL_R2_OOB=mpi job 2 all_reduce $BASE --duration 4s --fault-cmd "$(fault 3s 'h0:n1 down')"
    was_right "$name" && has "$name" "$STANDS" 2 && has "$name" "$TCP" 2 && has "$name" 'MPI has ended' 2 && has "$name" '# r2 fault 1 at' &&
        switched "$name" && ok "$name"
}
name="one rank with MPI, one with TCP"
wanted "$name" && {
    # shellcheck disable=SC2086
    R0_OOB=mpi R1_OOB=tcp job 2 all_reduce $BASE --duration 1200ms --fault-cmd "$(fault 400ms 'h1:n1 down')"
    was_right "$name" && hasnt "$name" "$STANDS" && has "$name" 'MPI rank 0 of 2, on a communicator of its own' &&
        has "$name" '# r2 fault 1 at' && switched "$name" && ok "$name"
}
name="without the module: auto is TCP, with the reason"
wanted "$name" && {
    # shellcheck disable=SC2086
    NCCL_R2_OOB=auto R0_MODULE='' R1_MODULE='' job 2 all_reduce $BASE --duration 300ms
    was_right "$name" && has "$name" 'by TCP: no MPI: the program was not started with LD_PRELOAD=libnccl-net-r2-oob-mpi.so' 2 && ok "$name"
}
name="without the module: mpi ends the job with the reason"
wanted "$name" && {
    # shellcheck disable=SC2086
    NCCL_R2_OOB=mpi R0_MODULE='' R1_MODULE='' job 2 all_reduce $BASE -n 20
    if [ "$rc" = 0 ] || [ "$rc" = 124 ]; then
        bad "$name" "exit code $rc"
    else
        has "$name" 'WARN NET/R2 : NCCL_R2_OOB=mpi: the program was not started with LD_PRELOAD=libnccl-net-r2-oob-mpi.so' && ok "$name"
    fi
}
# mpirun ends all ranks of a job when one dies: nothing must hang on the way there.
name="a rank is killed"
wanted "$name" && {
    # shellcheck disable=SC2086
    NCCL_R2_OOB=mpi job 2 all_reduce $BASE --duration 60s --fault-cmd "500ms:kill -9 \$(cat '$log/pid.1')"
    if [ "$rc" = 0 ] || [ "$rc" = 124 ]; then
        bad "$name" "exit code $rc"
    elif ! all_gone; then
        bad "$name" "a rank is still there"
    else
        has "$name" 'exited on signal 9' && ok "$name"
    fi
}
# A rank that waits for one without the module must say what it waits for: nobody else can tell.
name="the module in one rank only"
wanted "$name" && {
    "$B/softfab" up --name "$fabric" --hosts 2 --nics 4 >/dev/null
    # shellcheck disable=SC2086
    NCCL_R2_OOB=mpi R1_MODULE='' mpirun --oversubscribe --bind-to none -np 2 sh "$log/rank" all_reduce $BASE -n 20 >"$log/out" 2>&1 &
    busy=$!
    tries=0
    while [ $tries -lt 300 ] && ! grep -q 'must be preloaded' "$log/out" && kill -0 $busy 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1 # a file has no event here; a bound against a hang
    done
    has "$name" 'MPI_Init waits for ranks that do not come: libnccl-net-r2-oob-mpi.so must be preloaded in all ranks' && ok "$name"
    kill $busy 2>/dev/null
    wait $busy 2>/dev/null
    busy=
    "$B/softfab" down --name "$fabric" >/dev/null
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
