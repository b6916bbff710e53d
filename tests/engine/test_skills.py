"""Skills in a session: their list in the prompt, their texts, the tools they allow, and trust."""

import os
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, SkillUsed, ToolEnded
from odin.core.errors import UsageError
from odin.core.event import Warned
from odin.core.op import AnswerPermission, SetSkills
from odin.testing import call, say
from odin.ui.slash_commands.extensions import format_skills, make_skill_prompt
from tests.context.test_skills import write_skill

from .conftest import Start, Talk

NO = AnswerPermission("", allow=False)


def call_tool(tool: str, /, **args: str) -> Any:
    return call(tool, dict(args))


def get_system(talk: Talk, number: int = -1) -> str:
    return str(talk.server.requests[number].json["system"])


def list_results(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(ToolEnded)]


@pytest.fixture
def skills(home: Path) -> Path:
    return home / ".config/odin/skills"


async def test_without_skills_nothing_is_sent(start: Start) -> None:
    talk = await start([say("a")])
    await talk.say("hi")
    assert "kill" not in get_system(talk) and "Skill" not in talk.server.requests[0].tool_names


async def test_the_model_reads_a_skill_when_it_needs_it(start: Start, skills: Path) -> None:
    write_skill(skills, "pdf", "Use pdftk on $ARGUMENTS.", description="Fill PDF forms.")
    talk = await start(
        [call_tool("Skill", name="PDF", arguments="a.pdf"), call_tool("Skill", name="pdfs"), say("done"), say("b")]
    )
    await talk.say("fill the form")
    await talk.say("more")
    assert "- pdf: Fill PDF forms." in get_system(talk, 0) and "pdftk" not in get_system(talk, 0)
    assert get_system(talk, 0) == get_system(talk, 3)
    good, bad = list_results(talk)
    assert good.endswith("Use pdftk on a.pdf.") and f"Its folder is {skills}/pdf;" in good
    assert bad.startswith("There is no skill 'pdfs'. Did you mean pdf?")
    assert [(event.name, event.path) for event in talk.all(SkillUsed)] == [("pdf", f"{skills}/pdf/SKILL.md")]
    assert (await talk.client.snapshot()).used_skills == {"": ("pdf",)}
    info = await talk.client.get_info()
    assert [(skill.name, skill.source) for skill in info.skills] == [("pdf", "user")] and "Skill" in info.tools
    assert (await format_skills(talk.client, "", 100)).startswith("✓ pdf  user  Fill PDF forms.\n")
    assert "file          ~/.config/odin/skills/pdf/SKILL.md" in await format_skills(talk.client, "/PDF", 100)
    assert await make_skill_prompt(talk.client, "pdf a.pdf") == "/pdf a.pdf"
    with pytest.raises(UsageError, match=r"There is no skill 'pdfs'\. Did you mean pdf\?"):
        await make_skill_prompt(talk.client, "pdfs x")


async def test_a_skill_is_a_slash_command(start: Start, skills: Path) -> None:
    write_skill(skills, "pdf", "Use pdftk on $ARGUMENTS.", argument_hint="FILE")
    write_skill(skills, "quiet", user_invocable="false")
    write_skill(skills, "help")
    talk = await start([say("a"), say("b")])
    await talk.say("/pdf a.pdf")
    sent = talk.server.requests[0].json["messages"][-1]
    assert "Use pdftk on a.pdf." in str(sent)
    assert (await talk.client.snapshot()).messages[0].body == "/pdf a.pdf"
    assert [(event.name, event.prompt) for event in talk.all(SkillUsed)] == [("pdf", "p1")]
    own = [command for command in await talk.client.list_commands() if command.source == "skill"]
    assert [(command.name, command.hint) for command in own] == [("pdf", "FILE")]
    await talk.say("/quiet x")
    assert "/quiet x" in str(talk.server.requests[1].json["messages"][-1])


