"""A checkpoint's tokenizer, in whatever files it came, as the `tokenizer.json` that the runtime reads."""
