# SPDX-License-Identifier: GPL-2.0
# For scripts that run in a guest: the way to make, attach and detach a zbd disk, in one place.
# shellcheck shell=bash

ZBD_CONTROL=/sys/class/zbd-control

fail() { echo "FAIL: $*" >&2; exit 1; }

# zbd_format DEVICE [OPTION...]: say codec=lz4
zbd_format() { echo "$*" >"$ZBD_CONTROL/format"; }

# zbd_attach DEVICE: prints the name of the new disk.
zbd_attach() {
    local before after
    before=$(cd /sys/block && echo zbd*)
    echo "$1" >"$ZBD_CONTROL/attach" || return 1
    for after in /sys/block/zbd*; do
        case " $before " in *" ${after##*/} "*) ;; *) echo "${after##*/}"; return 0 ;; esac
    done
    return 1
}

# zbd_detach NAME
zbd_detach() { echo "$1" >"$ZBD_CONTROL/detach"; }

# zbd_stat NAME ATTRIBUTE
zbd_stat() { cat "/sys/block/$1/zbd/$2"; }
