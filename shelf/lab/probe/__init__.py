"""What an interface can give a model, before any training: lift, transfer and the angle of the weights."""
