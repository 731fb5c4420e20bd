"""Connections between the hosts of a cluster: node proxy, certificates, joining."""
