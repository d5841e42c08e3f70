"""ResNet-50.

Reference: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (CVPR 2016), with the stride on the
3x3 convolution, as torchvision has it ("ResNet v1.5"). 25.6 M parameters, random here.

Input: `x=f32[1,3,224,224]`. Output: 1000 logits.
"""

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """A residual block: 1x1 down to `width`, 3x3, 1x1 up to four times `width`."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Adds what the block computes to its input: [N, C, H, W] -> [N, 4 width, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet50(nn.Module):
    """Four stages of 3, 4, 6 and 3 blocks after a 7x7 stem."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages = []
        channels = 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            layers = []
            for index in range(blocks):
                layers.append(Bottleneck(channels, width, stride if index == 0 else 1))
                channels = 4 * width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(channels, classes)
        self.apply(_initialize)

    def forward(self, x: Tensor) -> Tensor:
        """Classifies pictures: f32[N, 3, H, W] -> f32[N, classes]."""
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


def _initialize(module: nn.Module) -> None:
    # He et al. (2015): keeps activations of one scale through the depth, so that outputs can be compared.
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def model() -> nn.Module:
    """Makes the network with random weights."""
    torch.manual_seed(0)
    return ResNet50()


def example_inputs() -> tuple[Tensor]:
    """A batch of one random picture."""
    return (torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1)),)
