"""`odin skills`: list the skills that the model may use here, and check folders of skills for mistakes."""

import argparse
import os
from pathlib import Path

from odin.app.skills import check_skill_folder, describe_unused_skills, load_skill_catalog, summarize_skills
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output, write_table
from odin.config import load, resolve_folder
from odin.core.errors import UsageError
from odin.core.format import count_of

_ABOUT = """\
List the skills that the model may use in this folder (list), or check a skill or a folder of skills (check DIR).
Mistakes are reported with file and line; the exit code is then 1."""

_HEADINGS = ("NAME", "SOURCE", "FILE", "DESCRIPTION")


def run_skills(argv: list[str]) -> int:
    args = _parse_args(argv)
    return _check(args) if args.what == "check" else _list(args)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin skills", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "check"), default="list", help="(default: list)")
    add("folder", nargs="?", default="", metavar="DIR", help="for check: a skill or a folder of skills")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="project folder")
    add("--trust", action="store_true", help="trust this folder's skills for this run")
    return parser.parse_args(argv)


def _list(args: argparse.Namespace) -> int:
    if args.folder:
        raise UsageError(f"Unknown argument {args.folder!r}.", "Use `odin skills check DIR` to check a folder.")
    config = load(resolve_folder(args.cwd), os.environ, trust=args.trust)
    catalog = load_skill_catalog(config, os.environ)
    skills, unused = summarize_skills(catalog), describe_unused_skills(config)
    if args.json:
        write_json({"skills": skills, "problems": catalog.problems, "untrusted": unused})
        return 1 if catalog.problems else 0
    if skills:
        write_table([_HEADINGS, *((skill.name, skill.source, skill.path, skill.description) for skill in skills)])
    else:
        write_output("No skills. See docs/skills.md for where they are looked for.\n")
    for problem in catalog.problems:
        write_message(problem.describe())
    if unused:
        write_message(unused)
    return 1 if catalog.problems else 0


def _check(args: argparse.Namespace) -> int:
    folder = Path(args.cwd, args.folder or ".").resolve()
    if not folder.is_dir():
        raise UsageError(f"{args.folder} is not a folder.", "Name a skill or a folder of skills.")
    skills, problems = check_skill_folder(str(folder))
    if args.json:
        write_json({"skills": skills, "problems": problems})
    else:
        for problem in problems:
            write_message(problem.describe())
        if not skills and not problems:
            write_message(f"There is no SKILL.md in {folder}.")
        found = count_of(len(problems), "problem") if problems else "no problems"
        write_output(f"{count_of(len(skills), 'skill')}, {found}\n")
    return 1 if problems or not skills else 0
