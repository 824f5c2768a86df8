"""Plain ResNet-50 v1.5 in MegEngine: prints the seconds of each step at batch size 2, as JSON."""

import json
import sys
import time

import megengine as mge
import numpy
from megengine import functional as F
from megengine import module as M
from megengine.autodiff import GradManager
from megengine.optimizer import SGD


def convolve(channels, out, size, stride=1):
    convolution = M.Conv2d(channels, out, size, stride, size // 2, bias=False)
    return M.Sequential(convolution, M.BatchNorm2d(out))


class Block(M.Module):
    def __init__(self, channels, inner, stride, is_first):
        super().__init__()
        self.a, self.b = convolve(channels, inner, 1), convolve(inner, inner, 3, stride)
        self.c = convolve(inner, 4 * inner, 1)
        self.shortcut = convolve(channels, 4 * inner, 1, stride) if is_first else M.Identity()

    def forward(self, x):
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.shortcut(x))


blocks, channels = [], 64
for stage, count in enumerate((3, 4, 6, 3)):
    for index in range(count):
        stride = 2 if stage and index == 0 else 1
        blocks.append(Block(channels, 64 * 2**stage, stride, index == 0))
        channels = 256 * 2**stage
body = M.Sequential(convolve(3, 64, 7, 2), M.ReLU(), M.MaxPool2d(3, 2, 1), *blocks)
classifier = M.Linear(2048, 1000)
parameters = [*body.parameters(), *classifier.parameters()]
manager = GradManager().attach(parameters)
optimizer = SGD(parameters, 0.002, momentum=0.875, weight_decay=3e-5)
images = mge.tensor(numpy.random.standard_normal((2, 3, 224, 224)).astype("float32"))
labels = mge.tensor([3, 5])
seconds = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    with manager:
        loss = F.nn.cross_entropy(classifier(F.mean(body(images), (2, 3))), labels)
        manager.backward(loss)
    optimizer.step().clear_grad()
    loss.numpy()
    mge._full_sync()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
