"""Scores a summary against its source with an open-weights judge model on your own machine.

    from offline_summ import SummarizationScorer

    with SummarizationScorer() as scorer:
        result = scorer.score(source, summary)
    print(result.score, result.reason)

Importing this package loads no model library, opens no connection and changes no setting.
"""

from offline_summ.engines.scripted import ScriptedEngine
from offline_summ.errors import (
    InputError,
    JudgeError,
    JudgeStoppedError,
    OfflineSummError,
    UsageError,
    WeightsError,
)
from offline_summ.evals import EvalInput, EvalItem, EvalsOutcome, arun_evals, run_evals
from offline_summ.judges import Judge
from offline_summ.messages import ToolResult, extract_tool_results
from offline_summ.options import SummarizationOptions
from offline_summ.schemas import Example, SummarizationResult
from offline_summ.scorer import SummarizationScorer

__all__ = [
    "EvalInput",
    "EvalItem",
    "EvalsOutcome",
    "Example",
    "InputError",
    "Judge",
    "JudgeError",
    "JudgeStoppedError",
    "OfflineSummError",
    "ScriptedEngine",
    "SummarizationOptions",
    "SummarizationResult",
    "SummarizationScorer",
    "ToolResult",
    "UsageError",
    "WeightsError",
    "arun_evals",
    "extract_tool_results",
    "run_evals",
]
