"""odinconfig.json: layers, validation, variables, project files, folders and the schema."""

import json
import os
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.config import (
    Options,
    find_project_root,
    get_cache_dir,
    get_config_dir,
    get_state_dir,
    load,
    make_private_folder,
)
from odin.config.layers import USER_ONLY_KEYS
from odin.config.schema import build_schema, build_table
from odin.config.settings import ConfigKeys
from odin.context.settings import CacheSettings
from odin.core.errors import ConfigError, StateUnwritable, UnknownMode, UsageError
from tests.table import each

SECRET = "sk-very-secret-value"

Write = Callable[[Any], Path]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


@pytest.fixture
def user(home: Path) -> Write:
    def write(content: Any) -> Path:
        path = home / ".config" / "odin" / "odinconfig.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(content))
        return path

    return write


@pytest.fixture
def project(workspace: Path) -> Write:
    def write(content: Any) -> Path:
        path = workspace / "odinconfig.json"
        path.write_text(_text(content))
        return path

    return write


def load_here(workspace: Path, flags: dict[str, Any] | None = None, **env: str):
    return load(str(workspace), {**os.environ, **env}, flags or {})


def load_trusted(workspace: Path, **env: str):
    return load(str(workspace), {**os.environ, **env}, trust=True)


# --- layers ---


DEFAULTS = {
    "mode": "edit_mode",
    "permission_mode": "default",
    "max_turns": 0,
    "max_budget_usd": 0,
    "max_tokens": 8192,
    "temperature": None,
    "thinking": 0,
    "read_before_edit": True,
    "restrict_to_workspace": False,
    "confirm_timeout_s": 0,
    "question_timeout_s": 0,
    "retry.attempts": 6,
    "retry.base_s": 1,
    "retry.backoff": "exponential",
    "retry.max_s": 60,
    "compaction.enabled": True,
    "compaction.threshold": 0.8,
    "compaction.keep_turns": 2,
    "compaction.timeout_s": 120,
    "queue.mode": "sequential",
    "queue.steering": "one-at-a-time",
    "team.max_running": 10,
    "team.max_children": 10,
    "team.max_depth": 1,
    "team.idle_s": 120,
    "loop.max_iterations": 10,
    "mcp_limits.connect_s": 20,
    "web.timeout_s": 30,
    "web.search.backend": "none",
}


def test_defaults_apply_without_any_file(workspace: Path):
    config = load_here(workspace)
    assert {name: attrgetter(name)(config) for name in DEFAULTS} == DEFAULTS
    assert config.warnings == ()
    assert config.sources == {}
    assert config.root == str(workspace)


def test_each_layer_wins_over_the_one_before(workspace: Path, user: Write, project: Write):
    assert load_here(workspace).model == ""
    where = user({"model": "a/user"})
    assert load_here(workspace).model == "a/user"
    assert load_here(workspace).sources["model"] == str(where)
    where = project({"model": "a/project"})
    assert load_here(workspace).model == "a/user"
    assert load_trusted(workspace).model == "a/project"
    assert load_trusted(workspace).sources["model"] == str(where)
    assert load_here(workspace, ODIN_MODEL="a/environment").model == "a/environment"
    flagged = load_here(workspace, {"model": "a/flag"}, ODIN_MODEL="a/environment")
    assert flagged.model == "a/flag"
    assert flagged.sources["model"] == "flag"


def test_forbidden_commands_and_denied_tools_add_up(workspace: Path, user: Write, project: Write):
    user({"ForbiddenCommands": ["rm", "git push"], "disallowed_tools": ["WebFetch"]})
    project({"ForbiddenCommands": ["git push", "make deploy"], "disallowed_tools": ["Bash(curl:*)"]})
    config = load_here(workspace, {"disallowed_tools": ("Write",)})
    assert config.forbidden_commands == ("rm", "git push", "make deploy")
    assert config.disallowed_tools == ("WebFetch", "Bash(curl:*)", "Write")


