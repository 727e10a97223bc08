# SPDX-License-Identifier: GPL-2.0
# The benchmark: zbd beside a bare memory-backed null_blk and dm-vdo, all in one boot of User Mode Linux.
# shellcheck shell=bash
# shellcheck disable=SC2034  # boot_* are read by boot_guest

# bench_options OPTION...: fills bench_*.
bench_options() {
    bench_rounds=3 bench_seconds=2 bench_targets='bare zbd-lz4 zbd-zstd1 vdo' bench_data='half random'
    bench_jobs='seqwrite seqread randwrite randread randwrite1 randread1' bench_processors=1
    while [ $# -gt 0 ]; do
        case $1 in
        --rounds) bench_rounds=$2 ;;
        --seconds) bench_seconds=$2 ;;
        --targets) bench_targets=$2 ;;
        --jobs) bench_jobs=$2 ;;
        --data) bench_data=$2 ;;
        --processors) bench_processors=$2 ;;
        *) die "bench knows --rounds N, --seconds S (of each job in each round), --processors 1|2, and lists: \
--targets '$bench_targets' --jobs '$bench_jobs' --data '$bench_data'" ;;
        esac
        shift 2
    done
}

# bench_ready: all that is not measured.
bench_ready() {
    need_guest uml
    case $bench_targets in
    *zbd*) cmd_build uml ;;
    *) boot_module=no ;;
    esac
    mkdir -p "$ZBD_OUT/bench"
    # With two, an idle one can take until the next tick to notice that it has work: what passes requests from thread to
    # thread, as dm-vdo does, then shows little but that.
    [ "$bench_processors" != 1 ] || ZBD_UML_CPUS=1
    # A device keeps what a few seconds of writing bring; nothing is taken before it is used.
    ZBD_UML_MEM=${ZBD_UML_MEM:-8G}
    boot_timeout=$((120 + bench_rounds * $(wc -w <<<"$bench_targets") * 2 * (bench_seconds * 6 + 40)))
}

# busy_ms: milliseconds that all processors of the machine have worked so far.
busy_ms() { awk -v hz="$(getconf CLK_TCK)" '$1 == "cpu" { printf "%.0f", ($2 + $3 + $4 + $7 + $8) * 1000 / hz }' /proc/stat; }

# children_ms FILE: the same of what a shell had started and waited for when it wrote FILE with `times`.
children_ms() {
    awk 'NR == 2 { gsub("s", ""); split($1 "m" $2, t, "m"); printf "%.0f", (t[1] * 60 + t[2] + t[3] * 60 + t[4]) * 1000 }' "$1"
}

# bench_boot: the measurements; they are left in boot_run, whatever the status.
bench_boot() {
    local status=0 start=$SECONDS others
    times >"$ZBD_OUT/bench/before"
    others=$(busy_ms)
    boot_guest uml "$IN_TOP/tests/bench/guest.sh" "$bench_rounds" "$bench_seconds" "$bench_targets" "$bench_jobs" \
        "$bench_data" || status=$?
    # shellcheck disable=SC2154  # set by boot_guest
    bench_run=$IN_LAB/run/${boot_run##*/}
    # Whoever reads the numbers must know whether the machine had other things to do.
    times >"$ZBD_OUT/bench/after"
    others=$(($(busy_ms) - others + $(children_ms "$ZBD_OUT/bench/before") - $(children_ms "$ZBD_OUT/bench/after")))
    [ -e "$boot_run/bench/machine" ] || die "nothing was measured, status $status (console and log in $boot_run)"
    echo "others_percent $((others / 10 / (SECONDS - start + 1) / $(nproc)))" >>"$boot_run/bench/machine"
    return $status
}

cmd_bench() {
    local status=0 start=$SECONDS
    bench_options "$@"
    bench_ready
    bench_boot || status=$?
    enter python3 -B "$IN_TOP/tests/bench/report.py" "$bench_run/bench" "$IN_OUT/bench" || status=1
    say "the same in $ZBD_OUT/bench/report.md and report.json; it took $((SECONDS - start)) s"
    return "$status"
}

# The profile samples the whole of User Mode Linux from outside; the guest says what it did when, and where its
# functions are.
PROFILE_HZ=1999

make_perf() { enter apt-get install -y --no-install-recommends linux-perf; }

cmd_profile() {
    local status=0
    bench_options --rounds 1 --seconds 4 --targets 'zbd-lz4 zbd-zstd1' --data half "$@"
    bench_ready
    step perf "$(hash_of "$(stamp root)")" make_perf
    # Events of the processor itself are often not to be had in a virtual machine.
    boot_under=(perf record -q -e cpu-clock -F "$PROFILE_HZ" -k CLOCK_REALTIME -o /out/bench/perf.data --)
    bench_boot || status=$?
    # shellcheck disable=SC2016  # expanded inside
    enter bash -euc 'perf script -i "$2/perf.data" -F comm,tid,time,ip 2>/dev/null |
        python3 -B "$1/tests/bench/profile.py" "$3" "$4" | tee "$2/profile.md"' \
        - "$IN_TOP" "$IN_OUT/bench" "$bench_run/bench" "$PROFILE_HZ"
    say "the same in $ZBD_OUT/bench/profile.md"
    return "$status"
}
