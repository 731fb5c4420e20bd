"""Drills: faults injected into a running platform under load, and the measured recovery.

Shipped because `hostelry chaos run` is for users, like the model server of the drills
(`containers/drill`). Nothing else imports this package; read it as you would `benchmarks/`.
"""
