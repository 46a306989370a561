"""Checks results against what is installed: weights, prompts, calibration, packages, and their own verdicts.

Results are read one at a time and only their run records are kept, one for all results that share it. No
text of a result is kept or told. Knows nothing of engines and the command line.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from offline_summ.calibration import Calibration, shipped_calibration
from offline_summ.errors import InputError, OfflineSummError, WeightsError
from offline_summ.judge_sources import GgufSource, HubSource, WheelsSource
from offline_summ.judges import Judge, Registry
from offline_summ.prompts import PromptLibrary
from offline_summ.results_file import begins_a_result
from offline_summ.schemas import RunRecord, ScoresDifferError, SummarizationResult
from offline_summ.weights import AbsentWeightsError, PreparedJudge, ignore_progress, open_judge
from offline_summ.weights_files import OnProgress, manifest_source

State = Literal["same", "different", "not checkable"]

NETWORKS: Sequence[str | None] = (
    "namespace",
    "guard",
    "engine_namespace",
    "engine_guard",
    "open",
    None,
)
SHIPPED = "shipped"

_LINES_NAMED = 5
_PER_RESULT = ("calls", "tokens", "seconds", "network")


@dataclass
class Lines:
    """How many results something holds for, and the lines of the first few.

    Attributes:
        count: number of results.
        first: their line numbers, from 1; five at most.
    """

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Count the result on a line."""
        self.count += 1
        if len(self.first) < _LINES_NAMED:
            self.first.append(number)


@dataclass(frozen=True)
class SetUp:
    """Results that came about in the same way.

    Attributes:
        record: the run record of the first of them; calls, tokens, seconds and network are its own.
        results: number of results.
        networks: how the network was closed, and for how many of them.
    """

    record: RunRecord
    results: int
    networks: Mapping[str | None, int]


@dataclass(frozen=True)
class ResultsRead:
    """What a file of results holds.

    Attributes:
        results: number of results.
        set_ups: distinct set-ups, in the order in which they first come.
        differing_scores: results whose written scores are not those of their verdicts.
        unclosed: results whose network was open, or is not known.
        cut_line: number of a last line that a stopped run left unfinished; it is not counted.
    """

    results: int
    set_ups: tuple[SetUp, ...]
    differing_scores: Lines
    unclosed: Mapping[Literal["open", "unknown"], Lines]
    cut_line: int | None


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        what: what is compared.
        recorded: what the results say.
        installed: what this machine has, or why it has nothing to compare.
        state: how they compare.
    """

    what: str
    recorded: str
    installed: str
    state: State


def read_set_ups(lines: Iterable[bytes], name: str) -> ResultsRead:
    """Read results as `batch` writes them, or the one that `score --json` prints.

    Args:
        lines: the lines of the file, with their ends.
        name: what the file is called in errors.

    Raises:
        InputError: a line is no result, or there is none.
    """
    groups: dict[str, tuple[RunRecord, Counter[str | None]]] = {}
    differing = Lines()
    unclosed: dict[Literal["open", "unknown"], Lines] = {"open": Lines(), "unknown": Lines()}
    count, cut = 0, None
    for number, line in _whole_objects(lines):
        try:
            result, differs = _result_of(line)
        except (ValueError, RecursionError):
            if count and not line.endswith(b"\n") and begins_a_result(line.rstrip(b"\0")):
                cut = number
                break
            raise InputError(
                f"{name!r}, line {number}, is no result of this version of offline-summ.",
                "Give the file that `batch -o` wrote, or what `score --json` printed.",
            ) from None
        count += 1
        if differs:
            differing.add(number)
        record = result.run
        key = json.dumps(record.model_dump(mode="json", exclude=set(_PER_RESULT)), sort_keys=True)
        groups.setdefault(key, (record, Counter()))[1][record.network] += 1
        if record.network in ("open", None):
            unclosed["open" if record.network else "unknown"].add(number)
    if not count:
        raise InputError(f"{name!r} holds no result.", "Give a file with results.")
    set_ups = tuple(
        SetUp(record, networks.total(), {how: networks[how] for how in NETWORKS if networks[how]})
        for record, networks in groups.values()
    )
    return ResultsRead(count, set_ups, differing, unclosed, cut)


def _whole_objects(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line and its number; indented JSON, whose first line is a bracket only, as one object."""
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        if number == 1 and line.strip() == b"{":
            yield 1, line + b"".join(rest for _, rest in numbered)
            return
        yield number, line


