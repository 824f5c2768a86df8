"""Faults of TensorFlow 2 that a rehearsal must find: each breaks what the adapter requests."""

import tensorflow as tf

SETTINGS = tf.config.experimental
allow_tf32 = SETTINGS.enable_tensor_float_32_execution


def leave_tf32_as_tensorflow_has_it():
    SETTINGS.enable_tensor_float_32_execution = lambda is_allowed: None


def never_allow_tf32():
    SETTINGS.enable_tensor_float_32_execution = lambda is_allowed: allow_tf32(False)
