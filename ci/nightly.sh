# To be sourced by scripts that need a nightly compiler, which not everybody has.

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
