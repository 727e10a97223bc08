# SPDX-License-Identifier: GPL-2.0
# Booting guests: one job per boot, its result and its kernel log collected, and never a hang.
# shellcheck shell=bash

# What may not stand in a kernel log. The guest writes a mark when it begins: what UML says before is its own.
LOG_BAD='WARNING: |BUG: |BUG at |Oops|Kernel panic|general protection|KASAN:|UBSAN:|ODEBUG:|kmemleak:|possible circular'
LOG_BAD+='|possible recursive|inconsistent lock|suspicious RCU|blocked for more than|sleeping function called'
LOG_BAD+='|scheduling while atomic|list_(add|del) corruption|stack-protector|refcount_t:|soft lockup|rcu.*stall|Call Trace'
LOG_BAD+='|panicked at|lockdep (turned off|is off)'
LOG_FINE='kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning)'

# clean_log FILE: the kernel's words from the guest's mark on, without time stamps.
clean_log() { sed -e 's/\r$//' -e 's/^\[ *[0-9.]*\] //' -e '/zbd-guest: begin/,$!d' "$1" 2>/dev/null || true; }

# check_log RUN [EXPECTED]: print what is wrong with the kernel log of a run; EXPECTED is a pattern of wanted lines.
check_log() {
    local run=$1 expected=${2:-'^$'} bad
    # A guest that died left an incomplete log: then the console has the rest.
    bad=$({ clean_log "$run/dmesg"; clean_log "$run/console"; } |
        grep -E "$LOG_BAD" | grep -Ev "$LOG_FINE" | grep -Ev "$expected" | sort -u | head -n 20) || true
    [ -n "$bad" ] || return 0
    say "the kernel log is not clean:"
    printf '%s\n' "$bad" >&2
    return 1
}

# disk_path NAME[:SIZE]: the file that is the disk.
disk_path() { echo "$ZBD_OUT/disks/$boot_prefix${1%%:*}.img"; }

# make_disk NAME:SIZE: a sparse file in the cache; kept between boots unless a fresh one is wanted.
make_disk() {
    local file
    file=$(disk_path "$1")
    mkdir -p "$ZBD_OUT/disks"
    [ "$boot_fresh" = no ] || rm -f "$file"
    [ -e "$file" ] || [ -L "$file" ] || truncate -s "${1#*:}" "$file"
}

# make_initramfs: only what reaches the build root; all else is loaded from there.
make_initramfs() {
    # shellcheck disable=SC2016  # expanded inside
    enter bash -euc '
        release=$1
        rm -rf /tmp/i
        mkdir -p /tmp/i/bin /tmp/i/proc /tmp/i/dev /tmp/i/newroot /lab/qemu
        cp /usr/bin/busybox /tmp/i/bin/
        ln -s busybox /tmp/i/bin/sh
        cp /zbd/tools/guest/initramfs-init /tmp/i/init
        for module in 9p 9pnet_virtio virtio_blk; do
            modprobe -S "$release" --show-depends "$module" | sed -n "s/^insmod \([^ ]*\).*/\1/p"
        done | awk "!seen[\$0]++" | while read -r path; do
            name=${path##*/}
            name=${name%.xz}
            case $path in *.xz) xz -dc "$path" ;; *) cat "$path" ;; esac >"/tmp/i/$name"
            echo "$name" >>/tmp/i/modules.order
        done
        cd /tmp/i
        find . | cpio -o -H newc --quiet | gzip -1 >/lab/qemu/initrd.tmp
        mv /lab/qemu/initrd.tmp /lab/qemu/initrd
    ' - "$(cat "$ZBD_LAB/stock.release")"
}

setup_qemu() {
    setup_stock
    step initramfs "$(hash_of "$(stamp kernel-packages)" "$ZBD_TOP/tools/guest/initramfs-init" \
        "$(declare -f make_initramfs)")" make_initramfs
    step qemu-accel "$(hash_of "$(stamp initramfs)" "$(uname -r)" "$(grep -m1 'model name' /proc/cpuinfo)" \
        "$(declare -f qemu_command)")" probe_accel
}

# probe_accel: a /dev/kvm that opens may still be unable to run a guest; only a boot tells.
probe_accel() {
    local accel='tcg,thread=multi' run=$ZBD_LAB/run/probe
    mkdir -p "$run"
    if [ -w /dev/kvm ]; then
        # shellcheck disable=SC2046  # several arguments on purpose
        enter timeout -k 1 12 $(qemu_command kvm) -append 'console=ttyS0 panic=-1 quiet guest_probe' \
            </dev/null >"$run/console" 2>&1 || true
        cat "$run/console"
        ! grep -q 'zbd-guest: alive' "$run/console" || accel=kvm
    fi
    echo "lab: QEMU will use $accel"
    echo "$accel" >"$ZBD_LAB/qemu/accel"
}

qemu_command() {
    local cpu=max
    [ "$1" != kvm ] || cpu=host
    echo qemu-system-x86_64 -nodefaults -no-user-config -machine q35 -accel "$1" -cpu $cpu -smp 2 -m 3G \
        -display none -no-reboot -kernel "/boot/vmlinuz-$(cat "$ZBD_LAB/stock.release")" -initrd /lab/qemu/initrd \
        -serial mon:stdio
}

