#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Says that a guest comes as far as running programs on its processors.
set -euo pipefail
nproc
for cpu in $(seq 0 $(($(nproc) - 1))); do taskset -c "$cpu" true; done
