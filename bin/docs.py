"""Write the generated parts of the documentation, or check that they are up to date.

    docs.py           check; lists stale, broken and missing parts and exits with 1
    docs.py --write   update the generated parts

A generated part is the text between `<!-- generated:NAME -->` and `<!-- /generated -->`.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, structs

from odin.app import build_standard_registry
from odin.commands import build_parser
from odin.commands.command_line import make_formatter
from odin.commands.completions import capture_parser
from odin.commands.main import COMMANDS
from odin.config.schema import build_schema, build_table
from odin.context.library import BUILTIN_COMMANDS
from odin.core import event, op
from odin.core.rights import OP_RIGHTS
from odin.core.slash_commands import SLASH_COMMANDS
from odin.core.tool import ALIASES, SubAgentTask
from odin.engine.event_bus import BUS_NAMES, list_sources
from odin.providers.offline.requests import REQUESTS
from odin.remote.openapi import build_openapi
from odin.remote.protocol import ENDPOINTS
from odin.tools.agent import AgentTool
from odin.tools.context_summarizer import ContextSummarizerTool
from odin.tools.web import WebFetchTool, WebSearchTool
from odin.ui.jsonl.commands import COMMANDS as JSONL_COMMANDS
from odin.ui.jsonl.commands import ClientCommand
from odin.ui.jsonl.payloads import ANSWERS, EVENTS, AnswerPayload, Payload
from odin.ui.tui.dialogs.reports import describe_scope
from odin.ui.tui.keys import KEYS, KeyScope, format_key
from odin.version import __version__
from record import as_text

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "docs" / "odinconfig.schema.json"
OPENAPI = ROOT / "docs" / "openapi.json"
PART = re.compile(r"(<!-- generated:(\w+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
OPTIONS_OF_ALL = re.compile(r"\n  (?:-h, --help  .*|--json  +print JSON|--cwd DIR  +project folder)(?=\n|$)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def flags() -> str:
    lines = [f"```text\n{build_parser().format_help().rstrip()}\n```"]
    return "\n".join(lines)


async def _run_no_task(task: SubAgentTask) -> event.TurnEnded:
    raise NotImplementedError


def tools() -> str:
    lines = ["| tool | kind | what it does | also known as |", "|---|---|---|---|"]
    registry = build_standard_registry()
    known = [tool for name in registry.list_names() if (tool := registry.get(name))]
    for tool in (*known, WebFetchTool, WebSearchTool, ContextSummarizerTool, AgentTool(_run_no_task)):
        aliases = ", ".join(f"`{name}`" for name in ALIASES.get(tool.name, "").split())
        lines.append(f"| `{tool.name}` | {tool.kind} | {tool.short} | {aliases} |")
    return "\n".join(lines)


def events() -> str:
    lines = ["| event | kept in the log | fields |", "|---|---|---|"]
    for kind in event.AnyEvent.__args__:
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        lines.append(f"| `{kind.__name__}` | {'yes' if kind.durable else 'no'} | {fields} |")
    return "\n".join(lines)


def ops() -> str:
    lines = ["| op | fields | right |", "|---|---|---|"]
    for kind in op.Op.__args__:
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        lines.append(f"| `{kind.__name__}` | {fields} | {OP_RIGHTS[kind]} |")
    return "\n".join(lines)


def endpoints() -> str:
    lines = ["| request | right | what it does |", "|---|---|---|"]
    for one in ENDPOINTS.values():
        fields = ", ".join(one.query.__struct_fields__)
        query = f"?{fields}" if fields else ""
        lines.append(f"| `{one.method} {one.path}{query}` | {one.right or 'none'} | {one.summary} |")
    return "\n".join(lines)


def bus() -> str:
    lines = ["| name | events | ops |", "|---|---|---|"]
    for name in BUS_NAMES:
        heard, asked = list_sources(name)
        of = [", ".join(f"`{kind.__name__}`" for kind in kinds) for kinds in (heard, asked)]
        lines.append(f"| `{name}` | {of[0] or 'none yet'} | {of[1]} |")
    return "\n".join(lines)


def builtins() -> str:
    lines = ["| command | what it does | also |", "|---|---|---|"]
    for command in SLASH_COMMANDS:
        typed = f"/{command.name} {command.hint}".rstrip().replace("|", "\\|")
        aliases = ", ".join(f"`/{name}`" for name in command.aliases)
        lines.append(f"| `{typed}` | {command.help} | {aliases} |")
    for name, prompt in BUILTIN_COMMANDS.items():
        typed = f"/{name} {prompt['argument-hint']}".replace("|", "\\|")
        lines.append(f"| `{typed}` | {prompt['description']} |  |")
    return "\n".join(lines)


def commands() -> str:
    """Return a Markdown section with the help text of each subcommand, without the options of all and their usage."""
    lines: list[str] = []
    for name, module in COMMANDS.items():
        parser = capture_parser(name, module)
        parser.formatter_class = make_formatter
        usage, _, rest = parser.format_help().rstrip().partition("\n\n")
        arguments = " ".join(re.sub(r"\[-[^\]]*\]", "", usage).split()).removeprefix(f"usage: odin {name}")
        shown = OPTIONS_OF_ALL.sub("", rest).replace("\n\noptions:\n\n", "\n\n").removesuffix("\n\noptions:")
        lines += [f"### odin {name}", "", "```text", f"odin {name} [OPTIONS]{arguments}", "", shown, "```", ""]
    return "\n".join(lines)


def keys() -> str:
    lines: list[str] = []
    places: list[KeyScope] = [key.scope for key in KEYS]
    for place in dict.fromkeys(places):
        lines += [f"### {describe_scope(place)}", "", "| key | action | name |", "|---|---|---|"]
        for key in KEYS:
            if key.scope == place:
                each = ", ".join(f"`{format_key(one)}`" for one in key.keys.split(","))
                lines.append(f"| {each} | {key.description} | `{key.name}` |")
        lines.append("")
    return "\n".join(lines)


def requests() -> str:
    lines = ["| to | say |", "|---|---|"]
    for request in REQUESTS:
        examples = (f"`` {example} ``" if "`" in example else f"`{example}`" for example in request.examples)
        lines.append(f"| {request.name} | {', '.join(examples)} |")
    return "\n".join(lines)


def _list_lines(kinds: Iterable[type[Payload] | type[ClientCommand]], common: type[Struct]) -> str:
    """Return a table of lines of JSON lines: their types, what they say, and their fields besides the common ones."""
    lines = ["| type | meaning | fields |", "|---|---|---|"]
    for kind in kinds:
        about = " ".join((kind.__doc__ or "").split())
        fields = [field for field in structs.fields(kind) if field.name not in common.__struct_fields__]
        bold = [field.name for field in fields if field.required and common is ClientCommand]
        names = ", ".join(f"**`{field.name}`**" if field.name in bold else f"`{field.name}`" for field in fields)
        lines.append(f"| `{kind.get_type()}` | {about} | {names} |")
    return "\n".join(lines)


def jsonl_events() -> str:
    return _list_lines(EVENTS, Payload)


def jsonl_commands() -> str:
    return _list_lines(JSONL_COMMANDS.values(), ClientCommand)


def jsonl_answers() -> str:
    return _list_lines(ANSWERS, AnswerPayload)


PARTS = {
    "run": as_text,
    "flags": flags,
    "commands": commands,
    "tools": tools,
    "events": events,
    "bus": bus,
    "ops": ops,
    "config": build_table,
    "builtins": builtins,
    "requests": requests,
    "keys": keys,
    "endpoints": endpoints,
    "jsonl_events": jsonl_events,
    "jsonl_commands": jsonl_commands,
    "jsonl_answers": jsonl_answers,
}


def pages() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").glob("**/*.md"))


def rendered(text: str) -> str:
    def part(match: re.Match[str]) -> str:
        return f"{match[1]}{PARTS[match[2]]().strip()}\n{match[3]}"

    return PART.sub(part, text)


def list_anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target, anchor in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target if target else page
        if not path.exists():
            yield f"{page.relative_to(ROOT)}: there is no file {target}"
        elif anchor and path.suffix == ".md" and anchor not in list_anchors(path.read_text(encoding="utf-8")):
            yield f"{page.relative_to(ROOT)}: {path.name} has no heading #{anchor}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Check or write the generated documentation.")
    parser.add_argument("--write", action="store_true")
    write: bool = parser.parse_args().write
    faults: list[str] = []
    wanted = {
        SCHEMA: json.dumps(build_schema(), indent=2) + "\n",
        OPENAPI: json.dumps(build_openapi(__version__), indent=1) + "\n",
    }
    used: set[str] = set()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        used |= {match[1] for match in PART.findall(text)}
        wanted[page] = rendered(text)
        faults.extend(broken_links(page, text))
    faults.extend(f"no page shows the generated part {name!r}" for name in PARTS.keys() - used)
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            if write:
                path.write_text(text, encoding="utf-8")
            else:
                faults.append(f"{path.relative_to(ROOT)} is not what the code says: run `make docs`")
    for fault in faults:
        sys.stderr.write(f"docs: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
