# SPDX-License-Identifier: GPL-2.0
# What can be checked without running anything: format, lints, documentation, house rules.
# shellcheck shell=bash
# shellcheck disable=SC2154  # attempt counts

cmd_check() {
    local start=$SECONDS
    mkdir -p "$ZBD_LAB/log"
    setup_root
    attempt shell-scripts test_shell
    attempt rustfmt test_rustfmt
    attempt clippy test_clippy
    attempt rustdoc test_rustdoc
    attempt tidy host_cargo test -p zbd-tidy
    attempt "kernel clippy" test_build stock --clippy
    say "all of it took $((SECONDS - start)) s"
    # shellcheck disable=SC2154  # counted in test.sh
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
