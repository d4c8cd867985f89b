"""An experiment: a matrix of runs (arms x seeds), registered before it starts, run to its end, and judged.

``design`` defines what a file may hold, ``matrix`` which runs follow from it, ``runner`` runs
what is missing through the launcher, ``effects`` and ``report`` judge the results.
"""
