import pytest
from pydantic import ValidationError

from offline_summ.schemas import (
    AnalyzeStepResult,
    ClaimVerdict,
    Evidence,
    Failure,
    PreprocessStepResult,
    QuestionVerdict,
    RunRecord,
    SummarizationResult,
    Tokens,
)

RUN = RunRecord(
    judge="scripted",
    weights_sha256=None,
    prompts_sha256="0" * 64,
    protocol="joint",
    language="en",
    engine="scripted",
    versions={"offline-summ": "0.1.0"},
    seed=0,
    calls=2,
    tokens=Tokens(prompt=10, cached=4, generated=3),
    seconds=0.5,
)
EVIDENCE = Evidence(in_="source", start=0, end=5, quote="Rain.")
RESULT = SummarizationResult(
    id="a",
    status="scored",
    reason="Because.",
    preprocess_step_result=PreprocessStepResult(
        alignment=(
            ClaimVerdict(claim="It rained.", supported=True, evidence=(EVIDENCE,)),
            ClaimVerdict(claim="It snowed.", supported=False),
        ),
        questions=("Did it rain?",),
    ),
    analyze_step_result=AnalyzeStepResult(
        coverage=(QuestionVerdict(question="Did it rain?", answered=True),)
    ),
    run=RUN,
)


def test_the_result_has_the_documented_shape():
    dump = RESULT.model_dump(mode="json")
    assert set(dump) == {
        "id", "status", "score", "reason", "alignment_score", "coverage_score", "deciding_axis", "axes",
        "scale", "score_interval", "preprocess_step_result", "analyze_step_result", "notes", "failure",
        "input", "run",
    }  # fmt: skip
    assert dump["preprocess_step_result"]["alignment"][0] == {
        "claim": "It rained.",
        "supported": True,
        "unsure": None,
        "reason": None,
        "probability": None,
        "evidence": [{"in": "source", "start": 0, "end": 5, "quote": "Rain."}],
    }
    assert dump["analyze_step_result"]["coverage"][0]["question"] == "Did it rain?"
    assert set(dump["run"]) == {
        "judge", "weights_sha256", "prompts_sha256", "protocol", "calibration", "language", "engine",
        "dtype", "grammar_backend", "network", "versions", "seed", "calls", "tokens", "seconds",
    }  # fmt: skip


def test_scores_follow_from_the_verdicts():
    assert (RESULT.score, RESULT.alignment_score, RESULT.coverage_score) == (0.5, 0.5, 1.0)
    assert RESULT.deciding_axis == "alignment"


def test_the_dump_by_alias_is_camel_case_throughout():
    dump = RESULT.model_dump(mode="json", by_alias=True)
    assert dump["alignmentScore"] == 0.5
    assert dump["preprocessStepResult"]["alignment"][0]["evidence"][0]["in"] == "source"
    assert dump["run"]["weightsSha256"] is None
    assert not any("_" in key for key in dump)


@pytest.mark.parametrize("by_alias", [True, False])
def test_a_result_survives_the_way_to_json_and_back(by_alias):
    written = RESULT.model_dump_json(by_alias=by_alias)
    assert SummarizationResult.model_validate_json(written) == RESULT


@pytest.mark.parametrize("key", ["score", "alignment_score", "coverage_score", "alignmentScore"])
def test_a_written_score_that_differs_from_the_verdicts_is_refused(key):
    dump = RESULT.model_dump(mode="json")
    with pytest.raises(ValidationError, match="the verdicts give"):
        SummarizationResult.model_validate({**dump, key: 0.9})


def test_a_failed_result_has_no_number():
    failure = Failure(kind="timeout", message="Too slow.", step="coverage")
    failed = SummarizationResult(status="failed", failure=failure, run=RUN)
    assert (failed.score, failed.alignment_score, failed.coverage_score) == (None, None, None)
    assert failed.deciding_axis == "none"


def test_a_failure_needs_the_status_and_the_status_a_failure():
    failure = Failure(kind="timeout", message="Too slow.", step="coverage")
    with pytest.raises(ValidationError, match="if, and only if"):
        SummarizationResult(status="scored", failure=failure, run=RUN)
    with pytest.raises(ValidationError, match="if, and only if"):
        SummarizationResult(status="failed", run=RUN)


def test_results_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        RESULT.reason = "Other."


def test_unknown_keys_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        SummarizationResult.model_validate({**RESULT.model_dump(mode="json"), "grade": "A"})


def test_a_probability_outside_zero_to_one_is_refused():
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        ClaimVerdict(claim="It rained.", supported=True, probability=1.2)


@pytest.mark.parametrize("by_alias", [True, False])
def test_the_json_schema_names_what_a_written_result_holds(by_alias):
    schema = SummarizationResult.model_json_schema(mode="serialization", by_alias=by_alias)
    assert set(schema["properties"]) == set(RESULT.model_dump(by_alias=by_alias))
