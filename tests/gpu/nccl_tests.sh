# nccl-tests with nccl-tests-patches, built from its sources. run.sh sources it.

# tests_sources: NCCL_TESTS, a tree or a clone, is copied to $src and patched; $why it could not be
tests_sources() {
    src=$out/nccl-tests why=
    rm -rf "$src"
    if [ -f "$NCCL_TESTS/src/common.cu" ]; then
        cp -R "$NCCL_TESTS" "$src" && rm -rf "$src/.git" "$src/build" || why="$NCCL_TESTS could not be copied"
    else
        # a bare clone: the newest release that there is a patch for
        release=$(cd nccl-tests-patches && printf '%s\n' v*.patch | sort -t. -k1,1 -k2,2n -k3,3n | tail -1)
        git -c advice.detachedHead=false clone -q --branch "${release%.patch}" "$NCCL_TESTS" "$src" >"$tmp/out" 2>&1 ||
            why="$NCCL_TESTS is neither a tree of nccl-tests nor a clone with ${release%.patch}"
    fi
    [ -n "$why" ] || sh nccl-tests-patches/apply.sh "$src" >"$tmp/out" 2>&1 || why="apply.sh: $(tail -1 "$tmp/out")"
}
# tools_find: $nvcc, $cuda (its toolkit), $cuda_lib; $nccl, a folder with NCCL's include/nccl.h, if the compiler does not find it itself; $mpi, a folder with
# Open MPI's include/. Empty: not there.
tools_find() {
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    cuda=${CUDA_HOME:-${nvcc%/bin/nvcc}}
    [ -x "$nvcc" ] || nvcc=
    cuda_lib=$cuda/lib64
    [ -d "$cuda_lib" ] || cuda_lib=$cuda/lib
    nccl=${NCCL_HOME:-}
    [ -n "$nccl" ] || [ ! -f "$cuda/include/nccl.h" ] || nccl=$cuda
    mpi=$(mpicc --showme:incdirs 2>/dev/null | awk '{ print $1 }')
    mpi=${mpi%/include}
}
# tests_make ARGUMENT...: make for the programs that are used, for the GPU that is here
tests_make() {
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
    case $capability in
    '' | *[!0-9]*) ;;
    *) set -- "$@" NVCC_GENCODE="-gencode=arch=compute_$capability,code=sm_$capability" ;;
    esac
    [ -z "$nccl" ] || set -- "$@" NCCL_HOME="$nccl"
    MAKEFLAGS='' MFLAGS='' make -C "$src/src" BUILDDIR="$src/build" NVCC="${nvcc:-nvcc}" CUDA_HOME="$cuda" CUDA_LIB="$cuda_lib" MPI=1 MPI_HOME="$mpi" \
        BIN_FILES_LIST="$OPS" "$@" build
}
# tests_build: sets NCCL_TESTS_BUILD, or says why not
tests_build() {
    tools_find
    if [ -z "$nvcc" ]; then
        skip "nccl-tests" "NCCL_TESTS names sources, but there is no nvcc"
        return
    elif [ -z "$mpi" ]; then
        skip "nccl-tests" "NCCL_TESTS names sources, but there is no Open MPI (mpicc), without which it is one process"
        return
    fi
    tests_sources
    if [ -n "$why" ]; then
        bad "nccl-tests from its sources" "$why"
    elif ! tests_make -j "$(getconf _NPROCESSORS_ONLN)" >"$tmp/out" 2>&1; then
        bad "nccl-tests from its sources" "make failed"
    else
        ok "nccl-tests from its sources"
        NCCL_TESTS_BUILD=$src/build
        export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$cuda_lib${nccl:+:$nccl/lib}"
    fi
}
