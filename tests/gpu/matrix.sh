# The matrix of tests/nccl on a GPU, its verdicts beside those that docs/nccl.md has of the stand-in for CUDA. run.sh sources it.

# matrix_of STAND_IN HERE: two tables of check_nccl.sh, cell by cell: a line each, "ok", "bad" or "skip", the cell's name, a colon, and both results.
# Times and shares are not compared: they are the machine's.
matrix_of() {
    awk -F ' *[|] *' '
        /^\| cell / {
            if (head == "") { head = $0 } else if ($0 != head) { print "bad columns: " FILENAME " has others" }
            next
        }
        /^\|---/ || !/^\| / { next }
        { result = $4; gsub(/[*]/, "", result) }
        FILENAME == ARGV[1] { stand_in[$2] = result; next }
        {
            n++
            said = ($2 in stand_in) ? stand_in[$2] : "has not run"
            verdict = result == "right" ? "ok" : result ~ /^skipped/ ? "skip" : "bad"
            print verdict " " $2 ": " result "; on the stand-in: " said
        }
        END { if (n == 0) print "bad matrix: " ARGV[2] " has no cell" }' "$1" "$2"
}
# matrix_judge STAND_IN HERE: counts them
matrix_judge() {
    matrix_of "$1" "$2" >"$tmp/cells"
    while read -r verdict cell; do
        name="${dry:+stand-ins: }matrix ${cell%%: *}"
        case $verdict in
        ok) ok "$name: ${cell#*: }" ;;
        skip) skip "$name" "${cell#*: }" ;;
        *) bad "$name" "${cell#*: }" ;;
        esac
    done <"$tmp/cells"
}
# matrix: the cells of $CELLS, with NCCL_DEEP=1 of the whole matrix; what a job of this script sets is none of theirs
matrix() {
    if [ ! -x "$B/r2_nccl" ]; then
        skip matrix "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one)"
        return
    fi
    rm -f "$out/matrix.md"
    (
        for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
            case $v in NCCL_HOME | NCCL_DEEP) ;; *) unset "$v" ;; esac
        done
        [ -z "$library" ] || export NCCL_LIB="$library"
        STANDIN=off NCCL_TABLE=$out/matrix.md NCCL_KEEP=$out/matrix exec sh tests/nccl/check_nccl.sh "$B" "$CELLS"
    ) >"$tmp/out" 2>&1
    rc=$?
    cp "$tmp/out" "$out/matrix.out"
    if [ $rc = 77 ]; then
        skip matrix "$(tail -n 1 "$tmp/out")"
    elif [ ! -s "$out/matrix.md" ]; then
        bad matrix "exit status $rc, and no table"
    else
        matrix_judge docs/nccl.md "$out/matrix.md"
    fi
}
