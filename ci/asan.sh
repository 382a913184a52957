#!/usr/bin/env bash
# Runs the runtime's tests under AddressSanitizer, which finds uses of memory that was freed or never allocated.
#
#   ci/asan.sh                           unit and integration tests
#   ci/asan.sh --test spawn              one file
#   ci/asan.sh select                    those with `select` in their name
#   MUNGO_ASAN_LIMIT=1200 ci/asan.sh     seconds after which a test program counts as hung (default: 600)
#
# Works with a stable compiler. The standard library is the one that is installed, without the sanitizer. Stack switches
# need no annotations: the sanitizer knows a thread by a thread-local, so that a goroutine is an unknown thread to it,
# whose stack it asks `pthread_getattr_np` for. Uses of a stack frame after its return are not looked for, and neither
# are leaks: goroutines' stacks are none of its roots. `cfg(mungo_asan)` is set, for code that copies whole stacks and
# for the marks that an ended goroutine's last frames, which never return, leave on its stack.
# Skipped, with exit code 0, where the compiler comes without the sanitizer's runtime.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source ci/nightly.sh
allow_unstable
if ! has_runtime asan; then
    echo "asan: skipped, $("$rustc" --version) comes without librustc_rt.asan.a (the one of rustup has it)"
    exit 0
fi

export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address --cfg mungo_asan"
# Faults are the tests' own: they look at the signal that a child dies of, at addresses on stacks, and at memory in use.
export ASAN_OPTIONS="handle_segv=0 handle_sigbus=0 handle_abort=0 ${ASAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_leaks=0 detect_stack_use_after_return=0 quarantine_size_mb=8 $ASAN_OPTIONS"
# It would note where a thread has the thread-locals of loaded libraries, in a page that a goroutine's end does not free.
export ASAN_OPTIONS="intercept_tls_get_addr=0 $ASAN_OPTIONS"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
# Each test program has a limit of its own, so that a hang costs one file.
runner=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER
export "$runner=timeout --kill-after=10 ${MUNGO_ASAN_LIMIT:-600}"
# The target is named so that build scripts and macros, which run inside the compiler, go without the sanitizer.
case " $* " in
    *" --test "* | *" --lib "*) cargo test --release --target "$host" -p mungo --all-features "$@" ;;
    *) cargo test --release --target "$host" -p mungo --all-features --no-fail-fast --lib --tests "$@" ;;
esac
echo "asan: ok"
