"""The environment commands run in: nothing in it waits for a person, and no secret is handed on unasked."""

import re
from collections.abc import Collection, Mapping

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "false",
    "VISUAL": "false",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "npm_config_yes": "true",
    "CI": "1",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Editors, pagers and prompts that would wait for ever end at once instead.

`GIT_EDITOR=true` accepts the message git has prepared, so `git rebase --continue` works and a commit without a message
still fails by itself; every other editor fails.
"""

_SECRET = (
    r"(?:^|_)(?:API_?KEYS?|TOKENS?|SECRETS?|SECRET_\w+|PASSWORD|PASSWD|CREDENTIALS?|PRIVATE_KEY|ACCESS_KEY(?:_ID)?)$"
)


def quiet_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """The environment of a command: nothing that prompts, and no secret the configuration does not name."""
    secret = re.compile(_SECRET, re.IGNORECASE)
    kept = {name: value for name, value in environ.items() if name in keep or not secret.search(name)}
    return {**kept, **_QUIET}
