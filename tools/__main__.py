"""One door to every command of the course: ``python3 -m tools COMMAND``.

Needs nothing but Python itself until a command that needs more is chosen.
"""

import argparse
import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def commands() -> dict[str, str]:
    """Map each command's name to its line of help, the HELP of its module, read without importing anything."""
    paths = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))
    texts = {}
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "HELP":
                texts[path.stem] = ast.literal_eval(node.value)
    return texts


def in_course_environment(arguments: list[str]) -> int | None:
    """Run the command in the course's own environment; None where there is none or it is not needed."""
    from tools import _environment

    lacking = importlib.util.find_spec("torch") is None
    if not lacking or os.environ.get("COURSE_HANDED_OVER") or not _environment.stamp():
        return None
    python = str(_environment.python_of(_environment.VENV))
    return subprocess.call(
        [python, "-m", "tools", *arguments], env=dict(os.environ, COURSE_HANDED_OVER="1")
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status (2: wrongly called)."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    texts = "\n".join(f"  {name:<13} {text}" for name, text in commands().items())
    more = "python3 -m tools COMMAND --help says more about one of them."
    parser = argparse.ArgumentParser(
        prog="python3 -m tools",
        usage="python3 -m tools COMMAND [options]",
        epilog=f"{texts}\n\n{more}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=commands(), metavar="COMMAND", help="one of these:")
    name = parser.parse_args(arguments[:1] or ["--help"]).command
    status = None if name in ("lab", "test") else in_course_environment(arguments)
    return run(name, arguments[1:]) if status is None else status


def run(name: str, rest: list[str]) -> int:
    """Import the module of command `name`, parse `rest` and run it."""
    try:
        module = importlib.import_module("tools." + name)
        program = "python3 lab.py" if name == "lab" else f"python3 -m tools {name}"
        parser = argparse.ArgumentParser(prog=program, description=module.HELP)
        module.add_arguments(parser)
        return module.run(parser.parse_args(rest)) or 0
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("helpers", "tools"):
            raise
        lacks = f"The command {name} needs {error.name!r}, which {sys.executable} lacks."
        print(f"{lacks}\nMake the course's environment first: python3 lab.py", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to go on or begin anew.", file=sys.stderr)
        sys.exit(130)
