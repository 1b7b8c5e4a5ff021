"""What a Transformer is: configurations (torch-free), torch modules, and checkpoints on disk.

Import from the submodules: this package itself loads nothing, so that reading a configuration costs no torch.
"""
