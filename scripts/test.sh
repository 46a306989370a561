#!/usr/bin/env bash
# Installs what the tests need into .venv, fetches the two judges they decode with, and runs all checks.
# Arguments go to pytest, for example: bash scripts/test.sh -k scorer
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/install.sh docs tables dev
echo "== Fetching the judges of the tests"
.venv/bin/offline-summ judges fetch smollm2-135m qwen2.5-coder-1.5b
echo "== Linting"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
echo "== Testing"
exec .venv/bin/python -m pytest "$@"
