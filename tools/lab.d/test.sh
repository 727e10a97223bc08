# SPDX-License-Identifier: GPL-2.0
# All tests, in stages; every stage runs even if an earlier one failed.
# shellcheck shell=bash
# shellcheck disable=SC2034  # boot_* are read by boot_guest

passed=0 failed=0 skipped=0
summary=()

# attempt NAME FUNCTION [ARG...]: one test. 77 means skipped, and a line `SKIP: reason` in the output says why.
attempt() {
    local name=$1 log start=$SECONDS rc=0 line
    shift
    log=$ZBD_LAB/log/test-${name//[^A-Za-z0-9.-]/_}.log
    call "$@" >"$log" 2>&1 </dev/null || rc=$?
    case $rc in
    0)
        passed=$((passed + 1))
        line="PASS $name ($((SECONDS - start)) s)"
        ;;
    77)
        skipped=$((skipped + 1))
        line="SKIP $name: $(sed -n 's/^.*SKIP: //p' "$log" | tail -n 1)"
        ;;
    *)
        failed=$((failed + 1))
        line="FAIL $name ($((SECONDS - start)) s, status $rc, log: $log)"
        tail -n 60 "$log"
        ;;
    esac
    echo "$line"
    summary+=("$line")
}

# stage NAME FUNCTION
stage() {
    local start=$SECONDS
    say "stage $1"
    "stage_$1"
    say "stage $1: $((SECONDS - start)) s"
}

# --- host ---------------------------------------------------------------------------------------------------------
stage_host() {
    attempt shell-scripts test_shell
    attempt rustfmt test_rustfmt
    attempt clippy test_clippy
    attempt rustdoc test_rustdoc
    attempt host-tests test_host
    count_cases "$ZBD_LAB/log/test-host-tests.log"
}

skip() { echo "SKIP: $*"; exit 77; }

test_shell() {
    # shellcheck disable=SC2016  # expanded inside
    enter bash -euc 'cd /zbd && grep -lE "^#!/bin/(ba)?sh" -r tools tests .ci --exclude-dir=target |
        xargs shellcheck -x && shellcheck tools/lab.d/*.sh'
}
test_rustfmt() {
    # shellcheck disable=SC2016
    enter bash -euc 'cd /zbd
        find rust -name "*.rs" | xargs -r rustfmt --check --edition 2021
        [ ! -e tools/Cargo.toml ] || { cd tools && cargo fmt --all --check; }'
}
test_clippy() { host_cargo clippy --workspace --all-targets -- -D warnings; }
test_rustdoc() { host_cargo rustdoc_all; }
test_host() { host_cargo test --workspace; }

# host_cargo ARG...: the lock file is kept in the checkout, which is read-only in there.
host_cargo() {
    local env=()
    [ -e "$ZBD_TOP/tools/Cargo.toml" ] || skip "there is no tools/Cargo.toml"
    if [ "$1" = rustdoc_all ]; then
        env=(RUSTDOCFLAGS="-D warnings")
        set -- doc --workspace --no-deps --document-private-items
    fi
    [ ! -e "$ZBD_TOP/tools/Cargo.lock" ] || set -- "$1" --locked "${@:2}"
    enter env "${env[@]}" bash -c 'cd /zbd/tools && exec cargo "$@"' - "$@"
}

# count_cases LOG: the host test run counts case by case, not as one.
count_cases() {
    local good bad ignored
    read -r good bad ignored < <(awk '/^test result:/ { p += $4; f += $6; i += $8 } END { print p + 0, f + 0, i + 0 }' "$1")
    say "host test cases: $good passed, $bad failed, $ignored ignored"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + ignored))
}

# --- modules ------------------------------------------------------------------------------------------------------
stage_build() {
    local kernel
    for kernel in stock uml uml-debug; do attempt "build $kernel" test_build "$kernel"; done
    attempt "kernel clippy" test_build stock --clippy
    attempt "in tree, module" test_intree m
    attempt "in tree, built in" test_intree y
}

test_build() {
    local log=$ZBD_LAB/log/module-$1${2:-}.log
    cmd_build "$@" 2>&1 | tee "$log"
    ! grep -E '^warning' "$log" || { echo "a warning counts as a failure"; return 1; }
}

# --- guests -------------------------------------------------------------------------------------------------------
stage_kunit() {
    local kernel
    for kernel in uml uml-debug; do
        attempt "kunit $kernel" test_kunit "$kernel"
        ! grep -q '^kunit: ' "$ZBD_LAB/log/test-kunit_$kernel.log" ||
            say "kunit cases: $(grep -c '^kunit: ok' "$ZBD_LAB/log/test-kunit_$kernel.log") passed"
    done
}

test_kunit() {
    need_guest "$1"
    cmd_build "$1"
    boot_timeout=900 boot_leaks=yes
    boot_guest "$1" "$IN_TOP/tools/guest/kunit.sh"
}

stage_kernel() {
    local script
    for script in "$ZBD_TOP"/tests/kernel/*.sh; do
        [ "${script##*/}" != lib.sh ] || continue
        [ -e "$script" ] || { attempt kernel-tests skip "there is no tests/kernel/*.sh"; continue; }
        kernel_script "$script"
    done
}

# --- another kernel and toolchain ---------------------------------------------------------------------------------
# The module builds for several series from one source, and with a newer rustc: Debian's next release has both.
NEXT_SUITE=sid
stage_next() {
    ZBD_UNAVAILABLE='' ZBD_SUITE=$NEXT_SUITE attempt "build for $NEXT_SUITE" test_next_build
    ZBD_UNAVAILABLE='' ZBD_SUITE=$NEXT_SUITE attempt "smoke.sh qemu of $NEXT_SUITE" test_next_smoke
}

