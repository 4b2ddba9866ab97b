"""One door to every command of the course: ``python3 -m course COMMAND``.

Needs nothing but Python itself until a command that needs more is chosen.
"""

import argparse
import ast
import difflib
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from course.tools import ROOT, WrongCall

FOLDER = Path(__file__).resolve().parent / "tools"
GROUPS = {
    "to learn": ("lab", "doctor", "progress"),
    "to teach": ("grade", "inventory", "pack", "site", "slides"),
    "to maintain": (),  # all others
}


def commands() -> dict[str, str]:
    """Map each command's name to its line of help, read without importing anything."""
    files = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))
    return {path.stem: help_line(path) for path in files}


def help_line(path: Path) -> str:
    """Return the text that the module at `path` assigns to HELP, or an empty string."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "HELP":
            return ast.literal_eval(node.value)
    return ""


def overview() -> str:
    """Return the text of ``python3 -m course --help``."""
    texts = commands()
    named = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in texts if name not in named)
    lines = ["usage: python3 -m course COMMAND [options]"]
    for group, names in GROUPS.items():
        rows = [f"  {name:<10} {texts[name]}" for name in names or others]
        lines += ["", f"{group}:", *rows]
    return "\n".join([*lines, "", "python3 -m course COMMAND --help says more about one of them."])


def in_course_environment(arguments: list[str]) -> int | None:
    """Run the command in the course's own environment; None where there is none or it is not needed."""
    from course.tools import _install, _venv

    torch = importlib.util.find_spec("torch")  # not somebody's torch.py
    found = torch and torch.submodule_search_locations
    if found or os.environ.get("COURSE_HANDED_OVER") or not _install.stamp():
        return None
    python = str(_install.python_of(_install.VENV))
    return subprocess.call(
        [python, "-m", "course", *arguments], env={**_venv.variables(), "COURSE_HANDED_OVER": "1"}
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status (2: wrongly called)."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if another_here():
        print(f"This would run {ROOT}, not the course in {Path.cwd()}.", file=sys.stderr)
        print("Unset PYTHONSAFEPATH, or go to the other folder.", file=sys.stderr)
        return 2
    name, rest = arguments[0], arguments[1:]
    if name not in commands():
        close = difflib.get_close_matches(name.lower(), commands(), n=1, cutoff=0.5)
        meant = f" Did you mean: python3 -m course {close[0]}?" if close else ""
        print(f"There is no command {name!r}.{meant}\n\n{overview()}", file=sys.stderr)
        return 2
    try:
        status = None if name in ("lab", "test") else in_course_environment(arguments)
        return run(name, rest) if status is None else status
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to go on or begin anew.", file=sys.stderr)
        return 130


def another_here() -> bool:
    """Tell whether a copy of the course stands in this folder and another one's commands were found."""
    here = Path.cwd() / "course" / "__main__.py"
    return here.exists() and not here.samefile(__file__)


def refuse_empty(words: list[str]) -> None:
    """Raise WrongCall where an argument is empty: as part of a name it would mean "all", as a folder "here"."""
    own = words[: words.index("--")] if "--" in words else words
    for before, word in zip(["an argument", *own], own, strict=False):
        name, _, value = (
            word.partition("=") if word.startswith("--") and "=" in word else (before, "", word)
        )
        if not value.strip():
            raise WrongCall(f"{name if name.startswith('--') else 'an argument'} is empty")


def run(name: str, rest: list[str]) -> int:
    """Import the module of command `name`, parse `rest` and run it."""
    try:
        module = importlib.import_module("course.tools." + name)
        program = "python3 lab.py" if name == "lab" else f"python3 -m course {name}"
        parser = argparse.ArgumentParser(prog=program, description=module.HELP)
        module.add_arguments(parser)
        args = parser.parse_args(rest)
        refuse_empty(rest)
        return module.run(args) or 0
    except (WrongCall, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("helpers", "course"):
            raise
        print(
            f"The command {name} needs {error.name!r}, which {sys.executable} lacks.",
            file=sys.stderr,
        )
        print("Make the course's environment first: python3 lab.py", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
