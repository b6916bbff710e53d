"""Real servers on small projects: basedpyright of the development environment; ty and TypeScript 7 if they are there.

`ODIN_TEST_SERVERS` names folders with more programs.
"""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.config import LanguageServerSettings
from odin.context.file_cache import FileCache
from odin.core.tool import ToolContext
from odin.lsp import diagnostics
from odin.lsp.diagnostics import review_files
from odin.lsp.servers import LanguageServers, find_servers
from odin.lsp.tool import LspArgs, LspRenameTool, LspTool, RenameArgs
from odin.sandbox.runner import ProcessRunner

PYTHON = {
    "pyproject.toml": "[project]\nname = 'shop'\n",
    "shop/__init__.py": "",
    "shop/cart.py": 'class Cart:\n    def total(self) -> int:\n        """The sum in ¤."""\n        return 1\n',
    "main.py": "from shop.cart import Cart\n\nsmile = '😀'; print(smile, Cart().total())\n",
}
TYPESCRIPT = {
    "tsconfig.json": "{}",
    "shop/cart.ts": "export class Cart {\n  /** The sum in ¤. */\n  total(): number { return 1; }\n}\n",
    "main.ts": "import { Cart } from './shop/cart';\nconst smile = '😀'; console.log(smile, new Cart().total());\n",
}
BROKEN = {"basedpyright": "number: int = 'x'\n", "ty": "number: int = 'x'\n", "tsc": "const n: number = 'x';\n"}

PROGRAMS = (str(Path(sys.executable).parent), *os.environ.get("ODIN_TEST_SERVERS", "").split(os.pathsep))


@pytest.fixture(params=["basedpyright", "ty", "tsc"])
async def servers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LanguageServers]:
    root = os.path.realpath(tmp_path)
    for name, text in (TYPESCRIPT if request.param == "tsc" else PYTHON).items():
        path = Path(root, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    env = {**os.environ, "PATH": os.pathsep.join((*filter(None, PROGRAMS), os.environ["PATH"]))}
    others = {"ty", "basedpyright", "pyright"} - {request.param}
    found = find_servers(root, env, {name: LanguageServerSettings(enabled=False) for name in others})
    specs = [spec for spec in found if spec.name == request.param]
    if not specs:
        pytest.skip(f"{request.param} is not installed")
    runner = ProcessRunner(environ=env)
    yield LanguageServers(root, specs, runner, env=env, is_confined=lambda: False)
    await runner.close()


@pytest.mark.slow  # basedpyright takes two seconds to start
async def test_a_real_server_finds_renames_and_reviews(servers: LanguageServers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diagnostics, "COLD_WAIT_S", 30.0)
    monkeypatch.setattr(diagnostics, "WARM_WAIT_S", 30.0)
    root = servers.root
    suffix = ".ts" if servers.all[0].spec.name == "tsc" else ".py"
    ctx = ToolContext(
        cwd=root, root=root, session="s", agent="", call_id="c", mode="edit_mode", progress=lambda text: None
    )
    tool = LspTool(lambda: servers)

    async def ask(**args: object) -> list[str]:
        return (await tool.run(LspArgs(**args), ctx)).text.splitlines()  # pyright: ignore[reportArgumentType]

    main, cart = f"main{suffix}", f"shop/cart{suffix}"
    (definition,) = await ask(action="definition", path=main, symbol="total")
    assert definition.startswith(f"{cart}:{3 if suffix == '.ts' else 2}:")
    references = await ask(action="references", path=cart, symbol="total")
    assert [line.partition(":")[0] for line in references] == [main, cart]
    assert "total(" in references[0]
    assert any("The sum in ¤" in line for line in await ask(action="hover", path=main, symbol="total"))
    assert (await ask(action="symbols", path=cart))[0] == f"{cart}:1: Cart (class)"
    assert f"{cart}:1: Cart (class)" in await ask(action="symbols", query="Cart")
    rename = LspRenameTool(lambda: servers, FileCache(read_first=False))
    args = RenameArgs(cart, "total", "sum_up")
    await rename.prepare(args, ctx)
    assert "2 places in 2 files" in (await rename.run(args, ctx)).text
    assert "'😀'" in Path(root, main).read_text() and "Cart().sum_up()" in Path(root, main).read_text()
    assert (await review_files(servers, [f"{root}/{main}"])).text == ""
    with Path(root, main).open("a") as file:
        file.write(BROKEN[servers.all[0].spec.name])
    found = (await review_files(servers, [f"{root}/{main}"])).text.splitlines()
    assert len(found) == 2 and found[1].startswith(f"{main}:{4 if suffix == '.py' else 3}:") and ": new: " in found[1]
