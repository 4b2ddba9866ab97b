"""Points of people's kinds of use, apart from the scoreboard's: a table of measured steps, and how to run each of them on shapes alone."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from course.measurements import forecasts
from course.tools._cases import Case, Step, inference, training

SIZES = {"DETR": (800, 1066), "Resnet-101": (800, 1066), "Conditional-DETR": (800, 1066)}
SIZES |= {"MobileNet": (513, 513), "Segformer": (512, 512)}
BERT = {"BERT base": (12, 12, 768), "BERT large": (24, 16, 1024)}


def cases() -> Iterator[Case]:
    """The rows of the table as cases; those with the same key run the same step."""
    for row in forecasts.held_rows():
        names = "make", "network", "size", "precision", "batch", "training"
        again = next((way for way in ("selective", "recomputed") if way in row["how"]), "")
        key = (*(row[name] for name in names), again)
        make = lambda key=key: MAKES[key[0]](*key[1:])  # noqa: E731
        kind = "training" if row["training"] else "inference"
        yield Case(
            row["source"], row["network"], row["card"], kind, row["ms"], key, make, row["gpus"],
            tf32=row["precision"] == "TF32", how=row["how"],
        )  # fmt: skip


def images(name, size, precision, batch, trained, again) -> Step | None:
    """An image network; NVIDIA's mixed precision is channels last."""
    last = precision == "AMP"
    make = training if trained else inference
    return make(name, batch, size, precision.split()[0], last)


def vision(name, size, precision, batch, trained, again) -> Step:
    """An image network of transformers, with its attention written out as in 2023."""
    import torch

    tf = import_module("transformers")
    no_weights = {"use_pretrained_backbone": False}
    kinds: dict[str, tuple[str, str, dict]] = {
        "ViT": ("ViTConfig", "ViTForImageClassification", {}),
        "BeiT": ("BeitConfig", "BeitForImageClassification", {"use_relative_position_bias": True}),
        "ConvNeXT": ("ConvNextConfig", "ConvNextForImageClassification",
                     {"depths": [3, 3, 27, 3], "hidden_sizes": [192, 384, 768, 1536]}),
        "ResNet": ("ResNetConfig", "ResNetForImageClassification", {}),
        "MobileNet": ("MobileNetV2Config", "MobileNetV2ForSemanticSegmentation",
                      {"image_size": 513, "num_labels": 21, "output_stride": 8}),
        "Segformer": ("SegformerConfig", "SegformerForSemanticSegmentation", {"num_labels": 150}),
        "DETR": ("DetrConfig", "DetrForObjectDetection", no_weights),
        "Resnet-101": ("DetrConfig", "DetrForObjectDetection", no_weights | {"backbone": "resnet101"}),
        "Conditional-DETR": ("ConditionalDetrConfig", "ConditionalDetrForObjectDetection", no_weights),
    }  # fmt: skip
    config, model, more = kinds[name]
    with torch.device("meta"):
        made = getattr(tf, config)(attn_implementation="eager", **more)
        net = getattr(tf, model)(made).to_empty(device="cuda").cuda().eval()
    size = SIZES.get(name, (224, 224))
    x = torch.empty(batch, 3, *size, device="cuda")
    masks = {"pixel_mask": torch.ones(batch, *size, dtype=torch.long, device="cuda")}
    return _silent(lambda: net(x, **(masks if size == (800, 1066) else {})))


def unet(name, size, precision, batch, trained, again) -> Step:
    """Stable Diffusion's UNet; each image has a second one without its text."""
    import torch

    with torch.device("meta"):
        net = import_module("diffusers").UNet2DConditionModel(
            sample_size=size, cross_attention_dim=768, attention_head_dim=8
        )
    net = net.half().to_empty(device="cuda").cuda().to(memory_format=torch.channels_last).eval()
    place = {"device": "cuda", "dtype": torch.half}
    x, text = (
        torch.empty(2 * batch, 4, size, size, **place),
        torch.empty(2 * batch, 77, 768, **place),
    )
    when = torch.zeros(2 * batch, dtype=torch.long, device="cuda")
    return _silent(lambda: net(x, when, text))


def ssd(name, size, precision, batch, trained, again) -> Step:
    """SSD300, trained channels last where the precision is "AMP"; inference takes each batch from the CPU, not pinned."""
    import torch

    from course.tools._held_nets import Detector

    net, x = Detector().cuda(), torch.empty(batch, 3, size, size)
    mixed = lambda: torch.autocast("cuda", torch.float16, precision.startswith("AMP"))  # noqa: E731
    if not trained:
        net.eval()
        mean = torch.empty(1, 3, 1, 1, device="cuda")
        return _silent(lambda: net(x.cuda().sub_(mean).div_(mean)), mixed)
    x = x.cuda()
    if precision == "AMP":
        net, x = (each.to(memory_format=torch.channels_last) for each in (net, x))
    return _trained(
        net, lambda: Detector.loss(net(x)), torch.optim.SGD(net.parameters(), 0.1, 0.9), mixed
    )