async def test_custom_command_overrides_a_skill(start: Start, skills: Path, home: Path) -> None:
    write_skill(skills, "fix", "From the skill.")
    (home / ".config/odin/commands").mkdir(parents=True)
    (home / ".config/odin/commands/fix.md").write_text("From the command.")
    talk = await start([say("a")])
    await talk.say("/fix")
    assert "From the command." in str(talk.server.requests[0].json["messages"]) and talk.all(SkillUsed) == []


async def test_skills_of_a_project_need_trust(start: Start, workspace: Path) -> None:
    write_skill(workspace / ".claude/skills", "a")
    write_skill(workspace / ".odin/skills", "b")
    talk = await start([say("x")])
    info = await talk.client.get_info()
    assert info.skills == () and "Skill" not in info.tools
    (warning,) = [text for text in info.warnings if "skills" in text]
    assert warning.startswith(f"The 2 skills of {workspace} cannot be used: this folder is not trusted.")
    talk = await start([call_tool("Skill", name="a"), say("y")], trust=True)
    await talk.say("go")
    assert "- b: about b\n- a: about a" in get_system(talk).replace("\\n", "\n")
    (workspace / ".claude/skills/a/SKILL.md").write_text("---\nname: a\ndescription: d\n---\nEvil.")
    talk = await start([call_tool("Skill", name="a"), say("y")], server=talk.server, trust=True)
    (workspace / ".claude/skills/a/SKILL.md").write_text("---\nname: a\ndescription: d\n---\nMore evil.")
    with pytest.raises(UsageError, match="changed since this session opened"):
        await talk.say("/a")


async def test_tools_allowed_by_a_skill_stay_allowed_until_the_turn_ends(start: Start, skills: Path) -> None:
    write_skill(skills, "make", "Run it.", allowed_tools="Bash(touch:*) Bash")
    touch = call_tool("Bash", command="touch made")
    script = [
        touch,
        call_tool("Skill", name="make"),
        touch,
        call_tool("Bash", command="rm made"),
        say("a"),
        touch,
        say("b"),
    ]
    talk = await start(script, yes=False, can_ask=True)
    talk.answers = [NO, NO, NO]
    await talk.say("one")
    await talk.say("two")
    assert [event.args["command"] for event in talk.all(PermissionAsked)] == ["touch made", "rm made", "touch made"]
    assert [event.status for event in talk.all(ToolEnded)] == ["error", "success", "success", "error", "error"]


async def test_a_skill_may_allow_its_own_scripts(start: Start, skills: Path, workspace: Path) -> None:
    """This is the example of docs/skills.md."""
    write_skill(skills, "pdf", allowed_tools="Bash(python3 scripts/fill.py:*) Read")
    for folder in (skills / "pdf", workspace):
        (folder / "scripts").mkdir()
        (folder / "scripts/fill.py").write_text(f"print('from', {folder.name!r}); open('filled', 'w')")
    script = [
        call_tool("Skill", name="pdf"),
        call_tool("Bash", command=f"python3 {skills}/pdf/scripts/fill.py --list form.pdf"),
        call_tool("Bash", command="python3 scripts/fill.py --list form.pdf"),
        say("a"),
    ]
    talk = await start(script, yes=False, can_ask=True)
    talk.answers = [NO]
    await talk.say("go")
    assert [event.args["command"] for event in talk.all(PermissionAsked)] == ["python3 scripts/fill.py --list form.pdf"]
    assert list_results(talk)[1].startswith("from pdf")


async def test_rule_of_the_user_overrides_a_skill(start: Start, skills: Path, workspace: Path) -> None:
    write_skill(skills, "make", "Run it.", allowed_tools="Bash(touch:*), Edit(**)")
    script = [
        call_tool("Bash", command="touch a"),
        call_tool("Write", file_path=f"{workspace}/.git/x", content="x"),
        say("a"),
    ]
    talk = await start(script, yes=False, can_ask=True, config={"rules": {"Bash(touch:*)": "ask"}})
    talk.answers = [NO, NO]
    await talk.say("/make")
    assert len(talk.all(PermissionAsked)) == 2
    talk = await start([call_tool("Bash", command="touch a"), say("a")], yes=False, can_ask=True)
    await talk.say("/make")
    assert talk.all(PermissionAsked) == [] and (workspace / "a").exists()


