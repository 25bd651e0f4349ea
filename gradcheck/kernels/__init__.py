"""Kernels that gradcheck ships: drop-in trainable ops, and what the tool is proven on.

Nothing in gradcheck imports them: an op names its kernels by string.
"""
