"""The process that compiles: Triton and NVRTC need no GPU. Reads requests from its input, writes answers to its output.

It is a process of its own because a compiler may take minutes, and because under TRITON_INTERPRET=1 Triton can't compile.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);")
LABEL = re.compile(r"(\.L_\w+):")
BRANCH = re.compile(r"\bBRA.*`\((\.L_\w+)\)")
LISTED = re.compile(r'"[^"]*kernel\.(?:py|cu)", line (\d+)')


def compile_triton(request: dict) -> dict:
    """Return PTX, machine code and what Triton says about the kernel, as a dict."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.py")
        path.write_text(request["text"])
        spec: Any = importlib.util.spec_from_file_location("kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        source = ASTSource(
            getattr(module, request["name"]),
            signature=request["signature"],
            constexprs=request["constants"],
            attrs={(place,): [["tt.divisibility", 16]] for place in request["divisible"]},
        )
        target = GPUTarget("cuda", request["capability"], 32)
        done = triton.compile(source, target=target, options=request["options"])
    found = {"ptx": done.asm["ptx"], "ttgir": done.asm["ttgir"], "dynamic": done.metadata.shared}
    return found | {"threads": done.metadata.num_warps * 32} | _inspect(done.asm["cubin"], "")


def compile_cuda(request: dict) -> dict:
    """Return PTX and machine code of CUDA C, as a dict."""
    for path in nvrtc_libraries():
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    from cuda.bindings import nvrtc

    text = request["text"].encode()
    _, program = nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{request['capability']}".encode(), b"-lineinfo"]
    options += [f"-I{path}".encode() for path in cuda_headers()]
    options += [option.encode() for option in request["options"]]
    [status] = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status):
        raise ValueError(_get(nvrtc, "ProgramLog", program).decode())
    ptx = _get(nvrtc, "PTX", program).decode()
    if f".entry {request['name']}(" not in ptx:
        raise ValueError(
            f'no kernel named {request["name"]}; its definition begins with extern "C" __global__ void'
        )
    cubin = _get(nvrtc, "CUBIN", program)
    return {"ptx": ptx, "ttgir": "", "dynamic": 0, "threads": 0} | _inspect(cubin, request["name"])


def _get(nvrtc, what, program):
    """Return what NVRTC made, such as its PTX, without the zero at its end."""
    _, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    space = b" " * size
    getattr(nvrtc, f"nvrtcGet{what}")(program, space)
    return space if what == "CUBIN" else space.rstrip(b"\0")


def _nvidia():
    spec = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in spec.submodule_search_locations] if spec else []


def nvrtc_libraries() -> list[str]:
    """Return the paths of NVRTC's libraries among the installed packages."""
    found = [path for folder in _nvidia() for path in folder.glob("*/lib/libnvrtc*.so*")]
    return [str(path) for path in sorted(found) if "alt" not in path.name]


def cuda_headers() -> list[str]:
    """Return the folders with CUDA's headers, such as cuda_fp16.h, and with those of its C++ library."""
    found = [path.parent for folder in _nvidia() for path in folder.glob("*/include/cuda_fp16.h")]
    return [str(path) for folder in found for path in (folder, folder / "cccl")]


def _inspect(cubin, name):
    """Return registers, stack, static shared memory and SASS of a kernel in a cubin, by NVIDIA's own tools."""
    import triton

    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _output(tools / "cuobjdump", "-res-usage", file.name)
        code = _output(tools / "nvdisasm", "-gi", "-c", file.name)
    for function, *numbers in USAGE.findall(usage):
        if name in ("", function):
            registers, stack, static = map(int, numbers)
    sass, loops = _instructions(code, name)
    found = {"registers": registers, "stack": stack, "static": static}
    return found | {"sass": sass, "loops": loops}


def _instructions(code, name):
    """Return [(line of the source, instruction)] of one kernel, from a listing with lines; and its loops, [(first, end)]."""
    found, loops, labels, line, ours = [], [], {}, 0, not name
    for text in code.splitlines():
        if text.startswith(".text."):
            ours = name in ("", text.removeprefix(".text.").rstrip(":"))
        place = LISTED.findall(text)
        if place:
            line = int(place[-1])
        instruction = INSTRUCTION.match(text)
        if not ours:
            continue
        if label := LABEL.match(text):
            labels[label[1]] = len(found)
        if instruction:
            found.append((line, " ".join(instruction[1].split())))
            target = BRANCH.search(text)
            if target and target[1] in labels:  # back to where it came by
                loops.append((labels[target[1]], len(found)))
    return found, loops


def _output(*command):
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout


def answer(request: dict) -> tuple:
    """Return ("done", dict), or the kind of failure and its words."""
    try:
        make = compile_triton if request["language"] == "triton" else compile_cuda
        return "done", make(request)
    except ImportError as error:
        return "missing", str(error)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises goes to who asked
        return "failed", str(error) or traceback.format_exc(limit=-1)


def main() -> None:
    """Answer requests until the input ends; what compilers print goes to the error stream."""
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    importlib.util.find_spec("triton") and __import__("triton.compiler")  # while nobody waits
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while head := requests.read(8):
        request = pickle.loads(requests.read(*struct.unpack("q", head)))
        data = pickle.dumps(answer(request))
        answers.write(struct.pack("q", len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    main()
