# To be sourced by scripts that need unstable options of the compiler, or a nightly one, which not every machine has.

# skip_without_nightly NAME COMPONENT...
#
# Ends the script with a message and exit code 0 where nightly or one of its components is missing. Asks rustup,
# because calling `cargo +nightly` could install things.
skip_without_nightly() {
    local name=$1 component installed
    shift
    if ! command -v rustup >/dev/null; then
        echo "$name: skipped, no rustup and so no nightly compiler"
        exit 0
    fi
    if ! rustup toolchain list | grep -q '^nightly'; then
        echo "$name: skipped, no nightly compiler (rustup toolchain install nightly)"
        exit 0
    fi
    installed=$(rustup component list --toolchain nightly --installed)
    for component in "$@"; do
        if ! grep -q "^$component" <<<"$installed"; then
            echo "$name: skipped, nightly lacks $component (rustup component add --toolchain nightly $*)"
            exit 0
        fi
    done
}

# allow_unstable
#
# Makes the compiler at hand take unstable options, though it be a stable one: a sanitizer needs no more than its runtime,
# which comes with each release. RUSTUP_TOOLCHAIN or RUSTC choose another compiler. Sets `rustc` and `host`.
allow_unstable() {
    export RUSTC_BOOTSTRAP=1
    rustc=${RUSTC:-rustc}
    host=$("$rustc" -vV | sed -n 's/^host: //p')
}

# has_runtime NAME: whether the compiler comes with the runtime of this sanitizer.
has_runtime() {
    compgen -G "$("$rustc" --print target-libdir)/librustc*_rt.$1.a" >/dev/null
}
