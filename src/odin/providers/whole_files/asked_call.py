"""The call whose result a prompt asks for: Odin makes it if it is written down, or shows the model how to make it."""

import ast
import json
import re
import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from odin.providers.whole_files.program_source import may_be_pure, parse_python

_ASKS_RESULT = re.compile(
    r"\b(?:what|which|value|result|output)\b.{0,120}"
    r"\b(?:returns?|prints?|gives?|yields?|outputs?|results?|values?|evaluates?|is|get|gets|computes?|calculates?)\b",
    re.IGNORECASE | re.DOTALL,
)
_PRINTS = re.compile(r"\b(?:prints?|outputs?)\b", re.IGNORECASE)
_CALL_START = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")
_RESULT_FOR = re.compile(
    r"\b([A-Za-z_]\w*)\s+(?:return|print|give|output)s?\s+(?:for|given|with|on)\s+(.+?)[?.]?\s*$", re.MULTILINE
)
"""The same call in words: `What does area return for 2?`"""
_EXPORTS = re.compile(r"\bmodule\.exports\b|^exports\.", re.MULTILINE)
_LITERAL = (
    ast.Expression, ast.Call, ast.Name, ast.Attribute, ast.Constant, ast.List, ast.Dict, ast.Tuple, ast.Set,
    ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.keyword, ast.Load,
)  # fmt: skip
_NOT_RUN = re.compile(r"(?:ModuleNotFound|Import|Syntax|Indentation|Name|Reference)Error\b")
"""Errors that say that the call was not made as the prompt means it."""
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit|Interrupt|Iteration)\b.*?)(?: \(exit code \d+\))?$", re.M)


class AskedCall(Struct, frozen=True):
    """The command that makes a call. `prints`: the prompt asks for what it prints, not for what it returns."""

    expression: str
    command: str
    prints: bool

    def describe_result(self, output: str, *, failed: bool) -> str:
        """Return what the call returns, prints or raises; "" if that is not known."""
        if _NOT_RUN.search(output):
            return ""
        text = output.strip()
        raised = _RAISED.findall(text)
        if failed:
            return f"{self.expression} raises {raised[-1]}." if raised else ""
        if re.match(r"<[\w.]+ object at 0x", text):
            return ""
        if not text or text == "(no output)":
            return f"{self.expression} prints nothing."
        verb = "prints" if self.prints else "returns"
        return f"{self.expression} {verb}:\n{text}" if "\n" in text else f"{self.expression} {verb} {text}"


def find_call(prompt: str, definitions: Mapping[str, list[str]], texts: Mapping[str, str]) -> AskedCall | None:
    """Return the call that the prompt asks about, if it can be made.

    `definitions` are the places `path:line` of each name, `texts` the contents of files.
    """
    if not _ASKS_RESULT.search(prompt):
        return None
    prints = _PRINTS.search(prompt) is not None
    for name, expression in [*_list_expressions(prompt), *_list_worded_calls(prompt, definitions, texts)]:
        paths = {place.rpartition(":")[0] for place in definitions.get(name, ())}
        path = paths.pop() if len(paths) == 1 else ""
        if not path or not may_be_pure(path, texts):
            continue
        steps = _list_method_calls(prompt.partition(expression)[2], name, texts[path])
        if command := _build_command(expression, name, path, texts, steps, prints=prints):
            return AskedCall(", ".join((expression, *steps)), command, prints)
    return None


_WORDED = re.compile(
    r"\b(?:returns?|gives?|prints?|yields?|computes?|calculates?|costs?|takes?|charges?)\b.*\b(?:for|of|with|after|on|at)\b",
    re.IGNORECASE | re.DOTALL,
)
"""A question for the result of a function with values."""
_ABOUT_LINES = re.compile(r"\blines?\s+\d|\b(?:wrong|errors?|bugs?|fails?|crash\w*)\b", re.IGNORECASE)


