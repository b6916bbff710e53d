"""The user's own programs: never taken from a folder that commands can write, and their files out of reach."""

import asyncio
import os
from pathlib import Path

import pytest

from odin.core.errors import StateUnwritable, UsageError
from odin.core.profile import WritableFolders
from odin.sandbox.terminal import TerminalPrograms, make_terminal_programs
from tests.waiting import LIMIT_S


def write_program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the program `tool`, which leaves a mark, and links to it from outside."""
    project = tmp_path / "project"
    tool = write_program(project / "bin" / "tool", f"touch {tmp_path}/hit; echo theirs")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "tool").symlink_to(tool)
    (tmp_path / "linked").symlink_to(project / "bin")
    return project


def make_programs(project: Path, *path: object, **more: str) -> TerminalPrograms:
    env = {**os.environ, **more, "PATH": os.pathsep.join([*map(str, path), "/usr/bin", "/bin"])}
    return TerminalPrograms(env, WritableFolders((str(project),)), str(project.parent / "state" / "scratch"))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("{project}/bin", "tool"),
        ("{outside}/linked", "tool"),
        ("{outside}/links", "tool"),
        ("", "tool"),
        (".", "tool"),
        ("bin", "tool"),
        ("/usr/bin", "bin/tool"),
        ("/usr/bin", "./bin/tool"),
        ("/usr/bin", "../project/bin/tool"),
    ],
)
async def test_no_program_is_looked_up_where_commands_can_write(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    monkeypatch.chdir(project if path != "." else project / "bin")
    places = {"project": project, "outside": project.parent}
    programs = make_programs(project, path.format(**places), BROWSER=name.format(**places))
    command = [name.format(**places)]
    assert programs.find(command[0]) == ""
    with pytest.raises(OSError, match=r"commands can write|not installed"):
        await programs.run(command)
    assert await programs.capture(command, timeout=LIMIT_S, max_bytes=100) == b""
    assert not (project.parent / "hit").exists()


async def test_a_program_gets_the_environment_of_the_user_without_the_folders_of_the_project(project: Path) -> None:
    own = write_program(project.parent / "own" / "show", 'echo "$MY_TOKEN $PATH"')
    programs = make_programs(project, project / "bin", own.parent, MY_TOKEN="kept")
    said = (await programs.capture(["show"], timeout=LIMIT_S, max_bytes=1000)).decode()
    assert said == f"kept {own.parent}:/usr/bin:/bin\n"
    assert await programs.capture(["show"], timeout=LIMIT_S, max_bytes=10) == b"", "it printed too much"
    assert programs.find(f"{project}/bin/tool") == f"{project}/bin/tool", "a full path is the choice of the user"


async def test_temporary_folders_are_not_searched_except_for_a_home_in_one(tmp_path: Path) -> None:
    tool = write_program(tmp_path / "home" / "bin" / "tool", "true")
    env = {"PATH": str(tool.parent)}
    assert TerminalPrograms(env, WritableFolders(temporary=("/tmp", str(tmp_path)))).find("tool") == ""
    home = WritableFolders(temporary=("/tmp", str(tmp_path)), persistent=(str(tmp_path / "home"),))
    assert TerminalPrograms(env, home).find("tool") == str(tool)


def test_a_path_without_safe_folders_is_not_the_current_folder() -> None:
    filtered = WritableFolders(("/p",)).filter_variables({"PATH": "/p/bin:.", "PYTHONPATH": "/p"})
    assert filtered == {"PATH": os.defpath, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}


def test_scratch_is_private_below_the_state_folder_and_is_removed(project: Path) -> None:
    programs = make_programs(project)
    with programs.open_scratch() as folder:
        assert folder.parent == project.parent / "state" / "scratch"
        assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
    assert not folder.exists()
    with pytest.raises(UsageError, match="not open yet"), make_terminal_programs(None, os.environ).open_scratch():
        pass
    folder.parent.rmdir()
    folder.parent.write_text("")
    with pytest.raises(StateUnwritable), programs.open_scratch():
        pass


async def test_a_program_in_the_terminal_is_stopped_when_the_app_ends(project: Path) -> None:
    waiting = write_program(project.parent / "own" / "wait", f"echo $$ > {project.parent}/pid; exec sleep 600")
    ending = asyncio.Event()
    run = asyncio.create_task(make_programs(project).run([str(waiting)], until=ending))
    while not (pid := project.parent / "pid").exists() or not pid.read_text().strip():
        await asyncio.sleep(0.01)
    ending.set()
    assert await run == -15
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("browser", "said"),
    [
        ("ours", "{url}"),
        ("ours --new '<%s>'", "--new <{url}>"),
        ("theirs:ours", "{url}"),
        ("it's:ours", "{url}"),
        ("", "xdg {url}"),
        ("missing", "xdg {url}"),
    ],
)
async def test_a_page_opens_in_the_browser_of_the_user(project: Path, browser: str, said: str) -> None:
    url = "https://example.com/?a=1&b=%s"
    log = project.parent / "log"
    write_program(project / "bin" / "theirs", f"echo theirs > {log}")
    for name, first in (("ours", ""), ("xdg-open", "xdg "), ("open", "xdg ")):
        write_program(project.parent / "own" / name, f'echo "{first}$*" > {log}.new; mv {log}.new {log}')
    programs = make_programs(project, project / "bin", project.parent / "own", BROWSER=browser)
    programs.open_page(url)
    while not log.exists():
        await asyncio.sleep(0.01)
    assert log.read_text() == said.format(url=url) + "\n"


def test_only_web_pages_are_opened(project: Path) -> None:
    write_program(project.parent / "own" / "ours", f"touch {project.parent}/hit")
    programs = make_programs(project, project.parent / "own", BROWSER="ours")
    for url in ("file:///etc/passwd", "--help", "javascript:1", "", "HTTPS//x"):
        programs.open_page(url)
    assert not (project.parent / "hit").exists()
