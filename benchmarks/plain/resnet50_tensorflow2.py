"""Plain ResNet-50 v1.5 in Keras: prints the seconds of each step at batch size 2, as JSON."""

import json
import sys
import time

import keras
import tensorflow as tf
from keras import layers


def convolve(x, out, size, stride=1, is_active=True):
    x = layers.ZeroPadding2D(size // 2)(x)
    x = layers.Conv2D(out, size, stride, use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return layers.ReLU()(x) if is_active else x


images, labels = tf.random.normal((2, 224, 224, 3)), tf.constant([3, 5])
inputs = keras.Input((224, 224, 3))
x = layers.MaxPool2D(3, 2)(layers.ZeroPadding2D(1)(convolve(inputs, 64, 7, 2)))
for stage, count in enumerate((3, 4, 6, 3)):
    for index in range(count):
        inner, stride = 64 * 2**stage, 2 if stage and index == 0 else 1
        shortcut = x if index else convolve(x, 4 * inner, 1, stride, is_active=False)
        y = convolve(convolve(x, inner, 1), inner, 3, stride)
        x = layers.ReLU()(layers.Add()([convolve(y, 4 * inner, 1, is_active=False), shortcut]))
logits = layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, logits)
optimizer = keras.optimizers.SGD(0.002, momentum=0.875, weight_decay=3e-5)
compute_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = compute_loss(labels, model(images, training=True))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


seconds = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    step().numpy()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
