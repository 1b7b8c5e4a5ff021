"""What a model would take and do on a device, before anything is built: memory, largest loads, bounds of speed."""
