"""What every room uses of the machine: files, processes, ports, paths, exit codes."""
