"""What the kernel says of this machine: processes, memory, CPUs, disks, devices."""
