"""torchrun for the lessons: PyTorch is imported once, and the processes are copies of the one that has it (Linux).

Importing PyTorch takes each process seconds, and on two cores four processes take turns at it. Where there is an
NVIDIA driver, or no way to copy a process, this is plain torchrun: CUDA must not be touched before a copy.
"""

import os
import sys


def can_copy():
    """Whether a process with PyTorch may be copied here."""
    return sys.platform == "linux" and not os.path.exists("/dev/nvidiactl")


def main():
    """Run torchrun with the arguments of this program."""
    from torch.distributed.run import main as torchrun

    if can_copy():
        import torch._dynamo  # noqa: F401 - what every optimizer imports at its first step
        import torch.distributed.fsdp  # noqa: F401

        sys.argv[1:1] = ["--run-path", "--start-method=fork"]
    torchrun()


if __name__ == "__main__":
    main()
