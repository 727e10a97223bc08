#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# zbd.ko ran its KUnit tests when it was loaded; loading succeeds even if they fail, so read the report in the log.
set -euo pipefail

# Suites of the kernel's own may have run at boot.
log=$(dmesg --notime | sed '1,/zbd-guest: begin/d')
if ! grep -q 'KTAP version' <<<"$log"; then
    if dmesg | grep -q 'kunit: disabled'; then echo "SKIP: KUnit is disabled in this kernel"; exit 77; fi
    echo "SKIP: the module brought no KUnit tests"
    exit 77
fi
# Each case is one line, indented once below its suite.
grep -E '^    (not )?ok [0-9]+ ' <<<"$log" | sed 's/^ */kunit: /' || true
! grep -qE '^ *not ok ' <<<"$log"
