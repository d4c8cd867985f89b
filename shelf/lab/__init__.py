"""Experiments and second looks, one package each.

``experiment`` runs a matrix of runs and judges it, ``probe`` measures what an interface can give before any training,
``replay`` plays stored rollouts again (`seal verify`, `seal rescore`), ``foreign`` labels rollouts of other programs.
"""
