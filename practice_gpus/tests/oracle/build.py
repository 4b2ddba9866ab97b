"""Compile the stand-in for CUDA's libraries, over which PyTorch's CUDA build runs without a GPU.

What PyTorch asks of them is read from its own libraries (`nm`), how it is called from the headers that NVIDIA's packages
bring (`cc -E`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
LIBRARIES = Path(torch.__file__).parent / "lib"
PACKAGES = Path(torch.__file__).parents[1] / "nvidia"
ASKED = re.compile(r"^(__cuda|cuda|cu[A-Z]|cublas|cudnn|cufft|cusolver|cusparse|nccl)\w+")
# The real ones work without a driver, and know the words of each error.
REAL = re.compile(r"cudaGetError|(?!cuda)\w+Get\w*Error")
HEADERS = ("cuda", "cuda_runtime_api", "cublas_v2", "cublasLt", "cufftXt", "cusparse", "cusolverDn")
HEADERS += ("cudnn", "cusparseLt", "nccl")
# NVIDIA's packages leave this folder to the compiler's.
WORDS = "device_builtin host device cudart_builtin specialization_static".split()
WORDS += "device_builtin_texture_type device_builtin_surface_type".split()
HOST_DEFINES = "".join(f"#define __{word}__\n" for word in WORDS) + (
    "#define CUDARTAPI\n#define CUDART_CB\n#define CUDARTAPI_CDECL\n"
    "#define __align__(n) __attribute__((aligned(n)))\n#define __builtin_align__ __align__\n"
)


def missing() -> str:
    """What a build lacks here, or an empty text."""
    if not torch.version.cuda or not any(PACKAGES.glob("cu*/include/cuda_runtime_api.h")):
        return "PyTorch has no CUDA build with NVIDIA's headers here"
    lacking = [tool for tool in ("cc", "nm") if shutil.which(tool) is None]
    return f"no {' and no '.join(lacking)} here" if lacking else ""


def library() -> Path:
    """The compiled stand-in, in a folder of the machine for temporary files: made once a version of PyTorch and text."""
    text = (HERE / "stand_in.c").read_bytes() + Path(__file__).read_bytes()
    key = f"{torch.__version__}-{hash_of(text)}"
    folder = Path(tempfile.gettempdir()) / f"practice-gpus-oracle-{os.getuid()}-{key}"
    if not (folder / "libcuda.so.1").exists():
        folder.mkdir(exist_ok=True)
        compile_into(folder)
    return folder / "libcuda.so.1"


def hash_of(text: bytes) -> str:
    """A short name for a text."""
    import hashlib

    return hashlib.sha256(text).hexdigest()[:12]


def compile_into(folder: Path) -> None:
    """Write what is generated into ``folder``, and compile it there."""
    (folder / "crt").mkdir(exist_ok=True)
    (folder / "crt/host_defines.h").write_text(HOST_DEFINES)
    includes = [f"-I{folder}", *(f"-I{path}" for path in sorted(PACKAGES.glob("*/include")))]
    flags = [*includes, "-D__CUDA_RUNTIME_H__"]
    headers = "".join(f"#include <{name}.h>\n" for name in ("stdalign", *HEADERS))
    source = folder / "stand_in.c"
    source.write_text(headers)
    known = prototypes(output("cc", "-E", "-P", "-D__attribute__(x)=", *flags, str(source)))
    written = (HERE / "stand_in.c").read_text()
    rest = [name for name in asked() if not re.search(rf"\b{name}[(,]", written)]
    source.write_text(
        "\n".join((headers, written, *(stub(name, known.get(name)) for name in rest)))
    )
    target = folder / f"{os.getpid()}.so"
    output(
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        "-Wl,-soname,libcuda.so.1",
        *flags,
        str(source),
        "-o",
        str(target),
    )
    target.rename(folder / "libcuda.so.1")


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def asked() -> list[str]:
    """The functions of NVIDIA's libraries that PyTorch's call."""
    libraries = [str(path) for path in LIBRARIES.glob("lib*.so")]
    lines = output("nm", "-D", "--undefined-only", *libraries).splitlines()
    names = {match[0] for line in lines if (match := ASKED.match(line.strip().removeprefix("U ")))}
    return sorted(name for name in names if not REAL.match(name))


def prototypes(text: str) -> dict[str, tuple[str, str]]:
    """Function → (its type, its parameters), as the headers declare them."""
    text = " ".join(text.split())
    found = re.findall(r"(?<=[;}] )(?:extern )?((?:\w+ )+\**)(\w+)\(([^;{}]*?)\);", text)
    return {name: (kind, parameters) for kind, name, parameters in found}


def stub(name: str, prototype: tuple[str, str] | None) -> str:
    """A function that clears what its arguments point to, makes handles, and succeeds."""
    if prototype is None:
        return f"long {name}() {{ return 0; }}"
    kind, parameters = prototype
    declared, body = [], []
    for number, parameter in enumerate(
        parameters.split(",") if parameters not in ("", "void") else []
    ):
        match = re.fullmatch(r"(.*?[\s*])(\w+)((?:\[\w*\])?)", parameter.strip())
        declared.append(parameter)
        pointed = match and "*" in match[1] and "const" not in match[1] and not match[3]
        if pointed and "void" not in match[1]:
            makes = "Create" in name and number == 0 and not name.startswith("cufft")
            body.append(
                f"if ({match[2]}) {'*(void **)' + match[2] + ' = handle' if makes else f'memset({match[2]}, 0, sizeof *{match[2]})'};"
            )
    result = "" if kind.strip() == "void" else f" return ({kind.strip()})0;"
    return f"{kind}{name}({', '.join(declared)}) {{ {' '.join(body)}{result} }}"
