"""Everyday commands, run without a sandbox and in a view whose effects are then applied: same result?

A program of its own, so that it runs as any user: `python view_commands.py FOLDER [FIRST [STEP]]`. It prints one JSON
line per command. Exit code, output and the whole tree are compared (see `view_sequences.take_picture`).
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from odin.config.paths import make_environment
from odin.core.profile import ProcessProfile
from odin.sandbox.layout import SandboxSession
from odin.sandbox.probe import SandboxOptions
from odin.sandbox.runner import CommandResult, ProcessRunner
from odin.sandbox.sandbox import Sandbox
from odin.sandbox.views.applier import apply_effects
from odin.sandbox.views.effects import read_effects
from odin.sandbox.views.layer import remove_layer
from tests.sandbox.view_sequences import take_picture
from tests.waiting import LIMIT_S

_PROJECT = r"""
set -e
git init -q -b main .; git config gc.auto 0; git config user.name N; git config user.email n@example.org
mkdir -p src/app src/legacy docs out vendor/lib tests locked
for n in 1 2 3 4; do echo "text $n" > src/t$n.txt; echo "def get$n(): return $n" > src/app/part$n.py; done
touch src/app/__init__.py; echo gone > src/legacy/x.txt; echo "# Title" > docs/index.md; echo data > vendor/lib/d.js
printf 'out/\nvendor/\n*.o\n__pycache__/\n*.sqlite\n.venv/\n' > .gitignore
printf 'all: out/tool\nout/tool: src/tool.c\n\tmkdir -p out; cc -o $@ src/tool.c\nclean:\n\trm -rf out\n' > Makefile
echo 'int main(void) { return 3; }' > src/tool.c
printf 'import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n' > tests/test_it.py
printf -- '--- a/src/t1.txt\n+++ b/src/t1.txt\n@@ -1 +1 @@\n-text 1\n+text one\n' > one.patch
printf '#!/bin/sh\necho ran "$@"\n' > go.sh; chmod +x go.sh; ln -s src/t2.txt shortcut; echo keep > locked/k.txt
echo 'require("fs").writeFileSync("out/b.js", "1")' > build.js
echo '{"name": "demo", "version": "1.0.0", "scripts": {"build": "node build.js"}}' > package.json
git add -A; git commit -qm first; echo more >> src/t2.txt; git commit -qam second
git checkout -qb topic HEAD~1; echo topic > topic.txt; git add topic.txt; git commit -qm topic; git checkout -q main
mkdir -p out; cc -o out/tool src/tool.c; sqlite3 db.sqlite 'create table t(a); insert into t values(1)'
chmod 555 locked
find . -exec touch -h -d '2021-03-04 05:06:07' {} +
git update-index -q --refresh || true
"""

_IN_PYTHON = "python3 - <<'END'\n{}\nEND"

COMMANDS = (
    "git status --short --branch",
    "git log --oneline --all | wc -l",
    "echo x >> src/t1.txt; git diff --stat",
    "echo x >> src/t1.txt; git commit -qam change; git log --oneline | wc -l",
    "echo x > new.txt; git add -A; git status --short",
    "echo x > new.txt; git add -N new.txt; git diff",
    "echo x >> src/t1.txt; git stash -q; git stash list | wc -l",
    "echo x >> src/t1.txt; git stash -q; git stash pop -q; git status --short",
    "git checkout -q topic; ls",
    "git switch -qc other; git branch",
    "echo x > src/t1.txt; git restore src/t1.txt; cat src/t1.txt",
    "git checkout -q topic; git rebase -q main; git log --oneline | wc -l",
    "git merge -q topic -m merged; git log --oneline | wc -l",
    "git cherry-pick topic > /dev/null; git status --short",
    "git revert --no-edit HEAD > /dev/null; cat src/t2.txt",
    "git reset -q --hard HEAD~1; git status --short",
    "git reset -q --soft HEAD~1; git status --short",
    "git commit -q --amend -m better; git log -1 --format=%s",
    "git worktree add -q tree topic; ls tree",
    "git branch -m topic renamed; git branch",
    "git branch -D topic | cut -d' ' -f1-3",
    "git tag v1; git tag -a v2 -m two; git tag",
    "git gc -q; git count-objects",
    "git clean -fdq; ls",
    "git clean -fdxq; ls -A",
    "git mv src/t1.txt src/t9.txt; git status --short",
    "git mv src/app src/core; git status --short",
    "git rm -qr src/app; git status --short",
    "git rm -q --cached src/t1.txt; git status --short",
    "git config core.editor ed; git config core.editor",
    "git fsck 2>&1 | tail -1",
    "git bisect start -q HEAD HEAD~1 | tail -1; git bisect reset -q",
    "git apply one.patch; cat src/t1.txt",
    "git format-patch -q -1 topic -o patches; git am -q patches/*.patch; ls",
    "git archive -o a.tar HEAD; tar tf a.tar | wc -l",
    "git init -q inner; cd inner; echo x > y; git add y; git -c user.name=a -c user.email=b commit -qm i; git status",
    "mv src/app src/core; ls src",
    "mv src/app .; ls; ls src",
    "mv src/t1.txt docs/; ls docs",
    "mv src/t1.txt src/t2.txt; cat src/t2.txt",
    "mkdir -p a/b/c; echo x > a/b/c/d; mv a z; find z",
    "mv go.sh GO.SH; mv docs Docs; ls",
    _IN_PYTHON.format("import os; os.rename('src/app', 'src/core'); print(sorted(os.listdir('src')))"),
    _IN_PYTHON.format("import os; os.replace('src/t1.txt', 'src/t2.txt'); print(open('src/t2.txt').read())"),
    _IN_PYTHON.format("import shutil; shutil.move('src/app', 'docs/app'); shutil.rmtree('src/legacy')"),
    _IN_PYTHON.format("from pathlib import Path\nfor p in Path('src').glob('*.txt'): p.write_text(p.read_text() * 2)"),
    _IN_PYTHON.format("import os\nf = open('tmp', 'w')\nf.write('n')\nf.close()\nos.replace('tmp', 'src/t1.txt')"),
    "node -e \"const fs = require('fs'); fs.renameSync('src/app', 'src/core'); console.log(fs.readdirSync('src'))\"",
    "node -e \"require('fs').cpSync('src', 'copy', {recursive: true})\"; find copy | wc -l",
    "node -e \"require('fs').rmSync('src', {recursive: true})\"; ls",
    "npm run build 2>&1 | grep -c build.js; cat out/b.js",
    "npm pkg set description=x; cat package.json",
    "npm version patch --no-git-tag-version; grep version package.json",
    "mkdir dep; sed s/demo/dep/ package.json > dep/package.json; npm i --offline ./dep > /dev/null; ls node_modules",
    "python3 -m venv --without-pip .venv && .venv/bin/python -c 'print(1)'",
    "python3 -m unittest discover -s tests 2>&1 | grep -c OK",
    "python3 -m compileall -q src; find src -name '*.pyc' | wc -l",
    "PYTHONPATH=src python3 -c 'import app.part1; print(app.part1.get1())'",
    "python3 -m zipfile -c all.zip src; python3 -m zipfile -l all.zip | wc -l",
    "python3 -m json.tool package.json pretty.json; cat pretty.json",
    "make",
    "touch src/tool.c; make > /dev/null; make",
    "make clean all > /dev/null; out/tool; echo $?",
    "cc -c src/tool.c -o tool.o; cc tool.o -o tool; ./tool; echo $?",
    "sqlite3 db.sqlite 'insert into t values(2); select count(*) from t'",
    "sqlite3 db.sqlite 'pragma journal_mode=wal; insert into t values(2); select count(*) from t'",
    "tar czf s.tgz src; rm -r src; tar xzf s.tgz; ls src",
    "zip -qrX s.zip src; rm -r src; unzip -q s.zip; ls src",
    "cp -a src backup; diff -r src backup && echo equal",
    "cp -r src/app src/app2; rm -r src/app; mv src/app2 src/app; git status --short",
    "sed -i 's/text/TEXT/' src/*.txt; cat src/t3.txt",
    "perl -pi -e 's/text/word/' src/t*.txt; cat src/t3.txt",
    "grep -rl text src | sort | xargs sed -i.bak 's/text/x/'; ls src",
    "patch -p1 < one.patch; cat src/t1.txt",
    "printf '1d\\nw\\nq\\n' | ed -s src/t1.txt; wc -c src/t1.txt",
    "awk '{print $2}' src/t*.txt > nums; sort -o nums -rn nums; cat nums",
    "chmod 700 go.sh src; stat -c %a go.sh src",
    "chmod -R go-rx docs; stat -c %a docs docs/index.md",
    "ln -s nowhere broken; ln -sfn docs shortcut; readlink broken shortcut",
    "echo through > shortcut; cat src/t2.txt",
    "ln src/t1.txt twin; echo more >> twin; cat src/t1.txt; stat -c %h twin",
    "rm -rf src; mkdir src; echo n > src/only; ls src",
    "rm -rf src docs vendor; ls",
    "rm src/t*.txt; touch src/t2.txt; ls src",
    "find . -name '*.txt' -not -path './.git/*' -delete; git status --short",
    "find src -name '*.py' -exec sh -c 'echo \"# end\" >> \"$1\"' _ {} ';'; tail -n1 src/app/part1.py",
    "for n in $(seq 300); do echo $n > out/$n; done; ls out | wc -l; rm out/1*; ls out | wc -l",
    "echo x > locked/n; rm -f locked/k.txt; ls locked",
    "chmod 755 locked; echo x > locked/n; chmod 555 locked; ls locked",
    "truncate -s 20M hole; stat -c '%s %b' hole",
    "printf ZZ | dd of=src/t1.txt conv=notrunc status=none; cat src/t1.txt",
    "dd if=/dev/zero of=big bs=1M count=8 status=none; wc -c big",
    "(flock 9; echo in) 9> lock; ls lock",
    "touch -d 2001-02-03 src/t1.txt; stat -c %Y src/t1.txt",
    "umask 077; echo x > private; mkdir closed; stat -c %a private closed",
    "cat > gen.sh <<'END'\necho generated > src/gen.txt\nEND\nsh gen.sh; cat src/gen.txt",
    "./go.sh 1 2; cp go.sh went.sh; ./went.sh",
    "mkdir -p deep/$(printf 'd/%.0s' $(seq 30)); echo x > deep/d/x; find deep | wc -l",
    "cd src && rm -r legacy && mkdir legacy && cd legacy && echo y > y && cd .. && mv legacy ../moved; ls ..",
    "exec 3>> src/t1.txt; echo one >&3; mv src/t1.txt src/t7.txt; echo two >&3; cat src/t7.txt",
)

_VIEW = ProcessProfile("project", view=True)
_DIRECT = ProcessProfile("none")
_CHANGING = re.compile(r"\b\d+(\.\d+)?m?s\b|[0-9a-f]{7,40}")


def _compare(before: dict[str, Any], after: dict[str, Any], since: int) -> dict[str, Any]:
    """Return what differs. Times that the run made count only as new, and a git index holds such times."""

    def simplify(path: str, value: Any) -> Any:
        if path == "links" or value is None:
            return value
        times = ["new" if time >= since else time for time in value[4:]]
        is_volatile = path.endswith((".git/index", "/index", ".pyc", ".sqlite-shm", ".pack", ".idx", ".rev", ".tgz"))
        return [*value[:3], "" if is_volatile or "/logs/" in path else value[3], *times]

    both = {path: (before.get(path), after.get(path)) for path in before.keys() | after.keys()}
    simple = {path: tuple(simplify(path, value) for value in pair) for path, pair in both.items()}
    return {path: pair for path, pair in simple.items() if pair[0] != pair[1]}


def _clear(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        Path(folder).chmod(0o700)
    for path in top.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


async def try_commands(base: Path, first: int, step: int) -> None:
    template, root, home = base / "template", base / "project", base / "home"
    for folder in (template, root, home):
        folder.mkdir()
    fixed = {"GIT_AUTHOR_DATE": "2021-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2021-01-01T00:00:00Z"}
    environ = {**os.environ, **fixed, "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": "/tmp"}
    subprocess.run(["bash", "-c", _PROJECT], cwd=template, env=environ, check=True)
    session = SandboxSession(root=str(root), home=str(home), env=environ, views=str(base / "views"))
    sandbox = Sandbox(session, SandboxOptions("bubblewrap"))
    runner = ProcessRunner(make_environment(environ, "/"), base / "spill", sandbox=lambda: sandbox)

    async def run(command: str, profile: ProcessProfile) -> tuple[CommandResult, int]:
        since = time.time_ns() - 10**7
        _clear(root)
        subprocess.run(["cp", "-a", f"{template}/.", str(root)], check=True)
        subprocess.run(["git", "update-index", "-q", "--refresh"], cwd=root, env=environ, check=False)
        return await runner.run(command, cwd=str(root), timeout=LIMIT_S, profile=profile, env=environ), since

    await sandbox.examine()
    if reason := sandbox.explain_no_view():
        raise SystemExit(f"no view: 'overlay' {reason}")
    for command in COMMANDS[first::step]:
        direct, since = await run(command, _DIRECT)
        expected = take_picture(str(root))
        done, later = await run(command, _VIEW)
        told: dict[str, Any] = {"command": command, "equal": False}
        assert done.view is not None
        effects = read_effects(done.view)
        result = apply_effects(done.view, effects, str(base / "stage"))
        differing = _compare(expected, take_picture(str(root)), min(since, later))
        outputs = [_CHANGING.sub("", one.output) for one in (direct, done)]
        if (refused := [effect.path for effect in effects if effect.refusal]) or result.conflicts:
            told |= {"refused": refused, "conflicts": [item.path for item in result.conflicts]}
        told["equal"] = direct.code == done.code and outputs[0] == outputs[1] and not differing
        if not told["equal"]:
            told |= {"codes": (direct.code, done.code), "outputs": outputs, "differing": differing}
        sys.stdout.write(f"{json.dumps(told)}\n")
        sys.stdout.flush()
        remove_layer(done.view)
        shutil.rmtree(base / "stage", ignore_errors=True)
    await runner.close()
    sandbox.kill()


def main(folder: str, first: str = "0", step: str = "1") -> None:
    asyncio.run(try_commands(Path(folder).resolve(), int(first), int(step)))


if __name__ == "__main__":
    main(*sys.argv[1:])
