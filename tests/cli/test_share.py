"""`odin share`: the review, the question, links with QR codes, files, the list, and revoking."""

import json
import os
import re
from pathlib import Path

import pytest

from odin.config.paths import get_state_dir
from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.event import AnyEvent, SessionOpened, TitleSet, TurnEnded, TurnStarted
from odin.core.message import Image, ReplyMessage, Text, ToolCall
from odin.server.access import AccessStore
from odin.server.shares import ShareStore
from tests.cli.test_pair import read_qr_code
from tests.conftest import RunHere
from tests.pictures import png
from tests.session.logs import turn
from tests.shared_sessions import SECRETS, SHAPE, list_full_events, make_text, plant_secrets, write_log
from tests.table import each
from tests.ui.pseudo_terminal import open_terminal

URL = "https://odin.example.com/base"
NOT_EVERY = "Odin does not recognize every secret."


@pytest.fixture
def shares() -> ShareStore:
    return ShareStore(get_state_dir(os.environ))


@pytest.fixture
def log(workspace: Path, home: Path) -> Path:
    """A session with a secret, a path below HOME and an image."""
    call = ToolCall("c1", "Read", {"file_path": f"{home}/a.py"})
    image = Image("shot.png", "image/png", 3, 2)
    events: list[AnyEvent] = [
        SessionOpened(str(workspace), "test/model", "1"),
        TitleSet("Mend the parser"),
        TurnStarted("p1", f"use {SHAPE}", "edit_mode", images=(image,)),
        Replied(ReplyMessage((Text("I look."), call))),
        ToolStarted("c1", "Read", call.args),
        ToolEnded("c1", "Read", "success", "text", files=(f"{home}/a.py",)),
        TurnEnded("p1", "end_turn"),
    ]
    path = write_log(workspace, [*events], "aa1")
    (path.parent / "shot.png").write_bytes(png())
    return path


def review(workspace: Path, *, left_out: str = "; 1 image (--images includes them)", images: str = "") -> str:
    return (
        "Title     Mend the parser\n"
        f"Folder    {workspace}\n"
        "Model     test/model\n"
        f"Shown     1 prompt; 1 answer; 1 tool result about 1 file{images}\n"
        "Left out  instructions, memory, settings, hooks, permission requests, what sub-agents did in detail"
        f"{left_out}\n"
        "Redacted  1 × Anthropic key: sk-a… (prompt 1)\n"
        "          1 × home folder, shown as ~ (Read (prompt 1))\n"
        f"{NOT_EVERY}"
    )


def test_a_link_without_a_terminal(run_here: RunHere, log: Path, shares: ShareStore, workspace: Path) -> None:
    code, out, err = run_here("share", "aa", "--yes", "--url", f"{URL}/", "--expires", "12h")
    assert code == 0
    assert err == f"{review(workspace)} `odin share aa1 --file page.html` writes the page, to read it first.\n"
    match = re.search(r"^Link     (\S+)/#share/([0-9a-f]{8})/([\w-]{22})$", out, re.MULTILINE)
    assert match is not None
    assert match[1] == URL
    opened = shares.open(match[2], match[3], "::1")
    assert (opened.record.title, opened.record.expires - opened.record.created) == ("Mend the parser", 12 * 3600)
    assert out.splitlines()[0] == f"Share    {match[2]}"
    assert re.search(r"^Expires  \d{4}-\d\d-\d\d \d\d:\d\d, or with the session$", out, re.MULTILINE)
    assert f"Revoke   odin share --revoke {match[2]}\n" in out


def test_nothing_is_shared_without_consent(run_here: RunHere, log: Path, shares: ShareStore, workspace: Path) -> None:
    code, out, err = run_here("share", "aa1", "--url", URL)
    assert (code, out) == (2, "")
    assert review(workspace) in err
    assert err.endswith("odin: Cannot ask without a terminal. Read what is shared, then add --yes.\n")
    code, out, err = run_here("share", "aa1", "--file", "page.html")
    assert (code, out, shares.list_shares()) == (2, "", ())
    assert not (workspace / "page.html").exists()
    assert not (get_state_dir(os.environ) / "shares").exists()


