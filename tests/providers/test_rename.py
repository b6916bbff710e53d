"""Renames without a small model: found in prompts, and applied where all uses are certain."""

from odin.providers.whole_files.rename import Rename, find_rename, rename_in_project
from tests.table import each


@each(
    "prompt, expected",
    [
        ("Rename calc_sum to total everywhere.", Rename("calc_sum", "total", everywhere=True, is_all=True)),
        ("Please rename foo() in a.py to bar()", Rename("foo", "bar", everywhere=False, is_all=True)),
        ("rename the method Add of Store to AddItem", Rename("Add", "AddItem", everywhere=False, is_all=True)),
        ("Rename class Card to Pass and update all imports.", Rename("Card", "Pass", everywhere=False, is_all=True)),
        ("Rename MAX to LIMIT wherever it is used", Rename("MAX", "LIMIT", everywhere=True, is_all=True)),
        ("`fetch` should be called `load`.", Rename("fetch", "load", everywhere=False, is_all=True)),
        ("Rename `a1` -> `b1` in the whole project", Rename("a1", "b1", everywhere=True, is_all=True)),
        ("Change the name of total to sum_up in cart.js", Rename("total", "sum_up", everywhere=False, is_all=True)),
        (
            "conv in a.py is a bad name, call it convert instead",
            Rename("conv", "convert", everywhere=False, is_all=True),
        ),
        ("`f1` is misleading. Please rename it to g1 everywhere", Rename("f1", "g1", everywhere=True, is_all=True)),
        (
            "The method name `free` is odd. Call it left, and adapt its uses",
            Rename("free", "left", everywhere=False, is_all=True),
        ),
        (
            "calc is a bad name. feeOf would be better. Change that in all files",
            Rename("calc", "feeOf", everywhere=True, is_all=True),
        ),
        ("Add a function double and call it twice", None),
        ("Rename foo to bar and add a docstring", Rename("foo", "bar", everywhere=False, is_all=False)),
        ("rename foo to bar but keep an alias", Rename("foo", "bar", everywhere=False, is_all=False)),
        ("The function area is slow. numpy would be better", None),
        ("The function total is clear. Call it once.", None),
        ("rename a.py to b.py", None),
        ("Rename the parameter n of f to count", None),
        ("Rename foo to foo", None),
    ],
)
def test_rename_is_found_in_a_prompt(prompt: str, expected: Rename | None) -> None:
    assert find_rename(prompt) == expected


_CHECKS = 'def valid(card):\n    """valid cards"""\n    return card.valid  # valid\n'
_USES = (
    "from checks import valid\nimport checks\n\n\ndef f(x):\n    return f'{valid(x)} valid', checks.valid(x), x.valid\n"
)


