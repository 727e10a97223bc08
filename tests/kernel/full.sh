#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 300M
# zbd-timeout: 290
# zbd-expect-log: critical space allocation error|no space left|I/O error|nearly used up
# A volume that promises more than its disk holds is filled with noise: writes fail with ENOSPC and nothing hangs, what
# was written reads back, discarding brings the space back.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

zbd_format "${DISK_data:?}" force size=2G
zbd=$(zbd_attach "$DISK_data")

# fill: writes noise until it is refused; prints how many MiB went in.
fill() {
    local at=0
    while timeout 240 dd if=/dev/urandom of=/tmp/noise bs=1M count=1 status=none &&
        timeout 240 dd if=/tmp/noise of="/dev/$zbd" bs=1M seek=$at count=1 oflag=direct conv=notrunc status=none 2>/tmp/error; do
        sha256sum </tmp/noise >>/tmp/sums
        at=$((at + 1))
        [ $at -lt 2048 ] || fail "2 GiB of noise went into 300 MiB"
    done
    grep -q "No space left" /tmp/error || fail "refused with: $(cat /tmp/error)"
    echo $at
}

for round in 1 2; do
    : >/tmp/sums
    full=$(fill)
    echo "full: round $round: $full MiB of noise, then ENOSPC; state $(zbd_stat "$zbd" state)"
    [ "$full" -gt 150 ] || fail "only $full MiB went in"
    at=0
    while read -r sum _; do
        found=$(timeout 240 dd if="/dev/$zbd" bs=1M skip=$at count=1 iflag=direct status=none | sha256sum)
        [ "${found%% *}" = "$sum" ] || fail "MiB $at is not what was written"
        at=$((at + 1))
    done </tmp/sums
    timeout 240 blkdiscard "/dev/$zbd"
    sync
    timeout 240 dd if=/tmp/noise of="/dev/$zbd" bs=1M count=1 oflag=direct conv=notrunc status=none ||
        fail "still full after everything was discarded"
done

zbd_detach "$zbd"
echo "full: ok"
