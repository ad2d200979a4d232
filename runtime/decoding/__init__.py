"""Decode loops on MLX: one stream, forced text fed along with the token before it, synchronous or one step ahead of the host.

``model`` wraps an mlx-lm model, ``loop`` decodes one output. Importing this package imports no MLX.
"""
