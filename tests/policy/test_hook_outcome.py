"""Interpretation of a hook's exit code and output, in every form, at every point."""

import json
from typing import Any

from odin.core.policy import NO_VERDICT, HookCall, HookPoint, HookVerdict
from odin.policy.hook_declaration import HookSpec
from odin.policy.hook_outcome import MAX_TEXT_CHARS, interpret_callback, interpret_program, merge_verdicts
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
    ("printed", "verdict", "word"),
    [
        ("", NO_VERDICT, "silent"),
        ("plain text", NO_VERDICT, "silent"),
        ({}, NO_VERDICT, "silent"),
        ({"suppressOutput": True, "continue": True}, NO_VERDICT, "silent"),
        ({"decision": "", "message": ""}, NO_VERDICT, "silent"),
        ({"decision": "allow"}, HookVerdict("allow"), "allowed"),
        ({"decision": "approve", "reason": "fine"}, HookVerdict("allow", "fine"), "allowed"),
        ({"decision": "ask", "message": "sure?"}, HookVerdict("ask", "sure?"), "asked"),
        ({"decision": "deny", "message": "no"}, HookVerdict("deny", "no"), "denied"),
        ({"decision": "block", "reason": "no"}, HookVerdict("deny", "no"), "denied"),
        ({"action": "block", "message": "no"}, HookVerdict("deny", "no"), "denied"),
        ({"action": "continue"}, NO_VERDICT, "silent"),
        ({"action": "modify", "args": {"a": 1}}, HookVerdict(args={"a": 1}), "modified"),
        (
            {"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"a": 1}}},
            HookVerdict("allow", args={"a": 1}),
            "modified",
        ),
        (
            {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "because"}},
            HookVerdict("deny", "because"),
            "denied",
        ),
        (
            {"hookSpecificOutput": {"permissionDecision": "ask"}, "decision": "approve"},
            HookVerdict("ask"),
            "asked",
        ),
        ({"hookSpecificOutput": {"additionalContext": "know this"}}, HookVerdict(context="know this"), "context"),
        ({"systemMessage": "look"}, HookVerdict(context="look", notice="look"), "context"),
        ({"continue": False, "stopReason": "enough"}, HookVerdict(message="enough", halt=True), "halted"),
    ],
)
def test_output_of_a_tool_call_hook_gives_the_verdict(printed: Any, verdict: HookVerdict, word: str):
    found = interpret_output("tool_call", printed)
    assert (found.verdict, found.outcome, found.problem) == (verdict, word, "")


@each(
    ("point", "verdict"),
    [
        ("tool_call", HookVerdict("deny", "no")),
        ("prompt_submit", HookVerdict("deny", "no")),
        ("wait_confirm", HookVerdict("deny", "no")),
        ("before_compress", HookVerdict("deny", "no")),
        ("tool_result", HookVerdict("deny", "no")),
        ("before_tool_result_append", HookVerdict("deny", "no")),
        ("stop", HookVerdict(message="no", continue_turn=True)),
        ("subagent_stop", HookVerdict(message="no", continue_turn=True)),
        ("before_llm_call", HookVerdict(message="no", halt=True)),
        ("tool_batch_complete", HookVerdict(context="no")),
        ("session_start", HookVerdict(notice="no")),
        ("idle", HookVerdict(notice="no")),
    ],
)
def test_exit_code_2_blocks_what_the_point_can_block(point: HookPoint, verdict: HookVerdict):
    assert interpret_output(point, code=2, errors="no\n").verdict == verdict
    assert interpret_output(point, {"decision": "block", "reason": "no"}).verdict == verdict


def test_reason_of_exit_code_2_is_standard_error_or_else_the_output():
    assert interpret_output("tool_call", "out", code=2, errors="err").verdict.message == "err"
    assert interpret_output("tool_call", "out", code=2).verdict.message == "out"
    assert interpret_output("tool_call", {"reason": "in json"}, code=2).verdict.message == "in json"
    assert interpret_output("tool_call", code=2).verdict.message == "The hook h gave no reason."


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
    found = interpret_output("tool_call", printed, code, errors)
    assert found.verdict == NO_VERDICT
    assert found.problem.startswith(problem)
    assert found.outcome == ("failed" if problem else "silent")


