"""What fails, and how: the right kind, the right step, and nobody waits for ever."""

import asyncio

import pytest

from offline_summ import ScriptedEngine, SummarizationOptions, SummarizationScorer
from offline_summ.engines.base import Completion
from offline_summ.errors import JudgeError, UsageError
from offline_summ.prompts import load_prompts

SOURCE = "The mill in Linz opened in 1912. Anna Berg ran it for thirty years. It closed in 1980."
SUMMARY = "Anna Berg ran the mill. It opened in 1950."
PROTOCOLS = ("joint", "itemized")


def base():
    return ScriptedEngine.judging({"Anna Berg ran the mill.": 0.9}, {"Did the mill open in 1912?": 0.1})


def engine(interfere):
    """A judge that does something before it answers."""
    inner = base()

    async def script(request):
        await interfere(request)
        return await inner.generate(request)

    return ScriptedEngine(script)


def score(judge, **options):
    options = SummarizationOptions(**{"protocol": "itemized", **options})
    with SummarizationScorer(judge, options) as scorer:
        return scorer.score(SOURCE, SUMMARY)


def test_every_example_that_waits_for_the_questions_of_its_source_has_a_time_limit():
    async def slow(request):
        await asyncio.sleep(3)

    options = SummarizationOptions(protocol="itemized", axes="coverage", timeout=0.2)

    async def work():
        async with SummarizationScorer(engine(slow), options) as scorer:
            return await asyncio.gather(*(scorer.ascore(SOURCE, f"{SUMMARY} {i}") for i in range(4)))

    for result in asyncio.run(work()):
        assert (result.failure.kind, result.failure.step) == ("timeout", "questions")


def test_a_scorer_is_used_at_once_by_many_after_it_was_closed():
    class Slow(ScriptedEngine):
        async def start(self):
            await asyncio.sleep(0.05)

    scorer = SummarizationScorer(Slow(base()._script), SummarizationOptions(protocol="itemized"))

    async def work():
        return await asyncio.gather(*(scorer.ascore(SOURCE, SUMMARY) for _ in range(3)))

    for _ in range(2):
        assert [result.status for result in asyncio.run(work())] == ["scored"] * 3
        scorer.close()


def test_a_judge_that_cannot_load_is_tried_once_for_all_who_wait():
    class Broken(ScriptedEngine):
        starts = 0

        async def start(self):
            Broken.starts += 1
            await asyncio.sleep(0.05)
            raise JudgeError("It is broken.")

    scorer = SummarizationScorer(Broken(base()._script), SummarizationOptions(protocol="itemized"))

    async def work():
        return await asyncio.gather(
            *(scorer.ascore(SOURCE, SUMMARY) for _ in range(5)), return_exceptions=True
        )

    for tried in (1, 2):
        assert [str(error) for error in asyncio.run(work())] == ["It is broken."] * 5
        assert Broken.starts == tried
    scorer.close()


@pytest.mark.parametrize("request_to_end", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["claims", "questions", "source_judgement", "coverage"])
def test_a_request_to_end_the_program_reaches_the_caller_from_every_step(step, request_to_end):
    async def end(request):
        if request.step == step:
            raise request_to_end

    with pytest.raises(type(request_to_end)):
        score(engine(end), timeout=20)


@pytest.mark.parametrize("failing", ["claims", "questions", "coverage"])
def test_the_step_of_a_failure_is_the_one_that_failed_and_not_one_that_was_cancelled(failing):
    async def fail(request):
        if request.step == failing:
            await asyncio.sleep(0.05)
            raise ValueError
        if request.step == "source_judgement":
            await asyncio.sleep(1)

    failure = score(engine(fail)).failure
    assert (failure.kind, failure.step) == ("judge_error", failing)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_time_limit_is_one_whatever_the_engine_makes_of_it(protocol):
    async def abort(request):
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            raise RuntimeError("aborted") from None

    assert score(engine(abort), protocol=protocol, timeout=0.1).failure.kind == "timeout"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_engine_that_cancels_by_itself_fails_the_example(protocol):
    async def cancel(request):
        raise asyncio.CancelledError

    failure = score(engine(cancel), protocol=protocol).failure
    assert (failure.kind, failure.message) == ("judge_error", "The engine cancelled the request by itself.")


