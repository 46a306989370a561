"""The wheels of a bundle: those of pinned versions through pip, and that of offline-summ from what runs here.

From a checkout the wheel is built; from an installed package it is put together again out of the files that
its RECORD names, each checked against its digest there. Knows nothing of judges.
"""

import base64
import csv
import hashlib
import importlib.util
import io
import platform
import re
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from offline_summ.bundle_files import arriving, keeps, place
from offline_summ.bundle_pins import OWN
from offline_summ.errors import BundleError
from offline_summ.pip_command import run_pip
from offline_summ.weights_files import OnProgress, Progress

# Every file in a wheel that is made here is of 2 February 2020, as hatchling has it: same files, same bytes.
_EPOCH = {"SOURCE_DATE_EPOCH": "1580601600"}
_DATE = (2020, 2, 2, 0, 0, 0)
# What pip writes into a .dist-info folder when it installs.
_OF_THE_INSTALLER = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"}
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_")
_OLD_MANYLINUX = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}


def collect_wheels(
    versions: Mapping[str, str], folder: Path, ledger: Mapping[str, str], on_progress: OnProgress
) -> dict[str, str]:
    """Bring one wheel of each pinned version into `folder/wheels`, and return their digests by name.

    A wheel that is there with the digest of the ledger stays. Uses the network, through pip.

    Raises:
        BundleError: pip cannot fetch one.
        DiskFullError: the disk is full.
    """
    there = {_name_and_version(name): name for name in ledger if name.startswith("wheels/")}
    digests = {}
    for done, (name, version) in enumerate(versions.items()):
        on_progress(Progress("collecting wheels", done, len(versions), "files"))
        known = there.get((str(canonicalize_name(name)), str(Version(version))))
        if known is not None and keeps(folder, known, ledger[known]):
            digests[known] = ledger[known]
            continue
        wheel = _fetch(f"{name}=={version}", arriving(folder))
        digests[f"wheels/{wheel.name}"] = place(folder, wheel, f"wheels/{wheel.name}")
    return digests


def collect_own_wheel(folder: Path) -> dict[str, str]:
    """Make the wheel of offline-summ as it runs here, and return its digest by name.

    Raises:
        BundleError: it cannot be built, or an installed file was changed.
    """
    checkout = Path(__file__).resolve().parent.parent
    scratch = arriving(folder)
    if (checkout / "pyproject.toml").is_file():
        wheel = _build(checkout, scratch)
    else:
        wheel = pack_installed(metadata.distribution(OWN), scratch)
    return {f"wheels/{wheel.name}": place(folder, wheel, f"wheels/{wheel.name}")}


def pack_installed(distribution: metadata.Distribution, scratch: Path) -> Path:
    """Put the wheel of an installed pure distribution together again, the same bytes every time.

    Raises:
        BundleError: a file is missing or was changed since it was installed.
    """
    name = distribution.metadata["Name"].replace("-", "_")
    info = f"{name}-{distribution.version}.dist-info"
    tag = re.search(r"^Tag: (\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
    wheel = scratch / f"{name}-{distribution.version}-{tag[1] if tag else 'py3-none-any'}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(distribution.files or (), key=str):
            inside = file.as_posix()
            if file.hash is None or inside.startswith("../") or file.name in _OF_THE_INSTALLER:
                continue  # compiled files, the program in bin/, and what the installer noted
            content = _read_checked(Path(str(file.locate())), file.hash)
            archive.writestr(_member(inside), content)
            rows.writerow([inside, f"{file.hash.mode}={file.hash.value}", len(content)])
        rows.writerow([f"{info}/RECORD", "", ""])
        archive.writestr(_member(f"{info}/RECORD"), record.getvalue())
    return wheel


def least_glibc(names: list[str]) -> str:
    """Return the oldest glibc that all of these wheels run on, such as `"2.28"`; empty without any."""
    needed = [least for name in names if (least := _glibc_of(name)) is not None]
    return "{}.{}".format(*max(needed)) if needed else ""


def _glibc_of(name: str) -> tuple[int, int] | None:
    platforms = name.removesuffix(".whl").rsplit("-", 1)[-1].split(".")
    found = []
    for each in platforms:
        if match := _MANYLINUX.match(each):
            found.append((int(match[1]), int(match[2])))
        found += [version for prefix, version in _OLD_MANYLINUX.items() if each.startswith(prefix)]
    if not found and any(each.startswith("linux_") for each in platforms):  # built here
        libc, version = platform.libc_ver()
        return tuple(map(int, version.split(".")[:2])) if libc == "glibc" else None  # type: ignore[return-value]
    return min(found, default=None)


def _name_and_version(path: str) -> tuple[str, str]:
    try:
        name, version, _, _ = parse_wheel_filename(Path(path).name)
    except InvalidWheelFilename:
        return "", ""
    return str(name), str(version)


def _fetch(requirement: str, scratch: Path) -> Path:
    # `wheel` rather than `download`: a version that an index has as source only is built here.
    run_pip(
        ["wheel", "--no-deps", "--progress-bar", "off", "--wheel-dir", str(scratch), requirement],
        requirement,
        scratch,
        BundleError,
        _EPOCH,
    )
    return _only_wheel(scratch, requirement)


def _build(checkout: Path, scratch: Path) -> Path:
    # With hatchling at hand nothing is fetched; else pip fetches it for the build.
    at_hand = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    arguments = ["wheel", "--no-deps", *at_hand, "--wheel-dir", str(scratch), str(checkout)]
    run_pip(arguments, OWN, scratch, BundleError, _EPOCH)
    return _only_wheel(scratch, OWN)


def _only_wheel(scratch: Path, wanted: str) -> Path:
    found = list(scratch.glob("*.whl"))
    if len(found) != 1:
        raise BundleError(f"pip left no wheel of {wanted!r}.", "Run `pip wheel` on it to see why.")
    return found[0]


def _read_checked(path: Path, recorded: metadata.FileHash) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"The installed file {str(path)!r} cannot be read: {error.strerror}.",
            "Install offline-summ again.",
        ) from error
    digest = base64.urlsafe_b64encode(hashlib.new(recorded.mode, content).digest()).rstrip(b"=").decode()
    if digest != recorded.value:
        raise BundleError(
            f"The file {str(path)!r} was changed after it was installed.", "Install offline-summ again."
        )
    return content


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member
