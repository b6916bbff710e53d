"""Hook declarations in two formats; invalid entries are reported and ignored."""

from typing import Any

import pytest

from odin.core.policy import CallbackHook
from odin.hooks.declaration import HOOK_EVENTS, HookDeclarations, HookFilters, make_callback_hook, parse_hooks
from tests.table import each


def parse(value: Any) -> tuple[list[Any], list[str]]:
    found = parse_hooks(value, "file")
    return list(found.hooks), list(found.warnings)


def test_claude_code_format_is_read():
    hooks, warnings = parse(
        {
            "PreToolUse": [
                {
                    "matcher": "Bash|Edit",
                    "hooks": [
                        {"type": "command", "command": "one", "timeout": 5},
                        {"type": "command", "command": "two"},
                    ],
                }
            ]
        }
    )
    assert warnings == []
    assert [(hook.event, hook.command, hook.timeout, hook.matcher) for hook in hooks] == [
        ("PreToolUse", "one", 5, "Bash|Edit"),
        ("PreToolUse", "two", 30, "Bash|Edit"),
    ]
    assert hooks[0].kind.points == ("PreToolUse",)


def test_odin_format_is_read_with_its_filters():
    hooks, warnings = parse(
        {
            "on_tool_batch_complete": [
                {
                    "name": "lint",
                    "command": ["make", "lint now"],
                    "tools": ["EditTool"],
                    "paths": ["src/**"],
                    "agents": ["main"],
                    "models": ["*"],
                    "min_changed_files": 2,
                    "only_on_error": True,
                    "append": "toast",
                },
                {"shell": "echo $HOME"},
            ]
        }
    )
    assert warnings == []
    lint, echo = hooks
    assert (lint.name, lint.command, lint.append) == ("lint", ("make", "lint now"), "toast")
    assert lint.filters == HookFilters(
        tools=("EditTool",),
        paths=("src/**",),
        agents=("main",),
        models=("*",),
        min_changed_files=2,
        only_on_error=True,
    )
    assert (echo.command, echo.name, echo.filters) == ("echo $HOME", "echo $HOME", HookFilters())


def test_every_hook_point_has_an_odin_event_and_claude_code_names_are_aliases():
    assert HOOK_EVENTS["on_tool_call"].points == HOOK_EVENTS["PreToolUse"].points == ("PreToolUse",)
    assert (
        HOOK_EVENTS["on_tool_result"].points
        == HOOK_EVENTS["PostToolUse"].points
        == HOOK_EVENTS["PostToolUseFailure"].points
    )
    assert HOOK_EVENTS["on_session_start"].points == HOOK_EVENTS["SessionStart"].points
    assert HOOK_EVENTS["on_before_compress"].points == HOOK_EVENTS["PreCompact"].points
    wanted = (
        "session_start session_end before_llm_call after_llm_call tool_call tool_result before_tool_result_append "
        "tool_batch_complete before_compress after_compress idle wait_confirm wait_question agent_error"
    )
    assert {f"on_{name}" for name in wanted.split()} <= set(HOOK_EVENTS)


INVALID: list[tuple[Any, str]] = [
    ("text", "file: hooks must be an object with event names as keys; it is ignored."),
    ({"PreTolUse": []}, 'file: unknown hook event "PreTolUse". Did you mean "PreToolUse"? It is ignored.'),
    (
        {"tool_call": []},
        'file: unknown hook event "tool_call". Did you mean "on_tool_call"? It is ignored.',
    ),
    ({"Stop": {}}, "file: hooks.Stop must be a list; it is ignored."),
    ({"Stop": ["echo"]}, "file: hooks.Stop[0] must be an object; this hook is ignored."),
    ({"Stop": [{}]}, "file: hooks.Stop[0] has no command; this hook is ignored."),
    ({"Stop": [{"command": "  "}]}, "file: hooks.Stop[0] has no command; this hook is ignored."),
    ({"Stop": [{"command": []}]}, "file: hooks.Stop[0] has no command; this hook is ignored."),
    ({"Stop": [{"command": 7}]}, "file: hooks.Stop[0] is ignored: command must be text or a list, not 7."),
    (
        {"Stop": [{"hooks": [{"type": "prompt", "prompt": "hm"}]}]},
        'file: unknown key "hooks.Stop[0].hooks[0].prompt" is ignored.',
    ),
    (
        {"Stop": [{"command": "x", "timeout": -1}]},
        "file: hooks.Stop[0] is ignored: timeout must be more than 0 and at most 3600, not -1.",
    ),
    (
        {"Stop": [{"command": "x", "timeout": "\ud800"}]},
        'file: hooks.Stop[0] is ignored: timeout must be a number, not "\ud800".',
    ),
    (
        {"PreToolUse": [{"matcher": "(", "command": "x"}]},
        "file: hooks.PreToolUse[0]: the matcher '(' is not a regular expression (missing ), unterminated subpattern "
        "at position 0). This hook is ignored.",
    ),
]


@each(("value", "said"), INVALID)
def test_invalid_hooks_are_reported_and_ignored(value: Any, said: str):
    hooks, warnings = parse(value)
    assert hooks == []
    assert warnings[0] == said


def test_unknown_key_is_reported_and_the_hook_stays():
    hooks, warnings = parse({"Stop": [{"command": "x", "timeut": 5}]})
    assert [hook.command for hook in hooks] == ["x"]
    assert warnings == ['file: unknown key "hooks.Stop[0].timeut" is ignored. Did you mean "timeout"?']


def test_valid_hooks_next_to_an_invalid_one_are_kept():
    hooks, warnings = parse(
        {"Stop": [{"command": 7}, {"command": "good"}], "Nothing": [], "Notification": [{"shell": "n"}]}
    )
    assert [hook.command for hook in hooks] == ["good", "n"]
    assert len(warnings) == 2


def test_callback_with_an_unknown_event_or_invalid_matcher_is_rejected():
    async def silent(call: dict[str, Any]) -> None:
        return None

    assert make_callback_hook(CallbackHook("mine", "PreToolUse", silent, "Bash", 3)).kind.points == ("PreToolUse",)
    with pytest.raises(ValueError, match=r'unknown hook event "PreToolUze".*Did you mean "PreToolUse"'):
        make_callback_hook(CallbackHook("mine", "PreToolUze", silent))
    with pytest.raises(ValueError, match="not a regular expression"):
        make_callback_hook(CallbackHook("mine", "PreToolUse", silent, "["))


def test_keys_of_chord_are_understood():
    def read(event: str, **keys: Any) -> HookDeclarations:
        return parse_hooks({event: [{"command": "lint", **keys}]}, "f")

    results = ("ignore", "notify_only", "append_on_failure", "always_append")
    read_as = [read("on_tool_batch_complete", result=word).hooks[0].append for word in results]
    assert read_as == ["", "toast", "failure", "context"]
    (hook,) = read("on_tool_batch_complete", join="background", environment={"LEVEL": "strict"}).hooks
    assert (hook.join, hook.name, hook.text) == ("background", "lint", "LEVEL=strict lint")
    assert read("on_stop", join="later").warnings[0].startswith("f: hooks.on_stop[0] is ignored: join ")
