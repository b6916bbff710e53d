"""The text of a request to a small model: formats, examples, files, found lines, outputs of commands, and the task.

Format and examples are the same in every request, so the server's prompt cache holds them; the task is last.
"""

from collections.abc import Iterable

from odin.core.message import Message, PromptMessage, ReplyMessage, Text
from odin.providers.whole_files.context_choice import ContextChoice
from odin.providers.whole_files.turn_history import TurnFacts

CHARS_PER_TOKEN = 3
_MAX_OUTPUT_CHARS = 3_000
_MAX_OTHERS = 60

EDIT_FORMAT = """\
You get files of a project and a task. Reply in one of these forms:
- To change or create files: for each file its path on a line of its own, then a code block with the complete new \
content of the file, every line of it. Only files that change. Keep everything else in them as it is.
- To delete a file: DELETE path
- To run a command, for example to count, to compute or to test: RUN command
  You get its output and then answer.
- To answer a question that the files or outputs below answer: one or two sentences."""

CHANGE_FORMAT = """\
You get files of a project and a task. Reply with each file that changes: its path on a line of its own, then a code \
block with the complete new content of the file, every line of it. Keep everything else in it as it is.
To delete a file: DELETE path"""

READ_FORMAT = """\
You get files of a project and a question. Answer it in one or two sentences. Change nothing.
To run a command that reads, for example to count, reply only: RUN command
You get its output and then answer."""

LONG_FORMAT = """\
{paths} is too long to repeat. Change it with blocks like this after its path, with lines copied exactly:
<<<<<<< SEARCH
lines to replace
=======
new lines
>>>>>>> REPLACE"""

EXAMPLE_FILES = {"door.py": 'def open_door(key):\n    return key == "gold"\n'}
_EXAMPLE_CHANGED = 'def open_door(key):\n    return key in ("gold", "silver")\n'
_LANGUAGES = {
    "py": "python",
    "js": "javascript",
    "mjs": "javascript",
    "ts": "typescript",
    "md": "markdown",
    "yml": "yaml",
}


def format_file(path: str, text: str) -> str:
    """Return a file as the model reads and writes it: its path, then its content in a code block."""
    fence = "````" if "```" in text else "```"
    language = path.rpartition(".")[2] if "." in path else ""
    return f"{path}\n{fence}{_LANGUAGES.get(language, language)}\n{text.rstrip()}\n{fence}"


def make_reply(text: str) -> ReplyMessage:
    return ReplyMessage((Text(text),))


def build_examples(*, can_edit: bool, can_run: bool) -> tuple[Message, ...]:
    """Return the examples as earlier messages of the conversation: an edit, and a command with its answer."""
    files = [format_file(*item) for item in EXAMPLE_FILES.items()]
    messages: list[Message] = []
    if can_edit:
        messages += [
            PromptMessage(format_task(files, "The door shall also open with a silver key.")),
            make_reply(format_file("door.py", _EXAMPLE_CHANGED)),
        ]
    if can_run:
        question = 'What does open_door("iron") return?'
        messages += [
            PromptMessage(format_task(files, question)),
            make_reply("RUN python3 -c 'from door import open_door; print(open_door(\"iron\"))'"),
            PromptMessage(format_outputs([("python3 -c …", "False")], question)),
            make_reply('open_door("iron") returns False.'),
        ]
    return tuple(messages)


def format_task(sections: Iterable[str], task: str, notes: Iterable[str] = ()) -> str:
    """Return the message with everything gathered and the task at its end, where small models look first."""
    return "\n\n".join([*sections, *notes, f"Task: {task}"])


def format_outputs(outputs: Iterable[tuple[str, str]], task: str) -> str:
    return format_task([f"Output of {command}:\n{text}" for command, text in outputs], task)


def cut_text(text: str, most: int = _MAX_OUTPUT_CHARS) -> str:
    """Return the start and the end of a long text."""
    text = text.strip()
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"


def list_sections(choice: ContextChoice, facts: TurnFacts, paths: Iterable[str], max_tokens: int) -> list[str]:
    """Return files, the first of them last, next to the task, and what else was gathered.

    `max_tokens` is how long a reply of the model may be.
    """
    project, commands, features = facts.project, facts.commands, choice.features
    shown = list(paths)
    sections: list[str] = []
    others = sorted(path for path in project.sizes if path not in shown)
    if others and not (shown and features.only_edits):  # a small model would write them, too
        more = "" if len(others) <= _MAX_OTHERS else f" and {len(others) - _MAX_OTHERS} more"
        sections.append(f"Other files: {', '.join(others[:_MAX_OTHERS])}{more}")
    for path in reversed(shown):
        text = project.files[path]
        sections.append(format_file(path, text) if text else f"{path} is empty.")
    if features.is_question or not project.files:
        sections += [_describe_hits(facts, term) for term in project.hits]
    for command, output in commands.outputs.items():
        is_asked = features.runs_tests or command == choice.find_command()
        if is_asked and (features.is_question or command not in commands.unavailable):
            sections.append(f"Output of {command}:\n{cut_text(output)}")
    most = max_tokens * 3 // 4  # the model cannot repeat a longer file within one reply
    long = [path for path, text in project.files.items() if len(text) // CHARS_PER_TOKEN > most]
    if long and choice.can_edit and not features.is_question:
        sections.append(LONG_FORMAT.format(paths=", ".join(long)))
    return sections


def _describe_hits(facts: TurnFacts, term: str) -> str:
    """Return the lines that contain a name of the prompt."""
    lines, count = facts.project.hits[term], facts.project.hit_counts.get(term, 0)
    if not lines:
        return f"{term} does not occur in any file."
    return f"{term} occurs in {count} {'line' if count == 1 else 'lines'}:\n" + "\n".join(lines)