def test_nested_objects_of_layers_are_merged_key_by_key(workspace: Path, user: Write, project: Write):
    user({"retry": {"attempts": 3, "base_s": 0.5}})
    project({"retry": {"attempts": 2}})
    retry = load_here(workspace).retry
    assert (retry.attempts, retry.base_s, retry.max_s) == (2, 0.5, 60.0)


def test_project_may_only_make_the_cache_smaller_and_stricter(workspace: Path, user: Write, project: Write):
    user({"cache": {"max_entries": 50}})
    project({"cache": {"max_bytes": 1000, "validation": "always", "ttl_s": 60}})
    cache = load_here(workspace).cache
    assert (cache.max_entries, cache.max_bytes, cache.validation, cache.ttl_s) == (50, 1000, "always", 60)
    for looser in ({"validation": "never"}, {"auto_refresh": False}, {"max_entries": 60}, {"max_file_bytes": 10**9}):
        project({"cache": looser})
        config = load_here(workspace)
        assert config.cache == CacheSettings(max_entries=50)
        assert any("ignored because this folder is not trusted: cache." in warning for warning in config.warnings)
    user({"cache": {"max_entries": 0, "eviction_policy": "fifo", "max_segments": 20}})
    project({})
    config = load_here(workspace)
    assert config.cache == CacheSettings(max_segments=20)
    assert len(config.warnings) == 2


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("ODIN_SMALL_MODEL", "a/b", "small_model", "a/b"),
        ("ODIN_MODE", "plan", "mode", "plan_mode"),
        ("ODIN_PERMISSION_MODE", "acceptEdits", "permission_mode", "acceptEdits"),
        ("ODIN_MAX_TURNS", "7", "max_turns", 7),
        ("ODIN_MAX_BUDGET_USD", "0.25", "max_budget_usd", 0.25),
        ("ODIN_MAX_TOKENS", "99", "max_tokens", 99),
        ("ODIN_TEMPERATURE", "0.5", "temperature", 0.5),
        ("ODIN_RESTRICT_TO_WORKSPACE", "true", "restrict_to_workspace", True),
    ],
)
def test_the_environment_sets_keys(workspace: Path, variable: str, value: str, name: str, expected: Any):
    config = load_here(workspace, None, **{variable: value})
    assert getattr(config, name) == expected
    assert config.sources[name] == variable


def test_empty_variable_is_ignored(workspace: Path):
    assert load_here(workspace, ODIN_MAX_TURNS="").max_turns == 0


@pytest.mark.parametrize(
    ("variable", "value"), [("ODIN_MAX_TURNS", "many"), ("ODIN_MAX_BUDGET_USD", "5$"), ("ODIN_MAX_TOKENS", "-1")]
)
def test_a_wrong_value_in_the_environment_stops_and_names_the_variable(workspace: Path, variable: str, value: str):
    with pytest.raises(ConfigError, match=variable):
        load_here(workspace, None, **{variable: value})


def test_a_wrong_mode_or_permission_mode_is_refused(workspace: Path):
    with pytest.raises(UnknownMode):
        load_here(workspace, {"mode": "yolo"})
    with pytest.raises(ConfigError, match=r"ODIN_MODE: Unknown mode 'edti'\. Did you mean edit\?"):
        load_here(workspace, ODIN_MODE="edti")
    with pytest.raises(UsageError, match="permission mode 'yolo'"):
        load_here(workspace, {"permission_mode": "yolo"})
    with pytest.raises(UsageError, match="max-turns"):
        load_here(workspace, {"max_turns": -1})
    with pytest.raises(UsageError, match="nonsense"):
        load_here(workspace, {"nonsense": 1})


