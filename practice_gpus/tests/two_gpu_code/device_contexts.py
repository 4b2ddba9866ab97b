"""Say where tensors are made with the current device, device contexts and the default device."""

import torch

print("current device:", torch.cuda.current_device(), torch.cuda.get_device_name(0) != "")

a = torch.tensor([1.0, 2.0], device="cuda")
with torch.cuda.device(1):
    b = torch.tensor([1.0, 2.0], device="cuda")
    c = torch.tensor([1.0, 2.0]).cuda()
    d = torch.tensor([1.0, 2.0]).to(device=torch.device("cuda"))
    e = b + c + d
    f = torch.randn(2, device="cuda:0")
    print("inside:", torch.cuda.current_device())
for name, tensor in zip("abcdef", (a, b, c, d, e, f), strict=True):
    print(name, tensor.device)

with torch.cuda.device_of(e):
    print("device of e:", torch.cuda.current_device())

torch.cuda.set_device(1)
print(
    "new tensors:",
    torch.zeros(1, device="cuda").device,
    "explicit:",
    torch.zeros(1, device="cuda:0").device,
)
torch.cuda.set_device("cuda:0")

with torch.device("cuda:1"):
    layer = torch.nn.Linear(3, 3)
    noise = torch.rand(3)
print("made under torch.device:", layer.weight.device, noise.device)

torch.set_default_device("cuda:1")
print("default:", torch.ones(1).device, torch.get_default_device())
torch.set_default_device("cpu")
print("default again:", torch.ones(1).device)

seeds = []
for index in range(torch.cuda.device_count()):
    torch.cuda.manual_seed_all(7)
    seeds.append(torch.rand(3, device=f"cuda:{index}").cpu())
print("same random numbers on both:", torch.equal(*seeds))

stream = torch.cuda.Stream(device=1)
with torch.cuda.stream(stream):
    print("in the stream:", torch.cuda.current_device(), torch.cuda.current_stream() == stream)
    total = (e * 2).sum()
torch.cuda.current_stream(1).wait_stream(stream)
print("total:", total.item(), "after:", torch.cuda.current_device())

generator = torch.Generator(device="cuda:1").manual_seed(3)
drawn = torch.randint(10, (4,), generator=generator, device="cuda:1")
print(
    "drawn on:",
    drawn.device,
    "repeatable:",
    torch.equal(
        drawn, torch.randint(10, (4,), generator=generator.manual_seed(3), device="cuda:1")
    ),
)
