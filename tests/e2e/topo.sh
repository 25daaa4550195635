#!/bin/sh
# r2_topo on machines made from tests/topo/machines: what it prints, facts that are known of them, hwloc's word against sysfs, trees that are broken on purpose.
#   topo.sh BUILD            closes with "N passed, N failed[, N skipped]"
#   topo.sh BUILD --write    puts what is printed into tests/topo/expected; look at it
set -u
cd "$(dirname "$0")/../.." || exit 2
B=$1
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0
hwloc=$B/libnccl-net-r2-topo-hwloc.so
# the plugins of hwloc would look at this machine's X servers and GPUs
export HWLOC_PLUGINS_PATH="$tmp"

ok() {
    passed=$((passed + 1))
}
bad() {
    failed=$((failed + 1))
    echo "FAIL $*"
}
# topo ARGUMENTS...: into out and err; rc
topo() {
    timeout -k 5 60 "$B/r2_topo" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}

# one_fact SOURCE FILE LINE...: whether it holds in the JSON
one_fact() {
    source=$1 json=$2 what=$3
    shift 3
    case $what in
    count) jq -e --arg k "$1" --argjson n "$2" '(.[$k] | if type == "array" then length else . end) == $n' "$json" ;;
    class) jq -e --argjson g "$1" --arg n "$2" --arg c "$3" 'any(.paths[]; .gpu == $g and .nic == $n and .class == $c)' "$json" ;;
    path) jq -e --argjson g "$1" --arg n "$2" --argjson m "$3" 'any(.paths[]; .gpu == $g and .nic == $n and .path_mbps == $m)' "$json" ;;
    first) jq -e --argjson g "$1" --arg f "$2" --arg n "$3" 'any(.order[]; .gpu == $g and .failed == $f and .nics[0] == $n)' "$json" ;;
    last) jq -e --argjson g "$1" --arg f "$2" --arg n "$3" 'any(.order[]; .gpu == $g and .failed == $f and .nics[-1] == $n)' "$json" ;;
    relay) jq -e --argjson g "$1" --arg n "$2" --argjson r "$3" 'any(.paths[]; .gpu == $g and .nic == $n and .relay_gpu == $r)' "$json" ;;
    norelay) jq -e --argjson g "$1" --arg n "$2" 'any(.paths[]; .gpu == $g and .nic == $n and (has("relay_gpu") | not))' "$json" ;;
    shared) jq -e --arg a "$1" --arg b "$2" '[.paths[] | select(.gpu == 0 and (.nic == $a or .nic == $b)) | .links] | .[0] == .[1]' "$json" ;;
    *) return 2 ;;
    esac >/dev/null
}

# facts_check MACHINE SOURCE JSON
facts_check() {
    while read -r what a b c d; do
        case $what in '' | '#'*) continue ;; esac
        # a last word may name the source; rates and idle links are sysfs's alone, NVLink not in XML
        only=
        case $c in sysfs | hwloc | xml) only=$c c= ;; esac
        case $d in sysfs | hwloc | xml) only=$d ;; esac
        [ -z "$only" ] || [ "$only" = "$2" ] || continue
        case $2:$what in hwloc:path | hwloc:first | hwloc:last | hwloc:*relay | xml:path | xml:first | xml:last | xml:*relay) continue ;; esac
        # shellcheck disable=SC2086
        if one_fact "$2" "$3" "$what" $a $b $c; then
            ok
        else
            bad "$1, $2: $what $a $b $c"
        fi
    done <"tests/topo/facts/$1.facts"
}

leaves() {
    jq -r 'tostream | select(length == 2) | "\(.[0] | map(tostring) | join(".")) \(.[1] | tojson)"' "$1" | sort
}

# compare MACHINE SOURCE: sysfs's JSON with the other's
compare() {
    leaves "$tmp/$1.sysfs.json" >"$tmp/a"
    leaves "$tmp/$1.$2.json" >"$tmp/b"
    comm -3 "$tmp/a" "$tmp/b" | tr -d "\t" >"$tmp/lines"
    cut -d" " -f1 "$tmp/lines" | sed "s/[.][0-9][0-9]*/.*/g" | sort -u >"$tmp/places"
    wrong=0
    while read -r place; do
        found=
        n=0
        while read -r m s p _; do
            n=$((n + 1))
            case $m in '' | '#'*) continue ;; esac
            # shellcheck disable=SC2254
            case $1 in $m) case $2 in $s) case $place in $p) found=1 && echo "$n" >>"$tmp/used" && break ;; esac ;; esac ;; esac
        done <tests/topo/differences.txt
        [ -n "$found" ] || {
            wrong=1
            echo "  $1, $2: $place differs without a reason:"
            grep -e "^$(echo "$place" | sed "s/[.][*]/[.][0-9]*/g") " "$tmp/lines" | head -4
        }
    done <"$tmp/places"
    if [ $wrong = 0 ]; then ok; else bad "$1: sysfs and $2 differ"; fi
}

