#!/bin/sh
# The semantics tests by another Debian's libc and compilers: their C programs are built and run there.
#
#     run.sh SUITE WORK PROGRAM BIN [FILTER...]
#
# SUITE is a Debian's name, as trixie. It is unpacked in WORK, once, from the mirror that this machine's apt uses.
# PROGRAM is the tests' own, BIN the folder with what they test, and FILTER a part of a test's name. Needs root.
set -e
suite=$1 work=$2 program=$3 bin=$4
shift 4
here=$(realpath "$(dirname "$0")/../..")
root=$work/$suite
packages=gcc,g++,libc6-dev,musl-tools,valgrind,libhwloc15,ca-certificates,python3-minimal,perl,iproute2,procps

if [ ! -e "$root.done" ]; then
	mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)
	rm -rf "$root"
	debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror" \
		/usr/share/debootstrap/scripts/sid
	touch "$root.done"
fi
for path in "$here" "$program" "$bin"; do
	case $path in
	/*) ;;
	*) echo "run.sh: $path: expected an absolute path" >&2; exit 2 ;;
	esac
done
folder=$(dirname "$program")
export here root program bin folder
# What is mounted goes with the process.
exec unshare --mount --fork --kill-child sh -ec '
	mount --bind "$root" "$root"
	mount -t tmpfs tmpfs "$root/run"
	mount -t tmpfs tmpfs "$root/tmp"
	for path in "$here" "$folder" "$bin"; do
		mkdir -p "$root$path"
		mount --bind "$path" "$root$path"
	done
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	cd "$root"
	exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root YASMIN_BIN_DIR="$bin" \
		sh -ec "ldd --version | head -n 1; gcc --version | head -n 1; cd \"\$1\"; shift; exec \"\$@\"" \
		sh "$here/tests" "$program" "$@"' sh "$@"
