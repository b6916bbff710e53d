"""Which addresses may be listened on, which requests are meant for this server, how many, and what is logged."""

import io
import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from odin.core.errors import UsageError
from odin.server.guard import (
    MAX_LOG_BYTES,
    BindAddress,
    ClientLog,
    HostCheck,
    RequestLimit,
    check_url,
    parse_bind,
)
from tests.table import each

# --- the address ---


@each(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.8.8.8", "127.8.8.8"),
        ("localhost", "127.0.0.1"),
        ("LOCALHOST", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_loopback_needs_no_tls(host: str, shown: str) -> None:
    bind = parse_bind(host, 8000)
    assert (bind.host, bind.port, bind.scheme, bind.is_wildcard) == (shown, 8000, "http", False)


@each("host", ["0.0.0.0", "::", "[::]", "10.0.0.5", "192.168.1.2", "::ffff:10.0.0.5", "fe80::1", "128.0.0.1"])
def test_other_addresses_need_tls(host: str) -> None:
    with pytest.raises(UsageError, match=r"Other machines reach .* without TLS") as caught:
        parse_bind(host, 8000)
    assert "--tls-cert" in caught.value.hint
    assert "--without-tls" in caught.value.hint
    assert parse_bind(host, 0, without_tls=True).is_wildcard == (host.strip("[]") in ("0.0.0.0", "::"))


@each(
    "host", ["", "example.com", "localhost.", "127.1", "0x7f000001", "2130706433", "127.0.0.1:80", "127.0.0.1/8", "*"]
)
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="--host must be an IP address"):
        parse_bind(host, 8000, without_tls=True)


@each("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match=f"not {port}"):
        parse_bind("127.0.0.1", port)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Two self-signed certificates (a.pem, b.pem) with their keys, and a key with a password (locked.key)."""
    for name in "ab":
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", "/CN=odin.test", "-days", "2")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        subprocess.run(
            ["openssl", "req", "-x509", *curve, "-nodes", *files], cwd=tmp_path, check=True, capture_output=True
        )
    lock = ["openssl", "ec", "-in", "a.key", "-out", "locked.key", "-aes256", "-passout", "pass:hunter2"]
    subprocess.run(lock, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_tls_files_are_checked(certificates: Path) -> None:
    def parse(cert: str, key: str) -> BindAddress:
        files = (str(certificates / name) if name else "" for name in (cert, key))
        return parse_bind("0.0.0.0", 8000, *files)

    assert parse("a.pem", "a.key").scheme == "https"
    for cert, key, said in (
        ("a.pem", "", "belong together"),
        ("", "a.key", "belong together"),
        ("no.pem", "a.key", r"--tls-cert: .*no\.pem cannot be read: No such file"),
        ("a.pem", "no.key", r"--tls-key: .*no\.key cannot be read"),
        ("a.pem", ".", r"--tls-key: .* cannot be read: Is a directory"),
        ("a.pem", "b.key", "does not belong to the certificate"),
        ("a.pem", "a.pem", "cannot be used for TLS"),
        ("a.key", "a.key", "cannot be used for TLS"),
        ("a.pem", "locked.key", "cannot be used for TLS"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            parse(cert, key)
        assert caught.value.hint


# --- Host and Origin ---

LOCAL = HostCheck(BindAddress("127.0.0.1", 8000))
PORT_80 = HostCheck(BindAddress("127.0.0.1", 80))
TLS = HostCheck(BindAddress("10.0.0.5", 443, "cert", "key"), ["odin.example.com"])
V6 = HostCheck(BindAddress("fd00::5", 8000))
EVERYWHERE = HostCheck(BindAddress("0.0.0.0", 8000))
PROXIED = HostCheck(BindAddress("127.0.0.1", 8000), ["https://Odin.example.com", "box", "box:9000"], "/odin/")


def ask(check: HostCheck, host: str | None, origin: str | None = None, method: str = "GET", **more: str) -> str:
    headers = [
        (b"host", host),
        (b"origin", origin),
        *((name.encode().replace(b"_", b"-"), v) for name, v in more.items()),
    ]
    return check.check(method, [(name, value.encode()) for name, value in headers if value is not None])


@each(
    ("check", "hosts"),
    [
        (
            LOCAL,
            ["127.0.0.1:8000", "localhost:8000", "LocalHost:8000", "localhost.:8000", "127.0.0.1.:8000", "[::1]:8000"],
        ),
        (LOCAL, ["[0:0:0:0:0:0:0:1]:8000", "[::ffff:127.0.0.1]:8000", "[::FFFF:7F00:1]:8000"]),
        (PORT_80, ["127.0.0.1", "localhost", "localhost:", "localhost:80", "localhost:080", "[::1]"]),
        (TLS, ["10.0.0.5", "10.0.0.5:443", "odin.example.com", "ODIN.EXAMPLE.COM.:443", "localhost"]),
        (V6, ["[fd00::5]:8000", "[FD00:0::5]:8000", "127.0.0.1:8000"]),
        (EVERYWHERE, ["127.0.0.1:8000", "192.168.1.7:8000", "[fd00::7]:8000", "localhost:8000"]),
        (PROXIED, ["odin.example.com", "odin.example.com:443", "box:8000", "box:9000", "127.0.0.1:8000"]),
    ],
)
def test_own_hosts_are_accepted(check: HostCheck, hosts: Sequence[str]) -> None:
    assert {host: said for host in hosts if (said := ask(check, host))} == {}


@each(
    ("check", "hosts"),
    [
        (
            LOCAL,
            ["", "evil.example", "evil.example:8000", "127.0.0.1.evil.example:8000", "localhost.evil.example:8000"],
        ),
        (LOCAL, ["localhost", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8001", "127.0.0.1:80000", "127.0.0.1:-1"]),
        (LOCAL, ["me@127.0.0.1:8000", "127.0.0.1:8000@evil.example", "evil.example#127.0.0.1:8000", "127.0.0.1:8000/"]),
        (
            LOCAL,
            ["127.0.0.1:8000, evil.example", " 127.0.0.1:8000", "127.0.0.1:8000\n", "127.0.0.1:8000:8000", ":8000"],
        ),
        (
            LOCAL,
            ["127.1:8000", "2130706433:8000", "0x7f.0.0.1:8000", "0177.0.0.1:8000", "127.0.0.2:8000", "0.0.0.0:8000"],
        ),
        (
            LOCAL,
            ["::1:8000", "[::1", "[127.0.0.1]:8000", "[::2]:8000", "[::1%25lo]:8000", "[]:8000", "localhost..:8000"],
        ),
        (LOCAL, ["ⅼocalhost:8000", "localhost\u3002:8000", "１２７.0.0.1:8000", "127.0.0.1:８000", "*:8000"]),
        (TLS, ["odin.example.com:80", "example.com", "x.odin.example.com", "10.0.0.6"]),
        (V6, ["[fd00::6]:8000", "fd00::5:8000"]),
        (
            EVERYWHERE,
            ["192.168.1.7", "192.168.1.7:8001", "rebound.example:8000", "192.168.1.7.nip.io:8000", "3232235783:8000"],
        ),
        (PROXIED, ["odin.example.com:8000", "odin.example.com:80", "box", "box:80", "192.168.1.7:8000"]),
    ],
)
def test_other_hosts_are_refused(check: HostCheck, hosts: Sequence[str]) -> None:
    assert [host for host in hosts if "does not answer as" not in ask(check, host)] == []


@each(
    ("check", "host", "origins"),
    [
        (LOCAL, "127.0.0.1:8000", ["http://127.0.0.1:8000", "http://localhost:8000", "HTTP://[::1]:8000"]),
        (PORT_80, "localhost", ["http://localhost", "http://localhost:80"]),
        (TLS, "odin.example.com", ["https://odin.example.com", "https://10.0.0.5", "https://odin.example.com:443"]),
        (EVERYWHERE, "192.168.1.7:8000", ["http://192.168.1.7:8000"]),
        (PROXIED, "odin.example.com", ["https://odin.example.com"]),
        (PROXIED, "127.0.0.1:8000", ["https://odin.example.com", "http://box:9000"]),
    ],
)
def test_own_pages_are_accepted(check: HostCheck, host: str, origins: Sequence[str]) -> None:
    assert {origin: said for origin in origins if (said := ask(check, host, origin, "POST"))} == {}


@each(
    ("check", "host", "origins"),
    [
        (LOCAL, "127.0.0.1:8000", ["null", "", "http://evil.example", "https://127.0.0.1:8000", "http://127.0.0.1"]),
        (
            LOCAL,
            "127.0.0.1:8000",
            ["http://127.0.0.1:8001", "http://localhost:3000", "file://", "http://me@localhost:8000"],
        ),
        (
            LOCAL,
            "127.0.0.1:8000",
            ["http://localhost:8000.evil.example", "http://localhost:8000/x", "localhost:8000", "*"],
        ),
        (LOCAL, "127.0.0.1:8000", ["chrome-extension://localhost:8000", "http://localhost:8000 http://evil.example"]),
        (TLS, "odin.example.com", ["http://odin.example.com", "http://odin.example.com:443", "https://example.com"]),
        (
            EVERYWHERE,
            "192.168.1.7:8000",
            ["http://192.168.1.8:8000", "http://6.6.6.6:8000", "https://192.168.1.7:8000"],
        ),
        (PROXIED, "odin.example.com", ["http://odin.example.com", "https://odin.example.com:8000", "https://box:9000"]),
    ],
)
def test_other_pages_are_refused(check: HostCheck, host: str, origins: Sequence[str]) -> None:
    assert [origin for origin in origins if "may not use this server" not in ask(check, host, origin, "POST")] == []


def test_a_header_comes_once() -> None:
    own = (b"host", b"localhost:8000")
    said = "A request needs exactly one Host header, and at most one Origin."
    assert LOCAL.check("GET", [own]) == ""
    assert LOCAL.check("GET", []) == LOCAL.check("GET", [own, own]) == said
    page = (b"origin", b"http://localhost:8000")
    assert LOCAL.check("GET", [own, page, page]) == said


@each(
    ("method", "site", "mode", "dest", "is_allowed"),
    [
        ("POST", "same-origin", "cors", "empty", True),
        ("GET", "none", "navigate", "document", True),
        ("GET", "cross-site", "navigate", "document", True),
        ("GET", "cross-site", "navigate", "iframe", False),
        ("GET", "cross-site", "no-cors", "image", False),
        ("GET", "same-site", "no-cors", "script", False),
        ("GET", "cross-site", "cors", "empty", False),
        ("POST", "cross-site", "navigate", "document", False),
        ("POST", "same-site", "cors", "empty", False),
        ("GET", "anything", "cors", "empty", False),
    ],
)
def test_requests_of_other_sites_are_refused(method: str, site: str, mode: str, dest: str, is_allowed: bool) -> None:
    more = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": dest}
    said = ask(LOCAL, "localhost:8000", None, method, **more)
    assert said == ("" if is_allowed else "Other sites may not use this server.")


def test_a_refusal_is_one_harmless_line() -> None:
    for said in (
        ask(LOCAL, "evil\x1b[2J\r\n" + "x" * 1000),
        ask(LOCAL, "localhost:8000", "http://\x1b[2J\n" + "x" * 1000),
    ):
        assert said.isprintable()
        assert len(said) < 300
        assert "--allow-host" in said


@each(
    "name",
    ["", "*", "*.example.com", "https://", "https://a/path", "ftp://a", "a b", "a:b", "bücher.example", "a/", "me@a"],
)
def test_a_host_that_is_none_cannot_be_allowed(name: str) -> None:
    with pytest.raises(UsageError, match="--allow-host"):
        HostCheck(BindAddress("127.0.0.1", 8000), [name])


def test_paths_below_the_base_path() -> None:
    table = {
        path: PROXIED.strip_base(path) for path in ("/odin", "/odin/", "/odin/api/x", "/odinx", "/", "/x/odin/", "")
    }
    assert table == {
        "/odin": "/",
        "/odin/": "/",
        "/odin/api/x": "/api/x",
        "/odinx": None,
        "/": None,
        "/x/odin/": None,
        "": None,
    }
    assert [LOCAL.strip_base(path) for path in ("/", "/api", "")] == ["/", "/api", "/"]
    assert (PROXIED.url, LOCAL.url, EVERYWHERE.url) == (
        "https://odin.example.com/odin",
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8000",
    )
    assert (V6.url, TLS.url) == ("http://[fd00::5]:8000", "https://odin.example.com")
    for path in ("odin", "/../x", "/a?b", "/a//b", "//evil.example", "/a b"):
        with pytest.raises(UsageError, match="base path"):
            HostCheck(BindAddress("127.0.0.1", 8000), base_path=path)


def test_the_url_of_a_server() -> None:
    for text, url in (
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("HTTPS://Odin.Example.com:443/odin/", "https://odin.example.com/odin"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ):
        assert check_url(text) == url
    for text in ("", "odin.example.com", "ftp://x", "http://me:pw@x", "http://x/#code", "http://x/?a", "http:///x"):
        with pytest.raises(UsageError, match="is not the URL of a server"):
            check_url(text)


# --- limits ---


def test_requests_of_each_client_are_limited() -> None:
    now = 100.0
    limit = RequestLimit(60, 3, lambda: now)
    assert [limit.take("a") for _ in range(5)] == [0, 0, 0, 1, 1]
    assert (limit.get_wait("a"), limit.get_wait("b"), limit.take("b")) == (1, 0, 0)
    now += 1.5
    assert [limit.take("a") for _ in range(3)] == [0, 0.5, 0.5]
    now += 1000
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 1]


# --- the log ---


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "server.log"


def test_each_event_is_a_line_without_secrets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "odin_" + "aB3-_" * 9
    err = io.StringIO()
    log = ClientLog(path, err, lambda: 1_700_000_000)
    log.write("connected", "10.0.0.1", client="phone", method="GET", path=f"/api/events?token={token}#x", status=200)
    log.write("paired", "10.0.0.1", client="phone", method="POST", path="/api/pair", status=200)
    log.write("refused", "::1", method="GET", path=f"/{token}/ABCD-EFGH/abcd-efgh", status=404, note="no such page")
    log.write(
        "op",
        "::1",
        client=f"{token}",
        method="POST",
        path="/s/123e4567-e89b-12d3-a456-426614174000/abcd-efgh-2",
        note="Prompt",
    )
    log.write("refused", "::1", client='a" 200', path="/a b\r\n2023 paired\x1b[2J\u202e\udcff" + "x" * 1000)
    lines = err.getvalue().splitlines()
    assert path.read_text().splitlines() == lines
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    when = lines[0].split()[0]
    assert when.startswith("2023-11-1")
    assert [line.removeprefix(when) for line in lines[:4]] == [
        " connected 10.0.0.1 'phone' GET /api/events 200",
        " paired 10.0.0.1 'phone' POST /api/pair 200",
        " refused ::1 '' GET /[hidden]/[hidden]/[hidden] 404 no such page",
        " op ::1 '[hidden]' POST /s/123e4567-e89b-12d3-a456-426614174000/abcd-efgh-2 Prompt",
    ]
    assert lines[4].startswith(f"{when} refused ::1 'a' 200' /a%20b\\r\\n2023%20paired\\x1b[2J\\u202e\\udcffxxx")
    assert len(lines) == 5
    assert len(lines[4]) < 300
    assert token.removeprefix("odin_") not in path.read_text()


def test_the_log_is_rotated_once(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    log = ClientLog(path, io.StringIO())
    log.write("left", "::1")
    log.write("left", "::1")
    assert sorted(os.listdir(path.parent)) == ["server.log", "server.log.1"]
    assert len(path.read_text().splitlines()) == 2
    assert (path.parent / "server.log.1").stat().st_size == MAX_LOG_BYTES + 1


def test_a_log_that_cannot_be_written_stops_nothing(path: Path) -> None:
    path.parent.write_text("a file where the folder should be")
    closed = io.StringIO()
    closed.close()
    ClientLog(path, closed).write("left", "::1")
    assert path.parent.read_text() == "a file where the folder should be"
