"""The text of a permission request and the meaning of typed answers, without a terminal."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.call_events import PermissionAnswered, PermissionAsked
from odin.core.interaction import Interaction, make_interaction
from odin.ui.permission_text import describe_answer_elsewhere, list_offered_rules
from odin.ui.plain.dialogs import (
    PREVIEW_LINES,
    format_all_details,
    format_permission_help,
    format_permission_prompt,
    format_permission_request,
    format_rule_choice,
    parse_reply,
    parse_rule_number,
    parse_scope,
    warn_if_too_tall,
)
from odin.ui.terminal import TextPainter, measure_width
from tests.table import each

HIDDEN = "\x1b\x07\r\u202e\u200b\u2066\ufeff\u00ad\u3164\U000e0041"


def make_request(agent: str = "", **more: object) -> Interaction:
    fields: dict[str, object] = {
        "ask_id": "a",
        "call_id": "c",
        "name": "ExecuteCommand",
        "args": {"command": "make"},
        "reason": "The command may change things.",
        "subject": "make",
        "rules": ("Bash(make)", "Bash(make:*)"),
    }
    return make_interaction(PermissionAsked(**{**fields, **more}), agent)  # pyright: ignore[reportArgumentType]


PLAIN = make_request(permission_modes=("auto",))
ONCE = make_request(rules=())
OUTSIDE = make_request(unsandboxed=True, sandbox="bubblewrap")


@each(
    ("typed", "reply"),
    [
        ("y\n", ("allow_once", "")),
        (" YES \n", ("allow_once", "")),
        ("", ("deny", "")),
        ("\n", ("deny", "")),
        ("n\n", ("deny", "")),
        ("No\n", ("deny", "")),
        ("n use another name\n", ("deny", "use another name")),
        ("no files there\n", ("deny", "no files there")),
        ("use another name\n", ("deny", "use another name")),
        ("never touch that\n", ("deny", "never touch that")),
        ("だめ\u3000です\n", ("deny", "だめ\u3000です")),
        ("s\n", ("allow_session", "")),
        ("Project\n", ("allow_project", "")),
        ("u\n", ("allow_everywhere", "")),
        ("d\n", ("deny_always", "")),
        ("e\n", ("edit", "")),
        ("e command\n", ("edit", "command")),
        ("edit all\n", ("edit", "all")),
        ("edit the other one\n", ("deny", "edit the other one")),
        ("a\n", ("allow_mode", "")),
        ("v\n", ("view", "")),
        ("?\n", ("help", "")),
    ],
)
def test_typed_line_is_parsed(typed: str, reply: tuple[str, str]) -> None:
    assert parse_reply(PLAIN, typed) == reply


@pytest.mark.parametrize(
    "typed",
    [
        "x\n",
        "j\n",
        "1\n",
        "yy\n",
        "yn\n",
        "yes, but carefully\n",
        "ok then\n",
        "y!\n",
        "sure thing\n",
        "\x1b[A\n",
        "/undo\n",
        "quit\n",
        "!ls -l\n",
    ],
)
def test_unclear_answer_is_asked_again(typed: str) -> None:
    key, words = parse_reply(PLAIN, typed)
    assert key == "unclear"
    assert words


@pytest.mark.parametrize("typed", ["s\n", "p\n", "u\n", "d\n", "a\n", "session\n"])
def test_keys_that_are_not_offered_are_unclear(typed: str) -> None:
    assert parse_reply(ONCE, typed)[0] == "unclear"
    assert parse_reply(OUTSIDE, typed)[0] == "unclear"


def test_request_outside_the_sandbox_offers_only_yes_and_no() -> None:
    assert list_offered_rules(OUTSIDE) == ()
    assert format_permission_prompt(OUTSIDE) == "Run it without the sandbox? [y]es, [n]o, or say why not: "
    assert parse_reply(OUTSIDE, "e\n")[0] == "unclear"
    assert parse_reply(OUTSIDE, "y\n")[0] == "allow_once"
    shown = format_permission_request(OUTSIDE)
    assert shown.startswith("Odin asks: Run this again outside the sandbox\n  | make\n")
    assert "remember" not in format_permission_help(OUTSIDE)


@given(st.text())
def test_only_y_and_yes_allow(typed: str) -> None:
    if parse_reply(PLAIN, typed)[0] == "allow_once":
        assert typed.strip().casefold() in ("y", "yes")


def test_request_shows_paths_preview_danger_reason_and_sandbox() -> None:
    asked = make_request(
        sandbox="bubblewrap, project writable",
        asked_paths=("/etc/one", "/etc/two"),
        allowed_paths=("/project/three",),
        preview="-old\n+new\n",
        args={"command": "make", "description": "Build  it"},
        danger="hard_to_undo",
        effect="Deletes things.",
        task="look\x1b around",
        agent="explorer",
    )
    assert format_permission_request(asked) == (
        "explorer (look\\x1b around) asks: Bash: Build it\n"
        "  | make\n"
        "Needs your answer:\n"
        "  | /etc/one\n"
        "  | /etc/two\n"
        "Allowed already:\n"
        "  | /project/three\n"
        "What would change:\n"
        "  | -old\n"
        "  | +new\n"
        "Hard to undo. Deletes things.\n"
        "The command may change things.\n"
        "It would run in bubblewrap, project writable.\n"
    )


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_level_of_danger_and_the_diff_are_colored() -> None:
    painter = TextPainter(TerminalStream(), {"TERM": "xterm"})
    diff = f"--- /a\n+++ /a\n@@ -1 +1 @@\n-old\n+{'new ' * 10}\n"
    asked = make_request(danger="hard_to_undo", effect="Deletes things.", preview=diff)
    shown = format_permission_request(asked, columns=30, painter=painter)
    assert "\x1b[31mHard to undo.\x1b[0m Deletes" in shown
    assert "  | \x1b[31m-old\x1b[0m\n  | \x1b[32m+new" in shown
    assert "\n  : \x1b[32m" in shown
    plain = format_permission_request(asked, columns=30)
    assert re.sub(r"\x1b\[\d+m", "", shown) == plain
    assert "--- /a" not in plain
    assert "--- /b" in format_permission_request(make_request(preview=f"{diff}--- /b\n+++ /b\n@@ -1 +1 @@\n-x\n+y\n"))


def test_the_level_of_danger_is_not_repeated() -> None:
    outside = make_request(danger="outside_project", effect="Uses /a, outside the project.", reason="It names /a.")
    assert "\nOutside the project. Uses /a.\n" in format_permission_request(outside)
    edit = "Changes /b/a, outside the project."
    titled = make_request(subject="/b/a", danger="outside_project", effect=edit, title="Edit /b/a")
    assert "/b/a" not in format_permission_request(titled).partition("\n")[2]
    page = make_request(
        subject="https://a.org", danger="network", effect="Fetches it.", title="WebFetch https://a.org", args={}
    )
    shown = format_permission_request(page)
    assert shown.startswith("Odin asks: WebFetch https://a.org\nNetwork.\n")
    why = "The command names /a, outside the project /p."
    worse = make_request(danger="hard_to_undo", effect="Deletes /a. Uses /a, outside the project.", reason=why)
    assert why not in format_permission_request(worse)
    assert "\nHard to undo. Deletes /a. Uses /a, outside the project.\n" in format_permission_request(worse)


def test_request_says_what_approval_grants() -> None:
    granted = make_request(sandbox="landlock, network off", granted_paths=("/a", "/b\x1b"), granted_network=True)
    assert format_permission_request(granted, columns=200).endswith(
        "It would run in landlock, network off; if you allow it, it may use the network and write /a, /b\\x1b.\n"
    )
    for sandbox in ("no sandbox, as configured", "bubblewrap, network on"):
        nothing_more = make_request(sandbox=sandbox, granted_network=True)
        assert format_permission_request(nothing_more, columns=200).endswith(f"It would run in {sandbox}.\n")


def test_narrow_request_wraps_between_words_and_marks_command_rows() -> None:
    command = f"echo {'x' * 200}Allow it? [y]es {'界' * 50} end"
    shown = format_permission_request(
        make_request(subject=command, reason=("It is long. " * 20).strip(), sandbox="landlock"), columns=60
    )
    rows = shown.splitlines()
    assert all(measure_width(row) < 60 for row in rows)
    body = [row for row in rows if row.startswith(("  | ", "  : "))]
    assert "".join(row[4:] for row in body) == command
    assert [row[2] for row in body] == ["|", *":" * (len(body) - 1)]
    assert " ".join(rows[1 + len(body) : -1]) == ("It is long. " * 20).strip()


def test_each_path_is_listed_once() -> None:
    assert "Needs your answer" not in format_permission_request(make_request(asked_paths=("/etc/one",)))
    several = format_permission_request(
        make_request(name="Delete", subject="/a, /b", asked_paths=("/a", "/b"), reason="")
    )
    assert several == "Odin asks: Delete\n  | /a\n  | /b\n"
    mixed = format_permission_request(
        make_request(name="Delete", subject="/a, /b", asked_paths=("/b",), allowed_paths=("/a",), reason="")
    )
    assert mixed == "Odin asks: Delete\nNeeds your answer:\n  | /b\nAllowed already:\n  | /a\n"


def test_request_taller_than_the_screen_has_a_warning() -> None:
    assert warn_if_too_tall("one\n" * 22, 24) == ""
    assert "scroll up" in warn_if_too_tall("one\n" * 23, 24)


def test_request_without_a_subject_shows_the_arguments() -> None:
    asked = format_permission_request(
        make_interaction(PermissionAsked("a", "c", "Spawn", {"task": "x\ny"}, "It starts something."))
    )
    assert '  | {"task":"x\\ny"}\n' in asked
    assert "It starts something.\n" in asked


def test_hidden_characters_in_a_request_are_escaped() -> None:
    poison = f"fine{HIDDEN}"
    asked = make_request(
        name=poison,
        args={poison: poison},
        subject=poison,
        reason=poison,
        sandbox=poison,
        preview=poison,
        asked_paths=(poison, poison),
        allowed_paths=(poison,),
        rules=(poison,),
        agent=poison,
    )
    texts = [
        format_permission_request(asked),
        format_permission_prompt(asked),
        format_permission_help(asked),
        format_all_details(asked),
    ]
    texts.append(describe_answer_elsewhere(PermissionAnswered("a", "c", allowed=True, by=poison)))
    assert not set("".join(texts)) & set(HIDDEN)
    assert "fine\\x1b\\x07\\r\\u202e\\u200b" in texts[0]


def test_rule_with_hidden_characters_is_not_offered() -> None:
    assert list_offered_rules(make_request(rules=("Bash(make\u200b)", "Bash(make)", "Bash(a\nb)"))) == ("Bash(make)",)


def test_a_long_preview_is_cut_and_the_rest_is_counted() -> None:
    asked = make_request(preview="\n".join(f"+line {number}" for number in range(100)))
    shown = format_permission_request(asked)
    assert f"+line {PREVIEW_LINES - 1}\n" in shown
    assert f"+line {PREVIEW_LINES}\n" not in shown
    assert f"  … {100 - PREVIEW_LINES} more lines; v shows all\n" in shown
    assert "+line 99\n" in format_all_details(asked)


def test_preview_is_shorter_on_a_small_screen() -> None:
    asked = make_request(preview="\n".join(f"+line {number}" for number in range(100)))
    shown = format_permission_request(asked, rows=24)
    assert warn_if_too_tall(shown, 24) == ""
    assert "+line 10\n" in shown
    assert "+line 5\n" in format_permission_request(asked, rows=5)


def test_long_preview_lines_are_cut_with_a_note() -> None:
    asked = make_request(preview="+" + "x" * 500)
    assert "x" * 200 not in format_permission_request(asked)
    assert "long lines are cut" in format_permission_request(asked)
    assert "x" * 500 in format_all_details(asked, columns=600)


def test_offered_rules_are_shown_verbatim() -> None:
    assert format_rule_choice(list_offered_rules(PLAIN), "Allow it and remember for this session") == (
        "Allow it and remember for this session:\n"
        "  1. Bash(make)\n"
        "  2. Bash(make:*)\n"
        "1 to 2, Enter for 1, [e]dit the rule, [b]ack: "
    )


@pytest.mark.parametrize(
    ("typed", "count", "chosen"),
    [
        ("\n", 2, 0),
        ("2\n", 2, 1),
        ("3\n", 2, None),
        ("0\n", 2, None),
        ("-1\n", 2, None),
        ("y\n", 1, 0),
        ("y\n", 2, None),
        ("", 1, None),
        ("b\n", 1, None),
        ("²\n", 2, None),
    ],
)
def test_typed_rule_number_is_parsed(typed: str, count: int, chosen: int | None) -> None:
    assert parse_rule_number(typed, count) == chosen


@pytest.mark.parametrize(
    ("typed", "scope"), [("\n", "project"), ("s\n", "session"), ("USER\n", "user"), ("", None), ("x\n", None)]
)
def test_typed_scope_is_parsed(typed: str, scope: str | None) -> None:
    assert parse_scope(typed) == scope


@pytest.mark.parametrize(
    ("by", "allowed", "said"),
    [
        ("sdk", True, "This was answered elsewhere: allowed by sdk."),
        ("api", False, "This was answered elsewhere: denied by api."),
        ("timeout", False, ""),
        ("interrupt", False, ""),
        ("shutdown", False, ""),
    ],
)
def test_answer_from_elsewhere_is_described(by: str, allowed: bool, said: str) -> None:
    assert describe_answer_elsewhere(PermissionAnswered("a", "c", allowed=allowed, by=by)) == said
