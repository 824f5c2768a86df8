"""Plain ResNet-50 v1.5 in MindSpore: prints the seconds of each step at batch size 2, as JSON."""

import json
import sys
import time

import mindspore as ms
import numpy
from mindspore import nn, ops


def convolve(channels, out, size, stride=1):
    convolution = nn.Conv2d(channels, out, size, stride, "pad", size // 2)
    return nn.SequentialCell(convolution, nn.BatchNorm2d(out))


class Block(nn.Cell):
    def __init__(self, channels, inner, stride, is_first):
        super().__init__()
        self.a, self.b = convolve(channels, inner, 1), convolve(inner, inner, 3, stride)
        self.c = convolve(inner, 4 * inner, 1)
        self.shortcut = convolve(channels, 4 * inner, 1, stride) if is_first else nn.Identity()

    def construct(self, x):
        return ops.relu(self.c(ops.relu(self.b(ops.relu(self.a(x))))) + self.shortcut(x))


blocks, channels = [], 64
for stage, count in enumerate((3, 4, 6, 3)):
    for index in range(count):
        stride = 2 if stage and index == 0 else 1
        blocks.append(Block(channels, 64 * 2**stage, stride, index == 0))
        channels = 256 * 2**stage
stem = [convolve(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, "pad", 1)]
head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dense(2048, 1000)]
model = nn.SequentialCell(*stem, *blocks, *head).set_train()
optimizer = nn.SGD(model.trainable_params(), 0.002, momentum=0.875, weight_decay=3e-5)
images = ms.Tensor(numpy.random.standard_normal((2, 3, 224, 224)).astype("float32"))
labels = ms.Tensor([3, 5], ms.int32)
differentiate = ms.value_and_grad(
    lambda: ops.cross_entropy(model(images), labels), None, optimizer.parameters
)
seconds = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    _, gradients = differentiate()
    optimizer(gradients)
    optimizer.parameters[-1].asnumpy()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
