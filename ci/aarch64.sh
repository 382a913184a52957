#!/usr/bin/env bash
# Builds the runtime for aarch64 Linux with glibc, and runs its tests under qemu's user mode.
#
#   ci/aarch64.sh              installs what is missing (Debian, as root), lints, builds, runs all tests that emulation
#                              can run
#   ci/aarch64.sh subset       installs nothing, lints, runs the tests that ci/aarch64/Cargo.toml lists: those of what
#                              differs on this processor. They are built without the dependencies of the other tests
#   ci/aarch64.sh build        installs nothing, builds the runtime without warnings, runs no test
#   ci/aarch64.sh can          says by its exit code whether the tools are there
#
# A test program that the emulator is too slow for is ended after LIMIT seconds and counts as failed. Tests that
# emulation cannot run say so themselves (child::is_emulated, with the reason); they are counted and shown.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=aarch64-unknown-linux-gnu
packages=(rustc-web cargo-web rust-web-clippy libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    libc6:arm64 libgcc-s1:arm64 qemu-user)
LIMIT="${LIMIT:-180}"

# Debian's compiler has a standard library for arm64; another one in front of it in the path may not.
export RUSTC="${AARCH64_RUSTC:-/usr/bin/rustc}" RUSTDOC="${AARCH64_RUSTDOC:-/usr/bin/rustdoc}"
cargo="${AARCH64_CARGO:-/usr/bin/cargo}"
clippy="${AARCH64_CLIPPY:-/usr/bin/cargo-clippy}"

# The emulated program gets no more addresses than this: the emulator keeps a record of each page of them.
export QEMU_RESERVED_VA=0x800000000
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64
export CARGO_TARGET_DIR="$PWD/target/aarch64" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
export MUNGO_TEST_RUNNER=qemu-aarch64 MUNGO_TEST_CC=aarch64-linux-gnu-gcc
warnings="${RUSTFLAGS:-} -D warnings"

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

# timed NAME COMMAND...: says how long it took.
timed() {
    local name=$1 start=$SECONDS
    shift
    "$@"
    echo "aarch64: $name: $((SECONDS - start)) s"
}

# Debian's clippy, which knows the target as its compiler does; without it, the compiler's warnings.
lint() {
    if [ -x "$clippy" ]; then
        PATH="$(dirname "$clippy"):$PATH" "$cargo" clippy --target $target -p mungo -p mungo-interpose \
            --all-features -- -D warnings
    else
        echo "aarch64: clippy: skipped, there is no $clippy (Debian: rust-web-clippy)"
        RUSTFLAGS="$warnings" "$cargo" check --target $target -p mungo -p mungo-interpose --all-features
    fi
}

# build ARGUMENTS...: builds tests; the file $programs then has a line for each: the folder of the package that it
# tests, and the program.
build() {
    RUSTFLAGS="$warnings" "$cargo" test --target $target "$@" --no-run --message-format=json >"$programs.json"
    sed -nE 's#.*"src_path":"([^"]*)/(src|tests)/[^"]*".*"executable":"([^"]*)".*#\1 \3#p' "$programs.json" >"$programs"
}

# Runs the programs, one after the other, each in the package that it tests.
run() {
    local folder program name code start
    while read -r folder program; do
        name=$(basename "$program")
        code=0 start=$SECONDS
        (cd "$folder" && exec timeout --kill-after=5 "$LIMIT" qemu-aarch64 "$program" --test-threads=2) \
            >"$log.one" 2>&1 </dev/null || code=$?
        echo "-- ${name%-*}: exit code $code, $((SECONDS - start)) s"
        grep -a '^test result' "$log.one" || true
        cat "$log.one" >>"$log"
        [ "$code" = 0 ] || failed+=("${name%-*}($code)")
    done <"$programs"
}

# A static executable has no own thread-locals, as on x86-64: see ci/elsewhere.sh.
static_executable() {
    cp Cargo.lock ci/elsewhere/Cargo.lock
    RUSTFLAGS="$warnings -C target-feature=+crt-static" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/static" \
        "$cargo" build --quiet --manifest-path ci/elsewhere/Cargo.toml --target $target
    timeout --kill-after=5 120 qemu-aarch64 "$CARGO_TARGET_DIR/static/$target/debug/elsewhere"
}

case "${1:-}" in
    can)
        [ -z "$(missing)" ]
        exit
        ;;
    build | subset)
        [ -z "$(missing)" ] || { echo "aarch64: missing: $(missing | tr '\n' ' ')"; exit 1; }
        ;;
    "")
        [ -z "$(missing)" ] || install
        ;;
    *)
        echo "aarch64: unknown argument '$1': say nothing, 'subset', 'build' or 'can'"
        exit 2
        ;;
esac

"$cargo" --version
if [ "${1:-}" = build ]; then
    RUSTFLAGS="$warnings" timed build "$cargo" build --target $target -p mungo -p mungo-interpose --all-features
    exit 0
fi
timed lints lint

log=$(mktemp)
programs=$(mktemp)
trap 'rm -f "$log" "$log.one" "$programs" "$programs.json"' EXIT
failed=()
if [ "${1:-}" = subset ]; then
    # The versions that the workspace has, as far as they are needed.
    cp Cargo.lock ci/aarch64/Cargo.lock
    # The tests look for their own paths in messages: from the root, as in the workspace.
    warnings+=" --remap-path-prefix=../../crates=crates"
    timed "tests, built" build --manifest-path ci/aarch64/Cargo.toml
else
    chosen=(--lib)
    for file in crates/mungo/tests/*.rs crates/mungo-interpose/tests/*.rs; do
        name=$(basename "$file" .rs)
        why=
        case $name in
            tidy) why="looks at sources" ;;
            examples | *stress* | fairness | policy_sim) why="takes many minutes" ;;
            faults_memory | memory_returns) why="the emulator's own memory is counted" ;;
            deadlock) why="the emulator has a thread of its own, which might wake a goroutine" ;;
            servers) why="redis and PostgreSQL would not be emulated" ;;
        esac
        if [ -n "$why" ]; then
            echo "skipped under emulation: all of $name: $why" >>"$log"
        else
            chosen+=(--test "$name")
        fi
    done
    timed "static executable" static_executable
    timed "tests, built" build -p mungo -p mungo-interpose --all-features "${chosen[@]}"
fi
timed "tests, run" run
grep -aE '^test .*FAILED|panicked at' "$log" || true
echo "aarch64: $(grep -ac '^test .* ok$' "$log" || true) tests passed, in $(wc -l <"$programs") programs"
echo "aarch64: $(grep -ac '^skipped under emulation' "$log" || true) left out under emulation," \
    "$(grep -ac '^test .* \.\.\. ignored' "$log" || true) ignored:"
grep -ahE '^skipped under emulation|^test .* \.\.\. ignored' "$log" | sort | uniq -c || true
if [ ${#failed[@]} != 0 ]; then
    cat "$log"
    echo "aarch64: FAILED: ${failed[*]}, $SECONDS s"
    exit 1
fi
echo "aarch64: ok, $SECONDS s"
