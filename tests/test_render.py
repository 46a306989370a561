from typing import get_args

import pytest
from rich.console import Console

from offline_summ import ScriptedEngine, SummarizationScorer
from offline_summ.render import NOTES, as_json, result_view
from offline_summ.schemas import Note, SummarizationResult


def shown(result):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result_view(result))
    console.file.close()
    return " ".join(console.export_text().split())


@pytest.fixture
def result():
    engine = ScriptedEngine.judging({"It rained.": True}, {"Did it rain?": True})
    return SummarizationScorer(engine).score("Source.", "Summary.")


def test_every_note_has_words():
    assert set(NOTES) == set(get_args(Note))


@pytest.mark.parametrize("note", get_args(Note))
def test_every_note_is_shown_and_survives_json(result, note):
    noted = result.model_copy(update={"notes": (note,)})
    assert f"Note: {NOTES[note]}" in shown(noted)
    assert SummarizationResult.model_validate_json(as_json(noted)).notes == (note,)
