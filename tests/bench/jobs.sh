# SPDX-License-Identifier: GPL-2.0
# The jobs, and how one is run: with a limit, so that a hang is a result and not the end.
# shellcheck shell=bash

REGION_MIB=256

# job_options JOB: fio's options for it. Batches at depth 128, as a system call costs a lot in User Mode Linux.
job_options() {
    local batch=(--iodepth=128 --iodepth_batch_submit=64 --iodepth_batch_complete_min=32)
    case $1 in
    seqwrite) echo --rw=write --bs=128k --iodepth=16 ;;
    seqread) echo --rw=read --bs=128k --iodepth=16 ;;
    randwrite) echo --rw=randwrite --bs=4k "${batch[@]}" ;;
    randread) echo --rw=randread --bs=4k "${batch[@]}" ;;
    randwrite1) echo --rw=randwrite --bs=4k --iodepth=1 ;;
    randread1) echo --rw=randread --bs=4k --iodepth=1 ;;
    esac
}

# data_options DATA: half of each 4 KiB is random and half is zero, or all is random.
data_options() {
    case $1 in
    half) echo --buffer_compress_percentage=50 --buffer_compress_chunk=4k ;;
    random) echo --refill_buffers=1 ;;
    esac
}

# pause SECONDS: without a process of its own, which would count as work.
mkfifo /tmp/never
pause() { read -rt "$1" <>/tmp/never || true; }

# limited SECONDS COMMAND...: 124 if it takes longer. What hangs in the kernel cannot be killed and is left behind.
limited() {
    local pid looks=$(($1 * 20)) rc=0
    shift
    "$@" &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if [ $((looks -= 1)) -le 0 ]; then
            kill -KILL $pid
            pause 1
            return 124
        fi
        pause 0.05
    done
    wait $pid || rc=$?
    return $rc
}

# busy: all processors' time at work so far, in ticks.
busy() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }

# fio_job NAME DEVICE OUTPUT SECONDS OPTION...: writes count until they are flushed.
fio_job() {
    local name=$1 device=$2 output=$3 limit=$4
    shift 4
    limited "$limit" fio --name="$name" --filename="$device" --size=${REGION_MIB}M --direct=1 --ioengine=io_uring \
        --end_fsync=1 --randrepeat=1 --norandommap=1 --output="$output" --output-format=json --eta=never "$@" \
        2>"$output.errors" || return
    [ ! -s "$output.errors" ] || { cat "$output.errors"; return 1; }
}
