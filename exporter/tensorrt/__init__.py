"""TensorRT engines, by `tensorrt` or `tensorrt_rtx`: the module is a parameter of everything that calls it."""
