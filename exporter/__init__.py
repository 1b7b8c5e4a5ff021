"""From torch to artifacts: ONNX export, optimization for targets, and the checks that nothing was lost."""
