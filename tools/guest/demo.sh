#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# demo.sh CODEC DISK: a source tree goes onto ext4 on zbd, and comes back after the disk was detached.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

codec=$1
disk_variable=DISK_$2
device=${!disk_variable}
mount=/mnt/demo

# timed WHAT COMMAND...: so that a spectator sees what takes how long.
timed() {
    local what=$1 start=$SECONDS
    shift
    echo "demo: $what"
    "$@"
    echo "demo:   $((SECONDS - start)) s"
}

copy_in() {
    tar -C $mount -x -b 2048 -f "${DISK_tree:?}"
    sync -f $mount
}
verify() { (cd $mount && sha256sum --quiet --strict -c /lab/demo/tree.sums); }

timed "$codec: format $device and attach it" zbd_format "$device" "codec=$codec"
zbd=$(zbd_attach "$device")
timed "ext4 on /dev/$zbd" mkfs.ext4 -q -E nodiscard "/dev/$zbd"
mkdir -p $mount
mount "/dev/$zbd" $mount
timed "copy $(wc -l </lab/demo/tree.sums) files in and sync" copy_in
umount $mount
ratio=$(zbd_stat "$zbd" ratio)
for attribute in logical_bytes stored_bytes; do
    [ ! -r "/sys/block/$zbd/zbd/$attribute" ] || echo "demo:   $attribute $(zbd_stat "$zbd" $attribute)"
done
zbd_detach "$zbd"
[ ! -e "/dev/$zbd" ] || fail "/dev/$zbd is still there after detach"
zbd=$(zbd_attach "$device")
mount -o ro "/dev/$zbd" $mount
timed "detached and attached again; compare every file" verify
umount $mount
zbd_detach "$zbd"
echo "demo: $codec ratio=$ratio verified=$(wc -l </lab/demo/tree.sums)"
