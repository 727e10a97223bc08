# SPDX-License-Identifier: GPL-2.0
# Building zbd.ko and the host crates inside the build root.
# shellcheck shell=bash

# kbuild_args KERNEL: the make arguments that select a prepared kernel; also used to prepare it.
kbuild_args() {
    case $1 in
    stock) sed 's/^make -C [^ ]* //' "$ZBD_LAB/stock/zbd-kbuild" ;;
    uml | uml-debug) echo "ARCH=um LLVM=1 O=$IN_LAB/$1" ;;
    *) die "no such kernel: $1 (stock, uml or uml-debug)" ;;
    esac
}

# build_module KERNEL [MAKE-ARG...]: the checkout stays clean, objects go to mod/KERNEL in the cache.
build_module() {
    local kernel=$1 args
    shift
    args=$(kbuild_args "$kernel")
    mkdir -p "$ZBD_OUT/mod/$kernel"
    # shellcheck disable=SC2086  # several arguments on purpose
    enter make -s -C "$IN_LAB/src" $args "-j$ZBD_JOBS" M="$IN_TOP" MO="$IN_OUT/mod/$kernel" "$@" modules
}

cmd_build() {
    local kernel=${1:-stock}
    [ $# -eq 0 ] || shift
    need_kernel "$kernel"
    if [ "${1:-}" = --clippy ]; then
        # Clippy only reports on what it compiles, so it gets a full build of its own.
        rm -rf "$ZBD_OUT/mod/$kernel-clippy"
        mkdir -p "$ZBD_OUT/mod/$kernel-clippy"
        build_module "$kernel" MO="$IN_OUT/mod/$kernel-clippy" CLIPPY=1
        return
    fi
    build_module "$kernel" "$@"
    say "built $ZBD_OUT/mod/$kernel/zbd.ko"
}

# need_kernel KERNEL: prepare the kernel that a command names.
need_kernel() {
    case " ${ZBD_UNAVAILABLE:-} " in *" $1 "*) die "$1 could not be prepared, see above" ;; esac
    case $1 in
    stock) setup_stock ;;
    qemu) setup_qemu ;;
    uml) setup_uml uml ;;
    uml-debug) setup_uml uml-debug ;;
    *) die "no such kernel: $1" ;;
    esac
}

cmd_enter() {
    setup_root
    if [ $# -gt 0 ]; then enter "$@"; else enter bash -l; fi
}

cmd_host() {
    setup_root
    # shellcheck disable=SC2016  # expanded inside
    enter bash -c 'cd "$0" && exec "$@"' "$IN_TOP/tools" "$@"
}
