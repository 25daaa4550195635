# Sourced by verbs_compare.sh: the kernel's rdma_rxe, in the lab's virtual machines. Host A is h1, host B is h0.
kernel_why="the lab cannot run here" kernel_ours= rail=3
lab() {
    sh tests/lab/lab.sh "$B" "$@"
}
ctl() {
    "$B/lab/lab_ctl" "$B/lab/run" "$@"
}

kernel_open() {
    ctl alive h0 >/dev/null 2>&1 && ctl alive h1 >/dev/null 2>&1 || {
        lab up >&2 || return 1
        kernel_ours=1
    }
    lab exec h0 -t 60 -- sh -c 'uname -r; dpkg-query -W -f "\${Version}" libibverbs1' >"$OUT/versions" || return 1
}
kernel_close() {
    [ -z "$kernel_ours" ] || lab down >/dev/null 2>&1 || true
}
kernel_versions() {
    if [ -s "$OUT/versions" ]; then
        echo "kernel $(sed -n 1p "$OUT/versions"), rdma-core $(sed -n 2p "$OUT/versions")"
    else
        echo "kernel not run"
    fi
}

# The act outside the VMs. Where the switch does it, A is told when it is done; QEMU's monitor is asked right after A is told to go on, because
# what the lab checks inside the VM afterwards would disturb the observation.
act_do() { # TRIGGER ACT
    case $2 in
    cut) ctl on-trigger h1 "$1" -t 60 cut h1:n$rail both ;;
    cut-in) ctl on-trigger h1 "$1" -t 60 cut h1:n$rail in ;;
    cut-out) ctl on-trigger h1 "$1" -t 60 cut h1:n$rail out ;;
    loss) ctl on-trigger h1 "$1" -t 60 loss h1:n$rail 1 ;;
    corrupt) ctl on-trigger h1 "$1" -t 60 corrupt h1:n$rail 1 ;;
    link-off) ctl wait-trigger h1 "$1" -t 60 && ctl qmp h1 set_link "{\"name\": \"net-dev-n$rail\", \"up\": false}" ;;
    link-on) ctl wait-trigger h1 "$1" -t 60 && ctl qmp h1 set_link "{\"name\": \"net-dev-n$rail\", \"up\": true}" ;;
    unplug) ctl wait-trigger h1 "$1" -t 60 && ctl qmp h1 device_del "{\"id\": \"dev-n$rail\"}" ;;
    *) return 1 ;;
    esac
}

kernel_run() { # CASE RETRY REP
    a=$OUT/kernel.$1.$2.$3.A b=$OUT/kernel.$1.$2.$3.B acts=
    # A rail that had a failure is not used again before all are healed: that may take a reboot.
    rail=$((rail + 1))
    if [ $rail = 4 ]; then
        rail=0
        lab reset >"$T/reset" 2>&1 || {
            cat "$T/reset" >&2
            return 1
        }
    fi
    port=$((7100 + runs % 200))
    lab exec h0 -t 90 -u -- "$B/lab/verbs_watch" --listen 10.9.0.1:$port --dev rxe$rail $common --retry "$2" $b_opts >"$b" 2>"$b.err" &
    peer=$!
    for t in act back; do
        case $t in
        act) what=$act ;;
        back) what=$act_back ;;
        esac
        [ -n "$what" ] || continue
        act_do $t.$runs "$what" >"$a.$t" 2>&1 &
        acts="$acts $!"
    done
    lab exec h1 -t 90 -u -- env NETDEV=r2d$rail RDMADEV=rxe$rail RUN=$runs "$B/lab/verbs_watch" --connect 10.9.0.1:$port --dev rxe$rail $common \
        --retry "$2" $a_opts --after 1500ms --fault-cmd "$command" >"$a" 2>"$a.err" || true
    wait $peer || true
    for p in $acts; do
        kill "$p" 2>/dev/null || true # it waits still when A never came to its trigger
        wait "$p" || true
    done
}
