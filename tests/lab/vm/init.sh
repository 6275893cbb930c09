#!/bin/sh
# First process of the lab machine: the host's root (virtiofs, read-only) below a memory overlay, pure cgroup v2.
# Whatever goes wrong is said on the console in a line that starts with LAB, and the machine powers off.
busybox() { /bin/busybox "$@"; }
stop() { busybox echo "LAB: $*"; busybox poweroff -f; }

busybox mkdir -p /proc /sys /dev /lower /memory /root
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do busybox insmod "$module" || busybox echo "LAB: no $module"; done

busybox mount -t virtiofs -o ro labroot /lower || stop "the host's root cannot be mounted"
busybox mount -t tmpfs -o size=50% memory /memory
busybox mkdir /memory/upper /memory/work
busybox mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work overlay /root || stop "no overlay"
cd /root || stop "no root"
busybox mount -t tmpfs run run
busybox mkdir run/lab run/disk
busybox mount -t virtiofs labout run/lab || stop "the folder for results cannot be mounted"
busybox mount -t ext4 /dev/vda run/disk || stop "the disk cannot be mounted"
busybox chmod 1777 run/disk
for tree in proc sys dev; do busybox mount --move "/$tree" "$tree"; done
busybox mkdir -p dev/pts dev/shm
busybox mount -t devpts devpts dev/pts
busybox mount -t tmpfs shm dev/shm
# the options that systemd uses, so that limits and protections count as on a real node
busybox mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 sys/fs/cgroup
exec /bin/busybox switch_root /root /bin/sh /run/lab/start.sh
