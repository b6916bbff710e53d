"""Exit codes are an interface: the documentation names the code of every error and ending, and the code agrees."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import odin
from odin.core import errors
from odin.core.errors import EXIT_CODES, OdinError
from odin.core.event import TurnEnded
from odin.core.event_values import CheckResult, ExitReason, Verification
from odin.ui import exit as endings
from odin.ui.exit import get_exit_code

DOCS = Path(__file__).parent.parent.parent / "docs"


def read_table(page: str) -> dict[int, set[str]]:
    """Return the code words in the last column of the table of exit codes, by number."""
    section = (DOCS / page).read_text().partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|.*\|(.*)\|$", section, re.MULTILINE)
    return {int(code): set(re.findall("`(.*?)`", words)) for codes, words in rows for code in codes.split(", ")}


def list_codes(word: str) -> set[int]:
    """Return the documented exit codes of an error or ending; 1 for one that is not in the table."""
    return {code for code, words in read_table("headless.md").items() if word in words} or {1}


def list_errors(kind: type[OdinError] = OdinError) -> Iterator[type[OdinError]]:
    yield kind
    for special in kind.__subclasses__():
        yield from list_errors(special)


def test_every_page_lists_every_code() -> None:
    own = {value for name, value in vars(endings).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert set(read_table("headless.md")) == set(read_table("ci.md")) == set(EXIT_CODES)
    assert own | {kind.exit_code for kind in list_errors()} <= set(EXIT_CODES)


def test_every_error_has_the_documented_code() -> None:
    """Only `core.errors` gives codes: the end of a turn names its error, which is looked up there."""
    for module in pkgutil.walk_packages(odin.__path__, "odin."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = {kind for kind in list_errors() if kind.__module__.startswith("odin.")}
    own = {kind for kind in kinds if kind.__module__ == errors.__name__}
    wrong = {kind.__name__: kind.exit_code for kind in own if kind.exit_code not in list_codes(kind.__name__)}
    assert wrong == {}
    assert {kind for kind in kinds - own if "exit_code" in vars(kind)} == set()
    named = {word for words in read_table("headless.md").values() for word in words}
    assert named <= {kind.__name__ for kind in own} | {*get_args(ExitReason)}


def test_every_ending_has_the_documented_code() -> None:
    failed = Verification("failed", (CheckResult("a", "failed"),))
    kinds = {"error_max_structured_output_retries": "OutputMismatch"}
    ends = [TurnEnded("p", reason, error_kind=kinds.get(reason, "")) for reason in get_args(ExitReason)]
    ends += [TurnEnded("p", "end_turn", all_denied=True), TurnEnded("p", "end_turn", verification=failed)]
    found = {(end.reason, get_exit_code(end)) for end in ends}
    assert {(reason, code) for reason, code in found if code not in list_codes(reason)} == set()
    assert {code for reason, code in found if reason == "end_turn"} == list_codes("end_turn")
    errors_by_name = [TurnEnded("p", "error", error_kind=kind.__name__) for kind in list_errors(errors.ProviderError)]
    assert {end.error_kind for end in errors_by_name if get_exit_code(end) not in list_codes(end.error_kind)} == set()
