"""The command line: one command a file, thin: parse, call, print."""
