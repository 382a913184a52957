#!/usr/bin/env bash
# The own tests of crates that block, with their threads as goroutines: copies a published package to target/, has its
# tests link mungo-interpose, and runs them with MUNGO_THREADS=goroutines.
#
#   ci/crates.sh [threads]      with `threads`, the same tests with threads, to compare
#
# Packages come from the registry of the Cargo.lock of this workspace. Nothing of them is part of this repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "crates: skipped, this is not Linux on x86-64"
    exit 0
fi
kind=${1:-goroutines}
root=$PWD
export CARGO_TARGET_DIR="$root/target/crates"
failed=0

# suite CRATE: runs the tests of a package.
suite() {
    local crate=$1 folder work test again which name
    folder=$(cargo metadata --format-version 1 --locked | python3 -c "
import json, os, sys
found = [p for p in json.load(sys.stdin)['packages'] if p['name'] == '$crate']
found.sort(key=lambda p: [int(n) for n in p['version'].split('.')])
print(os.path.dirname(found[-1]['manifest_path']))")
    work=$root/target/crates-src/$crate
    rm -rf "$work"
    mkdir -p "$(dirname "$work")"
    cp -r "$folder" "$work"
    echo "-- $(basename "$folder"), threads are $kind"
    printf '\n[workspace]\n\n[dev-dependencies.mungo-interpose]\npath = "%s"\n' "$root/crates/mungo-interpose" \
        >> "$work/Cargo.toml"
    rm -f "$work/Cargo.lock"
    echo '#[cfg(test)] use mungo_interpose as _;' >> "$work/src/lib.rs"
    for test in "$work"/tests/*.rs; do
        echo 'use mungo_interpose as _;' >> "$test"
    done
    # Some of these tests measure time, or count what others allocate at the same moment: what fails runs again, one test
    # at a time.
    run "$work" --lib --tests && return
    again=$(sed -n 's/^error: test failed, to rerun pass `\(.*\)`$/\1/p' "$work/log")
    [ -n "$again" ] || { failed=1; return; }
    while read -r which name; do
        run "$work" "$which" ${name:+"$name"} -- --test-threads=1 || failed=1
    done <<< "$again"
}

# run FOLDER ARGUMENTS...: runs tests, and says how many passed.
run() {
    local work=$1
    shift
    MUNGO_THREADS=$kind timeout --kill-after=5 1200 \
        cargo test --quiet --no-fail-fast --manifest-path "$work/Cargo.toml" "$@" > "$work/log" 2>&1 || true
    grep -E '^(error|thread .* panicked)' "$work/log" || true
    awk '/^test result/ { passed += $4; failed += $6; ignored += $8 } END {
        printf "   %d passed, %d failed, %d ignored\n", passed, failed, ignored; exit failed != 0 || passed == 0 }' \
        "$work/log"
}

suite crossbeam-channel
suite parking_lot
exit "$failed"
