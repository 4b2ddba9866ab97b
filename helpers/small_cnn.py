"""The network that lesson 00 trains on shapes, in seconds on a CPU."""

from torch import Tensor, nn
from torch.nn import functional as F


class SmallCNN(nn.Module):
    """Three convolutions, each followed by ReLU and pooling, and one linear layer, for 32×32 images (lesson 03).

    Input float [N, in_channels, 32, 32] in 0..1, output logits [N, classes]. `width` is the number of filters of the
    first convolution. `forward` first centers the values to -2..2, without which learning takes several times longer.
    Another picture size does not fit the linear layer and raises RuntimeError there.
    """

    def __init__(self, classes: int = 10, width: int = 16, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, kernel_size=3, padding=1)
        self.classify = nn.Linear(2 * width * 4 * 4, classes)  # 32 pixels, halved three times: 4

    def forward(self, x: Tensor) -> Tensor:
        x = 4 * x - 2  # 0..1 becomes -2..2: about mean 0 and spread 1
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        return self.classify(x.flatten(1))
