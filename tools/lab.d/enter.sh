#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# enter.sh ROOT CACHE OUT CHECKOUT COMMAND...: runs in a fresh mount namespace; makes the build root usable and goes in.
set -euo pipefail
root=$1 cache=$2 out=$3 checkout=$4
shift 4

mount --make-rprivate /
mount --rbind /dev "$root/dev"
# A container may forbid a new procfs; the outer one serves as well, only `ps` shows more.
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
# UML keeps the guest's memory in a file on tmpfs, and /dev/shm is often tiny in containers.
mount -t tmpfs -o mode=1777,size=90% tmpfs "$root/tmp"
mkdir -p "$root/lab" "$root/out" "$root/zbd"
mount --bind "$cache" "$root/lab"
mount --bind "$out" "$root/out"
mount --bind "$checkout" "$root/zbd"
mount -o remount,bind,ro "$root/zbd" 2>/dev/null || true
# Names and certificates as on the host, so that apt and cargo reach what the host reaches.
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    [ -e "$file" ] || continue
    [ -e "$root$file" ] || { rm -f "$root$file"; : >"$root$file"; }
    mount --bind "$(readlink -f "$file")" "$root$file"
    mount -o remount,bind,ro "$root$file" 2>/dev/null || true
done

proxy=()
for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || proxy+=("$name=${!name}")
done
exec env -i "${proxy[@]}" HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 TMPDIR=/tmp SHELL=/bin/bash \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/lab/cargo CARGO_TARGET_DIR=/out/target \
    chroot "$root" "$@"
