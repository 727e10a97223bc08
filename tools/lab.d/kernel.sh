# SPDX-License-Identifier: GPL-2.0
# The stock Debian kernel: chosen, installed into the build root, and prepared for Rust modules.
# shellcheck shell=bash

# Newest first. A series is added here (and in tools/prepare-kernel) once the module is known to build for it.
SUPPORTED_SERIES=(7.3 7.2)

# find_release: print `RELEASE SERIES` of the newest supported kernel whose image, headers and source packages exist
# in one and the same version. Runs inside the root.
find_release() {
    local series image release version
    for series in "${SUPPORTED_SERIES[@]}"; do
        while read -r image; do
            release=${image#linux-image-}
            [ -z "${ZBD_KERNEL:-}" ] || [ "$release" = "$ZBD_KERNEL-amd64" ] || [ "$release" = "$ZBD_KERNEL" ] || continue
            version=$(package_version "$image")
            [ "$(package_version "linux-headers-$release")" = "$version" ] || continue
            [ "$(package_version "linux-source-$series")" = "$version" ] || continue
            echo "$release $series"
            return 0
        done < <(apt-cache search --names-only "^linux-image-$series\\.[0-9]+\\+[a-z0-9]+-amd64\$" |
            cut -d' ' -f1 | sort -rV)
    done
    echo "no supported kernel${ZBD_KERNEL:+ named $ZBD_KERNEL} in the package lists." >&2
    echo "Supported: series ${SUPPORTED_SERIES[*]} as Debian packages them, image, headers and source in one version." >&2
    echo "Those there: $(apt-cache search --names-only '^linux-image-[0-9.]+\+[a-z0-9]+-amd64$' | cut -d' ' -f1 | paste -sd' ')" >&2
    echo "Name another with ZBD_KERNEL=7.3.4+deb13, or another mirror with ZBD_MIRROR." >&2
    return 1
}

package_version() { apt-cache show "$1" 2>/dev/null | sed -n 's/^Version: //p' | sort -rV | head -n 1; }

# find_stock: the same from outside.
find_stock() {
    # The function travels into the root as text: there is nothing else of the lab in there but the checkout.
    enter env ZBD_KERNEL="${ZBD_KERNEL:-}" bash -c "
        $(declare -f find_release package_version)
        SUPPORTED_SERIES=(${SUPPORTED_SERIES[*]})
        find_release"
}

install_stock() {
    local release series packages=()
    read -r release series < <(find_stock) || return 1
    [ "$ZBD_SUITE" != trixie ] || packages=(-t trixie-backports)
    packages+=("linux-image-$release" "linux-headers-$release" "linux-source-$series")
    # The guests bring their own initramfs; making the distribution's takes longer than installing the kernel.
    enter env DEBIAN_FRONTEND=noninteractive INITRD=No apt-get install -y --no-install-recommends \
        "${packages[@]}" || return 1
    printf '%s\n' "$series" >"$ZBD_LAB/stock.series"
    printf '%s\n' "$release" >"$ZBD_LAB/stock.release"
}

# The source tree is shared by all kernels built here; each has its own output directory.
unpack_source() {
    rm -rf "$ZBD_LAB/src" "$ZBD_LAB/stock" "$ZBD_LAB/uml" "$ZBD_LAB/uml-debug"
    mkdir -p "$ZBD_LAB/src"
    enter tar -xf "/usr/src/linux-source-$(cat "$ZBD_LAB/stock.series").tar.xz" -C "$IN_LAB/src" --strip-components=1
    patch_source
    touch "$ZBD_LAB/src/.zbd-unpacked"
}

# UML is compiled with the large code model, for which clang puts data into .ldata and .lbss. UML's linker script does
# not know these sections, so they end up beyond _edata and _end: lockdep then takes every static lock for a dynamic
# one and turns itself off at boot, and kmemleak never scans them and reports hundreds of leaks that are none.
patch_source() {
    local script=$ZBD_LAB/src/arch/um/kernel/dyn.lds.S
    sed -i -e '/\*(\.data\.\* /s/$/\n    *(.ldata .ldata.*)/' -e '/\*(\.bss \.bss\.\* /s/$/\n   *(.lbss .lbss.*)/' "$script"
    [ "$(grep -c '\*(\.lbss\|\*(\.ldata' "$script")" = 2 ] || die "the UML linker script has changed: see patch_source"
}

prepare_stock() {
    enter "$IN_TOP/tools/prepare-kernel" --release "$(cat "$ZBD_LAB/stock.release")" \
        --source "$IN_LAB/src" --out "$IN_LAB/stock" --jobs "$ZBD_JOBS"
}

setup_source() {
    setup_root
    step kernel-packages "$(hash_of "$(stamp root)" "${ZBD_KERNEL:-}" "${SUPPORTED_SERIES[*]}")" install_stock
    step kernel-source "$(hash_of "$(stamp kernel-packages)" "$(declare -f patch_source)")" unpack_source
}

setup_stock() {
    setup_source
    step stock "$(hash_of "$(stamp kernel-source)" "$ZBD_TOP/tools/prepare-kernel")" prepare_stock
}

say_kernel() {
    say "stock kernel $(cat "$ZBD_LAB/stock.release"), built with" \
        "$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(rustc [0-9.]*\).*/\1/p' "$ZBD_LAB/stock/.config")"
}
