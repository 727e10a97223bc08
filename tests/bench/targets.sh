# SPDX-License-Identifier: GPL-2.0
# The devices that are compared. Each is made on a fresh memory-backed null_blk of the same size and removed again.
# shellcheck shell=bash

LOWER_MIB=6144  # dm-vdo's index alone takes more than 2.5 GB
LOGICAL_MIB=4096
NULL_BLK=/sys/kernel/config/nullb

# null_make NAME: a memory-backed disk without a scheduler; prints its device.
null_make() {
    local dir=$NULL_BLK/$1 pair index
    mkdir "$dir"
    for pair in memory_backed=1 discard=1 blocksize=4096 "size=$LOWER_MIB" "submit_queues=$(nproc)"; do
        echo "${pair#*=}" >"$dir/${pair%%=*}"
    done
    echo 1 >"$dir/power"
    index=$(cat "$dir/index")
    # Named after the index, or after its directory in newer kernels.
    if [ -e "/sys/block/nullb$index" ]; then index=nullb$index; else index=$1; fi
    echo none >"/sys/block/$index/queue/scheduler"
    echo "/dev/$index"
}
null_remove() {
    echo 0 >"$NULL_BLK/$1/power"
    rmdir "$NULL_BLK/$1"
}

# target_format TARGET LOWER: what is done once in a device's life; its memory does not count.
target_format() {
    case $1 in
    bare) ;;
    zbd-*) zbd_format "$2" "codec=$(zbd_codec "$1")" ;;
    vdo) vdoformat --force --logical-size=${LOGICAL_MIB}M --uds-memory-size=0.25 "$2" >/dev/null ;;
    esac
}
zbd_codec() { case $1 in zbd-zstd*) echo "zstd:${1#zbd-zstd}" ;; *) echo "${1#zbd-}" ;; esac; }

# target_start TARGET LOWER: prints the device.
target_start() {
    case $1 in
    bare) echo "$2" ;;
    zbd-*) echo "/dev/$(zbd_attach "$2")" ;;
    vdo)
        # Logical size; physical size in blocks, write size, block map cache in blocks (128 MiB, the least), era.
        dmsetup create benchvdo --table "0 $((LOGICAL_MIB * 2048)) vdo V4 $2 $((LOWER_MIB * 256)) 4096 32768 16380 \
deduplication off compression on"
        echo "/dev/dm-$(dmsetup info -c --noheadings -o minor benchvdo)"
        ;;
    esac
}

target_stop() {
    case $1 in
    bare) ;;
    zbd-*) zbd_detach "${2#/dev/}" ;;
    vdo) dmsetup remove benchvdo ;;
    esac
}

# target_facts TARGET DEVICE SUFFIX: lines `NAME VALUE`: bytes in use on the lower device with all that belongs to
# them, and the memory that it says it uses.
target_facts() {
    local zbd=${2#/dev/}
    case $1 in
    bare) ;;
    zbd-*)
        # What is still in memory has no place yet.
        blockdev --flushbufs "$2"
        echo "used$3 $(zbd_stat "$zbd" used_bytes)"
        echo "memory$3 $(zbd_stat "$zbd" memory_bytes)"
        ;;
    vdo)
        # Overhead has grown by the map's pages.
        dmsetup message benchvdo 0 stats | tr -d '{} ' | tr ',' '\n' | sed 's/^memoryUsage://' | awk -F: -v suffix="$3" '
            $1 ~ /^(dataBlocksUsed|overheadBlocksUsed)$/ { used += $2 * 4096 }
            $1 == "bytesUsed" { print "memory" suffix, $2 }
            END { printf "used%s %.0f\n", suffix, used }'
        ;;
    esac
}
