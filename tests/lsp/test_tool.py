"""The lsp tools: how they handle the answers of servers, invalid ones included."""

import os
from pathlib import Path
from typing import Any

import pytest

from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.core.timing import Timing
from odin.core.tool import ToolContext
from odin.lsp.arguments import LspArgs, RenameArgs
from odin.lsp.server import LanguageServer
from odin.lsp.tool import LspRenameTool, LspTool

from .conftest import Serve, make_settings

SPAN = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 3}}


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    root = os.path.realpath(tmp_path)
    Path(root, "a.txt").write_text("old old\n")
    return ToolContext(
        cwd=root,
        root=root,
        session="s",
        agent="",
        call_id="c",
        mode="edit_mode",
        progress=lambda text: None,
        environment=make_environment(cwd=root),
    )


def move(line: int, character: int, last: int, end: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": character}, "end": {"line": last, "character": end}}


def answer_with(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    """Make every server give this answer."""

    async def ask(self: LanguageServer, method: str, params: Any, timeout: float = 0) -> Any:
        return result

    monkeypatch.setattr(LanguageServer, "ask", ask)


async def test_invalid_rename_edit_is_refused(serve: Serve, ctx: ToolContext, monkeypatch: pytest.MonkeyPatch):
    uri = f"file://{ctx.root}/a.txt"
    edit = {"range": SPAN, "newText": "new"}
    Path(ctx.root, "binary.txt").write_bytes(b"\0")
    Path(ctx.root, ".vscode").mkdir()
    for name in (".env", "README.md", ".vscode/a.txt"):
        Path(ctx.root, name).write_text("old\n")
    Path(ctx.root, "link.txt").symlink_to("/etc/hostname")
    Path(ctx.root, "a.txt").write_text("old old\nunold old\n")
    table: list[tuple[Any, str]] = [
        (None, "finds nothing to rename"),
        ([], "finds nothing to rename"),
        ({"changes": 5, "documentChanges": None}, "finds nothing to rename"),
        ({"changes": {uri: []}}, "finds nothing to rename"),
        ({"changes": {uri: 5}}, "sent an edit that is none"),
        ({"changes": {uri: [{"range": SPAN}]}}, "sent an edit that is none"),
        ({"changes": {uri: [edit, edit]}}, "overlapping edits"),
        *(
            ({"changes": {uri: [edit, {"range": move(*span), "newText": text}]}}, "would do more than rename 'old'")
            for span, text in (
                ((0, 4, 0, 7), "x"),
                ((0, 4, 0, 7), ""),
                ((0, 4, 0, 7), "old: new"),
                ((0, 4, 0, 7), "new\nimport os"),
                ((0, 4, 0, 4), "new"),
                ((0, 4, 0, 6), "new"),
                ((0, 3, 0, 7), " new"),
                ((0, 4, 1, 0), "new"),
                ((0, 4, 9, 9), "new"),
                ((1, 2, 1, 5), "new"),
                ((1, 6, 1, 99), "new"),
                ((2, 0, 2, 0), "new"),
            )
        ),
        *(
            ({"changes": {uri: [{"range": move(*span), "newText": "new"}]}}, "would do more than rename 'old'")
            for span in ((-1, 0, 0, 3), (0, -5, 0, 3), (0, 0, -1, 3), (0, 3, 0, 0))
        ),
        ({"changes": {f"file://{ctx.root}/.env": [edit]}}, "protected or no file of fake"),
        ({"changes": {f"file://{ctx.root}/README.md": [edit]}}, "protected or no file of fake"),
        ({"changes": {f"file://{ctx.root}/.vscode/a.txt": [edit]}}, "protected or no file of fake"),
        ({"changes": {f"file://{ctx.root}/link.txt": [edit]}}, "is outside the project"),
        ({"changes": {"untitled:x": [edit]}}, "which is no file"),
        ({"changes": {f"file://{ctx.root}/none.txt": [edit]}}, "cannot be read as text"),
        ({"changes": {f"file://{ctx.root}/binary.txt": [edit]}}, "cannot be read as text"),
        ({"changes": {f"file://{ctx.root}/../x": [edit]}}, "is outside the project"),
        ({"documentChanges": [{"kind": "delete", "uri": uri}]}, "create, move or delete files"),
        ({"documentChanges": [{"textDocument": 5, "edits": [edit]}]}, "which is no file"),
        ({"changes": {f"{uri}{number}": [edit] for number in range(300)}}, "300 files; 200 is the limit"),
    ]
    tool = LspRenameTool(lambda path: servers, FileCache())
    servers = serve()
    args = RenameArgs("a.txt", "old", "new")
    for result, reason in table:
        answer_with(monkeypatch, result)
        await tool.resolve(args, ctx)
        assert reason in tool.validate(args), (result, tool.validate(args))
        assert (await tool.run(args, ctx)).is_error
    answer_with(monkeypatch, {"documentChanges": [{"textDocument": {"uri": uri}, "edits": [edit]}]})
    await tool.resolve(args, ctx)
    Path(ctx.root, "a.txt").write_text("other\n")
    assert "has changed in the meantime" in (await tool.run(args, ctx)).text
    assert Path(ctx.root, "a.txt").read_text() == "other\n"


async def test_invalid_locations_are_left_out_and_long_lists_are_cut(
    serve: Serve, ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
):
    servers = serve()
    tool = LspTool(lambda path: servers)
    here = {"uri": f"file://{ctx.root}/a.txt", "range": SPAN}
    link = {"targetUri": "file:///usr/lib/x.txt", "targetSelectionRange": SPAN}
    far = [{"uri": here["uri"], "range": {**SPAN, "start": {"line": line, "character": 0}}} for line in range(99)]
    table: list[tuple[Any, list[str]]] = [
        (None, ["No reference found."]),
        ([None, 5, {}, {"uri": 1}, {"uri": "http://x", "range": SPAN}, here, here], ["a.txt:1:1: old old"]),
        (link, ["/usr/lib/x.txt:1:1"]),
        ([{**here, "uri": f"file://{ctx.root}/{name}.txt"} for name in range(60)], ["0.txt:1:1", "... and 10 more"]),
        (far, ["a.txt:1:1: old old", "a.txt:2:1"]),
    ]
    for result, expected in table:
        answer_with(monkeypatch, result)
        lines = (await tool.run(LspArgs("references", "a.txt", symbol="old"), ctx)).text.splitlines()
        assert [lines[0], *lines[1:][-1:]] == expected
    answer_with(
        monkeypatch, [{"name": "x" * 999, "kind": 99, "location": {"uri": here["uri"], "range": SPAN}}, {"name": 5}]
    )
    assert (await tool.run(LspArgs("symbols", query="x"), ctx)).text == f"a.txt:1: {'x' * 200} (symbol)"


async def test_symbols_come_from_the_working_servers_of_the_project(serve: Serve, ctx: ToolContext):
    others = {"broken": make_settings("exit:initialize"), "zig": make_settings(file_types=(".zig",))}
    servers = serve(others=others)
    found = (await LspTool(lambda path: servers).run(LspArgs("symbols", query="old"), ctx)).text.splitlines()
    assert found[:2] == ["a.txt:1: old (variable)"] * 2
    assert found[2:] == ["broken cannot answer: it ended (exit code 3): out of luck."]
    assert [server.status for server in servers.all] == ["failed", "idle", "ready"]
    servers = serve("exit:initialize")
    result = await LspTool(lambda path: servers).run(LspArgs("symbols", query="old"), ctx)
    assert result.is_error
    assert result.text.startswith("fake cannot answer: it ended (exit code 3): out of luck.\nNo language server")


async def test_next_server_is_asked_if_one_cannot_start(serve: Serve, ctx: ToolContext):
    servers = serve(others={"broken": make_settings("exit:initialize")})
    assert (
        await LspTool(lambda path: servers).run(LspArgs("hover", "a.txt", symbol="old"), ctx)
    ).text == "about old\n\nmore"


async def test_answer_is_marked_as_incomplete_while_the_server_loads_the_project(serve: Serve, ctx: ToolContext):
    servers = serve("loading", timing=Timing(lsp_settle_s=0.05))
    last = "fake is still loading the project, so this may be incomplete."
    for args in (LspArgs("references", "a.txt", symbol="old"), LspArgs("symbols", query="old")):
        found = (await LspTool(lambda path: servers).run(args, ctx)).text.splitlines()
        assert (len(found), found[-1]) == (3, last)
    assert servers.list_states()[0].status == "starting"
    rename, args = LspRenameTool(lambda path: servers, FileCache()), RenameArgs("a.txt", "old", "new")
    await rename.resolve(args, ctx)
    assert rename.validate(args).startswith("fake is still loading the project")
