#!/bin/sh
# In a VM, from guest_init.sh: names, NICs, then the agent as process 1.
#   guest_boot.sh HOST BUILD
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec </dev/null
host=$1 bin=$2/lab
echo "h$host" >/proc/sys/kernel/hostname
echo "h$host" >/etc/hostname
{
    echo "127.0.0.1 localhost"
    for i in 0 1 2; do
        echo "10.9.0.$((i + 1)) h$i"
    done
} >/etc/hosts
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
# Copies: a new build must not change a program that runs.
cp "$bin/lab_agent" "$bin/lab_nic" /usr/local/bin/
cp "$bin/lab_trigger" /usr/local/bin/lab-trigger
lab_nic setup >/dev/null || echo "lab: boot: not all NICs are healthy"
exec lab_agent "$bin/run/secret" "$(printf '52:54:00:a0:%02x:05' "$host")"
