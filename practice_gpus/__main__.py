"""``python -m practice_gpus [-n N] [--memory M] [--asynchronous] script.py …``: a program on practice GPUs.

``-m module`` instead of a script runs a module, such as ``-m torch.distributed.run``; processes below it have practice
GPUs, too.
"""

import argparse
import os
import runpy
import sys

from . import practice_gpus
from .processes import variables


def main():
    """Read the command line, and run the program as Python would."""
    parser = argparse.ArgumentParser(prog="python -m practice_gpus", description=__doc__)
    parser.add_argument("-n", type=int, default=1, help="number of GPUs")
    parser.add_argument("--memory", default="1 GiB", help="memory of each")
    parser.add_argument("--asynchronous", action="store_true", help="calls return before the work")
    parser.add_argument("-m", action="store_true", dest="module", help="a module, not a script")
    parser.add_argument("program", help="the script, or the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    try:
        gpus = practice_gpus(options.n, options.memory, options.asynchronous)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    sys.argv = [options.program, *options.arguments]
    with gpus:
        if not gpus.real:
            os.environ.update(variables(gpus.wanted))
        if options.module:
            sys.path[0] = os.getcwd()
            runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(options.program))
            runpy.run_path(options.program, run_name="__main__")


main()
