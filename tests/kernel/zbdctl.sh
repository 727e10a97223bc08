#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 300M
# zbd-disk: other 300M
# zbd-timeout: 200
# zbdctl on real devices: what it makes, shows and refuses, and what it says about it.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

command -v zbdctl >/dev/null || { echo "SKIP: no zbdctl: tools/lab host cargo build -p zbdctl"; exit 77; }
device=${DISK_data:?} other=${DISK_other:?}

# refused STATUS TEXT COMMAND...: it must fail with this status and say so.
refused() {
    local status=$1 text=$2 found=0 said
    shift 2
    said=$(timeout 240 "$@" 2>&1) || found=$?
    [ "$found" = "$status" ] || fail "$*: status $found, not $status: $said"
    case $said in *"$text"*) ;; *) fail "$*: says '$said', not '$text'" ;; esac
    echo "refused as it should be: $*"
}

# A disk that was used before.
timeout 240 mkfs.btrfs -q -f "$device" 2>&1 | grep -v btrfs-control || true
refused 4 "a file system (btrfs" zbdctl create "$device"
mkdir -p /mnt/t
mount "$device" /mnt/t
refused 4 "mounted on /mnt/t" zbdctl create --force "$device"
umount /mnt/t
disk=$(timeout 240 zbdctl create --force --label first --codec zstd:2 --size 2G "$device")
[ "$disk" = /dev/zbd0 ] || fail "create printed '$disk'"
[ "$(blockdev --getsize64 "$disk")" = $((2 << 30)) ] || fail "wrong size"
[ -z "$(blkid -p -o value -s TYPE "$device")" ] || fail "traces of the old file system remain"
refused 4 "carries the attached volume zbd0" zbdctl create --force "$device"
refused 4 "attached already, as zbd0" zbdctl attach "$device"
zbdctl list
zbdctl list | grep -q "zbd0 .* zstd:2 .* first " || fail "list does not show the volume"

timeout 240 mkfs.ext4 -q "$disk"
mount "$disk" /mnt/t
cp -r /zbd/rust /mnt/t/
sync -f /mnt/t
echo 1 >/sys/block/zbd0/zbd/checkpoint
refused 4 "in use" zbdctl detach zbd0
zbdctl stat zbd0 --json | grep -q '"ratio":[1-9]' || fail "stat has no ratio"
timeout 240 zbdctl stat zbd0 --watch 0.2 --count 2
umount /mnt/t
timeout 240 zbdctl detach zbd0
refused 3 "no such volume" zbdctl detach zbd0
refused 4 "a zbd volume \"first\"" zbdctl create "$device"

# Offline, the decoder that is not the kernel's agrees with it.
timeout 100 zbdctl dump --all "$device" >/root/dump || fail "dump finds damage: $(grep DAMAGE /root/dump)"
tail -n 3 /root/dump

# The second disk becomes a copy of the first.
disk=$(timeout 240 zbdctl attach "$device")
mount -o ro "$disk" /mnt/t
diff -r /zbd/rust /mnt/t/rust
umount /mnt/t
timeout 100 dd if="$device" of="$other" bs=1M conv=fsync status=none
refused 4 "same UUID" zbdctl attach "$other"
timeout 240 zbdctl detach zbd0

refused 3 "No such file" zbdctl attach /dev/nothing
refused 4 "not a block device" zbdctl attach /etc/passwd
dd if=/dev/zero of="$other" bs=1M count=300 conv=fsync status=none
refused 3 "no zbd volume" zbdctl attach "$other"
rmmod zbd
refused 5 "modprobe zbd" zbdctl list
echo "zbdctl: all done"
