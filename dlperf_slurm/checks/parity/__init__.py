"""Whether frameworks do the same work: the same losses, gradients and updates."""
