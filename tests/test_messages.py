import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from offline_summ.errors import InputError, UsageError
from offline_summ.messages import ToolResult, extract_tool_results, run_of, source_of, summary_of, text_of

EXAMPLE_RUN = Path(__file__).parents[1] / "examples" / "run.json"

USER = {"role": "user", "content": "The mill opened."}
ASSISTANT = {"role": "assistant", "content": "It opened."}


class ChatMessage(BaseModel):
    role: str
    content: Any
    tool_calls: list[Any] | None = None


@dataclass
class Record:
    role: str
    content: Any


class DumpOnly:
    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def model_dump(self) -> dict[str, Any]:
        return self._fields


class Role(Enum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass
class Part:
    part_kind: str
    content: Any
    tool_name: str | None = None
    tool_call_id: str | None = None


@dataclass
class KindMessage:
    kind: str
    parts: list[Part]


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.extend([value, value, "seen"])
    return value


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["content"] = value["messages"] = value["parts"] = value
    return value


def nested_list(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


def nested_content(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = {"content": value}
    return value


# --- text_of -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ("  spaces and\r\nline ends stay \n", "  spaces and\r\nline ends stay \n"),
        ("図書館は再開した。", "図書館は再開した。"),
        ("שלום עולם \u200f", "שלום עולם \u200f"),
        ("👩\u200d👩\u200d👧 family", "👩\u200d👩\u200d👧 family"),
        ("bell\x07 and null\x00", "bell\x07 and null\x00"),
        (["one", "two"], "one\ntwo"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "output_text", "text": "out"}, {"type": "input_text", "text": "in"}], "out\nin"),
        ([{"text": "gemini"}, "bare"], "gemini\nbare"),
        ({"content": "x"}, "x"),
        ({"text": "x"}, "x"),
        ({"parts": [{"text": "x"}, {"text": "y"}]}, "x\ny"),
        ({"content": {"parts": ["a", {"content": ["b"]}]}}, "a\nb"),
        ({"type": "text", "text": {"value": "assistants api", "annotations": []}}, "assistants api"),
        (("a", "b"), "a\nb"),
        (ChatMessage(role="user", content=[{"type": "text", "text": "model"}]), "model"),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "attached"}},
            "attached",
        ),
    ],
)
def test_text_of_reads_every_shape_of_content(content, text):
    assert text_of(content) == text


@pytest.mark.parametrize(
    "content",
    [
        None,
        42,
        1.5,
        True,
        b"bytes",
        "",
        [],
        {},
        [[], [{}]],
        object(),
        Path("a/b"),
        str,
        {"content": None},
        {"content": 7},
        [None, 1, {"text": 2}],
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "reasoning", "text": "thinking aloud"},
        {"type": "thinking", "thinking": "thinking aloud", "text": "thinking aloud"},
        {"type": "tool_use", "name": "search", "input": {"text": "query"}},
        {"type": "tool-result", "content": "fetched"},
        {"text": "thinking aloud", "thought": True},
    ],
)
def test_what_is_not_text_carries_none(content):
    assert text_of(content) == ""


def test_parts_that_are_not_text_leave_no_gap():
    parts = [{"type": "text", "text": "a"}, {"type": "image", "image": "…"}, {"type": "text", "text": "b"}]
    assert text_of(parts) == "a\nb"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["Sales rose in 2023", "Profit fell"], "Sales rose in 2023\nProfit fell"),
        (["Sales rose ", "by 3 percent"], "Sales rose by 3 percent"),
        (["Sales rose", " by 3 percent"], "Sales rose by 3 percent"),
        (["one\n\n", "two"], "one\n\ntwo"),
        (["one", "", "two"], "one\ntwo"),
    ],
)
def test_parts_meet_in_a_line_break_unless_the_seam_has_white_space(parts, text):
    assert text_of(parts) == text


def test_parts_count_more_than_a_content_that_repeats_only_the_last_of_them():
    content = {
        "format": 2,
        "parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "content": "b",
    }
    assert text_of(content) == "a\nb"


