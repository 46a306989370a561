#!/usr/bin/env bash
# Proves that scoring does not reach for the network: a whole `score` and `batch` run under strace with nothing
# closed, then again where there is no interface but loopback. The last line is JSON; exit code 1 if anything was
# attempted, or a score differs. Needs strace, unshare (util-linux), and the judge fetched before.
# Argument: the judge, for example: bash scripts/check_airgap.sh smollm2-135m
set -euo pipefail
cd "$(dirname "$0")/.."

for program in strace unshare; do
  command -v "$program" >/dev/null || { echo "check_airgap.sh: $program is not installed." >&2; exit 2; }
done
python=${PYTHON:-.venv/bin/python}
judge=${1:-qwen2.5-coder-1.5b}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ "$(id -u)" = 0 ]; then alone=(unshare --net); else alone=(unshare --net --map-current-user); fi

"$python" scripts/egress.py rows > "$folder/rows.jsonl"
common=(--judge "$judge" --quiet)

# $1: name of the pass; the rest: what to run it with
pass() {
  local name=$1
  shift
  local code=0
  echo "== score, $name" >&2
  "$@" "$python" -m offline_summ score examples/company/source.txt examples/company/good.txt --json \
    "${common[@]}" "${closing[@]}" > "$folder/$name.score.json" || code=$?
  echo "== batch, $name" >&2
  "$@" "$python" -m offline_summ batch "$folder/rows.jsonl" -o "$folder/$name.batch.jsonl" \
    "${common[@]}" "${closing[@]}" > "$folder/$name.batch.out" || code=$?
  # 4 and 5: the judge failed on an example. It must fail alike both times.
  case $code in 0 | 4 | 5) ;; *) echo "check_airgap.sh: a run ended with exit code $code." >&2; exit "$code" ;; esac
}

closing=(--airgap off)
pass open strace -f --seccomp-bpf -qq -e trace=connect,sendto,sendmsg,sendmmsg -o "$folder/trace" -A
closing=(--airgap auto)
pass alone "${alone[@]}"
"$python" scripts/egress.py report "$folder"
