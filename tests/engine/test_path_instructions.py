"""Instruction files of sub-folders and rules for certain paths reach the model once, when a file there is touched."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.event import Compacted, NoteAdded, Warned
from odin.core.op import Compact
from odin.testing import ScriptedServer, call, reply, say
from odin.ui.slash_commands.reports import format_context

from .conftest import Start
from .test_compaction import ScriptedModel
from .test_prompt_cache import assert_requests_extend
from .test_recovery import APIS, make_options

FILES = {
    "CLAUDE.md": "TOP, see @docs/style.md",
    "docs/style.md": "STYLE",
    "docs/local.md": "LOCAL",
    "shop/AGENTS.md": "SHOP, see @../docs/local.md and @../docs/style.md",
    "shop/cart/CLAUDE.md": "CART",
    "shop/cart/a.py": "x = 1\n",
    "shop/ODIN.md": "OWN",
    "other/CLAUDE.md": "OTHER",
    "other/b.ts": "let b",
    ".claude/rules/always.md": "ALWAYS",
    ".claude/rules/py.md": "---\npaths: '**/*.{py,pyi}'\n---\nPYTHON",
    ".claude/rules/folder.md": "---\npaths:\n  - other\n---\nFOLDER",
    ".claude/rules/broken.md": "---\npaths: '[z-a].c'\n---\nBROKEN",
}


@pytest.fixture(autouse=True)
def project(workspace: Path, home: Path) -> Path:
    for name, text in {**FILES, "README.md": "hello"}.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    (home / ".claude/rules").mkdir(parents=True)
    (home / ".claude/CLAUDE.md").write_text("MINE")
    (home / ".claude/rules/ts.md").write_text("---\npaths: '*.ts'\n---\nTYPES")
    return workspace


def read(name: str) -> Any:
    return call("Read", {"file_path": name})


def count(text: str, *words: str) -> dict[str, int]:
    return {word: text.count(word) for word in words}


@pytest.mark.parametrize("api", APIS)
async def test_each_instruction_is_sent_once_and_the_prefix_stays(start: Start, api: str) -> None:
    script = [
        read("README.md"),
        reply("Both.", [read("shop/cart/a.py"), call("LS", {"path": "shop"})]),
        call("EditTool", {"file_path": "shop/cart/a.py", "old_string": "1", "new_string": "2"}),
        say("first"),
        call("Grep", {"pattern": "b", "path": "other/b.ts"}),
        say("second"),
    ]
    talk = await start(script, **make_options(api))
    await talk.say("one")
    await talk.say("two")
    bodies = [request.body.decode() for request in talk.server.requests]
    start_texts = ("TOP", "STYLE", "ALWAYS", "MINE")
    for body in bodies:
        assert count(body, *start_texts) == dict.fromkeys(start_texts, 1)
    notes = ("SHOP", "LOCAL", "CART", "OWN", "PYTHON")
    assert count(bodies[1], *notes) == dict.fromkeys(notes, 0)
    for body in bodies[2:]:
        assert count(body, *notes) == dict.fromkeys(notes, 1)
    later = ("OTHER", "FOLDER", "TYPES")
    assert count(bodies[4], *later, "BROKEN") == dict.fromkeys((*later, "BROKEN"), 0)
    assert count(bodies[5], *later, "BROKEN") == {**dict.fromkeys(later, 1), "BROKEN": 0}
    assert [note.text.splitlines()[0] for note in talk.all(NoteAdded) if "Instructions" in note.text] == [
        "# Instructions of this project (shop/ODIN.md), sent because of shop/cart/a.py",
        "# Instructions of this project (shop/AGENTS.md), sent because of shop/cart/a.py",
        "# Instructions of this project (docs/local.md), imported by shop/AGENTS.md, sent because of shop/cart/a.py",
        "# Instructions of this project (shop/cart/CLAUDE.md), sent because of shop/cart/a.py",
        "# Instructions of this project (.claude/rules/py.md), for **/*.{py,pyi}, sent because of shop/cart/a.py",
        "# Instructions of this project (other/CLAUDE.md), sent because of other/b.ts",
        "# Instructions of the user (~/.claude/rules/ts.md), for *.ts, sent because of other/b.ts",
        "# Instructions of this project (.claude/rules/folder.md), for other, sent because of other/b.ts",
    ]
    assert "broken.md: '[z-a].c' is not a valid glob pattern." in " ".join(item.text for item in talk.all(Warned))
    assert_requests_extend(talk.server.requests)
    assert talk.server.rejected == []


async def test_context_report_lists_what_was_loaded_and_why(start: Start) -> None:
    talk = await start([read("shop/cart/a.py"), say("done")])
    await talk.say("go")
    report = await talk.client.report_context()
    assert [(item.name, item.why) for item in report.instructions] == [
        ("~/.claude/CLAUDE.md", "yours"),
        ("CLAUDE.md", ""),
        ("docs/style.md", "imported by CLAUDE.md"),
        (".claude/rules/always.md", ""),
        ("shop/ODIN.md", "sent because of shop/cart/a.py"),
        ("shop/AGENTS.md", "sent because of shop/cart/a.py"),
        ("docs/local.md", "imported by shop/AGENTS.md, sent because of shop/cart/a.py"),
        ("shop/cart/CLAUDE.md", "sent because of shop/cart/a.py"),
        (".claude/rules/py.md", "for **/*.{py,pyi}, sent because of shop/cart/a.py"),
    ]
    assert all(item.tokens > 0 for item in report.instructions)
    assert {part.source for part in report.parts} >= {"project instructions", "user instructions"}
    text = format_context(report)
    assert "Instructions:\n  ~/.claude/CLAUDE.md              2   (yours)\n" in text
    assert "  .claude/rules/py.md" in text and "(for **/*.{py,pyi}, sent because of shop/cart/a.py)\n" in text


async def test_mentioned_file_brings_its_instructions_with_the_prompt(start: Start) -> None:
    talk = await start([say("ok")])
    await talk.say("look at @other/b.ts")
    assert count(talk.server.requests[0].body.decode(), "OTHER", "TYPES", "SHOP") == {"OTHER": 1, "TYPES": 1, "SHOP": 0}


async def test_instructions_are_not_repeated_after_a_resume_but_after_a_compaction(
    start: Start, workspace: Path
) -> None:
    long = "And more words. " * 80
    turns = iter(
        [read("other/b.ts"), say("one"), read("other/b.ts"), say("two"), *(say(f"{n}. {long}") for n in "345")]
    )
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(turns, None) or say("end"))).start()
    talk = await start(None, server=server)
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=server, resume=session)
    await again.say("go on")
    assert server.requests[-1].body.decode().count("OTHER") == 1
    (workspace / "other/CLAUDE.md").write_text("CHANGED")
    for number in "345":
        await again.say(f"Prompt {number}.")
    assert await again.client.submit(Compact())
    await again.until(Compacted)
    turns = iter([read("other/b.ts")])
    await again.say("more")
    before, after = (request.body.decode() for request in server.requests[-2:])
    assert count(before, "# Instructions of this project (other/CLAUDE.md)", "CHANGED") == dict.fromkeys(
        ("# Instructions of this project (other/CLAUDE.md)", "CHANGED"), 0
    )
    assert count(after, "OTHER", "CHANGED") == {"OTHER": 1, "CHANGED": 0}, "the text is that of the session's start"
    server.stop()


async def test_sub_agent_gets_them_for_itself(start: Start) -> None:
    task = {"description": "look", "prompt": "Look at it.", "subagent_type": "explore"}
    script = [read("other/b.ts"), call("AgentTool", task), read("other/b.ts"), say("seen"), say("done")]
    talk = await start(script)
    await talk.say("go")
    last_of_agent, last_of_main = talk.server.requests[3:5]
    assert last_of_agent.body.decode().count("OTHER") == 1
    assert last_of_main.body.decode().count("OTHER") == 1


async def test_installed_packages_bring_no_instructions(start: Start, workspace: Path) -> None:
    for folder in ("node_modules/x", ".venv/lib/site-packages/y"):
        (workspace / folder).mkdir(parents=True)
        (workspace / folder / "AGENTS.md").write_text("FOREIGN")
        (workspace / folder / "a.js").write_text("x")
    files = [read(f"{folder}/a.js") for folder in ("node_modules/x", ".venv/lib/site-packages/y")]
    talk = await start([*files, say("done")])
    await talk.say("go")
    assert "FOREIGN" not in talk.server.requests[-1].body.decode()


async def test_nothing_is_sent_without_such_files(start: Start, workspace: Path) -> None:
    for name in FILES:
        if name.endswith(".md"):
            (workspace / name).unlink()
    talk = await start([read("other/b.ts"), say("done")], env={"HOME": str(workspace / "docs")})
    await talk.say("go")
    assert "Instructions of" not in talk.server.requests[-1].body.decode()


async def test_files_of_the_home_folder_are_sent_once_in_it(start: Start, home: Path) -> None:
    talk = await start([read("a.ts"), say("done")], cwd=str(home))
    (home / "a.ts").write_text("x")
    await talk.say("go")
    assert count(talk.server.requests[-1].body.decode(), "MINE", "TYPES") == {"MINE": 1, "TYPES": 1}


async def test_import_from_elsewhere_needs_a_rule_of_the_user(start: Start, workspace: Path, home: Path) -> None:
    (home / "shared.md").write_text("SHARED")
    (workspace / "CLAUDE.md").write_text("@~/shared.md @docs/style.md @~/.aws/credentials")
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text("CREDENTIALS")
    denied = {"disallowed_tools": ["Read(./docs/style.md)"]}
    talk = await start([say("done")], yes=False, config=denied)
    await talk.say("go")
    body = talk.server.requests[0].body.decode()
    assert count(body, "SHARED", "STYLE", "CREDENTIALS") == dict.fromkeys(("SHARED", "STYLE", "CREDENTIALS"), 0)
    (told,) = [text for text in (await talk.client.get_info()).warnings if "shared.md" in text]
    assert f"{home}/shared.md, imported by CLAUDE.md, is not read: " in told
    assert "The rule 'Read(./docs/style.md)' denies it." in told
    assert "/.aws/credentials, imported by CLAUDE.md, is not read: it may contain secrets." in told
    allowed = await start([say("done")], yes=False, config={"allowed_tools": ["Read(~/shared.md)", "Read(~/.aws/**)"]})
    await allowed.say("go")
    body = allowed.server.requests[0].body.decode()
    assert count(body, "SHARED", "STYLE", "CREDENTIALS") == {"SHARED": 1, "STYLE": 1, "CREDENTIALS": 0}
