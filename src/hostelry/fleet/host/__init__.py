"""Facts and acts of this machine's kernel: processes, memory, CPUs, disks, devices."""
