"""TinyGPT, a transformer that has read this course. Lesson 09 writes it out; others import it.

`python -c 'from course import gpt; gpt.main()'` trains it in half a minute on a CPU and stores its parameters in
gpt/tiny_gpt.pt. words.txt was made once, from the Markdown of the first edition's lessons 00 to 08, 90 and 91 without
sentences that had code, digits or brackets: a paragraph a line, a space around each word and mark. It does not follow the
lessons when they change.
"""

import re
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent


def course_words():
    """Return the words and marks of the course's text, in order, as a list of str."""
    return (HERE / "words.txt").read_text(encoding="utf-8").split()


def causal(layer, q, k, v):
    """Return attention in which each word looks at itself and at the words before it."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Words(nn.Module):
    """A model's vocabulary: the words in `words`, each once. `encode` turns text into numbers, `decode` back."""

    def __init__(self, words):
        super().__init__()
        self.vocabulary = sorted(set(words))

    def encode(self, text):
        """Return the numbers of the words of `text`, int64 [1, n], on the model's device. ValueError for an unknown word."""
        unknown = [word for word in text.split() if word not in self.vocabulary]
        if unknown:
            raise ValueError(f"the course has no word {unknown[0]!r}")
        numbers = [self.vocabulary.index(word) for word in text.split()]
        return torch.tensor([numbers], device=self.head.weight.device)

    def decode(self, ids):
        """Return the text of `ids` [1, n], with capitals after full stops and no space before a mark."""
        text = " ".join(self.vocabulary[number] for number in ids[0].tolist())
        text = re.sub(r" ([.,?!:;])", r"\1", text)
        return re.sub(r"(^|[.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)


class Block(nn.Module):
    """One layer: attention, then two linear layers for each word on its own, both added to what comes in."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        widen, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(widen, nn.GELU(), narrow)

    def forward(self, x, layer, attend):
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = attend(layer, q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.mlp(self.norms[1](x))


class TinyGPT(Words):
    """A GPT over the words in `words`: `model(ids)` maps [B, n] to the logits of each next word, [B, n, vocabulary].

    `attend(layer, q, k, v)` computes the attention of each layer, from three tensors [B, heads, n, width / heads];
    `start` is the place of the first word. ValueError where heads do not divide the width, or a place is not there.
    """

    def __init__(self, words, width=128, heads=4, layers=2, context=32):
        super().__init__(words)
        if width % heads:
            fits = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
            raise ValueError(f"heads is {heads}; a width of {width} can be cut into {fits}")
        self.context = context
        self.embedding = nn.Embedding(len(self.vocabulary), width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(self.vocabulary))
        for table in (self.embedding, self.places):
            nn.init.normal_(table.weight, std=0.04)

    def forward(self, ids, attend=causal, start=0):
        end = start + ids.shape[1]
        if end > self.context:
            known = f"0 to {self.context - 1}"
            raise ValueError(f"there is no place {end - 1}: this model knows places {known}")
        x = self.embedding(ids) + self.places.weight[start:end]
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, attend)
        return self.head(self.norm(x))


def batches(model, words, steps, size=16):
    """Yield `steps` batches (x, y) of `size` random pieces of `words`, int64 [size, context]; y is one word further."""
    numbers = {word: number for number, word in enumerate(model.vocabulary)}
    text = torch.tensor([numbers[word] for word in words], device=model.head.weight.device)
    for _ in range(steps):
        starts = torch.randint(len(text) - model.context, (size, 1)).to(text.device)
        piece = text[starts + torch.arange(model.context + 1, device=text.device)]
        yield piece[:, :-1], piece[:, 1:]


@torch.inference_mode()
def write(model, start, count=55, temperature=0.5, seed=1, attend=causal):
    """Return `start` and `count` more words as text, drawn by `model` with `attend` (the same for the same `seed`)."""
    ids = model.encode(start)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        logits = model(ids[:, -model.context :], attend)[0, -1].float().cpu()
        chances = (logits / temperature).softmax(-1)
        ids = torch.cat([ids, chances.multinomial(1, generator=generator)[None].to(ids)], dim=1)
    return model.decode(ids)


def parameters(device="cpu"):
    """Return the stored parameters of the trained TinyGPT in float32 on `device`, for `load_state_dict`."""
    stored = torch.load(HERE / "tiny_gpt.pt", device, weights_only=True)
    return {name: values.float() for name, values in stored.items()}


def trained(device="cpu"):
    """Return a TinyGPT that has read the course, on `device`."""
    model = TinyGPT(course_words()).to(device)
    model.load_state_dict(parameters(device))
    return model


def main():
    """Train a TinyGPT with a learning rate that rises and falls, and store its parameters in 16 bits."""
    torch.manual_seed(0)
    words, steps = course_words(), 600
    model = TinyGPT(words)
    adam = torch.optim.AdamW(model.parameters())
    plan = torch.optim.lr_scheduler.OneCycleLR(adam, 4e-3, steps, pct_start=0.1)
    for x, y in batches(model, words, steps):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        plan.step()
    print(f"loss {loss.item():.2f} after {steps} steps")
    torch.save({k: v.half() for k, v in model.state_dict().items()}, HERE / "tiny_gpt.pt")
