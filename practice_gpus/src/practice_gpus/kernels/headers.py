"""What CUDA C++ files include and NVRTC hasn't: the C and C++ names that nvcc would take from the host's headers."""

from __future__ import annotations

import re
from collections.abc import Iterable

DEVICE = re.compile(  # headers whose code is for the GPU; any other in <> is for the host, and left empty
    r"(cuda_(fp\d+|bf16|pipeline\w*|awbarrier\w*)|mma|cooperative_groups|math_constants|cuComplex|curand\w*)\.h(pp)?$"
    r"|(cooperative_groups|cuda|cub|thrust|nv|cute|cutlass)/"
)
WIDTHS: tuple = (
    ("SCHAR", 8, ""),
    ("SHRT", 16, ""),
    ("INT", 32, ""),
    ("LONG", 64, "L"),
    ("LLONG", 64, "LL"),
)
WIDTHS += (("INT8", 8, ""), ("INT16", 16, ""), ("INT32", 32, ""), ("INT64", 64, "L"))


def _limits():
    """The lines of <climits> and <cstdint>."""
    yield from (
        "#define CHAR_BIT 8",
        "#define UCHAR_MAX 255",
        "#define SIZE_MAX 18446744073709551615UL",
    )
    for name, bits, end in WIDTHS:
        yield f"#define {name}_MAX {2 ** (bits - 1) - 1}{end}"
        yield f"#define {name}_MIN (-{2 ** (bits - 1) - 1}{end} - 1)"
        yield f"#define U{name}_MAX {2**bits - 1}{'' if bits < 32 else 'U' + end}"


FLOATS = """
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-016
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define NULL 0
"""
MACROS = [*_limits(), *FLOATS.split("\n")]
OWN = re.compile(r"#define ((?:FLT|DBL|SCHAR|SHRT|INT|LONG|CHAR)_(?:MAX|MIN|EPSILON|BIT)) (.*)")
MACROS += [  # names that compilers of hosts have by themselves
    found.expand(r"#define __\1__ \2") for line in MACROS if (found := OWN.match(line))
]
TYPES = {"int8_t": "signed char", "int16_t": "short", "int32_t": "int", "int64_t": "long"}
TYPES |= {f"u{name}": f"unsigned {kind.removeprefix('signed ')}" for name, kind in TYPES.items()}
TYPES |= {
    "uintptr_t": "unsigned long",
    "intptr_t": "long",
    "uint": "unsigned int",
    "uchar": "unsigned char",
}
TYPES |= {"ushort": "unsigned short", "ulong": "unsigned long"}
STD = {  # names of std:: and the header of CUDA's C++ library that has them
    "numeric_limits": "limits",
    "min": "__algorithm/min.h",
    "max": "__algorithm/max.h",
    "clamp": "__algorithm/clamp.h",
    "tuple": "tuple",
    "array": "array",
    "complex": "complex",
    "plus": "functional",
    "less": "functional",
    "greater": "functional",
    "bit_cast": "bit",
}
STD |= dict.fromkeys(
    ("pair", "swap", "move", "forward", "index_sequence", "make_index_sequence"), "utility"
)
STD |= dict.fromkeys(
    ("fabs", "sqrt", "exp", "log", "pow", "abs", "isnan", "isinf", "floor", "ceil"), "cmath"
)
STD |= dict.fromkeys(("tanh", "sin", "cos", "fmax", "fmin", "round", "erf"), "cmath")
NUMBERS = {  # headers of number types that headers of the host would bring, cublas_v2.h for example
    "cuda_fp16.h": {"half", "__half", "half2", "__half2"},
    "cuda_bf16.h": {"__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162", "nv_bfloat162"},
}
TRAITS = re.compile(
    r"(is|remove|add|enable|make|has)_|conditional|decay|integral_constant|true_type|false_type|void_t"
)


def is_device(name: str) -> bool:
    """True for a header of CUDA whose code is for the GPU; where it isn't installed, NVRTC says so."""
    return bool(DEVICE.match(name))


def is_needed(name: str, words: set) -> bool:
    """False for a header of which no name can be among `words`: its namespace isn't."""
    space = re.match(r"cooperative_groups|cuda(?=/)|cub|thrust|cute|cutlass|mma", name)
    return not space or {"mma": "fragment"}.get(space[0], space[0]) in words


def prelude(words: Iterable, namespaces: Iterable) -> str:
    """Return the text that comes first: macros, types and parts of std that `words` use, and empty `namespaces`."""
    words = set(words)
    lines = [f"#include <{name}>" for name, users in NUMBERS.items() if words & users]
    if "std" in words:
        found = {STD.get(word) or ("type_traits" if TRAITS.match(word) else "") for word in words}
        lines += [f"#include <cuda/std/{name}>" for name in sorted(found - {""})]
        lines += [
            "namespace cuda { namespace std {} }",
            "namespace std { using namespace cuda::std; }",
        ]
    for line in MACROS:
        if line and line.split()[1] in words:
            lines += [f"#ifndef {line.split()[1]}", line, "#endif"]
    lines += [f"typedef {kind} {name};" for name, kind in TYPES.items() if name in words]
    for name in ("std", *namespaces):
        parts = name.split("::")
        lines.append("".join(f"namespace {part} {{ " for part in parts) + "}" * len(parts))
    return "\n".join([*lines, ""])