def test_the_question_on_a_terminal(log: Path, shares: ShareStore, workspace: Path) -> None:
    for answer, code, count in (("n\n", 1, 0), ("\n", 1, 0), ("y\n", 0, 1)):
        args = ("share", "last", "--url", URL)
        with open_terminal(*args, cwd=workspace, env={}, with_stdout=True, columns=100) as terminal:
            terminal.see("Share this? [y/N] ")
            terminal.type(answer)
            assert terminal.wait_for_exit()[0] == code
            shown = terminal.raw.decode()
        assert len(shares.list_shares()) == count
        assert ("Nothing is shared." in shown) == (count == 0)
        link = re.search(r"Link +(\S+)", shown)
        assert read_qr_code(shown) == (link[1] if link else "")


def test_the_url_is_that_of_the_last_server(run_here: RunHere, log: Path) -> None:
    code, out, err = run_here("share", "aa1", "--yes")
    assert (code, out) == (2, "")
    assert err == (
        "odin: The URL of the server is not known: `odin serve` has not run yet. "
        "Start it, or give --url URL; --file PATH.html needs no server.\n"
    )
    AccessStore(get_state_dir(os.environ) / "server").record_url("http://127.0.0.1:7070")
    code, out, err = run_here("share", "aa1", "--yes")
    assert "Link     http://127.0.0.1:7070/#share/" in out
    assert err.endswith("Only this machine reaches that address; --url takes the one that others use.\n")
    err = run_here("share", "aa1", "--yes", "--url", "http://192.168.1.7:7070")[2]
    assert err.endswith("That address has no TLS: everybody on the way can read the page.\n")


def test_json(run_here: RunHere, log: Path) -> None:
    code, out, err = run_here("share", "Mend", "parser", "--yes", "--json", "--keep", "--url", URL)
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert (made["session"], made["is_kept"], made["url"].split("/#share/")[0]) == ("aa1", True, URL)
    assert [item["kind"] for item in made["review"]["redactions"]] == ["Anthropic key", "home folder, shown as ~"]
    listed = run_here("share", "--list", "--json")[1]
    assert [item["id"] for item in json.loads(listed)["shares"]] == [made["id"]]
    assert "digest" not in out + listed
    assert made["url"][-22:] not in listed


def test_the_list_and_revoking(run_here: RunHere, log: Path, shares: ShareStore) -> None:
    assert run_here("share", "--list")[1] == "Nothing is shared. `odin share ID` shares a session.\n"
    ids = [json.loads(run_here("share", "aa1", "-y", "--json", "--url", URL)[1])["url"] for _ in range(3)]
    (first, secret), (second, _), (third, _) = (url.rpartition("#share/")[2].split("/") for url in ids)
    shares.open(first, secret, "::1")
    rows = [re.split(r" {2,}", line) for line in run_here("share", "--list")[1].splitlines()]
    assert rows[0] == ["ID", "TITLE", "CREATED", "EXPIRES", "OPENED", "LAST OPENED"]
    assert [(row[0], row[1], row[4]) for row in rows[1:]] == [
        (first, "Mend the parser", "1 time"),
        (second, "Mend the parser", "never"),
        (third, "Mend the parser", "never"),
    ]
    assert run_here("share", "--revoke", first)[1] == f"Share {first} has ended: Mend the parser\n"
    revoked = json.loads(run_here("share", "--revoke", "aa1", "--json")[1])["revoked"]
    assert [item["id"] for item in revoked] == [second, third]
    assert run_here("share", "--revoke", "all")[1] == "Nothing was shared.\n"


