"""The app overrides private names of Textual only on purpose.

An attribute that accidentally has the name of a private one of Textual breaks the app in obscure ways. The intended
overrides are listed below; check them first after an update of Textual.
"""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from functools import cache

from textual.message_pump import MessagePump

import odin.ui.tui
from odin.ui.tui.terminal_driver import OdinDriver

INTENDED = {
    "_on_key": "keys act in the order in which they came, before Textual's bindings do",
    "_on_paste": "a long paste becomes one folded piece",
    "_fatal_error": "no traceback with variables in it is printed",
    "_forward_event": "what was typed before a question appeared does not answer it",
    "_get_terminal_size": "the size is asked of the terminal that is written to",
    "_process_messages": "the event loop keeps its task factory",
    "_run_input_thread": "pastes are taken out before each character is looked at",
    "_size_updated": "the transcript is laid out before its new size is drawn",
    "_sigcont_application": "the terminal is taken again after a suspension",
    "_sigtstp_application": "the terminal is given back before a suspension",
    "_file": "a terminal that stands still must not hold up the app",
    "_loop": "the loop in which the driver began",
    "_must_signal_resume": "as Textual's own driver does it",
}


def app_classes() -> Iterator[type[object]]:
    """Yield the classes of the app that derive from Textual's."""
    seen: set[type[object]] = {OdinDriver}
    yield OdinDriver
    for module in pkgutil.walk_packages(odin.ui.tui.__path__, "odin.ui.tui."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and issubclass(found, MessagePump) and found not in seen:
                seen.add(found)
                if found.__module__.startswith("odin."):
                    yield found


@cache
def list_private_names(cls: type[object]) -> frozenset[str]:
    """Return the private names a class defines: its methods, and the attributes set on `self`."""
    found = {name for name in vars(cls) if name.startswith("_") and not name.startswith("__")}
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else ():
            for part in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    found.add(part.attr)
    return frozenset(name for name in found if name.startswith("_") and not name.endswith("__"))


def list_overridden_names(cls: type[object]) -> set[str]:
    """Return the private names of Textual that this class overrides."""
    theirs = {
        name for base in cls.__mro__ if base.__module__.startswith("textual") for name in list_private_names(base)
    }
    return set(list_private_names(cls)) & theirs - _SET_BY_TEXTUAL


_SET_BY_TEXTUAL = frozenset(
    (
        *("_css_type_name", "_css_type_names", "_inherit_bindings", "_inherit_css", "_merged_bindings", "_reactives"),
        *("_computes", "_decorated_handlers", "_css_bases", "_inherit_component_classes", "_abc_impl"),
    )
)
"""Names that Textual itself sets on every class."""


def test_no_private_name_is_overridden_by_accident() -> None:
    found = {cls.__qualname__: list_overridden_names(cls) - set(INTENDED) for cls in app_classes()}
    assert {name: overridden for name, overridden in found.items() if overridden} == {}


def test_intended_overrides_still_exist_in_textual() -> None:
    """If Textual removes a name, the override is never called."""
    bases = {base for cls in app_classes() for base in cls.__mro__ if base.__module__.startswith("textual")}
    assert set(INTENDED) - {name for base in bases for name in list_private_names(base)} == set()
