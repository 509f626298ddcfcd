#!/bin/sh
# Tests `keel serve` with clients that users have: curl, the Python package `openai`, and
# lm-evaluation-harness: test-clients.sh [BUILD]
# BUILD (default: build/release) must have the program and the plugins. The Python packages are
# installed into $KEEL_CLIENTS_VENV (default: ~/.cache/keel-clients). If PyPI cannot be reached, the
# script says which clients it skips, and succeeds.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
venv=${KEEL_CLIENTS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/keel-clients}
fail() { printf '%s: %s\n' "$0" "$1" >&2; exit 1; }
skip() { printf '\n%s: SKIPPED: %s\n\n' "$0" "$1" >&2; }
[ -x "$build/bin/keel" ] || fail "no program in $build: run scripts/quickstart.sh first"

folder=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
printf 'aliases:\n  tiny@window: {policy: sliding_window, budget: 32}\n' >"$folder/presets.yaml"
# --prompt-step 32: a policy acts between chunks of a prompt, so the prompts need several chunks
"$build/bin/keel" serve models/tiny --port 0 --chat-template chatml --prompt-step 32 \
    --presets "$folder/presets.yaml" >"$folder/out" 2>"$folder/log" &
server=$!
for _ in $(seq 100); do
    url=$(sed -n 's/^listening at //p' "$folder/out")
    [ -z "$url" ] || break
    sleep 0.1
done
[ -n "$url" ] || { cat "$folder/log" >&2; fail "the server did not start"; }

if command -v curl >/dev/null; then
    sh tests/clients/curl.sh "$url" "$folder" || fail "the test with curl failed"
    echo "curl: ok"
else
    skip "curl is not installed"
fi

if [ ! -x "$venv/bin/lm_eval" ]; then
    echo "installing openai and lm_eval into $venv"
    python3 -m venv "$venv" && "$venv/bin/pip" install -q openai 'lm_eval[api]' transformers >"$folder/pip" 2>&1 ||
        { tail -3 "$folder/pip" >&2 || true; skip "openai and lm_eval, because PyPI cannot be reached"; exit 0; }
fi
"$venv/bin/python" tests/clients/openai_client.py "$url" || fail "the test with the package openai failed"
echo "openai: ok"
PATH=$venv/bin:$PATH "$venv/bin/python" tests/clients/lm_eval_client.py "$url" "$build/bin/keel" "$folder" ||
    fail "the test with lm-evaluation-harness failed"
echo "lm-evaluation-harness: ok"

kill "$server"
wait "$server" || fail "the server ended with an error"
server=
