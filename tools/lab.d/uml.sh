# SPDX-License-Identifier: GPL-2.0
# The User Mode Linux kernels: kernel code at native speed, no virtualisation needed.
# shellcheck shell=bash

# build_uml NAME FRAGMENT...: later fragments win.
build_uml() {
    local name=$1 fragments=() one
    shift
    for one; do fragments+=("$IN_TOP/tools/lab.d/$one"); done
    rm -rf "${ZBD_LAB:?}/$name"
    mkdir -p "$ZBD_LAB/$name"
    # shellcheck disable=SC2016  # expanded inside
    enter bash -euc '
        out=$1 jobs=$2
        shift 2
        # Kconfig takes the last value but warns for each override: merge first.
        cat "$@" | tac | grep "^CONFIG_" | awk -F= "!seen[\$1]++" >"$out/fragment"
        cd '"$IN_LAB"'/src
        make ARCH=um LLVM=1 "O=$out" "KCONFIG_ALLCONFIG=$out/fragment" allnoconfig
        # An option that Kconfig dropped would make tests skip or pass for the wrong reason.
        while IFS= read -r line; do
            case $line in
            *=n) ! grep -q "^${line%=n}=" "$out/.config" ;;
            *) grep -qxF "$line" "$out/.config" ;;
            esac || { echo "lab: the kernel configuration lost: $line"; exit 1; }
        done <"$out/fragment"
        make ARCH=um LLVM=1 "O=$out" "-j$jobs" all
        make -s ARCH=um LLVM=1 "O=$out" INSTALL_MOD_PATH="$out/mods" modules_install
    ' - "$IN_LAB/$name" "$ZBD_JOBS" "${fragments[@]}"
}

setup_uml() {
    local name=$1 fragments=(uml.config)
    [ "$name" = uml ] || fragments+=(uml-debug.config)
    setup_source
    # The probe is done with the plain kernel, its answer holds for both.
    [ "$name" = uml ] || setup_uml uml
    step "$name" "$(hash_of "$(stamp kernel-source)" "${fragments[@]/#/$LAB_D/}")" build_uml "$name" "${fragments[@]}"
    [ "$name" != uml ] || step uml-smp "$(hash_of "$(stamp uml)" "$(uname -r)" "$(nproc)")" probe_smp
}

cmd_setup() {
    local what
    [ $# -gt 0 ] || set -- root stock uml uml-debug qemu
    for what; do
        case $what in
        root) setup_root ;;
        *) need_kernel "$what" ;;
        esac
    done
}

cmd_where() {
    cat <<END
cache        $ZBD_LAB
build root   $ZBD_LAB/root  (in it: the checkout at $IN_TOP, the cache at $IN_LAB, below at $IN_OUT:)
of this one   $ZBD_OUT
source       $ZBD_LAB/src
stock kernel $ZBD_LAB/stock  ($(cat "$ZBD_LAB/stock.release" 2>/dev/null || echo 'not yet'))
UML kernels  $ZBD_LAB/uml $ZBD_LAB/uml-debug
modules      $ZBD_OUT/mod/KERNEL/zbd.ko
logs         $ZBD_LAB/log
build a module by hand: tools/lab enter make -C $IN_LAB/src ARGS M=DIR MO=DIR modules, where ARGS is one of
$(for k in stock uml uml-debug; do kbuild_args $k 2>/dev/null | sed "s/^/  /"; done)
END
}
