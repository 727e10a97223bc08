# SPDX-License-Identifier: GPL-2.0
# The demonstration: a stock Debian kernel keeps a real source tree on zbd.
# shellcheck shell=bash
# shellcheck disable=SC2034  # boot_* are read by boot_guest

# Over 200 MB in files of all sizes; more would only make the emulated guest slower.
DEMO_TREE=(fs kernel lib mm net block crypto drivers/md drivers/block drivers/scsi drivers/net/ethernet)

# The guest reads the tree from a disk that is a tar archive: as fast as the emulation allows.
make_tree() {
    mkdir -p "$ZBD_LAB/demo"
    # shellcheck disable=SC2016  # expanded inside
    enter bash -euc '
        cd /lab/src
        find "$@" -type f -print0 | sort -z >/tmp/list
        tar -c -b 2048 --null -T /tmp/list -f /lab/demo/tree.img
        xargs -0 sha256sum -- </tmp/list >/lab/demo/tree.sums
    ' - "${DEMO_TREE[@]}"
}

# ratio_of CODEC FILE: the ratio that the guest printed for a codec.
ratio_of() { sed -n "s/^.*demo: $1 ratio=\([0-9.]*\) .*/\1/p" "$2"; }

# enough RATIO LEAST CODEC: source text compresses so well that less means something is broken.
enough() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }' || die "demo: FAIL, ratio $1 with $3, expected at least $2"
}

cmd_demo() {
    local start=$SECONDS lz4 zstd files
    setup_qemu
    say_kernel
    step demo-tree "$(hash_of "$(stamp kernel-source)" "${DEMO_TREE[*]}")" make_tree
    cmd_build stock
    boot_disks=(tree:0 lz4:2G zstd:2G)
    boot_timeout=900
    # Only the archive is kept: the other two start empty.
    rm -f "$ZBD_OUT/disks/lz4.img" "$ZBD_OUT/disks/zstd.img"
    ln -sf "$IN_LAB/demo/tree.img" "$ZBD_OUT/disks/tree.img"
    boot_guest qemu "$IN_TOP/tools/guest/demo-all.sh" || die "demo: FAIL, status $?"
    lz4=$(ratio_of lz4 "${boot_run:?}/console")
    zstd=$(ratio_of zstd:1 "$boot_run/console")
    files=$(wc -l <"$ZBD_LAB/demo/tree.sums")
    if [ -z "$lz4" ] || [ -z "$zstd" ]; then die "demo: FAIL, the guest printed no ratio"; fi
    enough "$lz4" 1.8 lz4
    enough "$zstd" 2.5 zstd:1
    say "the demo took $((SECONDS - start)) s; ratio with lz4 $lz4, with zstd:1 $zstd"
    echo "demo: PASS ratio=$lz4 verified=$files"
}
