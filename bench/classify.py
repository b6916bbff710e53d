"""Time the permission decision for a command, after a first one has loaded the code: median and slowest.

`run.py` calls `rows()`; run directly, this file prints the results. The user waits for the decision before every
command. The floor is what a command costs at least: starting a shell that does nothing.
"""

import gc
import statistics
import subprocess
import tempfile
import time

from row import Row, table

ROUNDS = 50

TYPICAL = (
    "ls -la src/main",
    "git status --short src/main",
    "git diff HEAD~1 -- src/main.py",
    "git log --oneline -n 20 src/main | head -5",
    "cat src/main.py | head -50",
    "grep -rn --include=*.py 'def main' src",
    "find . -name 'main*.py' -type f",
    "cd src && ls main && pwd",
    "npm run test main 2>&1 | tail -20",
    "python -m pytest -q tests/test_main.py",
    "make build && make main",
    "git add -A && git commit -m 'Say what main does'",
    "sed -n 1,40p src/main.py",
    "FOO=1 timeout 60 cargo test --all main",
    "docker compose up -d && sleep 2 && curl -s localhost:8080/main",
)
"""The word `main` in each is replaced by a new word in every round, so that no cache applies."""

RULES = ("Bash(npm run:*)", "Bash(make:*)", "Read(~/notes/**)", "Edit(src/**)")
DENIED = ("Bash(git push:*)", "Bash(curl:*)", "Read(secrets/**)")


def rows() -> list[Row]:
    from odin.config.paths import make_environment
    from odin.core.tool import Target
    from odin.policy.policy import Policy
    from odin.policy.rules.rule import RuleSet
    from odin.policy.rules.rule_file import build_list_rules

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        rules = RuleSet(build_list_rules(allowed_tools=RULES, disallowed_tools=DENIED))
        policy = Policy(root=folder, environment=make_environment(cwd=folder), rule_set=rules)
        policy.evaluate("ExecuteCommand", "execute", Target(command="true"), "edit_mode")
        medians: list[float] = []
        floors: list[float] = []
        gc.collect()
        gc.disable()
        try:
            for command in TYPICAL:
                times: list[float] = []
                for number in range(ROUNDS):
                    target = Target(command=command.replace("main", f"main{number}"))
                    started = time.perf_counter()
                    policy.evaluate("ExecuteCommand", "execute", target, "edit_mode")
                    times.append((time.perf_counter() - started) * 1000)
                medians.append(statistics.median(times))
                started = time.perf_counter()
                subprocess.run(["bash", "-c", "true"], check=True)
                floors.append((time.perf_counter() - started) * 1000)
        finally:
            gc.enable()
    floor = statistics.median(floors)
    return [
        Row("judge a typical command", statistics.median(medians), floor, 1.0, "ms", by_ratio=True),
        Row("judge the slowest of these", max(medians), floor, 1.5, "ms", by_ratio=True),
    ]


if __name__ == "__main__":
    print(table(rows()))