def test_timeout_and_excessive_output_are_reported():
    hook = HookSpec(event="Stop", name="h", command="x", timeout=2)
    hang = interpret_program(hook, HookCall("stop"), CapturedOutput(-9, b"", timed_out=True))
    assert (hang.outcome, hang.problem) == ("timed_out", "it did not finish within 2 s and was stopped.")
    flood = interpret_program(hook, HookCall("stop"), CapturedOutput(-9, b"{", stopped=True))
    assert (flood.outcome, flood.problem) == ("failed", "it printed more than 1,000,000 bytes and was stopped.")


def test_plain_text_is_context_at_prompt_and_session_start_or_with_append():
    assert interpret_output("prompt_submit", "today is Monday\n").verdict == HookVerdict(context="today is Monday")
    assert interpret_output("session_start", "branch main").verdict == HookVerdict(context="branch main")
    assert interpret_output("tool_batch_complete", "lint is red").verdict == NO_VERDICT
    assert interpret_output("tool_batch_complete", "lint is red", append="context").verdict == HookVerdict(
        context="lint is red"
    )
    assert interpret_output("tool_batch_complete", "lint is red", append="toast").verdict == HookVerdict(
        notice="lint is red"
    )


def test_hook_can_replace_the_output_of_a_result_but_not_of_a_call():
    assert interpret_output("tool_result", {"output": "clean"}).verdict == HookVerdict(output="clean")
    own = {"hookSpecificOutput": {"updatedToolOutput": {"a": 1}}}
    assert interpret_output("before_tool_result_append", own).verdict == HookVerdict(output='{"a":1}')
    assert interpret_output("tool_call", {"output": "clean"}).verdict == NO_VERDICT
    assert interpret_output("tool_result", {"args": {"a": 1}}).verdict == NO_VERDICT


def test_allow_is_ignored_at_points_without_a_permission_decision():
    for point in ("prompt_submit", "tool_result", "stop", "session_start"):
        assert interpret_output(point, {"decision": "allow", "reason": "yes"}).verdict == NO_VERDICT
    request = {"hookSpecificOutput": {"decision": {"behavior": "allow", "updatedInput": {"a": 1}}}}
    assert interpret_output("wait_confirm", request).verdict == HookVerdict("allow", args={"a": 1})
    refusal = {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "not now"}}}
    assert interpret_output("wait_confirm", refusal).verdict == HookVerdict("deny", "not now")


def test_stop_hook_continues_the_turn_with_true_and_halts_with_false():
    assert interpret_output("stop", {"continue": True, "message": "tests are red"}).verdict == HookVerdict(
        message="tests are red", continue_turn=True
    )
    assert interpret_output("stop", {"continue": True}).verdict.continue_turn
    assert not interpret_output("stop", {"continue": True}, again=True).verdict.continue_turn
    assert interpret_output("stop", {"continue": True, "reason": "more"}, again=True).verdict.continue_turn
    ended = interpret_output("stop", {"continue": False, "decision": "block", "reason": "x"}).verdict
    assert (ended.halt, ended.continue_turn) == (True, False)


def test_long_texts_are_cut():
    assert len(interpret_output("prompt_submit", "x" * 50_000).verdict.context) < MAX_TEXT_CHARS + 100
    assert (
        len(interpret_output("tool_call", {"decision": "deny", "reason": "x" * 50_000}).verdict.message)
        < MAX_TEXT_CHARS + 100
    )


def test_deny_beats_ask_beats_allow_among_several_hooks():
    allow, ask, deny = HookVerdict("allow", "a"), HookVerdict("ask", "b"), HookVerdict("deny", "c")
    assert merge_verdicts([allow, ask]) == ask
    assert merge_verdicts([deny, ask, allow]) == deny
    assert merge_verdicts([allow, NO_VERDICT]) == allow
    both = merge_verdicts(
        [HookVerdict("deny", "c", context="one"), HookVerdict("deny", "d", context="two", notice="n")]
    )
    assert both == HookVerdict("deny", "c\n\nd", context="one\n\ntwo", notice="n")
    assert merge_verdicts([HookVerdict(args={"a": 1}), HookVerdict(args={"a": 2})]).args == {"a": 2}


def test_callback_returns_the_object_that_a_program_would_print():
    call = HookCall("tool_call")
    assert interpret_callback(call, None).verdict == interpret_callback(call, {}).verdict == NO_VERDICT
    assert interpret_callback(call, {"decision": "block", "reason": "no"}).verdict == HookVerdict("deny", "no")
    assert interpret_callback(call, "text").outcome == "failed"
