"""Interpretation of a hook's exit code and output, in every form, at every point."""

import json
from typing import Any

from odin.core.policy import NO_HOOK_EFFECT, HookCall, HookEffect, HookPoint
from odin.hooks.declaration import HookSpec
from odin.hooks.outcome import MAX_TEXT_CHARS, interpret_callback, interpret_program, merge_effects
from odin.sandbox.runner import CapturedOutput
from tests.table import each


def interpret_output(
    point: HookPoint, printed: Any = "", code: int = 0, errors: str = "", *, again: bool = False, **fields: Any
):
    data = (
        printed
        if isinstance(printed, bytes)
        else (printed if isinstance(printed, str) else json.dumps(printed)).encode()
    )
    hook = HookSpec(event=f"on_{point}", name="h", command="x", **fields)
    return interpret_program(hook, HookCall(point, stop_hook_active=again), CapturedOutput(code, data, errors))


@each(
    ("printed", "effect", "word"),
    [
        ("", NO_HOOK_EFFECT, "silent"),
        ("plain text", NO_HOOK_EFFECT, "silent"),
        ({}, NO_HOOK_EFFECT, "silent"),
        ({"suppressOutput": True, "continue": True}, NO_HOOK_EFFECT, "silent"),
        ({"decision": "", "message": ""}, NO_HOOK_EFFECT, "silent"),
        ({"decision": "allow"}, HookEffect("allow"), "allowed"),
        ({"decision": "approve", "reason": "fine"}, HookEffect("allow", "fine"), "allowed"),
        ({"decision": "ask", "message": "sure?"}, HookEffect("ask", "sure?"), "asked"),
        ({"decision": "deny", "message": "no"}, HookEffect("deny", "no"), "denied"),
        ({"decision": "block", "reason": "no"}, HookEffect("deny", "no"), "denied"),
        ({"action": "block", "message": "no"}, HookEffect("deny", "no"), "denied"),
        ({"action": "continue"}, NO_HOOK_EFFECT, "silent"),
        ({"action": "modify", "args": {"a": 1}}, HookEffect(args={"a": 1}), "modified"),
        (
            {"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"a": 1}}},
            HookEffect("allow", args={"a": 1}),
            "modified",
        ),
        (
            {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "because"}},
            HookEffect("deny", "because"),
            "denied",
        ),
        (
            {"hookSpecificOutput": {"permissionDecision": "ask"}, "decision": "approve"},
            HookEffect("ask"),
            "asked",
        ),
        ({"hookSpecificOutput": {"additionalContext": "know this"}}, HookEffect(context="know this"), "context"),
        ({"systemMessage": "look"}, HookEffect(context="look", notice="look"), "context"),
        ({"continue": False, "stopReason": "enough"}, HookEffect(message="enough", halt=True), "halted"),
    ],
)
def test_output_of_a_tool_call_hook_gives_the_verdict(printed: Any, effect: HookEffect, word: str):
    found = interpret_output("PreToolUse", printed)
    assert (found.effect, found.outcome, found.problem) == (effect, word, "")


@each(
    ("point", "effect"),
    [
        ("PreToolUse", HookEffect("deny", "no")),
        ("UserPromptSubmit", HookEffect("deny", "no")),
        ("PermissionRequest", HookEffect("deny", "no")),
        ("PreCompact", HookEffect("deny", "no")),
        ("PostToolUse", HookEffect("deny", "no")),
        ("on_before_tool_result_append", HookEffect("deny", "no")),
        ("Stop", HookEffect(message="no", continue_turn=True)),
        ("SubagentStop", HookEffect(message="no", continue_turn=True)),
        ("on_before_llm_call", HookEffect(message="no", halt=True)),
        ("on_tool_batch_complete", HookEffect(context="no")),
        ("SessionStart", HookEffect(notice="no")),
        ("on_idle", HookEffect(notice="no")),
    ],
)
def test_exit_code_2_blocks_what_the_point_can_block(point: HookPoint, effect: HookEffect):
    assert interpret_output(point, code=2, errors="no\n").effect == effect
    assert interpret_output(point, {"decision": "block", "reason": "no"}).effect == effect


