"""Practice GPUs: CUDA devices simulated on the CPU."""
from .session import practice_gpus

__all__ = ["practice_gpus"]
