"""Plain ResNet-50 v1.5 in PaddlePaddle: prints seconds per step at batch size 2, as JSON."""

import json
import sys
import time

import paddle
from paddle import nn


def convolve(channels, out, size, stride=1):
    convolution = nn.Conv2D(channels, out, size, stride, size // 2, bias_attr=False)
    return nn.Sequential(convolution, nn.BatchNorm2D(out))


class Block(nn.Layer):
    def __init__(self, channels, inner, stride, is_first):
        super().__init__()
        self.a, self.b = convolve(channels, inner, 1), convolve(inner, inner, 3, stride)
        self.c = convolve(inner, 4 * inner, 1)
        self.shortcut = convolve(channels, 4 * inner, 1, stride) if is_first else nn.Identity()

    def forward(self, x):
        relu = nn.functional.relu
        return relu(self.c(relu(self.b(relu(self.a(x))))) + self.shortcut(x))


blocks, channels = [], 64
for stage, count in enumerate((3, 4, 6, 3)):
    for index in range(count):
        stride = 2 if stage and index == 0 else 1
        blocks.append(Block(channels, 64 * 2**stage, stride, index == 0))
        channels = 256 * 2**stage
stem = [convolve(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2D(3, 2, 1)]
head = [nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(2048, 1000)]
model = nn.Sequential(*stem, *blocks, *head)
optimizer = paddle.optimizer.Momentum(0.002, 0.875, model.parameters(), weight_decay=3e-5)
images, labels = paddle.randn((2, 3, 224, 224)), paddle.randint(0, 1000, (2,))
seconds = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
