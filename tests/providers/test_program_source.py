"""Recognizing programs that act, which Odin does not propose to run by itself."""

from odin.providers.whole_files.program_source import may_be_pure, parse_python
from tests.table import each

_PURE = "import math\nfrom shop import price\n\nLIMIT = price(2)\n\n\ndef f(n):\n    return math.floor(n)\n"


@each(
    "text, expected, as_script",
    [
        (_PURE, True, True),
        ("def f(n):\n    return n\n\n\nif __name__ == '__main__':\n    print(f(1))\n", True, True),
        ("print(1)\n", False, True),
        ("for n in range(3):\n    print(n)\n", False, True),
        ("def f():\n    return open('a').read()\n", False, True),
        ("open('a', 'w').write('x')\n", False, False),
        ("f = open\nf('a', 'w')\n", False, False),
        ("import os\n\n\ndef f():\n    os.rmdir('x')\n", False, False),
        ("from pathlib import Path\n", False, False),
        ("from evil import f\n", False, False),
        ("import unknown\n", False, False),
        ("from . import shop\n", False, False),
        ("def f(x):\n    return eval(x)\n", False, False),
        ("def f(:\n", False, False),
    ],
)
def test_pure_python_programs_are_recognized(text: str, expected: bool, as_script: bool) -> None:
    files = {"a.py": text, "shop.py": "def price(n):\n    return n\n", "evil.py": "import subprocess\n"}
    assert may_be_pure("a.py", files) is expected
    assert may_be_pure("a.py", files, is_script=True) is as_script


@each(
    "text, expected",
    [
        ("const { b } = require('./b');\nmodule.exports = { f: (n) => b(n) };\n", True),
        ("const fs = require('fs');\n", False),
        ("const x = require('./missing');\n", False),
        ("process.exit(1);\n", False),
        ("fetch('http://x');\n", False),
    ],
)
def test_pure_javascript_programs_are_recognized(text: str, expected: bool) -> None:
    assert may_be_pure("a.js", {"a.js": text, "b.js": "exports.b = (n) => n;\n"}) is expected


def test_deeply_nested_source_is_not_parsed() -> None:
    assert parse_python("x = " + "-" * 20_000 + "1") is None
