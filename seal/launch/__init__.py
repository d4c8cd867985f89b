"""What the launcher does before, around and after a training process."""
