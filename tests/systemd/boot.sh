#!/bin/sh
# systemd as the first process of namespaces of its own, over a copy of this machine's files that
# is gone with it, where what is built is installed. The service manager is the machine's own, so
# the units run as it runs them anywhere.
#
#     unshare --fork --pid --mount --uts --ipc --net --cgroup --kill-child boot.sh FOLDER RELEASE
#
# FOLDER is empty, RELEASE has what was built.
set -e
source=$(dirname "$0")
root=$1/root
mount -t tmpfs tmpfs "$1"
mkdir "$root" "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
ip link set lo up
cp "$source/exchange.py" "$root/srv/"
make -s -C "$source/../.." install DESTDIR="$root" PREFIX=/usr RELEASE="$2"
# Nothing of the machine's own services.
rm -rf "$root"/etc/systemd/system/*
printf '[Unit]\nDefaultDependencies=no\n' >"$root/etc/systemd/system/test.target"
exec chroot "$root" /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=0
