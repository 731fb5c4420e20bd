"""Attention, norm, rotary embedding and linear layers."""
