"""Access to the machine for every room: files, processes, ports, paths, exit codes."""
