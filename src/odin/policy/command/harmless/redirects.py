"""Redirections that change nothing."""

from odin.policy.command.shapes import Redirect


def is_read_only_redirect(redirect: Redirect) -> bool:
    """Into the null device, or one stream into another. Nothing else that writes is harmless."""
    target = redirect.target
    if not target.literal:
        return False
    if redirect.op == ">&" and target.text in ("1", "2"):
        return redirect.fd in ("", "1", "2")
    if redirect.op in (">", ">>", "&>", "&>>", ">|"):
        return target.text == "/dev/null"
    return redirect.op == "<" and target.text == "/dev/null"