def test_empty_content_gives_way_to_parts_and_empty_parts_to_content():
    assert text_of({"content": "", "parts": [{"type": "text", "text": "in parts"}]}) == "in parts"
    assert text_of({"content": "in content", "parts": []}) == "in content"


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r'"a\ud800b"', "a\ufffdb"),
        (r'"a\udc00"', "a\ufffd"),
        (r'"\ud800"', "\ufffd"),
        (r'"\ud83d\ude00"', "😀"),
    ],
)
def test_a_lone_surrogate_becomes_the_replacement_character(escaped, text):
    result = text_of(json.loads(escaped))
    assert result == text
    assert result.encode("utf-8").decode("utf-8") == text


def test_a_split_pair_of_surrogates_is_one_character_again():
    assert text_of("\ud83d\ude00") == "😀"


def test_lone_surrogates_leave_source_and_summary_too():
    assert source_of("a\ud800", None) == "a\ufffd"
    assert source_of(None, None, source=["a\ud800", "b"]) == "a\ufffd\n\nb"
    assert summary_of({"text": "a\ud800"}) == "a\ufffd"


@pytest.mark.parametrize("nest", [nested_list, nested_content])
def test_deep_nesting_holds_no_text_and_shallow_nesting_does(nest):
    assert text_of(nest(20)) == "deep"
    assert text_of(nest(5000)) == ""
    assert summary_of(nest(5000)) == ""
    assert source_of(nest(5000), None) == ""
    assert extract_tool_results(nest(5000)) == []


def test_cycles_end():
    assert text_of(cyclic_list()) == "seen"
    assert text_of(cyclic_dict()) == ""
    assert summary_of(cyclic_list()) == "seen"
    assert summary_of(cyclic_dict()) == ""
    assert source_of(cyclic_dict(), None) == ""
    assert extract_tool_results(cyclic_dict()) == []
    assert extract_tool_results(cyclic_list()) == []


# --- source_of ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run_input",
    [
        "The mill opened.",
        USER,
        [USER],
        {"inputMessages": [USER]},
        {"messages": [USER]},
        {"prompt": "The mill opened."},
        {"text": "The mill opened."},
        {"content": "The mill opened."},
        {"input": "The mill opened."},
        {"user": "The mill opened."},
        {"input": {"messages": [USER]}},
        {"prompt": [USER, ASSISTANT]},
        {"messages": [], "prompt": "The mill opened."},
        {"messages": [{"role": "system", "content": "Be brief."}], "input": "The mill opened."},
        {"user": "alice", "input": "The mill opened."},
        {"type": "summarize", "input": "The mill opened."},
        {"role": "admin", "input": "The mill opened."},
        ["The mill opened."],
        [{"type": "text", "text": "The mill opened."}],
        [
            {"role": "system", "content": "Be brief."},
            ASSISTANT,
            USER,
            {"role": "user", "content": "Shorter."},
        ],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, USER],
        [{"role": "USER", "content": "The mill opened."}],
        [{"role": "human", "content": "The mill opened."}],
        [{"type": "human", "content": "The mill opened."}],
        [("system", "Be brief."), ("human", "The mill opened.")],
        [ChatMessage(role="user", content="The mill opened.")],
        {"messages": [Record("system", "Be brief."), Record("user", [{"text": "The mill opened."}])]},
        [Record(Role.USER, "The mill opened.")],
        [DumpOnly({"role": "user", "content": "The mill opened."})],
        {"contents": [{"role": "user", "parts": [{"text": "The mill opened."}]}]},
        [
            KindMessage(
                "request", [Part("system-prompt", "Be brief."), Part("user-prompt", "The mill opened.")]
            )
        ],
        [
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "schema", "messages", "HumanMessage"],
                "kwargs": {"content": "The mill opened."},
            }
        ],
    ],
)
def test_the_source_is_the_first_user_message_that_carries_text(run_input):
    assert source_of(run_input, "ignored") == "The mill opened."


