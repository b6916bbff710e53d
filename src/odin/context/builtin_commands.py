"""The prompts that Odin brings as slash commands. A custom command of the same name replaces one."""

from typing import Any

_INIT = """\
Write instructions for coding agents that will work in this repository, in AGENTS.md at its root.

If AGENTS.md exists, improve it: keep what is right, correct what is wrong, add what is missing. If there is no \
AGENTS.md but an ODIN.md or CLAUDE.md, improve that file instead of writing a second one.

First look at the repository: the README, the build and package files, the CI configuration, rules for other tools \
(.cursor/rules, .cursorrules, .github/copilot-instructions.md), the layout of the source, a few typical files and tests.

Then write down what an agent cannot see at a glance:
- the commands to build, lint, format and test, and how to run a single test;
- the architecture: the main parts, how they work together, where to start reading;
- conventions that the code follows and a newcomer would break, and pitfalls.

Take every command and name from the repository; try commands that only read. Leave out what is obvious, general \
advice and lists of files. Stay under 100 lines. End with a summary of what you wrote or changed.

$ARGUMENTS
"""

_REVIEW = """\
Review a change in this repository. What to review: $ARGUMENTS

- Nothing is named: review the uncommitted changes (`git status`, `git diff HEAD`), and read new files.
- A branch: review what it adds to the default branch (`git diff main...BRANCH`). The default branch itself: review \
what the current branch adds to it (`git diff main...HEAD`).
- A commit or a range: review that (`git show COMMIT`, `git diff RANGE`).

Read enough of the code around the change to judge it. Do not change any file.

Look for what matters, in this order: wrong behavior, missing cases and error handling, security, data loss, races, \
broken callers and interfaces, performance, missing or weak tests, documentation that is now wrong. Do not comment on \
formatting or taste. Check each finding against the code before you report it.

Answer with the findings, most severe first. For each one: `file:line`, what is wrong, an input or a situation in \
which it fails, and how to fix it. If there are none, say so. End with one sentence: can this be merged?
"""

BUILTIN_COMMANDS: dict[str, dict[str, Any]] = {
    "init": {
        "description": "Write or improve AGENTS.md, the project's instructions for coding agents.",
        "argument-hint": "[INSTRUCTIONS]",
        "body": _INIT,
    },
    "review": {
        "description": "Review the uncommitted changes, or a branch or commit.",
        "argument-hint": "[BRANCH|COMMIT]",
        "body": _REVIEW,
    },
}
