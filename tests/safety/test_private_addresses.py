"""WebFetch reaches no address of this machine or a private network unless the user allows it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from odin.core.errors import PrivateAddress
from odin.core.tool import Target
from odin.policy.rules.rule import RuleSet, parse_rule
from odin.providers.address_guard import AddressGuard
from odin.providers.web import WebFetcher
from odin.testing import ScriptedServer, call, say
from tests.conftest import Run
from tests.policy.policies import make_policy
from tests.providers.servers import make_response
from tests.table import each
from tests.tools.site import open_site

REFUSED = """
    127.0.0.1 127.0.0.53 ::1 0.0.0.0 :: 10.0.0.1 172.16.5.4 172.31.255.255 192.168.1.1 169.254.169.254 169.254.1.1
    fe80::1 fe80::1%eth0 fc00::1 fd12:3456::1 fd00:ec2::254 100.64.0.1 100.127.255.254 100.100.100.200 168.63.129.16
    224.0.0.1 239.255.255.250 255.255.255.255 240.0.0.1 ff02::1 192.0.2.1 198.18.0.1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1::
    2001:db8::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 nonsense
""".split()  # noqa: SIM905


@each("address", REFUSED)
def test_a_host_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    assert not AddressGuard().is_allowed("page.example.org", address)


@each("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "172.32.0.1", "100.128.0.1"])
def test_a_host_name_that_resolves_to_a_public_address_is_allowed(address: str) -> None:
    assert AddressGuard().is_allowed("page.example.org", address)


@each(
    ("host", "address", "is_fine"),
    [
        ("localhost", "127.0.0.1", True),
        ("app.localhost", "::1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("192.168.1.1", "192.168.1.1", True),
        ("fd12:3456::1", "fd12:3456::1", True),
        ("localhost", "10.0.0.1", False),
        ("localhost.example.org", "127.0.0.1", False),
        ("127.1", "127.0.0.1", False),
        ("2130706433", "127.0.0.1", False),
        ("0177.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "0.0.0.0", False),
        ("169.254.169.254", "169.254.169.254", False),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", False),
    ],
)
def test_the_guard_allows_a_private_address_only_if_the_url_shows_it(host: str, address: str, is_fine: bool) -> None:
    assert AddressGuard().is_allowed(host, address) == is_fine


@each(
    ("entry", "host", "address", "is_fine"),
    [
        ("wiki.corp", "wiki.corp", "10.0.0.7", True),
        ("WIKI.corp.", "wiki.corp", "10.0.0.7", True),
        ("*.corp", "a.wiki.corp", "10.0.0.7", True),
        ("10.0.0.0/8", "wiki.corp", "10.0.0.7", True),
        ("10.0.0.7", "wiki.corp", "10.0.0.7", True),
        ("169.254.169.254", "169.254.169.254", "169.254.169.254", True),
        ("wiki.corp", "wiki.corp.evil.org", "10.0.0.7", False),
        ("10.0.0.0/8", "wiki.corp", "127.0.0.1", False),
        ("10.0.0.0/x", "wiki.corp", "10.0.0.7", False),
    ],
)
def test_the_user_can_allow_private_hosts_and_networks(entry: str, host: str, address: str, is_fine: bool) -> None:
    assert AddressGuard([entry]).is_allowed(host, address) == is_fine


class FakeResolver:
    """A name resolver that gives its answers in order and repeats the last one."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_no_request_is_sent_to_a_private_address() -> None:
    async with open_site() as site:
        site.page("/", "SECRET", "text/plain")
        fetcher = WebFetcher({}, "t", 10, guard=AddressGuard(resolve=FakeResolver(["127.0.0.1"]).resolve))
        with pytest.raises(PrivateAddress, match=r"evil\.example leads to 127\.0\.0\.1, which is not public"):
            await fetcher.fetch(f"http://evil.example:{site.port}/")
        real = WebFetcher({}, "t", 10, guard=AddressGuard())
        for host in ("127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0", "0"):
            with pytest.raises(PrivateAddress):
                await real.fetch(f"http://{host}:{site.port}/")
        assert site.heads == []
        for host in ("127.0.0.1", "localhost"):
            assert (await real.fetch(f"http://{host}:{site.port}/")).body == b"SECRET"
        await fetcher.close()
        await real.close()


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name is resolved once, so a second answer (DNS rebinding) has no effect."""
    resolver = FakeResolver(["10.0.0.1", "127.0.0.1"], ["10.0.0.1"])
    async with open_site() as site:
        site.page("/", "page", "text/plain")
        fetcher = WebFetcher({}, "t", 10, guard=AddressGuard(["127.0.0.0/8"], resolver.resolve))
        assert (await fetcher.fetch(f"http://name.example:{site.port}/")).body == b"page"
        assert resolver.asked == ["name.example"]
        assert "host: name.example" in site.heads[0].lower()
        await fetcher.close()


async def test_every_redirect_is_checked_again() -> None:
    async with open_site() as site:
        site.raw("/", make_response(b"moved", "location: /next\r\nconnection: close\r\n", "302 Found"))
        site.page("/next", "SECRET", "text/plain")
        resolver = FakeResolver(["127.0.0.1"], ["10.0.0.1"])
        fetcher = WebFetcher({}, "t", 10, guard=AddressGuard(["127.0.0.1"], resolver.resolve))
        with pytest.raises(PrivateAddress):
            await fetcher.fetch(f"http://name.example:{site.port}/")
        assert site.paths == ["/"]
        await fetcher.close()


async def test_a_proxy_gets_no_request_for_a_name_that_resolves_to_a_private_address() -> None:
    async with open_site() as site:
        env = {"HTTP_PROXY": site.url}
        guard = AddressGuard(resolve=FakeResolver(["10.0.0.1"]).resolve)
        fetcher = WebFetcher(env, "t", 10, guard=guard)
        with pytest.raises(PrivateAddress):
            await fetcher.fetch("http://name.example/")
        assert site.heads == []
        await fetcher.close()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_private_host_is_refused_with_a_reason_unless_the_settings_allow_it(
    run_odin: Run, home: Path, workspace: Path, allowed: bool
) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"web": {"private_hosts": ["127.1"]}} if allowed else {}))
    with ScriptedServer([]) as page:
        url = page.url.replace("127.0.0.1", "127.1")
        with ScriptedServer([call("WebFetch", {"url": url, "prompt": "What?"}), say("Done.")]) as server:
            run_odin("-p", "Read it.", "--yes", env=server.env("anthropic"))
        seen = server.requests[1].body.decode()
        assert ("leads to 127.0.0.1, which is not public" in seen) != allowed
        assert ("returned HTTP status" in seen) == allowed


@each(
    ("url", "is_private"),
    [
        ("http://localhost:8000/", True),
        ("http://app.localhost/", True),
        ("http://LOCALHOST./", True),
        ("https://127.0.0.1:1/x", True),
        ("http://192.168.1.1/", True),
        ("http://169.254.169.254/latest/meta-data", True),
        ("http://[::1]:8000/", True),
        ("http://[fe80::1%25eth0]/", True),
        ("http://[::ffff:10.0.0.1]/", True),
        ("https://docs.python.org/3/", False),
        ("http://8.8.8.8/", False),
        ("http://localhost.example.org/", False),
    ],
)
def test_yes_and_bypass_do_not_allow_private_addresses(url: str, is_private: bool) -> None:
    """A page could send the model there. An allow rule for WebFetch still applies."""
    project = "/srv/project"
    for policy in (make_policy(root=project, yes=True), make_policy(root=project, permission_mode="bypassPermissions")):
        decision = policy.evaluate("WebFetch", "network", Target(url=url), "edit_mode")
        assert (decision.action == "deny") is is_private
        assert not is_private or "private network" in decision.reason
        assert policy.evaluate("WebSearch", "network", Target(url=url), "edit_mode").action == "allow"
    asked = make_policy(root="/srv/project").evaluate("WebFetch", "network", Target(url=url), "edit_mode")
    assert asked.action == "ask"
    assert ("--yes" in asked.hint) is not is_private
    rules = RuleSet([parse_rule("WebFetch")])
    assert (
        make_policy(root="/srv/project", yes=True, rule_set=rules)
        .evaluate("WebFetch", "network", Target(url=url), "edit_mode")
        .action
        == "allow"
    )


@pytest.mark.parametrize("allowed", [False, True])
def test_yes_allows_a_page_of_this_machine_only_with_a_rule(run_odin: Run, allowed: bool) -> None:
    with ScriptedServer([]) as page:
        with ScriptedServer([call("WebFetch", {"url": page.url, "prompt": "What?"}), say("Done.")]) as server:
            rule = ["--allowedTools", "WebFetch(domain:127.0.0.1)"] if allowed else []
            run_odin("-p", "Read it.", "--yes", *rule, env=server.env("anthropic"))
        seen = server.requests[1].body.decode()
        why = "which --yes does not cover. Allow it with --allowedTools 'WebFetch(domain:127.0.0.1)'"
        assert (why in seen) != allowed
        assert ("returned HTTP status" in seen) == allowed
