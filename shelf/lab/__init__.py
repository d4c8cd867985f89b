"""What was learnt from runs: experiments, certificates, stored episodes judged again."""
