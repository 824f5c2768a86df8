"""Plain ResNet-50 v1.5 in TensorFlow 1: prints seconds per step at batch size 2, as JSON."""

import json
import sys
import time

import tensorflow as tf


def convolve(x, out, size, stride=1, activation=tf.nn.relu):
    pad = [size // 2] * 2
    x = tf.pad(x, [[0, 0], pad, pad, [0, 0]])
    x = tf.layers.conv2d(x, out, size, stride, use_bias=False)
    x = tf.layers.batch_normalization(x, momentum=0.9, epsilon=1e-5, training=True)
    return activation(x)


images = tf.Variable(tf.random.normal((2, 224, 224, 3)), trainable=False)
labels = tf.Variable([3, 5], trainable=False)
x = convolve(images, 64, 7, 2)
x = tf.layers.max_pooling2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), 3, 2)
for stage, count in enumerate((3, 4, 6, 3)):
    for index in range(count):
        inner, stride = 64 * 2**stage, 2 if stage and index == 0 else 1
        shortcut = x if index else convolve(x, 4 * inner, 1, stride, tf.identity)
        y = convolve(convolve(x, inner, 1), inner, 3, stride)
        x = tf.nn.relu(convolve(y, 4 * inner, 1, activation=tf.identity) + shortcut)
logits = tf.layers.dense(tf.reduce_mean(x, [1, 2]), 1000)
loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
loss += 3e-5 * tf.add_n([tf.nn.l2_loss(variable) for variable in tf.trainable_variables()])
train = tf.train.MomentumOptimizer(0.002, 0.875).minimize(loss)
statistics = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
seconds = []
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(int(sys.argv[1])):
        start = time.perf_counter()
        session.run([train, loss, *statistics])
        seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
