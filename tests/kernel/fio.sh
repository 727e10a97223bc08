#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 2G
# zbd-timeout: 280
# Data written with fio reads back as it was: small and large, random and sequential, compressible and not, with flushes
# and durable writes between, from several jobs at once; and again after detaching and attaching.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

device=${DISK_data:?}
size=${1:-200M}
[ "${ZBD_GUEST:-}" != uml-debug ] || size=${1:-32M}

# job NAME ARG...: one fio job on its own part of the disk, verified.
offset=0
job() {
    local name=$1
    shift
    timeout -s KILL 240 fio --output-format=terse --terse-version=3 --name="$name" --filename="/dev/$zbd" --ioengine=io_uring \
        --direct=1 --size="$size" --offset="$((offset * 220))M" --verify=xxhash --verify_fatal=1 --do_verify="$verify" \
        --randseed=7 --verify_state_save=0 "$@" >"/tmp/fio-$name" || { cat "/tmp/fio-$name"; fail "fio $name"; }
    echo "fio: $name ok"
    offset=$((offset + 1))
}
jobs_all() {
    offset=0
    job random-4k --rw=randwrite --bs=4k --iodepth=64 --buffer_compress_percentage=50 --refill_buffers "$@"
    job sequential-128k --rw=write --bs=128k --iodepth=8 --buffer_compress_percentage=70 --refill_buffers "$@"
    job noise --rw=randwrite --bs=16k --iodepth=16 --buffer_compress_percentage=0 --refill_buffers "$@"
    job mixed --rw=randwrite --bsrange=4k-256k --blockalign=4k --iodepth=32 --fsync=16 --buffer_compress_percentage=80 "$@"
    job durable --rw=write --bs=4k --iodepth=1 --fdatasync=1 --size=2M --buffer_compress_percentage=50 "$@"
}

zbd_format "$device" force codec="${2:-lz4}"
zbd=$(zbd_attach "$device")
verify=1
jobs_all
zbd_detach "$zbd"
zbd=$(zbd_attach "$device")
verify=1
jobs_all --verify_only=1
for name in checksum_errors io_errors; do
    [ "$(zbd_stat "$zbd" $name)" = 0 ] || fail "$name is not 0"
done
for name in user_bytes user_log_bytes metadata_log_bytes gc_log_bytes write_amplification checkpoints; do
    echo "$name: $(zbd_stat "$zbd" $name)"
done
zbd_detach "$zbd"
echo "fio: ok"
