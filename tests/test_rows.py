"""Records to rows, and what is wrong with those that are none."""

import pytest

from offline_summ.errors import InputError
from offline_summ.rows import Columns, Row, refuse_missing, row_of

COLUMNS = Columns()


def problem(record, columns=COLUMNS):
    row = row_of(3, record, columns)
    assert (row.source, row.summary) == ("", "")
    assert row.number == 3
    return row.problem


def test_a_record_with_all_columns():
    record = {"id": "a", "source": "S.", "summary": "T.", "questions": ["Q?"], "other": 1}
    assert row_of(3, record, COLUMNS) == Row(3, "a", "S.", "T.", ("Q?",))


def test_id_and_questions_may_be_absent_or_empty():
    assert row_of(1, {"source": "S.", "summary": "T."}, COLUMNS) == Row(1, None, "S.", "T.")
    record = {"source": "S.", "summary": "T.", "id": "", "questions": ""}
    assert row_of(1, record, COLUMNS) == Row(1, None, "S.", "T.")


def test_columns_of_the_users_own():
    columns = Columns("text", "abstract", "key", "asked")
    record = {"text": "S.", "abstract": "T.", "key": 7, "asked": "One?\n\nTwo?"}
    assert row_of(1, record, columns) == Row(1, "7", "S.", "T.", ("One?", "Two?"))


def test_context_texts_are_joined():
    assert row_of(1, {"source": ["One.", "Two."], "summary": "T."}, COLUMNS).source == "One.\n\nTwo."


@pytest.mark.parametrize("keys", [("input", "output"), ("runInput", "runOutput")])
def test_a_run_in_place_of_the_two_texts(keys):
    messages = [{"role": "user", "content": "S."}], [{"role": "assistant", "content": "T."}]
    record = {"id": 9, **dict(zip(keys, messages, strict=True))}
    assert row_of(1, record, COLUMNS) == Row(1, "9", "S.", "T.")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ([], "It is no object with columns, but of type list."),
        ("text", "It is no object with columns, but of type text."),
        (None, "It is no object with columns, but of type NoneType."),
        ({}, "Column 'source' is missing."),
        ({"source": "S."}, "Column 'summary' is missing."),
        ({"source": None, "summary": "T."}, "Column 'source' is empty."),
        ({"source": 3, "summary": "T."}, "Column 'source' is of type number, not a text."),
        ({"source": {"a": 1}, "summary": "T."}, "Column 'source' is of type object, not a text."),
        ({"source": ["S.", 1], "summary": "T."}, "Column 'source', text 2, is of type number, not a text."),
        ({"source": "S.", "summary": ["T."]}, "Column 'summary' is of type list, not a text."),
        ({"source": "S.", "summary": True}, "Column 'summary' is of type true/false, not a text."),
        ({"source": "S.\0", "summary": "T."}, "Column 'source' holds NUL characters, so it is no text."),
        (
            {"source": "S.", "summary": "T.", "id": 1.5},
            "Column 'id' is of type number; give a text or a whole",
        ),
        ({"source": "S.", "summary": "T.", "id": True}, "Column 'id' is of type true/false; give a text"),
        ({"source": "S.", "summary": "T.", "id": "a\nb"}, "Column 'id' holds characters that are not print"),
        (
            {"source": "S.", "summary": "T.", "id": "\ud800"},
            "Column 'id' holds characters that are not print",
        ),
        ({"source": "S.", "summary": "T.", "id": 10**5000}, "Column 'id' is a number with too many digits."),
        ({"source": "S.", "summary": "T.", "questions": 3}, "Column 'questions': questions is of type int."),
        ({"source": "S.", "summary": "T.", "questions": ["Q?", "Q?"]}, "Column 'questions': question 2 rep"),
        ({"source": "S.", "summary": "T.", "questions": []}, "Column 'questions': 0 questions are given."),
    ],
)
def test_what_is_wrong_with_a_record(record, said):
    assert problem(record).startswith(said)


def test_a_column_that_was_named_must_be_there():
    record = {"source": "S.", "summary": "T."}
    assert problem(record, Columns(id="key")) == "Column 'key' is missing."
    assert problem(record, Columns(questions="asked")) == "Column 'asked' is missing."


def test_a_row_with_a_problem_keeps_its_id():
    assert row_of(3, {"id": "a", "source": "S."}, COLUMNS).id == "a"


def test_half_a_character_is_replaced_as_in_a_run():
    assert row_of(1, {"source": "S \ud83d.", "summary": "T."}, COLUMNS).source == "S \ufffd."


def test_a_table_without_a_column_is_refused():
    with pytest.raises(InputError, match="no column 'summary' among the 2 of its first line"):
        refuse_missing(COLUMNS, ["source", "text"], "a.csv")
    with pytest.raises(InputError, match="no column 'key'"):
        refuse_missing(Columns(id="key"), ["source", "summary", "id"], "a.csv")
    refuse_missing(COLUMNS, ["source", "summary"], "a.csv")
    refuse_missing(COLUMNS, ["input", "output"], "a.csv")
