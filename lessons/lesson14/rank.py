"""One of two processes of the judge: runs birdcalls.train and writes what it did as JSON. Arguments: folder, file."""

import json
import runpy
import sys
import traceback
from pathlib import Path

from lessons.lesson14.spy import Spy


def main(folder, file):
    """Run the program in `folder`, and write {"losses", "error", "line", "device", "clips", "weights", …} to `file`."""
    sys.path.insert(0, str(Path(folder).parent))
    sys.argv = ["birdcalls.train", "--small"]
    told = {"losses": None, "error": "", "line": None}
    with Spy(folder, values=True) as spy:
        try:
            names = runpy.run_module(f"{Path(folder).name}.train", run_name="__main__")
            told["losses"] = names.get("losses")
        except BaseException as error:  # whatever the program raises
            told["error"] = f"{type(error).__name__}: {error}"
            lines = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
            told["line"] = next((at for at in lines[::-1] if at[0].startswith(spy.folder)), None)
    told |= {"device": spy.device, "clips": spy.clips, "weights": spy.weights}
    told |= {"called": spy.called, "stepped": spy.stepped, "unused": spy.unused}
    Path(file).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
