"""What the launcher does before, during and after a training process."""
