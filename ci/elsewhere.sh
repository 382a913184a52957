#!/usr/bin/env bash
# Where goroutines cannot have thread-locals of their own, no runtime starts unless that is allowed: builds a program for
# such platforms, without warnings, and runs it.
#
#   ci/elsewhere.sh
#
# A static executable (glibc) needs nothing but the C library's static archives; musl needs its target
# (rustup target add x86_64-unknown-linux-musl). What is missing is skipped and named. Both link statically.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "elsewhere: skipped, this is not Linux on x86-64"
    exit 0
fi

# The versions that the workspace has, as far as they are needed.
cp Cargo.lock ci/elsewhere/Cargo.lock
export CARGO_TARGET_DIR="$PWD/target/elsewhere"

# run NAME TARGET
run() {
    echo "-- $1"
    RUSTFLAGS="${RUSTFLAGS:-} -D warnings -C target-feature=+crt-static" \
        cargo build --quiet --manifest-path ci/elsewhere/Cargo.toml --target "$2"
    timeout --kill-after=5 60 "$CARGO_TARGET_DIR/$2/debug/elsewhere"
}

if [ -e "$(cc -print-file-name=libc.a)" ]; then
    run "static executable" x86_64-unknown-linux-gnu
else
    echo "-- static executable: skipped, there is no libc.a"
fi

musl=x86_64-unknown-linux-musl
if [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]; then
    run "musl" "$musl"
else
    echo "-- musl: skipped, the target is not installed (rustup target add $musl)"
fi
