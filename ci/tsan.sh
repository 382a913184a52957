#!/usr/bin/env bash
# Runs unit tests of the runtime's parts under ThreadSanitizer, which finds data races in real executions.
#
#   ci/tsan.sh                           all unit tests; those that start goroutines are expected to fail
#   ci/tsan.sh runq                      those with `runq` in their name
#
# The standard library is built again with the sanitizer, from the compiler's own sources: with an uninstrumented one each
# of its locks and channels is a race. A stable compiler will do, if it has them: RUSTUP_TOOLCHAIN or RUSTC choose it.
# `cfg(mungo_tsan)` is set, for tests that cannot work there. Goroutines cannot: the sanitizer keeps what it knows of a
# thread in thread-locals, and a goroutine's are zero.
# Skipped, with exit code 0, where the sources or the sanitizer's runtime are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source ci/nightly.sh
allow_unstable
if ! [ -e "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; then
    echo "tsan: skipped, $("$rustc" --version) comes without the sources of its library (rustup component add rust-src)"
    exit 0
fi
if ! has_runtime tsan; then
    echo "tsan: skipped, $("$rustc" --version) comes without librustc_rt.tsan.a (the one of rustup has it)"
    exit 0
fi

export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread --cfg mungo_tsan"
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan"
# The target is named so that build scripts and macros, which run inside the compiler, go without the sanitizer.
cargo test -Zbuild-std --target "$host" -p mungo --lib "$@"
echo "tsan: ok"