@pytest.mark.parametrize(
    ("probabilities", "said"),
    [
        ({"Yes": 2.0, "No": -1.0}, "'Yes', 'No' are not from 0 to 1"),
        ({"Yes": 0.2, "No": 0.2}, "do not add up to 1"),
        (
            {"yes": 0.5, "no": 0.5},
            "asked for the probabilities of 'Yes', 'No', and gave those of 'yes', 'no'",
        ),
        ({}, "gave those of nothing"),
    ],
)
def test_what_are_no_probabilities_of_the_words_is_said(probabilities, said):
    def script(request):
        if request.verdict_words:
            return Completion(text="", probabilities=probabilities)
        return base()._script(request)

    failure = score(ScriptedEngine(script)).failure
    assert failure.kind == "judge_error"
    assert said in failure.message


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_half_a_character_in_a_question_does_not_spoil_the_result(protocol):
    options = SummarizationOptions(protocol=protocol)
    with SummarizationScorer(base(), options) as scorer:
        result = scorer.score(SOURCE, SUMMARY, questions=["Did \ud800 rain?", "\ud83d\ude00 smiled?"])
    assert result.preprocess_step_result.questions == ("Did \ufffd rain?", "😀 smiled?")
    assert "😀" in result.model_dump_json()


def test_a_scripted_judge_decides_the_text_that_is_asked_about():
    claims = {"Anna ran": 0.1, "Anna ran the mill": 0.9, "the mill": 0.2, "He said <text> is closed.": 0.3}
    judge = ScriptedEngine.judging(claims, {"Did it rain <text>?": 0.4})
    with SummarizationScorer(judge, SummarizationOptions(protocol="itemized", reasons="none")) as scorer:
        result = scorer.score("Anna ran the mill. He said <text> is closed.", SUMMARY)
    found = {c.claim: round(c.probability, 6) for c in result.preprocess_step_result.alignment}
    assert found == claims
    assert [round(q.probability, 6) for q in result.analyze_step_result.coverage] == [0.4]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Stated in the source:", "Stated  in the source:", "'supported', holds 'Stated  in the source:'"),
        ("Stated in the source:", "Stated\u00a0 in the source:", "block 'supported', holds"),
        ("Stated in the source:", "Stated\u2028in the source:", "block 'supported', holds"),
        ("Stated in the source:", "Stated\x7fin the source:", "block 'supported', holds"),
        ("Stated in the source:", "Stated " * 20 + ":", "80 characters at most"),
        ("claim_words %}Yes, No", "claim_words %}Yes, No,", "Give two or more words"),
        ("claim_words %}Yes, No", "claim_words %}Yes,, No", "Give two or more words"),
        ("Hypothesis: {{ claim }}", "{{ claim[500].x }}", "fails in block 'claim'"),
    ],
)
def test_faulty_prompts_are_refused_before_a_judge_loads(tmp_path, old, new, said):
    shipped = load_prompts().languages["en"]._files["itemized"]
    assert old in shipped
    file = tmp_path / "en" / "itemized.jinja"
    file.parent.mkdir()
    file.write_text(shipped.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        load_prompts(tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize("block", ["claims", "questions"])
def test_a_block_that_asks_nothing_is_refused(tmp_path, block):
    shipped = load_prompts().languages["en"]._files["itemized"]
    start = shipped.index(f"{{% block {block} %}}") + len(f"{{% block {block} %}}")
    end = shipped.index("{% endblock %}", start)
    file = tmp_path / "en" / "itemized.jinja"
    file.parent.mkdir()
    file.write_text(shipped[:start] + shipped[end:], encoding="utf-8")
    with pytest.raises(UsageError, match=f"block '{block}', is empty"):
        load_prompts(tmp_path)
