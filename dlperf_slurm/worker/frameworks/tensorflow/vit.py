"""Vision transformer in TensorFlow, from the framework-neutral definition."""

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow.layers import (
    Attention,
    LayerNorm,
    Linear,
    compute_class_loss,
    gelu,
    make_variable,
)
from dlperf_slurm.worker.models.vit import Definition


class PatchEmbedding(tf.Module):
    """Patch embedding: images [batch, height, width, 3] -> hidden [batch, patches, hidden_size].

    Patches are in row-major order.
    """

    AXES = (2, 3, 1, 0)

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, size = definition.hidden_size, definition.patch_size
        self.weight = make_variable([size, size, definition.IMAGE_CHANNELS, hidden])
        self.bias = make_variable([hidden])
        self.size = size

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        x = tf.nn.conv2d(images, tf.cast(self.weight, images.dtype), self.size, "VALID")
        x = tf.nn.bias_add(x, tf.cast(self.bias, x.dtype))
        batch, height, width, hidden = x.shape.as_list()
        return tf.reshape(x, (batch, height * width, hidden))


class Layer(tf.Module):
    """Pre-norm layer: attention, then feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        epsilon = definition.LAYER_NORM_EPSILON
        self.attention_normalization = LayerNorm(hidden, epsilon)
        self.attention = Attention(definition)
        self.feed_forward_normalization = LayerNorm(hidden, epsilon)
        self.intermediate = Linear(hidden, inner)
        self.output = Linear(inner, hidden)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x = x + self.attention(self.attention_normalization(x))
        return x + self.output(gelu(self.intermediate(self.feed_forward_normalization(x))))


class Model(tf.Module):
    """ViT: images [batch, height, width, 3] -> logits [batch, classes], in `compute_type`."""

    # canonical axes of `positions`
    AXES = (0, 1)

    def __init__(self, definition: Definition, compute_type: tf.DType) -> None:
        super().__init__()
        self.compute_type = compute_type
        hidden = definition.hidden_size
        self.class_token = make_variable([hidden])
        self.positions = make_variable([definition.sequence_length, hidden])
        self.patch_embedding = PatchEmbedding(definition)
        self.layers = [Layer(definition) for _ in range(definition.layers)]
        self.normalization = LayerNorm(hidden, definition.LAYER_NORM_EPSILON)
        self.classifier = Linear(hidden, definition.classes)

    def __call__(self, images: tf.Tensor, training: bool) -> tf.Tensor:
        patches = self.patch_embedding(tf.cast(images, self.compute_type))
        batch, _, hidden = patches.shape.as_list()
        token = tf.broadcast_to(tf.cast(self.class_token, patches.dtype), (batch, 1, hidden))
        x = tf.concat((token, patches), axis=1) + tf.cast(self.positions, patches.dtype)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.normalization(x[:, 0]))


compute_loss = compute_class_loss
