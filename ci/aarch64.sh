#!/usr/bin/env bash
# Builds the runtime for aarch64 Linux with glibc, and runs its tests under qemu's user mode.
#
#   ci/aarch64.sh              installs what is missing (Debian, as root), builds, runs all tests that emulation can run
#   ci/aarch64.sh subset       installs nothing, runs some tests that depend on the processor
#   ci/aarch64.sh build        installs nothing, builds the runtime without warnings, runs no test
#   ci/aarch64.sh can          says by its exit code whether the tools are there
#
# A test program that the emulator is too slow for is ended after LIMIT seconds and counts as failed. Tests that emulation
# cannot run say so themselves (child::is_emulated, with the reason); they are counted and shown.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=aarch64-unknown-linux-gnu
packages=(rustc-web cargo-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross libc6:arm64
    libgcc-s1:arm64 qemu-user)
LIMIT="${LIMIT:-180}"

# Debian's compiler has a standard library for arm64; another one in front of it in the path may not.
export RUSTC="${AARCH64_RUSTC:-/usr/bin/rustc}" RUSTDOC="${AARCH64_RUSTDOC:-/usr/bin/rustdoc}"
cargo="${AARCH64_CARGO:-/usr/bin/cargo}"

# The emulated program gets no more addresses than this: the emulator keeps a record of each page of them.
export QEMU_RESERVED_VA=0x800000000
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64
export CARGO_TARGET_DIR="$PWD/target/aarch64" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
export MUNGO_TEST_RUNNER=qemu-aarch64 MUNGO_TEST_CC=aarch64-linux-gnu-gcc

# Names what is missing; nothing if all is there.
missing() {
    command -v qemu-aarch64 >/dev/null || echo "qemu-aarch64"
    command -v aarch64-linux-gnu-gcc >/dev/null || echo "aarch64-linux-gnu-gcc"
    [ -x "$cargo" ] || echo "$cargo"
    [ -x "$RUSTC" ] && [ -d "$("$RUSTC" --print target-libdir --target $target)" ] || echo "a Rust library for $target"
    [ -e /lib/ld-linux-aarch64.so.1 ] || echo "the C library of arm64"
}

install() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "aarch64: cannot install anything: this needs Debian, and root. Missing: $(missing | tr '\n' ' ')"
        echo "aarch64: dpkg --add-architecture arm64 && apt-get update && apt-get install ${packages[*]}"
        exit 1
    fi
    dpkg --add-architecture arm64
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
}

# Those that depend on the processor: thread blocks, the switch, signals, unwinding.
subset=(panics preempt_inject signal_stacks static_tls thread_locals_libc)

case "${1:-}" in
    can)
        [ -z "$(missing)" ]
        exit
        ;;
    build)
        [ -z "$(missing)" ] || { echo "aarch64: missing: $(missing | tr '\n' ' ')"; exit 1; }
        ;;
    subset)
        [ -z "$(missing)" ] || { echo "aarch64: missing: $(missing | tr '\n' ' ')"; exit 1; }
        tests=("${subset[@]}")
        ;;
    "")
        [ -z "$(missing)" ] || install
        # These look at sources, or run programs for many minutes.
        tests=()
        for file in crates/mungo/tests/*.rs; do
            name=$(basename "$file" .rs)
            case $name in
                tidy | examples | *stress* | fairness | policy_sim | faults_memory | memory_returns) ;;
                *) tests+=("$name") ;;
            esac
        done
        ;;
    *)
        echo "aarch64: unknown argument '$1': say nothing, 'subset', 'build' or 'can'"
        exit 2
        ;;
esac

"$cargo" --version
RUSTFLAGS="${RUSTFLAGS:-} -D warnings" "$cargo" build --target $target -p mungo -p mungo-interpose --all-features
[ "${1:-}" != build ] || exit 0
chosen=()
for name in "${tests[@]}"; do chosen+=(--test "$name"); done
if [ -z "${1:-}" ] && "$cargo" clippy --version >/dev/null 2>&1; then
    "$cargo" clippy --target $target -p mungo --all-features -- -D warnings
fi
programs=$(RUSTFLAGS="${RUSTFLAGS:-} -D warnings" "$cargo" test --target $target -p mungo --all-features "${chosen[@]}" --no-run \
    --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
cd crates/mungo
for program in $programs; do
    name=$(basename "$program")
    echo "-- ${name%-*}"
    code=0
    timeout --kill-after=5 "$LIMIT" qemu-aarch64 "$program" --test-threads=2 >>"$log" 2>&1 || code=$?
    [ "$code" = 0 ] || failed+=("${name%-*}($code)")
done
cat "$log"
echo "aarch64: $(grep -ac '^test .* ok$' "$log") tests passed, $(grep -ac '^skipped under emulation' "$log") left out under emulation:"
grep -a '^skipped under emulation' "$log" | sort | uniq -c || true
if [ ${#failed[@]} != 0 ]; then
    echo "aarch64: FAILED: ${failed[*]}"
    exit 1
fi
