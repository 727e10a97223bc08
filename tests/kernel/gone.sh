#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-timeout: 200
# zbd-expect-log: Buffer I/O error|I/O error
# The lower device goes away, or fails, under load: errors above, no crash, and detaching still works.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

modprobe -q null_blk nr_devices=0 || { echo "SKIP: no null_blk"; exit 77; }
nullb=/sys/kernel/config/nullb/nullb9
mkdir $nullb
echo 1 >$nullb/memory_backed
echo 512 >$nullb/size
echo 4096 >$nullb/blocksize
echo 1 >$nullb/power

zbd_format /dev/nullb9
zbd=$(zbd_attach /dev/nullb9)
fio --name=load --filename="/dev/$zbd" --direct=1 --ioengine=io_uring --rw=randrw --bs=4k --iodepth=32 --size=200M \
    --fsync=32 --runtime=20 --time_based >/tmp/fio 2>&1 &
load=$!
sleep 3
echo 0 >$nullb/power
wait $load && fail "fio noticed nothing"
case $(zbd_stat "$zbd" state) in read-only*) ;; *) fail "state $(zbd_stat "$zbd" state)" ;; esac
if timeout 20 dd if=/dev/urandom of="/dev/$zbd" bs=4k count=1 oflag=direct,sync status=none 2>/dev/null; then
    fail "a write to a device that is gone succeeded"
fi
timeout 240 bash -c "echo $zbd >$ZBD_CONTROL/detach"
[ ! -e "/dev/$zbd" ] || fail "/dev/$zbd is still there"
rmdir $nullb

# Bad blocks below: what is on them reads as an error, the rest as it was.
mkdir $nullb
echo 1 >$nullb/memory_backed
echo 512 >$nullb/size
echo 4096 >$nullb/blocksize
echo 1 >$nullb/power
zbd_format /dev/nullb9
zbd=$(zbd_attach /dev/nullb9)
timeout 240 fio --name=fill --filename="/dev/$zbd" --direct=1 --rw=write --bs=128k --size=64M --end_fsync=1 \
    --buffer_compress_percentage=50 --refill_buffers >/dev/null
echo "+$((24 << 11))-$((25 << 11))" >$nullb/badblocks
good=0 bad=0
for mib in $(seq 0 63); do
    if timeout 20 dd if="/dev/$zbd" of=/dev/null bs=1M count=1 skip="$mib" iflag=direct status=none 2>/dev/null; then
        good=$((good + 1))
    else
        bad=$((bad + 1))
    fi
done
echo "gone: $good MiB readable, $bad not"
[ "$good" -gt 50 ] || fail "too much is unreadable"
if [ "$bad" -lt 1 ] || [ "$bad" -gt 5 ]; then fail "$bad MiB are unreadable"; fi
zbd_detach "$zbd"
echo "gone: ok"
