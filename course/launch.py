"""torchrun for a small machine: the same command line, with workers forked from a process that has imported torch once.

`course.scripts.run(..., forked=True)` starts it. torchrun gives each worker a new Python, with 300 MB of its own for
torch and seconds to import it; forked workers share both with the process that starts them.
"""

import ast
import contextlib
import ctypes
import gc
import os
import runpy
import sys
import uuid
from pathlib import Path

M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


def main(arguments: list[str]) -> None:
    """Run the script as `arguments`, those of torchrun, say; ends this process, with status 1 if a worker failed."""
    import torch.distributed.run as torchrun
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    options = torchrun.parse_args(arguments)
    if options.standalone:  # what torchrun itself does with it
        options.rdzv_backend, options.rdzv_endpoint = "c10d", "localhost:0"
        options.rdzv_id = str(uuid.uuid4())
    config, _, _ = torchrun.config_from_args(options)
    config.start_method = "fork" if sys.platform == "linux" else "spawn"
    share(options.training_script)
    failed = ""
    try:
        elastic_launch(config, work)(options.training_script, *options.training_script_args)
    except ChildFailedError as error:
        failed = str(error)
    print(failed, file=sys.stderr, end="\n" if failed else "", flush=True)
    sys.stdout.flush()
    os._exit(bool(failed))  # Python's own end takes seconds, and nothing here needs it


def share(script: str) -> None:
    """Import here what the script imports at its top, and keep this memory as it is: its forks share what stays."""
    import torch._dynamo  # noqa: F401 - optimizers and DDP import it

    sys.path.insert(0, str(Path(script).parent))  # as Python does for a script
    with contextlib.suppress(OSError, SyntaxError, ImportError):  # the workers tell
        code = ast.parse(Path(script).read_text(encoding="utf-8"))
        code.body = [line for line in code.body if isinstance(line, ast.Import | ast.ImportFrom)]
        exec(compile(code, script, "exec"), {"__name__": "imports"})
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        # glibc then gives freed tensors of 64 KiB and more back at once; other C libraries lack it
        with contextlib.suppress(AttributeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(M_MMAP_THRESHOLD, 2**16)
            libc.malloc_trim(0)


def work(script: str, *arguments: str) -> None:
    """Run `script` in this worker."""
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
