#!/bin/bash
# zbd.ko ran its KUnit tests when it was loaded; loading succeeds even if they fail, so read the report in the log.
set -euo pipefail

log=$(dmesg --notime)
if ! grep -q 'KTAP version' <<<"$log"; then
    if grep -q 'kunit: disabled' <<<"$log"; then echo "SKIP: KUnit is disabled in this kernel"; exit 77; fi
    echo "SKIP: the module brought no KUnit tests"
    exit 77
fi
# Each case is one line, indented once below its suite.
grep -E '^    (not )?ok [0-9]+ ' <<<"$log" | sed 's/^ */kunit: /' || true
! grep -qE '^ *not ok ' <<<"$log"
