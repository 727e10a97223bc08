#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 512M
# zbd-disk: acks 16M
# zbd-timeout: 120
# zbd-boot: kill-after=12 new
# zbd-boot: kill-after=10 on
# zbd-boot: kill-after=14 on
# zbd-boot: kill-after=9 on
# zbd-boot: check
# The machine dies during a workload, several times: every write that a completed flush covered is there, and no block
# holds anything but what was once written to it.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

device=${DISK_data:?}
if [ "$1" = new ]; then
    zbd_format "$device" force
fi
zbd=$(zbd_attach "$device")
case $1 in
new) python3 /zbd/tests/kernel/power.py "/dev/$zbd" "${DISK_acks:?}" start write ;;
on) python3 /zbd/tests/kernel/power.py "/dev/$zbd" "${DISK_acks:?}" check write ;;
check)
    python3 /zbd/tests/kernel/power.py "/dev/$zbd" "${DISK_acks:?}" check
    [ "$(zbd_stat "$zbd" checksum_errors)" = 0 ] || fail "checksum errors"
    zbd_detach "$zbd"
    echo "power: ok"
    ;;
esac
