"""`odin sessions`: list, search, show, rename, delete, fork and export; and choosing one for `--resume`."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from odin.app.sessions import ProjectSessions, project_sessions
from odin.cli.output import put, say
from odin.cli.parser import Parser, formatter
from odin.core.errors import OdinError, UsageError
from odin.ui.picking import ASK, Picker, line, match_lines, when
from odin.ui.terminal import shorten, size_of, visible

EPILOG = """\
ID is the id of a session, the beginning of one, or words of its title.

  odin sessions                           the list, newest first
  odin sessions search WORDS              sessions in which all of them were said, by you, the model or a tool
  odin sessions show ID                   its prompts, numbered from the last one
  odin sessions rename ID TITLE
  odin sessions fork ID [--at N]          a copy, or a copy of what was before the N-th last prompt
  odin sessions export ID [--json|--format markdown|json|html] [-o PATH]
  odin sessions delete ID...              after a question, or with --yes
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="odin sessions", description="The sessions of this project.", epilog=EPILOG, formatter_class=formatter
    )
    add = parser.add_argument
    add("act", nargs="?", default="list", metavar="COMMAND", help="what to do (list)")
    add("words", nargs="*", metavar="WORD", help="which session, or what to search for")
    add("--json", action="store_true", help="print JSON; export: write JSON")
    add("--all", action="store_true", help="the sessions of all projects")
    add("--limit", type=int, default=0, metavar="N", help="at most so many; 0 for all")
    add("--at", default="", metavar="N|ID", help="fork: before the N-th last prompt, or the one of that id")
    add("--format", default="", choices=("markdown", "json", "html"), help="export: what to write (markdown)")
    add("-o", "--output", default="", metavar="PATH", help="export: where to; beside the session when it is not said")
    add("-y", "--yes", action="store_true", help="delete: do not ask")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def sessions_command(argv: list[str]) -> int:
    args = _parser().parse_intermixed_args(argv)
    act = _ACTS.get(args.act)
    if act is None:
        raise UsageError(f"`odin sessions` does not know {args.act!r}.", f"It knows {', '.join(_ACTS)}.")
    if args.limit < 0:
        raise UsageError("--limit is a number of sessions.", "0 means all of them.")
    return act(project_sessions(args.cwd, everywhere=args.all), args)


def _as_json(value: Any) -> int:
    return put(msgspec.json.encode(value).decode() + "\n")


def _list(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if args.words:
        raise UsageError("`odin sessions list` takes no words.", "`odin sessions search` does.")
    found = sessions.list()
    found = found[: args.limit or len(found)]
    if args.json:
        return _as_json(found)
    columns = _columns()
    return put("".join(f"{line(item, columns)}\n" for item in found) or "No sessions yet.\n")


def _search(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    found = sessions.search(" ".join(args.words))
    found = found[: args.limit or len(found)]
    if args.json:
        return _as_json(found)
    columns = _columns()
    rows = [row for match in found for row in match_lines(match, columns)]
    return put("".join(f"{row}\n" for row in rows) or "No session fits these words.\n")


def _show(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    shown = sessions.show(_one(args))
    if args.json:
        return _as_json(shown)
    item, columns = shown.session, _columns()
    facts = [("id", item.id), ("title", item.title), ("folder", item.cwd), ("model", item.model)]
    facts += [("created", when(item.created)), ("written to", when(item.modified))]
    facts += [("fork of", item.forked_from), ("open", item.locked)]
    rows = [f"{name:<11} {visible(' '.join(value.split()))}" for name, value in facts if value]
    for number, turn in zip(range(len(shown.prompts), 0, -1), shown.prompts, strict=True):
        rows += ["", f"{number:>3}  {_line(turn.body, columns - 5)}"]
        if turn.answer_summary.strip():
            rows.append(f"     {_line(turn.answer_summary, columns - 5)}")
    return put("\n".join(rows) + "\n")


def _rename(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if len(args.words) < 2:
        raise UsageError("`odin sessions rename` needs a session and a title.")
    session = sessions.rename(args.words[0], " ".join(args.words[1:]))
    return _as_json({"session": session}) if args.json else put(f"Renamed session {session}.\n")


def _fork(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    session, draft = sessions.fork(_one(args), args.at)
    if args.json:
        return _as_json({"session": session, "draft": draft})
    left = f"The prompt that was left out: {_line(draft, _columns() - 31)}\n" if draft else ""
    return put(f"{left}The copy is session {session}. Go on in it with `odin --resume {session}`.\n")


def _export(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if args.json and args.format not in ("", "json"):
        raise UsageError(f"Both --json and --format {args.format} were given.", "Use one of them.")
    session = sessions.find(_one(args))
    path = sessions.export(session, "json" if args.json else args.format, args.output)
    return put(f"{visible(path)}\n")


def _delete(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    """Every one that is named, also when another cannot be deleted."""
    if not args.words:
        raise UsageError("`odin sessions delete` needs the id of a session.")
    code, gone = 0, list[str]()
    for session in list(dict.fromkeys(sessions.find(word) for word in args.words)):
        if not args.yes and not _agreed(sessions, session):
            say(f"Session {session} was kept.")
            code = 1
            continue
        try:
            gone.append(sessions.delete(session))
        except OdinError as error:
            say(f"odin: {error.sentence()}")
            code = error.exit_code
    if args.json:
        return _as_json({"deleted": gone}) or code
    return put("".join(f"Deleted session {session}.\n" for session in gone)) or code


def _agreed(sessions: ProjectSessions, session: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Deleting a session needs a yes, and there is nobody to ask.", "Add --yes.")
    say(line(sessions.show(session).session, _columns()))
    return _asked("Delete it for good? [y/N] ").strip().lower() in ("y", "yes")


_ACTS: dict[str, Callable[[ProjectSessions, argparse.Namespace], int]] = {
    "list": _list,
    "search": _search,
    "show": _show,
    "rename": _rename,
    "fork": _fork,
    "export": _export,
    "delete": _delete,
}


def pick(cwd: str) -> str:
    """A session that a person chooses from a list, for `--resume` without an id; "" when they would rather not."""
    picker = Picker(project_sessions(cwd).list())
    while True:
        for row in picker.lines(_columns()):
            say(row)
        typed = "" if picker.empty else _asked(ASK)
        chosen = picker.take(typed)
        if chosen is not None:
            return chosen


def _asked(question: str) -> str:
    """What was typed; nothing when the input ended or was interrupted."""
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        return sys.stdin.readline()
    except KeyboardInterrupt:
        say("")
        return ""


def _one(args: argparse.Namespace) -> str:
    if not args.words:
        raise UsageError(f"`odin sessions {args.act}` needs a session.", "Name its id, or words of its title.")
    return " ".join(args.words)


def _line(text: str, room: int) -> str:
    return shorten(visible(" ".join(text.split())), max(room, 20))


def _columns() -> int:
    """Of a terminal; enough for most titles where there is none, or no output at all."""
    return size_of(sys.stdout)[0] if getattr(sys.stdout, "isatty", bool)() else 160
