"""A run's checkpoint as a folder that others can load: model, tokenizer, card, and the run's interface."""
