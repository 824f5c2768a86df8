"""Plain ResNet-50 v1.5 in MXNet's Gluon: prints seconds per step at batch size 2, as JSON."""

import json
import sys
import time

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn


def convolve(out, size, stride=1, is_active=True):
    block = nn.HybridSequential()
    block.add(nn.Conv2D(out, size, stride, size // 2, use_bias=False), nn.BatchNorm(epsilon=1e-5))
    if is_active:
        block.add(nn.Activation("relu"))
    return block


class Block(nn.HybridBlock):
    def __init__(self, inner, stride, is_first):
        super().__init__()
        self.body, self.shortcut = nn.HybridSequential(), None
        self.body.add(convolve(inner, 1), convolve(inner, 3, stride))
        self.body.add(convolve(4 * inner, 1, is_active=False))
        if is_first:
            self.shortcut = convolve(4 * inner, 1, stride, is_active=False)

    def hybrid_forward(self, F, x):
        return F.relu(self.body(x) + (self.shortcut(x) if self.shortcut else x))


model = nn.HybridSequential()
model.add(convolve(64, 7, 2), nn.MaxPool2D(3, 2, 1))
for stage, count in enumerate((3, 4, 6, 3)):
    for index in range(count):
        model.add(Block(64 * 2**stage, 2 if stage and index == 0 else 1, index == 0))
model.add(nn.GlobalAvgPool2D(), nn.Dense(1000))
model.initialize(mx.init.MSRAPrelu())
options = {"learning_rate": 0.002, "momentum": 0.875, "wd": 3e-5}
trainer = gluon.Trainer(model.collect_params(), "sgd", options, kvstore=None)
compute_loss = gluon.loss.SoftmaxCrossEntropyLoss()
images, labels = mx.nd.random.normal(shape=(2, 3, 224, 224)), mx.nd.array([3, 5])
seconds = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    with autograd.record():
        loss = compute_loss(model(images), labels)
    loss.backward()
    trainer.step(2)
    mx.nd.waitall()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
