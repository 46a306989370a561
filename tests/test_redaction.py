import json

import pytest
from rich.console import Console
from test_scorer import SUMMARY, claims, questions, score, scorer_of

from offline_summ import SummarizationOptions, SummarizationResult, SummarizationScorer, UsageError
from offline_summ.redaction import redacted
from offline_summ.render import result_view
from offline_summ.schemas import Evidence


def dumped(result):
    return result.model_dump_json()


class TestRedacted:
    def test_scores_verdicts_and_counts_stay(self):
        whole = score(claims(True, False), questions(True, True, False))
        bare = score(claims(True, False), questions(True, True, False), redact=True)
        assert (bare.score, bare.alignment_score, bare.coverage_score) == (0.5, 0.5, 2 / 3)
        assert [c.supported for c in bare.preprocess_step_result.alignment] == [True, False]
        assert [q.answered for q in bare.analyze_step_result.coverage] == [True, True, False]
        assert len(bare.preprocess_step_result.questions) == 3
        assert bare.deciding_axis == whole.deciding_axis == "alignment"
        assert bare.notes == ("redacted",)

    def test_no_claim_question_or_reason_is_in_it(self):
        whole = dumped(score(claims(True), questions(True)))
        bare = dumped(score(claims(True), questions(True), redact=True))
        for text in ("Claim 1.", "Question 1?"):
            assert text in whole
            assert text not in bare
        assert json.loads(bare)["reason"] is None

    def test_an_evidence_keeps_its_offsets_and_loses_its_quote(self):
        result = score(claims(True), questions(True))
        claim = result.preprocess_step_result.alignment[0]
        evidence = Evidence(**{"in": "source"}, start=4, end=8, quote="mill")
        claim = claim.model_copy(update={"evidence": (evidence,), "reason": "The mill is named."})
        step = result.preprocess_step_result.model_copy(update={"alignment": (claim,)})
        bare = redacted(result.model_copy(update={"preprocess_step_result": step}))
        kept = bare.preprocess_step_result.alignment[0]
        assert kept.evidence == (Evidence(**{"in": "source"}, start=4, end=8, quote=None),)
        assert (kept.claim, kept.reason) == (None, None)
        assert "mill" not in dumped(bare)

    def test_it_can_be_read_again(self):
        bare = score(claims(True, False), questions(True), redact=True)
        assert SummarizationResult.model_validate_json(dumped(bare)) == bare

    def test_it_is_shown_with_its_verdicts(self):
        console = Console(width=100)
        with console.capture() as shown:
            console.print(result_view(score(claims(True, False), questions(True), redact=True)))
        assert "0.50 of 1" in shown.get()
        assert shown.get().count("(redacted)") == 3
        assert "The texts were left out of this result." in shown.get()


def test_a_failure_keeps_its_kind_and_its_message():
    scorer, _ = scorer_of(claims(True), questions(True), redact=True)
    with scorer:
        assert scorer.score("", SUMMARY).failure.kind == "empty_source"


def test_results_with_and_without_texts_are_not_continued_in_one_file():
    digests = []
    for redact in (False, True):
        scorer, _ = scorer_of(claims(True), questions(True), redact=redact)
        with scorer:
            scorer.start()
            digests.append(scorer.settings_sha256())
    assert digests[0] != digests[1]


def test_what_is_neither_true_nor_false_is_refused():
    with pytest.raises(UsageError, match=r"redact is 'yes'\. Give True or False\."):
        SummarizationScorer(None, SummarizationOptions(redact="yes"))