# drawn NAME HOW-MANY CLASS: so many elements of that class are in the picture, and one more in its legend, if it is one of boxes
drawn() {
    n=$(grep -cE "class=\"$3\"" "$tmp/svg")
    if [ "$n" = "$2" ]; then ok; else bad "$1: --svg has $n of $3, not $2"; fi
}
# picture NAME TREE JSON: what there is is drawn, with its whole name, in a box that it fits into
picture() {
    topo --root "$2" --svg "$tmp/svg"
    [ $rc = 0 ] || bad "$1: --svg: status $rc"
    down='def is_down: .state == "down";'
    drawn "$1" "$(jq '.gpus | length + 1' "$3")" gpu
    drawn "$1" "$(jq "$down"'[.nics | group_by(.pci)[] | select(all(.[]; is_down) | not)] | length + 1' "$3")" nic
    drawn "$1" "$(jq "$down"'[.nics | group_by(.pci)[] | select(all(.[]; is_down))] | length + 1' "$3")" nic-lost
    drawn "$1" "$(jq "$down"'[.nics[] | select(is_down | not)] | length' "$3")" cable
    drawn "$1" "$(jq "$down"'[.nics[] | select(is_down)] | length' "$3")" cable-lost
    drawn "$1" "$(jq .sockets "$3")" socket
    drawn "$1" "$(jq '.sockets - 1' "$3")" between
    jq -r '.nics[] | ">\(.name):\(.port)<"' "$3" >"$tmp/names"
    grep -oFf "$tmp/names" "$tmp/svg" | sort >"$tmp/lines"
    if sort "$tmp/names" | cmp -s - "$tmp/lines"; then ok; else bad "$1: --svg: names: $(cat "$tmp/lines")"; fi
    # a wide font takes 7.4 pixels a letter; what might not fit has a width of its own
    if awk -F'"' '/<rect .*class="(nic|gpu)/ { box = $6 + 0 > box ? $6 + 0 : box } /class="mid( lost)?"/ {
            text = $0; gsub(/<[^>]*>/, "", text); wide = $0 ~ /textLength/ ? $6 : 7.4 * length(text)
            if (wide > box) { print text ": " wide " in " box; bad = 1 } } END { exit bad || !box }' "$tmp/svg" >"$tmp/lines"; then
        ok
    else
        bad "$1: --svg: wider than its box: $(cat "$tmp/lines")"
    fi
    if [ "$(grep -c '>down<' "$tmp/svg")" = "$(jq "$down"'[.nics[] | select(is_down)] | length' "$3")" ]; then ok; else bad "$1: --svg: ports that are down"; fi
    # the last line of the legend is 10 pixels above the lower edge
    if awk -F'"' '/<svg / { edge = $6 + 0 } /<rect x/ && $4 + $8 > edge { bad = 1 } /<text x/ { last = $4 + 0 }
            END { exit bad || last > edge - 9 || last < edge - 11 }' "$tmp/svg"; then ok; else bad "$1: --svg: the lower edge"; fi
    # likewise what stands in the legend and, in a font of 14 pixels, above all, in the picture
    if awk -F'"' '/<svg / { edge = $4 + 0 } /<text .*class="(left|head)"/ { text = $0; gsub(/<[^>]*>/, "", text); n++
            if ($2 + (/"head"/ ? 8.6 : 7.4) * length(text) > edge) { print text; bad = 1 } } END { exit bad || !edge || n < 9 }' "$tmp/svg" >"$tmp/lines"; then
        ok
    else
        bad "$1: --svg: beyond its edge: $(cat "$tmp/lines")"
    fi
    if grep -qF ">$2: " "$tmp/svg" && grep -q '>NIC, port down<' "$tmp/svg"; then ok; else bad "$1: --svg: what it is of, and the legend"; fi
}