def test_reason_of_exit_code_2_is_standard_error_or_else_the_output():
    assert interpret_output("PreToolUse", "out", code=2, errors="err").effect.message == "err"
    assert interpret_output("PreToolUse", "out", code=2).effect.message == "out"
    assert interpret_output("PreToolUse", {"reason": "in json"}, code=2).effect.message == "in json"
    assert interpret_output("PreToolUse", code=2).effect.message == "The hook h gave no reason."


@each(
    ("printed", "code", "errors", "problem"),
    [
        ("", 1, "broken pipe dream", "exit code 1. broken pipe dream"),
        ("", 127, "", "exit code 127."),
        ("", -9, "", "killed by signal 9."),
        ({"decision": "deny"}, 1, "", "exit code 1."),
        ('{"decision": "deny"', 0, "", "it printed invalid JSON: Input data was truncated."),
        ('{"decision": NaN}', 0, "", "it printed invalid JSON: "),
        (b'{"reason": "\xff"}', 0, "", "it printed invalid JSON: "),
        ('{"a":' * 5000, 0, "", "it printed invalid JSON: "),
        ({"decision": "maybe"}, 0, "", "its output is invalid: 'maybe' is not a decision."),
        ({"decision": 7}, 0, "", "its output is invalid: decision must be a string."),
        ({"continue": "no"}, 0, "", "its output is invalid: continue must be true or false."),
        ({"hookSpecificOutput": []}, 0, "", ""),
        ({"hookSpecificOutput": "x"}, 0, "", "its output is invalid: hookSpecificOutput must be an object."),
        ({"args": "x"}, 0, "", "its output is invalid: args must be an object."),
        ({"systemMessage": {}}, 0, "", "its output is invalid: systemMessage must be a string."),
    ],
)
def test_failed_hook_gives_no_verdict_and_a_problem(printed: Any, code: int, errors: str, problem: str):
    found = interpret_output("PreToolUse", printed, code, errors)
    assert found.effect == NO_HOOK_EFFECT
    assert found.problem.startswith(problem)
    assert found.outcome == ("failed" if problem else "silent")


def test_timeout_and_excessive_output_are_reported():
    hook = HookSpec(event="Stop", name="h", command="x", timeout=2)
    hang = interpret_program(hook, HookCall("Stop"), CapturedOutput(-9, b"", timed_out=True))
    assert (hang.outcome, hang.problem) == ("timed_out", "it did not finish within 2 s and was stopped.")
    flood = interpret_program(hook, HookCall("Stop"), CapturedOutput(-9, b"{", stopped=True))
    assert (flood.outcome, flood.problem) == ("failed", "it printed more than 1,000,000 bytes and was stopped.")


def test_plain_text_is_context_at_prompt_and_session_start_or_with_append():
    assert interpret_output("UserPromptSubmit", "today is Monday\n").effect == HookEffect(context="today is Monday")
    assert interpret_output("SessionStart", "branch main").effect == HookEffect(context="branch main")
    assert interpret_output("on_tool_batch_complete", "lint is red").effect == NO_HOOK_EFFECT
    assert interpret_output("on_tool_batch_complete", "lint is red", append="context").effect == HookEffect(
        context="lint is red"
    )
    assert interpret_output("on_tool_batch_complete", "lint is red", append="toast").effect == HookEffect(
        notice="lint is red"
    )


def test_hook_can_replace_the_output_of_a_result_but_not_of_a_call():
    assert interpret_output("PostToolUse", {"output": "clean"}).effect == HookEffect(output="clean")
    own = {"hookSpecificOutput": {"updatedToolOutput": {"a": 1}}}
    assert interpret_output("on_before_tool_result_append", own).effect == HookEffect(output='{"a":1}')
    assert interpret_output("PreToolUse", {"output": "clean"}).effect == NO_HOOK_EFFECT
    assert interpret_output("PostToolUse", {"args": {"a": 1}}).effect == NO_HOOK_EFFECT


