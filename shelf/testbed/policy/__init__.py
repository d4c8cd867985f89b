"""Start policies: a pretrained model or the small policy, after supervised lessons."""