@pytest.mark.parametrize(
    "run_input",
    [
        None,
        7,
        "",
        [],
        {},
        [None],
        [ASSISTANT],
        ASSISTANT,
        {"messages": [ASSISTANT]},
        {"user": {"id": 7}},
        {"x": "y"},
    ],
)
def test_an_input_without_user_text_gives_an_empty_source(run_input):
    assert source_of(run_input, [USER]) == ""


def test_all_text_parts_of_the_user_message_are_kept_in_order():
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}],
    }
    assert source_of({"inputMessages": [message]}, None) == "first\nsecond"


def test_a_given_source_beats_the_messages_and_the_extractor_beats_both():
    assert source_of(USER, ASSISTANT, source="given") == "given"
    assert source_of(USER, ASSISTANT, source="given", extractor=lambda _in, _out: "extracted") == "extracted"


def test_the_extractor_gets_input_and_output():
    seen = []
    assert source_of("in", ["out"], extractor=lambda *args: seen.append(args) or "x") == "x"
    assert seen == [("in", ["out"])]


def test_a_given_empty_source_is_not_replaced_by_the_messages():
    assert source_of(USER, None, source="") == ""
    assert source_of(USER, None, source=[]) == ""
    assert source_of(USER, None, extractor=lambda _in, _out: "") == ""


def test_context_texts_are_joined_with_a_blank_line_between():
    assert source_of(USER, None, source=["a", "  ", "b\n"]) == "a\n\nb\n"
    assert source_of(USER, None, extractor=lambda _in, _out: ("a", "b")) == "a\n\nb"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "The option 'source' is a value of type 'int', not a text."),
        ({"text": "secret"}, "The option 'source' is a value of type 'dict', not a text."),
        (b"secret", "The option 'source' is a value of type 'bytes', not a text."),
        (["secret", 2], "The option 'source' is a value whose item 2 is of type 'int', not a text."),
    ],
)
def test_a_source_that_is_no_text_is_refused_by_its_type(given, message):
    with pytest.raises(UsageError) as caught:
        source_of(USER, None, source=given)
    assert caught.value.message == message
    assert caught.value.hint == "Give a str, or a list of str."


def test_an_extractor_that_returns_no_text_is_refused_by_its_type():
    with pytest.raises(UsageError, match=r"The extractor returned a value of type 'NoneType', not a text\."):
        source_of(USER, None, extractor=lambda _in, _out: None)


# --- summary_of --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run_output",
    [
        "It opened.",
        ASSISTANT,
        [ASSISTANT],
        {"text": "It opened."},
        {"content": "It opened."},
        {"content": [{"type": "text", "text": "It opened."}]},
        {"messages": [USER, ASSISTANT]},
        {"outputMessages": [ASSISTANT]},
        {"choices": [{"index": 0, "message": ASSISTANT}]},
        {
            "choices": [
                {"message": ASSISTANT},
                {"message": {"role": "assistant", "content": "Another answer."}},
            ]
        },
        {"choices": [{"text": "It opened."}]},
        {"output": "It opened."},
        {"output": {"text": "It opened."}},
        {"summary": "It opened."},
        {"text": "", "response": {"messages": [ASSISTANT]}},
        ["It opened."],
        [{"type": "text", "text": "It opened."}],
        [{"role": "assistant", "content": "Let me look."}, ASSISTANT, {"role": "user", "content": "Thanks."}],
        [
            ASSISTANT,
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        ],
        [ASSISTANT, {"role": "assistant", "content": " "}],
        [
            ASSISTANT,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        ],
        [ASSISTANT, {"role": "tool", "content": "fetched"}],
        [{"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "It opened."}]}],
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "It opened."}]}}]},
        [{"role": "ai", "content": "It opened."}],
        [{"type": "ai", "content": "It opened."}],
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "It opened."}],
        },
        {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "It opened."}],
                },
            ]
        },
        [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "It opened."}],
        ChatMessage(role="assistant", content="It opened."),
        [Record("user", "Hi."), Record("assistant", "It opened.")],
        {"choices": [{"message": ChatMessage(role="assistant", content="It opened.")}]},
        DumpOnly({"choices": [{"message": ASSISTANT}]}),
        [
            KindMessage("request", [Part("user-prompt", "Hi.")]),
            KindMessage("response", [Part("text", "It opened.")]),
        ],
        [
            {
                "role": "assistant",
                "content": "",
                "parts": [{"type": "step-start"}, {"type": "text", "text": "It opened."}],
            }
        ],
    ],
)
def test_the_summary_is_the_last_assistant_message_that_carries_text(run_output):
    assert summary_of(run_output) == "It opened."


