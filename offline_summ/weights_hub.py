"""Weights from a model hub, into a plain folder.

The list of files, their sizes and the digests of the large ones are asked for first, at one commit; a
file that is there already is not fetched again. Credentials, mirrors and proxies are those of
huggingface_hub. Knows nothing of judges.
"""

import fnmatch
from pathlib import Path
from typing import Any

from offline_summ.errors import WeightsError
from offline_summ.judge_sources import HubSource
from offline_summ.weights_files import OnProgress, Progress, digest_file, require_space

_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "LICENSE*")
# Second copies of the weights in other formats.
_UNWANTED = ("original/*", "metal/*", "onnx/*", "openvino/*", "consolidated*", ".*", "*/.*")
_STAGE = "downloading"


def download_repository(source: HubSource, folder: Path, on_progress: OnProgress, *, with_code: bool) -> str:
    """Bring what an engine needs of the repository into `folder`, and return the commit it came from.

    Args:
        source: the repository and its revision.
        folder: where the files go; what an interrupted fetch left there is used.
        on_progress: told of bytes.
        with_code: also bring Python files, for a judge whose entry trusts remote code.

    Raises:
        WeightsError: hub, repository or revision cannot be reached, or a file arrives damaged.
        DiskFullError: the disk is full.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils import tqdm as hub_tqdm

    wanted = (*_WANTED, "*.py") if with_code else _WANTED
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()  # its warnings of every retry go to stderr
    try:
        info = HfApi().model_info(source.repository, revision=source.revision, files_metadata=True)
        files = [each for each in info.siblings or () if _is_wanted(each.rfilename, wanted)]
        total, done = sum(each.size or 0 for each in files), 0
        require_space(folder, total - sum(_size(folder / each.rfilename) for each in files))

        class Bar(hub_tqdm):  # type: ignore[misc]
            """The bar of one file, drawn by the caller."""

            arrived = 0

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **{**options, "disable": True})

            def update(self, n: float | None = 1) -> bool | None:
                self.arrived += int(n or 0)
                on_progress(Progress(_STAGE, min(done + self.arrived, total), total, "bytes"))
                return None

        for each in files:
            hf_hub_download(
                source.repository,
                each.rfilename,
                revision=info.sha,
                local_dir=folder,
                tqdm_class=Bar,
            )
            _check(folder / each.rfilename, each)
            done += each.size or 0
            on_progress(Progress(_STAGE, done, total, "bytes"))
    except Exception as error:  # the hub client raises its own errors, those of httpx and of the system
        raise _hub_error(source, error) from error
    finally:
        hub_logging.set_verbosity(verbosity)
    return str(info.sha)


def _is_wanted(name: str, wanted: tuple[str, ...]) -> bool:
    if ".." in name.split("/") or name.startswith("/"):
        return False
    return any(fnmatch.fnmatchcase(name, each) for each in wanted) and not any(
        fnmatch.fnmatchcase(name, each) for each in _UNWANTED
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check(path: Path, promised: Any) -> None:
    """Compare a file with the digest that the hub states for it (large files only have one)."""
    if promised.lfs is None:
        return
    found = digest_file(path, lambda _: None)
    if found.sha256 != promised.lfs.sha256:
        path.unlink()
        raise WeightsError(
            f"{promised.rfilename!r} arrived with SHA-256 {found.sha256}, expected {promised.lfs.sha256}; "
            "it was deleted.",
            "Fetch again.",
        )


def _hub_error(source: HubSource, error: Exception) -> Exception:
    from huggingface_hub import errors as hub_errors

    if isinstance(error, WeightsError):
        return error
    if isinstance(error, hub_errors.GatedRepoError):
        return WeightsError(
            f"Repository {source.repository!r} asks for its licence to be accepted first.",
            "Accept it on the hub, then log in with `hf auth login`.",
        )
    if isinstance(error, hub_errors.RepositoryNotFoundError):
        return WeightsError(
            f"The hub has no repository {source.repository!r}, or does not show it to you.",
            "Check the name; for a private one log in with `hf auth login`.",
        )
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return WeightsError(f"Repository {source.repository!r} has no revision {source.revision!r}.")
    if isinstance(error, OSError) and error.errno is not None:
        return error  # a full disk, a folder that cannot be written: the caller knows where
    if isinstance(error, hub_errors.HfHubHTTPError):
        return WeightsError(
            f"The hub answered {error.response.status_code} for {source.repository!r}.", "Try again later."
        )
    return WeightsError(
        f"The model hub cannot be reached for {source.repository!r} ({type(error).__name__}).",
        "Check the network, or copy the model here and give its folder as the judge.",
    )