def _list_worded_calls(
    prompt: str, definitions: Mapping[str, list[str]], texts: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the call of the only function that the prompt names, with its numbers, if it has as many parameters."""
    if not _WORDED.search(prompt) or _ABOUT_LINES.search(prompt):
        return []
    numbers = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)", prompt)
    calls: list[tuple[str, str]] = []
    for name, places in definitions.items():
        text = texts.get(places[0].rpartition(":")[0], "")
        called = re.search(rf"^(?:async )?def {re.escape(name)}\(([^)]*)\)", text, re.MULTILINE)
        wanted = [one for one in called[1].split(",") if one.strip() and "=" not in one] if called else []
        if numbers and len(wanted) == len(numbers):
            calls.append((name, f"{name}({', '.join(numbers)})"))
    return calls if len(calls) == 1 else []


def _list_method_calls(rest: str, name: str, text: str) -> list[str]:
    """Return the calls of methods that follow an object in a prompt: `make a Tank(50), call fill(35)`."""
    if not re.search(rf"^class {re.escape(name)}\b", text, re.MULTILINE):
        return []
    calls = [(found[1], _cut_expression(rest[found.start() :])) for found in _CALL_START.finditer(rest)]
    return [call for method, call in calls if call and re.search(rf"^\s+def {re.escape(method)}\(", text, re.MULTILINE)]


def _list_expressions(prompt: str) -> list[tuple[str, str]]:
    """Return the calls in a prompt, each with the name that it starts with."""
    written = [(found[1], _cut_expression(prompt[found.start() :])) for found in _CALL_START.finditer(prompt)]
    in_words = [(found[1], f"{found[1]}({found[2]})") for found in _RESULT_FOR.finditer(prompt)]
    return [(name, expression) for name, expression in written + in_words if expression]


def _cut_expression(text: str) -> str:
    """Return the call at the start of a text, with the methods called on its result: up to the last closed bracket."""
    depth, end = 0, 0
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"" and depth:
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if not depth:
                end = at + 1
                if not re.match(r"\.\w+\(", text[end:]):
                    break
        elif not depth and not re.match(r"[\w.]", sign):
            break
    return text[:end]


def _build_command(
    expression: str, name: str, path: str, texts: Mapping[str, str], steps: Sequence[str], *, prints: bool
) -> str:
    if not _is_literal(expression, name) or not all(_is_literal(step, step.partition("(")[0]) for step in steps):
        return ""
    if path.endswith(".py"):
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if not re.search(rf"^(?:async )?(?:def|class) {name}\b", texts.get(path, ""), re.MULTILINE):
            return ""
        *first, last = [f"made = {expression}", *(f"made.{step}" for step in steps)] if steps else [expression]
        code = "; ".join([f"from {module} import {name}", *first, last if prints else f"print(repr({last}))"])
        return f"python3 -B -c {shlex.quote(code)}" if re.fullmatch(r"\w+(?:\.\w+)*", module) else ""
    if path.endswith((".js", ".cjs")) and _EXPORTS.search(texts.get(path, "")):
        call = expression if prints else f"console.log({expression})"
        code = f"const {{ {name} }} = require({json.dumps(f'./{path}')}); {call}"
        return f"node -e {shlex.quote(code)}"
    return ""


def _is_literal(expression: str, name: str) -> bool:
    """True if an expression calls only this name, or methods of its result, with literal arguments."""
    tree = parse_python(re.sub(r"\b(?:true|false|null)\b", "0", expression))
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return False
    nodes = list(ast.walk(tree.body[0].value))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names == {name} and all(isinstance(node, _LITERAL) for node in nodes)


# --- a call in words ---

_ASKS_VALUE = re.compile(
    r"\b(?:what|which|how (?:much|long|many|far|high|big|old))\b.*"
    r"\b(?:returns?|prints?|gives?|yields?|outputs?|results?|values?|takes?|costs?|gets?|is|are|be|does|says?)\b",
    re.IGNORECASE | re.DOTALL,
)
_GIVEN = re.compile(r"\d|[\"'`][^\"'`]+[\"'`]")
"""A value that a call may be made with."""


def suggest_call(prompt: str, definitions: Mapping[str, list[str]], texts: Mapping[str, str]) -> str:
    """Return how the model can compute what the prompt asks for in words, if it names one function with values."""
    if not _ASKS_VALUE.search(prompt) or not _GIVEN.search(prompt):
        return ""
    found = [
        (path.removesuffix(".py").replace("/", "."), call)
        for name, places in definitions.items()
        if len(places) == 1
        and (path := places[0].rpartition(":")[0]).endswith(".py")
        and (call := _write_call(name, texts.get(path, "")))
    ]
    if len(found) != 1 or not re.fullmatch(r"\w+(?:\.\w+)*", found[0][0]):
        return ""
    module, call = found[0]
    code = f"from {module} import {call.partition('(')[0]}; print({call})"
    return f"It can be computed, with the values of the task: RUN python3 -c {shlex.quote(code)}"


def _write_call(name: str, text: str) -> str:
    """Return the call of a function or method with the names of its parameters, or ""."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = parse_python(text)
    for node in tree.body if tree else ():
        if isinstance(node, functions) and node.name == name:
            return f"{name}({', '.join(arg.arg for arg in node.args.args)})"
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {one.name: [arg.arg for arg in one.args.args][1:] for one in node.body if isinstance(one, functions)}
        if name in methods and not name.startswith("__"):
            made = f"{node.name}({', '.join(methods.get('__init__', ()))})"
            return f"{made}.{name}({', '.join(methods[name])})"
    return ""