async def test_denied_skills_are_hidden(start: Start, skills: Path) -> None:
    write_skill(skills, "good")
    write_skill(skills, "bad-one")
    script = [call_tool("Skill", name="bad-one"), say("a")]
    talk = await start(script, config={"disallowed_tools": ["Skill(bad-*)"]})
    await talk.say("go")
    assert "bad-one" not in get_system(talk) and [skill.name for skill in (await talk.client.get_info()).skills] == [
        "good"
    ]
    assert talk.all(ToolEnded)[0].status == "denied" and talk.all(SkillUsed) == []


async def test_files_of_a_skill_can_be_read(start: Start, skills: Path) -> None:
    write_skill(skills, "pdf")
    (skills / "pdf/forms.md").write_text("How to fill.")
    (skills.parent / "other.md").write_text("private")
    script = [
        call_tool("Read", file_path=f"{skills}/pdf/forms.md"),
        call_tool("Read", file_path=f"{skills.parent}/other.md"),
        call_tool("Write", file_path=f"{skills}/pdf/forms.md", content="changed"),
        say("a"),
    ]
    talk = await start(script, yes=False, can_ask=True)
    talk.answers = [NO, NO]
    await talk.say("go")
    assert [event.status for event in talk.all(ToolEnded)] == ["success", "denied", "denied"]


async def test_an_agent_may_have_its_own_skills(start: Start, skills: Path, home: Path) -> None:
    write_skill(skills, "pdf", "Use pdftk.")
    write_skill(skills, "xls", "Use calc.")
    agents = home / ".config/odin/agents"
    agents.mkdir(parents=True)
    (agents / "clerk.md").write_text("---\ndescription: d\nmode: all\nskills: pdf, nope\n---\nFile it.")
    (agents / "bare.md").write_text("---\ndescription: d\nmode: all\nskills: none\n---\nJust talk.")
    talk = await start([call_tool("Skill", name="xls"), say("a")], role="clerk")
    await talk.say("go")
    assert "Use pdftk." in get_system(talk) and "xls" not in get_system(talk)
    assert list_results(talk)[0].startswith("There is no skill 'xls'.")
    assert "The agent clerk names skills that do not exist: nope." in [event.text for event in talk.all(Warned)]
    assert [event.name for event in talk.all(SkillUsed)] == ["pdf"]
    talk = await start([say("a")], role="bare")
    await talk.say("go")
    assert "pdf" not in get_system(talk)


async def test_skills_of_a_role_are_active_in_every_turn(start: Start, skills: Path, home: Path) -> None:
    write_skill(skills, "make", "Use make.", allowed_tools="Bash(touch:*)")
    write_skill(skills, "long", "x" * 50_000)
    write_skill(skills, "gone", "Use gone.")
    agents = home / ".config/odin/agents"
    agents.mkdir(parents=True)
    (agents / "clerk.md").write_text("---\ndescription: d\nmode: all\nskills: make, long, gone\n---\nFile it.")
    touch = call_tool("Bash", command="touch made")
    talk = await start([touch, say("a"), touch, say("b")], yes=False, can_ask=True, role="clerk")
    (skills / "gone/SKILL.md").unlink()
    await talk.say("one")
    await talk.say("two")
    assert talk.all(PermissionAsked) == [] and [event.name for event in talk.all(SkillUsed)] == ["make"]
    warned = [event.text for event in talk.all(Warned)]
    assert (
        "The agent clerk names the skill long, which is left out: all of them together have at most 50,000 characters."
    ) in warned
    assert any(
        text.startswith("The agent clerk names a skill that is left out. The skill gone cannot") for text in warned
    )


