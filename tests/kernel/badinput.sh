#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd-guest: uml
# zbd-disk: data 1G
# zbd-disk: other 1G
# zbd-timeout: 200
# What is refused is refused with its own error and one line in the log, and changes nothing on the device.
set -euo pipefail
# shellcheck source=tools/guest/lib.sh
. /zbd/tools/guest/lib.sh

device=${DISK_data:?} other=${DISK_other:?}
tests=0

# refused ERROR LOGGED FILE TEXT: writing TEXT to a control file fails with ERROR, as the shell words it.
refused() {
    local error=$1 logged=$2 file=$3 text=$4 before after output
    before=$(dmesg | wc -l)
    if output=$( { printf '%s' "$text" >"$file"; } 2>&1 ); then fail "accepted: $file <- $text"; fi
    case $output in *"$error"*) ;; *) fail "$file <- $text: $output, not $error" ;; esac
    after=$(dmesg | tail -n "+$((before + 1))")
    case $after in *"zbd: "*"$logged"*) ;; *) fail "$file <- $text: the log says '$after', not '$logged'" ;; esac
    [ "$(printf '%s\n' "$after" | grep -c 'zbd: ')" = 1 ] || fail "more than one line: $after"
    tests=$((tests + 1))
}
# The shell writes a line at a time and reports the first error.
control() { refused "$1" "$2" "$ZBD_CONTROL/$3" "$4"; }
sum() { sha256sum <"$1"; }

# Not formatted, and what cannot hold a volume.
dd if=/dev/urandom of="$device" bs=1M count=4 conv=fsync status=none
before=$(sum "$device")
control 'No data available' 'no zbd volume found' attach "$device"
control 'Block device required' 'not a block device' attach /dev/null
control 'Block device required' 'not a block device' format /etc/passwd
control 'No such file' 'no such file' attach /dev/nothing
control 'Invalid argument' 'cannot be understood' attach "$device more"
control 'Invalid argument' 'nothing was written' attach ' '
control 'Argument list too long' 'too long' format "$device label=$(printf 'x%.0s' {1..1100})"
control 'Invalid argument' 'cannot be understood' format "$device nonsense"
control 'Invalid argument' 'cannot be understood' format "$device codec=lzma"
control 'Invalid argument' 'cannot be understood' format "$device codec="
control 'Invalid argument' 'cannot be understood' format "$device codec=lz4 codec=lz4"
control 'Invalid argument' 'cannot be understood' format "$device force=yes"
control 'Invalid argument' 'cannot be understood' format "$device size=12x"
control 'Invalid argument' 'cannot be understood' format "$device size=-4K"
control 'Invalid argument' 'cannot be understood' format "$device uuid=12"
control 'Invalid argument' 'not text' format "$(printf 'a\377\376')"
control 'out of range' 'out of range' format "$device codec=zstd:99"
control 'out of range' 'out of range' format "$device codec=lz4:0"
control 'out of range' 'out of range' format "$device size=0"
control 'out of range' 'out of range' format "$device size=5000"
control 'out of range' 'out of range' format "$device size=99999P"
control 'out of range' 'out of range' format "$device size=2000P"
control 'out of range' 'out of range' format "$device copies=3"
control 'out of range' 'out of range' format "$device zone=3M"
control 'out of range' 'out of range' format "$device label=$(printf 'x%.0s' {1..33})"
control 'No such device' 'no such volume' detach zbd7
control 'Invalid argument' 'cannot be understood' detach "$device"
control 'Invalid argument' 'cannot be understood' detach 'zbd99999999999'
[ "$(sum "$device")" = "$before" ] || fail "the device was changed"

# Read-only, too small, in use.
truncate -s 16M /dev/shm/small
loop=$(losetup -f --show /dev/shm/small)
control 'No space left' 'too small' format "$loop"
losetup -d "$loop"
truncate -s 200M /dev/shm/image
loop=$(losetup -r -f --show /dev/shm/image)
control 'Read-only' 'read-only' format "$loop"
losetup -d "$loop"
mkfs.ext4 -q -F "$device"
mkdir -p /mnt/t
mount "$device" /mnt/t
control 'resource busy' 'in use' format "$device"
umount /mnt/t

# An existing volume, twice the same, and a copy of it.
zbd_format "$device" label=first
before=$(sum "$device")
control 'File exists' 'already holds' format "$device"
[ "$(sum "$device")" = "$before" ] || fail "format without force changed the volume"
dd if="$device" of="$other" bs=1M conv=fsync status=none
zbd=$(zbd_attach "$device")
control 'resource busy' 'in use' attach "$device"
control 'resource busy' 'in use' format "$device force"
before=$(sum "$other")
control 'not unique' 'UUID' attach "$other"
[ "$(sum "$other")" = "$before" ] || fail "attaching a copy changed it"
exec 9<"/dev/$zbd"
control 'resource busy' 'in use' detach "$zbd"
exec 9<&-
if { echo 'nonsense' >"/sys/block/$zbd/zbd/codec"; } 2>/dev/null; then fail "codec took nonsense"; fi
if { echo 'zstd:200' >"/sys/block/$zbd/zbd/codec"; } 2>/dev/null; then fail "codec took level 200"; fi
[ "$(zbd_stat "$zbd" codec)" = lz4 ] || fail "codec changed"
[ "$(zbd_stat "$zbd" label)" = first ] || fail "label"
zbd_detach "$zbd"

# The module stays while there is a disk.
zbd=$(zbd_attach "$device")
if rmmod zbd 2>/dev/null; then fail "the module went while a disk was there"; fi
zbd_detach "$zbd"
rmmod zbd
insmod "$ZBD_KO"
[ -e "$ZBD_CONTROL/attach" ] || fail "no control files after loading again"
echo "badinput: ok, $tests refused"
