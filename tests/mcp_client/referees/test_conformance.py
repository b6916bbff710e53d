"""The conformance suite of the protocol judges Odin as a client and as a server, in both revisions.

`make soak` runs every scenario that the suite scores, other runs a few. What fails is listed with the reason.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odin.commands.mcp_serve import ServedSessions, make_server
from odin.config import Options
from tests.mcp_client.referees.install import Referees, find_installed
from tests.mcp_client.test_http import serve_app
from tests.soak import SOAK, soak
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.slow, soak]
ROOT = Path(__file__).parents[3]
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
_SIGN_IN = (
    "metadata-default metadata-var1 metadata-var2 metadata-var3 basic-cimd scope-from-www-authenticate "
    "scope-from-scopes-supported scope-omitted-when-undefined scope-step-up scope-retry-limit "
    "token-endpoint-auth-basic token-endpoint-auth-post token-endpoint-auth-none pre-registration"
)
_ISSUER = (
    "resource-mismatch offline-access-scope offline-access-not-supported authorization-server-migration iss-supported "
    "iss-not-advertised iss-supported-missing iss-wrong-issuer iss-unexpected iss-normalized metadata-issuer-mismatch"
)
SCENARIOS = {
    HANDSHAKE: [
        *("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"),
        *(f"auth/{name}" for name in _SIGN_IN.split()),
    ],
    MODERN: [
        *("tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers"),
        *("http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref"),
        *(f"auth/{name}" for name in f"{_SIGN_IN} {_ISSUER}".split()),
    ],
}
"""The client scenarios that a revision requires, by the suite's own list."""

SAMPLE = {(HANDSHAKE, "auth/scope-step-up"), (MODERN, "sep-2322-client-request-state")}

SERVED = {
    HANDSHAKE: ("server-initialize ping tools-list server-sse-multiple-streams dns-rebinding-protection"),
    MODERN: (
        "tools-list server-sse-multiple-streams sep-2164-resource-not-found dns-rebinding-protection "
        "input-required-result-missing-input-response input-required-result-unsupported-methods "
        "input-required-result-ignore-extra-params input-required-result-validate-input"
    ),
}
"""The server scenarios that need nothing but a server. The others call tools named `test_…`, or list and read resources
and prompts, which Odin neither has nor announces; the suite takes it for a fault to answer without announcing."""

PARTLY = "server-stateless"
"""The scenario that wants such tools only for some checks: it calls those "not testable"."""


@pytest.fixture(scope="module")
def referees(request: pytest.FixtureRequest) -> Referees:
    cache: Any = request.config.cache
    found = find_installed(Path(cache.mkdir("mcp")))
    if isinstance(found, str):
        pytest.skip(found)
    return found


def read_checks(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each check with the name of its scenario."""
    for path in folder.rglob("checks.json"):
        scenario = path.parent.relative_to(folder).as_posix().split("-202", 1)[0].removeprefix("server-")
        for check in json.loads(path.read_bytes()):
            yield scenario, check


def list_faults(folder: Path, kinds: tuple[str, ...] = ("FAILURE", "WARNING")) -> list[str]:
    return [
        f"{scenario}: {check['id']}: {check.get('errorMessage') or check['description']}"
        for scenario, check in read_checks(folder)
        if check["status"] in kinds
    ]


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [
        (revision, scenario)
        for revision, scenarios in SCENARIOS.items()
        for scenario in scenarios
        if SOAK or (revision, scenario) in SAMPLE
    ],
)
def test_client(referees: Referees, tmp_path: Path, revision: str, scenario: str):
    command = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.mcp_client.referees.client"
    done = referees.run_conformance(
        *("client", "--command", command, "--scenario", scenario, "--spec-version", revision),
        *("--timeout", f"{LIMIT_S * 1000:.0f}", "-o", str(tmp_path)),
        timeout=2 * LIMIT_S,
    )
    assert list_faults(tmp_path) == [], done.stdout
    assert any(check["status"] == "SUCCESS" for _, check in read_checks(tmp_path)), done.stdout + done.stderr


@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
def test_server(referees: Referees, tmp_path: Path, workspace: Path, revision: str):
    app = make_server(ServedSessions(Options(cwd=str(workspace), headless=True))).streamable_http_app()
    wanted = ("--requirements", revision) if SOAK else ("--scenario", SERVED[revision].split()[-1])
    with serve_app(app) as url:
        done = referees.run_conformance(
            *("server", "--url", f"{url}/mcp", *wanted, "-o", str(tmp_path)), timeout=10 * LIMIT_S
        )
    faults = list_faults(tmp_path, ("FAILURE",))
    failed = {fault.partition(":")[0] for fault in faults}
    tried = {scenario for scenario, _ in read_checks(tmp_path)}
    assert tried, done.stdout + done.stderr
    must = set(SERVED[revision].split())
    assert (must & failed, must - tried if SOAK else set()) == (set(), set()), done.stdout
    assert not [fault for fault in faults if "wire-schema-valid" in fault], "every message is valid"
    assert [fault for fault in faults if fault.startswith(f"{PARTLY}:") and "Not testable" not in fault] == []
