"""The workspace of chats is restricted to itself: by the sandbox, which the kernel enforces, and for the file tools."""

from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest
from tests.gateway.platform import Platform, run_gateway

PRIVATE = "the diary of somebody"


def read_result(request: SeenRequest) -> str:
    return str(request.messages[-1]["content"])


@pytest.mark.parametrize("is_bound", [False, True])
async def test_nothing_outside_is_read_or_written(home: Path, is_bound: bool) -> None:
    platform = Platform()
    for name in ("odin", "other"):
        (home / name).mkdir()
    (home / "other/diary.txt").write_text(PRIVATE)
    (home / "odin/spy.py").write_text("import os\nhome = os.environ['HOME']\nprint(os.listdir(home))\ntry: open(home + '/other/made', 'w')\nexcept OSError as e: print(e)\nprint(open(home + '/other/diary.txt').read())\n")
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
        """python3 -c 'import os; print(open(os.environ["HOME"] + chr(47) + "other" + chr(47) + "diary.txt").read())'""",
        """python3 -c 'import os; open(os.environ["HOME"] + chr(47) + "other" + chr(47) + "made", "w")'""",
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
        async with run_gateway(model, platform, home, confirm_timeout_s=0.2):
            if is_bound:
                await platform.write(f"/bind {home}/odin")
                await platform.wait_for(1)
            await platform.write("try everything")
            await platform.wait_until(lambda: platform.sent[-1:] != [] and platform.sent[-1].text == "done")
    results = [read_result(request) for request in model.requests[1:]]
    for result in results: print(result[50:350])
    assert len(results) == len(commands) + len(files) and [one for one in results if PRIVATE in one] == []
    assert [*other.iterdir()] == [other / "diary.txt"] and not (home / "made").exists()
