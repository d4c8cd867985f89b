"""What was learnt from runs: experiments, probes, runs played and judged again."""
