#!/usr/bin/env bash
# Repeats the stress tests, optimised, each round with another seed, while other processes fight for the CPUs.
#
#   ci/stress.sh [SECONDS [FILTER]]      60 seconds and the filter `stress`, unless told
#   ci/stress.sh 600                     ten minutes
#   ci/stress.sh 600 select              tests with `select` in their path instead
#   MUNGO_STRESS_SEED=42 ci/stress.sh    the same seed in each round, to repeat a failure
#   MUNGO_STRESS_LOAD=0 ci/stress.sh     how many busy processes run beside it (default: one per CPU)
#   MUNGO_STRESS_LIMIT=600 ci/stress.sh  seconds after which a round counts as hung (default: 300)
#
# A stress test has `stress` in its path (its name, or its module's), takes its random choices from the seed in
# MUNGO_STRESS_SEED, and may be `#[ignore]`d where it is too long for everyday. The first failure ends the run with
# exit code 1, the test's output, and the command that repeats it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-60}
filter=${2:-stress}
load=${MUNGO_STRESS_LOAD:-$(nproc)}
limit=${MUNGO_STRESS_LIMIT:-300}
fixed_seed=${MUNGO_STRESS_SEED:-}
if ! [[ $seconds =~ ^[0-9]+$ ]]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 2
fi

build=(cargo test -p mungo --release --all-features --lib --tests)
# Not captured: a test that hangs would take its output with it.
run=("${build[@]}" -- "$filter" --include-ignored --nocapture)

"${build[@]}" --no-run
tests=$("${run[@]}" --list 2>/dev/null | grep -c ': test$' || true)
if [ "$tests" = 0 ]; then
    echo "stress: FAILED, no test has \`$filter\` in its path" >&2
    exit 1
fi

log=$(mktemp)
children=()
cleanup() {
    [ ${#children[@]} = 0 ] || kill "${children[@]}" 2>/dev/null || true
    rm -f "$log"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
for ((i = 0; i < load; i++)); do
    (while :; do :; done) &
    children+=($!)
done

base=${fixed_seed:-$((RANDOM << 30 ^ RANDOM << 15 ^ RANDOM))}
echo "stress: $tests tests, $seconds s, $load busy processes, first seed $base"
round=0
start=$SECONDS
while :; do
    seed=$base
    [ -n "$fixed_seed" ] || seed=$((base + round))
    began=$SECONDS
    code=0
    # In the background, because an interrupt at the terminal does not reach what `timeout` runs.
    MUNGO_STRESS_SEED=$seed timeout --kill-after=30 "$limit" "${run[@]}" >"$log" 2>&1 &
    children[load]=$!
    wait "${children[load]}" || code=$?
    round=$((round + 1))
    if [ "$code" != 0 ]; then
        cat "$log"
        [ "$code" != 124 ] || echo "stress: the round did not end within $limit s"
        echo "stress: FAILED in round $round, exit code $code. Again, without the load:"
        echo "    MUNGO_STRESS_SEED=$seed ${run[*]}"
        exit 1
    fi
    echo "round $round: seed $seed, ok, $((SECONDS - began)) s"
    [ $((SECONDS - start)) -lt "$seconds" ] || break
done
echo "stress: ok, $round rounds, $((SECONDS - start)) s"
