"""The benchmark of engines: the `mlx` engine beside a real `mlx_lm.server`.

Models that tests need, too, are made in `bench/tiny_models.py`.
"""
