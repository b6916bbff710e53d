"""Real language servers on small projects, in the sandbox of a session.

basedpyright is a development dependency. The others are tested where they are installed; `ODIN_TEST_SERVERS` lists
folders with more programs.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec import Struct

from odin.app.sandbox import LazySandbox
from odin.config import LanguageServerSettings, load
from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.core.tool import ToolContext
from odin.lsp.arguments import LspArgs, RenameArgs
from odin.lsp.detection import find_servers
from odin.lsp.server import LanguageServer
from odin.lsp.servers import LanguageServers, LateErrors, review_files
from odin.lsp.tool import LspRenameTool, LspTool
from odin.sandbox.runner import ProcessRunner
from tests.waiting import TimeLimit

from .conftest import LONG_WAITS


class SampleProject(Struct):
    """A project whose `main` and `other` call the method `total` of the class `Cart`. `broken` has an error."""

    files: Mapping[str, str]
    main: str
    cart: str
    line: int
    broken: str
    other: str = ""
    tools: tuple[str, ...] = ()


PYTHON = SampleProject(
    {
        "pyproject.toml": "[project]\nname = 'shop'\n",
        "shop/__init__.py": "",
        "shop/cart.py": 'class Cart:\n    def total(self) -> int:\n        """The sum in ¤."""\n        return 1\n',
        "main.py": "from shop.cart import Cart\n\nsmile = '😀'; print(smile, Cart().total())\n",
    },
    "main.py",
    "shop/cart.py",
    2,
    "number: int = 'x'\n",
)
TYPESCRIPT = SampleProject(
    {
        "tsconfig.json": "{}",
        "shop/cart.ts": "export class Cart {\n  /** The sum in ¤. */\n  total(): number { return 1; }\n}\n",
        "main.ts": "import { Cart } from './shop/cart';\nconst smile = '😀'; console.log(smile, new Cart().total());\n",
    },
    "main.ts",
    "shop/cart.ts",
    3,
    "const n: number = 'x';\n",
)
GO = SampleProject(
    {
        "go.mod": "module example\n\ngo 1.21\n",
        "shop/cart.go": "package shop\n\ntype Cart struct{}\n\n// The sum in ¤.\nfunc (Cart) total() int { return 1 }\n",  # noqa: E501
        "shop/main.go": 'package shop\n\nvar smile = "😀"; var value = Cart{}.total()\n',
        "shop/other.go": "package shop\n\nvar other = Cart{}.total()\n",
    },
    "shop/main.go",
    "shop/cart.go",
    6,
    'var number int = "x"\n',
    "shop/other.go",
    ("go",),
)
RUST = SampleProject(
    {
        "Cargo.toml": "[package]\nname = 'shop'\nversion = '0.1.0'\nedition = '2021'\n",
        "src/cart.rs": "pub struct Cart;\nimpl Cart {\n  /// The sum in ¤.\n    pub fn total(&self) -> i32 { 1 }\n}\n",
        "src/main.rs": "mod cart;\nmod other;\n"
        'fn main() { let smile = "😀"; let _ = (smile, cart::Cart.total(), other::other()); }\n',
        "src/other.rs": "pub fn other() -> i32 { crate::cart::Cart.total() }\n",
    },
    "src/main.rs",
    "src/cart.rs",
    4,
    "pub struct Big; pub fn repeat(big: Big) -> (Big, Big) { (big, big) }\n",  # only the compiler finds this error
    "src/other.rs",
    ("cargo", "rustc"),
)
C = SampleProject(
    {
        "compile_commands.json": json.dumps(
            [
                {"directory": "ROOT", "file": name, "arguments": ["c++", "-std=c++17", "-c", name]}
                for name in ("main.cpp", "other.cpp")
            ]
        ),
        "shop/cart.hpp": "#pragma once\nstruct Cart {\n  /// The sum in ¤.\n  int total() const { return 1; }\n};\n",
        "main.cpp": '#include "shop/cart.hpp"\nconst char *smile = "😀"; int value = Cart().total();\n',
        "other.cpp": '#include "shop/cart.hpp"\nint other = Cart().total();\n',
    },
    "main.cpp",
    "shop/cart.hpp",
    4,
    'int number = "x";\n',
    "other.cpp",
)

SHORTHANDS = SampleProject(
    {
        "tsconfig.json": "{}",
        "shop.ts": "export const total = 1;\nexport interface Cart { count: number }\n"
        "export function add(cart: Cart) {\n  const { count } = cart;\n  return { count, total };\n}\n",
        "main.ts": "import { total, add } from './shop';\nexport { total } from './shop';\n"
        "export const all = { total, count: add({ count: total }).count };\n",
    },
    "main.ts",
    "shop.ts",
    1,
    "",
)

PROJECTS = {
    "basedpyright": PYTHON,
    "ty": PYTHON,
    "tsc": TYPESCRIPT,
    "gopls": GO,
    "rust-analyzer": RUST,
    "clangd": C,
}
PROGRAMS = (str(Path(sys.executable).parent), *os.environ.get("ODIN_TEST_SERVERS", "").split(os.pathsep))


@pytest.fixture(params=PROJECTS)
async def servers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LanguageServers]:
    """Yield one server for a sample project."""
    async with start_server(request.param, PROJECTS[request.param], tmp_path) as started:
        yield started


@asynccontextmanager
async def start_server(name: str, project: SampleProject, folder: Path) -> AsyncGenerator[LanguageServers]:
    """Yield a server for this project. Skip if the server or a tool that it needs is not installed."""
    root = os.path.realpath(folder)
    for file, text in project.files.items():
        path = Path(root, file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("ROOT", root))
    env = {**os.environ, "PATH": os.pathsep.join((*filter(None, PROGRAMS), os.environ["PATH"]))}
    others = {"ty", "basedpyright", "pyright"} - {name}
    found = find_servers(root, env, {other: LanguageServerSettings(enabled=False) for other in others})
    specs = [spec for spec in found if spec.name == name]
    missing = [name] if not specs else [tool for tool in project.tools if not shutil.which(tool, path=env["PATH"])]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    sandbox = LazySandbox(load(root, env, trust=True), make_environment(env, root))
    runner = ProcessRunner(make_environment(env, "/"), sandbox=sandbox.get)
    make = partial(LanguageServer, env=env, writable=sandbox.writable, can_confine=sandbox.can_confine)
    yield LanguageServers(root, [make(spec, root, runner, timing=LONG_WAITS) for spec in specs])
    await runner.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "symbol", "changed"),
    [
        ("shop.ts", "total", {"shop.ts": "return { count, total: sum }", "main.ts": "export { sum as total } from"}),
        ("shop.ts", "count", {"shop.ts": "const { sum: count } = cart;\n  return { count, total }"}),
        ("main.ts", "total", {"main.ts": "import { total as sum, add } from './shop'"}),
    ],
)
async def test_typescript_renames_keep_the_other_name_of_a_place(
    tmp_path: Path, path: str, symbol: str, changed: dict[str, str]
):
    async with start_server("tsc", SHORTHANDS, tmp_path) as servers:
        root = servers.root
        ctx = ToolContext(
            cwd=root,
            root=root,
            session="s",
            agent="",
            call_id="c",
            mode="edit_mode",
            progress=lambda text: None,
            environment=make_environment(cwd=root),
        )
        rename, args = LspRenameTool(lambda path: servers, FileCache(read_first=False)), RenameArgs(path, symbol, "sum")
        await rename.resolve(args, ctx)
        assert "Renamed" in (await rename.run(args, ctx)).text
        for name, text in changed.items():
            assert text in Path(root, name).read_text()


@pytest.mark.slow  # basedpyright takes two seconds to start
async def test_real_server_finds_symbols_renames_and_reports_errors(servers: LanguageServers):
    root, project = servers.root, PROJECTS[servers.all[0].spec.name]
    ctx = ToolContext(
        cwd=root,
        root=root,
        session="s",
        agent="",
        call_id="c",
        mode="edit_mode",
        progress=lambda text: None,
        environment=make_environment(cwd=root),
    )
    tool = LspTool(lambda path: servers)

    async def ask(**args: object) -> list[str]:
        return (await tool.run(LspArgs(**args), ctx)).text.splitlines()  # pyright: ignore[reportArgumentType]

    main, cart, users = project.main, project.cart, [project.main, *filter(None, [project.other])]
    kind = "struct" if servers.all[0].spec.name in ("gopls", "rust-analyzer") else "class"
    first = next(number for number, line in enumerate(project.files[cart].splitlines(), 1) if " Cart" in line)
    found = await ask(action="symbols", query="Cart")
    assert any(line.startswith(f"{cart}:{first}: Cart ({kind}") for line in found)
    (definition,) = await ask(action="definition", path=main, symbol="total")
    assert definition.startswith(f"{cart}:{project.line}:")
    references = await ask(action="references", path=cart, symbol="total")
    assert [line.partition(":")[0] for line in references] == sorted([cart, *users])
    assert all("total(" in line for line in references)
    assert any("The sum in ¤" in line for line in await ask(action="hover", path=main, symbol="total"))
    assert (await ask(action="symbols", path=cart))[0] == f"{cart}:{first}: Cart ({kind})"
    rename = LspRenameTool(lambda path: servers, FileCache(read_first=False))
    args = RenameArgs(cart, "total", "sum_up")
    await rename.resolve(args, ctx)
    assert f"{len(users) + 1} places in {len(users) + 1} files" in (await rename.run(args, ctx)).text
    text = Path(root, main).read_text()
    assert "😀" in text and ".sum_up()" in text
    late = LateErrors()
    assert (await review_files(servers, [f"{root}/{main}"], late)).text == ""
    lines = len(text.splitlines())
    with Path(root, main).open("a") as file:
        file.write(project.broken)
    found = (await review_files(servers, [f"{root}/{main}"], late)).text.splitlines()[1:]
    async with TimeLimit():
        while not found:  # errors of the compiler come later
            await asyncio.sleep(0.1)
            found = late.take_note(root).splitlines()[1:]
    assert found[0].startswith(f"{main}:{lines + 1}:") and ": new: " in found[0]
