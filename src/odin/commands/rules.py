"""`odin rules`: list, add and remove permission rules."""

import argparse
import os
from typing import TYPE_CHECKING

from odin.app.policy import load_rule_set
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output
from odin.config import load, resolve_folder
from odin.core.errors import UsageError
from odin.core.policy import RuleAction, RuleLine
from odin.ui.terminal import escape_hidden

if TYPE_CHECKING:
    from odin.policy.rules.rule import RuleSet

_ABOUT = "List permission rules, strongest last. Rules with a number are stored and can be removed."


def run_rules(argv: list[str]) -> int:
    args = _parse_args(argv)
    rules = load_rule_set(load(resolve_folder(args.cwd), os.environ), os.environ)
    for warning in () if args.json else rules.warnings:
        write_message(warning)
    return {"list": _list_rules, "add": _add_rule, "remove": _remove_rule}[args.what](args, rules)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin rules", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(default: list)")
    add(
        "rule",
        nargs="?",
        default="",
        metavar="RULE|N",
        help="add: a rule such as 'Bash(npm test:*)'; remove: its number",
    )
    add(
        "--scope",
        choices=("user", "project"),
        default="project",
        help="add: for all projects or this one (default: project)",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--deny", action="store_const", const="deny", dest="action", help="add a rule that denies")
    kind.add_argument("--ask", action="store_const", const="ask", dest="action", help="add a rule that asks")
    kind.add_argument(
        "--allow", action="store_const", const="allow", dest="action", help="add a rule that allows (default)"
    )
    parser.add_common_flags()
    return parser.parse_intermixed_args(argv)


def _list_rules(args: argparse.Namespace, rules: "RuleSet") -> int:
    if args.rule:
        raise UsageError("`odin rules list` takes no rule.", "To add one: odin rules add RULE.")
    lines = rules.list_rules()
    if args.json:
        return write_json({"rules": lines, "warnings": rules.warnings})
    return write_output("".join(_format_row(line) for line in lines) or "No rules besides the defaults.\n")


def _format_row(line: RuleLine) -> str:
    number = str(line.number) if line.number else "-"
    origin = f"   {escape_hidden(line.origin)}" if line.origin else ""
    return f"{number:>3}  {line.layer:<8} {line.action:<6} {escape_hidden(line.text)}{origin}\n"


def _add_rule(args: argparse.Namespace, rules: "RuleSet") -> int:
    if not args.rule.strip():
        raise UsageError("`odin rules add` needs a rule.", "For example: odin rules add 'Bash(npm test:*)'.")
    action: RuleAction = args.action or "allow"
    rule = rules.add(args.rule, action, args.scope)
    if args.json:
        return write_json({"added": {"text": rule.text, "action": action, "scope": args.scope}})
    scope = "for all projects" if args.scope == "user" else "for this project"
    return write_output(f"Rule added {scope}: {action} {rule.text}\n")


def _remove_rule(args: argparse.Namespace, rules: "RuleSet") -> int:
    if not args.rule.isdecimal():
        raise UsageError("`odin rules remove` needs the number of a rule.", "`odin rules` lists the numbers.")
    rule = rules.remove(int(args.rule))
    if args.json:
        return write_json({"removed": {"text": rule.text, "action": rule.action, "scope": rule.layer}})
    return write_output(f"Rule removed: {rule.action} {rule.text}\n")
