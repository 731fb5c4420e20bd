"""Memory that the gateway workers of one machine share."""
