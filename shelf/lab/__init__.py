"""Studies of runs: experiments, probes, runs played and judged again."""