# machine NAME
machine() {
    tree=$tmp/$1
    mkdir "$tree"
    "$B/topo_make" "tests/topo/machines/$1.machine" "$tree" || return 1
    topo --root "$tree" --order
    sed "1s|^$tree |NAME |" "$tmp/out" >"$tmp/got"
    if [ "${write:-}" ]; then
        cp "$tmp/got" "tests/topo/expected/$1.txt"
    fi
    if [ $rc = 0 ] && diff -u "tests/topo/expected/$1.txt" "$tmp/got"; then ok; else bad "$1: what is printed"; fi
    topo --root "$tree" --order --json
    cp "$tmp/out" "$tmp/$1.sysfs.json"
    facts_check "$1" sysfs "$tmp/$1.sysfs.json"
    picture "$1" "$tree" "$tmp/$1.sysfs.json"
    [ -f "$hwloc" ] || return 0
    topo --root "$tree" --source hwloc --order --json
    cp "$tmp/out" "$tmp/$1.hwloc.json"
    facts_check "$1" hwloc "$tmp/$1.hwloc.json"
    compare "$1" hwloc
    "$B/topo_xml" "$tree" "$tmp/$1.xml" && topo --xml "$tmp/$1.xml" --order --json
    cp "$tmp/out" "$tmp/$1.xml.json"
    facts_check "$1" xml "$tmp/$1.xml.json"
    compare "$1" xml
}

# broken NAME WANT_RC TEXT: r2_topo on the tree $t ends with that status and says TEXT, in the output or the error
broken() {
    topo --root "$t"
    if [ $rc = "$2" ] && grep -q -e "$3" "$tmp/out" "$tmp/err"; then
        ok
    else
        bad "$1: status $rc, not $2 with '$3'"
        head -3 "$tmp/err"
    fi
}
fresh() {
    rm -rf "$tmp/broken"
    cp -r "$tmp/dgx-h100" "$tmp/broken"
    t=$tmp/broken
    nic=$(readlink -f "$t/sys/bus/pci/devices/0000:1a:00.0")
}

hostile() {
    bad_text='something that had contents which make no sense'
    fresh && rm -r "$t/sys" && broken "no sys at all" 0 '0 GPUs, 0 NIC ports, 1 NUMA nodes'
    fresh && rm "$nic/class" && ln -s class "$nic/class" && broken "a link to itself in place of a file" 0 'mlx5_0:1 400'
    fresh && rm "$t/sys/class/infiniband/mlx5_0" && ln -s ../infiniband/mlx5_0 "$t/sys/class/infiniband/mlx5_0" &&
        broken "a NIC that is a link to itself" 0 '11 NIC ports'
    fresh && rm "$nic/infiniband/mlx5_0/ports/1/rate" && mkfifo "$nic/infiniband/mlx5_0/ports/1/rate" &&
        broken "a pipe in place of a file" 0 'mlx5_0:1 ? Gb/s'
    fresh && rm "$nic/vendor" && ln -s /dev/zero "$nic/vendor" && broken "a device in place of a file" 0 'mlx5_0:1 400'
    fresh && rm "$nic/current_link_width" && truncate -s 1G "$nic/current_link_width" && broken "a huge file" 0 'mlx5_0:1 400'
    fresh && echo 99999999999999999999 >"$nic/numa_node" && broken "an absurd node" 0 "$bad_text"
    fresh && echo -99 >"$nic/numa_node" && broken "a negative node" 0 "$bad_text"
    fresh && echo 0xffffffffffff >"$nic/class" && broken "an absurd class" 0 "$bad_text"
    fresh && printf 'x16\0\377\n' >"$nic/current_link_width" && broken "no number for a width" 0 'mlx5_0:1 400'
    fresh && echo 31 >"$nic/current_link_width" && broken "a width that PCI has not" 0 "$bad_text"
    fresh && echo '999999999999 Gb/sec' >"$nic/infiniband/mlx5_0/ports/1/rate" && broken "an absurd rate" 0 'mlx5_0:1 ? Gb/s'
    fresh && mkdir "$nic/infiniband/mlx5_0/ports/99999999999999999999" "$nic/infiniband/mlx5_0/ports/-1" && broken "absurd ports" 0 '12 NIC ports'
    fresh && rm "$t/sys/bus/pci/devices/0000:19:00.0" && ln -s ../../../devices/pci0000:15/0000:19:00.1 "$t/sys/bus/pci/devices/0000:19:00.0" &&
        broken "a GPU whose link leads elsewhere" 0 '7 GPUs'
    fresh && rm "$t/sys/bus/pci/devices/0000:3b:00.0" && ln -s ../../../devices/pci0000:37/0000:3b:00.0/0000:3c:00.0/0000:3b:00.0 "$t/sys/bus/pci/devices/0000:3b:00.0" &&
        mkdir -p "$t/sys/devices/pci0000:37/0000:3b:00.0/0000:3c:00.0" &&
        cp -r "$t/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3b:00.0" "$t/sys/devices/pci0000:37/0000:3b:00.0/0000:3c:00.0/" &&
        broken "a loop in a link's words" 0 "$bad_text"
    fresh && rm "$t/sys/class/infiniband/mlx5_0" && ln -s "../../$(printf '0000:00:%02x.0/' $(seq 0 31))$(printf 'x/%.0s' $(seq 200))" "$t/sys/class/infiniband/mlx5_0" &&
        broken "a link without a root bus" 0 '12 NIC ports\|11 NIC ports'
    fresh && printf 'nvlink * * 5\nnvlink here there 7\n' >"$t/etc/nccl-net-r2/links" && broken "a line of links that is wrong" 1 'links, line 2: a GPU is a PCI address'
    fresh && head -c 40000 /dev/zero | tr '\0' '#' >"$t/etc/nccl-net-r2/links" && broken "a long file of links" 1 'more than 32768 bytes'
    fresh && rm "$t/etc/nccl-net-r2/links" && ln -s ../../../../../../../../../../../etc/hostname "$t/etc/nccl-net-r2/links" && broken "a link that leads out of the tree" 0 'not known: links between GPUs'
    fresh
    for i in $(seq 300); do
        mkdir -p "$t/sys/class/infiniband/x$i/ports/1"
    done
    broken "more NICs than there is room for" 0 'there are more than this program takes'
    t=$tmp/nowhere
    broken "no such directory" 1 'nowhere: No such file'
}

