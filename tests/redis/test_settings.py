"""The settings: who may set them, what is wrong with them in one sentence, logins, TLS, and `odin doctor`."""

import datetime
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from odin.config import load
from odin.config.auth import store_key
from odin.config.paths import make_environment
from odin.core.errors import ConfigError
from odin.host.publisher import read_redis_settings
from odin.testing import say
from redis import Redis
from tests.conftest import Run
from tests.table import each
from tests.waiting import LIMIT_S, until

from .conftest import Publish, PublishedSession, RedisServer, configure, read_stream

PASSWORD = "pw-Kd93jfLq02mX"


@each(
    ("settings", "problem"),
    [
        ({"url": "http://host"}, "url must begin with redis://, rediss:// or unix://"),
        ({"url": f"redis://u:{PASSWORD}@"}, "url names no host"),
        ({"url": f"redis://u:{PASSWORD}@host:99999"}, "url has an invalid host or port"),
        ({"url": f"redis://u:{PASSWORD}@host/name"}, "url may end with the number of a database, such as /0, and with"),
        ({"url": "redis://host?db=1"}, "url must have no ? and no #; in a password, write them as %3F and %23"),
        ({"url": "unix://socket"}, "url names no socket, such as unix:///run/redis.sock"),
        ({"url": "redis://host", "ca_file": "/ca"}, "ca_file and cert_file need a url that begins with rediss://"),
        ({"url": "rediss://host", "key_file": "/key"}, "key_file needs a cert_file"),
        ({"url": "redis://host", "prefix": "a b"}, "prefix must be a name without spaces and wildcards"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_without_the_password(
    home: Path, workspace: Path, settings: dict[str, Any], problem: str
) -> None:
    configure(home, **settings)
    config = load(str(workspace), {"HOME": str(home)})
    assert config.redis.url == ""
    assert len(config.problems) == 1
    assert config.problems[0].text.startswith(f"redis is ignored: {problem}")
    assert PASSWORD not in config.problems[0].text


def test_single_values_that_do_not_fit_are_ignored(home: Path, workspace: Path) -> None:
    configure(home, url="redis://host", max_events=0, accept="everything")
    config = load(str(workspace), {"HOME": str(home)})
    assert (config.redis.max_events, config.redis.accept) == (10_000, "none")
    assert [problem.text for problem in config.problems] == [
        "redis.max_events is ignored: it must be at least 1, not 0.",
        'redis.accept is ignored: it must be approve, none or prompt, not "everything".',
    ]


def test_the_variable_names_the_server(home: Path, workspace: Path) -> None:
    configure(home, url="redis://other", prefix="mine")
    env = {"HOME": str(home), "ODIN_REDIS_URL": f"rediss://me:{PASSWORD}%21@host:1234/3"}
    config = load(str(workspace), env)
    address = config.redis.parse_url()
    assert (address.place, address.db, address.is_tls) == ("host:1234", 3, True)
    assert (address.username, address.password, config.redis.prefix) == ("me", f"{PASSWORD}!", "mine")
    assert PASSWORD not in json.dumps([config.written, config.to_public()])
    with pytest.raises(ConfigError, match=r"^ODIN_REDIS_URL cannot be used: url must begin with redis://"):
        load(str(workspace), {**env, "ODIN_REDIS_URL": f"me:{PASSWORD}@host"})


def test_a_project_cannot_publish(home: Path, workspace: Path) -> None:
    """Neither in its own file nor in settings of Claude Code, also if it is trusted."""
    (workspace / "odinconfig.json").write_text(json.dumps({"redis": {"url": "redis://evil", "accept": "approve"}}))
    (workspace / ".claude").mkdir()
    settings = {"env": {"ODIN_REDIS_URL": "redis://evil"}, "redis": {"url": "redis://evil"}}
    (workspace / ".claude/settings.json").write_text(json.dumps(settings))
    config = load(str(workspace), {"HOME": str(home)}, trust=True)
    assert config.redis.url == ""
    assert config.problems[-1].text.startswith("redis is ignored in a project file: set it in your user file")
    configure(home, url="redis://mine")
    assert load(str(workspace), {"HOME": str(home)}, trust=True).redis.url == "redis://mine"


def test_the_password_comes_from_the_settings_the_url_or_the_stored_key(home: Path, workspace: Path) -> None:
    env = {"HOME": str(home), "RPW": "of-the-variable"}
    store_key("redis", "of-the-store", env)
    for settings, expected in (
        ({"url": "redis://host"}, "of-the-store"),
        ({"url": "redis://:of-the-url@host"}, "of-the-url"),
        ({"url": "redis://:of-the-url@host", "password": "$RPW"}, "of-the-variable"),
    ):
        configure(home, **settings)
        config = load(str(workspace), env)
        found = read_redis_settings(config, make_environment(env, str(workspace)))
        assert found.parse_url().password == expected
        assert "of-the-" not in json.dumps(config.to_public())


def test_the_password_is_stored_like_a_key(run_odin: Run, home: Path) -> None:
    stored = run_odin("auth", "add", "redis", input=f"{PASSWORD}\n")
    assert stored.returncode == 0, stored.stderr
    listed = run_odin("auth")
    assert "redis" in listed.stdout
    assert PASSWORD not in listed.stdout + listed.stderr + stored.stdout + stored.stderr
    assert listed.stderr == ""


def test_doctor_says_whether_sessions_can_be_published(server: RedisServer, run_odin: Run, home: Path) -> None:
    configure(home, url=server.url, accept="prompt")
    report = json.loads(run_odin("doctor", "--json").stdout)
    assert report["redis"]["server"] == str(server.socket)
    assert report["redis"]["version"]
    assert "takes commands (prompt)" in run_odin("doctor").stdout
    configure(home, url=server.url, username="nobody", password=PASSWORD)
    done = run_odin("doctor")
    assert done.returncode == 1
    assert f"! Redis          Redis at {server.socket} refuses the user or the password. Check" in done.stdout
    configure(home, url=f"redis://u:{PASSWORD}@127.0.0.1:1")
    done = run_odin("doctor")
    assert "Redis at 127.0.0.1:1 cannot be reached: Connection refused. Start it, or check redis.url." in done.stdout
    shown = run_odin("doctor", "config").stdout
    assert '"url": "redis://…@127.0.0.1:1"' in shown
    assert PASSWORD not in done.stdout + shown


async def test_the_program_of_the_documentation_prints_the_events(publish: Publish, server: RedisServer) -> None:
    page = (Path(__file__).parents[2] / "docs/redis.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    place = f"unix_socket_path={str(server.socket)!r}, decode_responses=True"
    session = await publish([say("one")], url=server.url)
    await session.ask("a question")
    await session.client.close()
    argv = [sys.executable, "-u", "-c", program.replace("decode_responses=True", place), session.id]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        watchdog = threading.Timer(LIMIT_S, reader.kill)
        watchdog.start()
        seen = [next(reader.stdout) for _ in session.read_log()]
        reader.kill()
        watchdog.cancel()
    assert any("TurnStarted a question" in line for line in seen) and any("TurnEnded one" in line for line in seen)


async def test_the_commands_that_the_documentation_names_are_enough(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    page = (Path(__file__).parents[2] / "docs/redis.md").read_text()
    rule = next(line for line in page.splitlines() if line.startswith("ACL SETUSER odin"))
    redis.execute_command(*rule.replace(">PASSWORD", f">{PASSWORD}").split())
    session: PublishedSession = await publish(
        [say("one")], url=server.url, username="odin", password=PASSWORD, accept="approve"
    )
    await session.ask("a")
    await session.client.close()
    assert read_stream(redis, session.key) == session.read_lines()
    assert redis.exists(f"{session.key}:snapshot")
    assert session.warnings == []


class Certificates:
    """A certificate authority, and certificates for 127.0.0.1 that it has signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.authority = self._write("ca", self._key, self._sign(self._key, self._name, is_authority=True))[0]

    def issue(self, name: str) -> tuple[str, str]:
        """Return the files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, key, self._sign(key, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])))

    def _sign(
        self, key: ec.EllipticCurvePrivateKey, name: x509.Name, *, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(hours=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        address = x509.IPAddress(ip_address("127.0.0.1"))
        return builder.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(
            self._key, hashes.SHA256()
        )

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> tuple[str, str]:
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        files[0].write_bytes(certificate.public_bytes(encoding))
        files[1].write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return str(files[0]), str(files[1])


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def tls_url(tmp_path: Path, certificates: Certificates) -> Iterator[str]:
    """The URL of a server that asks for certificates."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    certificate, key = certificates.issue("server")
    options = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificates.authority)
    server = RedisServer(tmp_path, "--tls-port", str(port), *options)
    server.start()
    yield f"rediss://127.0.0.1:{port}"
    server.end()


async def test_sessions_are_published_over_tls(
    publish: Publish, certificates: Certificates, tls_url: str, tmp_path: Path
) -> None:
    certificate, key = certificates.issue("odin")
    session: PublishedSession = await publish(
        [say("one")], url=tls_url, ca_file=certificates.authority, cert_file=certificate, key_file=key
    )
    await session.ask("a")
    await session.client.close()
    assert session.warnings == []
    with Redis(unix_socket_path=str(tmp_path / "s"), decode_responses=True, protocol=2) as client:
        assert read_stream(client, session.key) == session.read_lines()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "),
        ({"ca_file": "~/missing.crt"}, "/missing.crt cannot be read. The session goes on;"),
    ],
    ids=["unknown authority", "no such file"],
)
async def test_a_certificate_that_cannot_be_checked_is_refused(
    publish: Publish, tls_url: str, settings: dict[str, str], said: str
) -> None:
    session: PublishedSession = await publish([say("one")], url=tls_url, **settings)
    assert (await session.ask("a")).text == "one"
    await until(lambda: session.warnings)
    assert said in session.warnings[0].text
    assert "redis.ca_file" in session.warnings[0].text