@pytest.mark.parametrize(
    "run_output",
    [
        None,
        0,
        "",
        [],
        {},
        [[], {}],
        USER,
        [USER],
        {"choices": []},
        {"choices": [{"message": {"role": "assistant", "content": None}}]},
        {"content": {"type": "reasoning", "id": 1}},
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}],
        [{"role": "tool", "tool_call_id": "1", "content": "fetched"}],
    ],
)
def test_an_output_without_assistant_text_gives_an_empty_summary(run_output):
    assert summary_of(run_output) == ""


def test_all_text_parts_of_the_last_message_are_joined_in_order():
    parts = [
        {"type": "text", "text": "图书馆"},
        {"type": "tool-call", "toolName": "f"},
        {"type": "text", "text": "重新开放"},
    ]
    assert summary_of([{"role": "assistant", "content": parts}]) == "图书馆\n重新开放"


def test_a_list_without_roles_is_joined_in_order():
    assert summary_of(["one", "two"]) == "one\ntwo"
    assert (
        summary_of([{"type": "text", "text": "one"}, {"text": "two"}, {"content": "three"}])
        == "one\ntwo\nthree"
    )


# --- extract_tool_results ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run_output",
    [
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "fetch"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "page"},
        ],
        {
            "messages": [
                {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "fetch", "args": {}}]},
                {"type": "tool", "id": "run-9", "tool_call_id": "c1", "content": "page"},
            ]
        },
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolName": "fetch", "toolCallId": "c1", "result": "page"}],
        },
        [{"content": [{"type": "tool-result", "toolName": "fetch", "toolCallId": "c1", "output": "page"}]}],
        [
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolName": "fetch",
                        "toolCallId": "c1",
                        "output": {"type": "text", "value": "page"},
                    }
                ],
            }
        ],
        [
            {
                "role": "assistant",
                "parts": [
                    {
                        "type": "tool-invocation",
                        "toolInvocation": {
                            "state": "result",
                            "toolName": "fetch",
                            "toolCallId": "c1",
                            "args": {},
                            "result": "page",
                        },
                    }
                ],
            }
        ],
        [
            {
                "role": "assistant",
                "content": "",
                "toolInvocations": [
                    {"state": "result", "toolName": "fetch", "toolCallId": "c1", "result": "page"}
                ],
            }
        ],
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "tool-fetch", "toolCallId": "c1", "state": "output-available", "output": "page"}
                ],
            }
        ],
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "fetch", "input": {}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "page"}]},
        ],
        {
            "output": [
                {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "fetch", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "page"},
            ]
        },
        {"toolResults": [{"toolName": "fetch", "toolCallId": "c1", "result": "page"}]},
        {
            "toolResults": [
                {
                    "type": "tool-result",
                    "payload": {"toolName": "fetch", "toolCallId": "c1", "result": "page"},
                }
            ]
        },
        [KindMessage("request", [Part("tool-return", "page", tool_name="fetch", tool_call_id="c1")])],
        [
            ChatMessage(
                role="assistant", content=None, tool_calls=[{"id": "c1", "function": {"name": "fetch"}}]
            ),
            {"role": "tool", "tool_call_id": "c1", "content": "page"},
        ],
    ],
)
def test_a_tool_result_has_the_name_of_its_tool_in_every_shape(run_output):
    assert extract_tool_results(run_output) == [ToolResult("fetch", "page", "c1")]


def test_a_gemini_function_response_is_a_tool_result_without_a_call_id():
    output = [
        {"role": "user", "parts": [{"functionResponse": {"name": "fetch", "response": {"body": "page"}}}]}
    ]
    assert extract_tool_results(output) == [ToolResult("fetch", {"body": "page"}, None)]


