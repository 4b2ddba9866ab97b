"""Names of GPU kernels as one can read them, and the class of work that a name stands for."""

import re

CLASSES = (
    "matmul",
    "attention",
    "normalization",
    "elementwise",
    "other",
    "communication",
    "copy",
    "memset",
)
LONGEST = 64  # characters of a name that are kept

# Tried in this order on the whole recorded name, in lower case.
_CLASS_OF = (
    ("communication", r"nccl|rccl|all_?reduce|all_?to_?all|reduce_?scatter|all_?gather"),
    ("attention", r"flash|attention|fmha"),
    ("other", r"reduce_kernel|catarray|finalize"),
    ("elementwise", r"multi_tensor_apply"),
    ("normalization", r"norm|softmax|bn_fw|bn_bw"),
    (
        "matmul",
        r"gemm|gemv|matmul|cutlass.*kernel|cijk_|xmma|conv(?!ert)|dgrad|wgrad|winograd|scudnn|igemm",
    ),
    (
        "elementwise",
        r"elementwise|pointwise|triton_poi|functor|subtensorop|fill|rotary",
    ),
)
_NOISE = re.compile(r"\(anonymous namespace\)::|std::|at::native::|c10::|at::cuda::|^void ")
_WRAPPERS = {"Kernel", "Kernel2", "kernel"}  # say nothing; the name is in the template's argument
_FUNCTOR = re.compile(
    r"[A-Za-z]\w*(?:Functor\w*|_kernel_cuda|_kernel_impl|_scalar|Ops)\b|MulFunctor"
)
_NOT_THE_WORK = {"gpu_kernel_impl", "gpu_kernel_impl_nocast"}
_OPERATOR = re.compile(r"binary_internal::(\w+)")


def kernel_class(name: str, category: str = "kernel") -> str:
    """Return which of `CLASSES` the kernel `name` belongs to; `category` is the trace's own: kernel, gpu_memcpy …

    A rule by name: it knows the names of PyTorch, cuBLAS, cuDNN, CUTLASS, NCCL, rocBLAS, MIOpen, CK and Triton. What
    it does not know is "other".
    """
    if "memcpy" in category.lower():
        return "copy"
    if "memset" in category.lower():
        return "memset"
    lowered = name.lower()
    for kind, pattern in _CLASS_OF:
        if re.search(pattern, lowered):
            return kind
    return "other"


def short_name(name: str) -> str:
    """Return `name` without namespaces, parameters and template arguments, at most 64 characters.

    An elementwise kernel keeps its functor, which says what it computes; CUTLASS keeps the name of the tile.
    """
    if name.startswith("_Z"):
        return _demangled(name)[:LONGEST]
    plain = _NOISE.sub("", name)
    base, _, arguments = plain.partition("<")
    base = base.partition("(")[0].split("::")[-1].strip()
    if base in _WRAPPERS:
        return re.split(r"[<>(,:]", arguments)[0][:LONGEST]
    if name.startswith(("Memcpy", "Memset")):
        return name[:LONGEST]
    work = _what_it_computes(arguments)
    return (f"{base}: {work}" if work else base)[:LONGEST]


def _what_it_computes(arguments):
    """Return the functor in a template's `arguments`, or an empty string."""
    operator = _OPERATOR.search(arguments)
    if operator:
        return operator[1]
    found = [word for word in _FUNCTOR.findall(arguments) if word not in _NOT_THE_WORK]
    return found[0] if found else ""


def _demangled(name):
    """Return the first identifiers of a mangled C++ name: enough to recognize it."""
    words = []
    place = 0
    while len(words) < 4:
        number = re.compile(r"\d+").search(name, place)
        if not number:
            break
        end = number.end() + int(number[0])
        word = name[number.end() : end]
        place = end if word.isidentifier() else number.end()
        if word.isidentifier() and len(word) > 2 and not word.startswith("_GLOBAL"):
            words.append(word)
    return " ".join(words[1:]) or name
