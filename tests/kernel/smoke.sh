#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml uml-debug qemu
# zbd-disk: data 1G
# The shortest way through everything: format, attach, ext4, files, detach, attach, compare.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

device=${DISK_data:?}
zbd_format "$device" force
zbd=$(zbd_attach "$device")
timeout 240 mkfs.ext4 -q "/dev/$zbd"
mkdir -p /mnt/t
mount "/dev/$zbd" /mnt/t
tar -C /usr/share -cf - perl 2>/dev/null | tar -C /mnt/t -xf -
(cd /mnt/t && find . -type f -print0 | xargs -0 sha256sum) >/tmp/sums
[ "$(wc -l </tmp/sums)" -gt 100 ] || fail "too few files"
umount /mnt/t
echo >"/sys/block/$zbd/zbd/checkpoint"
[ "$(zbd_stat "$zbd" ratio)" -gt 150 ] || fail "ratio $(zbd_stat "$zbd" ratio)"
zbd_detach "$zbd"
zbd=$(zbd_attach "$device")
timeout 240 fsck.ext4 -fn "/dev/$zbd"
mount "/dev/$zbd" /mnt/t
(cd /mnt/t && sha256sum --quiet --strict -c /tmp/sums)
umount /mnt/t
for file in "/sys/block/$zbd/zbd/"*; do [ ! -r "$file" ] || echo "${file##*/}: $(cat "$file" 2>/dev/null)"; done
zbd_detach "$zbd"
[ ! -e "/dev/$zbd" ] || fail "/dev/$zbd is still there"
echo "smoke: ok"
