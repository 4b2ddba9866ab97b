"""Generators, seeds, random factories, pinned memory and data loaders. No random number is printed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from practice_gpus.situations.placement import kind, on, stays
from practice_gpus.situations.registry import CODE, DOCS, situation, table

GENERATOR = DOCS + "generated/torch.Generator.html"
RANDOM = CODE + "aten/src/ATen/core/Generator.h"
PIN = CODE + "aten/src/ATen/native/Memory.cpp"
SEED = DOCS + "notes/randomness.html"


def seeded(device: Any = "cuda", seed: Any = 3) -> torch.Generator:
    """Return a generator on `device` with `seed`."""
    return torch.Generator(device=device).manual_seed(seed)


def drawn(device: Any = "cuda", **options: Any) -> torch.Tensor:
    """Return five random numbers drawn on `device`."""
    return torch.rand(5, device=device, **options)


def repeats(seed: Any, device: Any = "cuda") -> bool:
    """Return whether `device` draws the same numbers again after `seed()` was called again."""
    seed()
    first = drawn(device)
    seed()
    return torch.equal(first, drawn(device))


GENERATORS = {
    "device of a generator": lambda: torch.Generator(device="cuda").device,
    "device of a plain generator": lambda: torch.Generator().device,
    "seed of a generator": lambda: seeded(seed=11).initial_seed(),
    "equal seeds give equal numbers": lambda: torch.equal(
        drawn(generator=seeded()), drawn(generator=seeded())
    ),
    "uniform_ with a generator": lambda: (
        torch.empty(2, device="cuda").uniform_(generator=seeded()).device
    ),
    "state of a generator": lambda: kind(seeded().get_state()),
    "default generators": lambda: len(torch.cuda.default_generators) == torch.cuda.device_count(),
}
table(GENERATOR, GENERATORS)
table(
    GENERATOR,
    {"device of a generator on cuda:1": lambda: torch.Generator(device="cuda:1").device},
    gpus=2,
)


@situation(GENERATOR)
def one_generator_goes_on() -> Any:
    generator = seeded()
    return torch.equal(drawn(generator=generator), drawn(generator=generator))


@situation(GENERATOR)
def set_state_repeats() -> Any:
    generator = seeded()
    state = generator.get_state()
    first = drawn(generator=generator)
    generator.set_state(state)
    return torch.equal(first, drawn(generator=generator))


WRONG_GENERATORS = {
    "CPU generator for the device": lambda: drawn(generator=torch.Generator()),
    "GPU generator for the CPU": lambda: drawn("cpu", generator=seeded()),
    "CPU generator for randperm on the device": lambda: torch.randperm(
        3, device="cuda", generator=torch.Generator()
    ),
    "CPU generator for normal_ on the device": lambda: torch.empty(2, device="cuda").normal_(
        generator=torch.Generator()
    ),
    "GPU generator for a sampler": lambda: list(
        DataLoader([1, 2, 3], shuffle=True, generator=seeded())
    ),
}
table(RANDOM, WRONG_GENERATORS)
SEEDS = {
    "manual_seed repeats": lambda: repeats(lambda: torch.manual_seed(5)),
    "cuda.manual_seed repeats": lambda: repeats(lambda: torch.cuda.manual_seed(5)),
    "get_rng_state": lambda: kind(torch.cuda.get_rng_state()),
    "number of states": lambda: len(torch.cuda.get_rng_state_all()) == torch.cuda.device_count(),
    "fork_rng restores": lambda: torch.equal(forked(), forked()),
    "randperm is a permutation": lambda: torch.randperm(5, device="cuda").sort().values.tolist(),
    "bernoulli": lambda: torch.bernoulli(torch.ones(3, device="cuda")).tolist(),
    "multinomial": lambda: torch.multinomial(on("cuda", 0, 1), 1).tolist(),
    "randn_like": lambda: (torch.randn_like(on()).device, torch.randn_like(on()).shape),
    "normal distribution": lambda: torch.distributions.Normal(on(), on()).sample((3,)).device,
    "normal of tensors": lambda: torch.normal(on(), on()).device,
}
table(SEED, SEEDS)
SEEDS_OF_TWO = {
    "equal numbers on both GPUs": lambda: torch.equal(
        drawn("cuda:0", generator=seeded("cuda:0")),
        drawn("cuda:1", generator=seeded("cuda:1")).to("cuda:0"),
    ),
    "manual_seed seeds every GPU": lambda: repeats(lambda: torch.manual_seed(5), "cuda:1"),
    "cuda.manual_seed leaves the other GPU": lambda: repeats(
        lambda: torch.cuda.manual_seed(5), "cuda:1"
    ),
    "cuda.manual_seed_all": lambda: repeats(lambda: torch.cuda.manual_seed_all(5), "cuda:1"),
}
table(SEED, SEEDS_OF_TWO, gpus=2)


@situation(SEED)
def set_rng_state_repeats() -> Any:
    state = torch.cuda.get_rng_state()
    return repeats(lambda: torch.cuda.set_rng_state(state))


def forked() -> torch.Tensor:
    """Return numbers drawn inside `torch.random.fork_rng`."""
    with torch.random.fork_rng():
        return drawn()


@situation(SEED)
def cuda_initial_seed() -> Any:
    torch.manual_seed(9)
    return torch.cuda.initial_seed()


@situation(SEED)
def device_numbers_leave_the_CPU_alone() -> Any:
    torch.manual_seed(5)
    plain = torch.rand(5)
    torch.manual_seed(5)
    drawn()
    return torch.equal(plain, torch.rand(5))


@situation(SEED)
def rand_is_between_0_and_1() -> Any:
    x = torch.rand(1000, device="cuda")
    return bool(((x >= 0) & (x < 1)).all())


@situation(SEED)
def dropout_on_the_device() -> Any:
    y = nn.Dropout(0.5)(torch.ones(1000, device="cuda"))
    return set(y.tolist()) == {0.0, 2.0}, y.device


PINNED = {
    "pin_memory": lambda: (
        torch.ones(2).is_pinned(),
        torch.ones(2).pin_memory().is_pinned(),
        torch.ones(2).pin_memory().device,
    ),
    "pin_memory of a pinned tensor": lambda: stays(
        torch.ones(2).pin_memory(), lambda x: x.pin_memory()
    ),
    "factory with pin_memory": lambda: torch.zeros(2, pin_memory=True).is_pinned(),
    "pin_memory of a GPU tensor": lambda: on().pin_memory(),
    "is_pinned of a GPU tensor": lambda: on().is_pinned(),
    "factory on the device with pin_memory": lambda: torch.zeros(2, device="cuda", pin_memory=True),
    "pinned to the device": lambda: (
        torch.ones(2).pin_memory().to("cuda", non_blocking=True).tolist()
    ),
    "views of pinned memory": lambda: torch.ones(4).pin_memory()[1:].is_pinned(),
    "results of pinned memory": lambda: (torch.ones(4).pin_memory() + 1).is_pinned(),
}
table(PIN, PINNED)
LOADERS = {
    "batches of a data loader": lambda: [x.device for x in next(iter(loader()))],
    "batches of a pinning loader": lambda: [
        (x.is_pinned(), x.device) for x in next(iter(loader(pin_memory=True)))
    ],
    "data set on the device": lambda: [
        x.device for x in next(iter(DataLoader(TensorDataset(on(), on()))))
    ],
    "pinning a data set on the device": lambda: next(
        iter(DataLoader(TensorDataset(on()), pin_memory=True))
    ),
    "collate on the device": lambda: torch.utils.data.default_collate([on(), on()]).device,
}
table(DOCS + "data.html#memory-pinning", LOADERS)


def loader(**options: Any) -> DataLoader:
    """Return a loader of two batches from tensors on the CPU."""
    return DataLoader(TensorDataset(torch.arange(4.0), torch.arange(4)), batch_size=2, **options)


@situation(DOCS + "data.html")
def a_loop_over_batches() -> Any:
    total = torch.zeros((), device="cuda")
    for values, _ in loader():
        total += values.to("cuda", non_blocking=True).sum()
    return total.item()
