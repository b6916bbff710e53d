"""`odin agents`: list the roles and the types of sub-agents, and report mistakes in agent files."""

import os

from odin.app.roles import describe_unused_files, list_project_files, load_agents
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_table
from odin.config import load
from odin.config.paths import make_environment

_ABOUT = """\
List agents: roles (main), types of sub-agents (subagent) and both (all). Reports mistakes in agent files with file and
line; the exit code is then 1."""

_HEADINGS = ("NAME", "TYPE", "MODEL", "SOURCE", "DESCRIPTION")


def run_agents(argv: list[str]) -> int:
    parser = Parser(prog="odin agents", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    parser.add_common_flags()
    add("--trust", action="store_true", help="trust this folder's agent files for this run")
    args = parser.parse_args(argv)
    environment = make_environment(os.environ, args.cwd)
    config = load(environment.cwd, os.environ, trust=args.trust)
    catalog = load_agents(config, environment)
    rows = [
        {
            "name": item.name,
            "type": item.use,
            "model": item.model,
            "source": item.path or item.source,
            "description": item.description,
        }
        for item in catalog.list_all()
    ]
    if args.json:
        unused = [] if config.trust.trusted else list_project_files(config.root)
        write_json({"agents": rows, "problems": catalog.problems, "untrusted": unused})
    else:
        write_table([_HEADINGS, *(tuple(row.values()) for row in rows)])
        for problem in catalog.problems:
            write_message(problem.describe())
        if unused := describe_unused_files(config):
            write_message(unused)
    return 1 if catalog.problems else 0
