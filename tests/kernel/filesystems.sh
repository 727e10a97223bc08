#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 1G
# zbd-timeout: 280
# zbd-expect-log: btrfs-control
# ext4, xfs and btrfs: make, mount with discard, copy, delete, trim, check, detach, attach, compare.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

zbd_format "${DISK_data:?}" force codec=zstd:1
mkdir -p /mnt/t
for fs in ext4 xfs btrfs; do
    zbd=$(zbd_attach "$DISK_data")
    timeout 240 blkdiscard "/dev/$zbd"
    force=-f
    [ $fs != ext4 ] || force=-F
    timeout 240 "mkfs.$fs" -q $force "/dev/$zbd"
    mount -o discard "/dev/$zbd" /mnt/t
    tar -C /usr/share -cf - perl 2>/dev/null | tar -C /mnt/t -xf -
    cp -r /mnt/t/perl /mnt/t/again
    sync
    rm -r /mnt/t/again
    timeout 240 fstrim /mnt/t
    (cd /mnt/t && find . -type f -print0 | xargs -0 sha256sum) >/tmp/sums
    [ "$(wc -l </tmp/sums)" -gt 100 ] || fail "too few files"
    umount /mnt/t
    zbd_detach "$zbd"
    zbd=$(zbd_attach "$DISK_data")
    case $fs in
    ext4) timeout 240 fsck.ext4 -fn "/dev/$zbd" ;;
    xfs) timeout 240 xfs_repair -n "/dev/$zbd" ;;
    btrfs) timeout 240 btrfs check "/dev/$zbd" ;;
    esac >/tmp/check 2>&1 || { cat /tmp/check; fail "$fs is not clean"; }
    mount "/dev/$zbd" /mnt/t
    (cd /mnt/t && sha256sum --quiet --strict -c /tmp/sums)
    umount /mnt/t
    [ "$(zbd_stat "$zbd" checksum_errors)" = 0 ] || fail "checksum errors"
    zbd_detach "$zbd"
    echo "filesystems: $fs ok"
done
echo "filesystems: ok"
