#!/usr/bin/env bash
# Runs the unit tests under Miri, which finds undefined behaviour: bad pointers, data races, leaks.
#
#   ci/miri.sh                           all unit tests of the runtime
#   ci/miri.sh chan                      those with `chan` in their name
#   MIRIFLAGS=-Zmiri-seed=7 ci/miri.sh   other interleavings
#
# Miri executes no assembly and no system calls of ours: goroutines are OS threads there, and tests of stacks,
# signals and switches are ignored. Skipped, with exit code 0, where nightly or Miri is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source ci/nightly.sh
skip_without_nightly miri miri rust-src

# Isolation would take the clock and the environment away from the tests.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
cargo +nightly miri test -p mungo --lib "$@"
echo "miri: ok"
