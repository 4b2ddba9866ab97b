"""How much memory PyTorch finds on well-known cards, to say on which of them a program fits."""

GIB = 1 << 30
# Name → (GiB as PyTorch prints them in an out-of-memory error, the public thread with that error). Drivers differ a little.
CARDS = {
    "RTX 4060 (8 GB)": (7.75, "https://github.com/ESRSchao/EdgeRegNet/issues/2"),
    "RTX 3060 (12 GB)": (11.76, "https://github.com/TencentARC/PhotoMaker/issues/47"),
    "T4 (16 GB)": (14.56, "https://github.com/Zheng-Chong/CatVTON/issues/133"),
    "A10G (24 GB)": (22.20, "https://github.com/XavierXiao/Dreambooth-Stable-Diffusion/issues/18"),
    "RTX 4090 (24 GB)": (23.64, "https://github.com/ali-vilab/VGen/issues/104"),
    "A100 (40 GB)": (39.50, "https://github.com/TianheWu/CoSeR/issues/10"),
    "L40 (48 GB)": (44.40, "https://github.com/NVlabs/Eagle/issues/68"),
    "H100 (80 GB)": (79.11, "https://github.com/vllm-project/vllm/issues/27508"),
    "A100 (80 GB)": (79.25, "https://github.com/HiDream-ai/VAREdit/issues/6"),
}


def fits(peak):
    """[(card, share of its memory that ``peak`` bytes are)], only the cards on which they fit, smallest first."""
    shares = [(name, peak / (size * GIB)) for name, (size, _) in CARDS.items()]
    return [(name, share) for name, share in shares if share <= 1]