# need_next: skip what the mirror does not have; what it has must work.
need_next() {
    call setup_root || skip "no build root of $ZBD_SUITE can be made from this mirror"
    call find_stock || skip "$ZBD_SUITE has none of the supported kernels, ${SUPPORTED_SERIES[*]}"
}

test_next_build() {
    need_next
    setup_stock
    say_kernel
    test_build stock
}

test_next_smoke() {
    need_next
    test_kernel "$ZBD_TOP/tests/kernel/smoke.sh" qemu
}

# header SCRIPT KEY: the values of `# zbd-KEY: VALUE` lines, one a line.
header() { sed -n "s/^# zbd-$2: *//p" "$1"; }

# kernel_script SCRIPT: once for each guest it names.
kernel_script() {
    local script=$1 guest guests
    guests=$(header "$script" guest)
    [ -n "$guests" ] || { attempt "${script##*/}" false_because "no line '# zbd-guest: uml|uml-debug|qemu' in $script"; return; }
    for guest in $guests; do attempt "${script##*/} $guest" test_kernel "$script" "$guest"; done
}
false_because() { echo "$*"; return 1; }

# test_kernel SCRIPT GUEST: the script's header says what it needs:
#   # zbd-guest: uml uml-debug qemu  where it runs
#   # zbd-disk: NAME SIZE            a disk, $DISK_NAME in the script; empty at the first boot
#   # zbd-timeout: SECONDS           for each boot (default 300)
#   # zbd-boot: [kill-after=S] ARG.. one boot, with these arguments; several lines are several boots with the same
#                                    disks. kill-after pulls the plug S seconds into the script.
#   # zbd-expect-log: REGEX          lines that may stand in the kernel log though they look bad
#   # zbd-leaks: yes                the debug kernel also looks for leaks, which makes it several times slower
#   # zbd-module: no                 the script loads zbd.ko ($ZBD_KO) itself
# It ends with 0, 77 (after a line `SKIP: reason`), or anything else for failed.
test_kernel() {
    local script=$1 guest=$2 name size line word args boots=()
    need_guest "$guest"
    [ "$(header "$script" module)" = no ] || cmd_build "${guest/qemu/stock}"
    while read -r name size; do boot_disks+=("$name:$size"); done < <(header "$script" disk)
    boot_prefix=test-$guest-
    boot_timeout=$(header "$script" timeout)
    # Only to end what hangs: a busy machine takes several times as long as an idle one.
    boot_timeout=$((3 * ${boot_timeout:-300}))
    boot_expect=$(header "$script" expect-log | paste -sd'|')
    [ "$(header "$script" leaks)" != yes ] || boot_leaks=yes
    [ "$(header "$script" module)" != no ] || boot_module=no
    mapfile -t boots < <(header "$script" boot)
    [ ${#boots[@]} -gt 0 ] || boots=('')
    boot_fresh=yes
    for line in "${boots[@]}"; do
        args=() boot_kill=''
        for word in $line; do
            case $word in kill-after=*) boot_kill=${word#*=} ;; *) args+=("$word") ;; esac
        done
        boot_guest "$guest" "$(inside "$script")" "${args[@]}"
        rm -rf "${boot_run:?}"
        boot_fresh=no
    done
    for line in "${boot_disks[@]}"; do rm -f "$(disk_path "$line")"; done
}

# forget_checkouts: what was built from clones that are gone.
forget_checkouts() {
    local file
    for file in "$ZBD_LAB"/out/*/checkout; do
        [ ! -e "$file" ] || [ -d "$(cat "$file")" ] || rm -rf --one-file-system "${file%/*}"
    done
}

# get_ready: what cannot be had is counted once and remembered, so that no test tries to build it again.
get_ready() {
    local one
    ZBD_UNAVAILABLE=
    for one in root stock uml uml-debug qemu; do
        if ! call cmd_setup "$one" </dev/null; then
            failed=$((failed + 1))
            summary+=("FAIL setup $one (log in $ZBD_LAB/log)")
            ZBD_UNAVAILABLE+=" $one"
        fi
    done
    export ZBD_UNAVAILABLE
}

# With two processors UML sometimes loses an idle one for seconds, which the kernel reports as a stall; QEMU has two.
export ZBD_UML_CPUS=${ZBD_UML_CPUS:-1}

cmd_test() {
    local start=$SECONDS stages=("$@") one
    [ $# -gt 0 ] || stages=(host build kunit kernel next)
    mkdir -p "$ZBD_LAB/log" "$ZBD_LAB/run"
    # Failed runs are kept for a look, but not for ever.
    forget_checkouts
    find "$ZBD_LAB/run" -mindepth 1 -maxdepth 1 -mmin +720 -exec rm -rf {} +
    # Told apart from the tests: how long getting ready took.
    get_ready
    case $ZBD_UNAVAILABLE in *root* | *stock*) ;; *) say_kernel ;; esac
    say "ready after $((SECONDS - start)) s"
    for one in "${stages[@]}"; do
        case $one in
        */*) kernel_script "$(realpath "$one")" ;;
        *) stage "$one" ;;
        esac
    done
    printf '\n'
    printf '%s\n' "${summary[@]}" | grep -v '^PASS' || true
    say "all of it took $((SECONDS - start)) s"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
