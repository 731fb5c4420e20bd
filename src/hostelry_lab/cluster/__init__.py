"""The drill `cluster`: faults between the hosts of a platform that the drill starts itself."""
