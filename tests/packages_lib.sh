# For checks of packages that were unpacked into the folder $root: sourced, after check_lib.sh, with $tmp as there, and $skipped.
# has COMMAND WHAT: or WHAT is a skip
has() {
    command -v "$1" >/dev/null && return
    skipped=$((skipped + 1))
    echo "skipped: $2: no $1 here"
    return 1
}
# libraries LIBDIR: puts what the programs are linked with beside them, which is what the packages depend on, and no more
libraries() {
    mkdir -p "$root/proc" "$root/dev/shm" "$root/tmp" "$root/etc" || return 1
    for f in "$root"/usr/bin/* "$root$1/libnccl-net-r2.so" "$root/usr/lib/nccl-net-r2/softfab-lib/libibverbs.so.1"; do
        ldd "$f"
    done | grep -o '/[^ ]*' | sort -u | grep -v "^$root" | while read -r lib; do
        mkdir -p "$root$(dirname "$lib")" && cp -L "$lib" "$root$lib" || exit 1
    done
    [ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
}
documents() {
    d=$root/usr/share/doc/nccl-net-r2
    (cd docs && ls ./*.md) >"$tmp/want" && (cd "$d/docs" && ls ./*.md) >"$tmp/have" && diff "$tmp/want" "$tmp/have" &&
        grep -q 'R2-L02' "$d/docs/runbook.md" && cmp README.md "$d/README.md"
}
# alone COMMAND...: by its name, as a user would
alone() {
    env -i PATH=/usr/bin timeout -k 5 120 unshare --mount --pid --fork --kill-child --root="$root" --mount-proc "$@"
}
version_of() {
    alone "$1" --version | tee /dev/stderr | grep -q "$(cat VERSION)"
}
all_reduce() {
    alone r2_perf all_reduce --nics 4 -b 64K -e 1M -f 4 -n 5 || return 1
    alone r2_perf all_reduce --nics 4 --rate 20MB/s -b 1M -e 1M --duration 3s --fault '1s:h0:n1 down' >"$tmp/perf" 2>&1
    rc=$? # not 0 where the fault did not fire
    cat "$tmp/perf"
    [ $rc = 0 ] && grep -q ' 0 elements wrong' "$tmp/perf" && grep -Eq 'failovers seen: [1-9]' "$tmp/perf"
}
# The plugin by the loader's search, as NCCL would; the NICs are the fabric's.
doctor() {
    alone softfab up --nics 2 || return 1
    alone softfab exec --host 0 -- r2_config --doctor
    alone softfab exec --host 0 -- r2_config --doctor | grep -q '^ok.*/usr/lib.*/libnccl-net-r2.so'
    rc=$?
    alone softfab down && return $rc
}
# Ten checks.
works_alone() {
    if why=$(unshare --mount --pid --fork --mount-proc="$root/proc" true 2>&1); then
        for t in r2_config r2_stat r2_ctl r2_topo r2_plan r2_report r2_diag softfab; do
            check "$t, alone" version_of $t
        done
        check "r2_perf, alone" all_reduce
        check "r2_config --doctor, alone" doctor
    else
        skipped=$((skipped + 10))
        echo "skipped: what works alone: no namespaces here: $why"
    fi
}
