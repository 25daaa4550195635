#!/bin/sh
# Checks every #include of plugin/ and topo/ against the layers in plugin/README.md.
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
        # The place of a file: 0 base, mpi, ib, balance, topo, probe, failover, top, abi; ? = none.
        function place(f) {
            if (f ~ /^plugin\/oob_mpi\//) return "mpi"
            if (f ~ /^plugin\/ib_transport\//) return "ib"
            if (f ~ /^plugin\/balance\//) return "balance"
            if (f ~ /^plugin\/probe\//) return "probe"
            if (f ~ /^plugin\/failover\//) return "failover"
            if (f ~ /^topo\//) return "topo"
            if (f ~ /^plugin\/net_abi[^\/]*\.h$/) return "abi"
            if (f ~ /^plugin\/net_[^\/]*$/) return "top"
            if (f ~ /^plugin\/r2_(net|inst|init|ctx|comm|ctl|peer|setup|dispatch|close|health|pair|watch|return|heal|host|drain|load|balance|slow|failback|loop|counters|locate|news|verdict|report|reg|reach|cuda|relay|prof|inband|cross|stall|registry|policy|notify|conn)[^\/]*$/) return "top"
            if (f ~ /^plugin\/(r2|oob)_[^\/]*$/) return "base"
            return "?"
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
            may["base"] = " base "
            may["mpi"] = " base mpi "
            may["ib"] = " base ib "
            may["balance"] = " base balance "
            may["topo"] = " base topo "
            may["probe"] = " base ib balance topo probe "
            may["failover"] = " base ib balance topo probe failover "
            may["top"] = " base ib balance topo probe failover top abi "
            may["abi"] = " abi "
        }
        {
            name = $3
            sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
            system_header = name ~ /^</
            sub(/^[<"]/, "", name)
            sub(/[>"].*$/, "", name)
            from = place($1)
            if (from == "?") { wrong("this file has no layer"); next }
            if (system_header || name ~ /^(infiniband|rdma|hwloc|cuda|nccl|mpi)/) {
                if (name ~ /^(infiniband|rdma)\// && (from == "base" || from == "mpi" || from == "balance" || from == "topo" || from == "abi"))
                    wrong("no verbs in " from)
                if (name ~ /^hwloc/ && $1 != "topo/topo_hwloc.c") wrong("hwloc only in topo/topo_hwloc.c")
                if (name ~ /^nccl/) wrong("the types of NCCL are declared in net_abi.h")
                if (name ~ /^cuda/) wrong("no CUDA headers: the driver is opened at run time")
                if (name ~ /^mpi/ && from != "mpi") wrong("mpi only in plugin/oob_mpi/")
                next
            }
            file = resolve($1, name)
            to = place(file)
            if (to == "?") { wrong("what is included has no layer"); next }
            if (index(may[from], " " to " ") == 0) { wrong(from " must not include " to); next }
            if (to == "abi" && from != "abi" && $1 !~ /^plugin\/(net_(v[0-9]+|tuner|profiler)\.c|net_shims\.h)$/)
                wrong("the types of NCCL only in the tables (net_v*.c, net_tuner.c, net_profiler.c) and net_shims.h")
        }
        END { exit bad }'
    )
}

if [ "${1:-}" = --tree ]; then
    [ $# = 2 ] && [ -d "$2/plugin" ] || {
        echo "check_layers.sh: --tree needs a folder that has plugin/ in it" >&2
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

# Every kind of file, each with an include that it may have.
good_tree() {
    rm -rf "$tmp/t"
    mkdir -p "$tmp/t/plugin/oob_mpi" "$tmp/t/plugin/ib_transport" "$tmp/t/plugin/balance" "$tmp/t/plugin/probe" "$tmp/t/plugin/failover" "$tmp/t/topo"
    (
        cd "$tmp/t" || exit 2
        echo '#include <stdint.h>' >plugin/r2_log.h
        echo '#include "r2_log.h"' >plugin/oob_tcp.c
        printf '#include <mpi.h>\n#include "r2_log.h"\n#include "oob_mpi.h"\n' >plugin/oob_mpi/oob_mpi.c
        echo '#include "r2_log.h"' >plugin/oob_mpi/oob_mpi.h
        echo '#include "r2_log.h"' >plugin/ib_transport/ib_path.h
        echo '#include <infiniband/verbs.h>' >>plugin/ib_transport/ib_path.h
        echo '#include "r2_log.h"' >plugin/balance/bl_policy.h
        echo '#include "r2_log.h"' >topo/topo.h
        echo '#include <hwloc.h>' >topo/topo_hwloc.c
        echo '#include "ib_transport/ib_path.h"' >plugin/probe/pr_probe.h
        echo '#include "probe/pr_probe.h"' >plugin/failover/fo_engine.h
        echo '#include "failover/fo_engine.h"' >plugin/r2_net.h
        echo '#include <stddef.h>' >plugin/net_abi.h
        printf '#include "net_abi.h"\n#include "r2_net.h"\n' >plugin/net_shims.h
        printf '#include "net_abi.h"\n  #  include "net_shims.h" /* so */\n' >plugin/net_v8.c
        echo '#include "net_shims.h"' >plugin/net_shims.c
    ) || exit 2
}

# expect FILE INCLUDE TEXT: the good tree with one more line must be refused, for this reason and nothing else
expect() {
    good_tree
    echo "#include $2" >>"$tmp/t/$1"
    if layer_check "$tmp/t" >"$tmp/out" || [ "$(wc -l <"$tmp/out")" -ne 1 ] || ! grep -q "^$1:[0-9]*: $3: " "$tmp/out"; then
        failed=$((failed + 1))
        echo "failed: $1 with #include $2 should give '$3', gave:"
        sed 's/^/    /' "$tmp/out"
    else
        passed=$((passed + 1))
    fi
}

good_tree
if layer_check "$tmp/t" >"$tmp/out"; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "failed: a tree without a fault is refused:"
    sed 's/^/    /' "$tmp/out"
fi
expect plugin/oob_tcp.c '"ib_transport/ib_path.h"' 'base must not include ib'
expect plugin/r2_log.h '"r2_net.h"' 'base must not include top'
expect plugin/r2_log.h '<infiniband/verbs.h>' 'no verbs in base'
expect plugin/oob_tcp.c '"infiniband/verbs.h"' 'no verbs in base'
expect plugin/ib_transport/ib_path.h '"failover/fo_engine.h"' 'ib must not include failover'
expect plugin/ib_transport/ib_path.h '"../failover/fo_engine.h"' 'ib must not include failover'
expect plugin/ib_transport/ib_path.h '"probe/pr_probe.h"' 'ib must not include probe'
expect plugin/ib_transport/ib_path.h '"balance/bl_policy.h"' 'ib must not include balance'
expect plugin/ib_transport/ib_path.h '"topo/topo.h"' 'ib must not include topo'
expect plugin/ib_transport/ib_path.h '"net_abi.h"' 'ib must not include abi'
expect plugin/balance/bl_policy.h '<infiniband/verbs.h>' 'no verbs in balance'
expect plugin/balance/bl_policy.h '"ib_transport/ib_path.h"' 'balance must not include ib'
expect topo/topo.h '<infiniband/verbs.h>' 'no verbs in topo'
expect topo/topo.h '<hwloc.h>' 'hwloc only in topo/topo_hwloc.c'
expect plugin/probe/pr_probe.h '"failover/fo_engine.h"' 'probe must not include failover'
expect plugin/failover/fo_engine.h '"r2_net.h"' 'failover must not include top'
expect plugin/failover/fo_engine.h '"net_abi.h"' 'failover must not include abi'
expect plugin/r2_net.h '"net_abi.h"' 'the types of NCCL only in the tables (net_v\*.c, net_tuner.c, net_profiler.c) and net_shims.h'
expect plugin/net_v8.c '<nccl_net.h>' 'the types of NCCL are declared in net_abi.h'
expect plugin/r2_net.h '<cuda.h>' 'no CUDA headers: the driver is opened at run time'
expect plugin/oob_tcp.c '<mpi.h>' 'mpi only in plugin/oob_mpi/'
expect plugin/oob_mpi/oob_mpi.c '"r2_net.h"' 'mpi must not include top'
expect plugin/oob_mpi/oob_mpi.c '"ib_transport/ib_path.h"' 'mpi must not include ib'
expect plugin/oob_tcp.c '"oob_mpi/oob_mpi.h"' 'base must not include mpi'
expect plugin/oob_tcp.c '"somewhere/else.h"' 'what is included has no layer'
expect plugin/stray.c '<stdio.h>' 'this file has no layer'

if layer_check "$root"; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
