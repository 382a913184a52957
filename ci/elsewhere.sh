#!/usr/bin/env bash
# Where goroutines cannot have thread-locals of their own, no runtime starts unless that is allowed: builds a program for
# such platforms, without warnings, and runs it.
#
#   ci/elsewhere.sh
#
# A static executable (glibc) needs nothing but the C library's static archives. musl needs its target (rustup target
# add x86_64-unknown-linux-musl), or, on Debian, the sources of the library of Debian's compiler, of which it is built
# then: packages rustc-web cargo-web rust-web-src musl-tools libunwind-14-dev, 150 MB to load. What is missing is skipped
# and named. Both link statically.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "elsewhere: skipped, this is not Linux on x86-64"
    exit 0
fi

# The versions that the workspace has, as far as they are needed.
cp Cargo.lock ci/elsewhere/Cargo.lock
export CARGO_TARGET_DIR="$PWD/target/elsewhere"

cargo=(cargo)

# run NAME TARGET
run() {
    echo "-- $1"
    RUSTFLAGS="${RUSTFLAGS:-} -D warnings -C target-feature=+crt-static" \
        "${cargo[@]}" build --quiet --manifest-path ci/elsewhere/Cargo.toml --target "$2"
    timeout --kill-after=5 60 "$CARGO_TARGET_DIR/$2/debug/elsewhere"
}

if [ -e "$(cc -print-file-name=libc.a)" ]; then
    run "static executable" x86_64-unknown-linux-gnu
else
    echo "-- static executable: skipped, there is no libc.a"
fi

musl=x86_64-unknown-linux-musl

# LLVM's unwinder, which the targets of rustup bring as well. It may also lie where UNWINDER says.
unwinder="${UNWINDER:-$(compgen -G "/usr/lib/llvm-*/lib/libunwind.a" | tail -n 1 || true)}"

# Names what is missing to build musl's standard library with Debian's compiler; nothing if all is there.
missing() {
    [ -x /usr/bin/rustc ] || echo "rustc-web"
    [ -x /usr/bin/cargo ] || echo "cargo-web"
    [ -x /usr/bin/rustc ] && [ -e "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ] ||
        echo "rust-web-src"
    command -v musl-gcc >/dev/null || echo "musl-tools"
    [ -n "$unwinder" ] || echo "libunwind-14-dev"
}

# The C library, its start and its driver are Debian's musl.
run_with_library_of_sources() {
    local folder="$CARGO_TARGET_DIR/unwinder"
    mkdir -p "$folder"
    cp "$unwinder" "$folder/libunwind.a"
    musl-gcc -O2 -c ci/elsewhere/checked.c -o "$folder/checked.o"
    ar r "$folder/libunwind.a" "$folder/checked.o"
    export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=musl-gcc
    cargo=(/usr/bin/cargo -Zbuild-std=std,panic_unwind)
    RUSTFLAGS="${RUSTFLAGS:-} -C link-self-contained=no -C relocation-model=static -L native=$folder"
    run "musl, its standard library from Debian's sources" "$musl"
}

if [ -d "$(rustc --print target-libdir --target "$musl")" ]; then
    run "musl" "$musl"
elif [ -z "$(missing)" ]; then
    run_with_library_of_sources
else
    echo "-- musl: skipped, the target is not installed (rustup target add $musl), nor on Debian:"
    missing
fi
