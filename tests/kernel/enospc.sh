#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 500M
# zbd-timeout: 600
# zbd-expect-log: EXT4-fs|JBD2|XFS|BTRFS|Aborting journal|critical space|I/O error|space is nearly|no space left|btrfs-control|Remounting
# ext4, xfs and btrfs run out of space. On a volume of the default size they notice before the volume does, and nothing
# fails but what does not fit. On one that promises more than its disk holds they meet the volume's ENOSPC: what was
# acknowledged by fsync is still there after the way out that the administrator's guide describes.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

make_fs() {
    local force=-f
    [ "$1" != ext4 ] || force=-F
    timeout 240 "mkfs.$1" -q $force "/dev/$zbd"
}

check_fs() {
    case $1 in
    ext4) timeout 240 fsck.ext4 -fn "/dev/$zbd" ;;
    xfs) timeout 240 xfs_repair -n "/dev/$zbd" ;;
    btrfs) timeout 240 btrfs check "/dev/$zbd" ;;
    esac >/tmp/check 2>&1 || { cat /tmp/check; fail "$1 is not clean"; }
}

# fill: files of noise until one does not fit; those that fsync acknowledged are in /tmp/sums.
fill() {
    local at=0 path
    : >/tmp/sums
    while path=/mnt/t/noise$at && timeout 240 dd if=/dev/urandom of=$path bs=1M count=4 conv=fsync status=none 2>/tmp/error; do
        sha256sum $path >>/tmp/sums
        at=$((at + 1))
        [ $at -lt 500 ] || fail "2 GB of noise went into 500 MiB"
    done
    echo $at
}

verify() { sha256sum --quiet --strict -c /tmp/sums || fail "$1: files are not what was written"; }

mkdir -p /mnt/t
for fs in ext4 xfs btrfs; do
    zbd_format "${DISK_data:?}" force
    zbd=$(zbd_attach "$DISK_data")
    make_fs $fs
    mount -o discard "/dev/$zbd" /mnt/t
    for round in 1 2; do
        files=$(fill)
        grep -q "No space left" /tmp/error || fail "$fs refused with: $(cat /tmp/error)"
        [ "$files" -gt 20 ] || fail "only $files files went in"
        verify "$fs, round $round"
        rm /mnt/t/noise*
        sync
    done
    umount /mnt/t
    check_fs $fs
    [ "$(zbd_stat "$zbd" state)" = ok ] || fail "state is $(zbd_stat "$zbd" state)"
    ! dmesg | grep -q "$zbd: no space left" || fail "a volume of the default size ran full"
    zbd_detach "$zbd"
    echo "enospc: $fs filled itself: $files files of 4 MiB"
done

for fs in ext4 xfs btrfs; do
    zbd_format "$DISK_data" force size=2G
    zbd=$(zbd_attach "$DISK_data")
    make_fs $fs
    mount "/dev/$zbd" /mnt/t
    files=$(fill)
    [ "$files" -gt 20 ] || fail "only $files files went in"
    umount /mnt/t
    echo released >"/sys/block/$zbd/zbd/emergency_space"
    # The journal is replayed by mounting.
    mount "/dev/$zbd" /mnt/t
    verify "$fs, full volume"
    rm /mnt/t/noise*
    sync
    timeout 240 fstrim /mnt/t
    echo 1 >"/sys/block/$zbd/zbd/checkpoint"
    dd if=/dev/urandom of=/mnt/t/again bs=1M count=64 conv=fsync status=none || fail "$fs: still full after deleting"
    [ "$(zbd_stat "$zbd" emergency_space)" = kept ] || fail "the emergency space is still released"
    sha256sum /mnt/t/again >/tmp/sums
    umount /mnt/t
    check_fs $fs
    zbd_detach "$zbd"
    zbd=$(zbd_attach "$DISK_data")
    mount "/dev/$zbd" /mnt/t
    verify "$fs, after attach"
    umount /mnt/t
    zbd_detach "$zbd"
    echo "enospc: $fs met a full volume: $files files of 4 MiB acknowledged, all there"
done
echo "enospc: ok"