def test_options_give_only_the_flags_that_were_set():
    assert Options().to_flags() == {}
    given_all = Options(model="a/b", mode="ask", max_turns=0, allowed_tools=("Read",), cwd="/x", yes=True).to_flags()
    assert given_all == {"model": "a/b", "mode": "ask", "max_turns": 0, "allowed_tools": ("Read",)}


def test_a_mode_is_always_its_wire_value(workspace: Path, user: Write):
    user({"mode": "ask"})
    assert load_here(workspace).mode == "ask_mode"


# --- problems are reported ---


@pytest.mark.unknown_keys
def test_unknown_key_is_ignored_and_reported_with_a_suggestion(workspace: Path, user: Write):
    keys = {"modle": "a/b", "max_turns": 5, "allowedCommands": ["ls"], "retry": {"atempts": 2}}
    where = user({**keys, "stream_retry_rounds": 0, "providers": {"w": {"stream_idle_timeout": 5}}})
    config = load_here(workspace)
    assert config.max_turns == 5
    assert config.model == ""
    assert config.warnings == (
        f'{where}: unknown key "modle" is ignored. Did you mean "model"?',
        f'{where}: unknown key "allowedCommands" is ignored. Did you mean "AllowedCommands"?',
        f'{where}: unknown key "retry.atempts" is ignored. Did you mean "attempts"?',
        f'{where}: unknown key "stream_retry_rounds" is ignored. Use "retry.attempts".',
        f'{where}: unknown key "providers.w.stream_idle_timeout" is ignored. Use "providers.NAME.idle_timeout".',
    )


@pytest.mark.unknown_keys
def test_unknown_key_without_a_similar_key_gets_no_suggestion(workspace: Path, user: Write):
    user({"zzzzzz": 1})
    (warning,) = load_here(workspace).warnings
    assert "zzzzzz" in warning
    assert "Did you mean" not in warning


@each(
    ("content", "problem"),
    [
        ({"max_turns": "ten"}, 'max_turns is ignored: it must be a whole number, not "ten".'),
        ({"max_turns": True}, "max_turns is ignored: it must be a whole number, not true."),
        ({"max_turns": -1}, "max_turns is ignored: it must be at least 0, not -1."),
        ({"temperature": 9}, "temperature is ignored: it must be from 0 to 2, not 9."),
        (
            {"permission_mode": "acceptEdit"},
            "permission_mode is ignored: it must be acceptEdits, auto, bypassPermissions, default or dontAsk, "
            'not "acceptEdit". Did you mean "acceptEdits"?',
        ),
        ({"mode": "edti"}, 'mode is ignored: it must be ask, edit or plan, not "edti". Did you mean "edit"?'),
        ({"speculate": "yes"}, 'speculate is ignored: it must be true or false, not "yes".'),
        ({"model": 3}, "model is ignored: it must be text, not a number."),
        ({"AllowedCommands": "ls"}, 'AllowedCommands is ignored: it must be a list, not "ls".'),
        ({"retry": 3}, "retry is ignored: it must be an object, not 3."),
        ({"retry": {"attempts": -1}}, "retry.attempts is ignored: it must be from 0 to 50, not -1."),
        (
            {"tui": {"theme": "drak"}},
            'tui.theme is ignored: it must be auto, dark or light, not "drak". Did you mean "dark"?',
        ),
        (
            {"providers": {"x": {"type": "carrier-pigeon"}}},
            "providers.x.type is ignored: it must be anthropic, gemini, openai, openai-chat or openai-responses, "
            'not "carrier-pigeon".',
        ),
        (
            {"providers": {"x": {"models": {"m": {"context": "big"}}}}},
            'providers.x.models.m.context is ignored: it must be a whole number, not "big".',
        ),
        ({"providers": {"x": 1}}, "providers.x is ignored: it must be an object, not 1."),
    ],
)
def test_wrong_value_is_ignored_and_reported_with_the_allowed_values(
    workspace: Path, user: Write, content: dict[str, Any], problem: str
):
    where = user({**content, "max_tokens": 77})
    config = load_here(workspace)
    assert config.max_tokens == 77
    assert config.warnings == (f"{where}: {problem}",)
    default = load_here(workspace.parent)
    assert config.max_turns == default.max_turns == 0


