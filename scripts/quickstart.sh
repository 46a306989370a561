#!/usr/bin/env bash
# Installs offline-summ into .venv (for a GPU if there is one), fetches the default judge, and scores examples/.
# Needs Python 3.11 to 3.13 with pip. Run it again at any time: what is there is reused.
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/install.sh

echo "== Fetching the default judge"
.venv/bin/offline-summ judges fetch

echo "== Scoring examples/ (a minute to load the judge, then some minutes on a CPU)"
.venv/bin/python scripts/score_examples.py
