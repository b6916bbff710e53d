"""The workspace of chats is restricted to itself: by the sandbox, which the kernel enforces, and for the file tools."""

from pathlib import Path

from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest
from tests.gateway.platform import Platform, run_gateway

PRIVATE = "the diary of somebody"
SPY = """
import os

home = os.environ["HOME"]
print(open(f"{home}/odin/in.txt").read())
for path, mode in ((f"{home}/other/diary.txt", "r"), (f"{home}/other/made", "w"), (f"{home}/made", "w"), ("made", "w")):
    try:
        file = open(path, mode)
        print(file.read() if mode == "r" else f"{path} is only here")
    except OSError as error:
        print(path.removeprefix(home), error.strerror)
"""
"""It names no path that a rule could find: only the kernel stops it."""


def read_result(request: SeenRequest) -> str:
    return str(request.messages[-1]["content"])


async def test_nothing_outside_is_read_or_written(home: Path) -> None:
    """Whatever the model tries in a chat that is bound to no folder."""
    platform = Platform()
    for name in ("odin", "other"):
        (home / name).mkdir()
    (home / "other/diary.txt").write_text(PRIVATE)
    (home / "odin/spy.py").write_text(SPY)
    (home / "odin/in.txt").write_text("of the workspace")
    (home / "odin/link").symlink_to(home / "other/diary.txt")
    other = home / "other"
    commands = (
        f"cat {other}/diary.txt",
        "cat ~/other/diary.txt",
        "cat link",
        "cat ../other/diary.txt",
        'cd ..; d=oth; cat "${d}er/diary.txt"',
        "python3 -c \"import os; print(open(os.path.expanduser('~/ot' + 'her/diary.txt')).read())\"",
        "find / -name 'diar*' -exec cat {} +",
        f"echo x > {other}/made",
        "cp /etc/hostname ~/oth*/made",
        "python3 -c \"import os; open(os.path.expanduser('~/ot' + 'her/made'), 'w')\"",
        "echo x > ~/made",
        "python3 spy.py",
    )
    files = (
        call("Read", {"file_path": f"{other}/diary.txt"}),
        call("Read", {"file_path": "link"}),
        call("Grep", {"pattern": "diary", "path": str(other)}),
        call("LS", {"path": str(other)}),
        call("message", {"files": ["link"]}),
    )
    script = [*(call("ExecuteCommand", {"command": command}) for command in commands), *files, say("done")]
    with ScriptedServer(script) as model:
        async with run_gateway(model, platform, home):
            await platform.write("try everything")
            await platform.wait_until(lambda: platform.list_texts() == ["done"])
    results = [read_result(request) for request in model.requests[1:]]
    assert len(results) == len(commands) + len(files) and [one for one in results if PRIVATE in one] == []
    for number, result in enumerate(results):
        if number != len(commands) - 1:
            assert "Denied by rule restrict_to_workspace" in result
    spied = results[len(commands) - 1]
    assert "of the workspace" in spied and "/other/diary.txt No such file" in spied
    assert "\\n/made Read-only file system" in spied
    assert [*other.iterdir()] == [other / "diary.txt"] and not (home / "made").exists()