def test_wrong_entry_of_a_list_does_not_remove_the_other_entries(workspace: Path, user: Write):
    user({"ForbiddenCommands": ["rm", 3, "", "git push"]})
    config = load_here(workspace)
    assert config.forbidden_commands == ("rm", "git push")
    assert [warning.split(": ")[1].split(" ")[0] for warning in config.warnings] == [
        "ForbiddenCommands[1]",
        "ForbiddenCommands[2]",
    ]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ('{\n  "model": "a/b"\n  "mode": "ask"\n}', "line 3, column 3"),
        ('{\n  "model": "a/b",\n  mode: 1\n}', "line 3, column 3"),
        ('{"model": }', "line 1, column 11"),
        ("// a comment\n{}", "line 1, column 1"),
        ("", "line 1, column 1"),
        ('{"model": "a', "line 1, column 11"),
    ],
)
def test_a_syntax_error_stops_with_file_line_and_column(workspace: Path, user: Write, content: str, place: str):
    where = user(content)
    with pytest.raises(ConfigError) as caught:
        load_here(workspace)
    assert str(caught.value).startswith(f"{where}, {place}: not valid JSON: ")
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert where.read_text() == content


@pytest.mark.parametrize("content", ["[]", '"x"', "3", "null"])
def test_file_that_is_not_an_object_is_an_error(workspace: Path, project: Write, content: str):
    where = project(content)
    with pytest.raises(ConfigError, match="one JSON object") as caught:
        load_here(workspace)
    assert str(where) in str(caught.value)


@pytest.mark.parametrize("content", ['{"max_tokens": NaN}', '{"max_tokens": ' + "9" * 5000 + "}", "[" * 100_000])
def test_extreme_json_is_a_clear_error(workspace: Path, user: Write, content: str):
    where = user(content)
    with pytest.raises(ConfigError) as caught:
        load_here(workspace)
    assert str(where) in str(caught.value)


def test_a_key_written_twice_is_reported(workspace: Path, user: Write):
    user('{"ForbiddenCommands": ["rm"], "ForbiddenCommands": []}')
    (warning,) = load_here(workspace).warnings
    assert '"ForbiddenCommands" occurs twice' in warning


def test_invalid_utf8_names_the_line(workspace: Path, home: Path, user: Write):
    where = user("{}")
    where.write_bytes(b'{\n"model": "\xff"}')
    with pytest.raises(ConfigError, match="line 2: the text is not valid UTF-8"):
        load_here(workspace)


def test_byte_order_mark_is_accepted(workspace: Path, user: Write):
    user("{}").write_bytes(b'\xef\xbb\xbf{"max_turns": 3}')
    assert load_here(workspace).max_turns == 3