def test_a_file(run_here: RunHere, log: Path, workspace: Path, home: Path) -> None:
    code, out, err = run_here("share", "aa1", "--yes", "--images", "--file", "page.html")
    assert (code, out) == (0, f"{workspace / 'page.html'}\n")
    assert err == f"{review(workspace, left_out='', images='; 1 image, as they are')}\n"
    page = (workspace / "page.html").read_text()
    assert "Mend the parser" in page and "[redacted: Anthropic key]" in page
    assert "data:image/png;base64," in page
    assert SHAPE not in page and str(home) not in page
    assert run_here("share", "aa1", "--yes", "--file", "page.html")[0] == 0
    assert "data:image/png" not in (workspace / "page.html").read_text()
    (workspace / "mine.html").write_text("mine")
    code, _, err = run_here("share", "aa1", "--yes", "--file", "mine.html")
    assert (code, "exists and is not an Odin export" in err) == (2, True)
    assert not (get_state_dir(os.environ) / "shares").exists()
    assert list((get_state_dir(os.environ) / "scratch").iterdir()) == []


def test_no_secret_of_any_event_is_in_the_file(run_here: RunHere, workspace: Path, home: Path) -> None:
    env = plant_secrets(home, workspace)
    write_log(workspace, list_full_events(make_text(home)), "bb2")
    code, out, err = run_here("share", "bb2", "--yes", "--file", "page.html", env=env)
    assert code == 0
    page = (workspace / "page.html").read_text()
    assert "visible" in page
    assert [secret for secret in (*SECRETS, str(home)) if secret in page + err] == []
    assert out == f"{workspace / 'page.html'}\n"


def test_deleting_the_session_removes_its_copy(run_here: RunHere, log: Path, workspace: Path) -> None:
    write_log(workspace, [SessionOpened(str(workspace), "test/model", "1"), *turn("t1", "kept")], "bb2")
    for args in (("aa1",), ("bb2", "--keep")):
        assert run_here("share", *args, "--yes", "--url", URL)[0] == 0
    folder = get_state_dir(os.environ) / "shares"
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 2
    assert run_here("sessions", "delete", "aa1", "bb2", "--yes")[0] == 0
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 1
    (left,) = json.loads(run_here("share", "--list", "--json")[1])["shares"]
    assert left["title"] == "kept"
    assert re.search(r"^shared copies +1 ", run_here("cleanup")[1], re.MULTILINE)


@each(
    ("args", "said"),
    [
        ((), "`odin share` needs a session ID or title. `odin sessions` lists sessions."),
        (("zzz", "--url", URL), "There is no session zzz"),
        (("../aa1", "--url", URL), "'../aa1' is not a session id."),
        (("aa1", "--url", "odin.example.com"), "'odin.example.com' is not the URL of a server."),
        (("aa1", "--url", URL, "--expires", "soon"), "Invalid duration 'soon'. Use e.g. 30d, 12h or 2w."),
        (("aa1", "--url", URL, "--expires", "366d"), "--expires 366d is not possible. Use at most 365d."),
        (("aa1", "--url", URL, "--expires", "0"), "--expires 0 is not possible."),
        (("aa1", "--file", "page.txt"), "--file writes HTML, not 'page.txt'. Use a name such as page.html."),
        (("aa1", "--file", "page.html", "--keep"), "--file makes no link. Leave out --expires, --keep and --url."),
        (("aa1", "--yes", "--url", URL, "--file", ""), "--file is empty. Leave it out, or give it a value."),
        (("aa1", "--yes", "--url", URL, "--expires", ""), "--expires is empty."),
        (("--list", "aa1"), "--list and --revoke go with no other option but --json."),
        (("--list", "--revoke", "all"), "--list and --revoke go with no other option but --json."),
        (("--revoke", "all", "--yes"), "--list and --revoke go with no other option but --json."),
        (("--revoke", "nothing"), "There is no share 'nothing'. `odin share --list` shows them."),
    ],
)
def test_mistakes(run_here: RunHere, log: Path, args: tuple[str, ...], said: str) -> None:
    code, out, err = run_here("share", *args)
    assert (code, out) == (2, "")
    assert said in err
    assert not (get_state_dir(os.environ) / "shares/shares.json").exists()
