"""Processes of a platform: started, supervised, adopted, upgraded and stopped."""
