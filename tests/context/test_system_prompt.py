"""The system prompt: its blocks, and how files, configuration and flags reach it."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from odin.context.system_prompt import SystemPrompt, describe_cached_files
from odin.core.event_values import CachedFile, Mode
from odin.testing import ScriptedServer, call, say

from ..conftest import Run

MODES: tuple[Mode, ...] = ("ask_mode", "plan_mode", "edit_mode")
MAIN = SystemPrompt().build_blocks("edit_mode")[0].split("\n\n", 1)[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("brief", [True, False])
def test_the_blocks_are_the_same_at_every_call(mode: Mode, brief: bool) -> None:
    facts: dict[str, Any] = {"header": "h", "append": "a", "instructions": "i", "allowed": ("x",), "forbidden": ("y",)}
    assert SystemPrompt(**facts).build_blocks(mode, brief) == SystemPrompt(**facts).build_blocks(mode, brief)


def test_each_mode_has_its_own_section() -> None:
    blocks = {mode: SystemPrompt().build_blocks(mode) for mode in MODES}
    assert all(len(found) == 1 for found in blocks.values())
    for mode, other in itertools.permutations(MODES, 2):
        name = mode.removesuffix("_mode")
        assert f"# Mode: {name}\n" in blocks[mode][0]
        assert f"# Mode: {name}\n" not in blocks[other][0]


def test_the_brief_prompt_is_shorter() -> None:
    assert len(SystemPrompt().build_blocks("edit_mode", brief=True)[0]) < len(
        SystemPrompt().build_blocks("edit_mode")[0]
    )


def test_blocks_are_header_main_prompt_and_project_in_this_order() -> None:
    header, main, project = SystemPrompt(header="who calls", instructions="\nuse tabs\n").build_blocks("edit_mode")
    assert header == "who calls"
    assert main.startswith(MAIN)
    assert project.endswith("(ODIN.md)\nuse tabs")


def test_the_base_replaces_the_main_prompt_and_the_mode_stays() -> None:
    (block,) = SystemPrompt(base="You are a poet.").build_blocks("plan_mode")
    assert block.startswith("You are a poet.\n\n# Mode: plan\n")
    assert MAIN not in block


def test_appended_text_comes_after_the_main_prompt() -> None:
    (block,) = SystemPrompt(append="Answer in verse.").build_blocks("edit_mode")
    assert block.startswith(MAIN)
    assert block.endswith("\n\nAnswer in verse.")


def test_prompt_lists_allowed_and_forbidden_commands() -> None:
    (block,) = SystemPrompt(allowed=("make test", "ls"), forbidden=("git push",)).build_blocks("edit_mode")
    assert "Commands that run without approval: make test, ls." in block
    assert "Commands that are forbidden: git push." in block
    assert "Commands that" not in SystemPrompt().build_blocks("edit_mode")[0]


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
def test_prompt_lists_no_allowed_commands_in_ask_and_plan_mode(mode: Mode) -> None:
    (block,) = SystemPrompt(allowed=("make test",), forbidden=("git push",)).build_blocks(mode)
    assert "make test" not in block
    assert "Commands that are forbidden: git push." in block


@pytest.mark.parametrize("mode", MODES)
def test_the_prompt_says_how_to_treat_cached_files(mode: Mode) -> None:
    """MODE11. The note that lists them names path, size and time, and marks files that were edited."""
    (block,) = SystemPrompt().build_blocks(mode)
    assert (
        "Cached files are listed as they change: do not read them again; modified means edited in this session."
        in block
    )
    assert "Read a file, or see it in Grep content, before you edit it." in block
    (brief,) = SystemPrompt().build_blocks(mode, brief=True)
    assert "Cached files are known to you: do not read them again." in brief
    assert "Read a file before editing it." in brief
    files = [CachedFile("/p/a", 12, 0.0, modified=True), CachedFile("/p/b", 3, 0.0, truncated=True)]
    note = describe_cached_files(files)
    assert note.startswith("Cached files: /p/a (12 bytes, cached ")
    assert note.count("modified") == 1 and note.endswith("in part)")


def get_system(server: ScriptedServer) -> list[str]:
    return [block["text"] for block in server.requests[0].json["system"]]


def test_instructions_configuration_and_flags_reach_the_request(run_odin: Run, workspace: Path, home: Path) -> None:
    (workspace / "ODIN.md").write_text("Every function has a docstring.\n")
    config = home / ".config" / "odin" / "odinconfig.json"
    config.parent.mkdir(parents=True)
    rules = {"AllowedCommands": ["make test"], "ForbiddenCommands": ["git push"]}
    config.write_text(json.dumps({"system_header": "Called by the test.", **rules}))
    with ScriptedServer([say("hi")]) as server:
        done = run_odin("-p", "hello", "--append-system-prompt", "Answer in verse.", env=server.env("anthropic"))
    assert (done.returncode, done.stdout.strip()) == (0, "hi")
    header, main, project = get_system(server)
    assert header == "Called by the test."
    assert main.startswith(MAIN)
    for expected in ("Answer in verse.", "without approval: make test.", "forbidden: git push."):
        assert expected in main
    assert "Every function has a docstring." in project


def test_system_prompt_flag_replaces_the_main_prompt(run_odin: Run) -> None:
    with ScriptedServer([say("hi")]) as server:
        done = run_odin("-p", "hello", "--system-prompt", "You are a poet.", env=server.env("anthropic"))
    assert done.returncode == 0
    (block,) = get_system(server)
    assert block.startswith("You are a poet.")
    assert MAIN not in block


@pytest.mark.parametrize("trusted", [True, False])
def test_an_output_style_replaces_tone_and_code(run_odin: Run, workspace: Path, home: Path, trusted: bool) -> None:
    styles = workspace / ".claude" / "output-styles"
    styles.mkdir(parents=True)
    (styles / "poet.md").write_text("---\nname: Poet\ndescription: In verse.\n---\nAnswer in verse.\n")
    user = home / ".claude" / "output-styles"
    user.mkdir(parents=True)
    (user / "own.md").write_text("---\nname: poet\nkeep-coding-instructions: true\n---\nAnswer in prose.\n")
    (home / ".config" / "odin").mkdir(parents=True)
    (home / ".config" / "odin" / "odinconfig.json").write_text(json.dumps({"output_style": "poet"}))
    with ScriptedServer([say("Done."), say("Done.")]) as server:
        done = run_odin("-p", "Hello", *(["--trust"] if trusted else []), env=server.env("anthropic"))
        assert done.returncode == 0, done.stderr
        main = next(block for block in get_system(server) if "You are Odin" in block)
    assert "# Tone" not in main
    assert ("# Code" in main) is not trusted
    assert ("Answer in verse." in main) is trusted
    assert ("Answer in prose." in main) is not trusted


def test_an_unknown_output_style_is_named_with_those_there_are(run_odin: Run, workspace: Path, home: Path) -> None:
    (home / ".config" / "odin").mkdir(parents=True)
    (home / ".config" / "odin" / "odinconfig.json").write_text(json.dumps({"output_style": "Terse"}))
    with ScriptedServer([say("Done.")]) as server:
        done = run_odin("-p", "Hello", env=server.env("anthropic"))
        assert "# Tone" in "".join(get_system(server))
    named = "There is no output style 'Terse'. There are: default, Concise, Explanatory, Learning, Proactive."
    assert named in done.stderr


def test_sub_agents_have_no_output_style(run_odin: Run, home: Path) -> None:
    (home / ".config" / "odin").mkdir(parents=True)
    (home / ".config" / "odin" / "odinconfig.json").write_text(json.dumps({"output_style": "Concise"}))
    task = call("AgentTool", {"description": "Look", "prompt": "Look around."})
    with ScriptedServer([task, say("Seen."), say("Done.")]) as server:
        done = run_odin("-p", "Hello", env=server.env("anthropic"))
        assert done.returncode == 0, done.stderr
        styled = ["# Output style: Concise" in json.dumps(request.json["system"]) for request in server.requests]
    assert styled == [True, False, True]
