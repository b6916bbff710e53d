"""`odin pair`: codes and QR codes on a terminal and without one, the list of clients, and revoking."""

import json
import re
from pathlib import Path

import pytest
import zxingcpp

from odin.server.access import AccessStore
from tests.conftest import RunHere
from tests.table import each
from tests.ui.pseudo_terminal import open_terminal

URL = "https://odin.example.com/base"
WHITE_ON_BLACK = "\x1b[38;5;231;48;5;16m"


@pytest.fixture
def store(state: Path) -> AccessStore:
    return AccessStore(state / "server")


def read_qr_code(shown: str) -> str:
    """Return the text of the QR code in these lines, as a reader sees it on a screen: blocks are light."""
    rows: list[bytes] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines():
        if line and not set(line) - set("█▀▄ "):
            rows += [bytes(255 * (char in lit) for char in line) for lit in ("█▀", "█▄")]
    if not rows:
        return ""
    scale = 4
    pixels = b"".join(bytes(value for value in row for _ in range(scale)) * scale for row in rows)
    image = memoryview(pixels).cast("B", (len(rows) * scale, len(rows[0]) * scale))
    (found,) = zxingcpp.read_barcodes(image, try_invert=False)
    return found.text


def test_a_code_without_a_terminal(run_here: RunHere, store: AccessStore) -> None:
    code, out, err = run_here("pair", "--name", "phone", "--url", f"{URL}/")
    assert (code, err) == (0, "")
    text = out.split()[1]
    assert out == (
        f"Code     {text}\n"
        "Valid    1 h, for one client\n"
        "Allows   to read sessions and to send prompts, but not to approve anything\n"
        f"Attach   odin attach {URL} --code {text}\n"
        f"Link     {URL}/#{text}\n"
    )
    found = store.find(store.redeem(text, "browser", "10.0.0.1"))
    assert found is not None
    assert (found.name, found.right) == ("phone", "prompt")


def test_the_url_is_that_of_the_last_server(run_here: RunHere, store: AccessStore) -> None:
    assert run_here("pair")[1].splitlines()[3].startswith("Attach   odin attach URL --code ")
    store.record_url("http://127.0.0.1:8000")
    assert run_here("pair")[1].splitlines()[4].startswith("Link     http://127.0.0.1:8000/#")
    assert json.loads(run_here("pair", "--json", "--url", URL)[1])["url"].startswith(f"{URL}/#")


@each(
    ("env", "columns", "is_colored", "has_qr_code"),
    [
        ({}, 80, True, True),
        ({"NO_COLOR": "1"}, 80, False, True),
        ({}, 20, False, False),
        ({"TERM": "dumb"}, 80, False, False),
    ],
)
def test_a_qr_code_on_a_terminal(
    workspace: Path, store: AccessStore, env: dict[str, str], columns: int, is_colored: bool, has_qr_code: bool
) -> None:
    args = ("pair", "--right", "approve", "--url", URL)
    with open_terminal(*args, cwd=workspace, env=env, with_stdout=True, columns=columns) as terminal:
        assert terminal.wait_for_exit()[0] == 0
        shown = terminal.raw.decode()
    text = re.search(r"Code +(\S+)", shown)
    assert text is not None
    assert read_qr_code(shown) == (f"{URL}/#{text[1]}" if has_qr_code else "")
    assert (WHITE_ON_BLACK in shown, "\x1b" in shown) == (is_colored, is_colored)
    (found,) = store.list_codes()
    assert found.right == "approve"
    store.revoke_all()


def test_clients_and_codes_are_listed_and_revoked(run_here: RunHere, store: AccessStore) -> None:
    assert run_here("pair", "--list")[1] == "No clients. `odin pair` makes a code for one.\n"
    token = store.redeem(store.create_code("approve", "my phone").text, "", "10.0.0.1")
    store.create_token("ci", "view")
    made = json.loads(run_here("pair", "--json", "--right", "view", "--name", "tablet")[1])
    assert (made["right"], made["url"], made["expires"] - made["created"]) == ("view", "", 3600)
    lines = run_here("pair", "--list")[1].splitlines()
    rows = [re.split(r" {2,}", line) for line in lines]
    assert [row[1:3] for row in rows] == [
        ["NAME", "RIGHT"],
        ["my phone", "approve"],
        ["ci", "view"],
        ["tablet", "view"],
    ]
    assert rows[1][-1] == "10.0.0.1"
    assert re.fullmatch(r"code, valid until \d\d:\d\d", rows[3][-1])
    listed = json.loads(run_here("pair", "--list", "--json")[1])
    assert [item["name"] for item in listed["clients"]] == ["my phone", "ci"]
    assert [item["id"] for item in listed["codes"]] == [made["id"]]
    assert run_here("pair", "--revoke", "my phone")[1] == "my phone has no access any more.\n"
    assert store.find(token) is None
    assert run_here("pair", "--revoke", made["id"])[1] == f"Code {made['id']} is cancelled.\n"
    revoked = json.loads(run_here("pair", "--revoke", "all", "--json")[1])["revoked"]
    assert [item["name"] for item in revoked] == ["ci"]
    assert run_here("pair", "--revoke", "all")[1] == "Nobody had access.\n"
    assert "digest" not in json.dumps([made, listed, revoked])


@each(
    ("args", "said"),
    [
        (("--revoke", "nobody"), "There is no client or code 'nobody'. `odin pair --list` shows them."),
        (("--revoke", ""), "There is no client or code ''."),
        (("--right", "admin"), "Unknown value 'admin' for --right. Use view, prompt or approve."),
        (("--url", "odin.example.com"), "'odin.example.com' is not the URL of a server."),
        (("--list", "--revoke", "all"), "--list and --revoke go with no other option but --json."),
        (("--list", "--right", "view"), "--list and --revoke go with no other option but --json."),
        (("--revoke", "all", "--url", URL), "--list and --revoke go with no other option but --json."),
    ],
)
def test_mistakes(run_here: RunHere, state: Path, args: tuple[str, ...], said: str) -> None:
    code, out, err = run_here("pair", *args)
    assert (code, out) == (2, "")
    assert said in err
    assert not (state / "server" / "access.json").exists()


def test_a_fourth_code_is_refused(run_here: RunHere, store: AccessStore) -> None:
    assert [run_here("pair")[0] for _ in range(3)] == [0, 0, 0]
    code, _, err = run_here("pair")
    assert code == 2
    assert f"cancel the oldest: `odin pair --revoke {store.list_codes()[0].id}`" in err


def test_a_damaged_file_is_named(run_here: RunHere, state: Path) -> None:
    (state / "server").mkdir(parents=True)
    (state / "server" / "access.json").write_text("{")
    for args in ((), ("--list",), ("--revoke", "all")):
        code, _, err = run_here("pair", *args)
        assert code == 2
        assert "access.json is damaged" in err
