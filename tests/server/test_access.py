"""Tokens and pairing codes: who gets in, how often one may guess, and what is on the disk."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odin.core.errors import ConfigError, OdinError, UsageError
from odin.core.timing import Timing
from odin.server import pairing_codes
from odin.server.access import AccessStore, CodeRefused
from odin.server.guard import TooManyRequests
from odin.server.pairing_codes import HASH_COST
from tests.table import each
from tests.waiting import LIMIT_S


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "server"


@pytest.fixture
def store(folder: Path, clock: FakeClock) -> AccessStore:
    return open_store(folder, clock)


def open_store(folder: Path, clock: FakeClock) -> AccessStore:
    return AccessStore(folder, Timing(clock=clock, monotonic=clock))


# --- tokens ---


def test_a_token_is_found_by_its_text_alone(store: AccessStore) -> None:
    token = store.create_token("ci", "view")
    other = store.create_token("laptop", "approve")
    found = store.find(token)
    assert found is not None
    assert (found.name, found.right) == ("ci", "view")
    assert token.startswith("odin_")
    assert len(token) == len("odin_") + 43
    assert token != other
    for wrong in ("", "odin_", token[:-1], token + "x", token.upper(), found.digest, found.id, "odin_\udcff"):
        assert store.find(wrong) is None


def test_a_token_expires(store: AccessStore, clock: FakeClock) -> None:
    token = store.create_token("ci", "view", ttl=60)
    record = store.find(token)
    assert record is not None
    clock.now += 59
    assert store.is_valid(record)
    clock.now += 1
    assert store.find(token) is None
    assert not store.is_valid(record)
    assert store.list_tokens() == ()


def test_revoking_takes_effect_in_an_open_store(store: AccessStore, folder: Path, clock: FakeClock) -> None:
    server = open_store(folder, clock)
    tokens = [store.create_token(name, "prompt") for name in ("phone", "laptop", "ci")]
    records = [server.find(token) for token in tokens]
    assert all(record is not None and server.is_valid(record) for record in records)
    assert [item.name for item in store.revoke("phone")] == ["phone"]
    assert [server.find(token) is not None for token in tokens] == [False, True, True]
    assert [record is not None and server.is_valid(record) for record in records] == [False, True, True]
    assert records[1] is not None
    store.revoke(records[1].id)
    assert [server.find(token) is not None for token in tokens] == [False, False, True]
    unnamed = store.create_code("view").record
    assert store.revoke("phone") == store.revoke("") == ()
    assert store.revoke(unnamed.id) == (unnamed,)
    assert [item.name for item in store.revoke_all()] == ["ci"]
    assert server.find(tokens[2]) is None


def test_deleting_the_file_revokes_everything(store: AccessStore, folder: Path) -> None:
    token = store.create_token("phone", "prompt")
    assert store.find(token) is not None
    (folder / "access.json").unlink()
    assert store.find(token) is None


def test_last_use_is_written_once_a_minute(store: AccessStore, folder: Path, clock: FakeClock) -> None:
    record = store.find(store.create_token("phone", "prompt"))
    assert record is not None
    store.record_use(record, "10.0.0.1")
    clock.now += 30
    store.record_use(record, "10.0.0.2")
    assert [(item.seen, item.address) for item in store.list_tokens()] == [(1_000_000, "10.0.0.1")]
    clock.now += 30
    store.record_use(record, "10.0.0.2")
    assert [(item.seen, item.address) for item in store.list_tokens()] == [(1_000_060, "10.0.0.2")]
    assert store.is_valid(record)
    clock.now += 60
    (folder / "access.json").write_text("{")
    store.record_use(record, "10.0.0.3")  # fails, which no request notices
    assert (folder / "access.json").read_text() == "{"


def test_no_client_can_take_the_name_of_another(store: AccessStore) -> None:
    hostile = "\x1b[31mphone\n2026 paired\u202e " + "x" * 100
    for name in ("phone", " phone ", "", hostile):
        store.redeem(store.create_code("view").text, name, "::1")
    names = [item.name for item in store.list_tokens()]
    assert names[:3] == ["phone", "phone 2", "client"]
    assert names[3].startswith("[31mphone 2026 paired xxx")
    assert len(names[3]) == 60
    store.redeem(store.create_code("view", "mine").text, "phone", "::2")
    assert store.list_tokens()[-1].name == "mine"


# --- pairing ---


SPELLINGS: list[Callable[[str], str]] = [
    str,
    str.lower,
    lambda text: text.replace("-", ""),
    lambda text: f" {text[:2]} {text[2:]}\n",
]


@each("write", SPELLINGS)
def test_a_code_gives_one_token(tmp_path: Path, write: Callable[[str], str]) -> None:
    store = open_store(tmp_path / os.urandom(4).hex(), FakeClock())
    code = store.create_code("approve", "phone")
    assert [item.id for item in store.list_codes()] == [code.record.id]
    found = store.find(store.redeem(write(code.text), "browser", "10.0.0.1"))
    assert found is not None
    assert (found.name, found.right, found.address, found.seen) == ("phone", "approve", "10.0.0.1", 1_000_000)
    assert store.list_codes() == ()
    with pytest.raises(CodeRefused):
        store.redeem(code.text, "browser", "10.0.0.1")


def test_a_code_is_hashed_slowly() -> None:
    assert HASH_COST * 8 * 128 == 16 * 2**20, "bytes that scrypt needs with r=8"


def test_codes_are_easy_to_read(store: AccessStore) -> None:
    texts: list[str] = []
    for _ in range(20):
        code = store.create_code("view")
        store.revoke(code.record.id)
        texts.append(code.text)
    assert all(len(text) == 9 and text[4] == "-" and not set(text) & set("0O1IL") for text in texts)
    assert len(set(texts)) == len(texts)


def test_wrong_used_and_expired_codes_get_the_same_answer(store: AccessStore, clock: FakeClock) -> None:
    def refuse(code: str) -> str:
        clock.now += 60  # for the limit of attempts
        with pytest.raises(CodeRefused) as caught:
            store.redeem(code, "browser", "10.0.0.1")
        return caught.value.describe()

    used, in_time, late = (store.create_code("view") for _ in range(3))
    store.redeem(used.text, "browser", "10.0.0.1")
    sentences = [refuse(code) for code in (used.text, "2222-2222", "", "0000-0000", "\udcff" * 8, "x" * 100_000)]
    clock.now = late.record.expires - 0.5
    store.redeem(in_time.text, "browser", "10.0.0.1")
    clock.now = late.record.expires - 60
    sentences.append(refuse(late.text))
    assert store.list_codes() == ()
    assert set(sentences) == {
        "This code is not valid: it is mistyped, was used already, or has expired. Make a new one with `odin pair`."
    }


def test_at_most_three_codes_wait(store: AccessStore, clock: FakeClock) -> None:
    codes = [store.create_code("view") for _ in range(3)]
    with pytest.raises(UsageError) as caught:
        store.create_code("view")
    oldest = codes[0].record.id
    assert caught.value.describe() == (
        "There are 3 unused pairing codes already. "
        f"Use one of them, or cancel the oldest: `odin pair --revoke {oldest}`."
    )
    assert store.revoke(oldest) == (codes[0].record,)
    store.create_code("view")
    with pytest.raises(CodeRefused):
        store.redeem(codes[0].text, "browser", "10.0.0.1")
    clock.now += 3600
    store.create_code("view")
    assert len(store.list_codes()) == 1


def test_guessing_is_limited(store: AccessStore, clock: FakeClock) -> None:
    """Five attempts of an address at once, twenty of all; then as many per minute. Refused attempts do not count."""
    code = store.create_code("view")

    def attempt(text: str, address: str) -> str:
        try:
            store.redeem(text, "browser", address)
        except OdinError as error:
            return f"{error.wait_s} s" if isinstance(error, TooManyRequests) else "wrong"
        return "paired"

    assert [attempt("2222-2222", "a") for _ in range(7)] == ["wrong"] * 5 + ["12 s"] * 2
    assert attempt(code.text, "a") == "12 s"
    with pytest.raises(TooManyRequests, match=r"^Too many attempts to pair\.$") as caught:
        store.redeem(code.text, "browser", "a")
    assert caught.value.hint == "Try again in 12 s."
    assert [attempt("2222-2222", address) for address in "bcd" for _ in range(5)] == ["wrong"] * 15
    assert attempt(code.text, "e") == "3 s"
    clock.now += 3
    assert (attempt(code.text, "a"), attempt("", "e"), attempt(code.text, "e")) == ("9 s", "wrong", "3 s")
    clock.now += 9
    assert attempt(code.text, "a") == "paired"


RACE = """
import sys
from pathlib import Path
from odin.core.errors import OdinError
from odin.server.access import AccessStore
store = AccessStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
try:
    print(store.redeem(sys.argv[2], "racer", "10.0.0.1"))
