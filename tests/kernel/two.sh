#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 1G
# zbd-disk: other 1G
# zbd-timeout: 280
# Two volumes at once, with different codecs and file systems, partitions, and a change of codec while mounted.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

zbd_format "${DISK_data:?}" force codec=lz4 label=one
zbd_format "${DISK_other:?}" force codec=zstd:3 size=2G zone=4M copies=1 straddle=off
one=$(zbd_attach "$DISK_data")
two=$(zbd_attach "$DISK_other")
[ "$(zbd_stat "$two" codec)" = zstd:3 ] || fail "codec $(zbd_stat "$two" codec)"
[ "$(zbd_stat "$two" logical_bytes)" = $((2 << 30)) ] || fail "size"
[ "$(grep -c . "$ZBD_CONTROL/volumes")" = 2 ] || fail "volumes"

# A partition table on the first.
printf 'label: gpt\n,300M\n,\n' | timeout 240 sfdisk -q "/dev/$one"
[ -e "/dev/${one}p2" ] || fail "no partitions"
timeout 100 mkfs.ext4 -q "/dev/${one}p2" &
timeout 100 mkfs.ext4 -q "/dev/$two" &
wait %1
wait %2
mkdir -p /mnt/one /mnt/two
mount "/dev/${one}p2" /mnt/one
mount "/dev/$two" /mnt/two
for n in one two; do
    (
        tar -C /usr/share -cf - perl perl5 2>/dev/null | tar -C /mnt/$n -xf -
        cd /mnt/$n && find . -type f -print0 | xargs -0 sha256sum >/tmp/sums.$n
    ) &
done
sleep 1
echo zstd:1 >"/sys/block/$one/zbd/codec"
echo lz4 >"/sys/block/$two/zbd/codec"
wait
for n in one two; do
    [ "$(wc -l </tmp/sums.$n)" -gt 300 ] || fail "too few files"
    rm -rf /mnt/$n/perl5
    timeout 100 fstrim /mnt/$n
    umount /mnt/$n
done
echo "ratio: $(zbd_stat "$one" ratio) $(zbd_stat "$two" ratio)"
zbd_detach "$one"
zbd_detach "$two"
two=$(zbd_attach "$DISK_other")
one=$(zbd_attach "$DISK_data")
[ "$(zbd_stat "$one" codec)" = zstd:1 ] || fail "the change of codec was forgotten"
timeout 100 fsck.ext4 -fn "/dev/${one}p2" >/dev/null
timeout 100 fsck.ext4 -fn "/dev/$two" >/dev/null
mount "/dev/${one}p2" /mnt/one
mount "/dev/$two" /mnt/two
for n in one two; do
    (cd /mnt/$n && grep -v ' \./perl5/' /tmp/sums.$n | sha256sum --quiet --strict -c -)
    umount /mnt/$n
done
zbd_detach "$one"
zbd_detach "$two"
echo "two: ok"
