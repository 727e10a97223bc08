# SPDX-License-Identifier: GPL-2.0
# Shared by every part of the lab: paths, messages, steps, and the way into the build root.
# shellcheck shell=bash

# The checkout, and the cache outside it that everything built or downloaded goes to.
ZBD_TOP=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
ZBD_LAB=${ZBD_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/zbd-lab}
# Another Debian release is a whole lab of its own, in there: nothing that is built is shared.
ZBD_SUITE=${ZBD_SUITE:-trixie}
case $ZBD_SUITE:$ZBD_LAB in
trixie:* | *:*/"$ZBD_SUITE") ;;
*) ZBD_LAB=$ZBD_LAB/$ZBD_SUITE ;;
esac
LAB_D=$ZBD_TOP/tools/lab.d

# What is built from a checkout stays apart from what is built from another: make and cargo compare times, and would
# take a newer object of an older source for fresh.
ZBD_OUT=$ZBD_LAB/out/$(printf '%s' "$ZBD_TOP" | sha256sum | cut -c1-8)

# Inside the build root all have fixed names, so that paths recorded by Kbuild never change.
# shellcheck disable=SC2034  # used by the parts
IN_TOP=/zbd
# shellcheck disable=SC2034
IN_LAB=/lab
# shellcheck disable=SC2034
IN_OUT=/out

say() { printf 'lab: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# have NAME: is there such a command on the host?
have() { command -v "$1" >/dev/null 2>&1; }

# hash_of WORD-OR-FILE...: one line that changes when any of the inputs does.
hash_of() {
    local arg
    for arg; do
        if [ -f "$arg" ]; then cat "$arg"; else printf '%s\n' "$arg"; fi
    done | sha256sum | cut -c1-16
}

# call FUNCTION [ARG...]: in a process of its own, where a failing command always ends it. (Bash switches `set -e` off
# in whatever a condition calls, however deep.)
call() { "$ZBD_TOP/tools/lab" _call "$@"; }

# step NAME HASH FUNCTION [ARG...]: run FUNCTION unless it has completed before with the same inputs.
# The stamp is written last, so an interrupted step runs again.
step() {
    local name=$1 hash=$2 stamp=$ZBD_LAB/stamps/$1 start=$SECONDS
    shift 2
    [ "$(cat "$stamp" 2>/dev/null)" != "$hash" ] || return 0
    mkdir -p "$ZBD_LAB/stamps" "$ZBD_LAB/log"
    (
        # Two runs of the lab at once must not build the same thing at once.
        flock -n 9 || { say "$name: another run of the lab is at it, waiting"; flock 9; }
        [ "$(cat "$stamp" 2>/dev/null)" != "$hash" ] || exit 0
        say "$name: started (log: $ZBD_LAB/log/$name.log)"
        rm -f "$stamp"
        if ! call "$@" 9>&- >"$ZBD_LAB/log/$name.log" 2>&1 </dev/null; then
            tail -n 25 "$ZBD_LAB/log/$name.log" >&2
            say "$name: FAILED after $((SECONDS - start)) s"
            exit 1
        fi
        printf '%s\n' "$hash" >"$stamp"
        say "$name: done in $((SECONDS - start)) s"
    ) 9>"$ZBD_LAB/stamps/$name.lock" || exit 1
}

# stamp NAME: the hash under which a step last completed; later steps depend on it.
stamp() { cat "$ZBD_LAB/stamps/$1" 2>/dev/null || true; }

# exec_lab_root COMMAND...: become it, in a mount and process namespace of its own, as (at least a kind of) root.
# No mount ever shows on the host. When the lab dies so does unshare, and --kill-child ends whatever still runs inside.
exec_lab_root() {
    local options=(--mount --pid --fork --kill-child)
    [ "$(id -u)" = 0 ] || options+=(--user --map-root-user --map-auto)
    exec setpriv --pdeathsig KILL unshare "${options[@]}" "$@"
}
as_lab_root() { (exec_lab_root "$@"); }

# enter COMMAND...: run it inside the build root, with the checkout (read-only) and the cache mounted.
exec_enter() {
    mkdir -p "$ZBD_OUT/disks"
    printf '%s\n' "$ZBD_TOP" >"$ZBD_OUT/checkout"
    exec_lab_root bash "$LAB_D/enter.sh" "$ZBD_LAB/root" "$ZBD_LAB" "$ZBD_OUT" "$ZBD_TOP" "$@"
}
enter() { (exec_enter "$@"); }
