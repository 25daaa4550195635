# For scripts that run commands and count: sourced, with the script's folder for what it leaves in $tmp.
passed=0 failed=0
# check NAME COMMAND...: right where COMMAND succeeds; else what it printed last is shown
check() {
    name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        sed 's/^/    /' "$tmp/out" | tail -15
    fi
}
