"""The benefit of an interface for a model before any training: lift, transfer and the angle of the weights."""