def test_folder_or_pipe_instead_of_the_file_is_a_clear_error(workspace: Path, home: Path):
    folder = home / ".config" / "odin" / "odinconfig.json"
    folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match="is a folder"):
        load_here(workspace)
    folder.rmdir()
    os.mkfifo(folder)
    with pytest.raises(ConfigError, match="not a regular file"):
        load_here(workspace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_a_clear_error(workspace: Path, user: Write):
    user("{}").chmod(0)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_here(workspace)


def test_a_huge_file_is_refused(workspace: Path, user: Write):
    user(" " * 1_000_001)
    with pytest.raises(ConfigError, match="1,000,001 bytes"):
        load_here(workspace)


# --- variables ---


def test_variables_expand_in_text_and_unset_ones_drop_the_key(workspace: Path, user: Write):
    where = user(
        {
            "model": "$VENDOR/${MODEL_ID}",
            "small_model": "${NOT_SET}",
            "max_turns": "$TURNS",
            "default_response": "costs $$5",
            "env_passthrough": ["$NOT_SET", "PLAIN"],
            "providers": {
                "a": {"api_key": "$A_KEY", "base_url": "${A_URL:-http://127.0.0.1:1}", "headers": {"x": "$NO"}}
            },
        }
    )
    config = load_here(workspace, VENDOR="a", MODEL_ID="b", TURNS="9", A_KEY=SECRET)
    assert (config.model, config.small_model, config.max_turns) == ("a/b", "", 9)
    assert config.default_response == "costs $5"
    assert config.env_passthrough == ("PLAIN",)
    provider = config.providers["a"]
    assert (provider.api_key, provider.base_url, provider.headers) == (SECRET, "http://127.0.0.1:1", {})
    assert config.warnings == (
        f"{where}: small_model is dropped: the environment variable NOT_SET is not set.",
        f"{where}: env_passthrough[0] is dropped: the environment variable NOT_SET is not set.",
        f"{where}: providers.a.headers.x is dropped: the environment variable NO is not set.",
    )


def test_no_secret_is_in_the_public_view_nor_written_back(workspace: Path, user: Write):
    where = user(
        {
            "providers": {"a": {"api_key": "$A_KEY", "base_url": f"http://u:{SECRET}@h", "headers": {"k": SECRET}}},
            "default_response": "$A_KEY",
            "ForbiddenCommands": ["$A_KEY"],
            "system_header": SECRET,
        }
    )
    before = where.read_bytes()
    config = load_here(workspace, {"max_turns": 4}, A_KEY=SECRET)
    assert config.default_response == SECRET
    public = config.to_public()
    assert SECRET not in json.dumps(public)
    assert public["default_response"] == "$A_KEY"
    assert public["ForbiddenCommands"] == ["$A_KEY"]
    assert public["providers"] == ["a"]
    assert public["max_turns"] == 4
    assert where.read_bytes() == before


def test_web_timeout_is_at_most_two_minutes(workspace: Path, user: Write):
    assert load_here(workspace).web.timeout_s == 30
    user({"web": {"timeout_s": 120}})
    assert load_here(workspace).web.timeout_s == 120
    where = user({"web": {"timeout_s": 121}})
    config = load_here(workspace)
    assert config.web.timeout_s == 30
    assert config.warnings == (f"{where}: web.timeout_s is ignored: it must be more than 0 and at most 120, not 121.",)


def test_warning_does_not_show_the_value_of_a_variable(workspace: Path, user: Write):
    user({"permission_mode": "$A_KEY", "max_turns": "${A_KEY}"})
    config = load_here(workspace, A_KEY=SECRET)
    assert len(config.warnings) == 2
    assert SECRET not in repr(config)


def test_the_public_view_names_every_key_but_the_private_ones(workspace: Path):
    shown = set(load_here(workspace).to_public())
    assert set(ConfigKeys.__struct_encode_fields__) - shown == {
        "catalog_url",
        "gateway",
        "web",
        "system_header",
        "env_passthrough",
        "hooks",
        "tui",
        "commands",
        "mcp",
        "mcp_limits",
        "lsp_servers",
        "redis",
    }


# --- project files have limited rights ---


@pytest.mark.parametrize(
    "content",
    [
        {"providers": {"anthropic": {"base_url": "https://evil.example"}}},
        {"system_header": "be evil"},
        {"env_passthrough": ["AWS_SECRET_ACCESS_KEY"]},
        {"web": {"search": {"backend": "searxng", "url": "https://evil.example"}}},
    ],
)
@pytest.mark.parametrize("trusted", [False, True])
def test_project_file_cannot_set_user_only_keys(
    workspace: Path, user: Write, project: Write, content: dict[str, Any], trusted: bool
):
    mine = user({})
    where = project(content)
    config = load(str(workspace), os.environ, trust=trusted)
    (key,) = content
    assert getattr(config, key) == getattr(load(str(workspace.parent), os.environ), key)
    assert config.warnings == (f"{where}: {key} is ignored in a project file: set it in your user file, {mine}.",)


LOOSER_SETTINGS: list[dict[str, Any]] = [
    {"AllowedCommands": ["make"]},
    {"allowed_tools": ["Bash"]},
    {"permission_mode": "acceptEdits"},
    {"max_turns": 0},
    {"max_turns": 1000},
    {"max_budget_usd": 100},
    {"max_budget_usd": 0},
    {"restrict_to_workspace": False},
    {"read_before_edit": False},
    {"mode": "edit"},
]

STRICT_SETTINGS: dict[str, Any] = {"max_budget_usd": 1, "restrict_to_workspace": True, "mode": "ask", "max_turns": 50}


@pytest.mark.parametrize("content", LOOSER_SETTINGS)
def test_untrusted_project_cannot_loosen_settings(
    workspace: Path, user: Write, project: Write, content: dict[str, Any]
):
    user(STRICT_SETTINGS)
    before = load_here(workspace).to_public()
    project(content)
    config = load_here(workspace)
    assert config.to_public() == before
    (warning,) = config.warnings
    (key,) = content
    assert f"{workspace / 'odinconfig.json'}: ignored because this folder is not trusted: {key}." in warning
    assert "`odin trust add`" in warning


@pytest.mark.parametrize("content", LOOSER_SETTINGS)
def test_trusted_project_may_loosen_settings(workspace: Path, user: Write, project: Write, content: dict[str, Any]):
    user(STRICT_SETTINGS)
    before = load_here(workspace).to_public()
    project(content)
    config = load_trusted(workspace)
    assert config.to_public() != before
    assert config.warnings == ()


def test_no_project_can_set_bypass_permissions(workspace: Path, project: Write):
    project({"permission_mode": "bypassPermissions"})
    for trusted in (False, True):
        config = load(str(workspace), os.environ, trust=trusted)
        assert config.permission_mode == "default"
        assert "bypassPermissions is ignored" in config.warnings[0]


def test_rules_and_hooks_are_kept_separate_for_each_layer(workspace: Path, user: Write, project: Write):
    hook = {"hooks": [{"type": "command", "command": "echo $HOME"}]}
    mine = user({"rules": ["a"], "hooks": {"Stop": [hook]}, "ForbiddenCommands": ["x"], "AllowedCommands": ["ls"]})
    theirs = project({"rules": {"deny": ["b"]}, "hooks": {"Stop": [hook], "PreToolUse": [hook]}})
    config = load_here(workspace, {"disallowed_tools": ("Write",)})
    (first, second) = config.declared["rules"]
    assert (first.value, first.layer, first.source, first.trusted) == (["a"], "user", str(mine), True)
    assert (second.value, second.layer, second.source, second.trusted) == (
        {"deny": ["b"]},
        "project",
        str(theirs),
        False,
    )
    assert config.declared["AllowedCommands"][0].layer == "user"
    assert config.declared["disallowed_tools"][0].layer == "session"
    assert [(item.layer, item.trusted) for item in config.declared["hooks"]] == [("user", True), ("project", False)]
    assert config.hooks == {"Stop": [hook]}
    trusted = load_trusted(workspace)
    assert [(item.layer, item.trusted) for item in trusted.declared["hooks"]] == [("user", True), ("project", True)]
    assert trusted.hooks == {"Stop": [hook, hook], "PreToolUse": [hook]}
    assert [item.trusted for item in trusted.declared["rules"]] == [True, True]


def test_untrusted_project_may_tighten_settings(workspace: Path, user: Write, project: Write):
    user({"AllowedCommands": ["make", "ls"], "permission_mode": "acceptEdits", "max_turns": 0})
    project(
        {
            "AllowedCommands": ["ls"],
            "permission_mode": "dontAsk",
            "mode": "plan",
            "max_turns": 10,
            "max_budget_usd": 2,
            "restrict_to_workspace": True,
        }
    )
    config = load_here(workspace)
    assert config.warnings == ()
    assert config.allowed_commands == ("ls",)
    assert (config.permission_mode, config.mode, config.max_turns) == ("dontAsk", "plan_mode", 10)
    assert (config.max_budget_usd, config.restrict_to_workspace) == (2, True)


def test_a_project_file_cannot_read_secrets_from_the_environment(workspace: Path, project: Write):
    project({"model": "$OPENAI_API_KEY", "default_response": "${GITHUB_TOKEN}", "small_model": "$VENDOR/x"})
    config = load_trusted(workspace, OPENAI_API_KEY=SECRET, GITHUB_TOKEN=SECRET, VENDOR="a")
    assert config.model == ""
    assert config.small_model == "a/x"
    assert SECRET not in repr(config)
    assert len(config.warnings) == 2


def test_user_config_folder_is_not_loaded_as_a_project(home: Path, user: Write):
    where = user({"AllowedCommands": ["make"], "providers": {"a": {"api_key": "k"}}})
    config = load(str(where.parent), os.environ)
    assert config.warnings == ()
    assert config.allowed_commands == ("make",)


# --- folders ---


def test_folders_follow_odins_variables_then_xdg_then_home(home: Path):
    env = {"HOME": str(home)}
    assert get_config_dir(env) == home / ".config" / "odin"
    assert get_state_dir(env) == home / ".local" / "state" / "odin"
    assert get_cache_dir(env) == home / ".cache" / "odin"
    xdg = {**env, "XDG_CONFIG_HOME": "/x/c", "XDG_STATE_HOME": "/x/s", "XDG_CACHE_HOME": "relative"}
    assert get_config_dir(xdg) == Path("/x/c/odin")
    assert get_state_dir(xdg) == Path("/x/s/odin")
    assert get_cache_dir(xdg) == home / ".cache" / "odin"
    own = {**xdg, "ODIN_CONFIG_DIR": "/o/c", "ODIN_STATE_DIR": "~/s", "ODIN_CACHE_DIR": "/o/k"}
    assert (get_config_dir(own), get_state_dir(own), get_cache_dir(own)) == (Path("/o/c"), home / "s", Path("/o/k"))


def test_the_user_file_moves_with_its_folder(workspace: Path, tmp_path: Path):
    (tmp_path / "odinconfig.json").write_text('{"max_turns": 3}')
    assert load_here(workspace, ODIN_CONFIG_DIR=str(tmp_path)).max_turns == 3


def test_created_folders_are_private(tmp_path: Path):
    folder = make_private_folder(tmp_path / "a" / "b")
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
    assert make_private_folder(folder) == folder


def test_folder_that_cannot_be_created_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnwritable, match="cannot be created"):
        make_private_folder(tmp_path / "file" / "state")