@each(
    "prompt, files, expected",
    [
        (
            "rename valid to is_valid",
            {"checks.py": _CHECKS, "use.py": _USES, "README.md": "valid\n"},
            {
                "checks.py": _CHECKS.replace("def valid", "def is_valid"),
                "use.py": _USES.replace("import valid", "import is_valid")
                .replace("{valid", "{is_valid")
                .replace("checks.valid", "checks.is_valid"),
            },
        ),
        ("rename valid to is_valid", {"checks.py": _CHECKS, "use.py": "def g(valid):\n    return valid\n"}, None),
        ("rename valid to is_valid", {"checks.py": _CHECKS, "use.py": "valid = 3\nprint(valid)\n"}, None),
        ("rename valid to f", {"checks.py": _CHECKS, "use.py": _USES}, None),
        ("rename valid to is_valid", {"use.py": _USES}, None),
        (
            "rename sum to add",
            {
                "a.js": "export function sum(a) {\n  return a;\n}\n",
                "b.js": "import { sum } from './a';\nx.sum(`${sum(1)}`);\n",
            },
            {
                "a.js": "export function add(a) {\n  return a;\n}\n",
                "b.js": "import { add } from './a';\nx.sum(`${add(1)}`);\n",
            },
        ),
        ("rename sum to add", {"a.js": "function sum(a) {}\n", "b.js": "const f = (sum) => sum + 1;\n"}, None),
        (
            "rename Card to Pass",
            {"a.py": '__all__ = ["Card"]\n\n\nclass Card:\n    pass\n'},
            {"a.py": '__all__ = ["Pass"]\n\n\nclass Pass:\n    pass\n'},
        ),
        (
            "rename calc_sum to total everywhere",
            {"a.py": "def calc_sum():\n    '''calc_sum'''\n", "README.md": "calc_sum()\n", "data.csv": "calc_sum\n"},
            {"a.py": "def total():\n    '''total'''\n", "README.md": "total()\n"},
        ),
        ("rename max_n to limit in a.py", {"a.py": "def f(max_n):\n    pass\n", "b.py": "max_n = 3\n"}, None),
        (
            "rename get_name to full_name",
            {"a.py": "def get_name():\n    pass\n", "b.py": "from vendor import thing\nthing.get_name()\n"},
            None,
        ),
        (
            "rename get_name to full_name",
            {"a.py": "def get_name():\n    pass\n", "b.py": "x = {'get_name': 1}\n"},
            None,
        ),
        ("rename ID to KEY", {"a.py": "ID = 3\nq = 'SELECT ID'\nx = 'ID'\n"}, None),
        (
            "rename get_name to full_name",
            {"a.py": "class A:\n    def get_name(self):\n        1\n\n\nclass B:\n    def get_name(self):\n        2"},
            None,
        ),
        ("rename total to amount", {"a.py": "def total():\n    pass\n", "b.py": "import a as m\nm.total()\n"}, None),
        (
            "rename total to amount",
            {"a.js": "function total() {}\n", "b.js": "const lib = require('./a');\nlib.total();\n"},
            None,
        ),
        ("rename total to amount", {"a.js": "function total() {}\n", "b.js": "f().total;\n"}, None),
        (
            "rename Total to Sum",
            {"cart/sum.go": "package cart\n\nfunc Total() {}\n", "m.go": 'import "x/cart"\n\nvar y = cart.Total()\n'},
            None,
        ),
        ("rename area to size", {"a.py": 'def area(x):\n    pass\n\n\ny = f"{area({1: 2})}"\n'}, None),
        ("rename Point to Spot", {"a.py": "class Point:\n    pass\n\n\ndef f(x: 'Point'):\n    pass\n"}, None),
        ("rename total to amount", {"a.py": "def total():\n    pass\n", "b.py": "from other import total\n"}, None),
        ("rename total to amount", {"a.go": "func total() {}\n", "b.go": "type T struct {\n\ttotal int\n}\n"}, None),
        ("rename total to amount", {"a.js": "function total() {}\n", "b.js": "const {total} = load();\n"}, None),
        ("rename total to amount", {"a.py": "def total():\n    pass\n\n\n(total, y) = 1, 2\n"}, None),
        ("rename step to go", {"a.py": "class Job(Base):\n    def step(self):\n        pass\n"}, None),
        (
            "rename close to shut",
            {"a.py": "class Door:\n    def close(self):\n        1\n\nclass R:\n    def f(self):\n        self.close"},
            None,
        ),
        (
            "rename close to shut",
            {
                "a.py": "class Door:\n    def close(self):\n        pass\n",
                "b.py": "d = Door()\nd = open('x')\nd.close()\n",
            },
            None,
        ),
        (
            "rename run_app to start_app",
            {"a.py": "def run_app():\n    pass\n", "pyproject.toml": 'x = "app:run_app"\n'},
            None,
        ),
        ("rename area to size", {"a.py": "def area(x):\n    pass\n" + "# area " * 1000}, None),
        ("rename do_it to run_it", {"a.py": "def do_it():\n    pass\n", "b.py": "def do_it():\n    pass\n"}, None),
    ],
)
def test_rename_is_applied_only_if_every_use_is_certain(
    prompt: str, files: dict[str, str], expected: dict[str, str] | None
) -> None:
    rename = find_rename(prompt)
    assert rename is not None
    assert rename_in_project(rename, files, [path for path in files if path in prompt]) == expected
