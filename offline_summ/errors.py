"""The errors of this package, drawn as a tree, and the kinds of failure an example may end with.

    OfflineSummError                     exit code
    ├── UsageError                       2   an option, a judge name, models.toml or a prompt is wrong
    ├── InputError                       3   an input cannot be read as text
    ├── JudgeError                       4   the judge or its engine cannot work
    │   ├── WeightsError                 4   weights are missing, changed, or cannot be prepared
    │   └── JudgeStoppedError            4   the engine is gone, as after a crash
    ├── BundleError                      4   what a machine without network needs cannot be collected
    └── ExampleError                     -   one example cannot be scored; its kind becomes a `Failure`

Every error is one sentence (what happened, with the offending value in repr form) and one hint (what to
do next). No message ever carries text of a document. Knows nothing of the rest of the package.
"""

from typing import ClassVar, Literal, get_args

FailureKind = Literal[
    "empty_source",
    "empty_summary",
    "source_too_long",
    "truncated_reply",
    "invalid_reply",
    "judge_error",
    "unreadable_input",
    "timeout",
]

FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

EXIT_OK = 0
EXIT_BELOW_THRESHOLD = 1
EXIT_DIFFERENT = 1
EXIT_USAGE = 2
EXIT_INPUT = 3
EXIT_JUDGE = 4
EXIT_SOME_ROWS_FAILED = 5

_INPUT_FAILURES: frozenset[FailureKind] = frozenset(
    {"empty_source", "empty_summary", "source_too_long", "unreadable_input"}
)


def exit_code_of(kind: FailureKind) -> int:
    """Return the exit code of a command whose only example failed with `kind`."""
    return EXIT_INPUT if kind in _INPUT_FAILURES else EXIT_JUDGE


class OfflineSummError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        message: what happened, one sentence, with the offending value.
        hint: what to do next, one sentence; empty if there is nothing to do.
        exit_code: exit code of the command line.
    """

    exit_code: ClassVar[int] = EXIT_JUDGE

    def __init__(self, message: str, hint: str = "") -> None:
        """Keep the sentence and the hint apart, so that each front can show them its own way."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Sentence and hint in one line."""
        return f"{self.message} {self.hint}".strip()


class UsageError(OfflineSummError, ValueError):
    """An option or a configuration file says something that cannot be done."""

    exit_code = EXIT_USAGE


class InputError(OfflineSummError):
    """An input file cannot be read as text."""

    exit_code = EXIT_INPUT


class JudgeError(OfflineSummError):
    """The judge model or the engine that runs it cannot work."""

    exit_code = EXIT_JUDGE


class WeightsError(JudgeError):
    """The weights of a judge are missing, differ from their digest, or cannot be prepared."""


class JudgeStoppedError(JudgeError):
    """The engine is gone, with all requests on their way; closed and started again, it may work."""


class BundleError(OfflineSummError):
    """A wheel or a file that a bundle needs cannot be had, or the folder of the bundle cannot take it."""

    exit_code = EXIT_JUDGE


class ExampleError(OfflineSummError):
    """One example cannot be scored. The runner turns it into a `Failure` of the same kind.

    Attributes:
        kind: one of the failure kinds.
    """

    def __init__(self, kind: FailureKind, message: str, hint: str = "") -> None:
        """Add the failure kind to the sentence and the hint."""
        super().__init__(message, hint)
        self.kind: FailureKind = kind
