"""The engine that runs models in this process with mlx-lm."""
