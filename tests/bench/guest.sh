#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest.sh ROUNDS SECONDS TARGETS JOBS DATA: measures, in a guest. Every round goes through all targets.
# Leaves in /run/zbd/bench: fio's reports, and `facts` with lines `ROUND DATA TARGET NAME VALUE`.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh
# shellcheck source=tests/bench/targets.sh
. /zbd/tests/bench/targets.sh
# shellcheck source=tests/bench/jobs.sh
. /zbd/tests/bench/jobs.sh

rounds=$1 seconds=$2
read -ra targets <<<"$3"
read -ra jobs <<<"$4"
read -ra kinds <<<"$5"
out=/run/zbd/bench
mkdir -p $out

fact() { echo "$round $data $target $*" >>$out/facts; }
free_bytes() { awk '$1 == "MemFree:" { print $2 * 1024 }' /proc/meminfo; }

# run_job JOB DEVICE: one measurement.
run_job() {
    local job=$1 device=$2 busy_before options
    read -ra options <<<"$(job_options "$job") $(data_options "$data")"
    busy_before=$(busy)
    fact "$job.start" "$EPOCHREALTIME"
    fio_job "$job" "$device" "$out/$round.$data.$target.$job.json" $((seconds + 20)) \
        --time_based=1 --runtime="$seconds" "${options[@]}" || return
    fact "$job.end" "$EPOCHREALTIME"
    fact "$job.busy_ticks" $(($(busy) - busy_before))
}

# fill DEVICE: nothing is read that was not written.
fill() {
    local options
    read -ra options <<<"$(data_options "$data")"
    fio_job fill "$1" /tmp/fill.json 60 --rw=write --bs=128k --iodepth=16 "${options[@]}"
}

# facts DEVICE SUFFIX: what the target says about itself.
facts() {
    local name value
    limited 20 target_facts "$target" "$1" "$2" >/tmp/facts || return
    while read -r name value; do fact "$name" "$value"; done </tmp/facts
}

# measure: one target with one kind of data, from its making to its removal. Not 0: what went wrong is in `step`.
measure() {
    local lower device before job
    step=lower lower=$(null_make "$target") || return
    step=format && limited 60 target_format "$target" "$lower" || return
    before=$(free_bytes)
    step=start && limited 60 target_start "$target" "$lower" >/tmp/device || return
    device=$(cat /tmp/device)
    fact memory_start $((before - $(free_bytes)))
    step=facts && facts "$device" _empty || return
    step=fill && fill "$device" || return
    step=facts && facts "$device" _filled || return
    for job in "${jobs[@]}"; do
        step=$job && run_job "$job" "$device" || return
    done
    step=facts && facts "$device" _end || return
    step=stop && limited 60 target_stop "$target" "$device" || return
    step=remove && limited 20 null_remove "$target"
}

# calibrate: the work that fio itself is, whatever the device: its start, which takes long here.
calibrate() {
    local before
    before=$(busy)
    fio --name=idle --ioengine=null --size=4k --output=/tmp/idle.json --output-format=json
    echo $(($(busy) - before))
}

# warm_up: the host gives memory when it is first touched, which takes long. Whoever writes to new places all the time,
# as a log does, would pay for all others.
warm_up() {
    dd if=/dev/zero of=/tmp/warm bs=1M count=$WARM_MIB status=none
    rm /tmp/warm
}

WARM_MIB=3072
warm_up
modprobe null_blk nr_devices=0
case " ${targets[*]} " in *" vdo "*) modprobe dm-vdo ;; esac
calibrate >/dev/null
{
    echo "kernel $(uname -r)"
    echo "processors $(nproc)"
    echo "ticks_per_second $(getconf CLK_TCK)"
    echo "region_bytes $((REGION_MIB << 20))"
    echo "startup_ticks $(calibrate)"
} >$out/machine

broken=' '
for ((round = 1; round <= rounds; round++)); do
    for data in "${kinds[@]}"; do
        for target in "${targets[@]}"; do
            case $broken in *" $target "*) continue ;; esac
            rc=0 step=''
            measure || rc=$?
            cat /proc/kallsyms >$out/kallsyms
            if [ $rc = 0 ]; then
                echo "bench: round $round, $data, $target: done"
                continue
            fi
            fact failed "$step:$rc"
            echo "bench: round $round, $data, $target: FAILED in $step, status $rc"
            # What it holds may never come back, so it is left alone; the others go on.
            broken+="$target "
        done
    done
done
[ "$broken" = ' ' ]
