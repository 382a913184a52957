#!/usr/bin/env bash
# Runs the runtime's tests under ThreadSanitizer, which finds data races in real executions.
#
#   ci/tsan.sh                           unit and integration tests
#   ci/tsan.sh select                    those with `select` in their name
#
# The standard library is built again with the sanitizer. `cfg(mungo_tsan)` is set, for the fiber calls that tell the
# sanitizer about a switch, and for tests that cannot work there: asynchronous signals arrive late.
# Skipped, with exit code 0, where nightly or its sources are not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source ci/nightly.sh
skip_without_nightly tsan rust-src

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread --cfg mungo_tsan"
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan"
# The target is named so that build scripts and macros, which run inside the compiler, go without the sanitizer.
cargo +nightly test -Zbuild-std --target "$host" -p mungo --lib --tests "$@"
echo "tsan: ok"
