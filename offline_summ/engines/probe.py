"""What torch and vLLM say of this machine, as JSON: a program of its own, which loads no judge.

Importing vLLM takes seconds, and torch holds on to a GPU that it has looked at; both end with the process.
"""

import importlib
import json
import os
import sys
from typing import Any

from offline_summ.airgap import go_offline
from offline_summ.engines.cpu import computes_in_16_bits
from offline_summ.engines.vllm_process import cause_of, import_error

_ENGINE = "vllm.v1.engine.async_llm"


def probe() -> dict[str, Any]:
    """Return what can be known without a judge.

    Returns:
        `torch`: version, `cuda` (version of CUDA that it is built for, or null) and `computes_in_16_bits`;
        `gpus`: name, and total and free bytes, of each; `vllm`: version. In place of `torch` or `vllm` an
        `error`, with the `hint` what to do.
    """
    found: dict[str, Any] = {"gpus": []}
    try:
        import torch

        found["torch"] = {
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "computes_in_16_bits": computes_in_16_bits(),
        }
        for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            free, total = torch.cuda.mem_get_info(number)
            name = torch.cuda.get_device_name(number)
            found["gpus"].append({"name": name, "total_bytes": total, "free_bytes": free})
    except Exception as error:  # noqa: BLE001 - a broken build raises whatever its libraries raise
        found["torch"] = {"error": cause_of(error), "hint": "Install it again."}
    try:
        importlib.import_module(_ENGINE)
        found["vllm"] = {"version": str(importlib.import_module("vllm").__version__)}
    except Exception as error:  # noqa: BLE001 - as above
        said = import_error(error)
        found["vllm"] = {"error": said.message.rstrip("."), "hint": said.hint}
    return found


def main() -> None:
    """Write what `probe` returns to standard output, and nothing else: libraries may print there too."""
    go_offline(os.environ)
    os.environ["VLLM_CONFIGURE_LOGGING"] = "0"
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(probe(), output)
    output.flush()
    sys.stderr.flush()
    os._exit(0)  # what vLLM and torch do at the end takes seconds


if __name__ == "__main__":
    main()
