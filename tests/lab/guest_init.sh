#!/bin/busybox sh
# Process 1 of a VM, in the initrd: modules, the host's file system (read-only, changes in memory), the project's folders; then the
# rest is guest_boot.sh inside. /lab/conf has the paths, the kernel's command line the number of the host.
/bin/busybox mkdir -p /proc /sys /dev /lower /rw /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
die() {
    echo "lab: boot failed: $*"
    poweroff -f
}
. /lab/conf
host=
for w in $(cat /proc/cmdline); do
    case $w in
    lab_host=*) host=${w#*=} ;;
    lab_probe) echo "lab: probe ok" && poweroff -f ;;
    esac
done
for m in $(cat /lab/order); do
    insmod "/lab/$m.ko" || [ "$m" = crc32_pclmul ] || die "insmod $m"
done

# share TAG PLACE OPTIONS
share() {
    mkdir -p "$2"
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$3" "$1" "$2" || die "mount of share $1 at $2"
}
share root /lower ro,cache=loose
mount -t tmpfs tmpfs /rw
mkdir /rw/up /rw/work
mount -t overlay -o lowerdir=/lower,upperdir=/rw/up,workdir=/rw/work overlay /root || die "overlay"
for d in tmp run; do
    mount -t tmpfs tmpfs /root/$d
done
# cache=none: what is built outside is seen at once.
share repo "/root$LAB_REPO" ro,cache=none
share build "/root$LAB_BUILD" ro,cache=none
share out "/root$LAB_BUILD/lab/out" rw,cache=none
ifconfig lo 127.0.0.1 up
for d in proc sys dev; do
    mount --move /$d /root/$d
done
exec switch_root /root /bin/sh "$LAB_REPO/tests/lab/guest_boot.sh" "$host" "$LAB_BUILD"
