"""Autocast for "cuda": which calls compute in half precision, which in float32.

The lists are those of https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float16.
"""
import torch
from torch.utils._pytree import tree_leaves, tree_map

LISTS = {
    "lower": """
        __matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d
        conv_transpose2d conv_transpose3d einsum gru gru_cell linear lstm lstm_cell matmul mm linalg_multi_dot mv prelu
        rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell scaled_dot_product_attention""",
    "float": """
        __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin cosh cosine_embedding_loss cosine_similarity cdist cumprod
        cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm log log10
        log1p log2 log_softmax logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss
        nll_loss nll_loss_nd cross_entropy_loss norm nuclear_norm pdist poisson_nll_loss pow prod reciprocal renorm
        rsqrt sinh smooth_l1_loss soft_margin_loss softmax softplus sum tan triplet_margin_loss
        binary_cross_entropy_with_logits""",
    "widest": "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot",
    "banned": "binary_cross_entropy",
}
BANNED = """torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.
Many models use a sigmoid layer right before the binary cross entropy layer.
In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits
or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are
safe to autocast."""
cache = {}  # id of a float32 weight → (the weight, its cast copy), until the outermost autocast region ends


def policies():
    """Callable → policy, for every place where PyTorch exposes an operator of the lists."""
    homes = (torch, torch.Tensor, torch._C._nn, torch._C._linalg, torch._C._VariableFunctions)
    return {getattr(home, name): policy for policy, names in LISTS.items() for name in names.split()
            for home in homes if hasattr(home, name)}


def cast(policy, machine, func, args, kwargs):
    """Call ``func`` with its floating-point inputs on practice GPUs cast as ``policy`` says."""
    if not torch.is_autocast_enabled("cuda") and not torch.is_autocast_enabled("cpu"):
        return func(*args, **kwargs)
    mine = {id(x): x.dtype for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)
            and x.dtype.is_floating_point and machine.place(x) is not None}
    with torch.autocast("cpu", enabled=not mine and torch.is_autocast_enabled("cpu")):  # for tensors of the CPU
        if not torch.is_autocast_enabled("cuda") or not mine or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        if policy == "banned":
            raise RuntimeError(BANNED)
        widest = max(mine.values(), key=lambda dtype: dtype.itemsize)
        dtype = {"lower": torch.get_autocast_dtype("cuda"), "float": torch.float32, "widest": widest}[policy]
        args, kwargs = tree_map(lambda x: converted(x, dtype) if mine.get(id(x)) not in (
            None, dtype, torch.float64) else x, (args, kwargs))
        return func(*args, **kwargs)


def converted(x, dtype):
    """``x`` in ``dtype``; a weight is cast once in a region, as PyTorch's weight cache does."""
    if not (x.is_leaf and x.requires_grad and x.dtype == torch.float32 and torch.is_autocast_cache_enabled()):
        return x.to(dtype)
    if id(x) not in cache:
        cache[id(x)] = (x, x.to(dtype))
    return cache[id(x)][1]
