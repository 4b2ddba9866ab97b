"""What importing each room of helpers does and costs, in fresh processes that hold torch and numpy already."""

import json
import subprocess
import sys

from helpers.commands._environment import ROOT

PROBE = """
import io, json, os, sys, time
import torch, numpy
names = json.loads(sys.argv[1])
def look(name):
    opened, shown = [], io.StringIO()
    sys.addaudithook(lambda event, a: opened.append(str(a[0])) if event == "open" else None)
    sys.stdout = sys.stderr = shown
    seed, start = torch.get_rng_state(), time.process_time()
    __import__(name)
    seconds = time.process_time() - start
    return {"seconds": seconds, "shown": shown.getvalue(), "seed": not torch.equal(seed, torch.get_rng_state()),
            "cuda": torch.cuda.is_initialized(), "files": [f for f in opened if f.endswith((".json", ".ipynb"))]}
for name in names:
    rows = []
    for _ in range(3):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                answer = look(name)
            except BaseException as error:
                answer = {"seconds": 0, "shown": repr(error), "seed": False, "cuda": False, "files": []}
            os.write(write, json.dumps(answer).encode()[:65536])
            os._exit(0)
        os.close(write)
        rows.append(json.loads(os.read(read, 65536)))
        os.wait()
    print(json.dumps(dict(min(rows, key=lambda row: row["seconds"]), name=name)))
"""


def rooms():
    """Return the dotted names that lessons import from: every module and package directly in helpers, bar commands."""
    folder = ROOT / "helpers"
    files = [path for path in folder.glob("*.py") if not path.name.startswith("_")]
    folders = [
        path.parent for path in folder.glob("*/__init__.py") if path.parent.name != "commands"
    ]
    return ["helpers", *sorted(f"helpers.{path.stem}" for path in files + folders)]


def import_costs():
    """Return a dict for each room: "name", "seconds" (CPU, best of three), "shown", "seed", "cuda", "files".

    Needs os.fork, which Windows lacks.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(rooms())], cwd=ROOT, text=True, capture_output=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"importing helpers failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]
