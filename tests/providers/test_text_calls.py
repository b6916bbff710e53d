"""Tool calls written as text: every known form is found, and ordinary text is left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.provider import ToolSpec
from odin.providers.text_calls import TextCallFilter, TextCalls, find_calls
from tests.table import each

OFFERED = ("Read", "Grep", "EditTool", "WriteFile", "ExecuteCommand", "LS")
READ = {"file_path": "a.py"}


def list_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    return list(find_calls(text, OFFERED).calls)


FORMS = {
    "fence": '```json\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n```',
    "fence without language": '```\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n```',
    "fence of tildes": '~~~json\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n~~~',
    "fence of four": '````json\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n````',
    "tool and args": '```json\n{"tool": "Read", "args": {"file_path": "a.py"}}\n```',
    "toolName and toolInput": '```json\n{"toolName": "Read", "toolInput": {"file_path": "a.py"}}\n```',
    "function and parameters": '```json\n{"function": "Read", "parameters": {"file_path": "a.py"}}\n```',
    "name and input": '{"type": "tool_use", "id": "x", "name": "Read", "input": {"file_path": "a.py"}}',
    "arguments as a string": '```json\n{"name": "Read", "arguments": "{\\"file_path\\": \\"a.py\\"}"}\n```',
    "function object": '{"type": "function", "function": {"name": "Read", "arguments": {"file_path": "a.py"}}}',
    "tool_calls": '{"tool_calls": [{"id": "1", "type": "function", "function": '
    '{"name": "Read", "arguments": "{\\"file_path\\": \\"a.py\\"}"}}]}',
    "list of calls": '[{"name": "Read", "arguments": {"file_path": "a.py"}}]',
    "whole text": '  {"name": "Read", "arguments": {"file_path": "a.py"}}\n',
    "tool_call": '<tool_call>\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n</tool_call>',
    "tool_call around a fence": '<tool_call>\n```json\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n```\n'
    "</tool_call>",
    "tool_call that is never closed": '<tool_call>\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n',
    "tools": '<tools>{"name": "Read", "arguments": {"file_path": "a.py"}}</tools>',
    "fence around tool_call": '```xml\n<tool_call>{"name": "Read", "arguments": {"file_path": "a.py"}}</tool_call>'
    "\n```",
    "function with JSON": '<function=Read>{"file_path": "a.py"}</function>',
    "function with parameters": "<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>",
    "function in tool_call": "<tool_call>\n<function=Read>\n<parameter=file_path>a.py</parameter>\n</function>\n"
    "</tool_call>",
    "fence around function": "```\n<function=Read><parameter=file_path>a.py</parameter></function>\n```",
    "mistral list": '[TOOL_CALLS][{"name": "Read", "arguments": {"file_path": "a.py"}}]',
    "mistral list with a space": '[TOOL_CALLS] [{"name": "Read", "arguments": {"file_path": "a.py"}}]',
    "mistral name": '[TOOL_CALLS]Read[ARGS]{"file_path": "a.py"}',
    "mistral name and id": '[TOOL_CALLS]Read[CALL_ID]abc123def[ARGS]{"file_path": "a.py"}',
    "llama": '<|python_tag|>{"name": "Read", "parameters": {"file_path": "a.py"}}',
    "contract": '{"explanation": "", "taskCompleted": false, "executeTool": '
    '[{"toolName": "Read", "toolInput": {"file_path": "a.py"}}]}',
    "contract with one object": '{"explanation": "", "taskCompleted": false, "executeTool": '
    '{"toolName": "Read", "toolInput": {"file_path": "a.py"}}}',
    "another name": '```json\n{"name": "read_file", "arguments": {"file_path": "a.py"}}\n```',
    "a name with its namespace": '<tools>{"name": "functions.Read", "arguments": {"file_path": "a.py"}}</tools>',
    "trailing commas": '```json\n{"name": "Read", "arguments": {"file_path": "a.py",},}\n```',
    "python literal": "```json\n{'name': 'Read', 'arguments': {'file_path': 'a.py'}}\n```",
}


@each("text", FORMS.values())
def test_every_form_of_call_is_found(text: str) -> None:
    found = find_calls(text, OFFERED)
    assert found.calls == (("Read", READ),)
    assert found.text == ""


@each("text", FORMS.values())
def test_call_of_a_tool_that_is_not_offered_is_not_run(text: str) -> None:
    assert find_calls(text, ("Grep", "LS")).calls == ()


UNCLOSED_FORMS = {"tool_call that is never closed"}


@each("name", [name for name in FORMS if name not in UNCLOSED_FORMS])
def test_incomplete_call_is_never_run(name: str) -> None:
    text = FORMS[name].rstrip()
    complete = max(text.rfind("}"), text.rfind("</parameter>"))
    for end in range(len(text)):
        if end <= complete:
            assert list_calls(text[:end]) == [], text[:end]


NO_CALLS = {
    "prose": "I would read a.py first.",
    "other JSON": 'The config is:\n```json\n{"name": "shop", "version": "1.0"}\n```',
    "a manifest named like a tool": '```json\n{"name": "grep", "version": "1.0", "input": {"a": 1}}\n```',
    "a name without arguments": '{"name": "Read"}',
    "a schema": '{"name": "Read", "parameters": {"type": "object", "properties": {"file_path": {"type": "string"}}}}',
    "arguments that are no object": '{"name": "Read", "arguments": [1]}',
    "arguments in a broken string": '{"name": "Read", "arguments": "{oops"}',
    "code of another language": '```python\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n```',
    "a tag in code of another language": '```python\n<tool_call>{"name": "Read", "arguments": {}}</tool_call>\n```',
    "a tag that is only mentioned": "I would use `<tool_call>` here, then `</tool_call>`.",
    "an object in the middle of a sentence": 'Send {"name": "Read", "arguments": {"file_path": "a.py"}} to it.',
    "an object with more text below": '{"name": "Read", "arguments": {"file_path": "a.py"}}\nis what I would send.',
    "one bad call among good ones": '[{"name": "Read", "arguments": {}}, {"name": "Fly", "arguments": {}}]',
    "an unclosed string": '```json\n{"name": "Read", "arguments": {"file_path": "a.py}}\n```',
    "too many brackets": '```json\n{"name": "Read", "arguments": {"file_path": "a.py"}}}\n```',
    "deep nesting": "[" * 5000,
}


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS.keys())
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert find_calls(text, OFFERED) == TextCalls(text)


def test_text_before_a_call_stays_and_text_after_the_last_one_goes() -> None:
    text = "Let me look.\n\n" + FORMS["fence"] + "\nThen this.\n" + FORMS["tool_call"] + "\nThe file says 7."
    found = find_calls(text, OFFERED)
    assert found.text == "Let me look.\n\nThen this."
    assert found.calls == (("Read", READ), ("Read", READ))


def test_several_calls_in_one_block() -> None:
    one = '{"name": "Read", "arguments": {"file_path": "a.py"}}'
    two = '{"name": "bash", "arguments": {"command": "ls"}}'
    expected = [("Read", READ), ("ExecuteCommand", {"command": "ls"})]
    for text in (
        f"{one}\n{two}",
        f"[{one}, {two}]",
        f"```json\n{one}\n{two}\n```",
        f"<tool_call>{one}{two}</tool_call>",
    ):
        assert list_calls(text) == expected
    assert list_calls(f"<tool_call>\n{one}\n<tool_call>\n{two}") == expected


def test_a_fence_inside_an_argument_does_not_end_the_block() -> None:
    content = "# Title\n```sh\nmake\n```\n"
    text = f"```json\n{json.dumps({'name': 'WriteFile', 'arguments': {'file_path': 'R.md', 'content': content}})}\n```"
    assert list_calls(text) == [("WriteFile", {"file_path": "R.md", "content": content})]


def test_strings_may_contain_raw_line_breaks_and_regular_expressions() -> None:
    assert list_calls('{"name": "WriteFile", "arguments": {"file_path": "a", "content": "one\ntwo"}}') == [
        ("WriteFile", {"file_path": "a", "content": "one\ntwo"})
    ]
    assert list_calls('{"name": "Grep", "arguments": {"pattern": "\\d+\\\\s\\n"}}') == [
        ("Grep", {"pattern": "\\d+\\s\n"})
    ]


def test_contract_without_a_call_is_an_answer() -> None:
    found = find_calls('{"explanation": "All good.", "taskCompleted": true, "executeTool": []}', OFFERED)
    assert found == TextCalls("All good.", (), contract=True)


def test_parameters_are_converted_to_the_types_of_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "limit": {"type": "integer"},
            "all": {"type": "boolean"},
            "tags": {"type": "array"},
        },
    }
    text = (
        "<function=Read><parameter=file_path>\n12\n</parameter><parameter=limit>5</parameter>"
        '<parameter=all>True</parameter><parameter=tags>["a"]</parameter></function>'
    )
    args = {"file_path": "12", "limit": 5, "all": True, "tags": ["a"]}
    assert find_calls(text, [ToolSpec("Read", "", schema)]).calls == (("Read", args),)
    assert list_calls(text)[0][1]["limit"] == "5"


@pytest.mark.parametrize("line", ['<tool_call>{"name": ', '{"name": "x"\n', '```json\n{"name":\n', '{"name": "x"}\n'])
def test_reply_full_of_broken_calls_is_parsed_quickly(line: str) -> None:
    """Scanning each of them to the end of the text would take minutes."""
    assert list_calls(FORMS["tool_call"] + line * 3000 + "}") == [("Read", READ)]


@given(st.text() | st.text(alphabet='{}[]"`<>/=:,nametoolReadargumentsfunction \n'))
def test_parsing_any_text_never_fails(text: str) -> None:
    found = find_calls(text, OFFERED)
    assert found.calls or found.contract or found.text == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.sampled_from(OFFERED), st.dictionaries(st.text(), json_values, max_size=4))
def test_any_arguments_survive_parsing(name: str, args: dict[str, Any]) -> None:
    if args.get("type") == "object" and "properties" in args:
        return
    written = json.dumps({"name": name, "arguments": args})
    for text in (f"```json\n{written}\n```", f"<tool_call>{written}</tool_call>", written):
        assert list_calls(f"Now:\n{text}") == [(name, args)]


# --- filtering the stream ---


def filter_text(text: str, size: int) -> tuple[str, str]:
    text_filter = TextCallFilter(OFFERED)
    shown = "".join(text_filter.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert shown + text_filter.get_held_text() == text
    return shown, text_filter.get_held_text()


@pytest.mark.parametrize("size", [1, 3, 1000])
@each("text", FORMS.values())
def test_call_in_text_is_never_shown(text: str, size: int) -> None:
    shown, held = filter_text(f"I look.\n{text}", size)
    assert shown.strip() == "I look."
    assert find_calls(held, OFFERED).calls == (("Read", READ),)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_ordinary_text_is_not_held_back(size: int) -> None:
    text = (
        "Generics like `List<int>` and <b>tags</b>, [links](x) and {braces}.\n"
        '```python\n{\'a\': 1}\n```\n```json\n{"version": 2, "name": "x"}\n```\n[1, 2]\n<table>\n'
        '```json\n{"name": "shop", "version": "1.0"}\n```\n{"name": "shop"}\nThe end.'
    )
    assert filter_text(text, size) == (text, "")


def test_ordinary_text_is_shown_as_it_arrives() -> None:
    text_filter = TextCallFilter(OFFERED)
    assert text_filter.feed("Hello") == "Hello"
    assert text_filter.feed(" <") == " "
    assert text_filter.feed("b> ") == "<b> "
    assert text_filter.feed("\n``") == "\n"
    assert text_filter.feed("`js") == ""
    assert text_filter.feed("x\n{") == "```jsx\n{"
    assert text_filter.feed('"name": 1}\n```\n') == '"name": 1}\n```\n'


@given(st.text(alphabet='{}[]"`<>/=:,nametoolReadargumentsfunction \n~'), st.integers(1, 7))
def test_filter_loses_no_text(text: str, size: int) -> None:
    filter_text(text, size)
