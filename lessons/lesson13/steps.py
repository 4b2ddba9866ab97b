"""Steps whose time on a card is forecast: functions that build model and data on the GPU and return a step."""

import torch
from torch import nn


def texts(batch):
    """Return make_step of a model with the sizes of BERT small that reads `batch` texts of 141 tokens."""

    def make_step():
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0, batch_first=True)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().bfloat16()
        x = torch.empty(batch, 141, 512, device="cuda", dtype=torch.bfloat16)

        def step():
            with torch.no_grad():
                model(x)

        return step

    return make_step


def attention(attend):
    """Return make_step of `attend(q, k, v)` with the video transformer's sizes: 8 sequences, 12 heads, 3,137 tokens."""

    def make_step():
        shape = (8, 12, 3137, 64)
        q, k, v = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        return lambda: attend(q, k, v)

    return make_step