def bert(name, size, precision, batch, trained, again) -> Step:
    """BERT as NVIDIA trained it: weights of float32 beside those of float16, gradients clipped; "accumulated": no update."""
    import torch

    from course.tools._held_nets import Bert

    span = "accumulated" not in name and size == 384
    net = Bert(*BERT[name.split(",")[0]], span).cuda()
    net = net.half() if precision == "FP16" else net
    words = torch.zeros(batch, size, dtype=torch.long, device="cuda")
    given = words, torch.zeros_like(words), torch.ones_like(words)
    if not trained:
        net.eval()
        return _silent(lambda: net(*given))
    update = None if "accumulated" in name else Masters(net)
    labels = words[:, 0] if span else words.flatten()

    def loss():
        found = net(*given)
        parts = found.unbind(-1) if span else [found.flatten(0, 1)]
        return sum(torch.nn.functional.cross_entropy(each.float(), labels) for each in parts)

    return _trained(net, loss, update)


class Masters:
    """Adam of weights in float32 whose gradients and values are copied, as in apex's "O2"; gradients are clipped."""

    def __init__(self, net):
        import torch

        self.net = list(net.parameters())
        self.own = [torch.nn.Parameter(p.detach().float()) for p in self.net]
        self.adam = torch.optim.Adam(self.own, fused=True)

    def step(self):
        import torch

        for own in self.own:
            own.grad = torch.empty_like(own) if own.grad is None else own.grad
        with torch.no_grad():
            torch._foreach_copy_([own.grad for own in self.own], [p.grad for p in self.net])
            torch.nn.utils.clip_grad_norm_(self.own, 1.0)
            self.adam.step()
            torch._foreach_copy_(self.net, self.own)


def decode(name, size, precision, batch, trained, again) -> Step:
    """One more token of a text of ``size``."""
    import torch

    from course.tools._held_nets import Decoder

    with torch.device("meta"):
        net = Decoder(name, precision, size)
    net = (
        net.to(torch.bfloat16).to_empty(device="cuda").cuda()
        if precision == "bf16"
        else _filled(net)
    )
    word = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
    net.eval()
    return _silent(lambda: net(word))


def _filled(net):
    """The network on the GPU; its narrow weights are there and keep their types."""
    import torch

    for module in net.modules():
        for key, value in list(module._parameters.items()):
            if value is not None and value.is_meta:
                made = torch.empty(value.shape, dtype=torch.bfloat16, device="cuda")
                module._parameters[key] = torch.nn.Parameter(made, requires_grad=False)
    return net


def gpt(name, size, precision, batch, trained, again) -> Step:
    """Training of a language model in bfloat16; "accumulated": its update is left out."""
    import torch

    from course.tools._held_nets import Decoder
    from practice_gpus.clock import recomputed

    with torch.device("meta"):
        net = Decoder(name.split(",")[0])
    net = net.to_empty(device="cuda").cuda()
    net = recomputed(net, again == "selective") if again else net
    words = torch.zeros(batch, size, dtype=torch.long, device="cuda")
    update = None if "accumulated" in name else torch.optim.AdamW(net.parameters(), fused=True)
    mixed = lambda: torch.autocast("cuda", torch.bfloat16)  # noqa: E731

    def loss():
        return torch.nn.functional.cross_entropy(net(words).flatten(0, 1), words.flatten())

    return _trained(net, loss, update, mixed)


def kernelbench(name, size, precision, batch, trained, again) -> Step:
    """A network of torchvision's whose norms take their statistics from the batch."""
    import torch

    net, x = _torchvision(name), torch.empty(batch, 3, size, size, device="cuda")
    return _silent(lambda: net(x))


def torchvision(name, size, precision, batch, trained, again) -> Step:
    """A network of torchvision's, all of it in one precision, with its images from the CPU; training without an update.

    PyTorch of January 2021 filled each gradient with zeros, and backward added to it.
    """
    import torch

    dtype = torch.half if precision == "FP16" else torch.float
    net, x = _torchvision(name).to(dtype), torch.empty(batch, 3, size, size, dtype=dtype)
    if not trained:
        net.eval()
        return _silent(lambda: net(x.cuda()))
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")
    loss = lambda: torch.nn.functional.cross_entropy(net(x.cuda()), labels)  # noqa: E731
    return _trained(net, loss, None, dropped=False)


def _torchvision(name):
    import torch

    with torch.device("meta"):
        return import_module("torchvision.models").get_model(name).to_empty(device="cuda").cuda()


def _silent(run: Callable, mixed: Callable = nullcontext) -> Step:
    """A step of inference."""
    import torch

    def step():
        with torch.no_grad(), mixed():
            return run()

    return step


def _trained(
    net, loss: Callable, update: Any, mixed: Callable = nullcontext, dropped: bool = True
) -> Step:
    """A step of training, with its update if there is one; gradients are ``dropped`` afterwards, or filled with zeros."""

    def step():
        with mixed():
            found = loss()
        found.backward()
        if update is not None:
            update.step()
        net.zero_grad(dropped)

    if update is not None or not dropped:
        step()  # makes the update's state, and the gradients that stay
    return step


MAKES: dict[str, Callable] = {
    "images": images, "vision": vision, "unet": unet, "ssd": ssd, "bert": bert, "decode": decode, "gpt": gpt,
    "kernelbench": kernelbench, "torchvision": torchvision,
}  # fmt: skip
