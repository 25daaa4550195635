# The kernel, the initrd, and whether KVM works. Sourced by lab.sh; uses $lab (BUILD/lab), $here (tests/lab), $repo, $build.

# Modules by what they are for, and the folders of the package in which they and what they need are.
lab_modules="virtio_pci virtio_net 9pnet_virtio 9p overlay crc32_generic crc32_pclmul rdma_rxe rdma_ucm sch_netem sch_tbf"
lab_module_dirs="crypto arch/x86/crypto lib fs/9p fs/fscache fs/netfs fs/overlayfs fs/configfs net/9p net/core net/ipv4 net/ipv6
    net/sched drivers/virtio drivers/net drivers/infiniband/core drivers/infiniband/sw/rxe"

# The package that the archive's linux-image-amd64 stands for.
kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# The kernel in an uncompressed file, so that QEMU starts it directly (PVH): decompressing it under emulation takes 6 s of 9. The
# boot protocol's header says where the compressed part is: setup sectors at 0x1f1, offset and length at 0x248 and 0x24c.
kernel_uncompress() { # VMLINUZ OUT
    sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$1" | tr -d ' ')
    from=$(od -An -tu4 -j $((0x248)) -N 4 "$1" | tr -d ' ')
    len=$(od -An -tu4 -j $((0x24c)) -N 4 "$1" | tr -d ' ')
    from=$((from + (sectors + 1) * 512))
    case $(od -An -tx1 -j "$from" -N 4 "$1" | tr -d ' ') in
    fd377a58) unpack="xz -dc --single-stream" ;;
    28b52ffd) unpack="zstd -dcq" ;;
    1f8b08*) unpack="gzip -dc" ;;
    *) return 1 ;;
    esac
    # The last 4 bytes are the length that it has when unpacked.
    tail -c +$((from + 1)) "$1" | head -c $((len - 4)) | $unpack >"$2.tmp" 2>/dev/null || return 1
    [ "$(od -An -tx1 -N 4 "$2.tmp" | tr -d ' ')" = 7f454c46 ] || return 1
    mv "$2.tmp" "$2"
}

# One module to $lab/kernel/modules, as the VM's insmod wants it.
module_take() { # FILE
    name=$(basename "$1" | tr - _) # as dependencies name it
    case $name in
    *.ko.xz) xz -dc "$1" >"$lab/kernel/modules/${name%.xz}" ;;
    *.ko.zst) zstd -dcq "$1" >"$lab/kernel/modules/${name%.zst}" ;;
    *) cp "$1" "$lab/kernel/modules/$name" ;;
    esac
}

# What each module needs, from its own section: "depends=a,b".
module_needs() { # FILE
    tr '\0' '\n' <"$1" | sed -n 's/^depends=//p' | tr ',' ' '
}

# Prints modules and before each what it needs, some of them more than once. What has no file is part of the kernel.
module_walk() ( # NAME...
    for m in "$@"; do
        f=$lab/kernel/modules/$m.ko
        [ -f "$f" ] || continue
        # shellcheck disable=SC2046
        module_walk $(module_needs "$f")
        echo "$m"
    done
)

# Fetches and unpacks the kernel, once per build folder and list of modules.
kernel_get() {
    [ "$(cat "$lab/kernel/complete" 2>/dev/null)" = "$lab_modules" ] && return
    package=$(kernel_package)
    if [ -z "$package" ] && [ "$(id -u)" = 0 ]; then
        apt-get update -qq >/dev/null 2>&1
        package=$(kernel_package)
    fi
    [ -n "$package" ] || skip "no linux-image-amd64 in the package lists (try apt-get update)"
    say "kernel: $package"
    rm -rf "$lab/kernel"
    mkdir -p "$lab/kernel/deb" "$lab/kernel/x" "$lab/kernel/modules"
    (cd "$lab/kernel/deb" && timeout 300 apt-get download -qq "$package") >"$lab/kernel/download.log" 2>&1 ||
        skip "cannot download $package: $(tail -n 1 "$lab/kernel/download.log")"
    dpkg -x "$lab"/kernel/deb/*.deb "$lab/kernel/x" || die "cannot unpack $package"
    base=$(dirname "$(find "$lab/kernel/x" -name modules.builtin | head -n 1)")
    for d in $lab_module_dirs; do
        for f in "$base/kernel/$d"/*.ko* "$base/kernel/$d"/*/*.ko*; do
            [ -f "$f" ] && module_take "$f"
        done
    done
    # shellcheck disable=SC2086
    module_walk $lab_modules | awk '!seen[$0]++' >"$lab/kernel/order"
    for m in rdma_rxe virtio_net 9p overlay; do
        grep -qx "$m" "$lab/kernel/order" || grep -q "/$m.ko" "$base/modules.builtin" ||
            skip "$package has no module $m"
    done
    cp "$lab"/kernel/x/boot/vmlinuz-* "$lab/kernel/vmlinuz" || die "$package has no vmlinuz"
    kernel_uncompress "$lab/kernel/vmlinuz" "$lab/kernel/vmlinux" || cp "$lab/kernel/vmlinuz" "$lab/kernel/vmlinux"
    basename "$base" >"$lab/kernel/version"
    rm -rf "$lab/kernel/x" "$lab/kernel/deb"
    echo "$lab_modules" >"$lab/kernel/complete"
}

initrd_make() {
    busybox=$(command -v busybox) || skip "no busybox (package busybox-static)"
    t=$run/initrd.d
    rm -rf "$t"
    mkdir -p "$t/bin" "$t/lab"
    cp "$busybox" "$t/bin/busybox"
    cp "$here/guest_init.sh" "$t/init"
    chmod 755 "$t/init"
    cp "$lab/kernel/order" "$t/lab/"
    while read -r m; do
        cp "$lab/kernel/modules/$m.ko" "$t/lab/"
    done <"$lab/kernel/order"
    printf 'LAB_REPO=%s\nLAB_BUILD=%s\n' "$(quote "$repo")" "$(quote "$build")" >"$t/lab/conf"
    (cd "$t" && find . | busybox cpio -o -H newc) >"$run/initrd" 2>"$run/initrd.log" || die "initrd: $(tail -n 1 "$run/initrd.log")"
    rm -rf "$t"
}

# auto: KVM when a VM with this kernel gets as far as its initrd within 10 s; a KVM that has to emulate what the CPU lacks takes minutes.
accel_choose() { # auto|kvm|tcg
    accel=$1
    [ "$1" = auto ] || return 0
    accel=tcg
    [ -w /dev/kvm ] || return 0
    stamp="$(cat /proc/sys/kernel/random/boot_id) $(cat "$lab/kernel/version")"
    if [ "$(sed -n 2p "$lab/kvm" 2>/dev/null)" = "$stamp" ]; then
        accel=$(sed -n 1p "$lab/kvm")
        return 0
    fi
    timeout -s KILL 10 qemu-system-x86_64 -M pc -accel kvm -cpu host -m 512 -nodefaults -no-user-config -display none -no-reboot \
        -serial stdio -kernel "$lab/kernel/vmlinux" -initrd "$run/initrd" -append "console=ttyS0 quiet panic=-1 lab_probe" \
        </dev/null >"$run/kvm.log" 2>&1
    grep -q "lab: probe ok" "$run/kvm.log" && accel=kvm
    say "KVM: $([ "$accel" = kvm ] && echo works || echo "does not work here: a VM did not reach its initrd within 10 s")"
    printf '%s\n%s\n' "$accel" "$stamp" >"$lab/kvm"
}
