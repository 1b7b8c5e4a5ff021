"""Our own attention kernels: their Triton source, and compiling it ahead of time for GPUs that are not here.

Import `compiling` to write an artifact's kernels; nothing here imports Triton before it compiles.
"""
