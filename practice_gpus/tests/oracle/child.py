"""Runs the cases of the oracle on one side, and writes what became of each: a line of JSON before it, and one after.

`python child.py oracle|practice|bare EVERY GROUP CASE FILE`: goes on with the case numbered CASE of the group numbered GROUP.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import sys
import warnings
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

MEMORY = "16 GiB"
LIMIT = 8  # seconds for a case


def outcome(act: Any) -> list:
    """["ok", where and what the results are] or ["raises", the exception's name, its words]."""
    try:
        result = act()
    except Exception as error:
        return ["raises", type(error).__name__, normal(str(error))]
    return ["ok", [described(leaf) for leaf in tree_flatten(result)[0]]]


def described(leaf: Any) -> str:
    """Device, dtype and shape of a tensor; of another thing its type."""
    if not isinstance(leaf, torch.Tensor):
        is_word = isinstance(leaf, (str, torch.device, torch.dtype, bool))
        return f"{type(leaf).__name__} {leaf}" if is_word else type(leaf).__name__
    shape = "ragged" if leaf.is_nested else list(leaf.shape)
    return f"{leaf.device} {str(leaf.dtype).removeprefix('torch.')} {shape}"


def normal(words: str) -> str:
    """An exception's words without addresses, lists of backends and hints for searching."""
    words = words.split("This could be because")[0].split("Exception raised from")[0]
    words = words.split("\nSearch for")[0].split("\nCUDA kernel errors")[0]
    words = re.sub(r"0x[0-9a-f]+", "0x", words)
    return " ".join(words.split())[:400]


def main() -> None:
    """Run all cases of this side from the given one; SIGALRM ends the process where one hangs."""
    side, every, first, start = sys.argv[1], *map(int, sys.argv[2:5])
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack, open(sys.argv[5], "a", buffering=1) as lines:
        if side != "oracle":
            from practice_gpus import practice_gpus
            from practice_gpus.pytorch import compute, dtypes

            stack.enter_context(practice_gpus(2, memory=MEMORY, real="hide"))
            if side == "bare":  # the CPU's own words, of which kernels.py makes CUDA's
                dtypes.in_other_words.cache_clear()
                compute.elsewise = lambda call: (False, None)
                dtypes.OTHER_WORDS = dtypes.OTHER_WORDS.with_name("none.txt")
        torch.zeros(1, device="cuda")
        from cases import groups

        for group, made in list(enumerate(groups(every)))[first:]:
            for number, (key, act) in enumerate(made()):
                if (group, number) >= (first, start):
                    lines.write(json.dumps([group, number, key]) + "\n")
                    signal.alarm(LIMIT)
                    torch.manual_seed(0)
                    lines.write(json.dumps([group, number, key, outcome(act)]) + "\n")
                    signal.alarm(0)
        lines.write("[]\n")


if __name__ == "__main__":
    main()
