"""Options that several commands of the command line share. Knows nothing of what they do."""

from pathlib import Path
from typing import Annotated, Literal

import typer

ModelsOption = Annotated[
    list[Path] | None,
    typer.Option("--models", metavar="FILE", help="A models.toml of your own; may be given more than once."),
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="Folder for weights and logs. Default: $OFFLINE_SUMM_HOME, or one in the user's cache.",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
JudgeOption = Annotated[
    str | None,
    typer.Option("--judge", metavar="NAME|DIR", help="Judge: a name in models.toml or a model folder."),
]
ProtocolOption = Annotated[
    Literal["joint", "itemized"] | None,
    typer.Option("--protocol", help="How the judge is asked. Default: the judge's own."),
]
AxesOption = Annotated[
    Literal["both", "alignment", "coverage"],
    typer.Option("--axes", help="Axes to score; one alone is then the score."),
]
MaxQuestionsOption = Annotated[
    int | None,
    typer.Option("--max-questions", metavar="N", help="Most questions to draw from the source (10)."),
]
QuestionsOption = Annotated[
    Path | None,
    typer.Option(
        "--questions",
        metavar="FILE",
        help="Questions or facts to ask of the summary instead of drawn ones, one a line.",
    ),
]
ScaleOption = Annotated[float, typer.Option("--scale", metavar="X", help="What a perfect score is worth.")]
LanguageOption = Annotated[
    str | None,
    typer.Option("--language", metavar="CODE", help="Prompts: en, ja or zh. Default: by the source."),
]
PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", metavar="DIR", help="Prompts of your own that replace the shipped ones."),
]
ReasonOption = Annotated[
    Literal["composed", "judge", "none"],
    typer.Option("--reason", help="Compose the reason from the verdicts, or let the judge word it."),
]
ReasonsOption = Annotated[
    Literal["all", "failing", "none"] | None,
    typer.Option("--reasons", help="Verdicts to give reasons and evidence for; itemized only (all)."),
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Leave every text out of the result; scores and verdicts stay.")
]
CalibrationOption = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE|none",
        help="What `offline-summ calibrate` wrote; itemized only. Default: the shipped one.",
    ),
]
GrammarBackendOption = Annotated[
    Literal["guidance", "outlines", "xgrammar"] | None,
    typer.Option("--grammar-backend", help="What holds the judge to its grammars. Default: the judge's own."),
]
