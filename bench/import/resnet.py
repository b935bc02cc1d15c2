"""ResNet-50's block, with torchvision's layers, for both benchmarks."""
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.body = nn.Sequential(*norm_after(nn.Conv2d(inside, width, 1, bias=False)), nn.ReLU(),
                                  *norm_after(nn.Conv2d(width, width, 3, stride, 1, bias=False)), nn.ReLU(),
                                  *norm_after(nn.Conv2d(width, 4 * width, 1, bias=False)))
        same = inside == 4 * width and stride == 1
        self.short = nn.Identity() if same else nn.Sequential(*norm_after(nn.Conv2d(inside, 4 * width, 1, stride, bias=False)))

    def forward(self, x):
        return F.relu(self.short(x) + self.body(x))


def norm_after(conv):
    return conv, nn.BatchNorm2d(conv.out_channels)