async def test_a_rule_may_name_the_plugin_of_a_skill(start: Start, skills: Path, tmp_path: Path) -> None:
    write_skill(skills, "pdf", "Mine.")
    write_skill(tmp_path / "office/skills", "pdf", "Theirs.")
    write_skill(tmp_path / "office/skills", "xls", "Calc.")
    script = [
        call_tool("Skill", name="office:pdf"),
        call_tool("Skill", name="xls"),
        call_tool("Skill", name="pdf"),
        say("a"),
    ]
    config = {"rules": {"Skill(office:*)": "ask"}}
    talk = await start(script, yes=False, can_ask=True, config=config, plugin_dirs=(f"{tmp_path}/office",))
    talk.answers = [AnswerPermission("", allow=True), NO]
    await talk.say("go")
    assert len(talk.all(PermissionAsked)) == 2
    assert [event.name for event in talk.all(SkillUsed)] == ["office:pdf", "pdf"]


async def test_a_program_chooses_the_skills_of_a_session(start: Start, skills: Path) -> None:
    for name in ("pdf", "xls"):
        write_skill(skills, name)
    talk = await start([call_tool("Skill", name="xls"), say("a"), say("b"), say("c")])
    await talk.client.submit(SetSkills(("pdf", "nope")))
    await talk.say("go")
    assert "- pdf:" in get_system(talk) and "xls" not in get_system(talk)
    assert list_results(talk)[0].startswith("There is no skill 'xls'.")
    assert [event.text for event in talk.all(Warned)] == ["There are no skills with these names: nope."]
    assert [skill.name for skill in (await talk.client.get_info()).skills] == ["pdf"]
    assert [item.name for item in await talk.client.list_commands() if item.source == "skill"] == ["pdf"]
    await talk.client.submit(SetSkills(()))
    await talk.say("none")
    assert "# Skills" not in get_system(talk)
    await talk.client.submit(SetSkills(None))
    await talk.say("all")
    assert "- xls:" in get_system(talk)


async def test_skills_can_be_disabled_and_loaded_from_other_folders(start: Start, skills: Path, tmp_path: Path) -> None:
    write_skill(skills, "mine")
    write_skill(tmp_path / "more", "extra")
    config: dict[str, Any] = {"skills": {"paths": [str(tmp_path / "more"), str(tmp_path / "gone")]}}
    talk = await start([say("a")], config=config)
    info = await talk.client.get_info()
    assert [(skill.name, skill.source) for skill in info.skills] == [("mine", "user"), ("extra", "extra")]
    assert f"{tmp_path}/gone: It is not a folder, so it has no skills." in info.warnings
    talk = await start([say("a")], config={"skills": {"enabled": False}})
    assert (await talk.client.get_info()).skills == ()


async def test_too_many_skills_cause_one_warning(start: Start, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.context.skill_files.MAX_SKILLS", 50)
    monkeypatch.setattr("odin.context.skills._MAX_LISTED", 45)
    for number in range(60):
        write_skill(skills, f"s{number:02}")
    talk = await start([call("Skill", {}), say("a")])
    await talk.say("go")
    info = await talk.client.get_info()
    assert len(info.skills) == 50
    assert [text for text in info.warnings if "skill" in text] == [
        f"{skills}: It holds more than 50 skills; the rest is ignored."
    ]
    assert "+18 more; Skill without a name lists them" in get_system(talk)
    assert list_results(talk)[0].endswith("- s44: about s44\n+5 more")


async def test_folders_that_cannot_be_read_do_not_harm_a_session(start: Start, home: Path, workspace: Path) -> None:
    folders = [workspace / ".odin", workspace / ".claude", home / ".agents", home / ".claude"]
    for folder in folders:
        folder.mkdir()
        folder.chmod(0)
    if os.access(folders[0], os.R_OK):
        pytest.skip("root may read everything")
    try:
        talk = await start([say("a")])
        assert (await talk.say("go")).text == "a"
        await talk.client.get_info()
    finally:
        for folder in folders:
            folder.chmod(0o700)


async def test_scripts_of_a_skill_run_in_the_sandbox(start: Start, skills: Path) -> None:
    write_skill(skills, "pdf")
    (skills / "pdf/run.sh").write_text("echo from the skill\n")
    talk = await start([call_tool("Bash", command=f"sh {skills}/pdf/run.sh"), say("a")])
    await talk.say("go")
    assert "from the skill" in list_results(talk)[0]
