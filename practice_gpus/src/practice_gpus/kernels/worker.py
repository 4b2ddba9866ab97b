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

DIAGNOSIS = re.compile(r"\b(error: .+)")
USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);")
LABEL = re.compile(r"(\.L_\w+):")
BRANCH = re.compile(r"\bBRA.*`\((\.L_\w+)\)")
ERROR = re.compile(r"^(.*?)\((\d+)\): (?:catastrophic )?error: (.*)$", re.MULTILINE)
LISTED = re.compile(r'"([^"]*)", line (\d+)')


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
    found |= {"threads": done.metadata.num_warps * 32, "entry": request["name"], "symbols": {}}
    return found | inspect(done.asm["cubin"], "", "kernel.py")


def compile_stages(request: dict) -> dict:
    """Return what each stage of Triton's compiler makes of a module of its first dialect, as a dict."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend
    from triton.runtime.errors import PTXASError

    backend = make_backend(GPUTarget("cuda", request["capability"], 32))
    options = backend.parse_options(request["options"])
    context = ir.context()
    stages: dict = {}
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.NamedTemporaryFile("w", suffix=".ttir") as file:
        file.write(request["text"])
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context
    backend.add_stages(stages, options, Language[request["dialect"]])
    found: dict = {"refused": ""}
    metadata = dict(options.__dict__)
    try:
        for name, make in stages.items():
            module = make(module, metadata)
            found[name] = module if isinstance(module, bytes) else str(module)
    except PTXASError as error:
        found["refused"] = str(error)
    before = options.__dict__
    new = {key: metadata[key] for key in metadata if metadata[key] != before.get(key, metadata)}
    return found | {"metadata": new}


def compile_cuda(request: dict) -> dict:
    """Return PTX and machine code of CUDA C++, as a dict."""
    for path in nvrtc_libraries():
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    from cuda.bindings import nvrtc

    key = hash((request["prelude"], *request["headers"].items()))
    prelude = (
        f"practice_gpus_{key:x}.h"  # another name for each, or NVRTC would take an older one for it
    )
    headers = request["headers"] | {prelude: request["prelude"]}
    given = [[each.encode() for each in all_] for all_ in (headers.values(), headers)]
    text, file = request["text"].encode(), request["file"].encode()
    _, program = nvrtc.nvrtcCreateProgram(text, file, len(headers), *given)
    wanted = [request["name"], *(f"&{name}" for name in request["symbols"])]
    for name in wanted:
        nvrtc.nvrtcAddNameExpression(program, name.encode())
    options = [
        f"--gpu-architecture=sm_{request['capability']}",
        "-lineinfo",
        "-w",
        f"-include={prelude}",
    ]
    options += [f"-I{path}" for path in cuda_headers()] + request["options"]
    if nvrtc.nvrtcVersion()[1:] >= (12, 8) and "#include" in request["text"] + request["prelude"]:
        options.append(
            "-pch"
        )  # headers are parsed once for all kernels that begin with the same ones
    [status] = nvrtc.nvrtcCompileProgram(program, len(options), [each.encode() for each in options])
    if int(status):
        raise ValueError(_told(_get(nvrtc, "ProgramLog", program).decode(), request))
    entry, *symbols = (
        nvrtc.nvrtcGetLoweredName(program, each.encode())[1].decode() for each in wanted
    )
    found = {"ptx": _get(nvrtc, "PTX", program).decode(), "ttgir": "", "dynamic": 0, "threads": 0}
    found |= {"entry": entry, "symbols": dict(zip(request["symbols"], symbols, strict=True))}
    return found | inspect(_get(nvrtc, "CUBIN", program), entry, request["file"])


def _told(log, request):
    """Return the compiler's first error as a sentence with its line, and the whole log below it."""
    found = ERROR.findall(log)
    of_file = [each for each in found if each[0] != "__nv_name_map"]
    if not found:
        return log
    if not of_file:
        return f"{request['file']}: {request['name']} is none of {request['choice']}, or not only one: {found[0][2]}"
    file, line, words = of_file[0]
    more = f" (and {len(of_file) - 1} more)" if len(of_file) > 1 else ""
    if '"crt/' in words:
        more += " (pip install nvidia-cuda-crt)"
    if request["missing"]:
        more += f"; what it includes isn't all here: {', '.join(request['missing'])}"
    return f"{Path(file).name} line {line}: {words}{more}\n\n{log}"


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


def inspect(cubin: bytes, name: str, file: str, limit: float | None = None) -> dict:
    """Return registers, stack, static shared memory and SASS of a kernel in a cubin, by NVIDIA's own tools.

    `name` is the kernel's, "" where it is the only one; `file` that of its source. Raises subprocess.TimeoutExpired
    where a tool takes longer than `limit` seconds.
    """
    import triton

    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(cubin)
        binary.flush()
        usage = _output(limit, tools / "cuobjdump", "-res-usage", binary.name)
        code = _output(limit, tools / "nvdisasm", "-gi", "-c", binary.name)
    for function, *numbers in USAGE.findall(usage):
        if name in ("", function):
            registers, stack, static = map(int, numbers)
    sass, loops = _instructions(code, name, file)
    found = {"registers": registers, "stack": stack, "static": static}
    return found | {"sass": sass, "loops": loops}


def _instructions(code, name, file):
    """Return [(line of the source, instruction)] of one kernel, from a listing with lines; and its loops, [(first, end)]."""
    found, loops, labels, line, ours = [], [], {}, 0, not name
    for text in code.splitlines():
        if text.startswith(".text."):
            ours = name in ("", text.removeprefix(".text.").rstrip(":"))
        place = [number for path, number in LISTED.findall(text) if file in ("", Path(path).name)]
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


def _output(limit, *command):
    return subprocess.run(command, text=True, capture_output=True, check=True, timeout=limit).stdout


MAKE = {"triton": compile_triton, "stages": compile_stages, "cuda": compile_cuda}


def answer(request: dict) -> tuple:
    """Return ("done", dict), or the kind of failure and its words, with those that the compiler printed."""
    with tempfile.TemporaryFile() as printed:
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        kind, found = _answer(request)
        printed.seek(0)
        told = DIAGNOSIS.findall(printed.read().decode(errors="replace"))
    return kind, "\n".join([found, *told[:3]]) if kind == "failed" else found


def _answer(request):
    try:
        return "done", MAKE[request["language"]](request)
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
    while head := requests.read(8):
        request = pickle.loads(requests.read(*struct.unpack("q", head)))
        data = pickle.dumps(answer(request))
        answers.write(struct.pack("q", len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    main()
