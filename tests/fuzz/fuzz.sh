#!/bin/sh
# Runs fuzz targets with libFuzzer, or puts what they have found by now beside what is kept.
#   fuzz.sh BUILD SECONDS TARGET...     each target for so long; what is new goes to BUILD/corpus/TARGET
#   fuzz.sh BUILD keep TARGET...        tests/fuzz/corpus/TARGET.tar.gz becomes the fewest inputs that reach all that BUILD/corpus/TARGET reaches
#   fuzz.sh BUILD unpack TARGET...      the inputs that are kept, as files, into BUILD/kept/TARGET
# BUILD is what make fuzz built. An input that fails is left in BUILD/fail.
set -u
B=$1 T=$2
shift 2
archives=tests/fuzz/corpus kept=$B/kept
mkdir -p "$B/fail"

# Again only where the archive is newer: make check and make fuzz both come here.
unpack() {
    [ "$kept/$1.unpacked" -nt "$archives/$1.tar.gz" ] && return 0
    rm -rf "${kept:?}/${1:?}"
    mkdir -p "$kept/$1" && tar -C "$kept/$1" -xzf "$archives/$1.tar.gz" && : >"$kept/$1.unpacked"
}
# The same inputs make the same archive.
pack() {
    (cd "$kept/$1" && tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -cf - ./*) | gzip -n9 >"$archives/$1.tar.gz" &&
        : >"$kept/$1.unpacked"
}

max_len() {
    case $1 in
    options | events) echo 4096 ;;
    faulttext) echo 512 ;;
    ring | imm | oob | ways) echo 1024 ;;
    *) echo 400 ;; # a program of about 100 steps
    esac
}

# What is kept is chosen by the edges of the code alone, not by how often each was taken: a tenth of the files.
keep() {
    unpack "$1" || return 1
    mkdir -p "$B/corpus/$1" "$B/merged"
    rm -rf "$B/merged/${1:?}"
    mkdir "$B/merged/$1"
    "$B/fuzz/fuzz_$1" -merge=1 -use_counters=0 "$B/merged/$1" "$kept/$1" "$B/corpus/$1" >"$B/$1.log" 2>&1 || return 1
    # a regression is named by what it shows and stays whatever else reaches the same code
    find "$kept/$1" -type f ! -name 'bug-*' -exec rm {} +
    cp "$B/merged/$1"/* "$kept/$1/"
    pack "$1" || return 1
    echo "$1: $(find "$kept/$1" -type f | wc -l) inputs kept"
}

run() {
    unpack "$1" || return 1
    mkdir -p "$B/corpus/$1"
    nice -n 15 "$B/fuzz/fuzz_$1" -max_total_time="$T" -max_len="$(max_len "$1")" -len_control=10 -timeout=60 -rss_limit_mb=3000 \
        -artifact_prefix="$B/fail/$1-" -print_final_stats=1 "$B/corpus/$1" "$kept/$1" >"$B/$1.log" 2>&1
    rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$B/$1.log")
    cov=$(sed -n 's/^#.* cov: \([0-9]*\) .*/\1/p' "$B/$1.log" | tail -1)
    printf '%-10s %8s runs, %5s edges, %5s inputs%s\n' "$1" "${runs:-0}" "${cov:-0}" "$(find "$B/corpus/$1" -type f | wc -l)" \
        "$([ $rc = 0 ] || echo ': FAIL')"
    [ $rc = 0 ] && [ "${runs:-0}" -gt 0 ] && return 0
    sed 's/^/     | /' "$B/$1.log" | grep -v '^     | #' | tail -60
    input=$(sed -n 's/.*Test unit written to //p' "$B/$1.log" | tail -1)
    echo "     again: $B/fuzz/fuzz_$1 ${input:-?}"
    return 1
}

passed=0 failed=0
for t in "$@"; do
    case $T in
    keep | unpack) "$T" "$t" ;;
    *) run "$t" ;;
    esac && passed=$((passed + 1)) || failed=$((failed + 1))
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