def test_an_unknown_tool_has_no_name():
    assert extract_tool_results([{"role": "tool", "tool_call_id": "c9", "content": "page"}]) == [
        ToolResult(None, "page", "c9")
    ]
    assert extract_tool_results([{"role": "tool", "content": "page"}]) == [ToolResult(None, "page", None)]


def test_results_keep_their_order_and_their_values():
    output = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}],
        },
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "second"}]},
        {"role": "tool", "tool_call_id": "a", "content": '{"n": 1}'},
    ]
    assert extract_tool_results(output) == [
        ToolResult("g", [{"type": "text", "text": "second"}], "b"),
        ToolResult("f", '{"n": 1}', "a"),
    ]


def test_a_call_recorded_twice_is_one_result():
    invocation = {"state": "result", "toolName": "fetch", "toolCallId": "c1", "result": {"pages": 2}}
    message = {
        "role": "assistant",
        "parts": [{"type": "tool-invocation", "toolInvocation": invocation}],
        "toolInvocations": [invocation],
    }
    assert extract_tool_results([message]) == [ToolResult("fetch", {"pages": 2}, "c1")]


@pytest.mark.parametrize(
    "run_output",
    [
        None,
        5,
        "text",
        [],
        {},
        [ASSISTANT],
        [{"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "fetch"}}]}],
        [{"parts": [{"type": "tool-invocation", "toolInvocation": {"state": "call", "toolName": "fetch"}}]}],
        [{"role": "assistant", "tool_calls": [None, 3, {"id": 4}]}],
    ],
)
def test_an_output_without_finished_calls_has_no_tool_results(run_output):
    assert extract_tool_results(run_output) == []


def test_a_tool_result_can_be_the_source():
    run_output = [{"role": "tool", "content": [{"type": "text", "text": "page"}]}, ASSISTANT]
    text = source_of(
        USER, run_output, extractor=lambda _in, out: [text_of(r.result) for r in extract_tool_results(out)]
    )
    assert text == "page"


# --- run_of ------------------------------------------------------------------------------------------------


def test_a_run_is_its_input_and_its_output():
    assert run_of({"input": "a", "output": None, "id": 1}) == ("a", None)
    assert run_of({"runInput": [USER], "runOutput": [ASSISTANT]}) == ([USER], [ASSISTANT])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"input": "secret"}, "A run needs its input and its output, but has these keys: 'input'."),
        (
            {"question": "secret", "answer": "secret"},
            "A run needs its input and its output, but has these keys: 'question', 'answer'.",
        ),
        ({}, "A run needs its input and its output, but has these keys: none."),
        ({"k" * 500: 1}, f"A run needs its input and its output, but has these keys: '{'k' * 40}'."),
        (
            {str(n): n for n in range(12)},
            "A run needs its input and its output, but has these keys: "
            "'0', '1', '2', '3', '4', '5', '6', '7', '8', '9' and 2 more.",
        ),
        ([USER], "A run must be an object, but this is a list."),
        ("secret", "A run must be an object, but this is a text."),
        (None, "A run must be an object, but this is null."),
        (3.5, "A run must be an object, but this is a number."),
        (True, "A run must be an object, but this is a boolean."),
    ],
)
def test_anything_else_is_no_run_and_the_error_shows_no_values(data, message):
    with pytest.raises(InputError) as caught:
        run_of(data)
    assert caught.value.message == message
    assert caught.value.hint == (
        "Write one JSON object with the keys 'input' and 'output' (or 'runInput' and 'runOutput')."
    )


def test_the_example_run_has_a_source_a_summary_and_one_tool_result():
    run_input, run_output = run_of(json.loads(EXAMPLE_RUN.read_text(encoding="utf-8")))
    assert source_of(run_input, run_output).startswith("The harbour of Eastvik opened a new ferry pier")
    assert summary_of(run_output).startswith(
        "Eastvik opened a new ferry pier on 12 May. It is 85 metres long"
    )
    assert extract_tool_results(run_output) == [
        ToolResult("get_style_guide", "Use short sentences. Give figures as digits.", "call_1")
    ]