# write_job RUN KERNEL MODULE LEAKS SCRIPT ARG...: what the guest's init reads.
write_job() {
    local run=$1 disk letter=0 letters=abcdefgh devices='' stem=/dev/ubd
    [ "$2" != qemu ] || stem=/dev/vd
    for disk in "${boot_disks[@]}"; do
        devices+="${disk%%:*}=$stem${letters:letter:1} "
        letter=$((letter + 1))
    done
    {
        printf 'job_kernel=%q job_module=%q job_leaks=%q job_script=%q job_disks=%q\n' "$2" "$3" "$4" "$5" "$devices"
        shift 5
        printf 'job_args=('
        [ $# -eq 0 ] || printf '%q ' "$@"
        printf ')\n'
    } >"$run/job"
}

# More than one processor in UML needs its seccomp mode, in which some hosts crash every guest: only a boot tells.
UML_ONE_CPU=(seccomp=off ncpus=1)
probe_smp() {
    boot_timeout=20 boot_module=no
    echo seccomp=on ncpus=2 >"$ZBD_LAB/uml-smp"
    if [ "$(nproc)" -gt 1 ] && boot_guest uml "$IN_TOP/tools/guest/alive.sh"; then
        echo "lab: UML will use two processors"
    else
        echo "lab: UML will use one processor"
        echo "${UML_ONE_CPU[@]}" >"$ZBD_LAB/uml-smp"
    fi
}

# guest_command KERNEL ID: fill guest_cmd with the command that boots it, to be run inside the root.
guest_command() {
    local kernel=$1 id=$2 disk n=0 smp extra memory=4G
    read -ra extra <<<"${ZBD_GUEST_ARGS:-}"
    if [ "$kernel" = qemu ]; then
        read -ra guest_cmd < <(qemu_command "$(cat "$ZBD_LAB/qemu/accel")")
        # A work-queue hop between two emulated processors takes 0.5 ms unless idle ones spin.
        guest_cmd+=(-append "console=ttyS0 idle=poll panic=-1 oops=panic quiet loglevel=5 ${extra[*]}"
            -virtfs "local,path=/,mount_tag=root,security_model=none,multidevs=remap,readonly=on"
            -virtfs "local,path=$IN_LAB/run/$id,mount_tag=run,security_model=none")
        for disk in "${boot_disks[@]}"; do
            guest_cmd+=(-drive "file=$IN_OUT/disks/$boot_prefix${disk%%:*}.img,format=raw,if=none,id=d$n,discard=unmap"
                -device "virtio-blk-pci,drive=d$n,serial=${disk%%:*}")
            n=$((n + 1))
        done
        return
    fi
    # kmemleak and KASAN walk all memory: less of it makes the debug kernel boot sooner.
    [ "$kernel" = uml ] || memory=1536M
    guest_cmd=("${boot_linux:-$IN_LAB/$kernel/linux}" "mem=${ZBD_UML_MEM:-$memory}" rootfstype=hostfs rootflags=/ ro "init=$IN_TOP/tools/guest/init"
        "guest_run=$id" "guest_kernel=$kernel" con=null "con0=$(uml_console),fd:1" quiet loglevel=5
        kunit.enable=1 kunit.autorun=1 panic=-1 oops=panic)
    # It makes everything several times slower, so only runs that look for leaks have it.
    [ "$boot_leaks" = yes ] || guest_cmd+=(kmemleak=off)
    read -ra smp <"$ZBD_LAB/uml-smp"
    [ "${ZBD_UML_CPUS:-}" != 1 ] || smp=("${UML_ONE_CPU[@]}")
    guest_cmd+=("${smp[@]}" "${extra[@]}")
    for disk in "${boot_disks[@]}"; do
        guest_cmd+=("ubd$n=$IN_OUT/disks/$boot_prefix${disk%%:*}.img")
        n=$((n + 1))
    done
}
uml_console() { if [ -n "${interactive:-}" ]; then echo fd:0; else echo null; fi; }

# run_guest RUN TIMEOUT KILL_AFTER KERNEL: boot, stream the console, end it when told. KILL_AFTER counts from the start
# of the job, so that a slow boot does not move it. Prints nothing of its own; the result is in the files of RUN.
run_guest() {
    local run=$1 timeout=$2 kill_after=$3 kernel=$4 pid tailer start=$SECONDS begun=''
    local -a guest_cmd
    guest_command "$kernel" "${run##*/}"
    : >"$run/console"
    # UML wants an output that can be polled: a pipe, not a file.
    (exec_enter "${boot_under[@]}" "${guest_cmd[@]}") </dev/null > >(cat >>"$run/console") 2>&1 &
    pid=$!
    tail -n +1 -s 0.2 -f --pid=$pid "$run/console" | sed -u 's/\r$//' &
    tailer=$!
    # shellcheck disable=SC2064  # the ids of now
    trap "kill -KILL $pid 2>/dev/null; exit 130" INT TERM
    while kill -0 $pid 2>/dev/null; do
        if [ $((SECONDS - start)) -ge "$timeout" ]; then
            kill -KILL $pid || true
            echo timeout >"$run/ended"
        elif [ -n "$kill_after" ] && [ -e "$run/begun" ]; then
            begun=${begun:-$(date +%s%N)}
            if [ $((($(date +%s%N) - begun) / 1000000)) -ge "$(milliseconds "$kill_after")" ]; then
                kill -KILL $pid || true
                echo killed >"$run/ended"
            fi
        fi
        sleep 0.1
    done
    wait $pid 2>/dev/null || true
    wait $tailer 2>/dev/null || true
    trap - INT TERM
}

milliseconds() { awk -v s="$1" 'BEGIN { printf "%d", s * 1000 }'; }

# boot_guest KERNEL SCRIPT [ARG...]: with the options in boot_*; returns what the script returned, 124 for a time-out,
# 123 for an unclean log, 122 for a guest that died.
# shellcheck disable=SC2034  # boot_run tells callers where the results are
boot_disks=() boot_timeout=600 boot_kill='' boot_fresh=no boot_module=yes boot_expect='' boot_leaks=no boot_run=''
boot_prefix='' boot_under=() boot_linux='' boot_object=''
boot_guest() {
    local kernel=$1 script=$2 module='' disk run status
    shift 2
    run=$ZBD_LAB/run/$kernel-$$-$RANDOM
    # shellcheck disable=SC2034
    boot_run=$run
    rm -rf "$run"
    mkdir -p "$run"
    for disk in "${boot_disks[@]}"; do make_disk "$disk"; done
    [ "$boot_module" = no ] || module=${boot_object:-$IN_OUT/mod/${kernel/qemu/stock}/zbd.ko}
    write_job "$run" "$kernel" "$module" "$boot_leaks" "$script" "$@"
    run_guest "$run" "$boot_timeout" "$boot_kill" "$kernel"
    guest_result "$run"
}

guest_result() {
    local run=$1 ended status
    ended=$(cat "$run/ended" 2>/dev/null || true)
    if [ "$ended" = timeout ]; then
        say "the guest was ended after $boot_timeout s (console and log in $run)"
        check_log "$run" "$boot_expect" || true
        return 124
    fi
    check_log "$run" "$boot_expect" || return 123
    [ "$ended" != killed ] || { say "the guest was killed, as asked"; return 0; }
    status=$(cat "$run/status" 2>/dev/null || true)
    [ -n "$status" ] || { say "the guest died (console and log in $run)"; return 122; }
    return "$status"
}

# inside FILE: the path that a file of the checkout or the cache has in the guest.
inside() {
    local path
    path=$(realpath "$1") || die "no such file: $1"
    case $path in
    "$ZBD_TOP"/*) echo "$IN_TOP${path#"$ZBD_TOP"}" ;;
    "$ZBD_OUT"/*) echo "$IN_OUT${path#"$ZBD_OUT"}" ;;
    "$ZBD_LAB"/*) echo "$IN_LAB${path#"$ZBD_LAB"}" ;;
    *) die "the guest sees only the checkout and $ZBD_LAB, not $path" ;;
    esac
}

need_guest() {
    case $1 in
    qemu | uml | uml-debug) need_kernel "$1" ;;
    *) die "no such guest: $1 (uml, uml-debug or qemu)" ;;
    esac
}

cmd_boot() {
    local kernel='' script
    while [ $# -gt 0 ]; do
        case $1 in
        --disk) boot_disks+=("$2"); shift 2 ;;
        --timeout) boot_timeout=$2; shift 2 ;;
        --kill-after) boot_kill=$2; shift 2 ;;
        --fresh) boot_fresh=yes; shift ;;
        --no-module) boot_module=no; shift ;;
        --leaks) boot_leaks=yes; shift ;;
        --expect) boot_expect=$2; shift 2 ;;
        -*) die "unknown option: $1" ;;
        *)
            if [ -z "$kernel" ]; then kernel=$1; shift; else break; fi
            ;;
        esac
    done
    [ $# -gt 0 ] || die "usage: tools/lab boot uml|uml-debug|qemu [OPTION...] SCRIPT [ARG...]"
    need_guest "$kernel"
    [ "$boot_module" = no ] || cmd_build "${kernel/qemu/stock}"
    script=$(inside "$1")
    shift
    boot_guest "$kernel" "$script" "$@"
}

cmd_shell() {
    local kernel=${1:-uml} run
    local -a guest_cmd
    local interactive=yes
    need_guest "$kernel"
    cmd_build "${kernel/qemu/stock}"
    run=$ZBD_LAB/run/$kernel-shell-$$
    mkdir -p "$run"
    boot_disks=("shell:${ZBD_DISK_SIZE:-4G}")
    make_disk "${boot_disks[0]}"
    write_job "$run" "$kernel" "$IN_OUT/mod/${kernel/qemu/stock}/zbd.ko" no ''
    guest_command "$kernel" "${run##*/}"
    say "the disk \$DISK_shell is kept between boots; leave with exit"
    enter "${guest_cmd[@]}"
}
