"""What the manifests of a repository say about it: names, descriptions, dependencies, where programs begin."""

import re
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.tools.survey.tree import Tree

Json = dict[str, Any]


class Manifest(Struct, frozen=True):
    """One manifest. `begins` are the programs it names, each with where it begins."""

    path: str
    what: str
    name: str = ""
    description: str = ""
    needs: tuple[str, ...] = ()
    begins: tuple[tuple[str, str], ...] = ()


def manifests(tree: Tree) -> list[Manifest]:
    """Those at the root and one or two folders below it, in the order of their paths."""
    found: list[Manifest] = []
    for path in tree.files:
        reader = _READERS.get(path.rsplit("/", 1)[-1])
        if reader is not None and path.count("/") <= 2:
            manifest = reader(path, tree.read(path))
            if manifest is not None:
                found.append(manifest)
    return sorted(found, key=lambda manifest: (manifest.path.count("/"), manifest.path))


def toml(text: str) -> Json:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def json(text: str) -> Json:
    try:
        return table(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return {}


def table(value: Any, *path: str) -> Json:
    """The table at this path of keys, or an empty one."""
    for key in path:
        value = cast("Json", value).get(key) if isinstance(value, dict) else None
    return cast("Json", value) if isinstance(value, dict) else {}


def texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in cast("list[Any]", value) if isinstance(item, str)) if isinstance(value, list) else ()


def requirement(text: str) -> str:
    """The name of a package in a line such as `name[extra]>=1; marker`."""
    found = re.match(r"\s*([A-Za-z0-9][\w.-]*)", text)
    return found[1] if found else ""


def _named(path: str, what: str, data: Json, **more: Any) -> Manifest:
    name, description = data.get("name"), data.get("description")
    return Manifest(
        path,
        what,
        name if isinstance(name, str) else "",
        description.strip() if isinstance(description, str) else "",
        **more,
    )


def _pyproject(path: str, text: str) -> Manifest | None:
    data = toml(text)
    project, poetry = table(data, "project"), table(data, "tool", "poetry")
    needs = [requirement(item) for item in texts(project.get("dependencies"))]
    needs += [name for name in table(poetry, "dependencies") if name != "python"]
    scripts = {**table(poetry, "scripts"), **table(project, "scripts"), **table(project, "gui-scripts")}
    build = table(data, "build-system").get("build-backend")
    version = project.get("requires-python") or table(poetry, "dependencies").get("python")
    what = "Python project" + (f" ({version})" if isinstance(version, str) else "")
    what += f", built with {build}" if isinstance(build, str) else ""
    begins = tuple((name, str(target)) for name, target in scripts.items() if isinstance(target, str))
    return _named(path, what, project or poetry, needs=tuple(filter(None, needs)), begins=begins)


def _setup_cfg(path: str, text: str) -> Manifest | None:
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    if not parser.has_section("metadata"):
        return None
    listed: str = parser.get("options", "install_requires", fallback="")
    needs = [requirement(line) for line in listed.splitlines()]
    return _named(path, "Python project", dict(parser["metadata"]), needs=tuple(filter(None, needs)))


def _requirements(path: str, text: str) -> Manifest | None:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "-"))]
    return Manifest(path, "Python requirements", needs=tuple(filter(None, map(requirement, lines))))


def _package_json(path: str, text: str) -> Manifest | None:
    data = json(text)
    if not data:
        return None
    bins, main = data.get("bin"), data.get("main")
    begins = [(str(data.get("name", "")), bins)] if isinstance(bins, str) else list(table(bins).items())
    if isinstance(main, str):
        begins.append(("main", main))
    spaces = data.get("workspaces")
    members = texts(spaces) or texts(table(spaces).get("packages"))
    what = "Node package" + (f" with workspaces {', '.join(members)}" if members else "")
    needs = (*table(data, "dependencies"), *table(data, "devDependencies"))
    return _named(path, what, data, needs=needs, begins=tuple((name, str(target)) for name, target in begins))


def _cargo(path: str, text: str) -> Manifest | None:
    data = toml(text)
    members = texts(table(data, "workspace").get("members"))
    what = "Rust crate" if "package" in data else "Rust workspace"
    what += f" with members {', '.join(members)}" if members else ""
    bins = cast("list[Any]", data.get("bin")) if isinstance(data.get("bin"), list) else []
    begins = [(str(table(item).get("name", "")), str(table(item).get("path", "src/main.rs"))) for item in bins]
    needs = tuple(table(data, "dependencies"))
    return _named(path, what, table(data, "package"), needs=needs, begins=tuple(begins))


def _go_mod(path: str, text: str) -> Manifest | None:
    module = re.search(r"(?m)^module\s+(\S+)", text)
    version = re.search(r"(?m)^go\s+(\S+)", text)
    needs = re.findall(r"(?m)^(?:require\s+|\t)([\w.-]+\.[\w./-]+)\s+v\S+$", text)
    what = f"Go module ({version[1]})" if version else "Go module"
    return Manifest(path, what, name=module[1] if module else "", needs=tuple(needs))


def _pom(path: str, text: str) -> Manifest | None:
    own = re.sub(r"(?s)<(parent|dependencies|build|profiles|dependencyManagement)>.*?</\1>", "", text)
    name, described = (re.search(f"<{tag}>([^<]+)</{tag}>", own) for tag in ("artifactId", "description"))
    depends = re.search(r"(?s)<dependencies>(.*?)</dependencies>", text)
    needs = re.findall(r"<artifactId>([^<]+)</artifactId>", depends[1]) if depends else []
    return Manifest(
        path, "Maven project", name[1] if name else "", described[1].strip() if described else "", tuple(needs)
    )


def _gradle(path: str, text: str) -> Manifest | None:
    name = re.search(r"""rootProject\.name\s*=\s*["']([^"']+)""", text)
    return Manifest(path, "Gradle build", name=name[1] if name else "")


def _gemfile(path: str, text: str) -> Manifest | None:
    return Manifest(path, "Ruby bundle", needs=tuple(re.findall(r"""(?m)^\s*gem\s+["']([^"']+)""", text)))


def _composer(path: str, text: str) -> Manifest | None:
    data = json(text)
    return _named(path, "PHP package", data, needs=tuple(table(data, "require"))) if data else None


def _cmake(path: str, text: str) -> Manifest | None:
    found = re.search(r"(?im)^\s*project\s*\(\s*([\w.-]+)", text)
    return Manifest(path, "CMake project", name=found[1]) if found else None


def _dockerfile(path: str, text: str) -> Manifest | None:
    images = re.findall(r"(?im)^FROM\s+(?:--\S+\s+)*(\S+)", text)
    return Manifest(path, "container image", needs=tuple(dict.fromkeys(images)))


_READERS = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "requirements.txt": _requirements,
    "requirements-dev.txt": _requirements,
    "package.json": _package_json,
    "Cargo.toml": _cargo,
    "go.mod": _go_mod,
    "pom.xml": _pom,
    "build.gradle": _gradle,
    "build.gradle.kts": _gradle,
    "settings.gradle": _gradle,
    "settings.gradle.kts": _gradle,
    "Gemfile": _gemfile,
    "composer.json": _composer,
    "CMakeLists.txt": _cmake,
    "Dockerfile": _dockerfile,
}
