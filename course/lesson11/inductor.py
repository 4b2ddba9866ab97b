"""What torch.compile writes for an H100 that isn't here: PyTorch's compiler, told that there is one, in a process of its own.

The way leads through PyTorch's inner functions, so another release may close it; then what release 2.15 wrote stands in.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CALLS = re.compile(r"^ +(\w*fused\w*|extern_kernels\.\w+)(?:\.run)?\(", flags=re.M)
SOURCES = re.compile(r"(@triton\.jit\ndef (\w+).*?)\n'''", flags=re.S)
RECORDED = Path(__file__).with_name("inductor.json")
STANDS_IN = "This PyTorch can't be asked without a GPU; this is what PyTorch {torch} wrote."
H100 = {
    "name": "NVIDIA H100", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 80 << 30, "warp_size": 32,
    "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024, "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152, "shared_memory_per_block_optin": 232448, "L2_cache_size": 50 << 20,
    "gcnArchName": "", "uuid": "0",
}  # fmt: skip


def written_for_cuda(*asked: tuple, limit: float = 120) -> dict[str, Any]:
    """Return {name of a function: (names of its kernels in their order, {name: Triton source})} for an H100.

    `asked` are (function, shape of its first tensor, …); all tensors are float32. `limit` in seconds.
    """
    requests = [
        (each[0].__name__, textwrap.dedent(inspect.getsource(each[0])), each[1:]) for each in asked
    ]
    command = [sys.executable, "-c", "from course.lesson11 import inductor; inductor.answer()"]
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    place: dict[str, Any] = {
        "env": plain | {"CUDA_VISIBLE_DEVICES": ""},
        "cwd": Path(__file__).parents[2],
    }
    try:
        done = subprocess.run(
            command,
            input=json.dumps(requests),
            text=True,
            capture_output=True,
            timeout=limit,
            check=True,
            **place,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
        print(STANDS_IN.format(**recorded))
        return recorded["written"]


def answer() -> None:
    """Answer the requests on the input, as JSON on the output; this is what runs in the process of its own."""
    import torch
    from torch.nn import functional

    found = {}
    for name, source, shapes in json.load(sys.stdin):
        names = {"torch": torch, "F": functional}
        exec(source, names)  # noqa: S102 - a function of the learner's own page
        text = _code(names[name], shapes)
        sources = {kernel: code for code, kernel in SOURCES.findall(text)}
        found[name] = (CALLS.findall(text), sources)
    print(json.dumps(found))


def _code(function, shapes):
    """Return the program that Inductor writes for `function` on tensors of these shapes, on an H100."""
    import torch
    from torch._inductor import config
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx import traceback
    from torch.fx.experimental.proxy_tensor import make_fx

    _pretend()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, traceback.preserve_node_meta():
        tensors = [torch.empty(shape, device="cuda") for shape in shapes]
        traced = make_fx(function, decomposition_table=select_decomp_table())(*tensors)
        with config.patch(compile_threads=1), V.set_fake_mode(mode):
            graph = GraphLowering(traced, shape_env=mode.shape_env)
            with V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
                graph.run(*tensors)
                return graph.codegen()[0].value


def _pretend():
    """Let this process believe that it has an H100."""
    import torch
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.codecache import CacheBase
    from triton.backends.compiler import GPUTarget

    def properties(*_, **__):
        return SimpleNamespace(**H100)

    answers = {
        "get_current_target": GPUTarget("cuda", 90, 32),
        "get_current_device": 0,
        "is_active": True,
    }
    driver = SimpleNamespace(**{name: lambda value=value: value for name, value in answers.items()})
    triton.runtime.driver.set_active(driver)
    CacheBase.get_system = staticmethod(dict)  # else it reads all of Triton, to name a cache
    CudaInterface.get_device_properties = CudaInterface.Worker.get_device_properties = staticmethod(
        properties
    )
    CudaInterface.Worker.current_device = staticmethod(lambda: 0)
    CudaInterface.get_compute_capability = staticmethod(lambda *_: 90)
    CudaInterface.is_available = staticmethod(lambda: True)
    said = {"is_available": True, "device_count": 1, "current_device": 0, "_lazy_init": None}
    said |= {"get_device_capability": (9, 0), "get_device_properties": properties()}
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *_, value=value: value)
