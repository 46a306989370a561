"""A bundle: a folder that installs offline-summ and its judges on a machine without any network.

It holds wheels in the exact versions, prepared weights, the examples, `install.sh`, and the digest of every
file. Prompts, calibrations and models.toml travel in the wheel of offline-summ. Making one may use the
network and reads no document. A run that was stopped goes on where it was; two runs give the same digests.
"""

import errno
import os
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offline_summ.bundle_files import (
    ABOUT,
    INSTALLER,
    VERSIONS,
    arriving,
    finish,
    keeps,
    note,
    opened_folder,
    place,
    place_text,
)
from offline_summ.bundle_pins import (
    EngineKind,
    Pins,
    choose_engine,
    installed_extras,
    installed_pins,
    own_version,
    pins_from_text,
    pins_text,
    resolved_pins,
)
from offline_summ.bundle_wheels import collect_own_wheel, collect_wheels, least_glibc
from offline_summ.errors import BundleError, UsageError
from offline_summ.judge_sources import FolderSource
from offline_summ.judges import Judge
from offline_summ.resources import data_path
from offline_summ.weights import PreparedJudge, fetch_judge, ignore_progress
from offline_summ.weights_files import (
    MANIFEST,
    FileDigest,
    OnProgress,
    Progress,
    digest_file,
    disk_full,
    read_manifest,
)

_INSTALLER = Path(__file__).parent / "_bundle" / INSTALLER


@dataclass(frozen=True)
class Bundle:
    """A finished bundle.

    Attributes:
        folder: where it lies.
        files: how many files SHA256SUMS lists.
        size: their bytes.
        wheels: how many of them are wheels.
        sums_sha256: SHA-256 of SHA256SUMS itself, and so of the whole bundle.
    """

    folder: Path
    files: int
    size: int
    wheels: int
    sums_sha256: str


def make_bundle(
    folder: Path,
    judges: Sequence[Judge],
    home: Path,
    *,
    engine: EngineKind | None = None,
    models: Sequence[Path] = (),
    on_progress: OnProgress = ignore_progress,
) -> Bundle:
    """Collect into `folder` all that a machine without network needs. Uses the network.

    Args:
        folder: an empty folder, or one that an earlier run began.
        judges: the judges to take along; the first one scores the example at the end of the installation.
        home: the folder for weights, such as `default_home()`.
        engine: vLLM for which hardware; None is the one that is installed.
        models: the user's own files of judges, which travel with them.
        on_progress: told of every stage.

    Raises:
        UsageError: the engine or a judge cannot be bundled.
        BundleError: a wheel cannot be had, or the folder cannot be used.
        WeightsError: the weights of a judge cannot be had.
    """
    for judge in judges:
        _refuse_folders(judge)
    chosen, installed = choose_engine(engine)
    try:
        with opened_folder(folder) as ledger:
            pins = installed_pins(chosen) if installed else _resolved(chosen, folder, on_progress)
            place_text(folder, ABOUT, _about(pins, judges, models, []))
            digests = {VERSIONS: place_text(folder, VERSIONS, pins_text(pins, own_version()))}
            digests |= collect_wheels(pins.versions, folder, ledger, on_progress)
            digests |= collect_own_wheel(folder)
            about = _about(pins, judges, models, [name for name in digests if name.endswith(".whl")])
            for judge in judges:
                digests |= _collect_judge(fetch_judge(judge, home, on_progress), folder, on_progress)
            digests |= _collect_examples(folder)
            for number, file in enumerate(models, 1):
                name = f"models/{number}.toml"
                digests[name] = place_text(folder, name, file.read_text(encoding="utf-8"))
            digests[ABOUT] = place_text(folder, ABOUT, about)
            digests[INSTALLER] = place_text(folder, INSTALLER, _INSTALLER.read_text(encoding="utf-8"), 0o755)
            sums = finish(folder, digests)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder, None) from error
        raise BundleError(
            f"The bundle {str(folder)!r} cannot be written: {error.filename!r}: {error.strerror}.",
            "Run the command again when that is mended; it goes on from here.",
        ) from error
    size = sum((folder / name).stat().st_size for name in digests)
    return Bundle(folder, len(digests), size, sum(name.endswith(".whl") for name in digests), sums)


def _refuse_folders(judge: Judge) -> None:
    if all(isinstance(source, FolderSource) for source in judge.sources):
        raise UsageError(
            f"Judge {judge.name!r} is a folder of your own, which a bundle does not take along.",
            "Copy the folder yourself, and give it as --judge there.",
        )


def _resolved(engine: EngineKind, folder: Path, on_progress: OnProgress) -> Pins:
    """Return what pip chooses, or chose in an earlier run into this folder, whose wheels are there."""
    try:
        about = (folder / ABOUT).read_text(encoding="utf-8").splitlines()
        versions = pins_from_text((folder / VERSIONS).read_text(encoding="utf-8"))
    except OSError:
        about, versions = [], {}
    extras = installed_extras()
    if versions and {f"engine={engine}", f"soabi={_soabi()}", f"extras={' '.join(extras)}"} <= set(about):
        return Pins(engine, extras, versions)
    on_progress(Progress("choosing versions", 0, None, None))
    return resolved_pins(engine, arriving(folder))


def _collect_judge(prepared: PreparedJudge, folder: Path, on_progress: OnProgress) -> dict[str, str]:
    """Link or copy the weights, which were verified just now; no file of them is opened for writing."""
    if isinstance(prepared.source, FolderSource):
        raise UsageError(
            f"Judge {prepared.judge.name!r} is served by the folder {str(prepared.folder)!r} of your own.",
            "Copy the folder yourself, and give it as --judge there.",
        )
    promised = read_manifest(prepared.folder)
    if promised is None:
        raise BundleError(f"The manifest of {str(prepared.folder)!r} is gone.", "Run the command again.")
    manifest = digest_file(prepared.folder / MANIFEST, lambda _: None)
    expected: dict[str, FileDigest] = {**promised, MANIFEST: manifest}
    digests = {}
    for done, (name, each) in enumerate(sorted(expected.items())):
        on_progress(Progress("collecting weights", done, len(expected), "files"))
        inside = f"judges/{prepared.folder.name}/{name}"
        if not keeps(folder, inside, each.sha256):
            place(folder, _link_or_copy(prepared.folder / name, arriving(folder)), inside, each)
        else:
            note(folder, inside, each.sha256)
        digests[inside] = each.sha256
    return digests


def _link_or_copy(file: Path, scratch: Path) -> Path:
    made = scratch / file.name
    try:
        os.link(file.resolve(), made)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, made)
    return made


def _collect_examples(folder: Path) -> dict[str, str]:
    examples = data_path("examples")
    return {
        name: place_text(folder, name, file.read_text(encoding="utf-8"))
        for file in sorted(examples.rglob("*"))
        if file.is_file() and (name := f"examples/{file.relative_to(examples).as_posix()}")
    }


def _about(pins: Pins, judges: Sequence[Judge], models: Sequence[Path], wheels: list[str]) -> str:
    """Return what install.sh must know of the machine that it is for: one `key=value` a line."""
    lines = {
        "format": "1",
        "python": sysconfig.get_python_version(),
        # The build of Python that wheels must fit: implementation, version, architecture and C library.
        "soabi": _soabi(),
        "glibc": least_glibc([Path(name).name for name in wheels]),
        "engine": pins.engine,
        "extras": " ".join(pins.extras),
        "judges": " ".join(judge.name for judge in judges),
        "models": str(len(models)),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _soabi() -> str:
    return str(sysconfig.get_config_var("SOABI"))
