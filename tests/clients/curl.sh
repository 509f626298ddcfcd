#!/bin/sh
# Sends requests with curl: curl.sh URL FOLDER (for temporary files)
set -eu
url=$1 folder=$2
fail() { printf 'curl.sh: %s\n' "$1" >&2; exit 1; }
post() { curl -sS --fail-with-body --max-time 60 -H 'Content-Type: application/json' "$@"; }

curl -sS --retry 20 --retry-delay 1 --retry-all-errors --fail -o /dev/null "$url/ready"
curl -sS --fail "$url/v1/models" | grep -q '"tiny@window"' || fail "/v1/models does not list the alias"
post "$url/v1/completions" -d '{"prompt":"Once upon a time","max_tokens":5}' |
    grep -q '"finish_reason":"length"' || fail "no completion"
post -N "$url/v1/completions" -d '{"prompt":"Once","max_tokens":5,"stream":true}' |
    grep -q '^data: \[DONE\]$' || fail "no complete stream"

# a body of two MiB, for which curl expects 100 Continue
{ printf '{"prompt":"Once","max_tokens":1,"user":"'; head -c 2000000 /dev/zero | tr '\0' a; printf '"}'; } \
    >"$folder/large.json"
post "$url/v1/completions" -d "@$folder/large.json" | grep -q '"text"' || fail "no answer to a large body"

status=$(curl -sS -o "$folder/error" -w '%{http_code}' "$url/v1/completions" -d '{"prompt":"a","n":0}')
[ "$status" = 400 ] && grep -q '"param":"n"' "$folder/error" || fail "a wrong field is not refused"
[ "$(curl -sS -o /dev/null -w '%{http_code}' --http1.0 "$url/health")" = 200 ] || fail "HTTP/1.0 fails"
curl -sS --fail -I "$url/health" | grep -qi '^content-length:' || fail "HEAD fails"
curl -sS --fail "$url/metrics" | grep -q '^keel_requests_total' || fail "no metrics"
