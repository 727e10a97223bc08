# SPDX-License-Identifier: GPL-2.0
# The build root: a Debian tree with the toolchain that built the stock kernel, QEMU and the test tools.
# shellcheck shell=bash

# Toolchain: Kbuild's needs, then the host crates'.
ROOT_PACKAGES=(rustc rust-src rustfmt rust-clippy cargo bindgen clang llvm lld gcc libc6-dev make bc bison flex perl
    python3 libelf-dev libssl-dev xz-utils zstd kmod cpio dwarves rsync ca-certificates git)
# Guests, which boot from this same root, and the least that a test in them needs.
ROOT_PACKAGES+=(qemu-system-x86 busybox-static e2fsprogs util-linux fdisk iproute2 procps file)
# What only the first target's tests need. Elsewhere a package that has gone would be in the way for nothing.
[ "$ZBD_SUITE" != trixie ] || ROOT_PACKAGES+=(gcc-14 shellcheck fio xfsprogs btrfs-progs f2fs-tools dmsetup lvm2 vdo mdadm
    cryptsetup-bin nvme-cli util-linux-extra strace)

# as_root COMMAND...: for host packages only, and said aloud.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo; then
        say "using sudo for: $*"
        sudo "$@"
    else
        die "this needs root once: $*"
    fi
}

# need_host_package COMMAND PACKAGE: the only change the lab ever makes to the host.
need_host_package() {
    have "$1" && return 0
    say "installing $2 on this machine ($1 is missing)"
    as_root apt-get update -qq || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$2" >/dev/null
}

# Debian's signed package lists expire; a mirror that is a snapshot of the past then needs this switch.
APT_EXPIRED='Acquire::Check-Valid-Until "false"'

make_root() {
    local options=(--mode=root --variant=minbase --components=main --aptopt='APT::Install-Recommends "false"')
    local include
    include=$(IFS=, && echo "${ROOT_PACKAGES[*]}")
    options+=("--include=$include")
    rm_root
    if ! try_root "${options[@]}"; then
        grep -q 'is expired\|not valid yet' "$ZBD_LAB/log/mmdebstrap.log" || return 1
        echo "lab: the mirror's Release file has expired: accepting it (signatures are still checked)"
        rm_root
        try_root "${options[@]}" "--aptopt=$APT_EXPIRED"
    fi
    # The kernel packages come from the same mirror as the rest.
    [ "$ZBD_SUITE" != trixie ] ||
        sed -n 's/^\(deb .*\) trixie main.*/\1 trixie-backports main/p' "$ZBD_LAB/root/etc/apt/sources.list" |
        as_lab_root tee "$ZBD_LAB/root/etc/apt/sources.list.d/backports.list"
    update_packages
}

try_root() {
    # Root in a user namespace of its own is enough for mmdebstrap, so an unprivileged user takes the same way.
    as_lab_root mmdebstrap "$@" "$ZBD_SUITE" "$ZBD_LAB/root" ${ZBD_MIRROR:+"$ZBD_MIRROR"} 2>&1 |
        tee "$ZBD_LAB/log/mmdebstrap.log"
}

rm_root() { [ ! -e "$ZBD_LAB/root" ] || as_lab_root rm -rf --one-file-system "$ZBD_LAB/root"; }

update_packages() {
    enter apt-get update 2>&1 | tee "$ZBD_LAB/log/update.log" && ! grep -q '^E:' "$ZBD_LAB/log/update.log" && return 0
    grep -q 'is expired\|not valid yet' "$ZBD_LAB/log/update.log" || return 1
    echo "lab: the mirror's Release file has expired: accepting it (signatures are still checked)"
    enter bash -c "echo '$APT_EXPIRED;' >/etc/apt/apt.conf.d/99expired && apt-get update"
}

setup_root() {
    mkdir -p "$ZBD_LAB" "$ZBD_LAB/log"
    if [ "$(stamp root)" = "" ]; then
        say "cache: $ZBD_LAB"
        [ "$(id -u)" = 0 ] || {
            say "not root: using a user namespace"
            need_host_package newuidmap uidmap
        }
        need_host_package mmdebstrap mmdebstrap
        [ -z "${ZBD_MIRROR:-}" ] || say "package mirror: the one in ZBD_MIRROR"
    fi
    step root "$(hash_of "$ZBD_SUITE" "${ROOT_PACKAGES[*]}")" make_root
    ! grep -q 'Release file has expired' "$ZBD_LAB/log/root.log" ||
        say "note: the package mirror's Release file had expired when the root was made"
}

cmd_clean() {
    rm_root
    rm -rf --one-file-system "$ZBD_LAB"
}
