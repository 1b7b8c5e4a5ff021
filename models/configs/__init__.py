"""Configurations: every number that decides what a model computes, one file a family. Nothing here imports torch.

Import from the submodules: this package itself loads nothing.
"""
