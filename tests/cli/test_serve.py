"""`odin serve` and `odin attach`: what they say about mistakes."""

import os
import re
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from odin.core.event import Envelope, TitleSet
from odin.session.lock import get_host_name
from odin.session.store import SessionStore
from odin.version import __version__
from tests.conftest import RunHere
from tests.table import each
from tests.waiting import LIMIT_S


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    files = ("-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=odin.test", "-days", "2")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run(["openssl", "req", "-x509", *curve, "-nodes", *files], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@contextmanager
def answer_with(data: bytes) -> Generator[str]:
    """Give the URL of a server that answers every request with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                connection.recv(65_536)
                connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(LIMIT_S)


SERVE: list[tuple[tuple[str, ...], str]] = [
    (("--host", "0.0.0.0"), r"Other machines reach 0\.0\.0\.0; without TLS .* Add --tls-cert and --tls-key;"),
    (("--host", "example.com"), r"--host must be an IP address .*, not 'example\.com'\. .* --allow-host\."),
    (("--host", "203.0.113.9", "--without-tls"), r"Cannot listen on 203\.0\.113\.9 port 7070: .*\. .* --"),
    (("--port", "99999"), r"--port must be from 0 to 65535, not 99999\. 0 picks a free one\."),
    (("--port", "x"), r"--port must be a number\. See `odin serve --help`\."),
    (("--tls-cert", "{0}/cert.pem"), r"--tls-cert and --tls-key belong together\. Give both files\."),
    (
        ("--tls-cert", "{0}/no.pem", "--tls-key", "{0}/key.pem"),
        r"--tls-cert: .* cannot be read: .*\. Name a PEM file\.",
    ),
    (("--tls-cert", "{0}/key.pem", "--tls-key", "{0}/key.pem"), r"cannot be used for TLS .*\. They must be"),
    (("--tls-cert", "{0}/cert.pem", "--tls-key", "{0}/cert.pem"), r"cannot be used for TLS .*\. They must be"),
    (("--root", "/no/such"), r"--root: there is no folder '/no/such'\. Name one that exists\."),
    (("--root", ""), r"--root: there is no folder ''\. Name one that exists\."),
    (("--root", "{0}/cert.pem"), r"--root: there is no folder '.*cert\.pem'\. Name one that exists\."),
    (("--root", "."), r"Cannot listen on 127\.0\.0\.1 port \d+: address already in use\. Stop what uses it, or"),
    (("--allow-host", "a/b", "--port", "0"), r"--allow-host: 'a/b' is not a host\. Use NAME,"),
    (("--base-path", "x y", "--port", "0"), r"The base path 'x y' is not valid\. Write it as /odin\."),
    (("--pair", "admin"), r"Unknown value 'admin' for --pair\. Use view, prompt, approve or no\."),
    (("--permission-mode", "nope", "--port", "0"), r"'nope'.*\. Use "),
    (("extra",), r"extra"),
]


def test_mistakes_of_serve(run_here: RunHere, certificate: Path, state: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        for args, said in SERVE:
            given = [arg.format(certificate) for arg in args]
            if args == ("--root", "."):
                given += ["--port", str(taken.getsockname()[1])]
            code, out, err = run_here("serve", *given)
            assert (code, out) == (2, ""), (args, err)
            assert re.search(said, err), (args, err)
            assert err.count("\n") <= 2 and "Traceback" not in err, (args, err)
    assert not (state / "server").exists()


ATTACH: list[tuple[tuple[str, ...], str]] = [
    (("nothing",), r"There is no session nothing\. This project has no sessions yet\."),
    (("",), r"No session given\."),
    (("localhost:7070",), r"'localhost:7070' is not the URL of a server\. Write it as https://HOST:PORT, or http://"),
    (("box.example:7070/sessions/x",), r"is not the URL of a server\. Write it as https://HOST:PORT"),
    (("ftp://box",), r"'ftp://box' is not the URL of a server\. Write it as"),
    (("https://[::1",), r"is not the URL of a server\. Write it as"),
    (("https://box:99999",), r"is not the URL of a server\. Write it as"),
    (("https://me:pw@box",), r"is not the URL of a server\. Write it as"),
    (("https://",), r"is not the URL of a server\. Write it as"),
    (("http://example.com",), r"http://example\.com is not encrypted: .* the token\. Use https://, or `ssh -L`"),
    (("http://127.0.0.1.example.com",), r"is not encrypted"),
    (("https://box.example",), r"https://box\.example does not know this machine yet\. Run `odin pair` there"),
    (("http://127.0.0.1:1", "--code", "ABCD-EFGH"), r"http://127\.0\.0\.1:1 cannot be reached .*\. Check that it runs"),
    (("https://x", "--ca-cert", "/nope"), r"The certificates in /nope cannot be read\. Set --ca-cert to a "),
    ((), r"ID\|URL"),
]


@each(("args", "said"), ATTACH)
def test_mistakes_of_attach(run_here: RunHere, state: Path, args: tuple[str, ...], said: str) -> None:
    code, out, err = run_here("attach", *args)
    assert code in (1, 2)
    assert out == ""
    assert re.search(said, err), err
    assert err.count("\n") <= 2
    assert "internal error" not in err
    assert not (state.parents[2] / ".config/odin/servers.json").exists()


OTHER = "HTTP/1.1 {} X\r\n{}content-length: {}\r\n\r\n{}"
REFUSED = '{"error":"This code is not valid: it has expired.","hint":"Make a new one with `odin pair`.","kind":"Code"}'


@each(
    ("status", "headers", "body", "said"),
    [
        (200, "", "<html>", r"did not answer as an Odin server does \(status 200\)\. Check the address"),
        (200, "odin-version: 0.0.1\r\n", "{}", rf"runs Odin 0\.0\.1, this is {re.escape(__version__)}\. Use the same"),
        (403, f"odin-version: {__version__}\r\n", REFUSED, r"This code is not valid: it has expired\. Make a new one"),
    ],
)
def test_servers_that_refuse(run_here: RunHere, status: int, headers: str, body: str, said: str) -> None:
    with answer_with(OTHER.format(status, headers, len(body), body).encode()) as url:
        code, _, err = run_here("attach", url, "--code", "ABCD-EFGH")
    assert code in (1, 2)
    assert re.search(said, err), err


def test_a_session_that_is_open_elsewhere_is_named_with_its_holder(
    run_here: RunHere, store: SessionStore, workspace: Path
) -> None:
    holder = subprocess.Popen(
        [
            "python3",
            "-c",
            "import fcntl,sys; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()",
            str(make_log(store, workspace)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    session = store.list()[0].id
    lock = store.folder / f"{session}.lock"
    lock.write_text(f'{{"pid":{holder.pid},"host":"{get_host_name()}","since":1700000000,"birth":""}}')
    try:
        for args in (("--no-attach", "-p", "hi"), ("-p", "hi")):
            code, _, err = run_here(*args, "--resume", session, env={"ANTHROPIC_API_KEY": "x"})
            assert code != 0
            assert f"PID {holder.pid} on {os.uname().nodename} since 2023-11-1" in err
            assert "Attach to it with `odin attach" in err
        code, _, err = run_here("attach", session)
        assert (code != 0, f"Session {session} " in err) == (True, True)
        assert f"PID {holder.pid} on" in err
    finally:
        holder.communicate(b"\n", timeout=LIMIT_S)


def make_log(store: SessionStore, workspace: Path) -> Path:
    log = store.create(str(workspace))
    log.append(Envelope(0, 0.0, log.session, TitleSet("x")))
    log.close()
    return log.path
