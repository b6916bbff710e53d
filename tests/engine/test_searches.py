"""Searches leave out files that rules or secret names hide, and say so."""

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


async def searched(start: Start, args: dict[str, Any], name: str = "Grep", **options: Any) -> str:
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
async def test_what_is_denied_asked_about_or_secret_is_left_out(
    start: Start, tree: Path, mode: str, glob: str | None
) -> None:
    text = await searched(start, {"pattern": WORD, "output_mode": mode, **({"glob": glob} if glob else {})})
    found, _, remark = text.partition("(files that")
    for name in ("private/b.py", "plan.txt", "drafts/c.md", "config/secrets.json", ".env", "key.pem"):
        assert name not in found
    assert ("src/a.py" in found) == (glob != ".env*")
    assert ("a permission rule or a secret name protects" in remark) == (glob == ".env*")


@pytest.mark.parametrize("mode", ["content", "count", "files_with_matches"])
async def test_a_search_does_not_tell_what_a_hidden_file_contains(start: Start, tree: Path, mode: str) -> None:
    """A pattern that matches there and one that does not get the same answer, so guessing learns nothing."""
    for name in ("plan", ".env"):
        right, wrong = f"needle of {name}", f"needle of {name}x"
        texts = [await searched(start, {"pattern": pattern, "output_mode": mode}) for pattern in (right, wrong)]
        assert (
            texts[0]
            == texts[1]
            == (
                "No matches found\n(files that a permission rule or a secret name protects are not searched; "
                "name a file to ask for it)"
            )
        )


async def test_what_nothing_keeps_back_leaves_no_remark(start: Start, tree: Path) -> None:
    text = await searched(start, {"pattern": WORD, "path": str(tree / "src")})
    assert text == f"{tree}/src/a.py:1:needle of src/a.py"


async def test_a_denied_file_is_not_shown_with_yes_either_but_a_secret_one_is(start: Start, tree: Path) -> None:
    text = await searched(start, {"pattern": WORD}, yes=True)
    assert "needle of config/secrets.json" in text
    assert "needle of drafts/c.md" in text
    assert "private" not in text
    assert "plan.txt" not in text


async def test_a_file_that_is_named_is_asked_about_and_then_shown(start: Start, tree: Path) -> None:
    path = f"{tree}//config/secrets.json"
    text = await searched(start, {"pattern": WORD, "path": path}, answers=[AnswerPermission("", True)])
    assert "needle of config/secrets.json" in text


async def test_a_folder_that_was_asked_about_shows_what_is_in_it(start: Start, tree: Path) -> None:
    args = {"pattern": WORD, "path": str(tree / "drafts")}
    assert "needle of drafts/c.md" in await searched(start, args, answers=[AnswerPermission("", True)])


async def test_a_rule_that_allows_a_secret_file_shows_it(start: Start, tree: Path) -> None:
    talk = await start([call("Grep", {"pattern": WORD}), say("done")], yes=False)
    await talk.client.submit(AddRule("Read(config/secrets.json)", "allow", "session"))
    await talk.say("go")
    (ended,) = talk.all(ToolEnded)
    assert "needle of config/secrets.json" in ended.text
    assert "needle of key.pem" not in ended.text


async def test_a_denial_holds_in_a_folder_outside_that_the_person_allows(
    start: Start, tree: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.txt", "b.txt"):
        (other / name).write_text(WORD)
    config = {"rules": {"deny": [f"Read({other}/b.txt)"]}}
    args = {"pattern": WORD, "path": str(other)}
    text = await searched(start, args, config=config, answers=[AnswerPermission("", True)])
    assert text == f"{other}/a.txt:1:{WORD}"


async def test_a_link_to_a_folder_hides_no_denied_file(start: Start, tree: Path) -> None:
    (tree / "open").symlink_to(tree / "config")
    config = {"rules": {"deny": ["Read(config/plain.txt)"]}}
    (tree / "config" / "plain.txt").write_text(WORD)
    text = await searched(start, {"pattern": WORD, "path": str(tree / "open")}, config=config)
    assert text.startswith("No matches found\n(files that")


async def test_denied_files_are_not_listed_by_name_but_secret_ones_are(start: Start, tree: Path) -> None:
    text = await searched(start, {"pattern": "**/*.{py,txt,md,json}"}, "Glob")
    found, _, remark = text.partition("(left out")
    assert f"{tree}/src/a.py" in found
    assert f"{tree}/config/secrets.json" in found
    assert f"{tree}/drafts/c.md" in found
    assert "private" not in found
    assert "plan.txt" not in found
    assert f"{tree}/plan.txt" in remark


async def test_a_pattern_from_the_top_is_judged_by_its_own_folder(start: Start, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.txt").write_text("")
    args = {"pattern": f"{tmp_path}/elsewhere/*.txt", "path": str(tree)}
    text = await searched(start, args, "Glob")
    assert "outside the project" in text
    assert "elsewhere/x.txt" not in text


async def test_where_all_is_denied_only_what_is_spared_is_shown(start: Start, tree: Path) -> None:
    config = {"rules": {"Grep": {"*": "deny", "./src": "allow", "src/b.py": "allow"}}}
    (tree / "src" / "b.py").write_text(WORD)
    text = await searched(start, {"pattern": WORD, "path": str(tree / "src")}, config=config)
    assert text == f"{tree}/src/b.py:1:{WORD}"