def _result_of(line: bytes) -> tuple[SummarizationResult, bool]:
    """Return a result, and whether its written scores differ from its verdicts."""
    data: Any = json.loads(line.decode("utf-8"))
    try:
        return SummarizationResult.model_validate(data), False
    except ValidationError as error:
        if not any(
            isinstance(each.get("ctx", {}).get("error"), ScoresDifferError) for each in error.errors()
        ):
            raise
    written = set(SummarizationResult.model_computed_fields)
    names = written | set(map(to_camel, written))
    return SummarizationResult.model_validate({k: v for k, v in data.items() if k not in names}), True


class Installed:
    """What this machine has to compare results with; each judge's weights are read once.

    Args:
        registry: the judges.
        home: the folder for weights.
        prompts: the prompts.
        calibration: a calibration of the user's own, compared with any that is not the shipped one.
        on_progress: told of every piece of weights read.
    """

    def __init__(
        self,
        registry: Registry,
        home: Path,
        prompts: PromptLibrary,
        calibration: Calibration | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        """Read nothing yet."""
        self._registry = registry
        self._home = home
        self._prompts = prompts
        self._calibration = calibration
        self._on_progress = on_progress
        self._weights: dict[str, PreparedJudge | WeightsError] = {}

    def compare(self, record: RunRecord) -> list[Check]:
        """Compare a run record with this machine, as far as it can be.

        The digest of weights is computed from the files. Each of them is compared with the manifest that was
        written when they were prepared, and the source named there with the one that models.toml pins.
        """
        checks = [*self._compare_weights(record), self._compare_prompts(record)]
        if record.calibration is not None:
            checks.append(self._compare_calibration(record))
        return [*checks, *(_compare_version(name, said) for name, said in record.versions.items())]

    def _compare_weights(self, record: RunRecord) -> list[Check]:
        said = record.weights_sha256
        if said is None:
            why = f"engine {record.engine!r} has no weights to check"
            return [Check("weights", "none", why, "not checkable")]
        judge = self._registry.judges.get(record.judge)
        if judge is None:
            why = f"no judge {record.judge!r} in models.toml; give --models"
            return [Check("weights", said, why, "not checkable")]
        found = self._opened(judge)
        if isinstance(found, AbsentWeightsError):
            return [Check("weights", said, f"not here: {found.hint}", "not checkable")]
        if isinstance(found, WeightsError):
            return [Check("weights", said, found.message, "different")]
        return [_check("weights", said, found.weights_sha256), *_compare_pin(found)]

    def _opened(self, judge: Judge) -> PreparedJudge | WeightsError:
        if judge.name not in self._weights:
            try:
                self._weights[judge.name] = open_judge(judge, self._home, self._on_progress)
            except WeightsError as error:
                self._weights[judge.name] = error
        return self._weights[judge.name]

    def _compare_prompts(self, record: RunRecord) -> Check:
        what, prompts = f"prompts {record.language}", self._prompts.languages.get(record.language)
        if prompts is None:
            why = "no prompts of this language; give --prompts"
            return Check(what, record.prompts_sha256, why, "not checkable")
        return _check(what, record.prompts_sha256, prompts.sha256)

    def _compare_calibration(self, record: RunRecord) -> Check:
        used = record.calibration
        assert used is not None
        what = f"calibration {used.name}"
        try:
            found = shipped_calibration(record.judge) if used.name == SHIPPED else self._calibration
        except OfflineSummError as error:
            return Check(what, used.sha256, error.message, "different")
        if found is None:
            why = "none is shipped" if used.name == SHIPPED else "give the file with --calibration"
            return Check(what, used.sha256, why, "not checkable")
        return _check(what, used.sha256, found.sha256)


def _compare_pin(prepared: PreparedJudge) -> list[Check]:
    """Compare what the weights were prepared from with what models.toml says; a folder is used as it is."""
    match prepared.source:
        case GgufSource() | WheelsSource() as source:
            key, pinned = "sha256", source.sha256
        case HubSource() as source:
            key, pinned = "revision", source.revision
        case _:
            return []
    from_manifest = str(manifest_source(prepared.folder).get(key, "unknown"))
    return [
        replace(_check("origin of the weights", pinned, from_manifest), recorded=f"models.toml: {pinned}")
    ]


def _compare_version(name: str, said: str) -> Check:
    try:
        return _check(name, said, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, said, "not installed", "different")


def _check(what: str, recorded: str, installed: str) -> Check:
    return Check(what, recorded, installed, "same" if recorded == installed else "different")
