# SPDX-License-Identifier: GPL-2.0
# zbd as a part of the kernel tree: drivers/block/zbd, built in and as a module.
# shellcheck shell=bash
# shellcheck disable=SC2034  # boot_* are read by boot_guest

# build_intree y|m: on top of a copy of the UML kernel's objects, so that little has to be compiled. In a mount
# namespace of its own the checkout is the directory, and the copy stands where the original stands: to make, nothing
# else has changed, and the shared source and objects stay as they are.
build_intree() {
    mkdir -p "$ZBD_OUT/intree" "$ZBD_LAB/src/drivers/block/zbd"
    # shellcheck disable=SC2016  # expanded inside
    enter bash -euc '
        value=$1 jobs=$2 out=$3
        if [ "$(cat "$out/.of" 2>/dev/null)" != "$4" ]; then
            rm -rf "$out"
            cp -a /lab/uml "$out"
            echo "$4" >"$out/.of"
        fi
        mount --bind "$out" /lab/uml
        cd /lab/src
        mount --bind /zbd drivers/block/zbd
        mkdir /tmp/block
        sed "/^source .drivers\/block\/null_blk\/Kconfig/a source \"drivers/block/zbd/Kconfig\"" drivers/block/Kconfig \
            >/tmp/block/Kconfig
        sed "\$a obj-\$(CONFIG_ZBD) += zbd/" drivers/block/Makefile >/tmp/block/Makefile
        grep -q zbd/Kconfig /tmp/block/Kconfig
        for file in Kconfig Makefile; do mount --bind "/tmp/block/$file" "drivers/block/$file"; done
        scripts/config --file "/lab/uml/.config" --set-val ZBD "$value" --disable ZBD_KUNIT_TEST
        [ "$value" = m ] || scripts/config --file "/lab/uml/.config" --enable ZBD_KUNIT_TEST
        make -s ARCH=um LLVM=1 O=/lab/uml olddefconfig
        grep -qx "CONFIG_ZBD=$value" /lab/uml/.config
        make -s ARCH=um LLVM=1 O=/lab/uml "-j$jobs" all
    ' - "$1" "$ZBD_JOBS" "$IN_OUT/intree" "$(stamp uml)"
}

# test_intree y|m: that it builds without a warning, and that what was built works.
test_intree() {
    local log=$ZBD_LAB/log/module-intree-$1.log object=drivers/block/zbd/zbd
    need_guest uml
    build_intree "$1" 2>&1 | tee "$log"
    # The linker's are the kernel's own.
    ! grep -E '^warning|zbd.*warning:' "$log" || { echo "a warning counts as a failure"; return 1; }
    if [ "$1" = m ]; then
        mkdir -p "$ZBD_OUT/mod/intree"
        cp "$ZBD_OUT/intree/$object.ko" "$ZBD_OUT/mod/intree/zbd.ko"
        boot_object=$IN_OUT/mod/intree/zbd.ko
    else
        [ ! -e "$ZBD_OUT/intree/$object.ko" ] || rm "$ZBD_OUT/intree/$object.ko"
        boot_linux=$IN_OUT/intree/linux boot_module=no
    fi
    boot_disks=(data:1G) boot_prefix=test-intree- boot_fresh=yes
    boot_guest uml "$IN_TOP/tests/kernel/smoke.sh"
    rm -f "$(disk_path data)"
}