def test_allow_is_ignored_at_points_without_a_permission_decision():
    for point in ("UserPromptSubmit", "PostToolUse", "Stop", "SessionStart"):
        assert interpret_output(point, {"decision": "allow", "reason": "yes"}).effect == NO_HOOK_EFFECT
    request = {"hookSpecificOutput": {"decision": {"behavior": "allow", "updatedInput": {"a": 1}}}}
    assert interpret_output("PermissionRequest", request).effect == HookEffect("allow", args={"a": 1})
    refusal = {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "not now"}}}
    assert interpret_output("PermissionRequest", refusal).effect == HookEffect("deny", "not now")


def test_stop_hook_continues_the_turn_with_true_and_halts_with_false():
    assert interpret_output("Stop", {"continue": True, "message": "tests are red"}).effect == HookEffect(
        message="tests are red", continue_turn=True
    )
    assert interpret_output("Stop", {"continue": True}).effect.continue_turn
    assert not interpret_output("Stop", {"continue": True}, again=True).effect.continue_turn
    assert interpret_output("Stop", {"continue": True, "reason": "more"}, again=True).effect.continue_turn
    ended = interpret_output("Stop", {"continue": False, "decision": "block", "reason": "x"}).effect
    assert (ended.halt, ended.continue_turn) == (True, False)


def test_stop_hook_of_claude_code_continues_only_with_a_message():
    def continues(**printed: Any) -> bool:
        hook = HookSpec(event="Stop", name="h", command="x")
        done = CapturedOutput(0, json.dumps({"continue": True, **printed}).encode(), "")
        return interpret_program(hook, HookCall("Stop"), done).effect.continue_turn

    assert not continues()
    assert not continues(systemMessage="Done.", suppressOutput=True, reason="all fine")
    assert continues(message="tests are red")
    assert continues(decision="block", reason="tests are red")


def test_output_of_a_failing_program_is_context_if_the_hook_says_so():
    failed = interpret_output("on_tool_batch_complete", "a.py:1: red", 1, "1 error", append="failure")
    assert failed.effect == HookEffect(context="a.py:1: red\n\n1 error")
    assert interpret_output("on_tool_batch_complete", "fine", append="failure").effect == NO_HOOK_EFFECT


def test_long_texts_are_cut():
    assert len(interpret_output("UserPromptSubmit", "x" * 50_000).effect.context) < MAX_TEXT_CHARS + 100
    assert (
        len(interpret_output("PreToolUse", {"decision": "deny", "reason": "x" * 50_000}).effect.message)
        < MAX_TEXT_CHARS + 100
    )


def test_deny_beats_ask_beats_allow_among_several_hooks():
    allow, ask, deny = HookEffect("allow", "a"), HookEffect("ask", "b"), HookEffect("deny", "c")
    assert merge_effects([allow, ask]) == ask
    assert merge_effects([deny, ask, allow]) == deny
    assert merge_effects([allow, NO_HOOK_EFFECT]) == allow
    both = merge_effects([HookEffect("deny", "c", context="one"), HookEffect("deny", "d", context="two", notice="n")])
    assert both == HookEffect("deny", "c\n\nd", context="one\n\ntwo", notice="n")
    assert merge_effects([HookEffect(args={"a": 1}), HookEffect(args={"a": 2})]).args == {"a": 2}


def test_callback_returns_the_object_that_a_program_would_print():
    given = HookSpec(event="PreToolUse", name="h"), HookCall("PreToolUse")
    assert interpret_callback(*given, None).effect == interpret_callback(*given, {}).effect == NO_HOOK_EFFECT
    assert interpret_callback(*given, {"decision": "block", "reason": "no"}).effect == HookEffect("deny", "no")
    assert interpret_callback(*given, "text").outcome == "failed"
