#!/bin/sh
# Runs a command during which the kernel starts programs for aarch64 by qemu-user, whoever starts them. The registration is in a user
# namespace that ends with the command (Linux 6.7), so that nothing of this machine changes.
#   with_qemu.sh COMMAND...
set -eu
formats=/proc/sys/fs/binfmt_misc
qemu=$(command -v qemu-aarch64-static) || {
    echo "qemu-aarch64-static is not here (sh tools/install-deps.sh aarch64)" >&2
    exit 1
}
if [ -z "${R2_WITH_QEMU:-}" ]; then
    export R2_WITH_QEMU=1 QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
    exec unshare --user --map-root-user --mount sh "$0" "$@"
fi
mount -t binfmt_misc none $formats || {
    echo "no binary formats of its own for a user namespace (Linux before 6.7?)" >&2
    exit 1
}
# An ELF file of 64 bits, little endian, EXEC or DYN, of machine 183.
bytes='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":r2-aarch64:M::$bytes:$mask:$qemu:F" >$formats/register
exec "$@"