except OdinError as error:
    print(error.kind)
"""


def test_one_of_several_processes_wins_a_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing_codes, "HASH_COST", HASH_COST)  # as the processes do
    store = AccessStore(folder)
    code = store.create_code("view")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(folder), code.text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = sorted(racer.communicate(timeout=LIMIT_S)[0].strip() for racer in racers)
    assert said[:2] == ["CodeRefused"] * 2
    assert [item.name for item in store.list_tokens()] == ["racer"]
    assert store.find(said[2]) is not None


# --- the file ---


def test_only_the_user_can_read_the_file_and_it_has_no_secret(store: AccessStore, folder: Path) -> None:
    mask = os.umask(0)
    try:
        code, waiting = store.create_code("approve", "phone"), store.create_code("view")
        token = store.redeem(code.text, "", "10.0.0.1")
        store.record_url("http://127.0.0.1:1")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert files == {"access.json": 0o600, "access.json.lock": 0o600}
    text = (folder / "access.json").read_text()
    secrets = [
        token,
        token.removeprefix("odin_"),
        *(form for one in (code, waiting) for form in (one.text, one.text.replace("-", ""))),
    ]
    assert [secret for secret in secrets if secret.lower() in text.lower()] == []
    assert '"url": "http://127.0.0.1:1"' in text


def write_huge(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" " * 1_000_000)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_text("{"), "is damaged"),
    (lambda path: path.write_bytes(b"\xff\xfe"), "is damaged"),
    (lambda path: path.write_text(path.read_text().replace('"view"', '"root"')), "is damaged"),
    (lambda path: path.write_text(path.read_text().replace('"digest"', '"other"')), "is damaged"),
    (lambda path: path.write_text('{"version": 2}'), "another version of Odin"),
    (lambda path: path.chmod(0o620), "is writable by other users"),
    (write_huge, "is not a list of paired clients"),
    (replace_by_folder, "is not a list of paired clients"),
]


@each(("damage", "said"), DAMAGES)
def test_a_damaged_file_lets_nobody_in(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    store = open_store(tmp_path / os.urandom(4).hex(), FakeClock())
    token, code = store.create_token("ci", "view"), store.create_code("view")
    record = store.find(token)
    assert record is not None
    damage(store._path)
    calls: list[Callable[[], object]] = [
        lambda: store.find(token),
        lambda: store.is_valid(record),
        lambda: store.redeem(code.text, "", "10.0.0.1"),
        lambda: store.create_code("view"),
        lambda: store.create_token("ci", "view"),
        lambda: store.revoke("ci"),
        store.list_tokens,
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=said):
            call()
