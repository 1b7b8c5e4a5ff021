"""TensorRT, full, lean and RTX: the graphs that it gets, and the engines built from them."""
