"""What `edgeformer bench` is made of: timed calls, intervals, telemetry, records, and what is read from them."""