@pytest.mark.parametrize("marker", ["ODIN.md", "odinconfig.json", ".git"])
def test_the_root_is_the_nearest_marked_folder(workspace: Path, marker: str):
    deep = workspace / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project_root(str(deep), os.environ) == str(deep)
    (workspace / marker).write_text("{}")
    assert find_project_root(str(deep), os.environ) == str(workspace)
    (workspace / "a" / "ODIN.md").write_text("")
    assert find_project_root(str(deep), os.environ) == str(workspace / "a")


def test_home_is_not_the_project_root_of_its_subfolders(tmp_path: Path):
    home = tmp_path / "home"
    (home / "src").mkdir(parents=True)
    (home / ".git").mkdir()
    (tmp_path / ".git").mkdir()
    env = {"HOME": str(home)}
    assert find_project_root(str(home / "src"), env) == str(home / "src")
    assert find_project_root(str(home), env) == str(home)


def test_world_writable_folder_is_not_the_project_root_of_its_subfolders(tmp_path: Path):
    shared = tmp_path / "shared"
    mine = shared / "mine"
    mine.mkdir(parents=True)
    (shared / "ODIN.md").write_text("evil")
    assert find_project_root(str(mine), os.environ) == str(shared)
    shared.chmod(0o777)
    assert find_project_root(str(mine), os.environ) == str(mine)


