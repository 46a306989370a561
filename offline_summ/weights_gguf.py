"""GGUF to a Hugging Face folder in bfloat16, in a process of its own.

The engines read no GGUF, so a judge that comes as one is dequantised once. The other process gives its
memory back (three times the weights), keeps its chatter to itself and sees neither network nor GPU.
Knows nothing of judges and of where the file came from.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from offline_summ.errors import WeightsError
from offline_summ.weights_files import OnProgress, Progress, disk_full, is_disk_full

STAGE = "converting"
_TENSORS = re.compile(r"GGUF tensors.*?(\d+)/(\d+) ")
_KEPT_LINES = 200


def convert_gguf(gguf: Path, folder: Path, on_progress: OnProgress) -> None:
    """Write the model in `gguf` to `folder` as safetensors in bfloat16, with tokenizer and chat template.

    Raises:
        WeightsError: the file cannot be converted on this machine; the message says why in one line.
        DiskFullError: the disk is full.
    """
    on_progress(Progress(STAGE, 0, None, "tensors"))
    package_root = str(Path(__file__).resolve().parent.parent)
    process = subprocess.Popen(
        # -P: a torch.py in the working directory of the user is not ours to import.
        [
            sys.executable,
            "-P",
            "-c",
            "from offline_summ.weights_gguf import main; main()",
            str(gguf),
            str(folder),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,  # universal newlines: each step of a progress bar is a line
        errors="replace",
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH")))),
        },
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        with process.stdout:
            for line in process.stdout:
                if step := _TENSORS.search(line):
                    on_progress(Progress(STAGE, int(step[1]), int(step[2]), "tensors"))
                elif line.strip():
                    lines = [*lines[1 - _KEPT_LINES :], line.strip()]
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:
        raise _conversion_error(gguf, folder, code, lines)


def _conversion_error(gguf: Path, folder: Path, code: int, lines: list[str]) -> WeightsError:
    output = "\n".join(lines)
    if is_disk_full(output) or code == -signal.SIGBUS:
        return disk_full(folder, None)
    if code == -signal.SIGKILL:
        needed = gguf.stat().st_size * 5 / 1e9
        return WeightsError(
            f"The conversion of '{gguf.name}' was killed, most likely for want of memory.",
            f"About {needed:.1f} GB of free memory are needed.",
        )
    if "operator torchvision::nms does not exist" in output:
        return WeightsError(
            "Transformers cannot load models here: the installed torchvision does not fit torch.",
            "Run `pip uninstall torchvision torchaudio torchcodec`; a judge of text needs none of them.",
        )
    last = lines[-1].rstrip(".") if lines else f"exit code {code}"
    return WeightsError(
        f"Cannot convert '{gguf.name}': {last}.", "Check that the file is a GGUF of a known architecture."
    )


def main() -> None:
    """Convert, in the process of its own: the GGUF file and the folder are the arguments."""
    gguf, folder = Path(sys.argv[1]), sys.argv[2]
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # Else save_pretrained writes a model that claims to be a GGUF still.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
