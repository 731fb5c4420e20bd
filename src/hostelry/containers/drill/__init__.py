"""Model server of the drills, which they kill, stop, starve and crash.

Shipped because `hostelry chaos run` is for users; read it as you would `benchmarks/`.
"""
