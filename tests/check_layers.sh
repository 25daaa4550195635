#!/bin/sh
# Checks every #include of plugin/ and topo/ against the order of folders in plugin/folders: includes run downward. Since they do,
# no two folders include each other, by whatever way.
#   check_layers.sh [BUILD]          first that wrong includes are found, then the tree; closes with "N passed, N failed"
#   check_layers.sh --tree ROOT      one tree; prints each wrong line
set -u

# layer_check ROOT: one line per include that breaks a rule; status 1 when there is any
layer_check() {
    (
        cd "$1" || exit 2
        set -- plugin topo
        [ -d topo ] || set -- plugin
        find "$@" -name '*.[ch]' -type f | sort | while IFS= read -r f; do
            awk '/^[ \t]*#[ \t]*include[ \t]*[<"]/ { print FILENAME "\t" FNR "\t" $0 }' "$f"
        done | awk -F '\t' '
        # The folder of a file as plugin/folders names it.
        function folder(f) {
            sub(/\/[^\/]*$/, "", f)
            return f ~ /^plugin\// ? substr(f, 8) : f == "topo" ? "../topo" : f
        }
        function exists(f, line, rc) {
            rc = (getline line < f)
            close(f)
            return rc >= 0
        }
        # a/b/../c is a/c
        function straight(f) {
            while (sub(/[^\/]+\/\.\.\//, "", f))
                ;
            return f
        }
        # An include in quotes is looked for beside the file, then below plugin/, then below the root, as the compiler does.
        function resolve(from, name, dir) {
            dir = from
            sub(/[^\/]*$/, "", dir)
            if (exists(dir name)) return straight(dir name)
            if (exists("plugin/" name)) return straight("plugin/" name)
            return name
        }
        function wrong(why) {
            print $1 ":" $2 ": " why ": " name
            bad = 1
        }
        BEGIN {
            while ((getline line < "plugin/folders") > 0)
                if (line !~ /^#/ && line != "") height[line] = ++folders
        }
        {
            name = $3
            sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
            system_header = name ~ /^</
            sub(/^[<"]/, "", name)
            sub(/[>"].*$/, "", name)
            from = folder($1)
            if (!(from in height)) { wrong("this folder is not in plugin/folders"); next }
            if (system_header || name ~ /^(infiniband|rdma|hwloc|cuda|mpi)/) {
                if (name ~ /^(infiniband|rdma)\// && from != "ib_transport/verbs") wrong("verbs only in ib_transport/verbs/")
                if (name ~ /^hwloc/ && $1 != "topo/topo_hwloc.c") wrong("hwloc only in topo/topo_hwloc.c")
                if (name ~ /^nccl/) wrong("the types of NCCL are declared in net_abi.h")
                if (name ~ /^cuda/) wrong("no CUDA headers: the driver is opened at run time")
                if (name ~ /^mpi/ && from != "oob/mpi") wrong("mpi only in oob/mpi/")
                next
            }
            file = resolve($1, name)
            to = folder(file)
            if (!(to in height)) { wrong("what is included is in no folder of plugin/folders"); next }
            if (height[to] > height[from]) { wrong(from " lies below " to); next }
            if (to == "oob/mpi" && from != to) wrong("oob/mpi is a library of its own")
            if (file ~ /^plugin\/nccl\/net_abi/ && $1 !~ /^plugin\/nccl\/(net_abi[^\/]*\.h|net_(v[0-9]+|tuner|profiler)\.c|net_shims\.h)$/)
                wrong("the types of NCCL only in the tables (net_v*.c, net_tuner.c, net_profiler.c) and net_shims.h")
        }
        END { exit bad }'
    )
}

if [ "${1:-}" = --tree ]; then
    [ $# = 2 ] && [ -f "$2/plugin/folders" ] || {
        echo "check_layers.sh: --tree needs a folder that has plugin/folders in it" >&2
        exit 2
    }
    layer_check "$2"
    exit
fi

root=$(cd "$(dirname "$0")/.." && pwd) || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0
pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAIL $1"
}
order=$(grep -v '^#' "$root/plugin/folders")

# A header in every folder, a source in every folder that includes the headers of all that lie below; then what is special.
good_tree() {
    rm -rf "$tmp/t"
    mkdir -p "$tmp/t/plugin"
    cp "$root/plugin/folders" "$tmp/t/plugin"
    (
        cd "$tmp/t/plugin" || exit 2
        below=
        for d in $order; do
            mkdir -p "$d"
            h=$(echo "${d##*/}" | tr - _)_own.h
            echo '#include <stdint.h>' >"$d/$h"
            for b in $below; do echo "#include \"$b\""; done >"$d/own.c"
            echo "#include \"$h\"" >>"$d/own.c"
            case $d in
            ../*) below="$below ${d#../}/$h" ;;
            oob/mpi) ;;
            *) below="$below $d/$h" ;;
            esac
        done
        echo '#include <infiniband/verbs.h>' >>ib_transport/verbs/verbs_own.h
        echo '#include <mpi.h>' >>oob/mpi/own.c
        echo '#include <hwloc.h>' >../topo/topo_hwloc.c
        echo '#include <stddef.h>' >nccl/net_abi.h
        printf '#include "net_abi.h"\n#include "core/core_own.h"\n' >nccl/net_shims.h
        printf '#include "net_abi.h"\n  #  include "net_shims.h" /* so */\n' >nccl/net_v8.c
        echo '#include "net_shims.h"' >nccl/net_shims.c
    ) || exit 2
}

# expect FILE INCLUDE TEXT: the good tree with one more line must be refused, for this reason and nothing else
expect() {
    good_tree
    mkdir -p "$tmp/t/${1%/*}"
    echo "#include $2" >>"$tmp/t/$1"
    if layer_check "$tmp/t" >"$tmp/out" || [ "$(wc -l <"$tmp/out")" -ne 1 ] || ! grep -q "^$1:[0-9]*: $3: " "$tmp/out"; then
        fail "$1 with #include $2 should give '$3', gave:"
        sed 's/^/    /' "$tmp/out"
    else
        pass
    fi
}

good_tree
if layer_check "$tmp/t" >"$tmp/out"; then
    pass
else
    fail "a tree without a fault is refused:"
    sed 's/^/    /' "$tmp/out"
fi
# Each folder and the one above it: together with the good tree's own includes, one more closes a cycle.
prev=
for d in $order; do
    case $d in
    ../*) f=${d#../} inc=${d#../} ;;
    *) f=plugin/$d inc=$d ;;
    esac
    [ -z "$prev" ] || expect "$prev_file/own.c" "\"$inc/${d##*/}_own.h\"" "$prev lies below $d"
    prev=$d prev_file=$f
done
expect plugin/base/own.c '"service/service_own.h"' 'base lies below service'
expect plugin/ib_transport/ib_transport_own.h '"../failover/failover_own.h"' 'ib_transport lies below failover'
expect plugin/failover/own.c '"failover_own.h" /* "x" */
#include "probe/health/../../core/core_own.h"' 'failover lies below core'
for f in plugin/base/own.c plugin/balance/own.c plugin/service/own.c topo/own.c; do
    expect $f '<infiniband/verbs.h>' 'verbs only in ib_transport/verbs/'
done
expect plugin/oob/tcp/own.c '"infiniband/verbs.h"' 'verbs only in ib_transport/verbs/'
expect topo/topo_own.h '<hwloc.h>' 'hwloc only in topo/topo_hwloc.c'
expect plugin/service/own.c '"nccl/net_abi.h"' 'service lies below nccl'
expect plugin/nccl/own.c '"net_abi.h"' 'the types of NCCL only in the tables (net_v\*.c, net_tuner.c, net_profiler.c) and net_shims.h'
expect plugin/nccl/net_v8.c '<nccl_net.h>' 'the types of NCCL are declared in net_abi.h'
expect plugin/core/own.c '<cuda.h>' 'no CUDA headers: the driver is opened at run time'
expect plugin/oob/tcp/own.c '<mpi.h>' 'mpi only in oob/mpi/'
expect plugin/service/own.c '"oob/mpi/mpi_own.h"' 'oob/mpi is a library of its own'
expect plugin/oob/own.c '"somewhere/else.h"' 'what is included is in no folder of plugin/folders'
expect plugin/stray/stray.c '<stdio.h>' 'this folder is not in plugin/folders'

if layer_check "$root"; then
    pass
else
    failed=$((failed + 1))
fi

# Facts reach their subscribers from the bottom of the folders to the top (docs/architecture.md): in the order of the list in
# service/r2_service.c. subscribers ROOT: their folders, in that order.
subscribers() {
    grep -o '&r2_[a-z_]*_subscriber' "$1/plugin/service/r2_service.c" | tr -d '&' | while read -r name; do
        f=$(grep -lE "^const struct r2_subscriber $name =" -r "$1/plugin" --include='*.c') && f=${f#"$1/plugin/"} && echo "${f%/*}"
    done
}
# in_order: whether the folders on standard input come as in plugin/folders
in_order() {
    awk -v order="$order" 'BEGIN { n = split(order, f, /[ \n]+/); for (i = 1; i <= n; i++) height[f[i]] = i }
        !($0 in height) || height[$0] < last { bad = 1 } { last = height[$0]; seen++ } END { exit bad || seen < 2 }'
}
listed=$(subscribers "$root")
defined=$(grep -rhE '^const struct r2_subscriber ' "$root/plugin" --include='*.c' | wc -l)
if [ "$(echo "$listed" | wc -l)" = "$defined" ]; then pass; else fail "$defined subscribers are defined, listed are: $(echo $listed)"; fi
if echo "$listed" | in_order; then pass; else fail "subscribers of facts are not in the order of the folders: $(echo $listed)"; fi
if echo "$listed" | sort -r | in_order; then fail "another order would pass"; else pass; fi
find "$root/plugin" "$root/topo" -name '*.[ch]' | sed "s,^$root/,,; s,/[^/]*\$,," | sort | uniq -c | awk '{ printf "%s%s %d", (NR > 1 ? ", " : "files: "), $2, $1 } END { print "" }'
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
