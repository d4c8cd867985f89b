"""The launcher's work before, during and after a training process."""
