#!/usr/bin/env bash
# Model-checks the lock-free parts: loom runs each model under every interleaving that matters.
#
#   ci/loom.sh                           all models
#   ci/loom.sh runq                      models with `runq` in their name
#   LOOM_MAX_PREEMPTIONS=4 ci/loom.sh    more interleavings; the time grows steeply
#
# A model is a unit test with `loom` in its path; the crate `mungo-models` compiles them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}"
# The flag reaches all dependencies, so these builds get a folder of their own.
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"

# cargo is content when a filter matches nothing. Models that got lost must not look like models that passed.
cargo test -p mungo-models --lib --release --no-run
models=$(cargo test -p mungo-models --lib --release loom -- --list 2>/dev/null | grep -c ': test$' || true)
if [ "$models" = 0 ]; then
    echo "loom: FAILED, no unit test has \`loom\` in its path" >&2
    exit 1
fi
cargo test -p mungo-models --lib --release "${1:-loom}"
echo "loom: ok, LOOM_MAX_PREEMPTIONS=$LOOM_MAX_PREEMPTIONS"
