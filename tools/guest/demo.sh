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

# Four readers: each waits for the disk most of the time.
verify() {
    local part pids=() failed=0
    split -n l/4 /lab/demo/tree.sums /tmp/sums.
    cd $mount
    for part in /tmp/sums.*; do
        sha256sum --quiet --strict -c "$part" &
        pids+=($!)
    done
    for part in "${pids[@]}"; do wait "$part" || failed=1; done
    cd /
    [ $failed = 0 ] || fail "files differ"
}

# quotient A B: with two decimals.
quotient() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

timed "$codec: format $device and attach it" zbd_format "$device" "codec=$codec"
zbd=$(zbd_attach "$device")
timed "ext4 on /dev/$zbd" mkfs.ext4 -q -E nodiscard "/dev/$zbd"
mkdir -p $mount
mount "/dev/$zbd" $mount
timed "copy $(wc -l </lab/demo/tree.sums) files in and sync" copy_in
umount $mount
# The numbers are exact at a checkpoint. Used is all that has been written and not been freed yet, metadata and what has
# died meanwhile included; live is what a collection would leave.
echo 1 >"/sys/block/$zbd/zbd/checkpoint"
mapped=$(zbd_stat "$zbd" mapped_bytes) used=$(zbd_stat "$zbd" used_bytes) live=$(zbd_stat "$zbd" live_bytes)
echo "demo:   stored $mapped bytes in $used, of which $live are live: $(quotient "$mapped" "$live")"
ratio=$(quotient "$mapped" "$used")
zbd_detach "$zbd"
[ ! -e "/dev/$zbd" ] || fail "/dev/$zbd is still there after detach"
zbd=$(zbd_attach "$device")
mount -o ro "/dev/$zbd" $mount
timed "detached and attached again; compare every file" verify
umount $mount
zbd_detach "$zbd"
echo "demo: $codec ratio=$ratio verified=$(wc -l </lab/demo/tree.sums)"
