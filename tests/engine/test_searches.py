"""Searches leave out files that a rule or a secret name protects, and say so."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.op import AddRule, AnswerPermission
from odin.testing import call, say
from tests.engine.conftest import Start

WORD = "needle"
RULES = {"rules": {"deny": ["Read(private/**)", "Read(plan.txt)"], "ask": ["Read(drafts/**)"]}}


@pytest.fixture
def tree(workspace: Path) -> Path:
    for name in ("src/a.py", "private/b.py", "plan.txt", "drafts/c.md", "config/secrets.json", ".env", "key.pem"):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{WORD} of {name}\n")
    return workspace


async def search(start: Start, args: dict[str, Any], name: str = "Grep", **options: Any) -> str:
    settings: dict[str, Any] = {"config": RULES, "yes": False, **options}
    answers = settings.pop("answers", [])
    talk = await start([call(name, args), say("done")], can_ask=bool(answers), **settings)
    talk.answers = list(answers)
    await talk.say("go")
    assert len(talk.all(PermissionAsked)) == len(answers)
    (ended,) = talk.all(ToolEnded)
    assert ended.text in talk.server.requests[-1].messages[-1]["content"][0]["content"]
    return ended.text


@pytest.mark.parametrize("mode", ["content", "count", "files_with_matches"])
@pytest.mark.parametrize("glob", [None, "*", ".env*", "**/*.{py,txt,md,json,pem}"])
async def test_denied_ask_and_secret_files_are_left_out(start: Start, tree: Path, mode: str, glob: str | None) -> None:
    text = await search(start, {"pattern": WORD, "output_mode": mode, **({"glob": glob} if glob else {})})
    found, _, remark = text.partition("(files that")
    for name in ("private/b.py", "plan.txt", "drafts/c.md", "config/secrets.json", ".env", "key.pem"):
        assert name not in found
    assert ("src/a.py" in found) == (glob != ".env*")
    assert ("a permission rule or a secret name protects" in remark) == (glob == ".env*")


@pytest.mark.parametrize("mode", ["content", "count", "files_with_matches"])
async def test_search_does_not_reveal_the_content_of_a_hidden_file(start: Start, tree: Path, mode: str) -> None:
    """Patterns that match in the file and that do not get the same answer, so guessing reveals nothing."""
    for name in ("plan", ".env"):
        right, wrong = f"needle of {name}", f"needle of {name}x"
        texts = [await search(start, {"pattern": pattern, "output_mode": mode}) for pattern in (right, wrong)]
        assert (
            texts[0]
            == texts[1]
            == (
                "No matches found\n(files that a permission rule or a secret name protects are not searched; "
                "name a file to ask for it)"
            )
        )


async def test_search_without_protected_files_has_no_remark(start: Start, tree: Path) -> None:
    text = await search(start, {"pattern": WORD, "path": str(tree / "src")})
    assert text == f"{tree}/src/a.py:1:needle of src/a.py"


async def test_yes_option_shows_secret_files_but_not_denied_files(start: Start, tree: Path) -> None:
    text = await search(start, {"pattern": WORD}, yes=True)
    assert "needle of config/secrets.json" in text
    assert "needle of drafts/c.md" in text
    assert "private" not in text
    assert "plan.txt" not in text


async def test_named_secret_file_is_shown_after_approval(start: Start, tree: Path) -> None:
    path = f"{tree}//config/secrets.json"
    text = await search(start, {"pattern": WORD, "path": path}, answers=[AnswerPermission("", True)])
    assert "needle of config/secrets.json" in text


async def test_approved_folder_shows_its_files(start: Start, tree: Path) -> None:
    args = {"pattern": WORD, "path": str(tree / "drafts")}
    assert "needle of drafts/c.md" in await search(start, args, answers=[AnswerPermission("", True)])


async def test_a_rule_that_allows_a_secret_file_shows_it(start: Start, tree: Path) -> None:
    talk = await start([call("Grep", {"pattern": WORD}), say("done")], yes=False)
    await talk.client.submit(AddRule("Read(config/secrets.json)", "allow", "session"))
    await talk.say("go")
    (ended,) = talk.all(ToolEnded)
    assert "needle of config/secrets.json" in ended.text
    assert "needle of key.pem" not in ended.text


async def test_deny_rule_applies_in_an_approved_folder_outside_the_project(
    start: Start, tree: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.txt", "b.txt"):
        (other / name).write_text(WORD)
    config = {"rules": {"deny": [f"Read({other}/b.txt)"]}}
    args = {"pattern": WORD, "path": str(other)}
    text = await search(start, args, config=config, answers=[AnswerPermission("", True)])
    assert text == f"{other}/a.txt:1:{WORD}"


async def test_deny_rule_applies_through_a_linked_folder(start: Start, tree: Path) -> None:
    (tree / "open").symlink_to(tree / "config")
    config = {"rules": {"deny": ["Read(config/plain.txt)"]}}
    (tree / "config" / "plain.txt").write_text(WORD)
    text = await search(start, {"pattern": WORD, "path": str(tree / "open")}, config=config)
    assert text.startswith("No matches found\n(files that")


async def test_glob_lists_secret_files_but_not_denied_files(start: Start, tree: Path) -> None:
    text = await search(start, {"pattern": "**/*.{py,txt,md,json}"}, "Glob")
    found, _, remark = text.partition("(left out")
    assert f"{tree}/src/a.py" in found
    assert f"{tree}/config/secrets.json" in found
    assert f"{tree}/drafts/c.md" in found
    assert "private" not in found
    assert "plan.txt" not in found
    assert f"{tree}/plan.txt" in remark


async def test_absolute_glob_pattern_is_checked_by_its_own_folder(start: Start, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.txt").write_text("")
    args = {"pattern": f"{tmp_path}/elsewhere/*.txt", "path": str(tree)}
    text = await search(start, args, "Glob")
    assert "outside the project" in text
    assert "elsewhere/x.txt" not in text


async def test_only_allowed_files_are_shown_if_all_others_are_denied(start: Start, tree: Path) -> None:
    config = {"rules": {"Grep": {"*": "deny", "./src": "allow", "src/b.py": "allow"}}}
    (tree / "src" / "b.py").write_text(WORD)
    text = await search(start, {"pattern": WORD, "path": str(tree / "src")}, config=config)
    assert text == f"{tree}/src/b.py:1:{WORD}"
