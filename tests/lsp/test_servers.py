"""Which language servers a project gets, how they are launched, and which ones need a sandbox."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import pytest

from odin.app import workspace as workspace_module
from odin.config import LanguageServerSettings, load
from odin.config.paths import remove_unused_caches
from odin.core.profile import WritableFolders
from odin.lsp.detection import (
    KNOWN_SERVERS,
    LOCAL_FOLDERS,
    ServerSpec,
    add_interpreter,
    find_for_project,
    find_servers,
    plan_launch,
)
from odin.lsp.protocol import ServerFault
from tests.conftest import RunHere
from tests.table import each
from tests.waiting import LIMIT_S

from .conftest import FAKE_SERVER, Serve


def install(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@each(
    ("installed", "files", "found"),
    [
        (("ruff", "ty"), {}, ["ruff", "ty"]),
        (("ty", "pyright-langserver", "basedpyright-langserver"), {}, ["basedpyright"]),
        (("ty", "basedpyright-langserver"), {"pyproject.toml": "[tool.ty.rules]\n"}, ["ty"]),
        (("ty", "pyright-langserver"), {"pyproject.toml": "[tool.ty]\n[tool.pyright]\n"}, ["pyright"]),
        (("basedpyright-langserver", "pyright-langserver"), {"pyrightconfig.json": "{}"}, ["pyright"]),
        (("typescript-language-server", "tsc"), {}, ["typescript-language-server"]),
        (("gopls", "rust-analyzer", "clangd"), {}, ["gopls", "rust-analyzer", "clangd"]),
        ((), {}, []),
    ],
)
def test_installed_servers_are_found(
    tmp_path: Path, installed: tuple[str, ...], files: dict[str, str], found: list[str]
):
    project, programs = (Path(mkdtemp(dir=tmp_path)) for _ in "ab")
    install(programs, *installed)
    for name, text in files.items():
        (project / name).write_text(text)
    env = {"PATH": f"relative:{programs}:{tmp_path}/missing"}
    assert [spec.name for spec in find_servers(str(project), env, {})] == found
    assert find_servers(str(project), env, {}, detect=False) == ()


@each(
    ("configured", "installed", "files", "found"),
    [
        ("ty", ("ty", "basedpyright-langserver"), {}, ["ty"]),
        ("ty", ("basedpyright-langserver",), {}, ["basedpyright"]),
        ("ty", (), {}, ["ty"]),
        ("ty", ("ty", "basedpyright-langserver"), {"pyproject.toml": "[tool.basedpyright]\n"}, ["basedpyright"]),
        ("basedpyright", ("ty", "basedpyright-langserver"), {"ty.toml": ""}, ["ty"]),
        ("gopls", ("gopls", "ty"), {}, ["gopls", "ty"]),
    ],
)
def test_only_one_server_of_a_family_is_used_even_if_configured(
    tmp_path: Path, configured: str, installed: tuple[str, ...], files: dict[str, str], found: list[str]
):
    project, programs = (Path(mkdtemp(dir=tmp_path)) for _ in "ab")
    install(programs, *installed)
    for name, text in files.items():
        (project / name).write_text(text)
    settings = {configured: LanguageServerSettings(options={"a": 1})}
    assert [spec.name for spec in find_servers(str(project), {"PATH": str(programs)}, settings)] == found


def test_rustup_proxy_alone_does_not_count_as_rust_analyzer(tmp_path: Path):
    install(tmp_path / "bin", "rustup")
    (tmp_path / "bin/rust-analyzer").symlink_to("rustup")
    env = {"PATH": f"{tmp_path}/bin", "HOME": str(tmp_path)}
    assert find_servers(str(tmp_path), env, {}) == ()
    install(tmp_path / ".rustup/toolchains/stable/bin", "rust-analyzer")
    assert [spec.name for spec in find_servers(str(tmp_path), env, {})] == ["rust-analyzer"]


@each(("version", "found"), [("7.0.2", ["tsc"]), ("5.9.3", []), ("x", []), (None, [])])
def test_tsc_is_a_language_server_since_typescript_7(tmp_path: Path, version: str | None, found: list[str]):
    project = Path(mkdtemp(dir=tmp_path))
    install(project / "node_modules/typescript/bin", "tsc")
    (project / "node_modules/.bin").mkdir()
    (project / "node_modules/.bin/tsc").symlink_to("../typescript/bin/tsc")
    (project / "node_modules/typescript/package.json").write_text(json.dumps({"version": version}))
    assert [spec.name for spec in find_servers(str(project), {"PATH": ""}, {})] == found


def test_settings_add_change_and_disable_servers(tmp_path: Path):
    install(tmp_path / "bin", "ruff", "ty", "lua-ls")
    configured = {
        "ty": LanguageServerSettings(enabled=False),
        "ruff": LanguageServerSettings(args=("server", "--preview")),
        "lua": LanguageServerSettings(command="lua-ls", file_types=(".lua",), root_markers=(".luarc.json",)),
        "own": LanguageServerSettings(command="./tools/ls", args=("-x",)),
    }
    env = {"PATH": f"{tmp_path}/bin"}
    ruff, lua, own = find_servers(str(tmp_path), env, configured, by_project=["own"])
    assert (ruff.args, ruff.file_types, ruff.programs) == (
        ("server", "--preview"),
        (".py", ".pyi"),
        (f"{tmp_path}/bin/ruff",),
    )
    assert (lua.programs, lua.needs_sandbox) == ((f"{tmp_path}/bin/lua-ls",), False)
    assert (own.programs, own.args, own.needs_sandbox) == ((f"{tmp_path}/tools/ls",), ("-x",), True)
    assert list(find_for_project((lua, own), str(tmp_path))) == [own]
    (tmp_path / "src/deep/er").mkdir(parents=True)
    (tmp_path / "src/deep/er/a.lua").write_text("")
    assert list(find_for_project((lua, own), str(tmp_path))) == [own, lua]


@each(
    ("options", "with_venv", "expected"),
    [
        ({"a": 1}, False, {"a": 1}),
        ({"a": 1}, True, {"a": 1, "python": {"pythonPath": "ROOT/venv/bin/python"}}),
        ({"python": {"pythonPath": "x"}}, True, {"python": {"pythonPath": "x"}}),
    ],
)
def test_server_gets_the_interpreter_of_the_project(
    tmp_path: Path, options: dict[str, Any], with_venv: bool, expected: dict[str, Any]
):
    root = mkdtemp(dir=tmp_path)
    if with_venv:
        install(Path(root, "venv/bin"), "python")
    spec = ServerSpec("x", ("x",), options=options, python_setting=("python", "pythonPath"))
    assert add_interpreter(spec, root) == json.loads(json.dumps(expected).replace("ROOT", root))


NOTHING = WritableFolders()


def test_programs_in_any_folder_that_commands_can_write_are_not_started_without_a_sandbox(tmp_path: Path):
    install(tmp_path / "cargo/bin", "x")
    spec = ServerSpec("x", (f"{tmp_path}/cargo/bin/x", "/bin/x"))
    for writable, program in ((NOTHING, spec.programs[0]), (WritableFolders((str(tmp_path / "cargo"),)), "/bin/x")):
        launch = plan_launch(spec, str(tmp_path / "p"), {}, writable=writable, is_confined=False)
        assert launch.argv == (program,)


def test_sandboxed_server_gets_its_own_caches(tmp_path: Path):
    gopls = next(spec for spec in KNOWN_SERVERS if spec.name == "gopls")
    env = {"HOME": str(tmp_path)}
    for writes in (False, True):
        spec = msgspec.structs.replace(gopls, programs=("/bin/gopls",), writes=writes)
        inside = plan_launch(spec, str(tmp_path / "p"), env, writable=NOTHING, is_confined=True)
        assert inside.profile.name == "server" and inside.profile.scope is not None
        *project, folder = inside.profile.scope
        assert project == [str(tmp_path / "p")] * writes
        assert Path(folder).is_dir() and Path(folder).parent == tmp_path / ".cache/odin/servers"
        assert inside.env == {"GOCACHE": f"{folder}/gocache", "GOPLSCACHE": f"{folder}/goplscache"}
    other = plan_launch(spec, str(tmp_path / "q"), env, writable=NOTHING, is_confined=True)
    assert other.env["GOCACHE"] != inside.env["GOCACHE"]
    folders = tmp_path / ".cache/odin/servers"
    for thread in threading.enumerate():
        if thread.name == "odin-caches":  # it removes unused caches, too
            thread.join(LIMIT_S)
    for name, age in (("old", 31 * 86_400), ("new", 86_400)):
        (folders / name / "deep").mkdir(parents=True)
        os.utime(folders / name, (time.time() - age, time.time() - age))
    remove_unused_caches(folders)
    assert {path.name[:5] for path in folders.iterdir()} == {"gopls", "new"}
    (tmp_path / "file").touch()
    with pytest.raises(ServerFault, match="cannot be created"):
        plan_launch(
            spec,
            str(tmp_path / "p"),
            {"ODIN_CACHE_DIR": f"{tmp_path}/file/x"},
            writable=NOTHING,
            is_confined=True,
        )
    outside = plan_launch(spec, str(tmp_path / "p"), env, writable=NOTHING, is_confined=False)
    assert (outside.profile.name, "GOCACHE" in outside.env) == ("none", False)


async def test_programs_of_the_project_are_not_started_without_a_sandbox(serve: Serve, tmp_path: Path):
    install(tmp_path / "tools", "ls")
    own = serve(command="./tools/ls").all[0]
    with pytest.raises(ServerFault, match=r"commands can change .*ls, so it is not started without a sandbox"):
        await own.get_ready()


def test_workspace_finds_language_servers_by_program_name(workspace: Path, tmp_path: Path):
    """`odin.app.workspace` repeats the program names, so that it can look for them without importing `odin.lsp`."""
    assert set(workspace_module._SERVER_PROGRAMS) == {spec.programs[0] for spec in KNOWN_SERVERS}
    assert workspace_module._PROJECT_PROGRAMS == LOCAL_FOLDERS
    install(tmp_path / "bin", "gopls")
    config = load(str(workspace), {"HOME": str(tmp_path)}, trust=True)
    for path, found in ((f"{tmp_path}/bin", True), (str(tmp_path), False)):
        assert workspace_module.has_language_servers(config, {"PATH": path}) is found


@pytest.mark.slow  # starts a new interpreter
@pytest.mark.parametrize("has_server", [False, True])
def test_session_imports_language_server_code_only_if_there_is_a_server(
    workspace: Path, tmp_path: Path, has_server: bool
):
    program = (
        "import asyncio, os, sys\nfrom odin.app import open_session\nfrom odin.config import Options\n"
        "async def main():\n"
        "    client = await open_session(Options(trust=True, model='offline/planner'))\n"
        "    print(' '.join(name for name in sys.modules if 'lsp' in name or 'language_servers' in name))\n"
        "    await client.close()\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "PATH": str(tmp_path)}
    if has_server:
        install(tmp_path, "gopls")
        (workspace / "go.mod").touch()
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=workspace, env=env, check=True
    )
    loaded = run.stdout.split()
    assert "odin.lsp.symbols" not in loaded
    assert ("odin.lsp.tool" in loaded) == bool(loaded) == has_server


@pytest.mark.slow  # doctor probes every sandbox
def test_doctor_starts_the_servers_and_trust_lists_them(run_here: RunHere, workspace: Path):
    def make_settings(*quirks: str) -> dict[str, object]:
        return {"command": "python3", "args": ["-I", "-S", FAKE_SERVER, *quirks], "file_types": [".txt"]}

    (workspace / "odinconfig.json").write_text(
        json.dumps({"lsp_servers": {"good": make_settings(), "bad": make_settings("exit:initialize")}})
    )
    assert f"language server bad: python3 -I -S {FAKE_SERVER} exit:initialize" in run_here("trust")[1]
    assert run_here("trust", "add", "--yes")[0] == 0
    code, printed, _ = run_here("doctor", "--json")
    report = json.loads(printed)
    good, bad = (item["text"] for item in report["findings"] if item["topic"] == "lsp")
    assert code == 1 and good.startswith("good, ") and bad.startswith("bad: it ended (exit code 3): out of luck (")
    assert [item["state"]["status"] for item in report["language_servers"]] == ["ready", "failed"]
