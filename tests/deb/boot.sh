#!/bin/sh
# The first process of namespaces of its own, over a Debian that keeps nothing of it: systemd, or none.
#
#     unshare --fork --pid --mount --uts --ipc --cgroup --kill-child boot.sh BASE WORK systemd|none
#
# BASE is the Debian. WORK is for this run, with what is to be added in WORK/upper.
set -e
base=$1 work=$2 first=$3
root=$work/root
mkdir -p "$root" "$work/upper" "$work/work"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" "$root"
mount -t proc proc "$root/proc"
# Devices and kernel settings stay the machine's: nothing in here changes them.
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t bpf bpf "$root/sys/fs/bpf"
mount --rbind /dev "$root/dev"
# Packages' scripts may look into it.
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cp /etc/resolv.conf "$root/etc/resolv.conf"
units=$root/etc/systemd/system
for unit in systemd-sysctl systemd-modules-load systemd-udevd systemd-udev-trigger redis-server; do
	ln -sf /dev/null "$units/$unit.service"
done
printf '[Unit]\nDefaultDependencies=no\n' >"$units/test.target"
case $first in
systemd) set -- /lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=0 ;;
none) set -- /bin/sleep infinity ;;
esac
exec chroot "$root" /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
