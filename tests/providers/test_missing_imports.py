"""Adding the imports that a small model forgot in a Python file."""

from odin.providers.whole_files.missing_imports import add_missing_imports
from tests.table import each

_FILES = {
    "circle.py": "import test_a\n\n\ndef back():\n    pass\n",
    "water.py": "LIMIT = 3\n\n\ndef days_left(day):\n    return LIMIT - day\n",
    "shop/price.py": "def price(count):\n    return count\n",
    "shop/cart.py": "class Cart:\n    pass\n\n\ndef total():\n    return 0\n",
    "bank.py": "def total():\n    return 0\n",
    "tests/test_shop.py": "def helper():\n    return 0\n",
}


@each(
    "text, added",
    [
        ("import unittest\n\nprint(days_left(1), LIMIT)\n", "from water import LIMIT, days_left\n"),
        (
            "import sys\nprint(price(Cart()), json.dumps(1))\n",
            "import json\nfrom shop.cart import Cart\nfrom shop.price import price\n",
        ),
        ("import x\nprint(total(), helper(), unknown)\n", ""),
        ("from water import *\nprint(days_left(1))\n", ""),
        ("import x\ndef days_left():\n    return price\n\n\nprice = 3\n", ""),
        (
            "import x\ndef f(price, *rest):\n    with open(x) as water:\n        return [y for y in rest], water\n",
            "",
        ),
        ("import x\nprint(days_left(\n", ""),
        ("import x\nprint(" + "-" * 20_000 + "days_left(1))\n", ""),
        ("import x; print(days_left(1))\n", ""),
        ("import x\nprint(back())\n", ""),
        ("import x\nprint(days_left(1))\nimport z\n", "from water import days_left\n"),
    ],
)
def test_names_that_the_project_defines_once_are_imported(text: str, added: str) -> None:
    first, rest = text.split("\n", 1)
    assert add_missing_imports("test_a.py", text, "", _FILES) == f"{first}\n{added}{rest}"
    assert add_missing_imports("test_a.py", text, text, _FILES) == text, (
        "imports that the old file lacked are not added"
    )
    assert add_missing_imports("a.js", text, "", _FILES) == text


def test_the_first_imports_come_after_the_docstring() -> None:
    assert add_missing_imports("a.py", "#!/usr/bin/env python3\nprint(price(1))\n", "", _FILES) == (
        "#!/usr/bin/env python3\n\nfrom shop.price import price\n\n\nprint(price(1))\n"
    )
    assert add_missing_imports("a.py", "print(price(1))\n", "", _FILES) == (
        "from shop.price import price\n\n\nprint(price(1))\n"
    )
    assert add_missing_imports("a.py", '"""Prices."""\nprint(price(1))\n', "", _FILES) == (
        '"""Prices."""\n\nfrom shop.price import price\n\n\nprint(price(1))\n'
    )
