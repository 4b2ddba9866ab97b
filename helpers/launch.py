"""torchrun for a small machine: the same command line, with workers forked from a process that has imported torch once.

`helpers.scripts.run(..., forked=True)` starts it. torchrun gives each worker a new Python, with 300 MB of its own for
torch; forked workers share that.
"""

import runpy
import sys
import uuid


def _work(script, *arguments):
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def main(arguments: list[str]) -> None:
    """Run the script as `arguments`, those of torchrun, say."""
    import torch._dynamo  # noqa: F401 - optimizers and DDP import it; here it is shared
    import torch.distributed.run as torchrun
    from torch.distributed.launcher.api import elastic_launch

    options = torchrun.parse_args(arguments)
    if options.standalone:  # what torchrun itself does with it
        options.rdzv_backend, options.rdzv_endpoint = "c10d", "localhost:0"
        options.rdzv_id = str(uuid.uuid4())
    config, _, _ = torchrun.config_from_args(options)
    config.start_method = "fork"
    elastic_launch(config, _work)(options.training_script, *options.training_script_args)


if __name__ == "__main__":
    main(sys.argv[1:])
