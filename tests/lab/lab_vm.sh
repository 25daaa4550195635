# VMs and the switch: start, stop. Sourced by lab.sh.

boot_limit=300 # seconds; a bound against hangs: three VMs need 20 on idle CPUs

# A value inside a QEMU option: commas are doubled.
qesc() {
    printf '%s' "$1" | sed 's/,/,,/g'
}

# Prints the arguments of one NIC, one a line.
vm_nic_args() { # HOST NIC NETDEV
    printf '%s\n' -netdev "$3" -device "$("$ctl" "$run" device "$1" "$2")"
}

vm_start() { # HOST
    n=${1#h}
    if [ "$accel" = kvm ]; then
        set -- "$1" -accel kvm -cpu host
    else
        # Without pclmulqdq the kernel takes the CRC by table, which under emulation is 1.4 times faster. The cache of translated code is
        # bounded, because a VM is to need about 1 GiB in all.
        set -- "$1" -accel tcg,thread=multi,tb-size=128 -cpu max,-pclmulqdq
    fi
    host=$1
    shift
    set -- "$@" -name "$(cat "$run/id")-$host" -M pc -m 1024 -smp 1 -nodefaults -no-user-config -no-reboot -display none \
        -kernel "$lab/kernel/vmlinux" -initrd "$run/initrd" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on net.ifnames=0 lab_host=$n" \
        -serial "file:$host.console" -qmp "unix:$host.qmp,server=on,wait=off" -D "$host.log" \
        -virtfs "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap" \
        -virtfs "local,path=$(qesc "$repo"),mount_tag=repo,security_model=none,readonly=on,multidevs=remap" \
        -virtfs "local,path=$(qesc "$build"),mount_tag=build,security_model=none,readonly=on,multidevs=remap" \
        -virtfs "local,path=$(qesc "$lab/out"),mount_tag=out,security_model=none"
    for k in n0 n1 n2 n3 m; do
        set -- "$@" -netdev "stream,id=net-dev-$k,server=off,addr.type=unix,addr.path=$host.$k" \
            -device "$("$ctl" "$run" device "$host" $k)"
    done
    # restrict: nothing of the VM gets out; hostfwd with port 0: any free one.
    set -- "$@" -netdev "user,id=net-dev-ctl,restrict=on,hostfwd=tcp:127.0.0.1:0-10.0.2.15:7000" \
        -device "$("$ctl" "$run" device "$host" ctl)"
    rm -f "$run/$host.port"
    (cd "$run" && exec qemu-system-x86_64 "$@" -daemonize -pidfile "$run/$host.pid") >"$run/$host.err" 2>&1 ||
        die "$host: QEMU: $(tail -n 1 "$run/$host.err")"
}

# Waits until the agent of each host is up and its port is known.
vm_await() { # HOST...
    for h in "$@"; do
        "$ctl" "$run" await-boot "$h" "$boot_limit" || return 1
        "$ctl" "$run" port "$h" >"$run/$h.port.tmp" && mv "$run/$h.port.tmp" "$run/$h.port" || return 1
    done
}

vm_kill() { # HOST
    "$ctl" "$run" kill "$1" || return 1
    rm -f "$run/$1.port" "$run/$1.pid"
}

switch_start() { # HOSTS
    (cd "$run" && exec "$bin/lab_switch" "$1" "${LAB_SEED:-1}" switch.pid "$(cat id)-switch") 2>>"$run/switch.log" ||
        die "switch: $(tail -n 1 "$run/switch.log")"
}
