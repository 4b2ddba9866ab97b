"""Names of GPU kernels as one can read them, and the class of work that a name stands for."""

import functools
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

# Tried in this order on the whole recorded name, in lower case: the first that is found decides.
_CLASS_OF = (
    # Inductor names a kernel after all operators that it fuses; what it does stands in front: template, reduction, pointwise
    ("attention", r"triton_tem_\w*(attention|flex)"),
    ("matmul", r"triton_tem|^triton_mm"),
    ("normalization", r"triton_(red|per)\w*(norm|softmax|rsqrt|var_mean)"),
    ("elementwise", r"triton_(poi|red|per|for)|triton__0d"),
    # collectives: NCCL, RCCL, oneCCL; vLLM, sglang, TensorRT-LLM; DeepEP, NVSHMEM, symmetric memory
    (
        "communication",
        r"nccl|rccl|oneccl|all_?reduce|all_?to_?all|all_?2_?all|reduce_?scatter|all_?gather",
    ),
    (
        "communication",
        r"cross_device_reduce|deep_?ep::|^(dispatch|combine)$|nvshmem|multimem|quick_?reduce|lamport|moe_?a2a",
    ),
    # what belongs to a matmul, a norm or an attention, and is none
    ("other", r"topk|top_k|moe_align|sampling|argsort|searchsorted|max_pool|avg_?pool"),
    (
        "other",
        r"embedding_(forward|backward|codegen|bag)|split_embedding|radixsort|routing(?!_memset)|native::reduce_kernel",
    ),
    (
        "elementwise",
        r"^(?!.*(gemm|norm|attn|attention|fmha)).*(?<!de)quant(ize_|_kernel|_fp8|_8bit|ized_)|scaled_\w*_quant|quantizeblock",
    ),
    (
        "elementwise",
        r"reshape_and_cache|concat_and_cache|store_?kv|kv_?indices|rotary|rope_|multi_tensor",
    ),
    (
        "attention",
        r"attention|attn|fmha|(sage|mha|mqa|mla)_(fwd|bwd)|sdpa|batch(prefill|decode)|paged_?kv",
    ),
    (
        "attention",
        r"(?<!flashinfer)flash(::|_fwd|_bwd|_mla|_decod|mla)|^_(fwd|bwd)_(grouped_)?kernel|delta_rule",
    ),
    # what stands in attention's place: Mamba's scans, linear attention
    (
        "attention",
        r"selective_scan|^_?chunk_(scan|state|fwd|bwd)|state_passing|fused_recurrent",
    ),
    (
        "normalization",
        r"norm(?!al)|rms_?normal|softmax|bn_fw|bn_bw|gammabeta|rowwisemoments|computefused|cross_entropy|welford",
    ),
    (
        "matmul",
        r"gemm(?!a)|gemv|matmul|nvjet|bmm_|(^|_)mm(_|$)|cutlass.*kernel|cijk_|xmma|machete|marlin|exllama",
    ),
    (
        "matmul",
        r"fused_moe|grouped_mm|wvsplitk|splitk|cublaslt?epilogue|cask_|mma_\w*kernel|spmm|csrmm|rnn_|persist\w*lstm",
    ),
    (
        "matmul",
        r"conv(?!ert)|dgrad|wgrad|winograd|s\d*cudnn|implicit|im2(d2)?col|fft[12]d_|flip_filter",
    ),
    (
        "elementwise",
        r"elementwise|pointwise|functor|subtensorop|(?<!pre)fill|rope|act_and_mul|silu|gelu|glu|upsample|grid_sampl",
    ),
    ("elementwise", r"adam|sgd|lamb_|dropout|scalepacked|distribution|memset|moe_sum|finalize"),
    (
        "elementwise",
        r"catarray|transpose|permute|nchwto|nhwcto|gather|scatter|index(select|_?put|_)|copy|cast|cvt_",
    ),
)
_NOISE = re.compile(r"\(anonymous namespace\)::|std::|at::native::|c10::|at::cuda::|^void ")
_WRAPPERS = {"Kernel", "Kernel2", "kernel"}  # say nothing; the name is in the template's argument
_FUNCTOR = re.compile(
    r"[A-Za-z]\w*(?:Functor\w*|_kernel_cuda|_kernel_impl|_scalar|Ops)\b|MulFunctor"
)
_NOT_THE_WORK = {"gpu_kernel_impl", "gpu_kernel_impl_nocast"}
_OPERATOR = re.compile(r"binary_internal::(\w+)")


@functools.lru_cache(1 << 14)
def kernel_class(name: str, category: str = "kernel") -> str:
    """Return which of `CLASSES` the kernel `name` belongs to; `category` is the trace's own: kernel, gpu_memcpy …

    A rule by name: it knows the names of PyTorch, Inductor, cuBLAS, cuDNN, CUTLASS, NCCL, rocBLAS, MIOpen, CK, FlashInfer,
    vLLM and sglang. What only moves or casts numbers is elementwise, sums and sorts are "other", as what it doesn't know.
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


@functools.lru_cache(1 << 14)
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