# usage RC TEXT ARGUMENTS...
usage() {
    want=$1 text=$2
    shift 2
    topo "$@"
    if [ $rc = "$want" ] && grep -q -e "$text" "$tmp/out" "$tmp/err"; then ok; else bad "r2_topo $*: status $rc, not $want with '$text'"; fi
}

commands() {
    usage 0 'usage: r2_topo' --help
    usage 0 '^r2_topo [0-9]' --version
    usage 2 "unknown option '--nonsense'" --nonsense
    usage 2 'nothing to name' extra
    usage 2 'source is sysfs or hwloc' --source lspci
    usage 2 'stands alone' --xml a.xml --root /
    usage 2 'same output' --json --svg -
    usage 1 'Permission denied\|No such file\|Not a directory' --svg "$tmp/nowhere/x.svg"
    usage 0 'host (sysfs)'
    topo --svg -
    if grep -qF ">$(uname -n): " "$tmp/out"; then ok; else bad "--svg: this host's name"; fi
    topo --svg - --root "$tmp/dgx-h100"
    if [ $rc = 0 ] && head -c 5 "$tmp/out" | grep -q '<svg '; then ok; else bad "--svg -"; fi
    if "$B/r2_topo" --help >/dev/full 2>/dev/null || "$B/r2_topo" >/dev/full 2>/dev/null; then bad "a full disk is no failure"; else ok; fi
    if [ -f "$hwloc" ]; then
        usage 1 'hwloc cannot read' --xml "$tmp/none.xml"
        echo '<topology>' >"$tmp/half.xml"
        usage 1 'hwloc cannot read' --xml "$tmp/half.xml"
        usage 0 'host (hwloc)' --source hwloc
        mkdir "$tmp/alone" && cp "$B/r2_topo" "$tmp/alone/"
        if "$tmp/alone/r2_topo" --source hwloc >/dev/null 2>"$tmp/err" || ! grep -q 'hwloc is not available: ' "$tmp/err"; then bad "no module"; else ok; fi
    fi
}

[ "${2:-}" = --write ] && write=1
: >"$tmp/used"
for m in tests/topo/machines/*.machine; do
    machine "$(basename "$m" .machine)" || bad "$m cannot be made"
done
if [ -f "$hwloc" ]; then
    n=0
    while read -r m s p why; do
        n=$((n + 1))
        case $m in '' | '#'*) continue ;; esac
        if grep -qx "$n" "$tmp/used"; then ok; else bad "differences.txt, line $n explains nothing: $m $s $p"; fi
    done <tests/topo/differences.txt
else
    skipped=$((skipped + 1))
    echo "SKIP hwloc against sysfs: libhwloc-dev was not there when this was built"
fi
# long names, ports that are down, a socket without anything, a NIC that is no PCI device
sed 's/^node 0 socket 0$/&\nnode 1 socket 1/; s/rocep35s0f0/rocep35s0f0np0_of_31_characters/' tests/topo/machines/port-down.machine >"$tmp/long.machine"
mkdir "$tmp/long" && "$B/topo_make" "$tmp/long.machine" "$tmp/long" || bad "long names"
mkdir -p "$tmp/long/sys/class/infiniband/rxe0/ports/1" && echo "4: ACTIVE" >"$tmp/long/sys/class/infiniband/rxe0/ports/1/state"
topo --root "$tmp/long" --json
cp "$tmp/out" "$tmp/long.json"
picture "long names" "$tmp/long" "$tmp/long.json"
# ... and a long name of the tree
tree=$tmp/$(printf 'tree%0100d' 0)
mv "$tmp/long" "$tree"
picture "a long path" "$tree" "$tmp/long.json"
hostile
commands
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ]
