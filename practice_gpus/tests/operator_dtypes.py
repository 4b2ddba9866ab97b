"""Print, for each operator and dtype of PyTorch's OpInfo tables, whether a practice GPU takes what CUDA takes.

A line for each difference between the table for the CPU and that for CUDA: `name dtype: outcome`. An outcome is *equal*
(runs where CUDA's table has the dtype, fails where it has not), *refused* in words, or *different*. Run by
test_dtypes.py in a process of its own: the tables ask for a GPU while they are imported.
"""

import logging
import warnings

import torch

from practice_gpus import practice_gpus

SAMPLES = 12  # of inputs, for a dtype on which the tables differ


def on_gpu(value):
    """Return the value that stands for `value` in a call on the GPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cuda")
    is_place = isinstance(value, torch.device) or value == "cpu"
    return torch.device("cuda") if is_place else value


def fails(op, sample) -> str:
    """Run one sample; return "" if it runs, "refused" or "error: …" if it does not."""
    try:
        sample = sample.transform(on_gpu)
        op(sample.input, *sample.args, **sample.kwargs)
    except NotImplementedError as error:
        return "refused" if "practice GPUs do not" in str(error) else f"error: {error}"
    except Exception as error:  # compared with CUDA's table
        return f"error: {error}"
    return ""


def outcome(op, dtype) -> str:
    """Run the operator's first samples in a dtype and compare with CUDA's table."""
    results = []
    for count, sample in enumerate(op.sample_inputs("cpu", dtype)):
        if count == SAMPLES:
            break
        results.append(fails(op, sample))
    failed = [result for result in results if result]
    if dtype in op.dtypesIfCUDA:
        wrong = [result for result in failed if result != "refused"]
        return f"different: {wrong[0]}" if wrong else "refused" if failed else "equal"
    if not failed:
        return "different: it runs"
    return "refused" if "refused" in failed else "equal"


def main() -> None:
    """Print a line for each operator and dtype on which the tables differ."""
    warnings.simplefilter("ignore")
    logging.disable()
    with practice_gpus(1, memory="8 GiB"):
        from torch.testing._internal.common_methods_invocations import op_db

        for op in op_db:
            for dtype in sorted(set(op.dtypes) ^ set(op.dtypesIfCUDA), key=str):
                try:
                    line = outcome(op, dtype)
                except Exception as error:  # the samples themselves are made on the CPU
                    line = f"no samples: {type(error).__name__}"
                print(
                    f"{op.full_name} {str(dtype)[6:]}: {' '.join(line.split())[:160]}", flush=True
                )


if __name__ == "__main__":
    main()
