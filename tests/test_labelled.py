import hashlib
import json

import pytest

from offline_summ.errors import InputError
from offline_summ.labelled import LabelledItem, read_labelled

ROW = {
    "id": "r1",
    "lang": "en",
    "source": "It rained in Kyoto.",
    "summary": "It rained. It snowed.",
    "sentences": [{"text": "It rained.", "supported": True}, {"text": "It snowed.", "supported": False}],
    "key_facts": [{"text": "Where was it?", "covered": False}],
}


def written(tmp_path, *lines, name="labels.jsonl"):
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_labelled([path])
    assert caught.value.__cause__ is None
    return caught.value.message


def test_sentences_are_of_alignment_and_key_facts_of_coverage(tmp_path):
    items = read_labelled([written(tmp_path, json.dumps(ROW))])
    assert [(item.axis, item.text, item.label) for item in items] == [
        ("alignment", "It rained.", True),
        ("alignment", "It snowed.", False),
        ("coverage", "Where was it?", False),
    ]


def test_an_item_carries_what_the_judge_must_see(tmp_path):
    assert read_labelled([written(tmp_path, json.dumps(ROW))])[0] == LabelledItem(
        document=hashlib.sha256(b"It rained in Kyoto.").hexdigest(),
        row="r1",
        axis="alignment",
        language="en",
        source="It rained in Kyoto.",
        summary="It rained. It snowed.",
        text="It rained.",
        label=True,
    )


def test_summaries_of_one_source_are_one_document_in_all_files(tmp_path):
    other = {**ROW, "id": "r2", "summary": "Rain."}
    one = written(tmp_path, json.dumps(ROW), name="one.jsonl")
    two = written(tmp_path, json.dumps(other), json.dumps({**ROW, "source": "Sun."}), name="two.jsonl")
    items = read_labelled([one, two])
    assert [item.row for item in items] == ["r1"] * 3 + ["r2"] * 3 + ["r1"] * 3
    assert len({item.document for item in items[:6]}) == 1
    assert len({item.document for item in items}) == 2


def test_a_row_without_id_is_named_by_file_and_line(tmp_path):
    bare = {key: ROW[key] for key in ("source", "summary", "sentences")}
    item = read_labelled([written(tmp_path, "", json.dumps(bare))])[0]
    assert (item.row, item.language) == ("labels.jsonl:2", None)


def test_a_number_is_an_id(tmp_path):
    assert read_labelled([written(tmp_path, json.dumps({**ROW, "id": 7}))])[0].row == "7"


@pytest.mark.parametrize("empty", [{"key_facts": []}, {"key_facts": None}, {"id": None, "lang": None}])
def test_what_is_optional_may_be_empty_or_null(tmp_path, empty):
    assert len(read_labelled([written(tmp_path, json.dumps({**ROW, **empty}))])) >= 2


def test_other_keys_are_ignored(tmp_path):
    row = {**ROW, "votes": [1], "sentences": [{"text": "It rained.", "supported": True, "votes": [1, 0]}]}
    assert len(read_labelled([written(tmp_path, json.dumps(row))])) == 2


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n\r\n" + json.dumps(ROW).encode())
    assert len(read_labelled([path])) == 6


def test_a_unicode_line_separator_ends_no_line(tmp_path):
    row = json.dumps({**ROW, "source": "one\u2028two\x85three"}, ensure_ascii=False)
    assert read_labelled([written(tmp_path, row)])[0].source == "one\u2028two\x85three"


def test_a_row_may_label_nothing_but_a_file_may_not(tmp_path):
    bare = json.dumps({"source": "It rained.", "summary": "Rain."})
    assert len(read_labelled([written(tmp_path, bare, json.dumps(ROW))])) == 3
    path = written(tmp_path, bare)
    assert refusal(path) == f"{str(path)!r} has no labelled item."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": None}, "'source' is missing"),
        ({"source": " \n"}, "'source' is blank"),
        ({"source": ["SECRET"]}, "'source' is not a string"),
        ({"source": "SECRET \ud800"}, "'source' holds half of a surrogate pair, which is not text"),
        ({"summary": ""}, "'summary' is blank"),
        ({"id": ["SECRET"]}, "'id' is not a string"),
        ({"lang": " "}, "'lang' is blank"),
        ({"lang": "all"}, "'lang' is 'all', not a code such as 'en'"),
        ({"sentences": "SECRET"}, "'sentences' is not a list"),
        ({"sentences": ["SECRET"]}, "'sentences[0]' is not an object"),
        ({"sentences": [{"text": "SECRET"}]}, "'sentences[0].supported' is not true or false"),
        (
            {"sentences": [{"text": "SECRET", "supported": 1}]},
            "'sentences[0].supported' is not true or false",
        ),
        ({"key_facts": [{"text": "", "covered": True}]}, "'key_facts[0].text' is blank"),
        ({"key_facts": [{"covered": True}]}, "'key_facts[0].text' is missing"),
    ],
)
def test_a_wrong_row_is_named_by_line_and_key_and_never_quoted(tmp_path, change, said):
    path = written(tmp_path, json.dumps(ROW), json.dumps({**ROW, **change}))
    assert refusal(path) == f"{str(path)!r}, line 2: {said}."


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"source": "SECRET', "not JSON, unterminated string starting in column 12"),
        ('{"source": "SECRET"} SECRET', "not JSON, extra data in column 22"),
        ('["SECRET"]', "not a JSON object"),
        ("[" * 100_000, "JSON that is nested too deep or holds a number too long"),
        ("1" * 5000, "JSON that is nested too deep or holds a number too long"),
    ],
)
def test_a_line_that_is_no_json_object_is_named_and_never_quoted(tmp_path, line, said):
    path = written(tmp_path, json.dumps(ROW), line)
    assert refusal(path) == f"{str(path)!r}, line 2: {said}."


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        read_labelled([tmp_path / "labels.jsonl"])
    assert caught.value.message == f"{str(tmp_path / 'labels.jsonl')!r} does not exist."
