"""Comparison of frameworks: whether they compute the same losses, gradients and updates."""