def test_project_root_resolves_symbolic_links(workspace: Path, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(workspace)
    assert find_project_root(str(link), os.environ) == str(workspace)


# --- schema and table ---


def _all_properties(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    shapes: list[dict[str, Any]] = [schema, *schema["$defs"].values()]
    return [item for shape in shapes for item in shape["properties"].items()]


def test_the_schema_has_every_key_with_a_description():
    schema = build_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert set(schema["properties"]) == {"$schema", *ConfigKeys.__struct_encode_fields__}
    everything = _all_properties(schema)
    assert len(everything) > 30
    assert [name for name, found in everything if len(found.get("description", "")) < 10] == []
    json.dumps(schema)


def test_the_table_has_a_row_for_every_key():
    table = build_table()
    rows = [line.split(" | ") for line in table.splitlines()]
    assert len({len(row) for row in rows[2:]}) == 1
    for key in ConfigKeys.__struct_encode_fields__:
        assert f"| `{key}` |" in table
    for key in USER_ONLY_KEYS:
        (row,) = [row for row in rows if row[0] == f"| `{key}`"]
        assert row[4] == "no"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@pytest.mark.unknown_keys
@given(st.dictionaries(st.sampled_from(ConfigKeys.__struct_encode_fields__) | st.text(max_size=6), VALUES, max_size=6))
def test_any_object_loads_or_is_reported_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
):
    folder = tmp_path_factory.mktemp("config")
    (folder / "odinconfig.json").write_text(json.dumps(content))
    work = folder / "work"
    work.mkdir()
    config = load(str(work), {"HOME": str(folder), "ODIN_CONFIG_DIR": str(folder)})
    unknown = [key for key in content if key not in ConfigKeys.__struct_encode_fields__ and key != "$schema"]
    assert len(config.warnings) >= len(unknown)
    json.dumps(config.to_public())


@each(
    ("theirs", "mode", "commands", "limit"),
    [
        ({}, "run", ("make test",), 10),
        ({"verify": {"mode": "off"}}, "off", ("make test",), 10),
        ({"verify": {"commands": ["curl evil"]}}, "run", ("make test",), 10),
        ({"verify": {"mode": "run", "commands": "make test"}}, "run", ("make test",), 10),
        ({"loop": {"max_iterations": 3}}, "run", ("make test",), 3),
        ({"loop": {"max_iterations": 500}}, "run", ("make test",), 10),
        ({"loop": {"max_iterations": 0}}, "run", ("make test",), 10),
    ],
)
def test_untrusted_project_cannot_add_checks_or_lengthen_loops(
    user: Write, project: Write, workspace: Path, theirs: Any, mode: str, commands: tuple[str, ...], limit: int
):
    user({"verify": {"mode": "run", "commands": "make test"}})
    project(theirs)
    config = load_here(workspace)
    assert (config.verify.mode, config.verify.configured, config.loop.max_iterations) == (mode, commands, limit)


def test_verify_commands_are_text_or_a_list_and_keys_are_merged(user: Write, project: Write, workspace: Path):
    user({"verify": {"mode": "run", "timeout_s": 5}})
    project({"verify": {"commands": ["make test", "$LINTER ."]}})
    config = load(str(workspace), {**os.environ, "LINTER": "ruff check"}, trust=True)
    assert config.verify.configured == ("make test", "ruff check .")
    assert (config.verify.mode, config.verify.timeout_s) == ("run", 5)
    user({"verify": {"commands": 7}})
    assert "verify.commands is ignored" in load_here(workspace).warnings[0]
