#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The whole demonstration in one boot.
set -euo pipefail
uname -sr
bash /zbd/tools/guest/demo.sh lz4 lz4
bash /zbd/tools/guest/demo.sh zstd:1 zstd
rmmod zbd
